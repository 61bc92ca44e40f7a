"""What a fit does when it is told nothing: AIR, and for pictures total variation as well."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from airnp._arrays import Array, to_numpy
from airnp.data.inputs import Observations
from airnp.regularizers import Regularizer, TotalVariation, default_regularizers

ALIKE = 0.6
"""Correlation of an entry with its neighbour, along either axis, from which on data are taken for a picture.

Photographs have 0.75 and more; the drug-target tables of the paper have at most 0.45 along an axis.
"""

_FEWEST_PAIRS = 50


def chosen_regularizers(regularizers: Any, observations: Observations, *, measured: bool) -> Any:
    """Return what ``regularizers`` of :func:`airnp.fit` means for these data.

    Parameters
    ----------
    regularizers : "auto", None or list
    observations : Observations
    measured : bool
        Whether an operator made the data: then nothing is known about neighbours.
    """
    if not isinstance(regularizers, str):
        return regularizers
    if regularizers != "auto":
        raise ValueError(f"regularizers: expected 'auto', None or a list of them, got {regularizers!r}")
    chosen: list[Regularizer] = default_regularizers()
    if not measured and neighbours_are_alike(observations):
        chosen.append(TotalVariation())
    return chosen


def neighbours_are_alike(observations: Observations) -> bool:
    """Whether neighbouring entries are so much alike, along both axes, that their order must mean something.

    Examples
    --------
    >>> import numpy as np
    >>> from airnp.data.inputs import read
    >>> ramp = np.add.outer(np.arange(20.0), np.arange(30.0))
    >>> neighbours_are_alike(read(ramp))
    True
    >>> neighbours_are_alike(read(np.random.default_rng(0).permutation(ramp)))
    False
    """
    return all(bool((neighbour_correlation(observations, axis) >= ALIKE).all()) for axis in (-2, -1))


def neighbour_correlation(observations: Observations, axis: int) -> npt.NDArray[np.float64]:
    r"""Return how much more observed entries resemble the next one along an axis than any one on their line.

    1 − E[d²] / (2 Var), with d the difference of neighbours and Var the variance within a line along that
    axis: 1 for equal neighbours, about 0 where their order means nothing, or where fewer than 50 pairs are
    observed. One value for each problem of a stack.
    """
    xp, values, mask = observations.xp, observations.values, observations.mask
    entries = xp.astype(mask, values.dtype)
    (first, second), (observed, next_observed) = _shifted(values, axis), _shifted(entries, axis)
    pairs = observed * next_observed
    on_line = xp.sum(entries, axis=axis, keepdims=True)
    used = xp.astype(on_line > 0, values.dtype)
    mean = xp.sum(entries * values, axis=axis, keepdims=True) / (on_line + 1 - used)
    summed = [entries, used, pairs, entries * (values - mean) ** 2, pairs * (second - first) ** 2]
    sums = xp.stack([xp.sum(array, axis=(-2, -1)) for array in summed])
    count, lines, found, squares, differences = to_numpy(sums).astype(np.float64)
    enough = (found >= _FEWEST_PAIRS) & (squares > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(enough, 1 - (differences / found) / (2 * squares / (count - lines)), 0.0)


def _shifted(array: Array, axis: int) -> tuple[Array, Array]:
    if axis == -1:
        return array[..., :-1], array[..., 1:]
    return array[..., :-1, :], array[..., 1:, :]
