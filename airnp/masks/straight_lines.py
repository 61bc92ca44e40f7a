"""Scratches."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airnp.masks._arguments import Mask, Seed, checked_between, checked_shape


def scratches(shape: Sequence[int], count: int = 20, width: float = 3, *, seed: Seed = None) -> Mask:
    """Drop thin straight scratches between random points.

    An entry is missing if its centre is within ``width / 2`` of one of the segments, whose ends are uniform
    over the matrix.

    Parameters
    ----------
    shape : sequence of int
        ``(m, n)`` or ``(..., m, n)``.
    count : int, default 20
        Number of scratches in each matrix.
    width : float, default 3
        Their width in entries, at least 1: a thinner line could pass between the centres of the entries.
    seed : int, SeedSequence, Generator or None
        Passed to :func:`numpy.random.default_rng`.

    Returns
    -------
    ndarray of bool, shape (..., m, n)
        True = observed.

    Examples
    --------
    >>> from airnp import masks
    >>> mask = masks.scratches((240, 240), seed=0)
    >>> bool(0.05 < 1 - mask.mean() < 0.2)
    True
    """
    *batch, m, n = checked_shape(shape)
    count = _checked_count(count)
    radius = checked_between("width", width, "a finite number of at least 1", low=1) / 2

    # Entry (i, j) has its centre at (i, j), so the matrix reaches from -1/2 to m - 1/2 and n - 1/2.
    ends = np.random.default_rng(seed).uniform(-0.5, [m - 0.5, n - 0.5], size=(*batch, count, 2, 2))
    mask = np.ones((*batch, m, n), dtype=bool)
    for index in np.ndindex(*batch):
        for start, stop in ends[index]:
            _scratch(mask[index], start, stop, radius)
    return mask


def _scratch(mask: Mask, start: NDArray[np.float64], stop: NDArray[np.float64], radius: float) -> None:
    """Clear, in place, the entries of `mask` within `radius` of the segment from `start` to `stop`."""
    # Nothing outside the padded bounding box can be near: most segments see a small part of the matrix.
    low = np.maximum(np.ceil(np.minimum(start, stop) - radius), 0).astype(int)
    high = np.floor(np.maximum(start, stop) + radius).astype(int) + 1
    window = mask[low[0] : high[0], low[1] : high[1]]
    i = np.arange(low[0], low[0] + window.shape[0])[:, np.newaxis]
    j = np.arange(low[1], low[1] + window.shape[1])

    along = stop - start
    # The foot of the perpendicular, held between the ends; `or 1` for a segment that is a single point.
    length_squared = along @ along or 1.0
    foot = np.clip(((i - start[0]) * along[0] + (j - start[1]) * along[1]) / length_squared, 0, 1)
    distance = np.hypot(i - start[0] - foot * along[0], j - start[1] - foot * along[1])
    window[distance <= radius] = False


def _checked_count(count: Any) -> int:
    try:
        checked = operator.index(count)
    except TypeError as error:
        raise TypeError(f"count: expected an int of at least 0, got {count!r}") from error
    if checked < 0:
        raise ValueError(f"count: expected an int of at least 0, got {count!r}")
    return checked
