"""cuBLAS through ctypes: one function, ``gemm``, on row-major stacks.

CuPy's own wrappers refuse to run while a stream is captured into a CUDA graph. cuBLAS itself allows it if its
workspace is set beforehand and alpha and beta are on the host. So this module calls cuBLAS with its own
handles, which leaves the stream, workspace and math mode of CuPy's handles unchanged.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

_NO_TRANSPOSE, _TRANSPOSE = 0, 1
_DEFAULT_MATH, _TF32_MATH = 0, 3
_WORKSPACE_BYTES = 32 * 2**20
"""The recommendation of cuBLAS for the newest devices; older ones need 4 MB."""


class CublasError(RuntimeError):
    """cuBLAS returned a status other than success."""


class _Local(threading.local):
    tf32: bool = False

    def __init__(self) -> None:
        self.handles: dict[int, _Handle] = {}


_local = _Local()


@contextmanager
def precision(name: str | None) -> Iterator[None]:
    """Use TF32 tensor cores for float32 products (``"tf32"``) or not (None), inside a ``with`` block."""
    before = _local.tf32
    _local.tf32 = name == "tf32"
    try:
        yield
    finally:
        _local.tf32 = before


@cache
def _library() -> ctypes.CDLL:
    """Return the cuBLAS that CuPy uses, loaded into this process."""
    import cupy

    major = cupy.cuda.runtime.runtimeGetVersion() // 1000
    names = {"win32": [f"cublas64_{major}.dll"]}.get(sys.platform, [f"libcublas.so.{major}", "libcublas.so"])
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        names.insert(0, load_nvidia_dynamic_lib("cublas").abs_path)
    except (ImportError, RuntimeError, AttributeError):
        pass  # an older CuPy, or a system installation: the loader finds the library by its name
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise CublasError(f"cuBLAS was not found; tried {', '.join(names)}")


def _check(status: int, call: str) -> None:
    if status != 0:
        raise CublasError(f"{call} failed with status {status} of cuBLAS")


class _Handle:
    """A cuBLAS handle for one device and one Python thread, with its own workspace."""

    def __init__(self) -> None:
        import cupy

        self._library = _library()
        self._pointer = ctypes.c_void_p()
        _check(self._library.cublasCreate_v2(ctypes.byref(self._pointer)), "cublasCreate")
        self._workspace = cupy.empty(_WORKSPACE_BYTES, dtype=cupy.uint8)
        self._state: tuple[int, int] | None = None

    def multiply(self, double: bool, stream: int, arguments: tuple[Any, ...]) -> None:
        """Queue one ``gemmStridedBatched`` on a stream."""
        mode = _TF32_MATH if _local.tf32 and not double else _DEFAULT_MATH
        # Set only what changed: during a capture nothing but the product itself should be called.
        if self._state != (stream, mode):
            self._set(stream, mode)
        name = "cublasDgemmStridedBatched" if double else "cublasSgemmStridedBatched"
        _check(getattr(self._library, name)(self._pointer, *arguments), name)

    def _set(self, stream: int, mode: int) -> None:
        library, handle = self._library, self._pointer
        self._state = None
        _check(library.cublasSetStream_v2(handle, ctypes.c_void_p(stream)), "cublasSetStream")
        # Setting the stream resets the workspace to cuBLAS's own pool.
        workspace = ctypes.c_void_p(self._workspace.data.ptr), ctypes.c_size_t(_WORKSPACE_BYTES)
        _check(library.cublasSetWorkspace_v2(handle, *workspace), "cublasSetWorkspace")
        _check(library.cublasSetMathMode(handle, ctypes.c_int(mode)), "cublasSetMathMode")
        self._state = (stream, mode)


def gemm_strided_batched(
    transa: int,
    transb: int,
    m: int,
    n: int,
    k: int,
    alpha: float,
    a: int,
    lda: int,
    stride_a: int,
    b: int,
    ldb: int,
    stride_b: int,
    beta: float,
    c: int,
    ldc: int,
    stride_c: int,
    batch: int,
    dtype: Any,
) -> None:
    """Queue C ← alpha · op(A) op(B) + beta · C, column-major, on the current stream and device."""
    import cupy

    double = dtype == "float64"
    scalar = ctypes.c_double if double else ctypes.c_float
    whole, step, address = ctypes.c_int, ctypes.c_longlong, ctypes.c_void_p
    device = cupy.cuda.runtime.getDevice()
    handle = _local.handles.get(device)
    if handle is None:
        handle = _local.handles[device] = _Handle()
    handle.multiply(
        double,
        cupy.cuda.get_current_stream().ptr,
        (
            *map(whole, (transa, transb, m, n, k)),
            ctypes.byref(scalar(alpha)),
            *(address(a), whole(lda), step(stride_a)),
            *(address(b), whole(ldb), step(stride_b)),
            ctypes.byref(scalar(beta)),
            *(address(c), whole(ldc), step(stride_c)),
            whole(batch),
        ),
    )


def gemm(
    c: Any, a: Any, transpose_a: bool, b: Any, transpose_b: bool, alpha: float = 1.0, beta: float = 0.0
) -> None:
    """C ← alpha · op(A) op(B) + beta · C for C-contiguous stacks (batch, rows, columns).

    A row-major matrix is its transpose in column-major order, and Cᵀ = op(B)ᵀ op(A)ᵀ, so the operands swap.
    An operand with one matrix is used for the whole stack.
    """
    batch, m, n = c.shape
    k = a.shape[1] if transpose_a else a.shape[2]
    gemm_strided_batched(
        _TRANSPOSE if transpose_b else _NO_TRANSPOSE,
        _TRANSPOSE if transpose_a else _NO_TRANSPOSE,
        n,
        m,
        k,
        alpha,
        b.data.ptr,
        b.shape[2],
        _stride(b),
        a.data.ptr,
        a.shape[2],
        _stride(a),
        beta,
        c.data.ptr,
        n,
        m * n,
        batch,
        str(c.dtype),
    )


def _stride(stack: Any) -> int:
    return int(stack.shape[1] * stack.shape[2]) if stack.shape[0] > 1 else 0
