"""BLAS from inside numba: ``gemm`` and ``syrk`` by address, on row-major matrices.

The routines are those of the library that NumPy itself uses if it can be found, else SciPy's, which publishes
their addresses. Compiled kernels receive addresses as integer arguments, because an address differs between
processes and the kernels are cached on disk.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


@cache
def address(routine: str, dtype: np.dtype[Any]) -> int:
    """Return the address of ``"gemm"`` or ``"syrk"`` for float32 or float64."""
    name = ("s" if dtype == np.float32 else "d") + routine
    return _of_numpy(name) or _of_scipy(name)


def _of_numpy(name: str) -> int | None:
    """Return the address in the OpenBLAS of NumPy's wheels, or None if NumPy has another BLAS."""
    from threadpoolctl import threadpool_info

    for library in threadpool_info():
        if library["internal_api"] == "openblas" and "numpy.libs" in library["filepath"]:
            symbol = getattr(ctypes.CDLL(library["filepath"]), f"scipy_{name}_64_", None)
            if symbol is not None:
                return ctypes.cast(symbol, ctypes.c_void_p).value
    return None


def _of_scipy(routine: str) -> int:
    from scipy.linalg import cython_blas

    capsule = cython_blas.__pyx_capi__[routine]
    name = ctypes.pythonapi.PyCapsule_GetName
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return int(pointer(capsule, name(capsule)))


def _call_fortran(builder: Any, routine: Any, arguments: list[Any]) -> None:
    """Emit a call of the routine at an address; Fortran takes a pointer to every argument."""
    function_type = ir.FunctionType(ir.VoidType(), [argument.type for argument in arguments])
    builder.call(builder.inttoptr(routine, function_type.as_pointer()), arguments)


def _by_reference(builder: Any, value: Any) -> Any:
    # 64-bit integers also serve a library of 32-bit integers: it reads the lower half, which comes first.
    return cgutils.alloca_once_value(builder, value)


def _character(builder: Any, transposed: Any, yes: str, no: str) -> Any:
    byte = ir.IntType(8)
    return _by_reference(builder, builder.select(transposed, byte(ord(yes)), byte(ord(no))))


def _matrix(builder: Any, location: Any, scalar: Any) -> Any:
    return builder.inttoptr(location, scalar.type.as_pointer())


@intrinsic
def gemm(typingctx, routine, transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):
    """C ← alpha · op(A) op(B) + beta · C for row-major matrices at addresses a, b, c.

    A row-major matrix is its transpose in column-major order, and Cᵀ = op(B)ᵀ op(A)ᵀ, so the operands swap.
    """
    whole, flag = types.int64, types.boolean
    signature = types.void(
        whole, flag, flag, whole, whole, whole, alpha, whole, whole, whole, whole, alpha, whole, whole
    )

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        routine, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc = args
        arguments = [
            _character(builder, tb, "T", "N"),
            _character(builder, ta, "T", "N"),
            _by_reference(builder, n),
            _by_reference(builder, m),
            _by_reference(builder, k),
            _by_reference(builder, alpha),
            _matrix(builder, b, alpha),
            _by_reference(builder, ldb),
            _matrix(builder, a, alpha),
            _by_reference(builder, lda),
            _by_reference(builder, beta),
            _matrix(builder, c, alpha),
            _by_reference(builder, ldc),
        ]
        _call_fortran(builder, routine, arguments)
        return context.get_dummy_value()

    return signature, emit


@intrinsic
def syrk(typingctx, routine, transpose, n, k, alpha, a, lda, beta, c, ldc):
    """Lower triangle of C ← alpha · op(A) op(A)ᵀ + beta · C for row-major matrices at addresses a, c."""
    whole, flag = types.int64, types.boolean
    signature = types.void(whole, flag, whole, whole, alpha, whole, whole, alpha, whole, whole)

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        routine, transpose, n, k, alpha, a, lda, beta, c, ldc = args
        upper = _by_reference(builder, ir.IntType(8)(ord("U")))  # column-major upper is row-major lower
        arguments = [
            upper,
            _character(builder, transpose, "N", "T"),
            _by_reference(builder, n),
            _by_reference(builder, k),
            _by_reference(builder, alpha),
            _matrix(builder, a, alpha),
            _by_reference(builder, lda),
            _by_reference(builder, beta),
            _matrix(builder, c, alpha),
            _by_reference(builder, ldc),
        ]
        _call_fortran(builder, routine, arguments)
        return context.get_dummy_value()

    return signature, emit
