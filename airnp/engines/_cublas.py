"""cuBLAS through ctypes: ``gemm`` on row-major stacks, ``syrk`` on a matrix; and the streams of a fit.

CuPy's own wrappers refuse to run while a stream is captured into a CUDA graph. cuBLAS itself allows it if its
workspace is set beforehand and alpha and beta are on the host. So this module calls cuBLAS with its own
handles, which leaves the stream, workspace and math mode of CuPy's handles unchanged.

Every Python thread has one lane for each device: two streams, on which the branches of a graph are captured,
with a handle each. A thread that ends gives its lanes
back to a pool of the process, and the next thread takes them: CuPy keeps freed memory for each stream, and
cuBLAS keeps memory for each handle.
"""

from __future__ import annotations

import ctypes
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from airnp._arrays import Array
from airnp._devices import load_library

_NO_TRANSPOSE, _TRANSPOSE = 0, 1
_LOWER = 0
_DEFAULT_MATH = 0
_MATH = {None: _DEFAULT_MATH, "tf32": 3, "tf32x3": 3, "bf16x9": 4}
"""Modes of cuBLAS for products of float32."""

_CAPABILITIES = {"tf32": (80, 1000), "tf32x3": (80, 1000), "bf16x9": (100, 103)}
"""The first and the last compute capability with units for a precision, times ten."""

_BF16X9_VERSION = 120900
_WORKSPACE_BYTES = 32 * 2**20
"""The recommendation of cuBLAS for the newest devices; older ones need 4 MB."""

_MOST_IDLE = 8
"""Lanes of a device that the pool keeps; the handles of further ones are destroyed."""


class CublasError(RuntimeError):
    """cuBLAS returned a status other than success."""


@cache
def _library() -> ctypes.CDLL:
    """Return cuBLAS in the version of CuPy's CUDA, loaded into this process."""
    try:
        return load_library("cublas")
    except OSError as error:
        raise CublasError(str(error)) from None


def _check(status: int, call: str) -> None:
    if status != 0:
        raise CublasError(f"{call} failed with status {status} of cuBLAS")


def workspace() -> Array:
    """Return memory for cuBLAS. A graph of captured products contains its address and has to own it."""
    import cupy

    return cupy.empty(_WORKSPACE_BYTES, dtype=cupy.uint8)


class Handle:
    """A cuBLAS handle of the current device."""

    def __init__(self) -> None:
        self._library = _library()
        self._pointer = ctypes.c_void_p()
        _check(self._library.cublasCreate_v2(ctypes.byref(self._pointer)), "cublasCreate")
        self._mode: int | None = None
        self._loose: dict[int, Array] = {}

    def destroy(self) -> None:
        """Give the handle back to cuBLAS; it is of no use any more."""
        self._library.cublasDestroy_v2(self._pointer)

    def bind(self, stream: int, memory: Array) -> None:
        """Let products go to a stream, with memory to work in."""
        library, handle = self._library, self._pointer
        _check(library.cublasSetStream_v2(handle, ctypes.c_void_p(stream)), "cublasSetStream")
        # Setting the stream resets the workspace to cuBLAS's own pool.
        size = ctypes.c_size_t(memory.nbytes)
        status = library.cublasSetWorkspace_v2(handle, ctypes.c_void_p(memory.data.ptr), size)
        _check(status, "cublasSetWorkspace")

    def bind_loose(self, stream: int) -> None:
        """Let a product outside of a session go to a stream, with memory that the handle keeps for it."""
        if stream not in self._loose:
            self._loose[stream] = workspace()
        self.bind(stream, self._loose[stream])

    def version(self) -> int:
        """Return the version of cuBLAS, such as 120900."""
        number = ctypes.c_int()
        _check(self._library.cublasGetVersion_v2(self._pointer, ctypes.byref(number)), "cublasGetVersion")
        return number.value

    def queue(self, routine: str, double: bool, precision: str | None, arguments: tuple[Any, ...]) -> None:
        """Queue a product: ``routine`` is the name of cuBLAS behind its letter for the type."""
        mode = _DEFAULT_MATH if double else _MATH[precision]
        if mode != self._mode:
            self._mode = None
            _check(self._library.cublasSetMathMode(self._pointer, ctypes.c_int(mode)), "cublasSetMathMode")
            self._mode = mode
        name = f"cublas{'D' if double else 'S'}{routine}"
        _check(getattr(self._library, name)(self._pointer, *arguments), name)

    def forget_loose(self) -> None:
        """Free the memory of products outside of sessions."""
        self._loose = {}


_BRANCHES = 2
"""Of an iteration: one for the rows, one for the columns."""


