"""Read data, mask and weights of any kind: arrays, masked arrays, sparse matrices, tables, lists.

:func:`read` checks them and returns :class:`Observations`. It copies and never modifies its arguments.
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import array_api_compat as compat
import numpy as np
import numpy.typing as npt

from airnp._arrays import (
    Array,
    Namespace,
    cast,
    dtype_name,
    from_numpy,
    has_float64,
    namespace_name,
    natural_float,
    on_device,
    requested_float,
    shared_namespace,
    standard_namespace,
    stored_entries,
    to_numpy,
)

_NUMERIC = ("bool", "integral", "real floating")


class EmptyLineWarning(UserWarning):
    """Some rows or columns have no observed entry at all."""


@dataclass(frozen=True)
class Labels:
    """The row and column labels of a pandas DataFrame, for the result."""

    index: Any
    columns: Any

    def put_on(self, matrix: Array) -> Any:
        """Return a matrix of any namespace as a DataFrame with these labels."""
        from pandas import DataFrame

        return DataFrame(to_numpy(matrix), index=self.index, columns=self.columns)


@dataclass(frozen=True)
class Observations:
    """The observed entries of one matrix or a stack, checked and in floating point.

    Attributes
    ----------
    values : array
        Observed values, zero elsewhere; floating point, as precise as the input and as the fit. Shape
        (…, m, n), or the measurements' own shape when an operator made them.
    mask : boolean array
        True where a value was observed and counts. Same shape.
    weights : array
        Weight of each entry in the fidelity: 1 (or what the caller gave) where observed, else 0. Same shape.
    xp : module
        Namespace of the fit; may differ from that of ``values`` until :meth:`moved` is called.
    device : object
        Device of the fit.
    dtype : str
        ``"float32"`` or ``"float64"``: the type of the fit.
    labels : Labels or None
        Row and column labels, if the input had them.
    """

    values: Array
    mask: Array
    weights: Array
    xp: Namespace
    device: Any
    dtype: str
    labels: Labels | None = None

    def moved(self) -> Observations:
        """Return the observations in the namespace, on the device and in the type of the fit."""
        return replace(
            self,
            values=self.place(self.values, self.dtype),
            mask=self.place(self.mask, "bool"),
            weights=self.place(self.weights, self.dtype),
        )

    def place(self, array: Array, dtype: str) -> Array:
        """Return a copy of ``array`` in the namespace and on the device of the fit, in ``dtype``."""
        if compat.array_namespace(array) is self.xp:
            return cast(array, self.xp, dtype)
        return from_numpy(to_numpy(array), self.xp, self.device, dtype)


def read(
    Y: Any,
    mask: Any = None,
    weights: Any = None,
    *,
    xp: Any = None,
    device: Any = None,
    dtype: Any = None,
    matrices: bool = True,
) -> Observations:
    """Read data, mask and weights of any kind.

    Parameters
    ----------
    Y : array-like (…, m, n)
        Array of any namespace, ``numpy.ma`` array, scipy.sparse matrix (stored entries are the observed
        ones, explicit zeros included), pandas DataFrame, or nested lists (None is missing).
    mask : array-like, optional
        True or 1 where observed. Without it, NaN means missing. Either the shape of Y or its last two axes.
    weights : array-like, optional
        Non-negative weight of each entry; zero is missing. Either the shape of Y or its last two axes.
    xp : module, optional
        Namespace of the fit; NumPy and host containers are moved there. Default: that of Y.
    device : object, optional
        Device of that namespace to move them to. Default: its own default, or that of Y.
    dtype : dtype, optional
        float32 or float64. Default: Y's own float type; booleans and 8- or 16-bit integers become
        float32, wider integers float64.
    matrices : bool
        Whether Y holds matrices (at least two axes). Measurements of an operator may have any shape.

    Returns
    -------
    Observations

    Warns
    -----
    EmptyLineWarning
        When rows or columns have no observed entry. The text asks whether the mask is inverted if one was
        given, it hides more than half of Y, and all observed entries are equal, as under a logo.
    """
    data, stored, labels = _from_container("Y", Y)
    arrays = {"Y": data}
    for name, value in (("mask", mask), ("weights", weights)):
        if value is not None:
            arrays[name] = _moved_to(data, _beside(name, value, labels))

    source, home = shared_namespace(arrays)
    target = source if xp is None else standard_namespace(xp)
    if target is not source and not compat.is_numpy_namespace(source):
        raise TypeError(f"xp: is {namespace_name(target)}, but Y is an array of {namespace_name(source)}")
    device = _checked_device(target, device, home if target is source else None)

    with on_device(source, home):
        data = _checked_values(data, source, matrices)
        own = _working_float(data.dtype, None, source, home)
        dtype = _working_float(data.dtype, dtype, target, device)
        precise = "float64" if "float64" in (own, dtype) else "float32"
        integers = data if dtype_name(data.dtype) in ("int64", "uint64") else None
        data = cast(data, source, precise)
        observed = _observed(data, arrays.get("mask"), stored, source)
        entry_weights = cast(observed, source, precise)
        if weights is not None:
            given = _checked_weights(arrays["weights"], data, source)
            entry_weights = entry_weights * given
            observed = entry_weights > 0
        _check_observed(data, observed, source, matrices)
        if integers is not None and bool(source.any(source.abs(data) >= _MOST_EXACT)):
            check_exact("Y", to_numpy(integers)[to_numpy(observed)])
        if weights is not None:
            largest = to_numpy(source.max(entry_weights, axis=(-2, -1) if matrices else None))
            check_largest_weights(largest)
            # What is observed stays so in the type of the fit, which may be narrower.
            least = source.full_like(entry_weights, float(np.finfo(dtype).tiny))
            entry_weights = source.where(observed & (entry_weights < least), least, entry_weights)
        if matrices:
            _warn_of_empty_lines(data, observed, mask is not None, source)
        values = source.where(observed, data, source.zeros_like(data))
        check_size("Y", float(source.max(source.abs(values))), dtype)
        # Labels of measurements say nothing about the rows and columns of X.
        labels = labels if matrices else None
        return Observations(values, observed, entry_weights, target, device, dtype, labels)


def _checked_device(xp: Namespace, wanted: Any, home: Any) -> Any:
    """Return the device of the fit; data that lives on a device already stays there."""
    device = wanted
    if compat.is_cupy_namespace(xp):
        from airnp._devices import check_device

        check_device(wanted)
        # A number names a device, and without one the current device is meant.
        if isinstance(wanted, int | np.integer) or (wanted is None and home is None):
            device = xp.cuda.Device(wanted)
    if home is not None and device is not None and str(device) != str(home):
        raise ValueError(f"device: expected {home}, where Y is, got {device}; move Y, or leave device out")
    return home if home is not None else device


def _working_float(kind: Any, requested: Any, xp: Namespace, device: Any) -> str:
    """Return the float type for data of dtype ``kind`` on a device: the one requested, or the natural one."""
    name = natural_float(kind) if requested is None else requested_float(requested)
    if name == "float64" and not has_float64(xp, device):
        if requested is not None:
            raise ValueError(f"dtype: expected float32, the only one that {device} has, got float64")
        return "float32"
    return name


def _beside(name: str, value: Any, labels: Labels | None) -> Array:
    """Return a mask or weights as an array: zero where a container stores nothing or hides it."""
    array, stored, own_labels = _from_container(name, value)
    _check_aligned(name, labels, own_labels)
    return array if stored is None else np.where(stored, array, np.zeros((), dtype=array.dtype))


def _moved_to(data: Array, array: Array) -> Array:
    """Return a mask or weights of NumPy in the namespace and on the device of the data."""
    if compat.is_numpy_array(data) or not compat.is_numpy_array(array) or array.dtype.kind not in "biuf":
        return array
    xp = compat.array_namespace(data)
    name = dtype_name(array.dtype)
    kind = name if hasattr(xp, name) else "int64" if array.dtype.kind in "iu" else "float64"
    return from_numpy(array, xp, compat.device(data), kind)


def _from_container(name: str, value: Any) -> tuple[Array, Any, Labels | None]:
    """Return an array, a mask of stored entries or None, and labels or None."""
    pandas, sparse = sys.modules.get("pandas"), sys.modules.get("scipy.sparse")
    if pandas is not None and isinstance(value, pandas.DataFrame):
        return _from_frame(name, value), None, Labels(value.index, value.columns)
    if sparse is not None and sparse.issparse(value):
        entries = stored_entries(name, value)
        # All stored values become True, because a dense array cannot tell a zero from nothing.
        pattern = entries.astype(bool, copy=True)
        pattern.data[:] = True
        return entries.toarray(), pattern.toarray(), None
    if isinstance(value, list | tuple):
        value = _from_lists(name, value)
    if isinstance(value, np.ma.MaskedArray):
        if value.dtype.names is not None:
            raise TypeError(f"{name}: expected real numbers, got dtype {value.dtype}")
        return value.data, ~np.ma.getmaskarray(value), None
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value), None, None
    if compat.is_torch_array(value):
        if "strided" not in str(value.layout):
            raise TypeError(f"{name}: expected a dense tensor, got layout {value.layout}")
        return value.detach(), None, None
    if compat.is_dask_array(value):
        raise TypeError(
            f"{name}: expected an array in memory, got one of Dask; give {name}.compute(), or see airnp.dask"
        )
    if compat.is_array_api_obj(value):
        return value, None, None
    raise TypeError(f"{name}: expected an array, a table or nested lists, got {type(value).__name__}")


def _from_frame(name: str, frame: Any) -> Array:
    odd = [label for label, kind in frame.dtypes.items() if getattr(kind, "kind", "O") not in "biuf"]
    if odd:
        raise TypeError(f"{name}: expected numeric columns, these are not: {', '.join(map(repr, odd[:5]))}")
    kinds = [getattr(kind, "subtype", getattr(kind, "numpy_dtype", kind)) for kind in frame.dtypes]
    narrow = all(natural_float(kind) == "float32" for kind in kinds)
    for place, kind in enumerate(frame.dtypes):
        if kind.kind in "iu":
            check_exact(name, frame.iloc[:, place].dropna().to_numpy(dtype=f"{kind.kind}8"))
    return frame.to_numpy(dtype="float32" if narrow else "float64", na_value=np.nan)


def _from_lists(name: str, value: Any) -> Array:
    try:
        array = _stacked(value) if _holds_masked(value) else np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:
        raise ValueError(f"{name}: expected nested lists of numbers, of equal lengths ({error})") from None
    if array.dtype == object and all(item is None or isinstance(item, Real) for item in array.flat):
        try:
            # What no integer type holds is meant as a number, not as an identifier.
            held = [v for v in array.flat if isinstance(v, int) and -(2**63) <= v < 2**64]
            check_exact(name, np.array([*held, 0], dtype=object))
            return array.astype(np.float64)
        except OverflowError:
            raise ValueError(f"{name}: expected numbers that float64 can hold, got a larger one") from None
    return array


def _holds_masked(value: Any) -> bool:
    """Whether nested lists hold a ``numpy.ma`` array, whose mask ``numpy.asarray`` would forget."""
    if isinstance(value, list | tuple):
        return any(map(_holds_masked, value))
    return isinstance(value, np.ma.MaskedArray)


def _stacked(value: Any) -> Any:
    """Return nested lists of masked arrays as one masked array."""
    return np.ma.stack(list(map(_stacked, value))) if isinstance(value, list | tuple) else value


def _check_aligned(name: str, labels: Labels | None, other: Labels | None) -> None:
    if labels is None or other is None:
        return
    if not (labels.index.equals(other.index) and labels.columns.equals(other.columns)):
        raise ValueError(f"{name}: its index and columns must equal those of Y, in the same order")


def _checked_values(data: Array, xp: Namespace, matrices: bool) -> Array:
    if not (hasattr(data, "dtype") and _is_dtype(data, _NUMERIC, xp)):
        raise TypeError(f"Y: expected real numbers, got dtype {data.dtype}")
    if matrices and data.ndim < 2:
        raise ValueError(f"Y: expected a matrix (m, n) or a stack (..., m, n), got shape {tuple(data.shape)}")
    if compat.size(data) == 0:
        raise ValueError(f"Y: expected at least one entry, got shape {tuple(data.shape)}")
    return data


def _is_dtype(array: Array, kinds: tuple[str, ...], xp: Namespace) -> bool:
    return any(xp.isdtype(array.dtype, kind) for kind in kinds)


def _same_shape(name: str, array: Array, data: Array, xp: Namespace) -> Array:
    """Return ``array`` with the shape of ``data``, repeated over a stack if it has only the last two axes."""
    shape = tuple(data.shape)
    if tuple(array.shape) not in (shape, shape[-2:]):
        raise ValueError(f"{name}: expected the shape of Y, {shape}, got {tuple(array.shape)}")
    return xp.broadcast_to(array, shape)


def _observed(data: Array, mask: Array | None, stored: Any, xp: Namespace) -> Array:
    """Return a boolean array, True where Y counts as observed."""
    if mask is None and stored is None:
        return ~xp.isnan(data)
    observed = xp.ones_like(data, dtype=xp.bool)
    if mask is not None:
        if not _is_dtype(mask, _NUMERIC, xp):
            raise TypeError(f"mask: expected booleans or 0 and 1, got dtype {mask.dtype}")
        mask = _same_shape("mask", mask, data, xp)
        if not _is_dtype(mask, ("bool",), xp):
            # Masks in picture files are black and white.
            white = 255 if not bool(xp.any(mask == 1)) and bool(xp.any(mask == 255)) else 1
            binary = (mask == 0) | (mask == white)
            if not bool(xp.all(binary)):
                odd = to_numpy(mask)[~to_numpy(binary)][0]
                raise ValueError(f"mask: expected True/False, 1/0 or 255/0 (0 = missing), found {odd}")
            mask = mask == white
        observed = observed & mask
    if stored is not None:
        observed = observed & xp.asarray(stored)
    return observed


def _checked_weights(weights: Array, data: Array, xp: Namespace) -> Array:
    if not _is_dtype(weights, _NUMERIC, xp):
        raise TypeError(f"weights: expected real numbers, got dtype {weights.dtype}")
    precise = _working_float(weights.dtype, None, xp, compat.device(weights))
    weights = cast(_same_shape("weights", weights, data, xp), xp, precise)
    largest = min(float(xp.finfo(array.dtype).max) for array in (weights, data))
    if not bool(xp.all((weights >= 0) & (weights <= largest))):
        raise ValueError("weights: expected finite numbers of at least 0")
    return cast(weights, xp, dtype_name(data.dtype))


_MOST_EXACT = 2.0**53
"""Up to here, every whole number is a float64."""


def check_exact(name: str, integers: npt.NDArray[Any]) -> None:
    """Raise ValueError if there is an integer that float64 rounds: it would come back as another one."""
    # Half of the limit, because the size of the least integer is none.
    large = integers[abs(integers // 2) >= int(_MOST_EXACT) // 2]
    odd = [value for value in large.tolist() if int(float(value)) != value]
    if odd:
        raise ValueError(
            f"{name}: {len(odd)} observed integers are rounded by float64, the first is {odd[0]}; "
            "convert them, with .astype(float) for example, if that is meant"
        )


_LARGEST_WEIGHT = (1e-4, 1e12)
"""Between what the largest weight must be. Below, the regularisers are all that is fitted."""


def check_largest_weights(largest: npt.NDArray[Any]) -> None:
    """Raise ValueError unless the largest weight of each matrix lets the data count beside regularisers."""
    low, high = _LARGEST_WEIGHT
    odd = largest[(largest < low) | (largest > high)]
    if odd.size:
        raise ValueError(
            f"weights: expected the largest of a matrix to be from {low:g} to {high:g}, got {odd.flat[0]:g}; "
            "divide them by their mean"
        )


def _check_observed(data: Array, observed: Array, xp: Namespace, matrices: bool) -> None:
    """Raise if observed entries are not finite, or if a matrix has none."""
    bad = observed & ~xp.isfinite(data)
    if bool(xp.any(bad)):
        places = np.argwhere(to_numpy(bad))
        raise ValueError(
            f"Y: {len(places)} observed entries are NaN or infinite, first at {tuple(map(int, places[0]))}; "
            "mark them as missing in mask"
        )
    axes = (-2, -1) if matrices else tuple(range(observed.ndim))
    if not bool(xp.all(xp.any(observed, axis=axes))):
        where = "" if observed.ndim == 2 or not matrices else " in at least one matrix of the stack"
        raise ValueError(f"Y: no entry is observed{where}")


def _warn_of_empty_lines(data: Array, observed: Array, masked: bool, xp: Namespace) -> None:
    """Warn of rows and columns without any entry, and ask whether a mask that was given is inverted."""
    rows, columns = (int(xp.sum(cast(~xp.any(observed, axis=axis), xp, "int64"))) for axis in (-1, -2))
    if not (rows or columns):
        return
    message = (
        f"{rows} rows and {columns} columns have no observed entry; "
        "they are filled through the graphs and the factors alone"
    )
    if masked:
        seen = data[observed]
        if 2 * compat.size(seen) < compat.size(data) and bool(xp.all(seen == seen[0])):
            message += "; all observed entries are equal: is the mask inverted? True means observed"
    warnings.warn(message, EmptyLineWarning, stacklevel=_callers_level())


def _callers_level() -> int:
    """Return the ``stacklevel`` at which a warning names the line that called airnp."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).split(".")[0] == "airnp":
        level, frame = level + 1, frame.f_back
    return level


def check_size(name: str, largest: float, dtype: str) -> None:
    """Raise if a fit's type cannot hold data whose own type is more precise, the largest of it at least."""
    limits = np.finfo(dtype)
    low, high = float(limits.tiny), float(limits.max)
    if largest > high or 0 < largest < low:
        raise ValueError(
            f"dtype: {dtype} holds numbers of size {low:.1e} to {high:.1e}, the largest of {name} is "
            f"{largest:.1e}"
        )
