"""Kernel arguments, with CuPy's rules for widths and with stricter ones where a GPU would read garbage."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .binary import SLOT, Parameter
from .errors import ArgumentError

_KINDS = {"f": "f", "i": "i", "u": "i", "b": "i"}  # kinds of NumPy's types -> kinds of entry.h


@dataclass(frozen=True)
class AddressTable:
    """A device array of 64-bit words, some of which are the addresses of other arrays.

    Kernels that work on many arrays at once take such a table. It is filled at the launch, where the arrays
    are, so it also works in the modes that run a launch on copies.

    Parameters
    ----------
    words : sequence of int or array
        An array is replaced by its address.
    """

    words: Sequence[Any]

    def arrays(self) -> list[Any]:
        """Return the arrays among the words."""
        return [word for word in self.words if not isinstance(word, int | np.integer)]


def scalar(value: Any) -> np.generic | None:
    """Return a value as CuPy sends it (an int as int64, a float as float64), or None if it is no scalar."""
    if isinstance(value, np.generic):
        return value
    if isinstance(value, bool):
        return np.bool_(value)
    if isinstance(value, int):
        return np.int64(value)
    if isinstance(value, float):
        return np.float64(value)
    return None


def check(arguments: Sequence[Any], parameters: Sequence[Parameter], kernel: str) -> None:
    """Raise ArgumentError unless the arguments fit the parameters in number, width and kind."""
    if len(arguments) != len(parameters):
        raise ArgumentError(f"{kernel} has {len(parameters)} parameters and got {len(arguments)} arguments")
    for i, (argument, parameter) in enumerate(zip(arguments, parameters, strict=True)):
        problem = _problem(argument, parameter)
        if problem:
            raise ArgumentError(f"argument {i} of {kernel}: {problem}; the parameter is a {parameter}")


def _problem(argument: Any, parameter: Parameter) -> str | None:
    number = scalar(argument)
    if parameter.pointer == b"\0":
        if number is None:
            return f"{type(argument).__name__} is not a number"
        if number.nbytes != parameter.bytes:
            travels = "a Python int travels as int64, a float as float64"
            return f"{number.dtype} has {number.nbytes} bytes ({travels})"
        if _KINDS.get(number.dtype.kind) != parameter.kind.decode():
            return f"{number.dtype} is of another kind"
        return None
    if number is not None:
        return (
            None if number.dtype.kind in "iu" and number.nbytes == 8 else f"{number.dtype} is not an address"
        )
    if argument is None:
        return None
    if isinstance(argument, AddressTable):
        return (
            None
            if (parameter.kind, parameter.bytes) == (b"i", 8)
            else "a table of addresses has 64-bit words"
        )
    return _array_problem(argument, parameter)


def _array_problem(array: Any, parameter: Parameter) -> str | None:
    try:
        address(array)
    except ArgumentError as error:
        return str(error)
    dtype = getattr(array, "dtype", None)
    expected = (parameter.kind.decode(), parameter.bytes)
    if dtype is not None and parameter.kind in b"fi" and (_KINDS.get(dtype.kind), dtype.itemsize) != expected:
        return f"the array holds {dtype}"
    if isinstance(array, np.ndarray) and parameter.pointer == b"m" and not array.flags.writeable:
        return "the array is read-only and the kernel may write to it"
    return None


def address(array: Any) -> int:
    """Return the address of an array's data, on the CPU or on the double of a device."""
    flags = getattr(array, "flags", None)
    if flags is not None and not flags.c_contiguous:
        raise ArgumentError("the array is not C-contiguous")
    if isinstance(array, np.ndarray):
        return array.ctypes.data
    holder = getattr(array, "data", array)
    pointer = getattr(holder, "ptr", None)
    if pointer is None:
        raise ArgumentError(f"{type(array).__name__} is neither an array nor a number")
    return int(pointer)


def span(array: np.ndarray, known: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Return the first and last address of an array, which identify it among the ``known`` arrays.

    Raises
    ------
    ArgumentError
        If it overlaps with a part of a known one, because copies of the two would not overlap.
    """
    start = array.ctypes.data
    mine = (start, start + array.nbytes)
    for other in known:
        if mine != other and mine[0] < other[1] and other[0] < mine[1]:
            raise ArgumentError(
                "two arguments overlap without being the same array; copies of them would not"
            )
    return mine


def pack(arguments: Sequence[Any]) -> tuple[bytearray, list[Any]]:
    """Return checked arguments as the kernel reads them from memory, and tables to keep during the launch."""
    memory = bytearray(SLOT * len(arguments))
    alive: list[Any] = []
    for i, argument in enumerate(arguments):
        value = scalar(argument)
        if isinstance(argument, AddressTable):
            words = [int(w) if isinstance(w, int | np.integer) else address(w) for w in argument.words]
            table = np.array(words, dtype=np.uint64)
            alive.append(table)
            value = np.uint64(table.ctypes.data)
        elif value is None:
            value = np.uint64(0 if argument is None else address(argument))
        memory[SLOT * i : SLOT * i + value.nbytes] = value.tobytes()
    return memory, alive
