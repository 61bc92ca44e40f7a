"""``cupy.ndarray``: a NumPy array in an :class:`Allocation` that checks every access."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.cupy_double.memory import Allocation, MemoryPointer
from tests.cupy_double.state import Device, machine, refuse_in_capture
from tests.cupy_double.streams import Stream, current_stream, submit

_SCALARS = (bool, int, float, complex, np.generic)

_OPERATORS = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "truediv": np.true_divide,
    "pow": np.power,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
_COMPARISONS = {
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}
_UNARY = {"neg": np.negative, "abs": np.absolute, "invert": np.invert}
_NUMPY_UFUNCS = {
    *_OPERATORS.values(),
    *_COMPARISONS.values(),
    *_UNARY.values(),
    *(np.exp, np.sqrt, np.sign, np.isnan, np.isfinite),
}
"""Which ufuncs of NumPy go to CuPy when one of their operands is CuPy's."""

array_functions: dict[str, Callable[..., Any]] = {}
"""Functions of NumPy that go to the double's of the same name; filled by ``modules``."""


class ndarray:  # noqa: N801
    """An array on the device that is current when it is made."""

    __array_priority__ = 100
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self,
        shape: Any,
        dtype: Any = float,
        memptr: MemoryPointer | None = None,
        strides: Any = None,
        order: str = "C",
    ) -> None:
        shape, kind = _shape(shape), _dtype(dtype)
        allocation = Allocation(_bytes(shape, kind)) if memptr is None else memptr.mem
        offset = 0 if memptr is None else memptr.ptr - allocation.address
        self._host = np.ndarray(
            shape, kind, buffer=allocation.content, offset=offset, strides=strides, order=order
        )
        self._allocation = allocation

    @classmethod
    def _view(cls, host: np.ndarray, allocation: Allocation) -> ndarray:
        view = cls.__new__(cls)
        view._host, view._allocation = host, allocation
        return view

    # --- attributes ---

    @property
    def shape(self) -> tuple[int, ...]:
        return self._host.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._host.dtype

    @property
    def ndim(self) -> int:
        return self._host.ndim

    @property
    def size(self) -> int:
        return self._host.size

    @property
    def nbytes(self) -> int:
        return self._host.nbytes

    @property
    def itemsize(self) -> int:
        return self._host.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        return self._host.strides

    @property
    def flags(self) -> SimpleNamespace:
        flags = self._host.flags
        return SimpleNamespace(c_contiguous=flags.c_contiguous, f_contiguous=flags.f_contiguous)

    @property
    def device(self) -> Device:
        return Device(self._allocation.device)

    @property
    def data(self) -> MemoryPointer:
        return MemoryPointer(self._allocation, self._host.ctypes.data - self._allocation.address)

    def __len__(self) -> int:
        return len(self._host)

    def __repr__(self) -> str:
        return repr(self.get())

    # --- to the host and back ---

    def get(
        self, stream: Stream | None = None, order: str = "C", out: Any = None, blocking: bool = True
    ) -> np.ndarray:
        """Return a copy on the host, after waiting for the stream."""
        if not blocking:
            raise NotImplementedError("the double copies to the host only with blocking=True")
        with self.device:
            source = current_stream() if stream is None else stream
            if source.is_capturing():
                source._refuse()
            host = np.empty(self.shape, self.dtype, order=order) if out is None else out
            values = self._host
            submit(
                lambda: np.copyto(host, values, casting="no"),
                lambda: machine.count("device_to_host"),
                reads=[self._allocation],
                stream=source,
            )
            source.synchronize()
        return host

    def set(self, arr: np.ndarray, stream: Stream | None = None) -> None:
        """Overwrite with an array of the host of the same shape and type."""
        if not isinstance(arr, np.ndarray):
            raise TypeError("Only numpy.ndarray can be set to cupy.ndarray")
        if self.dtype != arr.dtype:
            raise TypeError(f"{arr.dtype} array cannot be set to {self.dtype} array")
        if self.shape != arr.shape:
            raise ValueError(f"Shape mismatch. Old shape: {self.shape}, new shape: {arr.shape}")
        if not (self.flags.c_contiguous or self.flags.f_contiguous):
            raise RuntimeError("Cannot set to non-contiguous array")
        with self.device:
            target = current_stream() if stream is None else stream
            if target.is_capturing():
                target._refuse()
            host = self._host
            submit(
                lambda: np.copyto(host, arr),
                lambda: machine.count("host_to_device"),
                writes=[self._allocation],
                stream=target,
            )

    def item(self) -> Any:
        """Return the only entry as a Python number."""
        return self.get().item()

    def _only(self) -> Any:
        if self.size != 1:
            raise TypeError("only size-1 arrays can be converted to Python scalars")
        return self.item()

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ValueError("The truth value of an array with more than one element is ambiguous")
        return bool(self.item())

    def __int__(self) -> int:
        return int(self._only())

    def __float__(self) -> float:
        return float(self._only())

    def __complex__(self) -> complex:
        return complex(self._only())

    def __array__(self, dtype: Any = None) -> np.ndarray:
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. Please use `.get()` to construct a NumPy "
            "array explicitly."
        )

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method != "__call__" or ufunc not in _NUMPY_UFUNCS:
            return NotImplemented
        (out,) = kwargs.pop("out", (None,))
        if kwargs:
            return NotImplemented
        if out is not None and not isinstance(out, ndarray):
            raise TypeError(f"Unsupported type {type(out)}")
        return elementwise(ufunc, *inputs, out=out)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        function = array_functions.get(func.__name__)
        return NotImplemented if function is None else function(*args, **kwargs)

    # --- other views and copies ---

    def astype(
        self, dtype: Any, order: str = "K", casting: Any = None, subok: Any = None, copy: bool = True
    ) -> ndarray:
        kind = _dtype(dtype)
        wrong_order = order == "C" and not self.flags.c_contiguous
        if not copy and kind == self.dtype and not wrong_order:
            return self
        return launch("astype", lambda host: host.astype(kind, order=order), self)

    def copy(self, order: str = "C") -> ndarray:
        """Return a copy on the current device, wherever this array is."""
        here = machine.device()
        if self._allocation.device == here:
            return launch("copy", lambda host: host.copy(order=order), self)
        with self.device:
            submit(lambda: None, lambda: machine.count("device_to_device"), reads=[self._allocation])
        return _placed(self._host.copy(order=order), "copy")

    def __deepcopy__(self, memo: Any) -> ndarray:
        with self.device:
            return self.copy()

    def reshape(self, *shape: Any, order: str = "C", copy: bool | None = None) -> ndarray:
        if order != "C" or copy is not None:
            raise NotImplementedError("the double reshapes in C order, with copies as needed")
        wanted = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        turned = self._host.reshape(wanted)
        if self.size == 0 or np.may_share_memory(turned, self._host):
            return self._view(turned, self._allocation)
        return launch("copy", lambda host: host.reshape(wanted), self)

    def ravel(self, order: str = "C") -> ndarray:
        return self.reshape(-1, order=order)

    def transpose(self, *axes: Any) -> ndarray:
        return self._view(self._host.transpose(*axes), self._allocation)

    def swapaxes(self, axis1: int, axis2: int) -> ndarray:
        return self._view(self._host.swapaxes(axis1, axis2), self._allocation)

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> ndarray:
        return self._view(self._host.diagonal(offset, axis1, axis2), self._allocation)

    @property
    def T(self) -> ndarray:  # noqa: N802
        return self.transpose()

    @property
    def mT(self) -> ndarray:  # noqa: N802
        return self.swapaxes(-1, -2)

    def __iter__(self) -> Iterator[ndarray]:
        if self.ndim == 0:
            raise TypeError("iteration over a 0-d array")
        return (self[position] for position in range(len(self)))

    def __getitem__(self, key: Any) -> ndarray:
        keys = _checked_key(key)
        if not any(isinstance(item, ndarray) for item in keys):
            return self._view(self._host[_with_ellipsis(keys)], self._allocation)
        if any(isinstance(item, ndarray) and item.dtype == bool for item in keys):
            refuse_in_capture()
            current_stream().synchronize()  # the size of the result must be known
        pattern, arrays = _split(keys)
        return launch("take", lambda host, *hosts: host[_filled(pattern, hosts)], self, *arrays)

    def __setitem__(self, key: Any, value: Any) -> None:
        pattern, arrays = _split(_checked_key(key))
        if arrays and isinstance(value, ndarray):
            raise NotImplementedError("the double assigns only scalars to places that arrays name")

        def assign(host: np.ndarray, new: Any, *hosts: np.ndarray) -> None:
            host[_filled(pattern, hosts) if hosts else _with_ellipsis(pattern)] = new

        _launch_in_place("setitem", assign, self, value, *arrays)

    def fill(self, value: Any) -> None:
        self[...] = value

    # --- arithmetic; the operators are added below ---

    def __matmul__(self, other: Any) -> ndarray:
        return matmul(self, other)

    def __rmatmul__(self, other: Any) -> ndarray:
        return matmul(other, self)

    def __pos__(self) -> ndarray:
        return self.copy()

    def sum(self, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> ndarray:
        return _reduced(np.sum, self, out, axis=axis, dtype=dtype, keepdims=keepdims)

    def max(self, axis: Any = None, out: Any = None, keepdims: bool = False) -> ndarray:
        return _reduced(np.max, self, out, axis=axis, keepdims=keepdims)

    def min(self, axis: Any = None, out: Any = None, keepdims: bool = False) -> ndarray:
        return _reduced(np.min, self, out, axis=axis, keepdims=keepdims)

    def any(self, axis: Any = None, out: Any = None, keepdims: bool = False) -> ndarray:
        return _reduced(np.any, self, out, axis=axis, keepdims=keepdims)

    def all(self, axis: Any = None, out: Any = None, keepdims: bool = False) -> ndarray:
        return _reduced(np.all, self, out, axis=axis, keepdims=keepdims)


# --- how work is done ---


def _dtype(dtype: Any) -> np.dtype[Any]:
    kind = np.dtype(dtype)
    if kind.kind not in "biufc":
        raise ValueError(f"Unsupported dtype {kind}")
    return kind.newbyteorder("=")


def _shape(shape: Any) -> tuple[int, ...]:
    return (int(shape),) if isinstance(shape, int | np.integer) else tuple(int(size) for size in shape)


def _bytes(shape: Sequence[int], dtype: np.dtype[Any]) -> int:
    return int(np.prod(shape, dtype=np.int64)) * dtype.itemsize


def check_device(array: ndarray) -> None:
    """Raise unless an array lives on the current device; peer access is not available here."""
    current, place = machine.device(), array._allocation.device
    if place != current:
        raise ValueError(
            f"The device where the array resides ({place}) is different from the current device ({current}). "
            "Peer access is unavailable between these devices."
        )


def operand(value: Any) -> Any:
    """Return what NumPy computes with; raise for anything but arrays of this device and scalars."""
    if isinstance(value, ndarray):
        check_device(value)
        return value._host
    if isinstance(value, _SCALARS):
        return value
    raise TypeError(f"Unsupported type {type(value)}")


def _allocations(operands: Sequence[Any]) -> list[Allocation]:
    return [value._allocation for value in operands if isinstance(value, ndarray)]


def launch(name: str, compute: Callable[..., Any], *operands: Any, product: bool = False) -> ndarray:
    """Return a new array with what ``compute`` makes of the operands, as one kernel of CuPy does."""
    hosts = [operand(value) for value in operands]
    refuse_in_capture()
    with np.errstate(all="ignore"):  # a GPU does not warn
        values = np.asarray(compute(*hosts))
    return _placed(values, name, reads=_allocations(operands), product=product)


def _placed(
    values: np.ndarray, name: str, *, reads: Sequence[Allocation] = (), product: bool = False
) -> ndarray:
    """Return a new array on the current device, laid out in memory as ``values`` would be in NumPy."""
    result = ndarray(values.shape, values.dtype, strides=np.empty_like(values).strides)
    host = result._host

    def counted() -> None:
        if product:
            machine.count("products")
        else:
            machine.count_named("operations", name)

    submit(lambda: np.copyto(host, values), counted, reads=reads, writes=[result._allocation])
    return result


def _launch_in_place(name: str, change: Callable[..., None], target: ndarray, *operands: Any) -> None:
    """Change an array, now or when the captured graph is launched."""
    hosts = [operand(value) for value in (target, *operands)]

    def run() -> None:
        with np.errstate(all="ignore"):
            change(*hosts)

    submit(
        run,
        lambda: machine.count_named("operations", name),
        reads=_allocations(operands),
        writes=[target._allocation],
    )


def elementwise(ufunc: Any, *operands: Any, out: ndarray | None = None) -> ndarray:
    """Return ``ufunc`` of arrays and scalars, in ``out`` if it is given."""
    if out is None:
        return launch(ufunc.__name__, ufunc, *operands)
    _launch_in_place(ufunc.__name__, lambda target, *hosts: ufunc(*hosts, out=target), out, *operands)
    return out


def matmul(x1: Any, x2: Any, /) -> ndarray:
    """Return a product that CuPy hands to cuBLAS, which it refuses to do in a capture."""
    if current_stream().is_capturing():
        raise NotImplementedError("calling cuBLAS API during stream capture is currently unsupported")
    for value in (x1, x2):
        if not isinstance(value, ndarray):
            raise TypeError(f"Unsupported type {type(value)}")
    return launch("matmul", lambda a, b: np.ascontiguousarray(np.matmul(a, b)), x1, x2, product=True)


def _reduced(function: Any, array: ndarray, out: Any, **options: Any) -> ndarray:
    if out is not None:
        raise NotImplementedError("the double reduces into new arrays only")
    options = {name: value for name, value in options.items() if value is not None}
    return launch(function.__name__, lambda host: np.asarray(function(host, **options), order="C"), array)


# --- indices ---


def _checked_key(key: Any) -> tuple[Any, ...]:
    keys = key if isinstance(key, tuple) else (key,)
    for item in keys:
        if isinstance(item, ndarray):
            check_device(item)
        elif not (item is None or item is Ellipsis or isinstance(item, slice | int | np.integer)):
            raise TypeError(f"Unsupported type {type(item)}")
    return keys


def _with_ellipsis(keys: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return keys for which NumPy gives a view, of no axes if need be, and not a scalar."""
    return keys if any(item is Ellipsis for item in keys) else (*keys, Ellipsis)


_HERE = object()


def _split(keys: tuple[Any, ...]) -> tuple[tuple[Any, ...], list[ndarray]]:
    """Return keys with a mark in place of each array, and the arrays: recorded work must keep none alive."""
    arrays = [item for item in keys if isinstance(item, ndarray)]
    return tuple(_HERE if isinstance(item, ndarray) else item for item in keys), arrays


def _filled(pattern: tuple[Any, ...], hosts: Sequence[np.ndarray]) -> tuple[Any, ...]:
    rest = iter(hosts)
    return tuple(next(rest) if item is _HERE else item for item in pattern)


# --- operators ---


def _binary(ufunc: Any) -> tuple[Any, Any, Any]:
    def plain(self: ndarray, other: Any) -> ndarray:
        return elementwise(ufunc, self, other)

    def reflected(self: ndarray, other: Any) -> ndarray:
        return elementwise(ufunc, other, self)

    def in_place(self: ndarray, other: Any) -> ndarray:
        return elementwise(ufunc, self, other, out=self)

    return plain, reflected, in_place


for _name, _ufunc in _OPERATORS.items():
    for _prefix, _method in zip(("", "r", "i"), _binary(_ufunc), strict=True):
        setattr(ndarray, f"__{_prefix}{_name}__", _method)
for _name, _ufunc in _COMPARISONS.items():
    setattr(ndarray, f"__{_name}__", _binary(_ufunc)[0])
for _name, _ufunc in _UNARY.items():
    setattr(ndarray, f"__{_name}__", lambda self, _ufunc=_ufunc: elementwise(_ufunc, self))
