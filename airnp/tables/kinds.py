"""Kinds of columns: how numbers, booleans, categories and dates become columns of numbers, and back.

==============  ======================================  ============================================
kind            which columns                           inside
==============  ======================================  ============================================
``number``      floats, integers, objects of numbers    as they are; integers are rounded afterwards
``boolean``     booleans                                0 and 1
``ordered``     ordered categoricals                    the position of the category
``category``    other categoricals, strings, objects    one column of 0 and 1 for each category
``date``        dates, periods and durations            nanoseconds
``identifier``  what only tells rows apart              nothing: passed through, with its gaps
==============  ======================================  ============================================
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_MOST_CATEGORIES = 50
"""A column of strings with more different ones is passed through."""

_FEWEST_ROWS = 20
"""Rows that a table needs before a column of it looks like an identifier."""

_DAY = 86_400 * 10**9
"""Nanoseconds."""

_CROWDED = 0.5
"""An identifier of whole numbers has at least this share of all numbers in its range."""


@dataclass(frozen=True, eq=False)
class ColumnKind:
    """How one column becomes numbers.

    Attributes
    ----------
    name : object
        Label of the column.
    kind : str
        See the table above.
    dtype : object
        Of the column in the training table.
    categories : list
        What the codes of a category stand for.
    step : int
        Dates are filled with multiples of so many nanoseconds: whole days if all observed ones are.
    """

    name: Any
    kind: str
    dtype: Any
    categories: Sequence[Any] = ()
    step: int = 1

    @property
    def width(self) -> int:
        """Number of columns inside."""
        return {"identifier": 0, "category": len(self.categories)}.get(self.kind, 1)

    def encode(self, column: Any) -> Floats:
        """Return a column as numbers (n, width), NaN in its gaps."""
        if self.kind == "identifier":
            return np.empty((len(column), 0))
        missing = column.isna().to_numpy()
        if self.kind == "number":
            return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))[:, None]
        if self.kind == "date":
            return np.where(missing, np.nan, _nanoseconds(column, self.dtype).astype(np.float64))[:, None]
        codes = self._codes(column, missing)
        if self.kind == "category":
            marks = (codes[:, None] == np.arange(len(self.categories))).astype(np.float64)
            return np.where(np.isnan(codes)[:, None], np.nan, marks)
        return codes[:, None]

    def _codes(self, column: Any, missing: npt.NDArray[np.bool_]) -> Floats:
        places = {category: place for place, category in enumerate(self.categories)}
        values = column.to_numpy(dtype=object)
        codes = np.array([-1 if gone else places.get(v, -2) for v, gone in zip(values, missing, strict=True)])
        if (codes == -2).any():
            value = values[int(np.argmax(codes == -2))]
            warnings.warn(
                f"column {self.name!r} has {value!r}, which was not there in fit: it stays as it is, and the "
                "model does not see it",
                UserWarning,
                stacklevel=2,
            )
        return np.where(codes < 0, np.nan, codes)

    def decode(self, column: Any, filled: Floats) -> Any:
        """Return a column with its gaps filled from numbers (n, width), in its own dtype."""
        if self.kind == "identifier":
            return column
        gaps = column.isna().to_numpy()
        changed = column.copy()
        if not gaps.any():
            return changed
        numbers = filled[gaps]
        if self.kind == "number":
            found: Any = numbers[:, 0]
            if str(self.dtype).lower().startswith(("int", "uint")):
                found = np.rint(found).astype(np.int64)
            elif isinstance(self.dtype, np.dtype) and self.dtype.kind == "f":
                found = found.astype(self.dtype)
            changed[gaps] = found
        elif self.kind == "date":
            whole = np.rint(numbers[:, 0] / self.step).astype(np.int64) * self.step
            changed[gaps] = _stamps(whole, self.dtype).to_numpy()
        else:
            last = len(self.categories) - 1
            codes = (
                numbers.argmax(axis=1) if self.kind == "category" else np.rint(numbers[:, 0]).clip(0, last)
            )
            found = np.empty(len(codes), dtype=object)
            found[:] = [self.categories[int(code)] for code in codes]
            changed[gaps] = found
        return changed


def _nanoseconds(column: Any, dtype: Any) -> npt.NDArray[np.int64]:
    """Return dates, the first moments of periods, or durations as whole nanoseconds, (n,)."""
    if hasattr(dtype, "freq"):
        column = column.dt.to_timestamp()
    elif getattr(dtype, "tz", None) is not None:
        column = column.dt.tz_convert("UTC").dt.tz_localize(None)
    return np.asarray(column.astype(_exact(dtype)).astype(np.int64).to_numpy())


def _stamps(nanoseconds: npt.NDArray[np.int64], dtype: Any) -> Any:
    """Undo :func:`_nanoseconds`: return a Series of a dtype."""
    import pandas

    whole: Any = pandas.Series(nanoseconds)
    stamps = whole.astype(_exact(dtype))
    if hasattr(dtype, "freq"):
        return stamps.dt.to_period(dtype.freq)
    if getattr(dtype, "tz", None) is not None:
        stamps = stamps.dt.tz_localize("UTC").dt.tz_convert(dtype.tz)
    return stamps.astype(dtype)


def _exact(dtype: Any) -> str:
    """Return the dtype of whole nanoseconds for dates, or for durations."""
    return "timedelta64[ns]" if getattr(dtype, "kind", "M") == "m" else "datetime64[ns]"


def kinds_of(frame: Any, identifiers: Any = "auto", ignored: Collection[Any] = ()) -> list[ColumnKind]:
    """Return the kinds of the columns of a DataFrame.

    Parameters
    ----------
    frame : DataFrame (n, d)
    identifiers : "auto" or list of labels
        Columns that only tell rows apart. ``"auto"``: those that look like it, see :func:`is_identifier`.
    ignored : collection of labels
        Further ones.
    """
    return [
        ColumnKind(name, "identifier", frame[name].dtype)
        if name in ignored
        else _kind(frame[name], name, identifiers)
        for name in frame.columns
    ]


def _kind(column: Any, name: Any, identifiers: Any) -> ColumnKind:
    from pandas import PeriodDtype
    from pandas.api import types

    dtype: Any = column.dtype
    if identifiers != "auto" and name in identifiers:
        return ColumnKind(name, "identifier", dtype)
    if types.is_complex_dtype(dtype):
        raise ValueError(f"X: column {name!r} has complex numbers. Complex data not supported")
    observed = column.dropna()
    if types.is_bool_dtype(dtype):
        return ColumnKind(name, "boolean", dtype, [False, True])
    is_date = types.is_datetime64_any_dtype(dtype) or types.is_timedelta64_dtype(dtype)
    if is_date or isinstance(dtype, PeriodDtype):
        stamps = _nanoseconds(observed, dtype)
        steps = (step for step in (_DAY, _DAY // 24, _DAY // 86400, 1) if not (stamps % step).any())
        return ColumnKind(name, "date", dtype, step=next(steps))
    if types.is_numeric_dtype(dtype):
        return _numbers(observed, name, identifiers)
    if hasattr(dtype, "categories"):
        return ColumnKind(name, "ordered" if dtype.ordered else "category", dtype, list(dtype.categories))
    # Numbers that NumPy has no type for would be taken for words.
    strange = [v for v in observed if isinstance(v, Decimal | Fraction) or not isinstance(v, Hashable)]
    if strange:
        raise ValueError(
            f"X: column {name!r} holds values of type {type(strange[0]).__name__}; expected numbers, words, "
            "booleans or dates: convert it, or name it as an identifier (--ignore)"
        )
    different = sorted(observed.unique(), key=lambda value: (str(type(value)), value))
    if not different:  # nothing says what it would be filled with
        return ColumnKind(name, "identifier", dtype)
    if set(map(type, different)) <= {bool}:
        return ColumnKind(name, "boolean", dtype, [False, True])
    if different and all(isinstance(each, int | float) for each in different):
        return _numbers(observed, name, identifiers)
    if len(different) > _MOST_CATEGORIES or (len(different) == len(observed) > 2):
        return ColumnKind(name, "identifier", dtype)
    return ColumnKind(name, "category", dtype, different)


def nullable_type(dtype: Any) -> str | None:
    """Return the type of pandas that has gaps for one of NumPy that has none.

    Examples
    --------
    >>> nullable_type(np.dtype("uint8")), nullable_type(np.dtype(bool)), nullable_type(np.dtype(float))
    ('UInt8', 'boolean', None)
    """
    if not isinstance(dtype, np.dtype) or dtype.kind not in "iub":
        return None
    return "boolean" if dtype.kind == "b" else dtype.name.replace("i", "I", 1).replace("u", "U")


def _numbers(observed: Any, name: Any, identifiers: Any) -> ColumnKind:
    looks_like_it = identifiers == "auto" and is_identifier(observed.to_numpy(dtype=np.float64))
    return ColumnKind(name, "identifier" if looks_like_it else "number", observed.dtype)


def is_identifier(values: Floats) -> bool:
    """Return whether the observed numbers of a column only tell rows apart.

    They are whole, all different, and next to each other: an identifier, or the number of the row. Columns
    of fewer than 20 numbers never look like it.

    Examples
    --------
    >>> is_identifier(np.arange(1000.0, 1100.0)), is_identifier(np.arange(100.0) ** 2)
    (True, False)
    """
    if len(values) < _FEWEST_ROWS or (values != np.rint(values)).any():
        return False
    ordered = np.sort(values)
    steps = np.diff(ordered)
    if steps.min() <= 0:
        return False
    spacing = steps.min()
    return bool(
        (steps % spacing == 0).all() and len(values) >= _CROWDED * (ordered[-1] - ordered[0]) / spacing
    )


@dataclass(frozen=True, eq=False)
class FrameCode:
    """How a DataFrame becomes one matrix of numbers.

    Attributes
    ----------
    columns : list of ColumnKind
    """

    columns: list[ColumnKind]

    @property
    def owners(self) -> npt.NDArray[np.intp]:
        """The column of the frame that each column inside belongs to, (D,)."""
        return np.repeat(np.arange(len(self.columns)), [column.width for column in self.columns])

    def encode(self, frame: Any) -> Floats:
        """Return the matrix (n, D), NaN in gaps."""
        parts = [column.encode(frame.iloc[:, k]) for k, column in enumerate(self.columns)]
        return np.hstack(parts) if parts else np.empty((len(frame), 0))

    def decode(self, frame: Any, filled: Floats) -> Any:
        """Return the frame with its gaps filled: same index, columns and dtypes."""
        import pandas

        owners = self.owners
        decoded = [
            column.decode(frame.iloc[:, k], filled[:, owners == k]) for k, column in enumerate(self.columns)
        ]
        return pandas.concat(decoded, axis=1) if decoded else frame.copy()

    def numbers(self, frame: Any, filled: Floats) -> Any:
        """Return a frame of the columns of numbers, as floats, and of dates; gaps are from ``filled``."""
        import pandas

        owners, found = self.owners, {}
        for k, column in enumerate(self.columns):
            if column.kind == "number":
                found[column.name] = pandas.Series(filled[:, owners == k][:, 0], index=frame.index)
            elif column.kind == "date":
                found[column.name] = column.decode(frame.iloc[:, k], filled[:, owners == k])
        return pandas.DataFrame(found, index=frame.index)

    def probabilities(self, frame: Any, filled: Floats) -> dict[Any, Any]:
        """Return for each column of categories or booleans a DataFrame (n, categories) of probabilities."""
        import pandas

        owners, found = self.owners, {}
        for k, column in enumerate(self.columns):
            if column.kind not in ("category", "boolean"):
                continue
            marks = np.clip(filled[:, owners == k], 0, 1)
            if column.kind == "boolean":
                marks = np.hstack([1 - marks, marks])
            total = marks.sum(axis=1, keepdims=True)
            shares = np.where(total > 0, marks / np.where(total > 0, total, 1), 1 / marks.shape[1])
            found[column.name] = pandas.DataFrame(shares, index=frame.index, columns=list(column.categories))
        return found
