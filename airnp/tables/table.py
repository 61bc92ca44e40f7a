"""The table: a matrix with gaps and labels, made from arrays and turned back into them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from airnp._arrays import stored_entries
from airnp._devices import available_memory
from airnp.data.bounds import ALL_WHOLE

MOST_EXACT = 2**53
"""Up to here, every whole number is a float64."""

_WHOLE = re.compile(r"[+-]?\d+")

Values = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]


class TableError(ValueError):
    """A file that cannot be read or written as a table; the message names the file."""


@dataclass(frozen=True, eq=False)
class Table:
    """A matrix with gaps.

    Attributes
    ----------
    values : array of float32 or float64 (m, n)
        NaN where missing.
    rows, columns : sequence or None
        Labels.
    corner : str or None
        Name of the column of row labels.
    delimiter : str or None
        Between the cells of a text file.
    dtypes : sequence of dtype or None
        Of each column in the file; whole numbers are written in it again. None for a text file.
    others : dict of str to array (m, n)
        Further matrices; only ``.npz`` files hold them.
    cells : array (m, n) or None
        The entries as they are in the file: the text of a text file, whole numbers of any size. None if
        ``values`` holds all that there is to know of them.
    kept : bool array (m, n) or None
        Which entries are written as ``cells`` has them.
    """

    values: Values
    rows: Sequence[Any] | None = None
    columns: Sequence[Any] | None = None
    corner: str | None = None
    delimiter: str | None = None
    dtypes: Sequence[np.dtype[Any]] | None = None
    others: Mapping[str, Values] = field(default_factory=dict)
    cells: Values | None = None
    kept: Bools | None = None

    @property
    def observed(self) -> Bools:
        """True where there is a number."""
        return ~np.isnan(self.values)

    @property
    def whole(self) -> Bools:
        """For each column, whether it has observed numbers and all of them are whole, shape (n,)."""
        fractional = ALL_WHOLE.fractional(self.values).any(axis=0)
        return np.asarray(~fractional & self.observed.any(axis=0))

    def rounded(self) -> tuple[int, int] | None:
        """Return the first entry that is a whole number in the file, and another one as a float."""
        if self.cells is None:
            return None
        for row, column in np.argwhere(np.isfinite(self.values) & (np.abs(self.values) > MOST_EXACT)):
            cell, value = str(self.cells[row, column]), self.values[row, column]
            if _WHOLE.fullmatch(cell) and int(cell) != int(value):
                return int(row), int(column)
        return None

    def place(self, row: int, column: int) -> str:
        """Return the labels of an entry, for messages; without labels, its numbers from 1."""
        names = (
            str(number + 1) if labels is None else repr(str(labels[number]))
            for labels, number in ((self.rows, row), (self.columns, column))
        )
        return "row {}, column {}".format(*names)


@dataclass(frozen=True)
class Reading:
    """How to read a file; what is None is guessed.

    Attributes
    ----------
    header : bool or None
        Whether the first line of a text file holds the columns' names.
    index : str or None
        The column with the row labels: its name, or its number from 1; ``"none"`` for none.
    delimiter : str or None
        Between the cells of a text file.
    missing : tuple of str
        What else means missing, besides empty cells, NaN, NA and the like. A number is compared as a number.
    array : str or None
        Which array of an ``.npz`` file.
    """

    header: bool | None = None
    index: str | None = None
    delimiter: str | None = None
    missing: tuple[str, ...] = ()
    array: str | None = None


def from_array(array: Values) -> Table:
    """Return a matrix as a table of float32, if that loses nothing, or of float64."""
    if array.ndim != 2:
        raise TableError(f"expected a matrix, found an array of shape {array.shape}")
    if array.dtype.kind not in "biuf":
        raise TableError(f"expected real numbers, found dtype {array.dtype}")
    narrow = array.dtype.itemsize <= 2 or array.dtype == np.float32
    values = array.astype(np.float32 if narrow else np.float64)
    exact = array if array.dtype.kind in "iu" else None
    return Table(values, dtypes=[array.dtype] * array.shape[1], cells=exact)


def from_sparse(matrix: Any) -> Table:
    """Return a sparse matrix as a table, in which the stored entries are observed, explicit zeros too."""
    m, n = matrix.shape
    if 9 * m * n > available_memory():
        raise TableError(f"a matrix of {m}x{n} is too large to be made dense; --form sparse does without")
    try:
        entries = stored_entries("the sparse matrix", matrix).tocoo()
    except ValueError as error:
        raise TableError(str(error)) from error
    table = from_array(entries.toarray())
    stored = np.zeros(table.values.shape, dtype=bool)
    stored[entries.row, entries.col] = True
    return replace(table, values=np.where(stored, table.values, np.nan).astype(table.values.dtype))


def as_array(table: Table) -> Values:
    """Return all values as one array, in the common dtype of the columns in the file if nothing is lost."""
    kinds = set(table.dtypes or ())
    return in_file_dtype(table, slice(None), kinds.pop()) if len(kinds) == 1 else table.values


def in_file_dtype(table: Table, column: Any, dtype: np.dtype[Any]) -> Values:
    """Return one column or all of them in the dtype of the file, if it is an integer and nothing is lost."""
    values: Values = table.values[:, column]
    if dtype.kind not in "iu" or not np.isfinite(values).all() or ALL_WHOLE.fractional(values).any():
        return values
    limits = np.iinfo(dtype)
    # The largest 64-bit integers are a power of two as floats, which the type does not hold.
    kept = np.zeros(values.shape, bool) if table.kept is None else table.kept[:, column]
    inside = values[~kept]
    if inside.size and not (limits.min <= inside.min() and inside.max() < float(limits.max) + 1):
        return values
    if table.cells is None or table.kept is None:
        return values.astype(dtype)
    whole = np.where(kept, 0, values).astype(dtype)
    whole[kept] = table.cells[:, column][kept]
    return whole
