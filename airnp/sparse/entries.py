"""Observed entries of a large matrix: what is stored, in the order of rows, and nothing else."""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from airnp._arrays import natural_float, requested_float
from airnp.inputs import EmptyLineWarning

Floats = npt.NDArray[Any]
Indices = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Pattern:
    """Which entries there are, line by line: line i has ``indices[indptr[i] : indptr[i + 1]]``.

    Attributes
    ----------
    indptr : int64 array (lines + 1,)
    indices : int32 or int64 array (nnz,)
        Positions across, ascending within a line.
    width : int
        How many positions there are.
    """

    indptr: Indices
    indices: Indices
    width: int

    @property
    def lines(self) -> int:
        """Number of lines."""
        return len(self.indptr) - 1

    @cached_property
    def counts(self) -> Indices:
        """Entries on each line, shape (lines,)."""
        return np.diff(self.indptr)

    def line_of_each(self) -> Indices:
        """Return the line of each entry, shape (nnz,)."""
        return np.repeat(np.arange(self.lines, dtype=self.indices.dtype), self.counts)

    def transposed(self) -> tuple[Pattern, Indices]:
        """Return the same entries column by column, and where each of them was, shape (nnz,)."""
        order = np.argsort(self.indices, kind="stable")
        indptr = np.zeros(self.width + 1, np.int64)
        np.cumsum(np.bincount(self.indices, minlength=self.width), out=indptr[1:])
        return Pattern(indptr, self.line_of_each()[order], self.lines), order


@dataclass(frozen=True, eq=False)
class Entries:
    """Observed entries y_ij of an m×n matrix.

    Attributes
    ----------
    pattern : Pattern
        Where they are, row by row.
    values : array (nnz,)
        float32 or float64, in the order of the pattern.
    share : float
        Which share of all observed entries these are: 1, or less for a batch.
    weights : array (nnz,) or None
        How much each of them counts in the fidelity, above 0; None where all count alike.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> entries = read_entries(csr_array(np.array([[0.0, 2.0], [3.0, 4.0]])))
    >>> entries.shape, entries.nnz, entries.pattern.indices
    ((2, 2), 3, array([1, 0, 1], dtype=int32))
    """

    pattern: Pattern
    values: Floats
    share: float = 1.0
    weights: Floats | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """(m, n)."""
        return self.pattern.lines, self.pattern.width

    @property
    def nnz(self) -> int:
        """How many there are."""
        return len(self.values)

    @cached_property
    def columns(self) -> Pattern:
        """The same entries column by column."""
        return self.turned.pattern

    @cached_property
    def turned(self) -> Entries:
        """The entries of the transposed matrix."""
        pattern, order = self.pattern.transposed()
        return Entries(pattern, self.values[order], self.share, self._weights_at(order))

    @cached_property
    def column_counts(self) -> Indices:
        """Entries in each column, shape (n,)."""
        return np.bincount(self.pattern.indices, minlength=self.pattern.width)

    def with_values(self, values: Floats) -> Entries:
        """Return other values at the same places."""
        return replace(self, values=values)

    def chosen(self, positions: Indices, share: float = 1.0) -> Entries:
        """Return the entries at some positions of the order of rows, which must ascend."""
        indptr = np.searchsorted(positions, self.pattern.indptr).astype(np.int64)
        pattern = Pattern(indptr, self.pattern.indices[positions], self.pattern.width)
        return Entries(pattern, self.values[positions], share, self._weights_at(positions))

    def _weights_at(self, positions: Indices) -> Floats | None:
        return None if self.weights is None else self.weights[positions]

    def split(self, held_out: npt.NDArray[np.bool_]) -> tuple[Entries, Entries]:
        """Return the entries that are kept and those that are held out."""
        return self.chosen(np.flatnonzero(~held_out)), self.chosen(np.flatnonzero(held_out))


def is_sparse(value: Any) -> bool:
    """Whether a value is a sparse matrix or array of SciPy.

    Examples
    --------
    >>> is_sparse([[1.0]])
    False
    """
    found = sys.modules.get("scipy.sparse")
    return found is not None and bool(found.issparse(value))


def read_entries(matrix: Any, dtype: Any = None, weights: Any = None) -> Entries:
    """Return the stored entries of a scipy.sparse matrix, explicit zeros included, checked.

    Parameters
    ----------
    matrix : scipy.sparse matrix or array (m, n)
        Entries that are stored twice are added, as SciPy does.
    dtype : dtype, optional
        float32 or float64. Default: that of the matrix, as in :func:`airnp.fit`.
    weights : optional
        One for each stored entry, see :func:`airnp.sparse.entry_weights.read_weights`; entries of weight
        zero are missing.
    """
    if not is_sparse(matrix):
        raise TypeError(
            f"Y: form='sparse' expects a sparse matrix of SciPy, got {type(matrix).__name__}; "
            "scipy.sparse.coo_array((values, (rows, columns)), shape) makes one"
        )
    if matrix.ndim != 2:
        raise ValueError(f"Y: expected a sparse matrix (m, n), got shape {matrix.shape}")
    if matrix.dtype.kind not in "biuf":
        raise TypeError(f"Y: expected real numbers, got dtype {matrix.dtype}")
    kind = natural_float(matrix.dtype) if dtype is None else requested_float(dtype)
    rows = by_rows(matrix)
    if rows.nnz == 0:
        raise ValueError(f"Y: expected at least one stored entry, got none in {matrix.shape}")
    with np.errstate(over="ignore"):
        values = rows.data.astype(kind)
    indices = rows.indices.astype(np.int32 if matrix.shape[1] < 2**31 else np.int64)
    found = Entries(Pattern(rows.indptr.astype(np.int64), indices, matrix.shape[1]), values)
    if weights is not None:
        from airnp.sparse.entry_weights import read_weights

        found = _weighted(found, read_weights(weights, matrix, rows).astype(kind))
    if not np.isfinite(found.values).all():
        count = int((~np.isfinite(found.values)).sum())
        raise ValueError(f"Y: {count} stored entries are not finite in {kind}")
    _warn_of_empty_lines(found)
    return found


def _weighted(entries: Entries, weights: Floats) -> Entries:
    """Return the entries with their weights, without those of weight zero."""
    if not weights.any():
        raise ValueError("weights: expected at least one above 0, all entries are missing")
    found = replace(entries, weights=weights)
    return found if weights.all() else found.chosen(np.flatnonzero(weights))


def by_rows(matrix: Any) -> Any:
    """Return a copy in CSR form with sorted indices and without duplicates; explicit zeros stay."""
    from scipy.sparse import csr_array

    if matrix.format in ("csr", "csc", "bsr", "coo"):
        rows = csr_array(matrix.tocsr(copy=True))
    else:
        coo = matrix.tocoo(copy=True)
        rows = csr_array((coo.data, (coo.row, coo.col)), shape=coo.shape)
    rows.sum_duplicates()
    return rows


def _warn_of_empty_lines(entries: Entries) -> None:
    empty = int((entries.pattern.counts == 0).sum()), int((entries.column_counts == 0).sum())
    if any(empty):
        warnings.warn(
            f"{empty[0]} rows and {empty[1]} columns have no observed entry; what is predicted for them "
            "comes from offsets and regularizers alone",
            EmptyLineWarning,
            stacklevel=5,
        )
