"""Out-of-sample predictions of observed entries, and the conformal quantile of their errors."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from airnp._arrays import Array, to_numpy
from airnp.data.bounds import Bounds
from airnp.data.normalization import Normalization

Values = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Calibration:
    """Observed entries and predictions of them that were made without them.

    After a fit, these are the entries that it held out, predicted by the iterate that it chose before it
    continued with all entries. The matrix of
    :func:`airnp.completing.lowrank.fit_low_rank` is computed again several times, each time without some of
    the entries.

    Attributes
    ----------
    positions : ndarray of int (k, d)
        Of each entry in the result's matrix, which has d axes.
    values : ndarray of float64 (k,)
        What was observed, in the data's units.
    predictions : ndarray of float64 (k,)
        What was predicted, in the same units.
    folds : ndarray of int (k,)
        Entries with the same number were left out together.
    """

    positions: npt.NDArray[np.int64]
    values: Values
    predictions: Values
    folds: npt.NDArray[np.int64]

    @property
    def errors(self) -> Values:
        """Absolute errors of the predictions, (k,)."""
        return np.abs(self.values - self.predictions)

    def of_problem(self, problem: tuple[int, ...]) -> Calibration:
        """Return the entries of one problem of a stack, with positions in its matrix."""
        mine = (self.positions[:, : len(problem)] == np.asarray(problem, dtype=np.int64)).all(axis=1)
        return Calibration(
            self.positions[mine, len(problem) :], self.values[mine], self.predictions[mine], self.folds[mine]
        )


def calibration(
    observed: Array,
    folds: Iterable[tuple[Bools, npt.NDArray[Any]]],
    normalization: Normalization,
    bounds: Bounds | None = None,
) -> Calibration | None:
    """Return the entries that were left out with their predictions; None if there are none.

    Parameters
    ----------
    observed : array (…, m, n)
        In the data's units.
    folds : iterable of (ndarray of bool (…, m, n), ndarray (…, m, n))
        Entries that were left out together, and a matrix without them, in normalised units.
    normalization : Normalization
        Of these matrices.
    bounds : Bounds, optional
        Of the predictions.
    """
    # In float64, because residuals may be a millionth of the offset.
    parts = (normalization.offset, normalization.scale)
    offset, scale = (to_numpy(part).astype(np.float64) for part in parts)
    known = to_numpy(observed).astype(np.float64)
    found = []
    for fold, (left_out, predicted) in enumerate(folds):
        matrix = offset + scale * predicted.astype(np.float64)
        if bounds is not None:
            matrix = bounds.put_on(matrix)
        number = np.full(int(left_out.sum()), fold, dtype=np.int64)
        found.append((np.argwhere(left_out), known[left_out], matrix[left_out], number))
    if not any(len(number) for *_, number in found):
        return None
    return Calibration(*(np.concatenate(column) for column in zip(*found, strict=True)))


_ROUNDING = 1e-9
"""Keeps rounding from raising (n + 1)·level, a whole number for levels such as 0.9, to the next one."""


def fewest(level: float) -> int:
    """Return the least number of scores that a level needs: n ≥ level / (1 − level).

    Examples
    --------
    >>> fewest(0.5), fewest(0.9), fewest(0.95)
    (1, 9, 19)
    """
    return max(1, math.ceil(level / (1 - level) - _ROUNDING))


def quantile(scores: Values, level: float) -> float:
    """Return the ⌈(n + 1)·level⌉th score, which a new one exceeds with probability 1 − ``level`` at most.

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
    rank = max(1, math.ceil((len(scores) + 1) * level - _ROUNDING))
    if rank > len(scores):
        raise ValueError(f"scores: a level of {level:g} needs at least {fewest(level)}, got {len(scores)}")
    return float(np.partition(scores, rank - 1)[rank - 1])
