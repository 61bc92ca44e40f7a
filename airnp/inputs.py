"""Reading what people have: arrays of any namespace, masks, masked arrays, sparse matrices, tables, lists.

:func:`read` turns all of it into one :class:`Observations`: values, non-negative weights and a mask on equal
terms, checked. It copies; what the caller handed over is never modified.
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass, replace
from typing import Any

import array_api_compat as compat
import numpy as np

from airnp._arrays import (
    Array,
    Namespace,
    cast,
    from_numpy,
    namespace_name,
    natural_float,
    requested_float,
    shared_namespace,
    standard_namespace,
    to_numpy,
)


@dataclass(frozen=True)
class Labels:
    """The row and column labels of a pandas DataFrame, to be put back on the result."""

    index: Any
    columns: Any


@dataclass(frozen=True)
class Observations:
    """What was observed, ready for the mathematics.

    Attributes
    ----------
    values : array
        Observed values, zero elsewhere; floating point, as precise as the input. Shape (…, m, n), or the
        measurements' own shape when an operator made them.
    mask : boolean array
        True where a value was observed and counts. Same shape.
    weights : array
        Weight of each entry in the fidelity: 1 (or what the caller gave) where observed, else 0. Same shape.
    xp : module
        Namespace of the fit; may differ from that of ``values`` until :meth:`moved` was called.
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
        """Return a copy of ``array`` where the fit lives, in ``dtype``."""
        source = compat.array_namespace(array)
        if source is self.xp:
            return cast(array, self.xp, dtype)
        return from_numpy(to_numpy(array), self.xp, self.device, dtype)


