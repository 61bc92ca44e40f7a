"""The functions of ``cupy`` that airnp and array_api_compat call, with CuPy's signatures or part of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.cupy_double.array import _dtype, elementwise, launch, matmul, ndarray
from tests.cupy_double.state import machine, refuse_in_capture
from tests.cupy_double.streams import submit

__all__ = [
    "abs",
    "all",
    "any",
    "array",
    "asarray",
    "ascontiguousarray",
    "broadcast_to",
    "concatenate",
    "diagonal",
    "empty",
    "empty_like",
    "exp",
    "eye",
    "full",
    "full_like",
    "isdtype",
    "isfinite",
    "isnan",
    "matmul",
    "max",
    "min",
    "ones",
    "ones_like",
    "reshape",
    "round",
    "sign",
    "sqrt",
    "stack",
    "sum",
    "swapaxes",
    "transpose",
    "vdot",
    "where",
    "zeros",
    "zeros_like",
]


def _array(value: Any) -> ndarray:
    """Return ``value`` if it is an array of the double, else raise: CuPy would do so, or use NumPy."""
    if not isinstance(value, ndarray):
        raise TypeError(f"Unsupported type {type(value)}")
    return value


# --- creation ---


def empty(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    return ndarray(shape, dtype, order=order)


def full(shape: Any, fill_value: Any, dtype: Any = None, order: str = "C") -> ndarray:
    kind = np.result_type(fill_value) if dtype is None else dtype
    return _filled(empty(shape, kind, order), fill_value)


def zeros(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    return _filled(empty(shape, dtype, order), 0)


def ones(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    return _filled(empty(shape, dtype, order), 1)


def _filled(result: ndarray, value: Any) -> ndarray:
    result.fill(value)
    return result


def empty_like(prototype: ndarray, dtype: Any = None, order: str = "K") -> ndarray:
    """Return an array of the same shape on the *current* device, as CuPy does."""
    host = _array(prototype)._host
    blank = np.empty_like(host, dtype=dtype, order=order)
    return ndarray(blank.shape, blank.dtype, strides=blank.strides)


def full_like(a: ndarray, fill_value: Any, dtype: Any = None, order: str = "K") -> ndarray:
    return _filled(empty_like(a, dtype, order), fill_value)


def zeros_like(a: ndarray, dtype: Any = None, order: str = "K") -> ndarray:
    return _filled(empty_like(a, dtype, order), 0)


def ones_like(a: ndarray, dtype: Any = None, order: str = "K") -> ndarray:
    return _filled(empty_like(a, dtype, order), 1)


def eye(N: int, M: int | None = None, k: int = 0, dtype: Any = float, order: str = "C") -> ndarray:
    return launch("eye", lambda: np.eye(N, M, k, dtype=dtype, order=order))


def array(obj: Any, dtype: Any = None, copy: bool = True, order: str = "K") -> ndarray:
    """Return an array on the current device, from one of this or another device, or from the host."""
    if not isinstance(obj, ndarray):
        return _from_host(obj, dtype, order)
    if obj._allocation.device != machine.device():
        return obj.copy().astype(obj.dtype if dtype is None else dtype, copy=False)
    return obj.astype(obj.dtype if dtype is None else dtype, order=order, copy=copy)


def asarray(a: Any, dtype: Any = None, order: str | None = None, *, copy: bool | None = None) -> ndarray:
    return array(a, dtype, copy=bool(copy), order=order or "K")


def _from_host(obj: Any, dtype: Any, order: str) -> ndarray:
    if not isinstance(obj, np.ndarray | np.generic | bool | int | float | complex | list | tuple):
        raise TypeError(f"Unsupported type {type(obj)}")
    values = np.array(obj, dtype=dtype, order=order)
    values = values.astype(_dtype(values.dtype), copy=False)
    refuse_in_capture()
    result = ndarray(values.shape, values.dtype, strides=values.strides)
    host = result._host
    submit(
        lambda: np.copyto(host, values),
        lambda: machine.count("host_to_device"),
        writes=[result._allocation],
    )
    return result


def ascontiguousarray(a: Any, dtype: Any = None) -> ndarray:
    return asarray(a, dtype, order="C")


# --- entry by entry ---


def _unary(name: str, ufunc: Any) -> Callable[[Any], ndarray]:
    def function(x: ndarray, /) -> ndarray:
        return elementwise(ufunc, _array(x))

    function.__name__ = function.__qualname__ = name
    return function


abs = _unary("abs", np.absolute)
exp = _unary("exp", np.exp)
sqrt = _unary("sqrt", np.sqrt)
sign = _unary("sign", np.sign)
round = _unary("round", np.rint)
isnan = _unary("isnan", np.isnan)
isfinite = _unary("isfinite", np.isfinite)


def where(condition: ndarray, x: Any = None, y: Any = None) -> ndarray:
    if x is None or y is None:
        raise NotImplementedError("the double has no where(condition) alone")
    return launch("where", np.where, _array(condition), x, y)


# --- reductions ---


def sum(a: ndarray, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> ndarray:
    return _array(a).sum(axis, dtype, out, keepdims)


def max(a: ndarray, axis: Any = None, out: Any = None, keepdims: bool = False) -> ndarray:
    return _array(a).max(axis, out, keepdims)


def min(a: ndarray, axis: Any = None, out: Any = None, keepdims: bool = False) -> ndarray:
    return _array(a).min(axis, out, keepdims)


def any(a: ndarray, axis: Any = None, out: Any = None, keepdims: bool = False) -> ndarray:
    return _array(a).any(axis, out, keepdims)


def all(a: ndarray, axis: Any = None, out: Any = None, keepdims: bool = False) -> ndarray:
    return _array(a).all(axis, out, keepdims)


def vdot(a: ndarray, b: ndarray) -> ndarray:
    """Return the sum of products of all entries, which CuPy makes by a product."""
    return launch("vdot", lambda x, y: np.asarray(np.vdot(x, y)), _array(a), _array(b), product=True)


# --- shapes ---


def reshape(a: ndarray, newshape: Any, order: str = "C") -> ndarray:
    return _array(a).reshape(newshape, order=order)


def transpose(a: ndarray, axes: Any = None) -> ndarray:
    return _array(a).transpose(axes) if axes is not None else _array(a).transpose()


def swapaxes(a: ndarray, axis1: int, axis2: int) -> ndarray:
    return _array(a).swapaxes(axis1, axis2)


def diagonal(a: ndarray, offset: int = 0, axis1: int = 0, axis2: int = 1) -> ndarray:
    return _array(a).diagonal(offset, axis1, axis2)


def broadcast_to(array: ndarray, shape: Any) -> ndarray:
    source = _array(array)
    return ndarray._view(np.broadcast_to(source._host, shape), source._allocation)


def concatenate(tup: Sequence[ndarray], axis: int | None = 0) -> ndarray:
    parts = [_array(part) for part in tup]
    return launch("concatenate", lambda *hosts: np.concatenate(hosts, axis=axis), *parts)


def stack(tup: Sequence[ndarray], axis: int = 0) -> ndarray:
    parts = [_array(part) for part in tup]
    return launch("stack", lambda *hosts: np.stack(hosts, axis=axis), *parts)


# --- types ---

_KINDS = {
    "bool": "b",
    "signed integer": "i",
    "unsigned integer": "u",
    "integral": "iu",
    "real floating": "f",
    "complex floating": "c",
    "numeric": "iufc",
}


def isdtype(dtype: Any, kind: Any) -> bool:
    """Return whether a dtype is of a kind, or of one of several, or is another dtype."""
    if isinstance(kind, tuple):
        return bool(np.any([isdtype(dtype, item) for item in kind]))
    found = np.dtype(dtype)
    return found.kind in _KINDS[kind] if isinstance(kind, str) else found == np.dtype(kind)


def unmodelled(name: str) -> Callable[..., Any]:
    """Return a function that only says that it is not there, for names that array_api_compat looks up."""

    def function(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"cupy.{name} is not modelled by the double")

    function.__name__ = function.__qualname__ = name
    function.unmodelled = True  # type: ignore[attr-defined]
    return function
