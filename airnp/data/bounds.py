"""Bounds and whole numbers: check what a caller asks for, and clip and round matrices accordingly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace, device, is_array_api_obj

from airnp._arrays import Array, beside, dtype_name, from_numpy, to_numpy
from airnp._checks import checked_whole

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_UNBOUNDED = (-np.inf, np.inf)


@dataclass(frozen=True, eq=False)
class Integers:
    """Bounds of entries that are whole numbers.

    Parameters
    ----------
    low, high : optional
        As the two sides of ``bounds`` of :func:`airnp.fit`; ``low`` may be a mapping of column label to
        (low, high).
    columns : bool, booleans (n,), or list of columns
        Which columns are rounded to whole numbers, within the bounds: all, or their positions, or for a
        DataFrame their labels. Their observed entries must be whole.

    Examples
    --------
    >>> stars = Bounds.of(Integers(1, 5))
    >>> stars.put_on(np.array([[0.2, 3.6]]))
    array([[1., 4.]])
    """

    low: Any = None
    high: Any = None
    columns: Any = True


@dataclass(frozen=True, eq=False)
class Bounds:
    """The least and the largest value of each column, and which columns hold whole numbers only.

    Use :meth:`of`, which checks its arguments, to make one.

    Attributes
    ----------
    low, high : float64 arrays, (n,) or ()
        Infinite where there is no bound; whole in columns of whole numbers. Without axes, for all columns.
    whole : boolean array of the same shape

    Examples
    --------
    >>> stars = Bounds.of((0.5, 5), integers=[0], columns=2)
    >>> stars.put_on(np.array([[0.2, 0.2], [3.6, 3.6], [7.0, 7.0]]))
    array([[1. , 0.5],
           [4. , 3.6],
           [5. , 5. ]])
    """

    low: Floats
    high: Floats
    whole: Bools

    @classmethod
    def of(
        cls, bounds: Any = None, integers: Any = None, columns: int | None = None, labels: Any = None
    ) -> Bounds | None:
        """Return the bounds that ``bounds`` of :func:`airnp.fit` describes; None if none.

        Parameters
        ----------
        bounds : None, (low, high), mapping of column label to (low, high), or Integers
        integers : None, bool, booleans (n,), or list of column positions or labels
        columns : int, optional
            Number of columns. Default: unknown, which allows only scalars and True or False.
        labels : sequence of length ``columns``, optional
            Names of the columns; ``integers`` then lists names.
        """
        if isinstance(bounds, Integers):
            integers = bounds.columns
            bounds = bounds.low if isinstance(bounds.low, Mapping) else (bounds.low, bounds.high)
        names = None if labels is None else list(labels)
        low, high = _checked_bounds(bounds, columns, names)
        whole = _checked_integers(integers, columns, names)
        if not (np.isfinite(low).any() or np.isfinite(high).any() or whole.any()):
            return None
        low, high, whole = np.broadcast_arrays(low, high, whole)
        _raise_at(low > high, low, high, names, "low <= high")
        tight, narrow = np.where(whole, np.ceil(low), low), np.where(whole, np.floor(high), high)
        _raise_at(tight > narrow, low, high, names, "a whole number between them for integers")
        # Adding zero makes −0, the ceiling of −0.5, a plain 0.
        return cls(np.asarray(tight + 0.0), np.asarray(narrow + 0.0), np.array(whole))

    def put_on(self, matrix: Array) -> Array:
        """Return a matrix clipped to the bounds, with the columns of whole numbers rounded.

        Parameters
        ----------
        matrix : floating-point array (…, n) of any namespace

        Returns
        -------
        array
            Of the same namespace, device and dtype. A bound that the dtype cannot represent is rounded
            inwards, or to the nearest number if there is none between low and high: float32 has no 0.1, and
            its next number up is above 0.1.
        """
        xp, place, kind = array_namespace(matrix), device(matrix), dtype_name(matrix.dtype)
        with beside(matrix):
            low, high = (from_numpy(side, xp, place, kind) for side in self._inwards(kind))
            if self.whole.any():
                matrix = xp.where(from_numpy(self.whole, xp, place, "bool"), xp.round(matrix) + 0.0, matrix)
            matrix = xp.where(matrix < low, low, matrix)
            return xp.where(matrix > high, high, matrix)

    def _inwards(self, kind: str) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return the bounds in a dtype, rounded inwards."""
        low, high = self._nearest(kind)
        inner = (
            np.where(low < self.low, np.nextafter(low, low.dtype.type(np.inf)), low),
            np.where(high > self.high, np.nextafter(high, high.dtype.type(-np.inf)), high),
        )
        empty = inner[0] > inner[1]
        return np.where(empty, low, inner[0]), np.where(empty, low, inner[1])

    def _nearest(self, kind: Any) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        with np.errstate(over="ignore"):
            return self.low.astype(kind), self.high.astype(kind)

    def options(self, columns: Bools) -> dict[str, Any]:
        """Return these bounds as arguments of :func:`airnp.fit`, for the columns that a mask (n,) selects."""
        low, high, whole = (
            np.broadcast_to(each, columns.shape)[columns] for each in (self.low, self.high, self.whole)
        )
        return {"bounds": Integers(low, high, whole) if whole.any() else (low, high)}

    def check_type(self, kind: str) -> None:
        """Raise ValueError if no finite number of a floating-point type is within the bounds."""
        largest = float(np.finfo(kind).max)
        beyond = (self.low > largest) | (self.high < -largest)
        if beyond.any():
            raise ValueError(f"bounds: {self._at(int(np.argmax(beyond)))} is beyond the range of {kind}")

    def outside(self, values: npt.NDArray[Any]) -> Bools:
        """Return where values (…, n) exceed a bound, compared in their own dtype; False where NaN."""
        low, high = self._nearest(values.dtype)
        return (values < low) | (values > high)

    def fractional(self, values: npt.NDArray[Any]) -> Bools:
        """Return where values (…, n) should be whole numbers and are not; False where NaN."""
        return np.asarray(self.whole & (np.rint(values) != values) & ~np.isnan(values))

    def check(self, values: Array, observed: Array) -> None:
        """Raise ValueError if observed entries of a matrix (…, m, n) violate a bound or are not whole."""
        host, seen = to_numpy(values), to_numpy(observed)
        beyond, broken = self.outside(host) & seen, self.fractional(host) & seen
        if broken.any():
            raise ValueError(f"integers: {_describe(broken, host)} not whole numbers")
        if beyond.any():
            column = np.argwhere(beyond)[0][-1]
            raise ValueError(f"bounds: {_describe(beyond, host)} outside of {self._at(column)}")

    def _at(self, column: int) -> str:
        """Return the bounds of a column as text."""
        low, high = (side if side.ndim == 0 else side[column] for side in (self.low, self.high))
        return f"({low:g}, {high:g})"


