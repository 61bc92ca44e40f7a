"""Intervals around completed entries, calibrated on entries that the fit had not seen."""

from __future__ import annotations

from typing import Any

import array_api_compat as compat
import numpy as np
import numpy.typing as npt

from airnp._arrays import Array, dtype_name, from_numpy, to_numpy
from airnp._checks import checked_number
from airnp.data.holdout import have_holes
from airnp.results import calibration as conformal
from airnp.results import difficulty
from airnp.results.calibration import Calibration
from airnp.results.difficulty import rehearsed
from airnp.results.result import FitResult

Values = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


def interval(result: FitResult, level: float = 0.9) -> tuple[Any, Any]:
    """Return the lower and upper ends of the intervals; see :meth:`airnp.FitResult.interval`."""
    level = checked_level(level)
    calibration = checked_calibration(result)
    matrix, mask = to_numpy(result.matrix).astype(np.float64), to_numpy(result.mask)
    observed = to_numpy(result.observed).astype(np.float64)
    width = np.zeros(matrix.shape)
    for place in np.ndindex(matrix.shape[:-2]):
        mine = calibration.of_problem(place)
        width[place] = half_widths(matrix[place], observed[place], mask[place], mine, level)
    middle = np.where(mask, observed, matrix)
    lower, upper = middle - width, middle + width
    if result.bounds is not None:
        # Where only whole numbers can be, none of them is lost.
        whole = result.bounds.whole
        lower, upper = np.where(whole, np.ceil(lower), lower), np.where(whole, np.floor(upper), upper)
    return _like(result, lower, np.inf), _like(result, upper, -np.inf)


def half_widths(
    matrix: Values, observed: Values, mask: Bools, calibration: Calibration, level: float
) -> Values:
    """Return half the width of the interval of every entry of one problem; zero where observed.

    Parameters
    ----------
    matrix, observed : ndarray (m, n)
    mask : ndarray of bool (m, n)
    calibration : Calibration
        Of this problem.
    level : float
    """
    widths = np.zeros(matrix.shape)
    if mask.all():
        return widths
    errors = calibration.errors
    check_enough(level, len(errors))
    scale, wanted = _scales(matrix, observed, mask, calibration)
    widths[~mask] = conformal.quantile(errors / scale, level) * wanted
    return widths


def _scales(matrix: Values, observed: Values, mask: Bools, calibration: Calibration) -> tuple[Values, Values]:
    """Return how hard the calibration's entries were, and how hard missing ones are, in the same units."""
    errors = calibration.errors
    around = _surroundings(observed, mask, calibration)
    scale = rehearsed(mask, observed) if have_holes(mask) else None
    if scale is not None:
        return scale(around[0]), scale(around[1])
    lines = _lines(matrix, observed, mask, calibration)
    known, wanted = (np.hstack(parts) for parts in zip(around, lines, strict=True))
    return difficulty.tempered(
        difficulty.crossed(known, errors), difficulty.learned(known, errors)(wanted), errors
    )


def _surroundings(observed: Values, mask: Bools, calibration: Calibration) -> tuple[Values, Values]:
    """Return features of the calibration's entries, as they were when left out, and of missing ones."""
    missing = difficulty.surroundings(mask, observed)[~mask]
    known = np.zeros((len(calibration.values), missing.shape[1]))
    for fold in np.unique(calibration.folds):
        mine = calibration.folds == fold
        left_out = tuple(calibration.positions[mine].T)
        seen = mask.copy()
        seen[left_out] = False
        known[mine] = difficulty.surroundings(seen, observed)[left_out]
    return known, missing


def _lines(matrix: Values, observed: Values, mask: Bools, calibration: Calibration) -> tuple[Values, Values]:
    """Return features of the calibration's entries and of missing ones, from entries that are neither."""
    known = tuple(calibration.positions.T)
    seen, predicted = mask.copy(), matrix.copy()
    seen[known], predicted[known] = False, calibration.predictions
    features = difficulty.lines(seen, np.abs(matrix - observed), predicted)
    return features[known], features[~mask]


def checked_level(level: Any) -> float:
    """Return a level between 0 and 1, or raise."""
    number = checked_number("level", level)
    if not 0 < number < 1:
        raise ValueError(f"level: expected a number between 0 and 1, such as 0.9, got {level!r}")
    return number


def check_enough(level: float, count: int) -> None:
    """Raise unless so many held-out entries are enough for a level."""
    fewest = conformal.fewest(level)
    if count < fewest:
        raise ValueError(
            f"level: {level:g} needs at least {fewest} held-out entries, there are {count}; ask for a lower "
            "level, or hold out more with stop=airnp.HeldOut(fraction=...)"
        )


def checked_calibration(result: FitResult) -> Calibration:
    """Return what the intervals are calibrated on, or raise an error that says what to do."""
    if result.mask is None:
        raise ValueError(
            "interval: an operator's measurements are not entries; there is nothing to calibrate on"
        )
    if result.calibration is None:
        raise ValueError(
            "interval: this fit held out no entries to calibrate on; fit with stop='auto' or "
            "stop=airnp.HeldOut(...)"
        )
    return result.calibration


def _like(result: FitResult, values: Values, inwards: float) -> Any:
    """Return values within the bounds, as an array of the result's namespace, with its labels.

    Rounded inwards, an interval contains the same numbers of a narrow dtype as before: errors may be as small
    as its resolution.
    """
    like: Array = result.matrix
    xp, dtype = compat.array_namespace(like), dtype_name(like.dtype)
    rounded = values.astype(dtype)
    outside = rounded < values if inwards > 0 else rounded > values
    rounded = np.where(outside, np.nextafter(rounded, rounded.dtype.type(inwards)), rounded)
    array = from_numpy(rounded, xp, compat.device(like), dtype)
    if result.bounds is not None:
        array = result.bounds.put_on(array)
    return array if result.labels is None else result.labels.put_on(array)
