"""Arrays that compiled loops read well: on a cache line of their own, and apart from all others."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

_LINE, _MARGIN = 64, 256


def empty_apart(shape: Any, dtype: Any = np.float64) -> npt.NDArray[Any]:
    """Return an array with any content, well apart from all others in memory.

    Compiled loops check whether what they write may overlap with what they read, and are not vectorised if
    it might. Small arrays that lie close together look so, by chance, and the last bits of a sum would then
    depend on where memory happened to be free. Vectors of 64 bytes that begin on a cache line are read at
    once, others in two halves.

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
    """Return a copy in such memory.

    Examples
    --------
    >>> copied_apart(np.eye(2))
    array([[1., 0.],
           [0., 1.]])
    """
    copy = empty_apart(array.shape, array.dtype)
    copy[...] = array
    return copy