def bounds_at(bounds: Bounds, columns: npt.NDArray[Any]) -> Bounds:
    """Return the bounds of entries, given the column of each; bounds without axes stay as they are.

    Examples
    --------
    >>> limits = Bounds.of(([0.0, 1.0], [5.0, 9.0]), columns=2)
    >>> bounds_at(limits, np.array([1, 1, 0])).high
    array([9., 9., 5.])
    """
    if bounds.low.ndim == 0:
        return bounds
    return Bounds(bounds.low[columns], bounds.high[columns], bounds.whole[columns])


ALL_WHOLE = Bounds(np.array(-np.inf), np.array(np.inf), np.array(True))
"""Whole numbers of any size, in all columns."""


def _describe(places: Bools, values: npt.NDArray[Any]) -> str:
    first = tuple(map(int, np.argwhere(places)[0]))
    return f"{int(places.sum())} observed entries, such as {values[first]} at {first}, are"


def _raise_at(bad: Bools, low: Floats, high: Floats, names: list[Any] | None, expected: str) -> None:
    if not bad.any():
        return
    where = ""
    if bad.ndim:
        column = int(np.argmax(bad))
        low, high = low[column], high[column]
        where = f" in column {column if names is None else names[column]!r}"
    raise ValueError(f"bounds: expected {expected}, got ({low:g}, {high:g}){where}")