def read(
    Y: Any,
    mask: Any = None,
    weights: Any = None,
    *,
    xp: Any = None,
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
    dtype : dtype, optional
        float32 or float64. Default: Y's own float type; booleans and 8- or 16-bit integers become
        float32, wider integers float64.
    matrices : bool
        Whether Y holds matrices (at least two axes). Measurements of an operator may have any shape.

    Returns
    -------
    Observations
    """
    data, stored, labels = _from_container("Y", Y)
    arrays = {"Y": data}
    mask_labels = weight_labels = None
    if mask is not None:
        arrays["mask"], mask_stored, mask_labels = _from_container("mask", mask)
        if mask_stored is not None:
            arrays["mask"] = np.logical_and(mask_stored, arrays["mask"])
    if weights is not None:
        arrays["weights"], _, weight_labels = _from_container("weights", weights)
    for name, other in (("mask", mask_labels), ("weights", weight_labels)):
        _check_aligned(name, labels, other)

    source, device = shared_namespace(arrays)
    target = source if xp is None else standard_namespace(xp)
    if target is not source:
        if not compat.is_numpy_namespace(source):
            raise TypeError(f"xp: is {namespace_name(target)}, but Y is an array of {namespace_name(source)}")
        device = None

    data = _checked_values(data, source, matrices)
    dtype = natural_float(data.dtype) if dtype is None else requested_float(dtype)
    data = cast(data, source, natural_float(data.dtype))
    observed = _observed(data, arrays.get("mask"), stored, source)
    entry_weights = cast(observed, source, natural_float(data.dtype))
    if weights is not None:
        given = _checked_weights(arrays["weights"], data, source)
        entry_weights = entry_weights * given
        observed = entry_weights > 0
    _check_observed(data, observed, source, matrices)
    values = source.where(observed, data, source.zeros_like(data))
    return Observations(values, observed, entry_weights, target, device, dtype, labels)


def _from_container(name: str, value: Any) -> tuple[Array, Any, Labels | None]:
    """Return an array, a mask of stored entries or None, and labels or None."""
    pandas, sparse = sys.modules.get("pandas"), sys.modules.get("scipy.sparse")
    if pandas is not None and isinstance(value, pandas.DataFrame):
        return _from_frame(name, value), None, Labels(value.index, value.columns)
    if sparse is not None and sparse.issparse(value):
        stored = sparse.coo_array(_summed(value))
        observed = np.zeros(stored.shape, dtype=bool)
        observed[stored.coords] = True
        return stored.toarray(), observed, None
    if isinstance(value, np.ma.MaskedArray):
        return value.data, ~np.ma.getmaskarray(value), None
    if isinstance(value, list | tuple):
        return _from_lists(name, value), None, None
    if compat.is_torch_array(value):
        return value.detach(), None, None
    if isinstance(value, np.ndarray):
        return np.asarray(value), None, None
    if compat.is_array_api_obj(value):
        return value, None, None
    raise TypeError(f"{name}: expected an array, a table or nested lists, got {type(value).__name__}")


def _summed(matrix: Any) -> Any:
    """Return a CSR copy in which every entry is stored once; duplicates add up, as everywhere in SciPy."""
    copy = matrix.tocsr(copy=True)
    copy.sum_duplicates()
    return copy


def _from_frame(name: str, frame: Any) -> Array:
    odd = [label for label, kind in frame.dtypes.items() if getattr(kind, "kind", "O") not in "biuf"]
    if odd:
        raise TypeError(f"{name}: expected numeric columns, these are not: {', '.join(map(repr, odd[:5]))}")
    narrow = all(natural_float(getattr(kind, "numpy_dtype", kind)) == "float32" for kind in frame.dtypes)
    return frame.to_numpy(dtype="float32" if narrow else "float64", na_value=np.nan)


def _from_lists(name: str, value: Any) -> Array:
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{name}: expected nested lists of equal lengths ({error})") from None
    if array.dtype == object and all(item is None or isinstance(item, int | float) for item in array.ravel()):
        return array.astype(np.float64)
    return array


def _check_aligned(name: str, labels: Labels | None, other: Labels | None) -> None:
    if labels is None or other is None:
        return
    if not (labels.index.equals(other.index) and labels.columns.equals(other.columns)):
        raise ValueError(f"{name}: its index and columns must equal those of Y, in the same order")


def _checked_values(data: Array, xp: Namespace, matrices: bool) -> Array:
    numeric = ("bool", "integral", "real floating")
    if not (hasattr(data, "dtype") and _is_dtype(data, numeric, xp)):
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
        if not _is_dtype(mask, ("bool", "integral", "real floating"), xp):
            raise TypeError(f"mask: expected booleans or 0 and 1, got dtype {mask.dtype}")
        mask = _same_shape("mask", mask, data, xp)
        if not _is_dtype(mask, ("bool",), xp):
            binary = (mask == 0) | (mask == 1)
            if not bool(xp.all(binary)):
                odd = to_numpy(mask)[~to_numpy(binary)][0]
                raise ValueError(f"mask: expected True/False or 1/0 (1 = observed), found {odd}")
            mask = mask == 1
        observed = observed & mask
    if stored is not None:
        observed = observed & xp.asarray(stored)
    return observed


def _checked_weights(weights: Array, data: Array, xp: Namespace) -> Array:
    if not _is_dtype(weights, ("bool", "integral", "real floating"), xp):
        raise TypeError(f"weights: expected real numbers, got dtype {weights.dtype}")
    weights = cast(_same_shape("weights", weights, data, xp), xp, natural_float(data.dtype))
    if not bool(xp.all(xp.isfinite(weights) & (weights >= 0))):
        raise ValueError("weights: expected finite numbers of at least 0")
    return weights


def _check_observed(data: Array, observed: Array, xp: Namespace, matrices: bool) -> None:
    """Raise when observed entries are not finite or there are none; warn of empty rows and columns."""
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
    if matrices:
        rows = int(xp.sum(cast(~xp.any(observed, axis=-1), xp, "int64")))
        columns = int(xp.sum(cast(~xp.any(observed, axis=-2), xp, "int64")))
        if rows or columns:
            warnings.warn(
                f"{rows} rows and {columns} columns have no observed entry; "
                "they are filled through the graphs and the factors alone",
                EmptyLineWarning,
                stacklevel=4,
            )


class EmptyLineWarning(UserWarning):
    """Some rows or columns have no observed entry at all."""
