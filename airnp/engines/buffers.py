"""Reusable arrays for the intermediates of many iterations, aligned and apart from each other in memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from airnp._arrays import Array

_LINE, _MARGIN = 64, 256


def empty_apart(shape: Any, dtype: Any = np.float64) -> npt.NDArray[Any]:
    """Return an uninitialised array that is aligned to 64 bytes and far from all other arrays in memory.

    Compiled loops check whether their inputs and outputs may overlap, and take a scalar path if they might.
    Small arrays that lie close together can look so by chance, and the last bits of a sum would then depend
    on the memory allocator. The alignment lets the CPU read a vector of 64 bytes from one cache line.

    Examples
    --------
    >>> empty_apart((3, 2), np.float32).ctypes.data % 64
    0
    """
    dtype = np.dtype(dtype)
    size = math.prod(np.atleast_1d(shape).tolist()) * dtype.itemsize
    memory = np.empty(size + 2 * _MARGIN + _LINE, np.uint8)
    first = _MARGIN + -memory.ctypes.data % _LINE
    found: npt.NDArray[Any] = memory[first : first + size].view(dtype).reshape(shape)
    return found


def copied_apart(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a copy in memory of :func:`empty_apart`.

    Examples
    --------
    >>> copied_apart(np.eye(2))
    array([[1., 0.],
           [0., 1.]])
    """
    copy = empty_apart(array.shape, array.dtype)
    copy[...] = array
    return copy


def placed_apart(array: npt.NDArray[Any], xp: Any) -> Array:
    """Return a copy of a host array in a namespace: in such memory for NumPy, on the device for CuPy."""
    return copied_apart(array) if xp is np else xp.asarray(array)


class Lending:
    """A pool of C-contiguous arrays of one dtype, reused by size.

    Parameters
    ----------
    empty : callable
        Returns an uninitialised array of a shape.
    resting : int
        How many arrays of a size are not lent again before others come back; they are lent in the order in
        which they came. Work that does not share memory can go on side by side. With 0 the array that came
        last is lent first, which a cache may still hold.
    """

    def __init__(self, empty: Callable[[tuple[int, ...]], Array], resting: int = 0) -> None:
        self._empty, self._resting = empty, resting
        self._free: dict[int, list[Array]] = {}

    def take(self, shape: tuple[int, ...]) -> Array:
        """Return an uninitialised C-contiguous array of this shape."""
        free = self._free.get(math.prod(shape), [])
        if len(free) <= self._resting:
            return self._empty(shape)
        return free.pop(0 if self._resting else -1).reshape(shape)

    def give(self, array: Array) -> None:
        """Return an array to the pool."""
        if array.flags.c_contiguous:
            self._free.setdefault(array.size, []).append(array)


class Workspace:
    """Named scratch arrays of NumPy, or of another ``xp``; taking a name again reuses its memory.

    Examples
    --------
    >>> space = Workspace(np.float32)
    >>> space.take("slope", (2, 3)) is space.take("slope", (2, 3))
    True
    """

    def __init__(self, dtype: Any, xp: Any = np) -> None:
        self._dtype, self._empty = np.dtype(dtype), empty_apart if xp is np else xp.empty
        self._arrays: dict[tuple[str, tuple[int, ...]], npt.NDArray[Any]] = {}

    def take(self, name: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """Return the array of this name and shape, with its old content or uninitialised."""
        found = self._arrays.get((name, shape))
        if found is None:
            found = self._arrays[name, shape] = self._empty(shape, self._dtype)
        return found
