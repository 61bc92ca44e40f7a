"""What patterns are told, checked, and masks repeated over a stack."""

from __future__ import annotations

import math
import operator
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]
Seed = int | np.random.SeedSequence | np.random.Generator | None


def checked_shape(shape: Any) -> tuple[int, ...]:
    """Return the shape of a mask, or of a stack of them, as a tuple of int."""
    expected = "shape: expected positive int (m, n) or (..., m, n)"
    try:
        checked = tuple(operator.index(length) for length in shape)
    except TypeError as error:
        raise TypeError(f"{expected}, got {shape!r}") from error
    if len(checked) < 2 or min(checked) < 1:
        raise ValueError(f"{expected}, got {shape!r}")
    return checked


def checked_share(missing: Any) -> float:
    """Return a share that is less than all."""
    return checked_between("missing", missing, "a number in [0, 1)", low=0, high=1)


def checked_between(
    name: str, value: Any, expected: str, *, low: float = -math.inf, high: float = math.inf
) -> float:
    """Return `value` as a float if it is a number with ``low <= value < high``; True and False are not."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name}: expected {expected}, got {value!r}")
    number = float(value)
    if not low <= number < high:
        raise ValueError(f"{name}: expected {expected}, got {value!r}")
    return number


def repeated(mask: Mask, shape: tuple[int, ...]) -> Mask:
    """Repeat a mask for each problem of a stack, as an array of its own."""
    return np.broadcast_to(mask, shape).copy()
