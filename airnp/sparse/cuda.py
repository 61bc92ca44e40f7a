"""The operations of the sparse form on a CUDA device: the answers of ``reference.py``, by our own kernels.

One warp sums one line, or one piece of a long line; no two warps write to the same place, and no sum depends
on who comes first. Patterns stay on the host; a copy on the device is made when one is first used, and goes
when it does. Scalars stay on the device until :func:`numbers` brings all of an iteration over at once; such a
scalar is valid until the same operation is carried out on the same pattern again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from airnp._arrays import Array
from airnp.engines import cuda as dense
from airnp.engines.cuda_launch import launch
from airnp.sparse.contract import Edges, Offsets, Slopes
from airnp.sparse.cuda_lines import COLUMNS, Lines, Observed, Turned, blocks
from airnp.sparse.entries import Entries, Pattern

__all__ = ["dense", "edge_terms", "laplacian", "line_sums", "number", "numbers", "residuals", "values_at"]


def __getattr__(name: str) -> Any:
    if name == "xp":
        import cupy

        return cupy
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def number(value: Any) -> Any:
    """Return a scalar of the device as it is: to look at it would mean to wait for it."""
    return value


def numbers(values: Sequence[Any]) -> list[float]:
    """Return scalars as floats; those of the device come over in one copy."""
    import cupy

    there = [value for value in values if isinstance(value, cupy.ndarray)]
    come = iter(cupy.stack([value.astype(np.float64) for value in there]).get().tolist() if there else [])
    return [next(come) if isinstance(value, cupy.ndarray) else float(value) for value in values]


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

    mean: Any = offsets.mean
    return mean if isinstance(mean, cupy.ndarray) else cupy.full((), mean, dtype=like.dtype)


def residuals(
    entries: Entries,
    u: Array,
    v: Array,
    offsets: Offsets,
    *,
    scale: float,
    out: Slopes,
    plain: bool = False,
) -> Any:
    """Write the gradient of the fidelity; return its value, on the device.

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
    return value


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

    error = values_at(*found.places, u, v, offsets) - found.values
    found.slopes[...] = error * found.weights
    found.slopes *= found.slopes.dtype.type(scale)
    lines.add_up(v, out.u, weights=found.slopes, totals=out.rows)
    lines.join(out.u, out.rows)
    return 0.5 * cupy.sum(found.slopes * error, dtype=np.float64)


def values_at(rows: Any, columns: Any, u: Array, v: Array, offsets: Offsets) -> Array:
    """Return μ + b_i + c_j + u_i·v_j at pairs, which may be on the host."""
    import cupy

    i, j = (cupy.asarray(places, dtype=cupy.int32) for places in (rows, columns))
    out = cupy.empty(len(i), dtype=u.dtype)
    given = (u, v, _mean(offsets, u), offsets.rows, offsets.columns)
    launch(
        "sparse_entries", "entry_values", (u.dtype,), blocks(len(i)), i, j, *given, out, len(i), u.shape[1]
    )
    return out


def line_sums(pattern: Pattern, x: Array, out: Array) -> None:
    """Write, for each line, the sum of the rows of x at its entries."""
    lines = _lines(pattern)
    lines.add_up(x, out)
    lines.join(out, None)


def edge_terms(
    edges: Edges, logits: Array, t: Array, metric: Array, *, weights: Array, slopes: Array, pull: Array
) -> Any:
    """Write P, ∂R/∂logits and 2 L t of a learned graph; return R, on the device.

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
    return sums[2]


def laplacian(pattern: Pattern, weights: Array, t: Array, metric: Array, *, pull: Array) -> Any:
    """Write 2 L t of a symmetric adjacency; return R = ½ Σ A_ij D_ij, on the device."""
    return _lines(pattern).add_gaps(weights, t, pull, scale=2.0, metric=metric)
