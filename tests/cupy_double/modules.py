"""The double as modules that look like ``cupy`` and ``cupyx``."""

from __future__ import annotations

from functools import cache
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import numpy as np

from tests.cupy_double import functions
from tests.cupy_double.array import array_functions, ndarray
from tests.cupy_double.functions import unmodelled
from tests.cupy_double.memory import MemoryPointer, OutOfMemoryError, pool_of
from tests.cupy_double.raw import RawKernel, RawModule
from tests.cupy_double.sparse import csr_matrix, issparse
from tests.cupy_double.state import CUDARuntimeError, Device, machine, memory_info, synchronize_device
from tests.cupy_double.streams import Event, Graph, Stream, get_current_stream

_NUMPY_NAMES = (
    *("bool_", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "intp"),
    *("float16", "float32", "float64", "complex64", "complex128"),
    *("signedinteger", "unsignedinteger", "integer", "floating", "complexfloating", "number"),
    *("dtype", "issubdtype", "finfo", "iinfo", "inf", "nan", "newaxis"),
)
"""What CuPy takes from NumPy as it is."""

_NAMED_BY_COMPAT = (
    *("arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh"),
    *("left_shift", "right_shift", "invert", "power"),
)
"""What array_api_compat.cupy names when it is imported, although airnp never calls it."""


def getDeviceCount() -> int:  # noqa: N802
    machine.check()
    return machine.settings.devices


def getDevice() -> int:  # noqa: N802
    return machine.device()


def getDeviceProperties(device: int) -> dict[str, Any]:  # noqa: N802
    Device(device)  # raises if there is none
    major, minor = machine.settings.compute_capability
    return {
        "name": b"Pretended GPU",
        "totalGlobalMem": machine.settings.memory,
        "sharedMemPerBlock": 48 * 1024,
        "warpSize": 32,
        "maxThreadsPerBlock": 1024,
        "maxGridSize": (2**31 - 1, 65535, 65535),
        "major": major,
        "minor": minor,
        "multiProcessorCount": 108,
    }


def memGetInfo() -> tuple[int, int]:  # noqa: N802
    return memory_info()


def driverGetVersion() -> int:  # noqa: N802
    """Return the driver's version, which can be asked for without a device; 0 where there is no driver."""
    return machine.settings.driver_version


def runtimeGetVersion() -> int:  # noqa: N802
    return machine.settings.runtime_version


def deviceSynchronize() -> None:  # noqa: N802
    synchronize_device(machine.device())


class MemoryPool:
    """CuPy's pool of memory, of the current device."""

    def free_bytes(self) -> int:
        return int(pool_of(machine.device()).cached)

    def used_bytes(self) -> int:
        return int(pool_of(machine.device()).used)

    def total_bytes(self) -> int:
        return self.used_bytes() + self.free_bytes()

    def free_all_blocks(self, stream: Any = None) -> None:
        if stream is not None:
            raise NotImplementedError("the double frees the blocks of all streams or of none")
        pool_of(machine.device()).free_all()


def get_default_memory_pool() -> MemoryPool:
    return MemoryPool()


def _module(name: str, contents: dict[str, Any]) -> ModuleType:
    module = ModuleType(name, "A strict stand-in for tests.")
    module.__spec__ = ModuleSpec(name, None)
    module.__path__ = []  # a package without files: what the double has not cannot be found elsewhere
    vars(module).update(contents)
    return module


@cache
def build() -> dict[str, ModuleType]:
    """Return all modules by name; always the same, so that their classes can be recognised."""
    runtime_functions = (
        *(getDeviceCount, getDevice, getDeviceProperties, memGetInfo),
        *(driverGetVersion, runtimeGetVersion, deviceSynchronize),
    )
    runtime = _module(
        "cupy.cuda.runtime",
        {"CUDARuntimeError": CUDARuntimeError, **{item.__name__: item for item in runtime_functions}},
    )
    memory = _module(
        "cupy.cuda.memory", {"OutOfMemoryError": OutOfMemoryError, "MemoryPointer": MemoryPointer}
    )
    device = _module("cupy.cuda.device", {"Device": Device})
    cuda = _module(
        "cupy.cuda",
        {
            "Device": Device,
            "Stream": Stream,
            "Graph": Graph,
            "Event": Event,
            "MemoryPointer": MemoryPointer,
            "get_current_stream": get_current_stream,
            "runtime": runtime,
            "memory": memory,
            "device": device,
        },
    )
    linalg = _module("cupy.linalg", {"lstsq": unmodelled("linalg.lstsq")})
    fft = _module("cupy.fft", {})
    own = {name: getattr(functions, name) for name in functions.__all__}
    array_functions.update(own)
    cupy = _module(
        "cupy",
        {
            "__version__": "14.2.0",
            "ndarray": ndarray,
            "RawModule": RawModule,
            "RawKernel": RawKernel,
            "get_default_memory_pool": get_default_memory_pool,
            "cuda": cuda,
            "linalg": linalg,
            "fft": fft,
            **{name: getattr(np, name) for name in _NUMPY_NAMES},
            **{name: unmodelled(name) for name in _NAMED_BY_COMPAT},
            **own,
        },
    )
    sparse = _module("cupyx.scipy.sparse", {"csr_matrix": csr_matrix, "issparse": issparse})
    scipy = _module("cupyx.scipy", {"sparse": sparse})
    cupyx = _module("cupyx", {"scipy": scipy})
    modules = (cupy, cuda, runtime, memory, device, linalg, fft, cupyx, scipy, sparse)
    return {module.__name__: module for module in modules}
