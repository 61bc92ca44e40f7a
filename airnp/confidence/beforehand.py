"""Whether a fit can have intervals of a level, before it begins."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

from airnp.confidence.intervals import check_enough, checked_level
from airnp.inputs import EmptyLineWarning, read
from airnp.running.explained import drawn_in_turns
from airnp.stopping.rules import StopRule

Bools = npt.NDArray[np.bool_]


def check_level(level: float, values: npt.NDArray[Any], observed: Bools, rule: StopRule, seed: int) -> None:
    """Raise if a fit is sure to leave out too few entries for intervals of a level.

    A fit calibrates on the entries that its rule holds out, or where a matrix of low rank replaces it, on
    those that are left out to judge that. Which of the two it will be is not known before.

    Parameters
    ----------
    level : float
    values : ndarray (m, n)
    observed : ndarray of bool (m, n)
    rule : StopRule
        Of the fit.
    seed : int
        Of the fit.

    Raises
    ------
    ValueError
        With the name of the argument, ``level`` or ``interval``.

    Examples
    --------
    >>> from airnp import HeldOut
    >>> observed = np.random.default_rng(0).random((20, 10)) < 0.8
    >>> check_level(0.9, np.ones((20, 10)), observed, HeldOut(), seed=0)
    >>> check_level(0.99, np.ones((20, 10)), observed, HeldOut(), seed=0)
    Traceback (most recent call last):
    ValueError: level: 0.99 needs at least 99 held-out entries, there are 20; ask for a lower level, or hold
    out more with stop=airnp.HeldOut(fraction=...)
    """
    level = checked_level(level)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EmptyLineWarning)  # the fit will say so
        monitor = rule.begin(read(values, observed), None, seed)
    if monitor.held_out is None:
        raise ValueError("interval: a fit that holds out no entries has none to calibrate on")
    count = int(monitor.held_out.sum())
    if monitor.looks_for_low_rank:
        count = max(count, int(np.any(list(drawn_in_turns(observed)), axis=0).sum()))
    check_enough(level, count)
