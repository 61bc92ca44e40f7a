"""Memory for the intermediates of many iterations: arrays that are lent, given back and lent again."""

from __future__ import annotations

import math
from collections.abc import Callable

from airnp._arrays import Array


class Lending:
    """Lends C-contiguous arrays of one dtype, each made once.

    Parameters
    ----------
    empty : callable
        Makes an array of a shape, with any content.
    """

    def __init__(self, empty: Callable[[tuple[int, ...]], Array]) -> None:
        self._empty = empty
        self._free: dict[int, list[Array]] = {}

    def take(self, shape: tuple[int, ...]) -> Array:
        """Return a C-contiguous array of this shape, with any content."""
        free = self._free.get(math.prod(shape))
        return free.pop().reshape(shape) if free else self._empty(shape)

    def give(self, array: Array) -> None:
        """Take back an array that is not needed any more."""
        if array.flags.c_contiguous:
            self._free.setdefault(array.size, []).append(array)
