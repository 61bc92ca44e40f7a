"""What engines on the host share: arrays of NumPy, dense products by the CPU engine, plain numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as xp

from airnp.engines import cpu as dense

__all__ = ["dense", "number", "numbers", "xp"]


def number(value: Any) -> float:
    """Return a scalar as a float."""
    return float(value)


def numbers(values: Sequence[float]) -> list[float]:
    """Return scalars that operations gave, as they are."""
    return list(values)
