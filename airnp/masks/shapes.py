"""Masks with missing rectangles or scratches."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airnp._checks import checked_whole
from airnp.masks.sampling import Mask, Seed, checked_between, checked_shape, generator

Box = tuple[int, int, int, int]

_PAPER_SIDE = 240
_PAPER_BOXES: tuple[Box, ...] = ((70, 100, 150, 190), (200, 230, 200, 230))
_FOUR_BOUNDS = "boxes: expected four int each, (row_start, row_stop, col_start, col_stop)"


def patch(shape: Sequence[int] = (240, 240), boxes: Sequence[Sequence[int]] | None = None) -> Mask:
    """Drop rectangles.

    Parameters
    ----------
    shape : sequence of int, default (240, 240)
        ``(m, n)`` or ``(..., m, n)``.
    boxes : sequence of (row_start, row_stop, col_start, col_stop), optional
        The rectangles, half open like slices. If left out, the paper's two, ``[70:100, 150:190]`` and
        ``[200:230, 200:230]`` of 240×240, scaled to `shape` and rounded outwards, so that neither vanishes.

    Returns
    -------
    ndarray of bool, shape (..., m, n)
        True = observed; every matrix of a stack has the same mask.

    Examples
    --------
    >>> from airnp import masks
    >>> int((~masks.patch()).sum())
    2100
    >>> masks.patch((2, 3), [(0, 1, 1, 3)]).astype(int)
    array([[1, 0, 0],
           [1, 1, 1]])
    """
    shape = checked_shape(shape)
    m, n = shape[-2:]
    if boxes is None:
        checked = [(*_scale(box[:2], m), *_scale(box[2:], n)) for box in _PAPER_BOXES]
    else:
        checked = [_checked_box(box, m, n) for box in boxes]
    mask = np.ones(shape, dtype=bool)
    for row_start, row_stop, col_start, col_stop in checked:
        mask[..., row_start:row_stop, col_start:col_stop] = False
    return mask


def _scale(interval: tuple[int, int], length: int) -> tuple[int, int]:
    """Scale an interval of the paper's 240 entries to `length`, rounded outwards in exact integers."""
    start, stop = interval
    return start * length // _PAPER_SIDE, -(-stop * length // _PAPER_SIDE)


def _checked_box(box: Any, m: int, n: int) -> Box:
    try:
        bounds = tuple(operator.index(bound) for bound in box)
    except TypeError as error:
        raise TypeError(f"{_FOUR_BOUNDS}, got {box!r}") from error
    if len(bounds) != 4:
        raise ValueError(f"{_FOUR_BOUNDS}, got {box!r}")
    row_start, row_stop, col_start, col_stop = bounds
    if not (0 <= row_start < row_stop <= m and 0 <= col_start < col_stop <= n):
        raise ValueError(f"boxes: expected non-empty boxes inside the {m}×{n} matrix, got {box!r}")
    return row_start, row_stop, col_start, col_stop


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
    count = checked_whole("count", count, least=0)
    radius = checked_between("width", width, "a finite number of at least 1", low=1) / 2

    # Entry (i, j) has its centre at (i, j), so the matrix reaches from -1/2 to m - 1/2 and n - 1/2.
    ends = generator(seed).uniform(-0.5, [m - 0.5, n - 0.5], size=(*batch, count, 2, 2))
    mask = np.ones((*batch, m, n), dtype=bool)
    for index in np.ndindex(*batch):
        for start, stop in ends[index]:
            _scratch(mask[index], start, stop, radius)
    return mask


def _scratch(mask: Mask, start: NDArray[np.float64], stop: NDArray[np.float64], radius: float) -> None:
    """Set the entries of `mask` within `radius` of the segment from `start` to `stop` to False, in place."""
    # Only entries in the padded bounding box can be near, a small part of the matrix for most segments.
    low = np.maximum(np.ceil(np.minimum(start, stop) - radius), 0).astype(int)
    high = np.floor(np.maximum(start, stop) + radius).astype(int) + 1
    window = mask[low[0] : high[0], low[1] : high[1]]
    i = np.arange(low[0], low[0] + window.shape[0])[:, np.newaxis]
    j = np.arange(low[1], low[1] + window.shape[1])

    along = stop - start
    # The foot of the perpendicular, clipped to the segment; `or 1` for a segment that is a single point.
    length_squared = along @ along or 1.0
    foot = np.clip(((i - start[0]) * along[0] + (j - start[1]) * along[1]) / length_squared, 0, 1)
    distance = np.hypot(i - start[0] - foot * along[0], j - start[1] - foot * along[1])
    window[distance <= radius] = False
