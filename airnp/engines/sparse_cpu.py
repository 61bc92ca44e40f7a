"""The operations of the sparse form on the CPU: the answers of ``reference.py`` by compiled loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from airnp.data.entries import Entries, Pattern
from airnp.engines import _sparse_kernels as kernels
from airnp.engines import threads as pool
from airnp.engines.buffers import empty_apart
from airnp.engines.contract import DecayPart, Edges, Offsets, Slopes
from airnp.engines.sparse_reference import spectrum
from airnp.engines.tape import call, launch

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


def residuals(
    entries: Entries,
    u: Floats,
    v: Floats,
    offsets: Offsets,
    *,
    scale: float,
    out: Slopes,
    plain: bool = False,
) -> Floats:
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
    kernel = kernels.residuals.build(chunks)
    for place, strip in enumerate(strips(entries, u.strides[0])):
        lines, weights = strip.pattern, alike if strip.weights is None else strip.weights
        before = (lines.indptr, lines.indices, strip.values, weights, u, v)
        after = (
            *(offsets.rows, offsets.columns, kind(scale), plain, cuts, place == 0),
            *(out.u, out.rows, parts, part_columns, sums, chunks),
        )
        call(_with_number, kernel, before, offsets.mean, u.dtype, after)
    if not alone:
        launch(kernels.add_parts, chunks, parts, part_columns, out.v, out.columns)
    return _weighted_sum(sums, scale / 2)


def _with_number(
    kernel: Any, before: tuple[Any, ...], number: Any, dtype: Any, after: tuple[Any, ...]
) -> None:
    """Call a kernel with a number that may stand in an array and have changed since the last iteration."""
    kernel(*before, np.asarray(number).reshape(()).astype(dtype)[()], *after)


def _weighted_sum(values: Floats, factor: float) -> Floats:
    """Return factor · Σ values as an array of shape ()."""
    found = np.empty(())
    call(_write_sum, values, factor, found)
    return found


def _write_sum(values: Floats, factor: float, out: Floats) -> None:
    out[...] = factor * float(np.sum(values, dtype=np.float64))


def entry_values(
    rows: npt.NDArray[Any], columns: npt.NDArray[Any], u: Floats, v: Floats, offsets: Offsets
) -> Floats:
    """Return μ + b_i + c_j + u_i·v_j at pairs."""
    out = np.empty(len(rows), u.dtype)
    chunks = _chunks(len(rows) * u.shape[1])
    kernel, after = kernels.values_at.build(chunks), (offsets.rows, offsets.columns, out, chunks)
    call(_with_number, kernel, (rows, columns, u, v), offsets.mean, u.dtype, after)
    return out


def line_sums(pattern: Pattern, x: Floats, *, out: Floats) -> None:
    """Write, for each line, the sum of the rows of x at its entries."""
    chunks = _chunks(len(pattern.indices) * x.shape[1])
    launch(kernels.line_sums, chunks, pattern.indptr, pattern.indices, x, _cuts(pattern, chunks), out)


def edge_terms(
    edges: Edges, logits: Floats, t: Floats, metric: Floats, *, weights: Floats, slopes: Floats, pull: Floats
) -> Floats:
    """Write P, ∂R/∂logits and 2 L t of a learned graph; return R.

    Outgoing edges first, then incoming ones by their own list: no two threads ever write to the same node.
    """
    pattern, (incoming, places) = edges.pattern, edges.incoming
    chunks = _chunks(edges.count * t.shape[1])
    means = np.empty(pattern.lines, t.dtype)
    form = (pattern.indptr, pattern.indices, logits, t, metric, _cuts(pattern, chunks))
    launch(kernels.edge_terms, chunks, *form, weights, slopes, pull, means)
    cuts = _cuts(incoming, chunks)
    launch(kernels.incoming_pull, chunks, incoming.indptr, incoming.indices, places, weights, t, cuts, pull)
    return _weighted_sum(means, 0.5)


def edge_laplacian(pattern: Pattern, weights: Floats, t: Floats, metric: Floats, *, pull: Floats) -> Floats:
    """Write 2 L t of a symmetric adjacency; return R = ½ Σ A_ij D_ij."""
    chunks = _chunks(len(pattern.indices) * t.shape[1])
    means = np.empty(pattern.lines, t.dtype)
    cuts = _cuts(pattern, chunks)
    launch(kernels.laplacian, chunks, pattern.indptr, pattern.indices, weights, t, metric, cuts, pull, means)
    return _weighted_sum(means, 0.5)


def gram_factors(gram: Floats) -> tuple[Floats, Floats, Floats]:
    """Return E (r, r), γ (r,) ≥ 0 and E⁻¹ = Eᵀ of G = E diag(γ) Eᵀ: the spectrum, found in float64."""
    basis, metric = empty_apart(gram.shape, gram.dtype), empty_apart(gram.shape[:1], gram.dtype)
    call(_write_spectrum, gram, basis, metric)
    return basis, metric, basis.T


def _write_spectrum(gram: Floats, basis: Floats, metric: Floats) -> None:
    basis[...], metric[...] = spectrum(gram)


def multiply(x: Floats, factor: Any, *, out: Floats) -> None:
    """Write x · factor, entry by entry."""
    call(np.multiply, x, factor if isinstance(factor, np.ndarray) else x.dtype.type(factor), out)


def add(target: Floats, x: Floats) -> None:
    """Add x to ``target``."""
    call(np.add, target, x, target)


def decay(parts: Sequence[DecayPart], *, weight: float) -> Floats:
    """Add weight · g ⊙ matrix to the slope of each part; return ½ Σ g ‖row‖² over all parts."""
    energy = np.empty(())
    scratch = [empty_apart(part.matrix.shape, part.matrix.dtype) for part in parts]
    call(_add_decay, parts, weight, scratch, energy)
    return energy


def _add_decay(parts: Sequence[DecayPart], weight: float, scratch: Sequence[Floats], out: Floats) -> None:
    energy = 0.0
    for (matrix, growth, slope), scaled in zip(parts, scratch, strict=True):
        np.multiply(matrix, 1 if growth is None else growth, out=scaled)
        energy += 0.5 * float(np.vdot(scaled, matrix))
        scaled *= matrix.dtype.type(weight)
        slope += scaled
    out[...] = energy


def total(x: Floats, *, out: Floats) -> None:
    """Write the sum of all entries of x to the only entry of ``out``."""
    call(_write_total, x, out)


def _write_total(x: Floats, out: Floats) -> None:
    out[...] = x.sum(dtype=np.float64)


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
