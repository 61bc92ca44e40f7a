r"""The mask factor: which entries are observed tells about a row before any of their values does.

With Ω the 0/1 matrix of observed entries, n_i and n_j its row and column counts,

.. math:: U = U_0 + N Y, \quad N = diag(n_i)^{-1/2} Ω, \qquad V = V_0 + M Z, \quad M = diag(n_j)^{-1/2} Ω^T

with free Y (n×r) and Z (m×r): the outer factors of the chain are [U_0 | N] times what is stacked below. So
:math:`∂Y = N^T ∂U` and :math:`∂Z = M^T ∂V`, sums over the same pattern, walked the other way.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from airnp.sparse.contract import SparseOperations
from airnp.sparse.entries import Entries, Pattern

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

    def added(self, ops: SparseOperations, base: Floats, factor: Floats, out: Floats) -> Floats:
        """Write base + N · factor to ``out`` and return it."""
        ops.line_sums(self._lines, factor, out)
        out *= self._scale
        out += base
        return out

    def gradient(self, ops: SparseOperations, slope: Floats, out: Floats) -> Floats:
        """Write Nᵀ · slope to ``out`` and return it."""
        ops.line_sums(self._across, slope * self._scale, out)
        return out
