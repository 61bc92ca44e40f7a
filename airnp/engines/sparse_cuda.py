"""The operations of the sparse form on a CUDA device: the answers of ``reference.py``, by our own kernels.

One warp sums one line, or one piece of a long line; no two warps write to the same place, and no sum depends
on who comes first. Patterns stay on the host; a copy on the device is made when one is first used, and goes
when it does. Scalars stay on the device: the engine brings those of many iterations over at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from airnp._arrays import Array
from airnp.data.entries import Entries, Pattern
from airnp.engines.contract import DecayPart, Edges, Offsets, Slopes
from airnp.engines.launching import THREADS, launch

_patterns: WeakKeyDictionary[Pattern, Lines] = WeakKeyDictionary()
_entries: WeakKeyDictionary[Entries, Observed] = WeakKeyDictionary()
_edges: WeakKeyDictionary[Edges, Turned] = WeakKeyDictionary()


def _lines(pattern: Pattern) -> Lines:
    if pattern not in _patterns:
        _patterns[pattern] = Lines(pattern)
    return _patterns[pattern]


def _mean(offsets: Offsets, like: Array) -> Array:
    """Return μ as a scalar of the device."""
    import cupy

    mean = offsets.mean
    return mean.reshape(()) if isinstance(mean, cupy.ndarray) else cupy.full((), mean, dtype=like.dtype)


def _scalar(value: Array) -> Array:
    """Return a copy in float64: the kernels' own scalar is overwritten by the next iteration."""
    return value.astype(np.float64)


def residuals(
    entries: Entries,
    u: Array,
    v: Array,
    offsets: Offsets,
    *,
    scale: float,
    out: Slopes,
    plain: bool = False,
) -> Array:
    """Write the gradient of the fidelity; return its value.

    By rows first: errors, ∂U and ∂b, while each entry's slope is kept; then by columns, ∂V and ∂c from these.
    """
    if entries not in _entries:
        _entries[entries] = Observed(entries)
    found, lines = _entries[entries], _lines(entries.pattern)
    by_rows = _row_residuals if entries.weights is None else _weighted_row_residuals
    value = by_rows(found, lines, u, v, offsets, scale, out)
    turned, places = found.turned.lines, found.turned.places
    turned.add_up(u, out.v, weights=found.slopes, places=places, totals=out.columns)
    turned.join(out.v, out.columns)
    return _scalar(value)


def _row_residuals(
    found: Observed, lines: Lines, u: Array, v: Array, offsets: Offsets, scale: float, out: Slopes
) -> Array:
    """Write slopes, ∂U and ∂b; return the fidelity."""
    rank = u.shape[1]
    sums = lines.sums(u.dtype)
    sides = (found.values, u, v, _mean(offsets, u), offsets.rows, offsets.columns, scale)
    results = (found.slopes, out.u, out.rows, lines.parts(u), *sums, lines.count, rank)
    grid = blocks(lines.count)
    launch("sparse_entries", "row_residuals", (u.dtype,), grid, *lines.form, *sides, *results)
    if rank > COLUMNS:
        lines.add_up(v, out.u, weights=found.slopes, start=COLUMNS)
    lines.join(out.u, out.rows)
    return sums[2]


def _weighted_row_residuals(
    found: Observed, lines: Lines, u: Array, v: Array, offsets: Offsets, scale: float, out: Slopes
) -> Array:
    """Write slopes, ∂U and ∂b; return the fidelity. Weights come in between two passes over the entries."""
    import cupy

    error = entry_values(*found.places, u, v, offsets) - found.values
    found.slopes[...] = error * found.weights
    found.slopes *= found.slopes.dtype.type(scale)
    lines.add_up(v, out.u, weights=found.slopes, totals=out.rows)
    lines.join(out.u, out.rows)
    return 0.5 * cupy.sum(found.slopes * error, dtype=np.float64)


