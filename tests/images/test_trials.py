"""Trials on held-out pixels: what they choose, the error they expect, and the intervals they calibrate."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

import airnp
from airnp import masks
from airnp.images.painting import Painter
from airnp.images.surfaces import biharmonic_surface
from airnp.images.trials import (
    Calibration,
    Overrides,
    _mean_and_error,
    _share,
    candidate,
    choose,
    depth,
    form,
    sample,
)

SIDE = 64


def texture(seed: int, side: int = SIDE) -> np.ndarray:
    """Return stripes with noise: alike everywhere, so held-out pixels are as hard as others."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:side, :side]
    waves = np.sin(0.9 * x + 0.3 * y + rng.random()) + np.sin(0.35 * x - 0.8 * y + rng.random())
    return waves / 4 + 0.5 + 0.03 * rng.standard_normal((side, side))


def smooth_with_noise(seed: int) -> np.ndarray:
    noise = np.random.default_rng(seed).standard_normal((2, SIDE, SIDE))
    surface = gaussian_filter(noise[0], 12)
    return surface / np.ptp(surface) + 0.01 * noise[1]


def hole_mask() -> np.ndarray:
    mask = np.ones((SIDE, SIDE), bool)
    for top, left in ((6, 10), (30, 40), (44, 8), (12, 44)):
        mask[top : top + 7, left : left + 9] = False
    return mask


def mean_error(found, truth, mask):
    return float(np.abs(found - truth)[~mask].mean())


@pytest.mark.parametrize("kind", ["scattered", "holes"])
def test_the_expected_error_is_the_true_one_within_its_own(kind):
    away = []
    for seed in range(4):
        truth = texture(seed)
        mask = masks.random(truth.shape, 0.4, seed=seed) if kind == "scattered" else hole_mask()
        found = airnp.inpaint(truth, mask, full=True, seed=seed)
        assert 0 < found.expected_error < found.expected
        away.append((mean_error(found.image, truth, mask) - found.expected) / found.expected_error)
    # The true mean has an error of its own, as large in holes, and the best of several looks a bit too good.
    assert max(map(abs, away)) < 6
    assert abs(np.mean(away)) < 3


def test_the_expected_error_is_that_of_the_whole_picture_not_of_the_parts_that_were_tried():
    ratios = []
    for seed in range(4):
        truth = gaussian_filter(np.random.default_rng(seed).standard_normal((88, 352)), 1.2)
        truth[:, 120:] *= 0.1  # a third of the picture has nearly all of the error
        mask = masks.random(truth.shape, 0.4, seed=seed)
        found = airnp.inpaint(truth, mask, full=True, seed=seed, quality="fast")
        ratios.append(found.expected / mean_error(found.image, truth, mask))
    # The parts alone are wrong by factors of 0.26 to 2.0 here.
    assert min(ratios) > 0.6
    assert max(ratios) < 1.5


@pytest.mark.parametrize("level", [0.5, 0.9])
@pytest.mark.parametrize("missing", [0.3, 0.6])
def test_intervals_cover_what_they_say(missing, level):
    inside = []
    for seed in range(3):
        truth = texture(seed)
        mask = masks.random(truth.shape, missing, seed=seed)
        found = airnp.inpaint(truth, mask, full=True)
        low, high = found.interval(level)
        np.testing.assert_array_equal(low[mask], truth[mask])
        np.testing.assert_array_equal(high[mask], truth[mask])
        assert (found.std[~mask] > 0).all()
        assert (found.std[mask] == 0).all()
        inside.append(np.mean((low <= truth) & (truth <= high), where=~mask))
    assert abs(np.mean(inside) - level) < 0.08


def test_wider_intervals_contain_narrower_ones():
    truth = texture(0, 40)
    found = airnp.inpaint(truth, masks.random(truth.shape, 0.4, seed=0), full=True)
    widths = [np.subtract(*found.interval(level)[::-1]) for level in (0.1, 0.5, 0.9, 0.99)]
    assert all((one <= other).all() for one, other in itertools.pairwise(widths))
    for level in (0, 1, -0.5, 1.5):
        with pytest.raises(ValueError, match=r"^level: expected a number between 0 and 1"):
            found.interval(level)
    smooth = airnp.inpaint(truth, truth > 0.3, method="linear", full=True)
    with pytest.raises(ValueError, match=r"^interval: method 'linear' has no variances"):
        smooth.interval()


@pytest.mark.parametrize("missing", [0.3, 0.7])
def test_on_a_smooth_picture_it_is_no_worse_than_the_smooth_surface(missing):
    ratios = []
    for seed in range(3):
        truth = smooth_with_noise(seed)
        mask = masks.random(truth.shape, missing, seed=seed)
        plain = biharmonic_surface(np.where(mask, truth, 0), mask)
        found = airnp.inpaint(truth, mask)
        ratios.append(mean_error(found, truth, mask) / mean_error(plain, truth, mask))
    assert max(ratios) < 1.03


