"""The functions of cuBLAS that airnp calls: the product on raw addresses, and the C interface to it."""

from __future__ import annotations

import ctypes
import itertools
import weakref
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tests.cupy_double.memory import Allocation, pool_of
from tests.cupy_double.state import machine
from tests.cupy_double.streams import Stream, get_current_stream, stream_at, submit

_LARGEST = 2**31 - 1


class CUBLASError(RuntimeError):
    """A status of cuBLAS that is not success."""


def gemm_strided_batched(
    handle: int,
    transa: int,
    transb: int,
    m: int,
    n: int,
    k: int,
    alpha: float,
    A: int,
    lda: int,
    strideA: int,
    B: int,
    ldb: int,
    strideB: int,
    beta: float,
    C: int,
    ldc: int,
    strideC: int,
    batch: int,
    dtype: Any,
    workspace: Allocation | None = None,
    mode: int = 0,
) -> None:
    """Compute C = alpha op(A) op(B) + beta C for each problem of a batch, all in column-major order.

    Parameters
    ----------
    handle : int
        Any; the work goes to the current stream of the current device.
    transa, transb : int
        0 takes a matrix as it is, 1 transposes it.
    m, n, k : int
        op(A) is m×k, op(B) is k×n.
    A, B, C : int
        Addresses on the current device.
    lda, ldb, ldc : int
        Entries from one column to the next.
    strideA, strideB, strideC : int
        Entries from one problem to the next.
    dtype : float32 or float64
    workspace : Allocation, optional
        Memory that the product works in; a graph that captures it contains its address.
    mode : int
        3 rounds float32 operands to TF32; sums are in float32.
    """
    kind = np.dtype(dtype)
    if kind not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise CUBLASError(f"CUBLAS_STATUS_NOT_SUPPORTED: dtype {kind}")
    for name, trans in (("transa", transa), ("transb", transb)):
        if trans not in (0, 1):
            raise CUBLASError(f"CUBLAS_STATUS_INVALID_VALUE: {name} = {trans!r}")
    for name, size in (("m", m), ("n", n), ("k", k), ("batch", batch)):
        if not 0 <= size <= _LARGEST:
            raise CUBLASError(f"CUBLAS_STATUS_INVALID_VALUE: {name} = {size!r}")
    machine.device()
    if m == 0 or n == 0 or batch == 0:
        return
    a, a_memory = _matrices("A", A, (k, m) if transa else (m, k), lda, strideA, batch, kind)
    b, b_memory = _matrices("B", B, (n, k) if transb else (k, n), ldb, strideB, batch, kind)
    c, c_memory = _matrices("C", C, (m, n), ldc, strideC, batch, kind)
    if batch > 1 and strideC < (n - 1) * ldc + m:
        raise CUBLASError("CUBLAS_STATUS_INVALID_VALUE: the results of two problems overlap")
    for name, source in (("A", a), ("B", b)):
        if np.may_share_memory(source, c):
            raise CUBLASError(f"{name} and C overlap, for which cuBLAS promises nothing")
    left = a.swapaxes(1, 2) if transa else a
    right = b.swapaxes(1, 2) if transb else b

    def run() -> None:
        with np.errstate(all="ignore"):
            rounded = (as_tf32(left), as_tf32(right)) if mode == 3 and kind == np.float32 else (left, right)
            product = kind.type(alpha) * np.matmul(*rounded)
            # With beta = 0, what C held before is not read, be it NaN.
            c[...] = product if beta == 0 else product + kind.type(beta) * c

    touched = [c_memory] if workspace is None else [c_memory, workspace]
    submit(run, lambda: machine.count("products"), reads=[a_memory, b_memory], writes=touched)


def as_tf32(values: np.ndarray) -> np.ndarray:
    """Return float32 numbers with 10 bits after the leading one, rounded to nearest even."""
    words = np.ascontiguousarray(values).view(np.uint32)
    rounded = (words + 0xFFF + (words >> 13 & 1)) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(values), rounded.view(np.float32), values)


def _matrices(
    name: str,
    address: int,
    shape: tuple[int, int],
    leading: int,
    stride: int,
    batch: int,
    dtype: np.dtype[Any],
) -> tuple[np.ndarray, Allocation]:
    """Return the matrices at an address, shape (batch, rows, columns), and the memory that holds them."""
    rows, columns = shape
    if not max(1, rows) <= leading <= _LARGEST:
        raise CUBLASError(
            f"CUBLAS_STATUS_INVALID_VALUE: the leading dimension of {name} is {leading}, of {rows} rows"
        )
    if stride < 0:
        raise CUBLASError(f"CUBLAS_STATUS_INVALID_VALUE: the stride of {name} is {stride}")
    if address % dtype.itemsize:
        raise CUBLASError(f"CUBLAS_STATUS_INVALID_VALUE: {name} is not aligned")
    entries = 0 if rows * columns == 0 else (batch - 1) * stride + (columns - 1) * leading + rows
    memory = pool_of(machine.device()).find(address, entries * dtype.itemsize)
    size = dtype.itemsize
    view = np.ndarray(
        (batch, rows, columns),
        dtype,
        buffer=memory.content,
        offset=address - memory.address,
        strides=(stride * size, size, leading * size),
    )
    return view, memory


