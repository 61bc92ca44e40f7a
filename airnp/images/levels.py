"""Smaller copies of a picture: what is far from observed pixels starts from a copy in which it is near."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]

_TAPS = np.array([-0.0703125, 0.8671875, 0.2265625, -0.0234375], np.float32)
"""Cubic interpolation (Keys, a = −1/2) a quarter of a pixel after the second of four."""


def shrink(values: Values, observed: Bools) -> tuple[Values, Bools]:
    """Return the means of the observed pixels in squares of 2×2, and which squares have at least two of them.

    Parameters
    ----------
    values : ndarray of float32 (…, H, W)
    observed : ndarray of bool (…, H, W)

    Returns
    -------
    ndarray of float32, ndarray of bool (…, ⌈H/2⌉, ⌈W/2⌉)
        Squares with fewer observed pixels have the value 0. If H or W is odd, the last squares are smaller;
        there one observed pixel is enough.

    Examples
    --------
    >>> means, seen = shrink(np.array([[1, 3, 5], [9, 9, 7]], "f"), np.array([[1, 1, 1], [0, 0, 1]], bool))
    >>> means, seen
    (array([[2., 6.]], dtype=float32), array([[ True,  True]]))
    """
    height, width = values.shape[-2:]
    known = np.where(observed, values, np.float32(0))
    sums, counts = _pair_sums(known), _pair_sums(observed.astype(np.float32))
    areas = _pair_sums(np.ones((height, width), np.float32))
    seen = counts >= np.minimum(2, areas)
    means = np.where(seen, sums / np.maximum(counts, 1), 0).astype(np.float32)
    return means, seen


def _pair_sums(values: Values) -> Values:
    height, width = values.shape[-2:]
    odd = [(0, 0)] * (values.ndim - 2) + [(0, height % 2), (0, width % 2)]
    even = np.pad(values, odd)
    rows = even[..., ::2, :] + even[..., 1::2, :]
    sums: Values = rows[..., ::2] + rows[..., 1::2]
    return sums


def enlarge(values: Values, shape: tuple[int, int]) -> Values:
    """Return a picture (…, h, w) at twice the size, cut to ``shape``, by cubic interpolation.

    Examples
    --------
    >>> enlarge(np.full((1, 2), 3, "f"), (2, 3))
    array([[3., 3., 3.],
           [3., 3., 3.]], dtype=float32)
    """
    return _doubled(_doubled(values, -2), -1)[..., : shape[0], : shape[1]]


def _doubled(values: Any, axis: int) -> Values:
    """Return values at twice the length along an axis; each becomes two, a quarter before and after it."""
    ends = [(0, 0)] * values.ndim
    ends[axis] = (2, 2)
    padded = np.moveaxis(np.pad(values, ends, mode="edge"), axis, -1)
    n = padded.shape[-1] - 4
    before = sum(tap * padded[..., 3 - k : 3 - k + n] for k, tap in enumerate(_TAPS))
    after = sum(tap * padded[..., 1 + k : 1 + k + n] for k, tap in enumerate(_TAPS))
    out = np.stack([before, after], axis=-1).reshape(*padded.shape[:-1], 2 * n)
    return np.ascontiguousarray(np.moveaxis(out, -1, axis), dtype=np.float32)
