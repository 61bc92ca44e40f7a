"""Bounds at single entries."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from airnp.bounds import Bounds


def bounds_at(bounds: Bounds, columns: npt.NDArray[Any]) -> Bounds:
    """Return the bounds of entries in these columns, one after the other; one pair for all stays that.

    Examples
    --------
    >>> import numpy as np
    >>> limits = Bounds.of(([0.0, 1.0], [5.0, 9.0]), columns=2)
    >>> bounds_at(limits, np.array([1, 1, 0])).high
    array([9., 9., 5.])
    """
    if bounds.low.ndim == 0:
        return bounds
    return Bounds(bounds.low[columns], bounds.high[columns], bounds.whole[columns])
