"""CUDA kernels: find their sources, compile them, launch them with checked arguments, record the launches."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from airnp._arrays import Array
from airnp._devices import load_library

THREADS = 256
"""Threads of a block, in every kernel."""

OPTIONS = ("-std=c++17",)
"""For the compiler, besides those that CuPy adds."""

_SUFFIX = ".cu"
_SUPPORT = "support.cuh"
_FAMILIES = {"sparse_": "sparse.cuh"}
_REAL = {"float32": "float", "float64": "double"}
_DTYPES = {
    "float": "float32",
    "double": "float64",
    "int": "int32",
    "long long": "int64",
    "unsigned": "uint32",
}


def source_names() -> tuple[str, ...]:
    """Return the names of all kernel sources, sorted, without their file ending."""
    found = (entry.name for entry in _folder().iterdir())
    return tuple(sorted(name.removesuffix(_SUFFIX) for name in found if name.endswith(_SUFFIX)))


def read_source(name: str) -> str:
    """Return the text of one kernel source.

    Parameters
    ----------
    name : str
        One of :func:`source_names`, for example ``"adam"``.

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
    """Return one kernel source with its shared headers in front: a text that compiles by itself.

    All sources share ``support.cuh``; those whose names begin with ``sparse_`` also share ``sparse.cuh``.
    The text has no ``#include``, because neither NVRTC nor an installed wheel has a folder to search.

    Parameters
    ----------
    name : str
        One of :func:`source_names`.

    Returns
    -------
    str
        The CUDA C++ source for ``cupy.RawModule``.
    """
    own, folder = read_source(name), _folder()
    shared = [_SUPPORT, *(header for family, header in _FAMILIES.items() if name.startswith(family))]
    texts = [folder.joinpath(header).read_text(encoding="utf-8") for header in shared]
    return "\n".join([*texts, own])


def _folder() -> Traversable:
    """Return the folder of the sources: inside an installed package, beside it in a checkout."""
    inside = files("airnp").joinpath("kernels")
    beside = Path(__file__).resolve().parents[2] / "kernels"
    for candidate in (inside, beside):
        if candidate.is_dir():
            return candidate
    raise FileNotFoundError("this installation of airnp has no kernels folder; please reinstall it")


class Parameter(NamedTuple):
    """One parameter of a kernel: its C++ type without qualifiers, and what is known of a pointer."""

    type: str
    is_pointer: bool
    is_read_only: bool
    name: str


class Instance(NamedTuple):
    """One template instance of a kernel."""

    name: str
    """As C++ spells it, for example ``"graph_step<float, 0, true>"``."""
    parameters: tuple[Parameter, ...]
    dtypes: tuple[np.dtype[Any], ...]
    """Of each parameter, or of the array that it points to."""


def instance(module: str, kernel: str, variant: tuple[Any, ...]) -> Instance:
    """Return the instance of a kernel for template arguments, as :func:`launch` takes them."""
    real, *others = variant
    names = (str(other).lower() if isinstance(other, bool) else str(other) for other in others)
    return _instance(module, kernel, (_REAL[str(real)], *names))


@cache
def _instance(module: str, kernel: str, arguments: tuple[str, ...]) -> Instance:
    template, listed = _head(module, kernel).groups()
    names = [part.split()[-1] for part in template.split(",")]
    meanings = dict(zip(names, arguments, strict=True))
    parameters, dtypes = [], []
    for part in listed.split(","):
        words = part.replace("*", " * ").replace("const ", "").replace("__restrict__", "").split()
        name = " ".join(word for word in words[:-1] if word != "*")
        parameter = Parameter(name, "*" in words, "const " in part, words[-1])
        # A pointer to a struct of reals, such as Softmax<T>, is memory of that real type.
        inner = re.sub(r"^\w+<(\w+)>$", r"\1", parameter.type)
        parameters.append(parameter)
        dtypes.append(np.dtype(_DTYPES[meanings.get(inner, inner)]))
    return Instance(f"{kernel}<{', '.join(arguments)}>", tuple(parameters), tuple(dtypes))


