"""Check and describe the CUDA devices that CuPy can use, and load NVIDIA's libraries in CuPy's version."""

from __future__ import annotations

import ctypes
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any

_GROUPS = Path("/sys/fs/cgroup")

INSTALL_CUPY = 'pip install "airnp[cuda12x]" or "airnp[cuda13x]"'

_OLDEST_CUDA = 12
_OLDEST_DEVICE = 7.0
"""Compute capability of Volta (2017), the oldest that the kernels are compiled and tested for."""


def check_device(device: Any = None) -> None:
    """Raise a RuntimeError that says what is missing if a CUDA device cannot be used.

    Parameters
    ----------
    device : int or cupy.cuda.Device, optional
        Default: the current device.
    """
    import cupy

    runtime = cupy.cuda.runtime
    try:
        count = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        raise RuntimeError(f"xp: CuPy {cupy.__version__} cannot use a device: {first_line(error)}") from None
    if count == 0:
        raise RuntimeError(f"xp: CuPy {cupy.__version__} finds no CUDA device")
    version = runtime.runtimeGetVersion()
    if version < 1000 * _OLDEST_CUDA:
        raise RuntimeError(f"xp: expected CUDA {_OLDEST_CUDA} or newer, CuPy has {_cuda_version(version)}")
    chosen = runtime.getDevice() if device is None else int(getattr(device, "id", device))
    if not 0 <= chosen < count:
        raise ValueError(f"device: expected one of 0 to {count - 1}, got {chosen}")
    properties = runtime.getDeviceProperties(chosen)
    capability = properties["major"] + properties["minor"] / 10
    if capability < _OLDEST_DEVICE:
        raise RuntimeError(
            f"device: {_name(properties)} has compute capability {capability}, "
            f"{_OLDEST_DEVICE} or newer is needed; engine='reference' may still work"
        )


def describe() -> str:
    """Return one line about CuPy and its devices, or about what is missing."""
    try:
        import cupy
    except ModuleNotFoundError:
        return f"not installed: {INSTALL_CUPY}"
    try:
        check_device()
    except RuntimeError as error:
        return f"{cupy.__version__}, no usable device: {str(error).removeprefix('xp: ')}"
    runtime = cupy.cuda.runtime
    devices = []
    for number in range(runtime.getDeviceCount()):
        properties = runtime.getDeviceProperties(number)
        size = properties["totalGlobalMem"] / 2**30
        devices.append(f"{_name(properties)} ({size:.0f} GiB, sm_{properties['major']}{properties['minor']})")
    return f"{cupy.__version__}, CUDA {_cuda_version(runtime.runtimeGetVersion())}: {', '.join(devices)}"


def _name(properties: dict[str, Any]) -> str:
    name = properties["name"]
    return name.decode() if isinstance(name, bytes) else str(name)


def _cuda_version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its type if the message is empty."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def available_memory() -> int:
    """Return how many bytes this process may still get, as far as the system tells; else 8 GiB.

    The least of what the machine has, what the control group of the process may have (a container, a job of
    a cluster), and what ``ulimit -v`` leaves.
    """
    return max(0, min([_free_of_machine(), *_free_of_groups(), *_free_of_process()]))


def _free_of_process() -> Iterator[int]:
    """Yield what is left of the address space, if it is limited."""
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except (ImportError, OSError, ValueError, IndexError):
        return
    if limit != resource.RLIM_INFINITY:
        yield limit - pages * resource.getpagesize()


def _free_of_groups() -> Iterator[int]:
    """Yield what is left to each control group that the process is in, in version 2 and 1 of them."""
    try:
        groups = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in groups:
        number, controllers, place = line.split(":", 2)
        if number == "0":
            root, most, used, cache = "", "memory.max", "memory.current", "inactive_file"
        elif "memory" in controllers.split(","):
            root, most, used = "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
            cache = "total_inactive_file"
        else:
            continue
        top = _GROUPS / root
        inner = top / place.lstrip("/")
        for folder in [inner, *inner.parents]:
            try:
                limit, usage = (int((folder / name).read_text(encoding="ascii")) for name in (most, used))
                words = (folder / "memory.stat").read_text(encoding="ascii").split()
            except (OSError, ValueError):  # no such file, or "max"
                pass
            else:
                # Files that nobody has touched lately are dropped when memory is asked for.
                yield limit - usage + int(words[words.index(cache) + 1] if cache in words else 0)
            if folder == top:
                break


def _free_of_machine() -> int:
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            fields = dict(line.split(":", 1) for line in file)
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 8 * 2**30


def device_memory(device: Any = None) -> int:
    """Return how many bytes of a CUDA device, by default the current one, can be had."""
    import cupy

    check_device(device)
    number = getattr(device, "id", device)
    with nullcontext() if number is None else cupy.cuda.Device(number):
        # Blocks that CuPy's pool keeps for the next array are free, too.
        return int(cupy.cuda.runtime.memGetInfo()[0]) + int(cupy.get_default_memory_pool().free_bytes())


_SLOW_DOUBLE = 16
"""How many times faster than float64 float32 has to be for a warning; on compute cards it is twice."""


@cache
def warn_of_slow_double(device: int) -> None:
    """Warn, once for each device, that its float64 is far slower than its float32."""
    import cupy

    ratio = cupy.cuda.Device(device).attributes.get("SingleToDoublePrecisionPerfRatio", 1)
    if ratio >= _SLOW_DOUBLE:
        name = _name(cupy.cuda.runtime.getDeviceProperties(device))
        warnings.warn(
            f"this fit is in float64, which {name} computes at 1/{ratio} of the speed of float32; "
            "dtype='float32' avoids that",
            RuntimeWarning,
            stacklevel=2,
        )


_WHEELS = {"cublas": "cublas", "nvrtc": "cuda_nvrtc"}
"""The folder of each library in ``nvidia``, as wheels for CUDA 12 install it; CUDA 13 has one for all."""


def load_library(name: str) -> ctypes.CDLL:
    """Return a library of NVIDIA, loaded into this process, in the major version of CuPy's CUDA.

    Several versions may be installed: PyTorch brings its own. A library of another version is not taken.

    Parameters
    ----------
    name : {"cublas", "nvrtc"}

    Raises
    ------
    OSError
        If there is none; the message lists what was tried.
    """
    import cupy

    major = cupy.cuda.runtime.runtimeGetVersion() // 1000
    file = f"lib{name}.so.{major}"
    if sys.platform == "win32":
        file = {"cublas": f"cublas64_{major}.dll", "nvrtc": f"nvrtc64_{major}0_0.dll"}[name]
    tried = []
    for candidate in _candidates(name, file, major):
        tried.append(candidate)
        try:
            return ctypes.CDLL(candidate)
        except OSError:
            continue
    raise OSError(f"{name} of CUDA {major} was not found; tried {', '.join(tried)}")


def _candidates(name: str, file: str, major: int) -> Iterator[str]:
    """Yield paths in NVIDIA's wheels, what cuda-pathfinder finds, and the name for the system's loader."""
    ends = ("bin/x86_64", "bin") if sys.platform == "win32" else ("lib",)
    for root in sys.path:
        for wheel in (f"cu{major}", _WHEELS[name]):
            for end in ends:
                path = Path(root, "nvidia", wheel, end, file)
                if path.is_file():
                    yield str(path)
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        found = load_nvidia_dynamic_lib(name).abs_path
    except (ImportError, RuntimeError, AttributeError):
        found = None  # no pathfinder, or nothing that it knows: the loader may
    if found is not None and f"{Path(found).name}.".startswith(f"{file}."):
        yield str(found)
    yield file
