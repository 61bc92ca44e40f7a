"""What is held out looks like what is missing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import airnp
from airnp.data.holdout import have_holes, holes, like_the_gaps, scattered
from tests.strategies import seeds


def with_box(shape=(60, 50), box=(slice(20, 32), slice(10, 25))):
    observed = np.ones(shape, dtype=bool)
    observed[box] = False
    return observed


@pytest.mark.parametrize("missing", [0.1, 0.3, 0.5, 0.8])
def test_entries_missing_at_random_are_no_holes(missing):
    assert not have_holes(airnp.masks.random((80, 70), missing=missing, seed=0))


@pytest.mark.parametrize(
    "observed",
    [
        with_box(),
        airnp.masks.patch((240, 240)),
        airnp.masks.scratches((120, 100), seed=0),
        airnp.masks.rows((60, 50), missing=0.2, seed=0),
    ],
    ids=["box", "patches", "scratches", "rows"],
)
def test_missing_entries_that_lie_together_are_holes(observed):
    assert have_holes(observed)


@pytest.mark.parametrize("observed", [np.ones((5, 5), bool), np.ones((1, 9), bool), np.eye(2, dtype=bool)])
def test_nothing_missing_and_tiny_matrices_have_none(observed):
    assert not have_holes(observed)


def test_copies_have_the_shape_of_the_hole():
    observed = with_box()
    held = holes(observed, 180, np.random.default_rng(0))
    assert 90 <= held.sum() <= 270
    assert have_holes(~held)
    assert not (held & ~observed).any()


@given(st.integers(2, 25), st.integers(2, 25), st.floats(0.05, 0.9), st.booleans(), seeds)
def test_every_row_and_column_keeps_an_entry(m, n, missing, in_rows, seed):
    rng = np.random.default_rng(seed)
    observed = rng.random((m, n)) >= missing
    if in_rows:
        observed[rng.random(m) < missing] = False
    if observed.sum() < 2:
        return
    held = like_the_gaps(observed, max(1, int(0.2 * observed.sum())), rng)
    assert not (held & ~observed).any()
    kept = observed & ~held
    for axis in (0, 1):
        np.testing.assert_array_equal(kept.any(axis=axis), observed.any(axis=axis))


def test_where_no_copy_fits_entries_are_scattered():
    observed = np.ones((12, 12), dtype=bool)
    observed[:, 2:11] = False  # a copy would take all of some row
    held = like_the_gaps(observed, 6, np.random.default_rng(0))
    assert held.sum() == 6


def test_the_number_scattered_is_the_number_wanted():
    observed = airnp.masks.random((30, 30), missing=0.4, seed=1)
    assert scattered(observed, 17, np.random.default_rng(0)).sum() == 17


def test_a_fit_of_a_picture_with_a_hole_holds_out_a_hole():
    observed = with_box()
    values = np.linspace(0, 1, observed.size).reshape(observed.shape)
    seen = []
    rule = airnp.HeldOut()
    begin = rule.begin
    rule.begin = lambda *arguments: seen.append(begin(*arguments)) or seen[-1]
    airnp.fit(values, observed, stop=rule, max_iter=5, seed=0)
    assert have_holes(~seen[0].held_out)
