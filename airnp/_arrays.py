"""Namespaces, devices and dtypes of arrays, and conversions between them.

Everything goes through ``array-api-compat``; CuPy and PyTorch are imported only if the caller passes one of
their arrays or the module itself.
"""

from __future__ import annotations

import importlib
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import Any, TypeAlias

import array_api_compat as compat
import numpy as np
import numpy.typing as npt

Array: TypeAlias = Any
"""An array of any array-API namespace. The standard has no common base class to name here."""

Namespace: TypeAlias = Any
"""An array-API module, such as ``array_api_compat.numpy``."""

_WRAPPED = ("numpy", "cupy", "torch")


def standard_namespace(xp: ModuleType) -> Namespace:
    """Return the array-API version of a module.

    Parameters
    ----------
    xp : module
        ``numpy``, ``cupy``, ``torch``, or any module that follows the array-API standard.

    Returns
    -------
    module
        ``array_api_compat.numpy`` and so on for the first three, the module itself otherwise.

    Examples
    --------
    >>> import numpy
    >>> standard_namespace(numpy).__name__
    'array_api_compat.numpy'
    """
    if not isinstance(xp, ModuleType) or not hasattr(xp, "asarray"):
        raise TypeError(f"xp: expected an array module such as numpy, cupy or torch, got {xp!r}")
    if xp.__name__ in _WRAPPED:
        return importlib.import_module(f"array_api_compat.{xp.__name__}")
    return xp


def namespace_name(xp: Namespace) -> str:
    """Return the plain name of a namespace, such as ``"torch"`` for ``array_api_compat.torch``."""
    return str(xp.__name__).removeprefix("array_api_compat.")


def shared_namespace(arrays: dict[str, Array]) -> tuple[Namespace, Any]:
    """Return the namespace and the device of arrays; raise TypeError if they do not share one.

    Parameters
    ----------
    arrays : dict of str to array
        Arguments by name; the names appear in the error.
    """
    spaces = {name: compat.array_namespace(array) for name, array in arrays.items()}
    if len(set(spaces.values())) > 1:
        found = ", ".join(f"{name} is {namespace_name(space)}" for name, space in spaces.items())
        raise TypeError(f"all arrays must come from one namespace: {found}")
    devices = {name: compat.device(array) for name, array in arrays.items()}
    if len(set(map(str, devices.values()))) > 1:
        found = ", ".join(f"{name} is on {device}" for name, device in devices.items())
        raise TypeError(f"all arrays must live on one device: {found}")
    first = next(iter(arrays))
    return spaces[first], devices[first]


def to_numpy(array: Array) -> npt.NDArray[Any]:
    """Return a NumPy array with the values of an array of any namespace and device.

    Examples
    --------
    >>> to_numpy([[1, 2], [3, 4]])
    array([[1, 2],
           [3, 4]])
    """
    if compat.is_torch_array(array):
        host = array.detach().cpu()
        # NumPy has no bfloat16; float32 holds all of its values.
        return np.asarray((host.float() if dtype_name(host.dtype) == "bfloat16" else host).numpy())
    if compat.is_cupy_array(array):
        return np.asarray(array.get())
    if not compat.is_array_api_obj(array) or compat.is_numpy_array(array):
        return np.asarray(array)
    try:
        # Copy, because DLPack returns a view of memory that may belong to the caller.
        return np.array(np.from_dlpack(array))
    except BufferError:  # before NumPy 2, for memory that may not be written
        return np.array(np.from_dlpack(compat.array_namespace(array).asarray(array, copy=True)))


def from_numpy(values: npt.ArrayLike, xp: Namespace, device: Any, dtype: str) -> Array:
    """Return an array of ``xp`` on ``device`` with a copy of NumPy ``values`` in dtype ``dtype``."""
    host = np.array(values, dtype=dtype, order="C")
    return xp.asarray(host, dtype=getattr(xp, dtype), device=device)


def copied(array: Array) -> Array:
    """Return a copy in the same namespace and on the same device."""
    return compat.array_namespace(array).asarray(array, copy=True)


def on_device(xp: Namespace, device: Any) -> AbstractContextManager[Any]:
    """Return a context that makes a device current for new arrays and work; only CuPy needs it."""
    if device is not None and compat.is_cupy_namespace(xp):
        current: AbstractContextManager[Any] = device
        return current
    return nullcontext()


def beside(array: Array) -> AbstractContextManager[Any]:
    """Return a context that makes the device of an array current."""
    return on_device(compat.array_namespace(array), compat.device(array))


def dtype_name(dtype: Any) -> str:
    """Return the plain name of a dtype of any namespace, such as ``"float32"``.

    Examples
    --------
    >>> dtype_name(np.float32), dtype_name("<f8")
    ('float32', 'float64')
    """
    try:
        return str(np.dtype(dtype).name)
    except TypeError:
        return str(dtype).rsplit(".", 1)[-1]


def requested_float(dtype: Any) -> str:
    """Return the name of a dtype that a caller asked for; raise unless it is float32 or float64."""
    name = dtype_name(dtype)
    if name not in ("float32", "float64"):
        raise ValueError(f"dtype: expected float32 or float64, got {name}")
    return name


_FITS_FLOAT32 = frozenset({"bool", "int8", "uint8", "int16", "uint16", "float16", "bfloat16", "float32"})