_VALUES = {
    "bool": ("false", "true"),
    "int KIND": ("0", "1", "2"),
    "typename Index": ("int", "long long"),
}
"""What template parameters may be, by their type or by type and name."""

_BOUNDS = r"(?:__launch_bounds__\([^)]*\)\s*)?"


def instances(module: str, dtype: str) -> tuple[str, ...]:
    """Return the names of all template instances of a source for ``"float32"`` or ``"float64"``."""
    heads = re.findall(rf"template\s*<([^>]*)>\s*__global__\s+void\s+{_BOUNDS}(\w+)\(", read_source(module))
    names = []
    for template, kernel in heads:
        _, *others = (part.strip() for part in template.split(","))
        choices = (_VALUES.get(part) or _VALUES[part.split()[0]] for part in others)
        names += [f"{kernel}<{', '.join((_REAL[dtype], *chosen))}>" for chosen in product(*choices)]
    return tuple(names)


def _head(module: str, kernel: str) -> re.Match[str]:
    """Match a kernel's template parameters and its parameters in the source."""
    found = re.search(
        rf"template\s*<([^>]*)>\s*__global__\s+void\s+{_BOUNDS}{kernel}\(([^)]*)\)", read_source(module)
    )
    if found is None:
        raise ValueError(f"{module}.cu has no kernel template named {kernel}")
    return found


@cache
def _choose_compiler() -> None:
    """Load NVRTC in the version of CuPy's CUDA, which CuPy takes unless a newer one is loaded already."""
    with suppress(OSError):  # CuPy says what is missing
        load_library("nvrtc")


@cache
def _compiled(module: str, dtype: str, device: int) -> Any:
    """Return all kernels of a file for one dtype, compiled for a device; CuPy caches them on disk."""
    import cupy

    _choose_compiler()
    names = instances(module, dtype)
    return cupy.RawModule(code=module_source(module), options=OPTIONS, name_expressions=names)


@cache
def _function(name: str, module: str, dtype: str, device: int) -> Any:
    """Return one compiled kernel for a device."""
    return _compiled(module, dtype, device).get_function(name)


