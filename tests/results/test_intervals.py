"""Intervals: conformal coverage, the difficulty scale, empty lines, and the intervals of fits."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import ndimage
from scipy.sparse.linalg import aslinearoperator

import airnp
from airnp import HeldOut
from airnp._arrays import to_numpy
from airnp.completing.lowrank import fit_low_rank
from airnp.data.holdout import holes
from airnp.results import calibration as conformal
from airnp.results import difficulty
from airnp.results.calibration import Calibration
from airnp.results.difficulty import fill, scale_of_holes
from airnp.results.intervals import half_widths
from tests.strategies import seeds

levels = st.floats(0.01, 0.99)


# --- conformal ---


@given(st.integers(1, 60), st.sampled_from([0.5, 0.8, 0.9, 0.95]) | levels, st.booleans(), seeds)
def test_a_new_score_is_within_the_quantile_as_often_as_was_promised(count, level, tied, seed):
    count = max(count, conformal.fewest(level))
    scores = np.random.default_rng(seed).permutation(count + 1) // (3 if tied else 1)
    # Each of n + 1 exchangeable scores is as likely as any other to be the new one.
    inside = [
        scores[new] <= conformal.quantile(np.delete(scores, new).astype(float), level)
        for new in range(count + 1)
    ]
    assert np.mean(inside) >= level - 1e-9
    if not tied:
        assert np.mean(inside) <= level + 1 / (count + 1) + 1e-9


@given(levels)
def test_fewer_scores_than_needed_are_refused(level):
    enough = conformal.fewest(level)
    assert conformal.quantile(np.arange(enough, dtype=float), level) <= enough - 1
    if enough > 1:
        with pytest.raises(ValueError, match=f"needs at least {enough}, got {enough - 1}"):
            conformal.quantile(np.zeros(enough - 1), level)


# --- difficulty ---


def regression_problem(seed, count=400):
    rng = np.random.default_rng(seed)
    known = rng.standard_normal((count, 3))
    return known, np.exp(known @ [0.8, -0.5, 0.0]) * rng.exponential(size=count), rng


@given(seeds)
def test_the_regression_is_at_the_minimum_of_its_objective(seed):
    known, errors, rng = regression_problem(seed)
    design = np.hstack([np.ones((len(known), 1)), known])

    def objective(coefficients):
        log = design @ coefficients
        return (errors * np.exp(-log) + log).sum() + 0.5 * 7.0 * (coefficients[1:] ** 2).sum()

    found = difficulty._regression(design, errors, 7.0)
    for direction in rng.standard_normal((5, 4)):
        slope = (objective(found + 1e-5 * direction) - objective(found - 1e-5 * direction)) / 2e-5
        assert abs(slope) < 1e-4
        assert objective(found + 0.01 * direction) > objective(found)


def test_the_scale_follows_what_makes_errors_large():
    known, errors, _ = regression_problem(0, count=3000)
    scale = difficulty.fit_scale(known, errors)(known)
    expected = np.exp(known @ [0.8, -0.5, 0.0])
    assert np.corrcoef(np.log(scale), np.log(expected))[0, 1] > 0.99


def test_errors_of_one_size_have_one_scale():
    known, _, rng = regression_problem(1, count=3000)
    scale = difficulty.fit_scale(known, rng.exponential(size=3000))(known)
    assert scale.max() < 1.3 * scale.min()


@pytest.mark.parametrize("errors", [np.zeros(30), np.eye(30)[0], np.full(30, 1e-30)])
def test_errors_that_say_nothing_give_scales_that_are_finite_and_positive(errors):
    known = np.random.default_rng(0).standard_normal((30, 3))
    known[:, 2] = 4.0
    for scale in (
        difficulty.fit_scale(known, errors)(100 * known),
        difficulty.cross_fit_scales(known, errors),
    ):
        assert np.isfinite(scale).all()
        assert (scale >= 0).all()
    assert (scale > 0).all()


def test_a_scale_is_tempered_so_that_intervals_are_narrow():
    known, errors, rng = regression_problem(3, count=2000)
    scale = np.exp(known @ [0.8, -0.5, 0.0])

    def width(scores, wanted):
        return conformal.quantile(errors / scores, 0.9) * wanted.mean()

    kept, wanted = difficulty.temper(scale, scale, errors)
    np.testing.assert_array_equal(kept, wanted)
    assert width(kept, wanted) < 0.9 * width(np.ones(2000), np.ones(2000))
    assert width(kept, wanted) <= width(scale, scale)
    errors = np.where(rng.random(2000) < 0.02, 1.0, 1e-3)  # large ones come unforeseen
    np.testing.assert_array_equal(difficulty.temper(scale, scale, errors), 1.0)


def test_few_errors_have_one_width():
    _, errors, _ = regression_problem(4, count=99)
    np.testing.assert_array_equal(difficulty.temper(errors, errors, errors), 1.0)


def test_an_entry_has_no_say_in_its_own_scale():
    known, errors, _ = regression_problem(2, count=40)
    larger = errors.copy()
    larger[3] *= 1000
    assert difficulty.cross_fit_scales(known, larger)[3] == difficulty.cross_fit_scales(known, errors)[3]
    assert difficulty.cross_fit_scales(known, larger)[4] != difficulty.cross_fit_scales(known, errors)[4]


# --- coverage where it can be known exactly ---


def noisy(seed, shape=(60, 50), uneven=True):
    """A matrix with noise that depends on its column, a prediction without it, and random entries."""
    rng = np.random.default_rng(seed)
    clean = rng.random((shape[0], 1)) @ rng.random((1, shape[1]))
    size = np.linspace(0.01, 0.1, shape[1]) if uneven else 0.05
    truth = clean + size * rng.standard_normal(shape)
    kind = rng.choice(3, p=[0.6, 0.1, 0.3], size=shape)  # fitted, held out, missing
    held_out = np.argwhere(kind == 1)
    place = tuple(held_out.T)
    folds = np.zeros(len(held_out), dtype=np.int64)
    return truth, clean, kind != 2, Calibration(held_out, truth[place], clean[place], folds)


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9, 0.95])
@pytest.mark.parametrize("uneven", [False, True])
def test_exchangeable_entries_are_covered_as_often_as_was_promised(level, uneven):
    shares = []
    for seed in range(40):
        truth, clean, mask, calibration = noisy(seed, uneven=uneven)
        width = half_widths(clean, np.where(mask, truth, 0.0), mask, calibration, level)
        shares.append((np.abs(truth - clean) <= width)[~mask].mean())
    # One seed: 300 held-out and 900 missing entries. Three standard errors of the mean.
    spread = np.sqrt(level * (1 - level) * (1 / 300 + 1 / 900) / 40)
    assert abs(np.mean(shares) - level) < 3 * spread + 0.003


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9])
def test_few_held_out_entries_make_wide_intervals_rather_than_wrong_ones(level):
    shares, counts = [], []
    for seed in range(60):
        truth, clean, mask, calibration = noisy(seed, shape=(20, 16))
        width = half_widths(clean, np.where(mask, truth, 0.0), mask, calibration, level)
        shares.append((np.abs(truth - clean) <= width)[~mask].mean())
        counts.append(len(calibration.values))
    assert np.mean(counts) < 40
    assert level - 0.03 < np.mean(shares) < level + 0.06


def test_intervals_are_wider_where_there_is_more_noise_and_narrower_on_average_than_one_width():
    truth, clean, mask, calibration = noisy(0, shape=(120, 100))
    width = half_widths(clean, np.where(mask, truth, 0.0), mask, calibration, 0.9)
    left, right = width[:, :30][~mask[:, :30]], width[:, -30:][~mask[:, -30:]]
    assert right.mean() > 2 * left.mean()
    constant = conformal.quantile(calibration.errors, 0.9)
    assert width[~mask].mean() < 0.95 * constant


# --- rows and columns without entries ---


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9])
def test_empty_rows_and_columns_are_covered_as_often_as_promised(level):
    empty = np.zeros((60, 50), dtype=bool)
    empty[:4], empty[:, :3] = True, True
    parts = {"rows": np.s_[:4, 3:], "columns": np.s_[4:, :3], "both": np.s_[:4, :3]}
    shares = {name: [] for name in parts}
    for seed in range(60):
        truth, _, mask, calibration = noisy(seed)
        rng = np.random.default_rng([seed, 1])
        truth = truth + rng.standard_normal((60, 1)) + rng.standard_normal((1, 50))
        mask = mask & ~empty
        kept = ~empty[tuple(calibration.positions.T)]
        positions = calibration.positions[kept]
        known = truth[tuple(positions.T)]
        calibration = Calibration(positions, known, known + 0.01, calibration.folds[kept])
        guess = rng.standard_normal(truth.shape)  # a fit knows nothing about empty lines
        width = half_widths(guess, np.where(mask, truth, 0.0), mask, calibration, level)
        for name, part in parts.items():
            shares[name].append((np.abs(truth - guess) <= width)[part].mean())
        np.testing.assert_allclose(width[~mask & ~empty], 0.01, rtol=1e-3)
    assert min(np.mean(each) for each in shares.values()) >= level


@pytest.mark.parametrize("lines", [np.s_[::5], np.s_[:, ::5]], ids=["rows", "columns"])
def test_a_fit_is_uncertain_about_empty_lines(lines):
    mask = MASK.copy()
    mask[lines] = False
    with pytest.warns(airnp.EmptyLineWarning):
        result = fit(TRUTH, mask, regularizers=[], learning_rate=1e-2, max_iter=2000)
    lower, upper = result.interval(0.9)
    assert ((lower <= TRUTH) & (upper >= TRUTH))[lines].mean() >= 0.9
    others = ~mask
    others[lines] = False
    assert (upper - lower)[lines].min() > 2 * np.median((upper - lower)[others])


# --- holes in pictures ---


def holey(seed, shape=(72, 72)):
    """A picture that is calm on the left and rough on the right, with holes that local means fill."""
    rng = np.random.default_rng(seed)
    truth = ndimage.gaussian_filter(rng.standard_normal(shape), 2)
    truth *= np.where(np.arange(shape[1]) < shape[1] // 2, 0.1, 1.0)
    mask = np.ones(shape, dtype=bool)
    for top, left in rng.integers(0, (shape[0] - 12, shape[1] - 12), size=(2, 2)):
        mask[top : top + 12, left : left + 12] = False
    held_out = holes(mask, 300, rng)
    place = np.argwhere(held_out)
    predictions = fill(mask & ~held_out, truth)[held_out]
    folds = np.zeros(len(place), dtype=np.int64)
    return truth, fill(mask, truth), mask, Calibration(place, truth[held_out], predictions, folds)


def test_holes_are_covered_better_than_by_one_width():
    shares, constant_shares, rougher = [], [], []
    for seed in range(12):
        truth, found, mask, calibration = holey(seed)
        width = half_widths(found, np.where(mask, truth, 0.0), mask, calibration, 0.8)
        errors = np.abs(truth - found)[~mask]
        shares.append((errors <= width[~mask]).mean())
        constant = conformal.quantile(calibration.errors, 0.8)
        constant_shares.append((errors <= constant).mean())
        calm, rough = (width[:, half][~mask[:, half]] for half in (np.s_[:27], np.s_[45:]))
        if len(calm) and len(rough):
            rougher.append(rough.mean() / calm.mean())
    assert abs(np.mean(shares) - 0.8) < 0.06
    assert np.abs(np.subtract(shares, 0.8)).mean() < 0.7 * np.abs(np.subtract(constant_shares, 0.8)).mean()
    assert len(rougher) > 2
    assert min(rougher) > 2


def test_the_middle_of_a_hole_is_less_certain_than_its_edge():
    truth, _, mask, _ = holey(0)
    scale = scale_of_holes(mask, truth)
    deep, shallow = scale(np.log([[6.0, 0.1, 0.1], [1.0, 0.1, 0.1]]))
    assert deep > 1.3 * shallow


def test_holes_without_room_for_a_copy_teach_nothing():
    known = np.zeros((10, 10), dtype=bool)
    known[0], known[:, 0] = True, True
    assert scale_of_holes(known, np.ones((10, 10))) is None


def test_values_that_are_missing_do_not_matter():
    truth, found, mask, calibration = holey(1)
    first, second = (
        half_widths(found, np.where(mask, truth, other), mask, calibration, 0.9) for other in (0.0, 1e6)
    )
    np.testing.assert_array_equal(first, second)


# --- after a fit ---

RNG = np.random.default_rng(5)
TRUTH = RNG.random((30, 2)) @ RNG.random((2, 24)) + 0.05 * RNG.standard_normal((30, 24))
MASK = RNG.random(TRUTH.shape) < 0.7


def fit(Y=TRUTH, mask=MASK, **options):
    return airnp.fit(Y, mask, **{"max_iter": 600, "seed": 1, **options})


RESULT = fit()


def test_observed_entries_are_their_own_interval_and_missing_ones_are_around_x():
    lower, upper = RESULT.interval(0.8)
    np.testing.assert_array_equal(lower[MASK], TRUTH[MASK])
    np.testing.assert_array_equal(upper[MASK], TRUTH[MASK])
    gaps = ~MASK
    assert (lower[gaps] < RESULT.X[gaps]).all()
    np.testing.assert_allclose((lower + upper)[gaps] / 2, RESULT.X[gaps], rtol=1e-12)


@given(levels, levels)
def test_a_higher_level_is_never_narrower(one, other):
    low, high = (min(level, 0.95) for level in sorted((one, other)))
    (inner_low, inner_high), (outer_low, outer_high) = RESULT.interval(low), RESULT.interval(high)
    assert (outer_low <= inner_low).all()
    assert (inner_high <= outer_high).all()


@pytest.mark.parametrize(("factor", "shift"), [(1000.0, 0.0), (0.25, 7.0), (-3.0, 2.0)])
def test_intervals_have_the_units_of_the_data(factor, shift):
    """The interval of a·Y + b is a·(interval of Y) + b, with the ends exchanged for a < 0."""
    calibration = RESULT.calibration

    def moved(values):
        return factor * values + shift

    other = replace(
        RESULT,
        matrix=moved(RESULT.matrix),
        observed=np.where(MASK, moved(RESULT.observed), 0.0),
        calibration=Calibration(
            calibration.positions,
            moved(calibration.values),
            moved(calibration.predictions),
            calibration.folds,
        ),
    )
    expected = sorted((moved(side) for side in RESULT.interval()), key=np.sum)
    for found, wanted in zip(other.interval(), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6 * abs(factor))


def test_a_fit_of_scaled_data_has_scaled_intervals():
    scaled = fit(TRUTH * 64)  # a power of two: no digit of the data changes
    for found, wanted in zip(scaled.interval(), RESULT.interval(), strict=True):
        np.testing.assert_allclose(found, 64 * wanted, rtol=1e-9)


def test_predictions_are_those_of_an_iterate_that_had_not_seen_the_entries():
    options = {"regularizers": [], "learning_rate": 1e-2, "max_iter": 3000}
    before, after = (fit(stop=HeldOut(refit=refit, patience=200), **options) for refit in (False, True))
    assert after.n_iter > before.n_iter, "there is a second phase"
    positions = tuple(before.calibration.positions.T)
    assert len(positions[0]) == 25
    np.testing.assert_array_equal(before.calibration.values, TRUTH[positions])
    np.testing.assert_allclose(before.calibration.predictions, before.X[positions], rtol=1e-12)
    assert not np.allclose(after.X[positions], before.X[positions])
    for name in ("positions", "values", "predictions", "folds"):
        np.testing.assert_array_equal(getattr(before.calibration, name), getattr(after.calibration, name))


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_a_matrix_of_low_rank_is_calibrated_on_entries_that_are_left_out(noise):
    rng = np.random.default_rng(2)
    truth = rng.random((50, 2)) @ rng.random((2, 40)) + noise * rng.standard_normal((50, 40))
    mask = rng.random(truth.shape) < 0.6
    result = fit_low_rank(truth, mask, seed=0)
    positions = tuple(result.calibration.positions.T)
    assert not np.array_equal(result.X[positions], result.calibration.predictions)
    assert len(set(result.calibration.folds)) == 10
    assert len(np.unique(result.calibration.positions, axis=0)) == len(result.calibration.values)
    assert 0.15 < len(result.calibration.values) / mask.sum() < 0.21
    lower, upper = result.interval(0.9)
    assert 0.85 < ((lower <= truth) & (truth <= upper))[~mask].mean() < 0.96
    assert (upper - lower)[~mask].mean() < (0.01 if noise == 0 else 0.4)


def test_each_problem_of_a_stack_has_its_own_intervals():
    stack, masks = np.stack([TRUTH, 100 * TRUTH[::-1]]), np.stack([MASK, RNG.random(MASK.shape) < 0.6])
    both = fit(stack, masks)
    for place in range(2):
        lone = replace(
            RESULT,
            matrix=both.matrix[place],
            mask=masks[place],
            observed=both.observed[place],
            calibration=both.calibration.of_problem((place,)),
        )
        for found, wanted in zip(both.interval(), lone.interval(), strict=True):
            np.testing.assert_array_equal(found[place], wanted)


def test_intervals_keep_the_bounds(tmp_path):
    stars = np.clip(np.round(5 * TRUTH + RNG.standard_normal(TRUTH.shape)), 1, 5)
    free = fit(stars)
    bounded, whole = (fit(stars, bounds=bounds) for bounds in ((1, 5), airnp.Integers(1, 5)))
    assert min(side.min() for side in free.interval()) < 1
    for side in bounded.interval():
        assert (side >= 1).all()
        assert (side <= 5).all()
    lower, upper = whole.interval()
    np.testing.assert_array_equal([lower, upper], np.round([lower, upper]))
    assert (lower <= whole.X)[~MASK].all()
    assert (upper >= whole.X)[~MASK].all()
    whole.save(tmp_path / "a.npz")
    np.testing.assert_array_equal(airnp.load(tmp_path / "a.npz").interval(), whole.interval())


def test_nothing_missing_needs_no_interval():
    lower, upper = fit(TRUTH, np.ones_like(MASK)).interval()
    np.testing.assert_array_equal(lower, TRUTH)
    np.testing.assert_array_equal(upper, TRUTH)


def test_labels_come_back():
    table = pd.DataFrame(TRUTH, index=[f"r{i}" for i in range(30)]).where(MASK)
    result = fit(table, None)
    lower, upper = result.interval(0.8)
    for side in (lower, upper):
        pd.testing.assert_index_equal(side.index, table.index)
        pd.testing.assert_index_equal(side.columns, table.columns)
    assert (lower <= upper).all(axis=None)


def test_a_saved_result_has_the_same_intervals(tmp_path):
    RESULT.save(tmp_path / "a.npz")
    loaded = airnp.load(tmp_path / "a.npz")
    for found, wanted in zip(loaded.interval(), RESULT.interval(), strict=True):
        np.testing.assert_array_equal(found, wanted)
    fit(stop=None, max_iter=2).save(tmp_path / "b.npz")
    assert airnp.load(tmp_path / "b.npz").calibration is None


def test_intervals_are_arrays_of_the_namespace(backend):
    result = fit(backend.array(TRUTH.astype(np.float32)), backend.array(MASK), max_iter=100)
    for side, host in zip(result.interval(), result.to_numpy().interval(), strict=True):
        assert type(side) is type(result.matrix)
        assert side.dtype == result.matrix.dtype
        np.testing.assert_array_equal(to_numpy(side), host)


def test_rounding_to_float32_neither_adds_nor_loses_numbers():
    """Errors of a few units in the last place: ends that were rounded outwards would cover too much."""
    truth = TRUTH.astype(np.float32)
    place = np.argwhere(MASK)[:50]
    values = truth[tuple(place.T)].astype(np.float64)
    result = replace(
        fit(truth, max_iter=2),
        matrix=truth + RNG.integers(-5, 6, truth.shape).astype(np.float32) * np.spacing(np.float32(0.5)),
        calibration=Calibration(place, values, values + 2e-7, np.zeros(50, dtype=np.int64)),
    )
    wide = replace(
        result, matrix=result.matrix.astype(np.float64), observed=result.observed.astype(np.float64)
    )
    (lower, upper), (exact_lower, exact_upper) = result.interval(0.5), wide.interval(0.5)
    assert lower.dtype == np.float32
    inside = (lower <= truth) & (truth <= upper)
    np.testing.assert_array_equal(inside, (exact_lower <= truth) & (truth <= exact_upper))
    assert 0.2 < inside[~MASK].mean() < 0.8
    assert (lower <= result.X)[~MASK].all()
    assert (upper >= result.X)[~MASK].all()


def test_intervals_on_a_device(cupy_double):
    cupy = cupy_double.cupy
    result = fit(xp=cupy, engine="reference", max_iter=50)
    lower, upper = result.interval(0.8)
    assert isinstance(lower, cupy.ndarray)
    assert (lower.get() <= upper.get()).all()


@pytest.mark.parametrize("level", [0, 1, -0.1, 1.5, 90])
def test_a_level_is_between_0_and_1(level):
    with pytest.raises(ValueError, match=r"level: expected a number between 0 and 1, such as 0\.9, got"):
        RESULT.interval(level)


@pytest.mark.parametrize("level", ["0.9", None, True])
def test_a_level_is_a_number(level):
    with pytest.raises(TypeError, match="level: expected a number"):
        RESULT.interval(level)


def test_what_cannot_be_calibrated_is_refused():
    with pytest.raises(ValueError, match=r"held out no entries.*stop='auto'"):
        fit(stop=None, max_iter=2).interval()
    with pytest.raises(ValueError, match=re.escape("0.99 needs at least 99 held-out entries, there are 25")):
        RESULT.interval(0.99)
    measured = airnp.fit(
        np.arange(6.0),
        operator=airnp.Operator(aslinearoperator(np.eye(6)), (2, 3)),
        regularizers=[],
        max_iter=20,
        seed=0,
    )
    with pytest.raises(ValueError, match="operator"):
        measured.interval()