class Lane:
    """Streams of the current device that run beside all others, and a cuBLAS handle for each of them."""

    def __init__(self) -> None:
        import cupy

        self.streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(_BRANCHES)]
        self.handles = [Handle() for _ in range(_BRANCHES)]

    def destroy(self) -> None:
        """Give the handles back to cuBLAS; the lane is of no use any more."""
        for handle in self.handles:
            handle.destroy()


_idle: dict[int, list[Lane]] = defaultdict(list)
_idle_lock = threading.Lock()


class _Lease:
    """A lane for as long as a thread lives."""

    def __init__(self, device: int) -> None:
        self._device, self._idle = device, _idle[device]
        with _idle_lock:
            found = self._idle.pop() if self._idle else None
        self.lane = Lane() if found is None else found

    def __del__(self) -> None:
        if not hasattr(self, "lane"):
            return
        self.lane.handles[0].forget_loose()
        with _idle_lock:
            keep = len(self._idle) < _MOST_IDLE
            if keep:
                self._idle.append(self.lane)
        if not keep:
            self.lane.destroy()


class _Local(threading.local):
    precision: str | None = None

    def __init__(self) -> None:
        self.session: dict[int, Handle] = {}
        self.leases: dict[int, _Lease] = {}


_local = _Local()


def lane() -> Lane:
    """Return this thread's lane of the current device."""
    import cupy

    device = cupy.cuda.runtime.getDevice()
    if device not in _local.leases:
        _local.leases[device] = _Lease(device)
    return _local.leases[device].lane


@contextmanager
def session(precision: str | None, workspaces: Sequence[Array]) -> Iterator[None]:
    """Let products of a ``with`` block go to those streams of this thread's lane that are current then.

    Streams are set when the block begins: the address of one that is gone may belong to another one now.

    Parameters
    ----------
    precision : {"tf32", "tf32x3", "bf16x9"} or None
        The units for float32 products; the caller of "tf32x3" splits the operands.
    workspaces : sequence of arrays
        From :func:`workspace`, one for each stream of the lane.
    """
    before, own = (_local.session, _local.precision), lane()
    _check_precision(precision, own.handles[0])
    found: dict[int, Handle] = {}
    try:
        for stream, handle, memory in zip(own.streams, own.handles, workspaces, strict=True):
            handle.bind(stream.ptr, memory)
            found[stream.ptr] = handle
        _local.session, _local.precision = found, precision
        yield
    finally:
        _local.session, _local.precision = before


def _check_precision(precision: str | None, handle: Handle) -> None:
    """Raise if the current device or cuBLAS has no units for a precision."""
    import cupy

    if precision is None:
        return
    first, last = _CAPABILITIES[precision]
    capability = int(cupy.cuda.Device().compute_capability)
    if not first <= capability <= last:
        range_ = f"{first / 10}" + (" or newer" if last == 1000 else f" to {last / 10}")
        raise ValueError(
            f"precision: {precision!r} needs a device of compute capability {range_}, this one has "
            f"{capability / 10}"
        )
    if precision == "bf16x9" and handle.version() < _BF16X9_VERSION:
        raise ValueError(f"precision: 'bf16x9' needs cuBLAS 12.9 or newer, found {handle.version()}")


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
    double = dtype == "float64"
    scalar = ctypes.c_double if double else ctypes.c_float
    whole, step, address = ctypes.c_int, ctypes.c_longlong, ctypes.c_void_p
    _current_handle().queue(
        "gemmStridedBatched",
        double,
        _local.precision,
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


def _current_handle() -> Handle:
    """Return the handle whose products go to the current stream."""
    import cupy

    stream = cupy.cuda.get_current_stream().ptr
    if _local.session:  # a stream of the user's gets the first one's
        chosen = _local.session.get(stream) or next(iter(_local.session.values()))
    else:
        chosen = lane().handles[0]
        chosen.bind_loose(stream)
    return chosen


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


def syrk(c: Any, a: Any, columns: bool) -> None:
    """Write a aᵀ, or aᵀ a of the columns, above and on the diagonal of c; both are C-contiguous matrices.

    What cuBLAS, in column-major order, takes for the lower triangle is the upper one of a row-major matrix.
    """
    double = str(c.dtype) == "float64"
    scalar = ctypes.c_double if double else ctypes.c_float
    whole, address = ctypes.c_int, ctypes.c_void_p
    rows, width = a.shape
    sizes = (width, rows) if columns else (rows, width)
    arguments = (
        *map(whole, (_LOWER, _NO_TRANSPOSE if columns else _TRANSPOSE, *sizes)),
        *(ctypes.byref(scalar(1)), address(a.data.ptr), whole(width)),
        *(ctypes.byref(scalar(0)), address(c.data.ptr), whole(sizes[0])),
    )
    _current_handle().queue("syrk_v2", double, _local.precision, arguments)


def _stride(stack: Any) -> int:
    return int(stack.shape[1] * stack.shape[2]) if stack.shape[0] > 1 else 0
