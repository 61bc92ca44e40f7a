"""Matrices of low rank: found in closed-form steps, of the rank that predicts held-out entries best."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import airnp
from airnp._arrays import to_numpy
from airnp.completing.lowrank import _best_rows, find_low_rank, fit_low_rank
from airnp.data.holdout import scattered
from tests.conftest import Backend
from tests.strategies import seeds


def problem(m=60, n=50, rank=3, missing=0.4, noise=0.0, seed=0):
    """A matrix of some rank, largest value 1, which entries are observed, and which of these judge."""
    rng = np.random.default_rng(seed)
    truth = rng.random((m, rank)) @ rng.random((rank, n))
    truth = truth / truth.max() + noise * rng.standard_normal((m, n))
    observed = rng.random((m, n)) >= missing
    return truth, observed, scattered(observed, observed.sum() // 20, rng)


def recover(values, weights, judges, rank=100):
    """Return the matrix that is found, and its rank."""
    left, right = find_low_rank(values, weights * 1.0, judges, rank)
    return left @ right.T, left.shape[1]


@given(st.integers(30, 60), st.integers(30, 60), st.integers(1, 5), seeds)
def test_an_exact_matrix_is_found_whatever_its_rank(m, n, rank, seed):
    truth, observed, judges = problem(m, n, rank, missing=0.3, seed=seed)
    assert np.abs(recover(truth, observed, judges)[0] - truth).mean() < 2e-3


def test_a_flat_spectrum_is_climbed_to_its_end():
    rng = np.random.default_rng(1)
    left, right = (np.linalg.qr(rng.standard_normal((size, 12)))[0] for size in (120, 100))
    truth = left @ right.T * 3
    observed = rng.random(truth.shape) < 0.6
    matrix, rank = recover(truth, observed, scattered(observed, 300, rng))
    assert rank == 12
    assert np.abs(matrix - truth).max() < 1e-2 * np.abs(truth).max()


@pytest.mark.parametrize("noise", [0, 0.002, 0.1])
def test_the_rank_is_no_higher_than_necessary(noise):
    truth, observed, judges = problem(100, 90, noise=noise)
    matrix, rank = recover(truth, observed, judges)
    assert rank == 3
    assert np.abs(matrix - truth)[~observed].mean() <= max(1.2 * noise, 1e-4)


def test_the_rank_is_no_higher_than_allowed():
    truth, observed, judges = problem(80, 90, rank=4)
    matrix, rank = recover(truth, observed, judges, rank=3)
    assert rank == 3
    assert np.abs(matrix - truth).mean() > 0.01


def test_a_row_with_fewer_entries_than_the_rank_is_completed_like_the_others():
    truth, observed, judges = problem(80, 70, rank=5, missing=0.2)
    observed[7] = False
    observed[7, [3, 40, 61]] = True
    judges[7] = False
    matrix, _ = recover(truth, observed, judges)
    typical = np.abs(truth - truth.mean(axis=0)).mean()
    assert np.abs(matrix[7] - truth[7]).mean() < typical


def test_few_judges_choose_rank_1():
    truth, observed, judges = problem()
    few = np.zeros_like(judges)
    few[tuple(np.argwhere(judges)[:19].T)] = True
    matrix, rank = recover(truth, observed, few)
    assert rank == 1
    assert np.abs(matrix - truth).mean() < 0.5 * np.abs(truth - truth[observed].mean()).mean()


def test_missing_entries_are_not_looked_at():
    truth, observed, judges = problem()
    with_nan, with_seven = (
        recover(np.where(observed, truth, filling), observed, judges)[0] for filling in (np.nan, 7.0)
    )
    np.testing.assert_array_equal(with_nan, with_seven)


def test_entries_of_small_weight_hardly_count():
    truth, observed, judges = problem(noise=0.004)
    wrong = truth.copy()
    bad = observed & ~judges & (np.random.default_rng(3).random(truth.shape) < 0.1)
    wrong[bad] += 1
    errors = [
        np.abs(recover(wrong, weights, judges)[0] - truth).mean()
        for weights in (observed, np.where(bad, 1e-6, observed))
    ]
    assert errors[0] > 0.05
    assert errors[1] < 0.01


def test_the_half_step_minimises_its_objective():
    """‖W½(y − V u)‖² + σ² (u − μ)ᵀ C⁻¹ (u − μ) has gradient zero, row by row."""
    rng = np.random.default_rng(5)
    weights = rng.random((6, 9)) * (rng.random((6, 9)) < 0.7)
    values, other, rows = rng.random((6, 9)), rng.random((9, 2)), rng.random((6, 2))
    noise = 0.3
    best = _best_rows(weights, weights * values, other, rows, noise)
    covariance = np.cov(rows.T, bias=True)
    pull = np.linalg.solve(covariance, (best - rows.mean(axis=0)).T).T
    gradient = (weights * (best @ other.T - values)) @ other + noise * pull
    assert np.abs(gradient).max() < 1e-9


# --- fit_low_rank ---


def test_the_factors_multiply_to_the_matrix_and_the_units_come_back():
    truth, observed, _ = problem()
    shifted = 5 + 40 * truth
    result = fit_low_rank(shifted, observed, seed=0)
    # Rank 3, and one more for the offset that brings the data to [0, 1].
    assert result.stop_reason == "a matrix of rank 4 predicts held-out entries best"
    assert np.abs(result.X - shifted).max() < 1e-2
    assert result.regularizers == []
    assert [factor.shape for factor in result.factors] == [(4, 50), (60, 4)]
    product = result.factors[1] @ result.factors[0]
    np.testing.assert_allclose(result.normalization.undo(product), result.X, atol=1e-9)
    again = fit_low_rank(shifted, observed, seed=0)
    np.testing.assert_array_equal(result.X, again.X)


def test_intervals_cover_what_is_missing():
    truth, observed, _ = problem(noise=0.05)
    result = fit_low_rank(truth, observed, seed=0)
    lower, upper = result.interval(0.9)
    inside = (lower <= truth) & (truth <= upper)
    assert 0.85 < inside[~observed].mean() < 0.97


@pytest.mark.parametrize("value", [0.0, 3.0, -1e6])
def test_equal_entries_with_empty_lines_are_completed_by_their_value(value):
    observed = np.random.default_rng(0).random((20, 15)) < 0.6
    observed[2] = observed[:, 4] = False
    with pytest.warns(airnp.EmptyLineWarning):
        result = fit_low_rank(np.full(observed.shape, value), observed, seed=0)
    np.testing.assert_array_equal(result.X, value)


def test_empty_lines_get_finite_values():
    truth, observed, _ = problem()
    observed[[0, 7]] = observed[:, -1] = False
    with pytest.warns(airnp.EmptyLineWarning):
        result = fit_low_rank(truth, observed, seed=0)
    filled = observed.any(axis=1)[:, None] & observed.any(axis=0)
    assert np.abs(result.X - truth)[filled].max() < 1e-2
    assert np.abs(result.X).max() < 2


def test_a_tiny_matrix_gets_rank_1():
    values = np.outer([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0])
    result = fit_low_rank(values, values != 6, seed=0)
    assert "rank 1" in result.stop_reason
    assert np.abs(result.X - values).mean() < 0.2 * np.abs(values - values.mean()).mean()


def test_every_matrix_of_a_stack_has_its_own_rank():
    truth, observed, _ = problem(40, 40, rank=2)
    other = problem(40, 40, rank=4, seed=1)[0]
    stack = fit_low_rank(np.stack([truth, other]), observed, seed=0)
    assert stack.stop_reason.startswith("a matrix of ranks 3 to ")
    for place, values in enumerate([truth, other]):
        alone = fit_low_rank(values, observed, seed=0)
        np.testing.assert_array_equal(stack.X[place], alone.X)
        errors = stack.calibration.of_problem((place,)).errors
        np.testing.assert_array_equal(errors, alone.calibration.errors)
    product = stack.factors[1] @ stack.factors[0]
    np.testing.assert_allclose(stack.normalization.undo(product), stack.X, atol=1e-9)


def test_all_namespaces(backend: Backend):
    truth, observed, _ = problem(30, 25)
    options = {"seed": 0, "rank": 2, "bounds": (0, 1)}
    here = fit_low_rank(truth, observed, **options)
    there = fit_low_rank(backend.array(truth), backend.array(observed), **options)
    assert type(there.X) is type(backend.array(truth))
    np.testing.assert_allclose(to_numpy(there.X), here.X, rtol=1e-6)
