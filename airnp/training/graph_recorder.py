"""Learned graphs at several moments of a fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from airnp._arrays import to_numpy
from airnp._checks import checked_whole
from airnp.training.recorder import FitState

_USUAL = (1, 100, 1000, 3000, 10_000, 30_000)


class GraphRecorder:
    """A callback of :func:`airnp.fit` that keeps the learned graphs of some moments.

    Parameters
    ----------
    at : sequence of int
        Iterations at which to keep them. A fit calls back at its first iteration, at its last, and at every
        multiple of ``record``; each moment is taken at the first call that is not before it.

    Attributes
    ----------
    moments : list of int
        Iterations whose graphs were kept. A new fit starts with an empty list.

    Notes
    -----
    The last graphs here are those of the last moment, not those of the result, which may come from another
    iterate.

    Examples
    --------
    >>> import airnp
    >>> recorder = GraphRecorder(at=[1, 15, 30])
    >>> Y = np.random.default_rng(0).random((8, 6))
    >>> result = airnp.fit(Y, regularizers=None, max_iter=40, stop=None, callback=recorder)
    >>> recorder
    <GraphRecorder of rows, columns at 1, 20, 30>
    >>> recorder.adjacencies("rows").shape
    (3, 8, 8)
    """

    def __init__(self, at: Sequence[int] = _USUAL) -> None:
        self.at = sorted({checked_whole("at", moment) for moment in at})
        self.moments: list[int] = []
        self._graphs: list[dict[str, npt.NDArray[Any]]] = []

    def __call__(self, iteration: int, state: FitState) -> None:
        """Keep the graphs of this iteration if a moment has come since the last call."""
        if self.moments and iteration <= self.moments[-1]:
            self.moments, self._graphs = [], []
        last = self.moments[-1] if self.moments else 0
        if any(last < moment <= iteration for moment in self.at):
            self._graphs.append(
                {
                    name.removeprefix("energy_"): np.array(to_numpy(adjacency))
                    for name, adjacency in state.graphs.items()
                }
            )
            self.moments.append(iteration)

    @property
    def names(self) -> list[str]:
        """The graphs that were learned: ``"rows"``, ``"columns"``, with a number where a name comes again."""
        return list(self._graphs[0]) if self._graphs else []

    def adjacencies(self, name: str) -> npt.NDArray[Any]:
        """Return A of one graph at all moments, shape (moments, …, k, k).

        Raises
        ------
        KeyError
            When no such graph was recorded.
        """
        if not self.moments:
            raise KeyError("nothing was recorded yet: give the recorder to airnp.fit as callback=")
        if name not in self.names:
            there = ", ".join(map(repr, self.names)) or "none: the fit learned no graphs"
            raise KeyError(f"no graph {name!r} was recorded; there are {there}")
        return np.stack([graphs[name] for graphs in self._graphs])

    def laplacians(self, name: str) -> npt.NDArray[Any]:
        """Return L = deg(A) − A of one graph at all moments, shape (moments, …, k, k)."""
        adjacencies = self.adjacencies(name)
        identity = np.eye(adjacencies.shape[-1], dtype=adjacencies.dtype)
        return np.asarray(adjacencies.sum(axis=-1)[..., None] * identity - adjacencies)

    def __repr__(self) -> str:
        moments = ", ".join(map(str, self.moments)) or "no moment yet"
        return f"<GraphRecorder of {', '.join(self.names) or 'nothing'} at {moments}>"