@dataclass
class _Handle:
    stream: weakref.ref[Stream] | None = None
    workspace: weakref.ref[Allocation] | None = None


_handles = itertools.count(12345)


class Library:
    """Stands in for libcublas: the functions that airnp calls, with the argument types of the C interface."""

    def __init__(self) -> None:
        self.modes: list[int] = []
        self.version = 120900
        self._mode_of: dict[int, int] = {}
        self.handles: dict[int, _Handle] = {}

    def cublasCreate_v2(self, pointer: Any) -> int:  # noqa: N802
        pointer._obj.value = next(_handles)
        self.handles[pointer._obj.value] = _Handle()
        return 0

    def cublasDestroy_v2(self, handle: Any) -> int:  # noqa: N802
        del self.handles[handle.value]
        return 0

    def cublasSetStream_v2(self, handle: Any, stream: Any) -> int:  # noqa: N802
        # Which stream has an address may change: a handle belongs to the stream, not to its address.
        self.handles[handle.value] = _Handle(weakref.ref(stream_at(stream.value or 0)))
        return 0

    def cublasSetWorkspace_v2(self, handle: Any, workspace: Any, size: Any) -> int:  # noqa: N802
        assert workspace.value % 256 == 0
        assert size.value >= 4 * 2**20
        memory = pool_of(machine.device()).find(workspace.value, size.value)
        self.handles[handle.value].workspace = weakref.ref(memory)
        return 0

    def cublasSetMathMode(self, handle: Any, mode: Any) -> int:  # noqa: N802
        assert mode.value in (0, 3, 4)
        self.modes.append(mode.value)
        self._mode_of[handle.value] = mode.value
        return 0

    def cublasGetVersion_v2(self, handle: Any, number: Any) -> int:  # noqa: N802
        assert handle.value in self.handles
        number._obj.value = self.version
        return 0

    def cublasSsyrk_v2(self, handle: Any, *arguments: Any) -> int:  # noqa: N802
        return self._multiply_itself("float32", ctypes.c_float, handle, *arguments)

    def cublasDsyrk_v2(self, handle: Any, *arguments: Any) -> int:  # noqa: N802
        return self._multiply_itself("float64", ctypes.c_double, handle, *arguments)

    def _multiply_itself(self, dtype: str, real: type, handle: Any, *arguments: Any) -> int:
        """Write one triangle of op(A) op(A)ᵀ; the other one keeps what it was."""
        scalars, matrix = {4: real, 7: real}, (ctypes.c_void_p, ctypes.c_int)
        types = (*(ctypes.c_int,) * 4, None, *matrix, None, *matrix)
        values = []
        for position, (argument, kind) in enumerate(zip(arguments, types, strict=True)):
            value = argument._obj if position in scalars else argument
            assert isinstance(value, scalars.get(position, kind)), position
            values.append(value.value)
        lower, transposed, n, k, alpha, a, lda, beta, c, ldc = values
        assert (lower, alpha, beta) == (0, 1, 0)
        kind = np.dtype(dtype)
        source, a_memory = _matrices("A", a, (k, n) if transposed else (n, k), lda, 0, 1, kind)
        target, c_memory = _matrices("C", c, (n, n), ldc, 0, 1, kind)
        left = source[0].T if transposed else source[0]
        workspace, mode = self._workspace(handle), self._mode_of.get(handle.value, 0)

        def run() -> None:
            rounded = as_tf32(left) if mode == 3 and dtype == "float32" else left
            written = np.tril_indices(n)
            target[0][written] = (rounded @ rounded.T)[written]

        counted = partial(machine.count, "products")
        submit(run, counted, reads=[a_memory], writes=[c_memory, workspace])
        return 0

    def _workspace(self, handle: Any) -> Allocation:
        """Return the workspace of a handle, which must belong to the current stream."""
        own = self.handles[handle.value]
        if own.stream is None or own.stream() is not get_current_stream():
            raise CUBLASError("the stream of the handle is not the current one, or is gone")
        workspace = own.workspace() if own.workspace is not None else None
        if workspace is None:
            raise CUBLASError("the handle has no workspace, or it was freed")
        return workspace

    def cublasSgemmStridedBatched(self, handle: Any, *arguments: Any) -> int:  # noqa: N802
        return self._multiply("float32", ctypes.c_float, handle, *arguments)

    def cublasDgemmStridedBatched(self, handle: Any, *arguments: Any) -> int:  # noqa: N802
        return self._multiply("float64", ctypes.c_double, handle, *arguments)

    def _multiply(self, dtype: str, real: type, handle: Any, *arguments: Any) -> int:
        scalars = {5: real, 12: real}  # alpha and beta are passed by reference
        whole = (ctypes.c_int,) * 5 + (None, ctypes.c_void_p, ctypes.c_int, ctypes.c_longlong)
        types = (*whole, *whole[6:], None, *whole[6:], ctypes.c_int)
        values = []
        for position, (argument, kind) in enumerate(zip(arguments, types, strict=True)):
            value = argument._obj if position in scalars else argument
            assert isinstance(value, scalars.get(position, kind)), position
            values.append(value.value)
        workspace = self._workspace(handle)
        gemm_strided_batched(0, *values, dtype, workspace, self._mode_of.get(handle.value, 0))
        return 0
