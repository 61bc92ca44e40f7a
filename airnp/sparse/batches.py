"""Batches of observed entries: each entry once in every pass, in an order drawn anew."""

from __future__ import annotations

from typing import Any

import numpy as np

from airnp.sparse.entries import Entries


class Batches:
    """Deals out the entries in batches of about equal size.

    Parameters
    ----------
    entries : Entries
    size : int or None
        How many at a time; None for all, always.
    seed : int

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> from airnp.sparse.entries import read_entries
    >>> batches = Batches(read_entries(csr_array(np.ones((2, 3)))), size=3, seed=0)
    >>> first, second = batches.next(), batches.next()
    >>> first.nnz, second.nnz, first.share, first.shape
    (3, 3, 0.5, (2, 3))

    Batches of the same entries that take up the state go on with the same ones:

    >>> again = Batches(read_entries(csr_array(np.ones((2, 3)))), size=3, seed=1)
    >>> again.restore(batches.state())
    >>> bool((again.next().pattern.indices == batches.next().pattern.indices).all())
    True
    """

    def __init__(self, entries: Entries, size: int | None, seed: int) -> None:
        self._entries = entries
        self._count = 1 if size is None else -(-entries.nnz // size)
        self._rng = np.random.default_rng([seed, 2])
        self._drawn: dict[str, Any] = {}
        self._place = 0
        self._order = np.empty(0, np.int64)

    def next(self) -> Entries:
        """Return the next batch; its ``share`` says by how much to scale it up."""
        if self._count == 1:
            return self._entries
        if self._place == 0:
            self._draw()
        cuts = len(self._order) * np.arange(self._count + 1) // self._count
        chosen = np.sort(self._order[cuts[self._place] : cuts[self._place + 1]])
        self._place = (self._place + 1) % self._count
        return self._entries.chosen(chosen, share=len(chosen) / self._entries.nnz)

    def _draw(self) -> None:
        # What the generator was before is all that it takes to draw the same order again.
        self._drawn = dict(self._rng.bit_generator.state)
        self._order = self._rng.permutation(self._entries.nnz)

    def state(self) -> dict[str, Any]:
        """Return how to go on: the random state that this pass was drawn from, and the place within it."""
        return {"random": self._drawn, "place": self._place}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on where other batches of the same entries were when :meth:`state` was asked."""
        self._place = state["place"]
        if state["random"]:
            self._rng.bit_generator.state = state["random"]
            self._draw()