def natural_float(dtype: Any) -> str:
    """Return the float type that holds every value of ``dtype``, as NumPy promotes it with float32.

    Booleans, 8- and 16-bit integers and half precision become float32; wider integers become float64,
    because 32-bit integers do not fit into float32's 24-bit significand.

    Examples
    --------
    >>> natural_float(np.uint8), natural_float(np.int64), natural_float(np.float64)
    ('float32', 'float64', 'float64')
    """
    return "float32" if dtype_name(dtype) in _FITS_FLOAT32 else "float64"


def has_float64(xp: Namespace, device: Any) -> bool:
    """Return whether ``device`` of ``xp`` can compute in float64; some accelerators cannot."""
    if not hasattr(xp, "__array_namespace_info__"):
        return True
    return "float64" in xp.__array_namespace_info__().dtypes(device=device, kind="real floating")


def cast(array: Array, xp: Namespace, dtype: str) -> Array:
    """Return a copy of ``array`` in ``dtype``, in native byte order and, for NumPy and CuPy, in C order.

    The fused engines need contiguous rows, and a sum in another order would round differently.
    """
    if compat.is_numpy_array(array) or compat.is_cupy_array(array):
        return array.astype(dtype, order="C", copy=True)
    return xp.astype(array, getattr(xp, dtype), copy=True)


def own_module(xp: Namespace) -> Any:
    """Return NumPy or CuPy itself for the array API's name of it; None for any other namespace."""
    if compat.is_numpy_namespace(xp):
        return np
    if compat.is_cupy_namespace(xp):
        import cupy

        return cupy
    return None


def stored_entries(name: str, matrix: Any) -> Any:
    """Return the stored entries of a sparse matrix of SciPy in CSR form, sorted, each place once; as a copy.

    Explicit zeros stay. The formats DIA and BSR fill diagonals and blocks up with zeros, so that their zeros
    count as not stored. A sparse array of another number of axes than two comes back in COO form.

    Raises
    ------
    ValueError
        If an index is outside of the matrix, which SciPy does not check, or if a place is stored twice. In
        a ``"mask"``, it may be.
    """
    from scipy.sparse import coo_array, csr_array

    check_indices(name, matrix)
    if matrix.format in ("csr", "csc"):
        rows = csr_array(matrix.tocsr(copy=True))
        count = rows.nnz
    else:
        try:
            coo = matrix.tocoo(copy=True)
        except ValueError as error:  # SciPy checks the formats "lil" and "dok" here
            raise ValueError(f"{name}: {error}") from None
        kept = coo.data != 0 if matrix.format in ("bsr", "dia") else slice(None)
        places = tuple(place[kept] for place in _coordinates(coo))
        count = len(places[0])
        listed = coo_array((coo.data[kept], places), shape=coo.shape)
        rows = csr_array(listed) if matrix.ndim == 2 else listed
    rows.sum_duplicates()
    if rows.nnz < count and name != "mask":
        raise ValueError(
            f"{name}: expected at most one entry for each place, got {count} entries at {rows.nnz} places, "
            "which a sparse matrix would add up; keep the last of each, or their mean"
        )
    return rows


def _coordinates(coo: Any) -> tuple[Any, ...]:
    """Return the indices of the entries along each axis; before SciPy 1.13 there are only two axes."""
    return tuple(getattr(coo, "coords", None) or (coo.row, coo.col))


def check_indices(name: str, matrix: Any) -> None:
    """Raise ValueError if a sparse matrix refers to memory outside of its arrays."""
    if matrix.format == "coo":
        places = list(zip(_coordinates(matrix), matrix.shape, strict=True))
        lengths = {len(matrix.data), *(len(place) for place, _ in places)}
        starts_are_sound = len(lengths) == 1
    elif matrix.format in ("csr", "csc", "bsr"):
        sizes = matrix.shape[::-1] if matrix.format == "csc" else matrix.shape
        blocks = matrix.blocksize if matrix.format == "bsr" else (1,) * len(sizes)
        lines = sizes[0] // blocks[0] if len(sizes) == 2 else 1
        starts, width = np.asarray(matrix.indptr), sizes[-1] // blocks[-1]
        starts_are_sound = (
            starts.shape == (lines + 1,)
            and starts[0] == 0
            and bool((starts[1:] >= starts[:-1]).all())
            and starts[-1] <= min(len(matrix.indices), len(matrix.data))
        )
        places = [(matrix.indices[: starts[-1]], width)] if starts_are_sound else []
    else:
        return
    if not starts_are_sound:
        raise ValueError(f"{name}: its arrays do not describe a sparse matrix; check_format() says why")
    for place, size in places:
        if len(place) and not (place.min() >= 0 and place.max() < size):
            raise ValueError(
                f"{name}: expected indices from 0 to {size - 1} in a sparse matrix of shape {matrix.shape}, "
                f"got {place.min()} to {place.max()}"
            )


def place_sparse(matrix: Any, xp: Namespace, dtype: str) -> Any:
    """Return a scipy.sparse.csr_array in a dtype, as it is for NumPy, on the device for CuPy."""
    if compat.is_numpy_namespace(xp):
        return matrix.astype(dtype)
    from cupyx.scipy.sparse import csr_matrix

    parts = (matrix.data.astype(dtype), matrix.indices, matrix.indptr)
    return csr_matrix(tuple(map(xp.asarray, parts)), shape=matrix.shape)
