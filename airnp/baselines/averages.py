"""Means: what every other method must beat."""

from __future__ import annotations

from typing import Any

import numpy as np

from airnp.baselines._problem import Bools, Values, complete_each, line_means
from airnp.regularizers.base import checked_choice


def mean(Y: Any, mask: Any = None, *, by: str = "all") -> Any:
    """Fill every gap with a mean of observed entries. Observed entries are kept.

    Parameters
    ----------
    Y : array-like (…, m, n)
        As in :func:`airnp.fit`.
    mask : array-like, optional
        True where observed. Without it, NaN means missing.
    by : {"all", "rows", "columns", "both"}
        Mean of all observed entries, of those of the gap's row, of its column, or the average of the last
        two. Where such a line is empty, ``"both"`` uses the other one, the rest the mean of all.

    Returns
    -------
    ndarray or DataFrame (…, m, n)

    Examples
    --------
    >>> from numpy import nan
    >>> mean([[1.0, 2.0], [6.0, nan]])
    array([[1., 2.],
           [6., 3.]])
    """
    checked_choice("by", by, ("all", "rows", "columns", "both"))

    def complete(values: Values, mask: Bools) -> Values:
        if by == "both":
            return np.where(mask, values, line_means(values, mask))
        axis = {"all": None, "rows": 1, "columns": 0}[by]
        count = mask.sum(axis=axis, keepdims=True)
        means = values.sum(axis=axis, keepdims=True) / np.maximum(count, 1)
        return np.where(mask, values, np.where(count > 0, means, values[mask].mean()))

    return complete_each(Y, mask, complete, "they are filled with means of other entries")
