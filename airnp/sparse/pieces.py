"""Lines of a pattern in pieces of bounded length, so that a popular item keeps no processor waiting.

One warp sums one piece. A line with more entries than fit into one piece has several, whose sums are added in
their order: the same bits whatever runs first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[Any]

LONGEST = 1024
"""Entries of a piece at most: a line of 100 000 is the work of 98 warps."""


@dataclass(frozen=True, eq=False)
class Pieces:
    """Where pieces begin, and where their sums go.

    Attributes
    ----------
    starts : int64 array (pieces + 1,)
        Piece p has the entries ``starts[p]`` to ``starts[p + 1]``.
    lines : int32 array (pieces,) or None
        The line of each piece; None where every line is one piece.
    slots : int32 array (pieces,) or None
        Which of the parts to be added a piece is; −1 for a line of one piece.
    split_lines : int32 array (splits,)
        The lines of several pieces.
    split_firsts : int32 array (splits + 1,)
        Line ``split_lines[s]`` has the slots ``split_firsts[s]`` to ``split_firsts[s + 1]``.
    """

    starts: Indices
    lines: Indices | None
    slots: Indices | None
    split_lines: Indices
    split_firsts: Indices

    @property
    def count(self) -> int:
        """Number of pieces."""
        return len(self.starts) - 1

    @property
    def splits(self) -> int:
        """Number of lines of several pieces."""
        return len(self.split_lines)

    @property
    def parts(self) -> int:
        """Number of pieces of such lines."""
        return int(self.split_firsts[-1])


def cut(indptr: Indices, longest: int = LONGEST) -> Pieces:
    """Return the pieces of lines that have the entries ``indptr[i]`` to ``indptr[i + 1]``.

    Examples
    --------
    >>> pieces = cut(np.array([0, 2, 2, 7]), longest=2)
    >>> pieces.starts.tolist(), pieces.lines.tolist(), pieces.slots.tolist()
    ([0, 2, 2, 4, 6, 7], [0, 1, 2, 2, 2], [-1, -1, 0, 1, 2])
    >>> pieces.split_lines.tolist(), pieces.split_firsts.tolist()
    ([2], [0, 3])
    """
    starts = np.ascontiguousarray(indptr, np.int64)
    lengths = np.diff(starts)
    counts = np.maximum(-(-lengths // longest), 1)
    long = counts > 1
    firsts = np.concatenate([[0], np.cumsum(counts[long])]).astype(np.int32)
    split_lines = np.flatnonzero(long).astype(np.int32)
    if not len(split_lines):
        return Pieces(starts, None, None, split_lines, firsts)
    lines = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    before = np.concatenate([[0], np.cumsum(counts)[:-1]])
    within = np.arange(len(lines)) - before[lines]
    slots = np.full(len(lines), -1, np.int32)
    slots[long[lines]] = np.arange(firsts[-1], dtype=np.int32)
    begins = np.append(starts[lines] + within * longest, starts[-1])
    return Pieces(begins, lines, slots, split_lines, firsts)
