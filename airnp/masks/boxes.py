"""Rectangles that are missing."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from airnp.masks._arguments import Mask, checked_shape

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
        checked = [(*_scaled(box[:2], m), *_scaled(box[2:], n)) for box in _PAPER_BOXES]
    else:
        checked = [_checked_box(box, m, n) for box in boxes]
    mask = np.ones(shape, dtype=bool)
    for row_start, row_stop, col_start, col_stop in checked:
        mask[..., row_start:row_stop, col_start:col_stop] = False
    return mask


def _scaled(interval: tuple[int, int], length: int) -> tuple[int, int]:
    """Carry an interval of the paper's 240 entries over to `length`, rounded outwards in exact integers."""
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