def test_a_smooth_surface_that_is_clearly_better_gets_a_share():
    rng = np.random.default_rng(0)
    truth, blocks = rng.random(500), np.arange(500) // 5
    good, bad = truth + 0.01 * rng.standard_normal(500), truth + 0.3 * rng.standard_normal(500)
    even = np.ones(500)
    assert _share(bad, good, truth, even, blocks, prior=0.0) >= 0.9
    assert _share(good, bad, truth, even, blocks, prior=0.0) == 0
    assert _share(good, good, truth, even, blocks, prior=0.5) == 0.5
    one, other = truth + 0.1 * rng.standard_normal((2, 500))
    assert 0.2 < _share(one, other, truth, even, blocks, prior=0.0) < 0.8


def test_the_same_seed_gives_the_same_choice():
    truth = texture(0)
    mask = masks.random(truth.shape, 0.4, seed=0)
    first, again, other = (airnp.inpaint(truth, mask, full=True, seed=seed) for seed in (5, 5, 6))
    assert first.chosen == again.chosen
    assert first.expected == again.expected
    np.testing.assert_array_equal(first.image, again.image)
    np.testing.assert_array_equal(first.std, again.std)
    assert first.expected != other.expected


@pytest.mark.parametrize("method", ["auto", "patches"])
def test_what_the_user_chooses_is_honoured(method):
    truth = texture(0, 40)
    for mask in (masks.random(truth.shape, 0.4, seed=0), hole_mask()[:40, :40]):
        found = airnp.inpaint(truth, mask, method=method, patch=3, search=4, neighbours=17, full=True)
        assert {name: found.chosen[name] for name in ("patch", "search", "neighbours")} == {
            "patch": 3,
            "search": 4,
            "neighbours": 17,
        }
        default = airnp.inpaint(truth, mask, method=method)
        assert not np.array_equal(found.image, default)


@pytest.mark.parametrize("quality", ["best", "fast"])
@pytest.mark.parametrize("channels", [1, 2, 3, 4, 7, 24])
@pytest.mark.parametrize("gaps", ["scattered", "thin", "deep"])
def test_candidates_fit_their_channels(channels, quality, gaps):
    found = candidate(channels, quality, gaps, Overrides())
    for how in found.rounds:
        assert 1 <= how.stride <= how.patch
        assert channels * how.patch**2 <= 128
    assert found.rounds[-1].step == 1
    only = candidate(channels, quality, gaps, Overrides(patch=4, search=3, neighbours=9))
    assert {(how.patch, how.search, how.neighbours) for how in only.rounds} == {(4, 3, 9)}
    assert only.graph.search == 3


def test_the_form_of_gaps():
    deep = np.ones((SIDE, SIDE), bool)
    deep[20:44, 20:44] = False
    forms = {
        "scattered": masks.random((SIDE, SIDE), 0.4, seed=0),
        "thin": masks.scratches((SIDE, SIDE), 3, seed=0),
        "deep": deep,
    }
    for name, mask in forms.items():
        assert form(mask[np.newaxis, np.newaxis]) == name


def test_held_out_pixels_are_observed_ones_in_the_shape_of_the_gaps():
    rng = np.random.default_rng(0)
    values = rng.random((1, 2, SIDE, SIDE)).astype(np.float32)
    for shared in (True, False):
        for mask in (masks.random((SIDE, SIDE), 0.4, seed=0), hole_mask()):
            observed = np.stack([mask, mask if shared else mask[::-1]])[np.newaxis]
            (part,) = sample(values, observed, form(observed), "best", rng)
            assert part.held.any(axis=(0, 2, 3)).all()
            assert not (part.held & ~observed).any()
            np.testing.assert_array_equal(part.observed, observed & ~part.held)
            assert part.weights.shape == part.blocks.shape == part.truth.shape
            assert (part.weights >= 0).all()
            if shared:
                np.testing.assert_array_equal(part.held[:, 0], part.held[:, 1])


def test_too_few_pixels_for_trials_leave_the_default():
    values = np.random.default_rng(0).random((1, 1, 4, 5)).astype(np.float32)
    observed = np.ones(values.shape, bool)
    observed[..., 2, 2] = False
    choice = choose(values, observed, "best", Overrides(), Painter(), 0)
    assert np.isnan(choice.ratio)
    assert choice.errors == {}
    assert (choice.flat, choice.smooth) == (0, 0)


def test_depth_is_the_mean_distance_to_observed_pixels():
    observed = np.ones((1, 1, 9, 9), bool)
    observed[..., 4, 4] = False
    assert depth(observed) == 1
    observed[..., 3:6, 3:6] = False
    assert depth(observed) == pytest.approx(10 / 9)


def test_calibration_counts_by_weight():
    ratios, weights = np.array([1.0, 2.0, 3.0]), np.array([1.0, 0.0, 3.0])
    calibration = Calibration.of(ratios, weights, floor=0.25)
    assert calibration.width(0.2) == 1
    assert calibration.width(0.3) == 3
    assert calibration.deviation(0.75) == 1


def test_the_standard_error_counts_blocks_as_one():
    rng = np.random.default_rng(0)
    values, even = rng.standard_normal(4000), np.ones(4000)
    mean, unsure = _mean_and_error(values, even, np.arange(4000))
    assert mean == pytest.approx(values.mean())
    assert unsure == pytest.approx(1 / np.sqrt(4000), rel=0.1)
    repeated = np.repeat(values[:400], 10)
    _, together = _mean_and_error(repeated, even, np.arange(4000) // 10)
    assert together == pytest.approx(1 / np.sqrt(400), rel=0.1)
