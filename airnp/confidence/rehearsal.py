"""Which entries in holes are hard, learned from a stand-in that fills hundreds of copies of the holes.

A fit holds out two or three copies of a large hole. That calibrates a level, but cannot tell what makes one
hole harder than another. A stand-in that fills gaps by local means is not as good as the fit, but it fails in
the same places, and takes milliseconds: it fills copies of the holes all over the known entries, and its
errors there teach how hard an entry is, given its surroundings.
"""

from __future__ import annotations

import numpy as np

from airnp.confidence.difficulty import Bools, Scale, Values, learned, surroundings
from airnp.stopping.holdout import holes

_SHARE = 0.05
"""Share of the known entries under copies of holes at a time, as in a fit."""

_ENOUGH = 100_000
_FEWEST, _MOST = 4, 40
"""Entries to learn from, and how often at least and at most the holes are copied for that."""

_SIDES = (3, 7, 15, 31, 63, 127)
"""Sides of the squares over which means are taken, the first that has enough known entries."""

_FILLED = 0.1
"""Share of a square that must be known."""


def rehearsed(known: Bools, values: Values) -> Scale | None:
    """Return how hard entries in holes are, given :func:`airnp.confidence.difficulty.surroundings`.

    None if no copy of the holes finds a place.

    Parameters
    ----------
    known : ndarray of bool (m, n)
        Whose gaps are holes.
    values : ndarray (m, n)
        Anything where not known.
    """
    wanted = max(1, round(_SHARE * int(known.sum())))
    rng = np.random.default_rng(0)
    features, errors = [], []
    for _ in range(int(np.clip(-(-_ENOUGH // wanted), _FEWEST, _MOST))):
        copies = holes(known, wanted, rng)
        left = known & ~copies
        features.append(surroundings(left, values)[copies])
        errors.append(np.abs(filled(left, values) - values)[copies])
    sizes = np.concatenate(errors)
    return learned(np.concatenate(features), sizes) if len(sizes) else None


def filled(known: Bools, values: Values) -> Values:
    """Return values with gaps filled by the mean of the smallest square around them that has enough in it.

    Examples
    --------
    >>> known = np.array([[True, True, True], [True, False, True], [True, True, True]])
    >>> values = np.array([[1.0, 1.0, 3.0], [1.0, 99.0, 3.0], [1.0, 3.0, 3.0]])
    >>> round(float(filled(known, values)[1, 1]), 9)
    2.0
    """
    from scipy import ndimage

    answer = np.where(known, values, values[known].mean())
    source, weights = np.where(known, values, 0.0), known.astype(np.float64)
    gaps = ~known
    for side in _SIDES:
        share, total = (ndimage.uniform_filter(array, side, mode="constant") for array in (weights, source))
        enough = gaps & (share > _FILLED)
        answer[enough] = total[enough] / share[enough]
        gaps &= ~enough
        if not gaps.any():
            break
    return answer
