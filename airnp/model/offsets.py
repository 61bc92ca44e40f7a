r"""Offsets and mask factor of the factored form: what is known of a row or column before any factor.

Offsets are what rows and columns have on average:

.. math:: X_{ij} = μ + b_i + c_j + u_i·v_j, \qquad
   \tfrac{s κ}{2} (\|b\|^2 + \|c\|^2) \text{ shrinks } b \text{ and } c

With the fidelity s/2 Σ (x − y)² the best b_i, all else given, is Σ_j (y_ij − …) / (n_i + κ): the mean
residual of the row, as if κ more entries had said zero. With weights w it is
Σ_j w_ij (y_ij − …) / (Σ_j w_ij + κ).

The mask factor lets which entries are observed say something before any of their values does. With Ω the 0/1
matrix of observed entries, n_i and n_j its row and column counts,

.. math:: U = U_0 + N Y, \quad N = diag(n_i)^{-1/2} Ω, \qquad V = V_0 + M Z, \quad M = diag(n_j)^{-1/2} Ω^T

with free Y (n×r) and Z (m×r): the outer factors of the chain are [U_0 | N] times what is stacked below. So
:math:`∂Y = N^T ∂U` and :math:`∂Z = M^T ∂V`, sums over the same pattern, walked the other way.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from airnp._checks import checked_number
from airnp.data.entries import Entries, Pattern
from airnp.engines.contract import Engine

_SWEEPS = 10
_DEFAULT_SHRINKAGE = 10.0


def checked_offsets(offsets: Any) -> float | None:
    """Return κ for what ``offsets`` of ``fit_sparse`` says: None for no offsets.

    Examples
    --------
    >>> checked_offsets(True), checked_offsets(2), checked_offsets(False)
    (10.0, 2.0, None)
    """
    if isinstance(offsets, bool | np.bool_):
        return _DEFAULT_SHRINKAGE if offsets else None
    shrinkage = checked_number("offsets", offsets)
    if shrinkage < 0:
        raise ValueError(f"offsets: expected True, False or a shrinkage of at least 0, got {offsets!r}")
    return shrinkage


def first_offsets(
    entries: Entries, shrinkage: float
) -> tuple[float, npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return μ, b (m,) and c (n,) that fit the entries without any factor, by turns, in float64.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> from airnp.data.entries import read_entries
    >>> table = np.add.outer([1.0, 2.0], [0.0, 4.0, 5.0])
    >>> mean, rows, columns = first_offsets(read_entries(csr_array(table)), 0.0)
    >>> mean, rows.round(3), columns.round(3)
    (4.5, array([-0.5,  0.5]), array([-3.,  1.,  2.]))
    """
    (m, n), columns = entries.shape, entries.pattern.indices
    rows = entries.pattern.line_of_each()
    values = entries.values.astype(np.float64)
    weights = None if entries.weights is None else entries.weights.astype(np.float64)
    mean = float(np.average(values, weights=weights))
    values -= mean
    in_row = _at_least_something(np.bincount(rows, weights, minlength=m) + shrinkage)
    in_column = _at_least_something(np.bincount(columns, weights, minlength=n) + shrinkage)
    b, c = np.zeros(m), np.zeros(n)
    for _ in range(_SWEEPS):
        b = np.bincount(rows, _times(weights, values - c[columns]), minlength=m) / in_row
        c = np.bincount(columns, _times(weights, values - b[rows]), minlength=n) / in_column
    return mean, b, c


def _at_least_something(totals: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return what to divide by: for a line without entries, whose sum is zero, 1."""
    return np.where(totals > 0, totals, 1.0)


def _times(weights: npt.NDArray[np.float64] | None, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return values if weights is None else weights * values


Floats = npt.NDArray[Any]
MaskSides: TypeAlias = Literal["rows", "columns", "both"]


class MaskFactor:
    """One side's N (or M), for products with it and with its transpose.

    Parameters
    ----------
    lines : Pattern
        The observed entries, line by line of this side.
    across : Pattern
        The same entries, line by line of the other side.
    dtype : dtype
    xp : module
        Whose arrays it is multiplied with.
    """

    def __init__(self, lines: Pattern, across: Pattern, dtype: Any, xp: Any = np) -> None:
        self._lines, self._across = lines, across
        self._scale = xp.asarray((1 / np.sqrt(np.maximum(lines.counts, 1))).astype(dtype)[:, None])

    @classmethod
    def of_rows(cls, entries: Entries, xp: Any = np) -> MaskFactor:
        """Return N of these entries."""
        return cls(entries.pattern, entries.columns, entries.values.dtype, xp)

    @classmethod
    def of_columns(cls, entries: Entries, xp: Any = np) -> MaskFactor:
        """Return M of these entries."""
        return cls(entries.columns, entries.pattern, entries.values.dtype, xp)

    def added(self, ops: Engine, base: Floats, factor: Floats, out: Floats) -> Floats:
        """Write base + N · factor to ``out`` and return it."""
        ops.line_sums(self._lines, factor, out=out)
        ops.multiply(out, self._scale, out=out)
        ops.add(out, base)
        return out

    def gradient(self, ops: Engine, slope: Floats, scratch: Floats, out: Floats) -> Floats:
        """Write Nᵀ · slope to ``out`` and return it; ``scratch`` has the shape of ``slope``."""
        ops.multiply(slope, self._scale, out=scratch)
        ops.line_sums(self._across, scratch, out=out)
        return out