def _checked_bounds(bounds: Any, columns: int | None, names: list[Any] | None) -> tuple[Floats, Floats]:
    if bounds is None:
        return np.array(-np.inf), np.array(np.inf)
    if isinstance(bounds, Mapping):
        return _by_label(bounds, names)
    low, high = _pair(bounds)
    return _side(low, -np.inf, columns, names), _side(high, np.inf, columns, names)


def _by_label(bounds: Mapping[Any, Any], names: list[Any] | None) -> tuple[Floats, Floats]:
    if names is None:
        raise TypeError(
            "bounds: expected (low, high); a mapping needs columns with labels, as a DataFrame has"
        )
    _check_known("bounds", bounds, names)
    pairs = [_pair(bounds[name]) if name in bounds else (None, None) for name in names]
    low, high = (
        np.array([_number(pair[place], unbounded) for pair in pairs])
        for place, unbounded in enumerate(_UNBOUNDED)
    )
    return low, high


def _pair(value: Any) -> tuple[Any, Any]:
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise TypeError(f"bounds: expected (low, high), got {value!r}")
    return value[0], value[1]


def _side(value: Any, unbounded: float, columns: int | None, names: list[Any] | None) -> Floats:
    """Return one side of the bounds: a scalar (), or one number for each column (n,)."""
    if np.ndim(value) == 0 and not is_array_api_obj(value):
        return np.array(_number(value, unbounded))
    if names is not None and hasattr(value, "reindex") and list(value.index) != names:
        raise ValueError("bounds: expected a series with the labels of the columns, in the same order")
    host = to_numpy(value)
    if host.ndim == 0:
        return np.array(_number(host.item(), unbounded))
    try:
        numbers = np.array(host, dtype=np.float64)  # None becomes NaN
    except (TypeError, ValueError):
        raise TypeError(f"bounds: expected numbers, or None for no bound, got {value!r}") from None
    if columns is None:
        raise ValueError(f"bounds: expected a number for each side, got an array of shape {numbers.shape}")
    if numbers.shape != (columns,):
        raise ValueError(f"bounds: expected {columns} numbers, one for each column, got {numbers.shape}")
    return np.array([_number(number, unbounded) if number == number else unbounded for number in numbers])


def _number(value: Any, unbounded: float) -> float:
    if value is None:
        return unbounded
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"bounds: expected a number, got {value!r}")
    if np.isnan(value) or value == -unbounded:
        raise ValueError(f"bounds: expected a number, or None for no bound, got {value!r}")
    return float(value)


def _checked_integers(integers: Any, columns: int | None, names: list[Any] | None) -> Bools:
    if integers is None or isinstance(integers, bool | np.bool_):
        return np.array(bool(integers))
    if columns is None:
        raise TypeError(f"integers: expected True or False, got {integers!r}")
    if isinstance(integers, str) or not (isinstance(integers, Sequence) or np.ndim(integers) == 1):
        raise TypeError(
            f"integers: expected True, False, {columns} booleans, or a list of columns, got {integers!r}"
        )
    chosen = list(to_numpy(integers).tolist() if is_array_api_obj(integers) else integers)
    if chosen and all(isinstance(each, bool | np.bool_) for each in chosen):
        if len(chosen) != columns:
            raise ValueError(f"integers: expected {columns} booleans, one for each column, got {len(chosen)}")
        return np.array(chosen, dtype=bool)
    if names is not None:
        _check_known("integers", chosen, names)
        return np.array([name in chosen for name in names], dtype=bool)
    whole = np.zeros(columns, dtype=bool)
    for position in chosen:
        if checked_whole("integers", position, least=-columns) >= columns:
            raise ValueError(f"integers: expected columns 0 to {columns - 1}, got {position}")
        whole[position] = True
    return whole


def _check_known(argument: str, labels: Any, names: list[Any]) -> None:
    unknown = [label for label in labels if label not in names]
    if unknown:
        some = ", ".join(map(repr, unknown[:5]))
        raise ValueError(f"{argument}: expected labels of columns, there is none called {some}")