def launch(
    module: str,
    kernel: str,
    variant: tuple[Any, ...],
    grid: tuple[int, ...],
    *arguments: Any,
    through: Sequence[Array] = (),
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
    through : sequence of arrays
        Those that the kernel reads or writes through a table of addresses.
    """
    import cupy

    device = cupy.cuda.runtime.getDevice()
    name, parameters, dtypes = instance(module, kernel, variant)
    function = _function(name, module, str(variant[0]), device)
    if len(arguments) != len(parameters):
        raise TypeError(f"{kernel}: expected {len(parameters)} arguments, got {len(arguments)}")
    converted: list[Any] = []
    reads: list[Array] = []
    writes = [*through]
    for argument, parameter, dtype in zip(arguments, parameters, dtypes, strict=True):
        if parameter.is_pointer and argument is not None:
            _check_array(f"{kernel}: {parameter.name}", argument, dtype, device)
            converted.append(argument)
            (reads if parameter.is_read_only else writes).append(argument)
        else:
            converted.append(number(kernel, parameter, dtype, argument))
    call(function, grid, (THREADS,), tuple(converted), reads=reads, writes=writes)


def number(kernel: str, parameter: Parameter, dtype: np.dtype[Any], argument: Any) -> Any:
    """Return a number in the type of its parameter, or a null pointer.

    Raises
    ------
    ValueError
        If an integer does not fit.
    """
    if parameter.is_pointer:
        return np.uint64(0)
    converted = dtype.type(argument)
    if dtype.kind in "iu" and int(converted) != int(argument):
        raise ValueError(f"{kernel}: {parameter.name} = {argument} does not fit into {dtype}")
    return converted


def _check_array(name: str, array: Array, dtype: np.dtype[Any], device: int) -> None:
    """Raise if a kernel would misread an array."""
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


class Call(NamedTuple):
    """Something that queues work on the device, and the arrays that the work reads and writes."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    reads: tuple[Array, ...]
    writes: tuple[Array, ...]

    def must_follow(self, earlier: Call) -> bool:
        """Whether it reads what an earlier call writes, or writes what that reads or writes."""
        return _meet(earlier.writes, (*self.reads, *self.writes)) or _meet(earlier.reads, self.writes)


def _meet(some: Sequence[Array], others: Sequence[Array]) -> bool:
    """Whether any two arrays share memory; all are contiguous."""
    return any(
        a.data.ptr < b.data.ptr + b.nbytes and b.data.ptr < a.data.ptr + a.nbytes
        for a in some
        for b in others
    )


class Place(NamedTuple):
    """Where a call goes when calls are spread over several streams."""

    branch: int
    after: tuple[int, ...]
    """Calls of other branches that it waits for, by number."""
    depth: int
    """How many calls follow each other up to this one, itself included."""


def spread(calls: Sequence[Call], branches: int) -> list[Place]:
    """Return a branch for each call, so that calls which share no memory can go on side by side.

    A call goes where one that it must follow is the last so far, else to the branch that is done first.
    """
    places: list[Place] = []
    before: list[set[int]] = []
    ends: list[int | None] = [None] * branches

    def depth(branch: int) -> int:
        end = ends[branch]
        return 0 if end is None else places[end].depth

    for number, call in enumerate(calls):
        needed = {other for other in range(number) if call.must_follow(calls[other])}
        nearest = needed - set().union(*(before[other] for other in needed))
        going_on = [branch for branch in range(branches) if ends[branch] in nearest]
        branch = going_on[0] if going_on else min(range(branches), key=depth)
        end = ends[branch]
        known = set() if end is None else {end, *before[end]}
        after = tuple(sorted(nearest - known))
        before.append(known.union(after, *(before[other] for other in after)))
        longest = max([depth(branch), *(places[other].depth for other in after)])
        places.append(Place(branch, after, longest + 1))
        ends[branch] = number
    return places


class _Local(threading.local):
    calls: list[Call] | None = None


_local = _Local()


class Recording:
    """A context manager that notes every :func:`call`, so that the same work can be queued again."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def __enter__(self) -> Recording:
        _local.calls = self.calls
        return self

    def __exit__(self, *exception: object) -> None:
        _local.calls = None

    def replay(self) -> None:
        """Repeat all calls, in order, on the same arrays."""
        for call in self.calls:
            call.function(*call.arguments)

    def replay_side_by_side(self, streams: Sequence[Any]) -> None:
        """Repeat all calls on several streams, each after those that it must follow.

        Work on the other streams begins after what is on the first one now, which waits for it in the end.
        """
        first, *others = streams
        start = _mark(first)
        for other in others:
            other.wait_event(start)
        places = spread(self.calls, len(streams))
        awaited = {number for place in places for number in place.after}
        marks: dict[int, Any] = {}
        for number, (call, place) in enumerate(zip(self.calls, places, strict=True)):
            stream = streams[place.branch]
            with stream:
                for other in place.after:
                    stream.wait_event(marks[other])
                call.function(*call.arguments)
            if number in awaited:
                marks[number] = _mark(stream)
        for other in others:
            first.wait_event(_mark(other))


def _mark(stream: Any) -> Any:
    """Return an event at the present end of a stream."""
    import cupy

    return stream.record(cupy.cuda.Event(disable_timing=True))


def call(
    function: Callable[..., Any], *arguments: Any, reads: Sequence[Array], writes: Sequence[Array]
) -> None:
    """Call a function that queues work on the device, and note the call if a recording is active.

    ``reads`` and ``writes`` are the arrays that the work reads and writes.
    """
    if _local.calls is not None:
        _local.calls.append(Call(function, arguments, tuple(reads), tuple(writes)))
    function(*arguments)
