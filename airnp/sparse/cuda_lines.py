"""Patterns on a CUDA device: lines in pieces, both ways through them, and the launches of sums over them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from airnp._arrays import Array
from airnp.engines.cuda_launch import THREADS, launch
from airnp.sparse.entries import Entries, Pattern
from airnp.sparse.pieces import cut

COLUMNS = 128
"""Columns of a factor that a warp has in its registers."""

_WARPS, _MOST_BLOCKS = THREADS // 32, 2048
_MOST_LINES = 2**31


def blocks(items: int, of_block: int = _WARPS) -> tuple[int]:
    """Return the grid for so many items, one for a warp; it strides over what is left."""
    return (max(1, min(math.ceil(items / of_block), _MOST_BLOCKS)),)


class Lines:
    """A pattern on the device, in pieces, with space for sums over it."""

    def __init__(self, pattern: Pattern) -> None:
        import cupy

        if max(pattern.lines, pattern.width) >= _MOST_LINES:
            raise ValueError(
                f"Y: the CUDA kernels count lines in 32 bits, got {pattern.lines}x{pattern.width}"
            )
        pieces = cut(pattern.indptr)
        self.count, self.splits, self._slots = pieces.count, pieces.splits, pieces.parts
        self.indices = cupy.asarray(pattern.indices.astype(np.int32, copy=False))
        self.starts = cupy.asarray(pieces.starts)
        self.lines = None if pieces.lines is None else cupy.asarray(pieces.lines)
        self.slots = None if pieces.slots is None else cupy.asarray(pieces.slots)
        self._split = cupy.asarray(pieces.split_firsts), cupy.asarray(pieces.split_lines)
        self.indptr = self.starts if pieces.lines is None else cupy.asarray(pattern.indptr)
        self._parts: dict[Any, Array] = {}
        self._sums: dict[Any, tuple[Array, ...]] = {}

    @property
    def form(self) -> tuple[Any, ...]:
        """Starts, lines, slots and indices, as kernels want them."""
        return self.starts, self.lines, self.slots, self.indices

    def parts(self, like: Array) -> Array | None:
        """Return space for the sums of pieces of long lines of a factor like this; None if none is long."""
        import cupy

        shape = (self._slots, like.shape[1] + 1)
        if self.splits and (shape, like.dtype) not in self._parts:
            self._parts[shape, like.dtype] = cupy.empty(shape, dtype=like.dtype)
        return self._parts.get((shape, like.dtype))

    def sums(self, dtype: Any) -> tuple[Array, ...]:
        """Return space for partial sums, a ticket, and the value that comes out."""
        import cupy

        if dtype not in self._sums:
            partial = cupy.empty((_MOST_BLOCKS, 2), dtype=dtype)
            self._sums[dtype] = partial, cupy.zeros(1, dtype=cupy.uint32), cupy.empty((), dtype=dtype)
        return self._sums[dtype]

    def units(self, start: int, rank: int) -> int:
        """Return the number of pieces times that of groups of columns."""
        return self.count * math.ceil((rank - start) / COLUMNS)

    def add_up(
        self,
        x: Array,
        out: Array,
        *,
        weights: Array | None = None,
        places: Array | None = None,
        totals: Array | None = None,
        start: int = 0,
    ) -> None:
        """Queue sums of rows of ``x`` over each line; long lines are left in parts."""
        rank = x.shape[1]
        arguments = (*self.form, places, weights, x, out, totals, self.parts(x), self.count, start, rank)
        launch("sparse_lines", "line_sums", (x.dtype,), blocks(self.units(start, rank)), *arguments)

    def add_gaps(
        self,
        weights: Array,
        t: Array,
        pull: Array,
        *,
        scale: float = 1.0,
        places: Array | None = None,
        metric: Array | None = None,
        adds: bool = False,
        start: int = 0,
    ) -> Array | None:
        """Queue sums of weighted differences from each line's own row of ``t``; with a metric, return R."""
        rank, sums = t.shape[1], (None, None, None) if metric is None else self.sums(t.dtype)
        given = (*self.form, places, weights, t, metric, scale, pull, self.parts(t), *sums)
        grid = blocks(self.units(start, rank))
        launch("sparse_lines", "gap_sums", (t.dtype, adds), grid, *given, self.count, start, rank)
        self.join(pull, None, adds=adds, start=start)
        return sums[2]

    def join(self, out: Array, totals: Array | None, *, adds: bool = False, start: int = 0) -> None:
        """Queue the sums of the parts of long lines, if there are any."""
        if not self.splits:
            return
        rank = out.shape[1]
        grid = blocks(self.splits * (rank + 1), THREADS)
        arguments = (self.parts(out), *self._split, out, totals, self.splits, start, rank)
        launch("sparse_lines", "join_pieces", (out.dtype, adds), grid, *arguments)


class Turned:
    """Lines of a pattern the other way, and where each of their entries is in the pattern."""

    def __init__(self, pattern: Pattern, places: Any) -> None:
        import cupy

        self.lines, self.places = Lines(pattern), cupy.asarray(places.astype(np.int64, copy=False))


class Observed:
    """Entries on the device: values, both ways through them, and space for their slopes.

    Weights, and the row and column of each entry, where they are weighted.
    """

    def __init__(self, entries: Entries) -> None:
        import cupy

        self.values = cupy.asarray(entries.values)
        self.slopes = cupy.empty(entries.nnz, dtype=entries.values.dtype)
        self.turned = Turned(*entries.pattern.transposed())
        if entries.weights is not None:
            self.weights = cupy.asarray(entries.weights)
            pattern = entries.pattern
            self.places = cupy.asarray(pattern.line_of_each()), cupy.asarray(pattern.indices)
