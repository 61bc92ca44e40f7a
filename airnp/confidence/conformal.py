r"""Split conformal prediction: how large an error must be allowed so that a new one is within it, so often.

Let :math:`s_1, …, s_n` be the scores of calibration entries and s that of a new one, all exchangeable: their
joint distribution does not depend on their order. The rank of s among the n + 1 is then uniform, up to ties,
so that with q the k-th smallest of :math:`s_1, …, s_n`, k = ⌈(n + 1)·level⌉,

.. math:: \text{level} \le P(s \le q) \le \text{level} + \frac{1}{n + 1},

the right inequality where there are no ties. Nothing else is assumed: no distribution, no model.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]

_ROUNDING = 1e-9
"""(n + 1)·level is a whole number for levels such as 0.9, and must not become the next one by rounding."""


def rank_of(count: int, level: float) -> int:
    """Return k = ⌈(n + 1)·level⌉; more than ``count`` if so few scores cannot tell.

    Examples
    --------
    >>> rank_of(9, 0.9), rank_of(99, 0.9), rank_of(8, 0.9)
    (9, 90, 9)
    """
    return max(1, math.ceil((count + 1) * level - _ROUNDING))


def fewest(level: float) -> int:
    """Return how many scores there must be at least: n ≥ level / (1 − level).

    Examples
    --------
    >>> fewest(0.5), fewest(0.9), fewest(0.95)
    (1, 9, 19)
    """
    return max(1, math.ceil(level / (1 - level) - _ROUNDING))


def quantile(scores: Values, level: float) -> float:
    """Return the score that a new one does not exceed, with a probability of at least ``level``.

    Parameters
    ----------
    scores : ndarray (n,)
        In any order; n ≥ ``fewest(level)``.
    level : float
        Between 0 and 1.

    Examples
    --------
    >>> quantile(np.arange(1.0, 10.0), 0.8)
    8.0
    """
    rank = rank_of(len(scores), level)
    if rank > len(scores):
        raise ValueError(f"scores: a level of {level:g} needs at least {fewest(level)}, got {len(scores)}")
    return float(np.partition(scores, rank - 1)[rank - 1])
