"""Levels of intervals that no fit could have are refused before it begins, and no others."""

from __future__ import annotations

import numpy as np
import pytest

import airnp
from airnp.results.calibration import fewest
from airnp.training.stopping import NeverStop, check_interval_level

RNG = np.random.default_rng(0)
VALUES = RNG.random((24, 15))
MASK = airnp.masks.random(VALUES.shape, missing=0.2, seed=0)
HOLES = airnp.masks.patch(VALUES.shape, [(4, 10, 5, 11)])


def largest_level(count: int) -> float:
    return count / (count + 1)


@pytest.mark.parametrize("mask", [MASK, HOLES], ids=["scattered", "holes"])
@pytest.mark.parametrize("fraction", [0.05, 0.3])
def test_exactly_the_levels_that_a_fit_can_have_pass(mask, fraction):
    rule = airnp.HeldOut(fraction=fraction, every=5)
    result = airnp.fit(VALUES, mask, stop=rule, max_iter=10, seed=3)
    level = largest_level(len(result.calibration.errors))
    result.interval(level)
    check_interval_level(level, mask, rule, seed=3)
    above = level + 0.01 * (1 - level)
    assert fewest(above) > len(result.calibration.errors)
    for asked in (result.interval, lambda level: check_interval_level(level, mask, rule, seed=3)):
        with pytest.raises(ValueError, match=r"^level: .* held-out entries, there are"):
            asked(above)


def test_without_held_out_entries_there_are_no_intervals():
    with pytest.raises(ValueError, match=r"^interval: "):
        check_interval_level(0.5, MASK, NeverStop(), seed=0)


def test_a_level_is_a_share():
    with pytest.raises(ValueError, match=r"^level: expected a number between 0 and 1"):
        check_interval_level(1.5, MASK, airnp.HeldOut(), seed=0)
