"""Arrays that every iteration needs again, made once."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from airnp.engines.apart import empty_apart


class Workspace:
    """Lends arrays of NumPy, or of another ``xp``, by name; what a name was lent for before is overwritten.

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
        """Return the array of this name and shape, with any content."""
        found = self._arrays.get((name, shape))
        if found is None:
            found = self._arrays[name, shape] = self._empty(shape, self._dtype)
        return found
