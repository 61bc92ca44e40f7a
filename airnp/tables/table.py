"""A matrix with gaps and labels, and the error of files that hold none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from airnp.bounds import ALL_WHOLE

Values = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]


class TableError(ValueError):
    """A file that cannot be read or written as a table; the message names it."""


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
        What the column of row labels is called.
    delimiter : str or None
        Between the cells of a text file.
    dtypes : sequence of dtype or None
        Of each column in the file; whole numbers are given back in it. None where a file has text.
    others : dict of str to array (m, n)
        Further matrices, which an ``.npz`` file can hold beside the values, and no other format.
    """

    values: Values
    rows: Sequence[Any] | None = None
    columns: Sequence[Any] | None = None
    corner: str | None = None
    delimiter: str | None = None
    dtypes: Sequence[np.dtype[Any]] | None = None
    others: Mapping[str, Values] = field(default_factory=dict)

    @property
    def observed(self) -> Bools:
        """True where there is a number."""
        return ~np.isnan(self.values)

    @property
    def whole(self) -> Bools:
        """For each column, whether it has observed numbers and all of them are whole, shape (n,)."""
        fractional = ALL_WHOLE.fractional(self.values).any(axis=0)
        return np.asarray(~fractional & self.observed.any(axis=0))

    def place(self, row: int, column: int) -> str:
        """Return what the user calls an entry; rows and columns without labels count from 1."""
        names = (
            str(number + 1) if labels is None else repr(str(labels[number]))
            for labels, number in ((self.rows, row), (self.columns, column))
        )
        return "row {}, column {}".format(*names)
