"""The function of cuBLAS that airnp calls, on raw addresses, as ``cublas<t>gemmStridedBatched`` has it."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cupy_double.memory import Allocation, pool_of
from tests.cupy_double.state import machine
from tests.cupy_double.streams import submit

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
            product = kind.type(alpha) * (left @ right)
            # With beta = 0, what C held before is not read, be it NaN.
            c[...] = product if beta == 0 else product + kind.type(beta) * c

    submit(run, lambda: machine.count("products"), reads=[a_memory, b_memory], writes=[c_memory])


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
