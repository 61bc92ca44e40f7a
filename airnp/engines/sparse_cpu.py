"""The operations of the sparse form on the CPU: the answers of ``reference.py`` by compiled loops."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from airnp.data.entries import Entries, Pattern
from airnp.engines import _sparse_kernels as kernels
from airnp.engines import threads as pool
from airnp.engines._cpu_kernels import Kernel
from airnp.engines.buffers import empty_apart
from airnp.engines.contract import Edges, Offsets, Slopes
from airnp.engines.sparse_reference import dense as dense
from airnp.engines.sparse_reference import number as number
from airnp.engines.sparse_reference import numbers as numbers
from airnp.engines.sparse_reference import xp as xp

Floats = npt.NDArray[Any]

_SMALL = 200_000
"""Multiplications below which cutting work into chunks costs more than it gives."""


def _chunks(work: int) -> int:
    count = pool.current_threads()
    return 1 if work < _SMALL * count else count


_known_cuts: WeakKeyDictionary[Pattern, dict[int, npt.NDArray[np.int64]]] = WeakKeyDictionary()


def _cuts(pattern: Pattern, chunks: int) -> npt.NDArray[np.int64]:
    """Return where to cut lines so that all chunks have about as many entries (and lines)."""
    known = _known_cuts.setdefault(pattern, {})
    if chunks not in known:
        work = pattern.indptr + np.arange(pattern.lines + 1)
        goals = work[-1] * np.arange(1, chunks) // chunks
        places = [[0], np.searchsorted(work, goals), [pattern.lines]]
        known[chunks] = np.concatenate(places).astype(np.int64)
    return known[chunks]


def _launch(kernel: Kernel, chunks: int, *arguments: Any) -> None:
    kernel.build(chunks)(*arguments, chunks)


def residuals(
    entries: Entries,
    u: Floats,
    v: Floats,
    offsets: Offsets,
    *,
    scale: float,
    out: Slopes,
    plain: bool = False,
) -> float:
    """Write the gradient of the fidelity and return its value; the longer side is walked, line by line.

    Strip by strip, where the other side's factors would not fit into the nearer cache. Each chunk adds up its
    own ∂V; these are added in the end, in a fixed order. The answer is thus the same for the same number of
    threads.
    """
    pattern, kind = entries.pattern, u.dtype.type
    chunks = _chunks(entries.nnz * u.shape[1])
    alone = chunks == 1
    parts = out.v[None] if alone else empty_apart((chunks, *v.shape), v.dtype)
    part_columns = out.columns[None] if alone else empty_apart((chunks, len(v)), v.dtype)
    sums, cuts, alike = np.empty(pattern.lines), _cuts(pattern, chunks), np.empty(0, u.dtype)
    for place, strip in enumerate(strips(entries, u.strides[0])):
        lines = strip.pattern
        _launch(
            kernels.residuals, chunks, lines.indptr, lines.indices, strip.values,
            alike if strip.weights is None else strip.weights, u, v, kind(offsets.mean), offsets.rows,
            offsets.columns, kind(scale), plain, cuts, place == 0, out.u, out.rows, parts, part_columns, sums,
        )  # fmt: skip
    if not alone:
        _launch(kernels.add_parts, chunks, parts, part_columns, out.v, out.columns)
    return scale / 2 * float(np.sum(sums))


def values_at(
    rows: npt.NDArray[Any], columns: npt.NDArray[Any], u: Floats, v: Floats, offsets: Offsets
) -> Floats:
    """Return μ + b_i + c_j + u_i·v_j at pairs."""
    out = np.empty(len(rows), u.dtype)
    mean = u.dtype.type(offsets.mean)
    chunks = _chunks(len(rows) * u.shape[1])
    _launch(kernels.values_at, chunks, rows, columns, u, v, mean, offsets.rows, offsets.columns, out)
    return out


def line_sums(pattern: Pattern, x: Floats, out: Floats) -> None:
    """Write, for each line, the sum of the rows of x at its entries."""
    chunks = _chunks(len(pattern.indices) * x.shape[1])
    _launch(kernels.line_sums, chunks, pattern.indptr, pattern.indices, x, _cuts(pattern, chunks), out)


def edge_terms(
    edges: Edges, logits: Floats, t: Floats, metric: Floats, *, weights: Floats, slopes: Floats, pull: Floats
) -> float:
    """Write P, ∂R/∂logits and 2 L t of a learned graph; return R.

    Outgoing edges first, then incoming ones by their own list: no two threads ever write to the same node.
    """
    pattern, (incoming, places) = edges.pattern, edges.incoming
    chunks = _chunks(edges.count * t.shape[1])
    means = np.empty(pattern.lines, t.dtype)
    form = (pattern.indptr, pattern.indices, logits, t, metric, _cuts(pattern, chunks))
    _launch(kernels.edge_terms, chunks, *form, weights, slopes, pull, means)
    cuts = _cuts(incoming, chunks)
    _launch(kernels.incoming_pull, chunks, incoming.indptr, incoming.indices, places, weights, t, cuts, pull)
    return 0.5 * float(np.sum(means, dtype=np.float64))


def laplacian(pattern: Pattern, weights: Floats, t: Floats, metric: Floats, *, pull: Floats) -> float:
    """Write 2 L t of a symmetric adjacency; return R = ½ Σ A_ij D_ij."""
    chunks = _chunks(len(pattern.indices) * t.shape[1])
    means = np.empty(pattern.lines, t.dtype)
    cuts = _cuts(pattern, chunks)
    _launch(kernels.laplacian, chunks, pattern.indptr, pattern.indices, weights, t, metric, cuts, pull, means)
    return 0.5 * float(np.sum(means, dtype=np.float64))


_CACHE_BYTES = 2**20
"""What V and ∂V of a strip may need."""

_ENTRIES_PER_LINE = 4
"""Entries that a line must have in a strip on average: each costs reading and writing u and ∂u once more."""

_strips: WeakKeyDictionary[Entries, tuple[int, list[Entries]]] = WeakKeyDictionary()


def strips(entries: Entries, row_bytes: int) -> list[Entries]:
    """Return entries strip by strip, or the entries as they are where strips would not pay.

    Parameters
    ----------
    entries : Entries
    row_bytes : int
        Size of a column's row in V.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> from airnp.data.entries import read_entries
    >>> wide = read_entries(csr_array(np.ones((2, 4096))))
    >>> [strip.nnz for strip in strips(wide, 512)]
    [2048, 2048, 2048, 2048]
    """
    if entries.share < 1:
        return [entries]
    m, n = entries.shape
    wanted = -(-2 * n * row_bytes // _CACHE_BYTES)
    count = min(wanted, entries.nnz // (_ENTRIES_PER_LINE * m))
    if count <= 1:
        return [entries]
    known = _strips.get(entries)
    if known is None or known[0] != count:
        width = -(-n // count)
        strip = (entries.pattern.indices // width).astype(np.int32)
        known = count, [entries.chosen(np.flatnonzero(strip == place)) for place in range(count)]
        _strips[entries] = known
    return known[1]
