"""CUDA kernels: their sources, their compilation, checked launches, and recordings of launches."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from airnp._arrays import Array

THREADS = 256
"""Threads of a block, in every kernel."""

_REAL = {"float32": "float", "float64": "double"}
_DTYPES = {
    "float": "float32",
    "double": "float64",
    "int": "int32",
    "long long": "int64",
    "unsigned": "uint32",
}


class _Parameter(NamedTuple):
    """One parameter of a kernel: its C++ type without qualifiers, and whether it points to an array."""

    type: str
    is_pointer: bool
    name: str


class _Local(threading.local):
    calls: list[tuple[Callable[..., Any], tuple[Any, ...]]] | None = None


_local = _Local()


class Recording:
    """Notes every call while it is active, so that the same work can be queued again."""

    def __init__(self) -> None:
        self.calls: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []

    def __enter__(self) -> Recording:
        _local.calls = self.calls
        return self

    def __exit__(self, *exception: object) -> None:
        _local.calls = None

    def replay(self) -> None:
        """Make all calls again, in order, on the same arrays."""
        for function, arguments in self.calls:
            function(*arguments)


def call(function: Callable[..., Any], *arguments: Any) -> None:
    """Call something that queues work on the device, and note it if an iteration is being recorded."""
    if _local.calls is not None:
        _local.calls.append((function, arguments))
    function(*arguments)


def launch(
    module: str, kernel: str, variant: tuple[Any, ...], grid: tuple[int, ...], *arguments: Any
) -> None:
    """Queue one kernel.

    Parameters
    ----------
    module, kernel : str
        The file in ``kernels/`` without its ending, and a kernel in it.
    variant : tuple
        Template arguments: a dtype first, then C++ types as str, numbers or booleans.
    grid : tuple of int
        Blocks, of 256 threads each.
    *arguments : arrays, numbers or None
        In the order of the kernel's parameters; None is a null pointer.
    """
    real = _REAL[str(variant[0])]
    names = [real, *(_template_argument(argument) for argument in variant[1:])]
    import cupy

    device = cupy.cuda.runtime.getDevice()
    function = _function(f"{kernel}<{', '.join(names)}>", module, device)
    meanings = dict(zip(_template(module, kernel), names, strict=True))
    parameters = _parameters(module, kernel)
    if len(arguments) != len(parameters):
        raise TypeError(f"{kernel}: expected {len(parameters)} arguments, got {len(arguments)}")
    converted = tuple(
        _converted(kernel, parameter, meanings, argument, device)
        for parameter, argument in zip(parameters, arguments, strict=True)
    )
    call(function, grid, (THREADS,), converted)


def _template_argument(argument: Any) -> str:
    return str(argument).lower() if isinstance(argument, bool) else str(argument)


@cache
def _function(name: str, module: str, device: int) -> Any:
    """Return a compiled kernel for a device; CuPy keeps what it compiled on disk."""
    import cupy

    code = module_source(module)
    return cupy.RawModule(code=code, options=("-std=c++17",), name_expressions=(name,)).get_function(name)


def _head(module: str, kernel: str) -> re.Match[str]:
    pattern = (
        rf"template\s*<([^>]*)>\s*__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s*)?{kernel}\(([^)]*)\)"
    )
    found = re.search(pattern, read_source(module))
    if found is None:
        raise ValueError(f"{module}.cu has no kernel template named {kernel}")
    return found


@cache
def _template(module: str, kernel: str) -> tuple[str, ...]:
    """Return the names of a kernel's template parameters."""
    return tuple(part.split()[-1] for part in _head(module, kernel).group(1).split(","))


@cache
def _parameters(module: str, kernel: str) -> tuple[_Parameter, ...]:
    found = []
    for part in _head(module, kernel).group(2).split(","):
        words = part.replace("*", " * ").replace("const ", "").replace("__restrict__", "").split()
        found.append(_Parameter(" ".join(w for w in words[:-1] if w != "*"), "*" in words, words[-1]))
    return tuple(found)


def _converted(
    kernel: str, parameter: _Parameter, meanings: dict[str, str], argument: Any, device: int
) -> Any:
    """Return an argument as the kernel wants it, or say what is wrong with it."""
    # A pointer to a struct of reals, such as Softmax<T>, is memory of that real type.
    inner = re.sub(r"^\w+<(\w+)>$", r"\1", parameter.type)
    dtype = np.dtype(_DTYPES[meanings.get(inner, inner)])
    if not parameter.is_pointer:
        number = dtype.type(argument)
        if dtype.kind in "iu" and int(number) != int(argument):
            raise ValueError(f"{kernel}: {parameter.name} = {argument} does not fit into {dtype}")
        return number
    if argument is None:
        return np.uint64(0)
    _check_array(f"{kernel}: {parameter.name}", argument, dtype, device)
    return argument


def _check_array(name: str, array: Array, dtype: np.dtype[Any], device: int) -> None:
    import cupy

    if not isinstance(array, cupy.ndarray):
        raise TypeError(f"{name}: expected an array of CuPy, got {type(array).__name__}")
    if array.dtype != dtype:
        raise TypeError(f"{name}: expected dtype {dtype}, got {array.dtype}")
    if not array.flags.c_contiguous:
        raise ValueError(f"{name}: expected C-contiguous memory, got strides {array.strides}")
    if array.device.id != device:
        raise ValueError(
            f"{name}: is on device {array.device.id}, the current device is {device}; "
            f"use 'with cupy.cuda.Device({array.device.id}):' or the argument device="
        )


_SUFFIX = ".cu"
_SUPPORT = "support.cuh"
_FAMILIES = {"sparse_": "sparse.cuh"}


def _folder() -> Traversable:
    """Return the folder that holds the sources."""
    inside = files("airnp").joinpath("kernels")
    beside = Path(__file__).resolve().parents[2] / "kernels"
    for candidate in (inside, beside):
        if candidate.is_dir():
            return candidate
    raise FileNotFoundError("this installation of airnp has no kernels folder; please reinstall it")


def source_names() -> tuple[str, ...]:
    """Return the names of all kernel sources, sorted, without their file ending."""
    found = (entry.name for entry in _folder().iterdir())
    return tuple(sorted(name.removesuffix(_SUFFIX) for name in found if name.endswith(_SUFFIX)))


def read_source(name: str) -> str:
    """Return the text of one kernel source.

    Parameters
    ----------
    name : str
        One of `names`, for example ``"adam"``.

    Returns
    -------
    str
        The CUDA C++ source.

    Raises
    ------
    ValueError
        If there is no kernel of that name; the message lists the valid ones.
    """
    valid = source_names()
    if name not in valid:
        raise ValueError(f"unknown kernel {name!r}; valid names are {', '.join(map(repr, valid))}")
    return _folder().joinpath(name + _SUFFIX).read_text(encoding="utf-8")


def module_source(name: str) -> str:
    """Return one kernel source with what it shares with others in front: a text that compiles by itself.

    All of them share ``support.cuh``; those whose names begin with ``sparse_`` share ``sparse.cuh``, too.
    There is no ``#include`` in it, because neither NVRTC nor an installed wheel has a folder to look in.

    Parameters
    ----------
    name : str
        One of `names`.

    Returns
    -------
    str
        The CUDA C++ source for ``cupy.RawModule``.
    """
    own, folder = read_source(name), _folder()
    shared = [_SUPPORT, *(header for family, header in _FAMILIES.items() if name.startswith(family))]
    texts = [folder.joinpath(header).read_text(encoding="utf-8") for header in shared]
    return "\n".join([*texts, own])
