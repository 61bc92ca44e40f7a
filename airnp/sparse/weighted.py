r"""Entries that count more or less: an engine's residuals with a weight for each of them.

.. math:: F = \frac s2 \sum_{(i,j)} w_{ij} (x_{ij} - y_{ij})^2

With E the sparse matrix of s w (x − y): ∂U = E V, ∂V = Eᵀ U, ∂b = E 1, ∂c = Eᵀ 1. The engine gives x at the
entries; E is formed between the two passes, so that no kernel needs to know of weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from airnp.sparse.contract import Offsets, Slopes, SparseOperations
from airnp.sparse.entries import Entries

Floats = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class _Placed:
    """Rows, columns, values and weights of entries, where the engine computes."""

    rows: Any
    columns: Any
    values: Any
    weights: Any


class WeightedOperations:
    """An engine of the sparse form, whose residuals heed ``entries.weights``; all else is the engine's own.

    Parameters
    ----------
    ops : SparseOperations
    """

    def __init__(self, ops: SparseOperations) -> None:
        self._ops = ops
        self._placed: WeakKeyDictionary[Entries, _Placed] = WeakKeyDictionary()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ops, name)

    def residuals(
        self,
        entries: Entries,
        u: Floats,
        v: Floats,
        offsets: Offsets,
        *,
        scale: float,
        out: Slopes,
        plain: bool = False,
    ) -> Any:
        """Write the gradient of F = scale/2 · Σ w (x − y)² over the entries; return F."""
        if entries.weights is None:
            return self._ops.residuals(entries, u, v, offsets, scale=scale, out=out, plain=plain)
        at = self._place(entries)
        error = self._ops.values_at(at.rows, at.columns, u, v, offsets) - at.values
        slopes = error * at.weights
        slopes *= slopes.dtype.type(scale)
        if self._ops.xp is np:
            _add_up(entries, slopes, u, v, out)
        else:
            from airnp.sparse import cuda

            cuda.add_up(entries, slopes, u, v, out=out)
        return 0.5 * self._ops.number(self._ops.xp.sum(slopes * error, dtype=np.float64))

    def _place(self, entries: Entries) -> _Placed:
        if entries not in self._placed:
            asarray, pattern = self._ops.xp.asarray, entries.pattern
            parts = pattern.line_of_each(), pattern.indices, entries.values, entries.weights
            self._placed[entries] = _Placed(*map(asarray, parts))
        return self._placed[entries]


def _add_up(entries: Entries, slopes: Floats, u: Floats, v: Floats, out: Slopes) -> None:
    """Write ∂U, ∂V, ∂b and ∂c from the slope of each entry, on the host."""
    from scipy.sparse import csr_array

    pattern = entries.pattern
    matrix = csr_array((slopes, pattern.indices, pattern.indptr), shape=entries.shape)
    out.u[...], out.v[...] = matrix @ v, matrix.T @ u
    out.rows[...], out.columns[...] = matrix.sum(axis=1), matrix.sum(axis=0)
