"""Arrays and sparse matrices as tables, and tables as arrays of the dtype that they came in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from airnp.bounds import ALL_WHOLE
from airnp.tables.table import Table, TableError, Values


def from_array(array: Values) -> Table:
    """Return a matrix as a table of floating-point numbers, as precise as it needs to be."""
    if array.ndim != 2:
        raise TableError(f"expected a matrix, found an array of shape {array.shape}")
    if array.dtype.kind not in "biuf":
        raise TableError(f"expected real numbers, found dtype {array.dtype}")
    narrow = array.dtype.itemsize <= 2 or array.dtype == np.float32
    return Table(array.astype(np.float32 if narrow else np.float64), dtypes=[array.dtype] * array.shape[1])


def from_sparse(matrix: Any) -> Table:
    """Return a sparse matrix as a table: what it stores is observed, be it an explicit zero."""
    entries = matrix.tocoo()
    table = from_array(entries.toarray())
    stored = np.zeros(table.values.shape, dtype=bool)
    stored[entries.row, entries.col] = True
    return replace(table, values=np.where(stored, table.values, np.nan).astype(table.values.dtype))


def whole_array(table: Table) -> Values:
    """Return all values as one array, in the dtype they came in if that is one and loses nothing."""
    kinds = set(table.dtypes or ())
    return in_own_dtype(table.values, kinds.pop()) if len(kinds) == 1 else table.values


def in_own_dtype(values: Values, dtype: np.dtype[Any]) -> Values:
    """Return numbers in the dtype they came in, if these were integers and nothing is lost."""
    if dtype.kind not in "iu" or not np.isfinite(values).all() or ALL_WHOLE.fractional(values).any():
        return values
    limits = np.iinfo(dtype)
    fits = limits.min <= values.min() and values.max() <= limits.max
    return values.astype(dtype) if fits else values
