"""CUDA kernels compiled by g++ and run on the CPU, every CUDA thread a fiber, called as CuPy's are.

Modes: ``"fast"``; ``"fma"``, with multiplications and additions contracted as on a GPU; ``"asan"``, under
AddressSanitizer and UBSan, on copies in a child process; ``"tsan"``, under a race detector that knows the
rules of CUDA.

What a text may use is in ``cpp/cuda.h`` and the files that it includes. Not supported: dynamic shared memory,
inline PTX, cooperative groups, ``__threadfence_block``, floating-point atomics, threads that spin until
another block has done something, lanes of one warp in two different ``*_sync`` at once.
"""

from .arguments import AddressTable
from .errors import ArgumentError, CompileError, KernelError, LaunchError, SanitizerError
from .module import RawKernel, RawModule
from .sanitized import Launch, sanitized, sanitized_many

__all__ = [
    "AddressTable",
    "ArgumentError",
    "CompileError",
    "KernelError",
    "Launch",
    "LaunchError",
    "RawKernel",
    "RawModule",
    "SanitizerError",
    "sanitized",
    "sanitized_many",
]