def entry_values(rows: Any, columns: Any, u: Array, v: Array, offsets: Offsets) -> Array:
    """Return μ + b_i + c_j + u_i·v_j at pairs, which may be on the host."""
    import cupy

    i, j = (cupy.asarray(places, dtype=cupy.int32) for places in (rows, columns))
    out = cupy.empty(len(i), dtype=u.dtype)
    given = (u, v, _mean(offsets, u), offsets.rows, offsets.columns)
    launch(
        "sparse_entries", "entry_values", (u.dtype,), blocks(len(i)), i, j, *given, out, len(i), u.shape[1]
    )
    return out


def line_sums(pattern: Pattern, x: Array, *, out: Array) -> None:
    """Write, for each line, the sum of the rows of x at its entries."""
    lines = _lines(pattern)
    lines.add_up(x, out)
    lines.join(out, None)


def edge_terms(
    edges: Edges, logits: Array, t: Array, metric: Array, *, weights: Array, slopes: Array, pull: Array
) -> Array:
    """Write P, ∂R/∂logits and 2 L t of a learned graph; return R.

    Outgoing edges first, then incoming ones by their own list.
    """
    if edges not in _edges:
        _edges[edges] = Turned(*edges.incoming)
    lines, turned = _lines(edges.pattern), _edges[edges]
    sums, (nodes, rank) = lines.sums(t.dtype), t.shape
    given = (lines.indptr, lines.indices, logits, t, metric, weights, slopes, pull, *sums, nodes, rank)
    launch("sparse_edges", "edge_terms", (t.dtype,), blocks(nodes), *given)
    if rank > COLUMNS:
        lines.add_gaps(weights, t, pull, start=COLUMNS)
    turned.lines.add_gaps(weights, t, pull, places=turned.places, adds=True)
    return _scalar(sums[2])


def edge_laplacian(pattern: Pattern, weights: Array, t: Array, metric: Array, *, pull: Array) -> Array:
    """Write 2 L t of a symmetric adjacency; return R = ½ Σ A_ij D_ij."""
    return _scalar(_lines(pattern).add_gaps(weights, t, pull, scale=2.0, metric=metric))


_ROUNDINGS = 8.0
"""Times √r: by how many roundings the diagonal of a Gram matrix is raised, more than errors can be."""


def gram_factors(gram: Array) -> tuple[Array, Array, Array]:
    """Return L, D and L⁻¹ of G = L diag(D) Lᵀ, L being unit lower triangular.

    Its diagonal is raised by a few roundings first, for which no eigenvectors and no host are needed.
    """
    import cupy

    factor, inverse, pivots = cupy.empty_like(gram), cupy.empty_like(gram), cupy.empty_like(gram[0])
    rank = gram.shape[0]
    tolerance = _ROUNDINGS * math.sqrt(rank) * float(np.finfo(gram.dtype).eps)
    results = (factor, pivots, inverse, tolerance, rank)
    launch("sparse_gram", "factor_gram", (gram.dtype,), (1,), gram, *results)
    return factor, pivots, inverse


def multiply(x: Array, factor: Any, *, out: Array) -> None:
    """Write x · factor, entry by entry."""
    out[...] = x * (x.dtype.type(factor) if isinstance(factor, float | int) else factor)


def add(target: Array, x: Array) -> None:
    """Add x to ``target``."""
    target += x


def decay(parts: Sequence[DecayPart], *, weight: float) -> Array:
    """Add weight · g ⊙ matrix to the slope of each part; return ½ Σ g ‖row‖² over all parts."""
    import cupy

    energies = []
    for matrix, growth, slope in parts:
        scaled = matrix * matrix.dtype.type(1) if growth is None else growth * matrix
        energies.append(0.5 * _scalar(cupy.vdot(scaled, matrix)))
        scaled *= matrix.dtype.type(weight)
        slope += scaled
    return sum(energies[1:], start=energies[0])


def total(x: Array, *, out: Array) -> None:
    """Write the sum of all entries of x to the only entry of ``out``."""
    out[...] = x.sum(dtype=np.float64)


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
