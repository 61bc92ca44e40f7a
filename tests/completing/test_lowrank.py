"""Matrices that are simply of low rank: found in closed form, judged by what was held out."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from airnp.training.rival import explained
from hypothesis import given
from hypothesis import strategies as st

import airnp
from airnp import HeldOut
from airnp.completing.lowrank import LowRank, _best_rows, explanation
from airnp.data.holdout import scattered
from airnp.data.inputs import read
from airnp.model.initialization import balanced_factors
from tests.strategies import seeds


def problem(m=60, n=50, rank=3, missing=0.4, noise=0.0, seed=0):
    """A matrix of some rank, largest value 1, which entries are observed, and which of these judge."""
    rng = np.random.default_rng(seed)
    truth = rng.random((m, rank)) @ rng.random((rank, n))
    truth = truth / truth.max() + noise * rng.standard_normal((m, n))
    observed = rng.random((m, n)) >= missing
    return truth, observed, scattered(observed, observed.sum() // 20, rng)


def product(found: LowRank) -> np.ndarray:
    return found.left @ found.right.T


@given(st.integers(30, 60), st.integers(30, 60), st.integers(1, 5), seeds)
def test_an_exact_matrix_is_found_whatever_its_rank(m, n, rank, seed):
    truth, observed, judges = problem(m, n, rank, missing=0.3, seed=seed)
    found = explanation(truth, observed * 1.0, judges, rank=min(m, n))
    assert found is not None
    assert np.abs(product(found) - truth).mean() < 2e-3


def test_a_flat_spectrum_is_climbed_to_its_end():
    rng = np.random.default_rng(1)
    left, right = (np.linalg.qr(rng.standard_normal((size, 12)))[0] for size in (120, 100))
    truth = left @ right.T * 3
    observed = rng.random(truth.shape) < 0.6
    found = explanation(truth, observed * 1.0, scattered(observed, 300, rng), rank=100)
    assert found is not None
    assert found.rank == 12
    assert np.abs(product(found) - truth).max() < 1e-2 * np.abs(truth).max()


def test_the_rank_is_no_higher_than_it_need_be():
    truth, observed, judges = problem(80, 90, rank=4)
    assert explanation(truth, observed * 1.0, judges, rank=80).rank == 4
    assert not explanation(truth, observed * 1.0, judges, rank=3).is_exact


def test_a_row_with_fewer_entries_than_the_rank_is_completed_like_the_others():
    truth, observed, judges = problem(80, 70, rank=5, missing=0.2)
    observed[7] = False
    observed[7, [3, 40, 61]] = True
    judges[7] = False
    found = explanation(truth, observed * 1.0, judges, rank=70)
    assert found is not None
    typical = np.abs(truth - truth.mean(axis=0)).mean()
    assert np.abs(product(found)[7] - truth[7]).mean() < typical


def test_a_little_noise_is_allowed_and_much_is_not():
    truth, observed, judges = problem(100, 90, noise=0.002)
    found = explanation(truth, observed * 1.0, judges, rank=90)
    assert found.is_exact
    assert found.rank == 3
    truth, observed, judges = problem(100, 90, noise=0.1)
    assert not explanation(truth, observed * 1.0, judges, rank=90).is_exact


def test_few_judges_are_not_believed():
    truth, observed, judges = problem()
    few = np.zeros_like(judges)
    few[tuple(np.argwhere(judges)[:19].T)] = True
    assert explanation(truth, observed * 1.0, few, rank=20) is None


def test_what_is_not_observed_is_not_looked_at():
    truth, observed, judges = problem()
    spoilt = np.where(observed, truth, np.nan)
    found = explanation(spoilt, observed * 1.0, judges, rank=20)
    same = explanation(np.where(observed, truth, 7.0), observed * 1.0, judges, rank=20)
    np.testing.assert_array_equal(product(found), product(same))


def test_weights_say_what_counts():
    truth, observed, judges = problem(noise=0.004)
    wrong = truth.copy()
    bad = observed & ~judges & (np.random.default_rng(3).random(truth.shape) < 0.1)
    wrong[bad] += 1
    assert not explanation(wrong, observed * 1.0, judges, rank=20).is_exact
    assert explanation(wrong, np.where(bad, 1e-6, observed), judges, rank=20).is_exact


def test_the_half_step_is_the_minimum_of_what_it_says():
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


@pytest.mark.parametrize("depth", [1, 2, 3, 5])
def test_factors_have_the_matrix_as_product_and_are_balanced(depth):
    truth = problem(12, 9, rank=2)[0]
    factors = balanced_factors(truth, depth, rank=9)
    np.testing.assert_allclose(np.linalg.multi_dot([*factors[::-1], np.eye(9)]), truth, atol=1e-12)
    for lower, upper in itertools.pairwise(factors):
        np.testing.assert_allclose(lower @ lower.T, upper.T @ upper, atol=1e-12)


# ------------------------------------------------------------------------------------------ inside a fit


def test_a_fit_gives_the_matrix_and_learns_graphs_over_it():
    truth, observed, _ = problem(60, 50, rank=3)
    shifted = 5 + 40 * truth
    result = airnp.fit(shifted, observed, seed=0)
    # Rank 3, and one more for the offset that brings the data to [0, 1].
    assert result.stop_reason == "held-out entries are predicted almost exactly by a matrix of rank 4"
    assert np.abs(result.X - shifted).max() < 1e-2
    assert result.n_iter <= 2000
    energies = result.history["energy_rows"]
    assert energies[-1] < 0.9 * energies[0], "the graphs should have been learned"
    fitted = np.linalg.multi_dot(result.factors[::-1])
    np.testing.assert_allclose(result.normalization.undo(fitted), result.X, atol=1e-9)


def test_it_is_no_longer_than_it_was_asked_to_be():
    truth, observed, _ = problem()
    assert airnp.fit(truth, observed, seed=0, max_iter=30).n_iter == 30


def test_without_graphs_there_is_nothing_to_learn():
    truth, observed, _ = problem()
    result = airnp.fit(truth, observed, seed=0, regularizers=[], stop=HeldOut(low_rank=True))
    assert result.n_iter == 1
    assert np.abs(result.X - truth).max() < 1e-3


@pytest.mark.parametrize("options", [{"regularizers": []}, {"stop": HeldOut()}])
def test_who_chose_a_model_gets_it(options):
    truth, observed, _ = problem(rank=3)
    result = airnp.fit(truth, observed, seed=0, max_iter=60, **options)
    assert "rank" not in result.stop_reason


def test_a_stack_is_judged_one_by_one():
    truth, observed, _ = problem(40, 40, rank=2)
    noisy = truth + 0.2 * np.random.default_rng(1).standard_normal(truth.shape)
    stack = airnp.fit(np.stack([noisy, truth]), observed, seed=0, max_iter=300)
    alone = airnp.fit(noisy, observed, seed=0, max_iter=300)
    assert np.abs(stack.X[1] - truth).max() < 1e-3
    np.testing.assert_allclose(stack.X[0], alone.X, atol=1e-6)
    fitted = stack.factors[2][1] @ stack.factors[1][1] @ stack.factors[0][1]
    assert np.abs(fitted - (truth - truth[observed].min()) / np.ptp(truth[observed])).max() < 1e-3


def test_without_judges_nothing_is_said():
    rng = np.random.default_rng(2)
    noise = rng.random((30, 30))
    observations = read(noise, rng.random(noise.shape) < 0.8)
    judges = scattered(np.asarray(observations.mask), 10, rng)
    assert explained(observations, judges, depth=3, rank=30) is None


def noisy_table():
    """Low rank and much noise: too little to be exact, and too much for a fit that follows it."""
    rng = np.random.default_rng(8)
    truth = rng.standard_normal((100, 4)) @ rng.standard_normal((4, 40))
    return truth, truth + 0.3 * truth.std() * rng.standard_normal(truth.shape), rng.random(truth.shape) < 0.5


def test_a_fit_that_predicts_worse_gives_way_in_the_end():
    truth, noisy, mask = noisy_table()
    given_way = airnp.fit(noisy, mask, seed=0, max_iter=4000, learning_rate=3e-3)
    alone = airnp.fit(noisy, mask, seed=0, max_iter=4000, learning_rate=3e-3, regularizers=None)
    assert given_way.stop_reason.startswith("held-out entries are predicted better by a matrix of rank")
    errors = [airnp.metrics.nmae(result.X, truth, mask) for result in (given_way, alone)]
    assert errors[0] < 0.8 * errors[1]
    product = np.linalg.multi_dot(given_way.factors[::-1])
    np.testing.assert_allclose(given_way.normalization.undo(product), given_way.X, atol=1e-9)


def test_a_fit_that_predicts_better_stays():
    rng = np.random.default_rng(4)
    groups = rng.random((6, 6))[rng.integers(6, size=50)][:, rng.integers(6, size=45)]  # what graphs are for
    table = np.where(rng.random(groups.shape) < 0.1, rng.random(groups.shape), groups)
    mask = rng.random(groups.shape) < 0.5
    result = airnp.fit(table, mask, seed=0, max_iter=3000, learning_rate=3e-3)
    assert "rank" not in result.stop_reason
    only = airnp.fit(table, mask, seed=0, max_iter=3000, learning_rate=3e-3, regularizers=None)
    np.testing.assert_array_equal(result.X, only.X)


def test_the_same_seed_gives_the_same_bits():
    truth, observed, _ = problem()
    first, second = (airnp.fit(truth, observed, seed=4, max_iter=50) for _ in range(2))
    np.testing.assert_array_equal(first.X, second.X)
