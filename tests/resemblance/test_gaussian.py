"""The conditional Gaussian: against brute force, likelihoods and planted Gaussians, in any namespace."""

from __future__ import annotations

import array_api_strict
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from airnp.resemblance.gaussian import Moments, condition, expectation, fit_gaussian, group_statistics, shrunk
from tests.strategies import seeds


def spd(rng: np.random.Generator, *batch: int, d: int) -> np.ndarray:
    half = rng.standard_normal((*batch, d, d + 3))
    return half @ half.swapaxes(-1, -2) / d


def planted(seed: int, n: int, d: int, rate: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return mean, covariance, rows and where they are observed."""
    rng = np.random.default_rng(seed)
    mean, covariance = 3 * rng.standard_normal(d), spd(rng, d=d)
    rows = rng.multivariate_normal(mean, covariance, size=n)
    observed = rng.random((n, d)) >= rate
    observed[np.arange(d) % n, np.arange(d)] = True
    return mean, covariance, rows, observed


def log_likelihood(mean: np.ndarray, covariance: np.ndarray, rows: np.ndarray, observed: np.ndarray) -> float:
    """Return the mean log-likelihood of the observed parts of rows."""
    total = 0.0
    for row, o in zip(rows, observed, strict=True):
        if o.any():
            total += multivariate_normal.logpdf(row[o], mean[o], covariance[np.ix_(o, o)])
    return total / len(rows)


# --- the gaps given the rest ---


@pytest.mark.parametrize("side", ["precision", "covariance", None])
@given(st.sampled_from([(), (2,), (2, 3)]), st.integers(1, 5), st.integers(1, 6), seeds)
def test_condition_is_the_conditional_gaussian(side, batch, K, d, seed):
    rng = np.random.default_rng(seed)
    mean, covariance = rng.standard_normal((*batch, d)), spd(rng, *batch, d=d)
    values, observed = rng.standard_normal((*batch, K, d)), rng.random((*batch, K, d)) < 0.6
    filled, variance, unknown = expectation(
        mean, covariance, np.where(observed, values, np.nan), observed, side=side
    )
    again = condition(mean, covariance, np.where(observed, values, np.nan), observed, side=side)
    np.testing.assert_array_equal(again, (filled, variance))
    for group in np.ndindex(*batch):
        mu, C = mean[group], covariance[group]
        total = np.zeros((d, d))
        for k in range(K):
            o = observed[(*group, k)]
            m = ~o
            # Brute force: regress the gaps on the rest, and see what is left.
            gain = np.linalg.pinv(C[np.ix_(o, o)]) @ C[np.ix_(o, m)]
            expected = values[(*group, k)].copy()
            expected[m] = mu[m] + (values[(*group, k)][o] - mu[o]) @ gain
            left = np.eye(d)[m] - gain.T @ np.eye(d)[o]
            total[np.ix_(m, m)] += left @ C @ left.T
            np.testing.assert_allclose(filled[(*group, k)], expected, atol=1e-8)
            np.testing.assert_allclose(variance[(*group, k)][m], np.diag(left @ C @ left.T), atol=1e-8)
            assert not variance[(*group, k)][o].any()
        np.testing.assert_allclose(unknown[group], total / K, atol=1e-8)


def test_it_is_the_ratio_of_densities():
    mean, covariance, rows, _ = planted(1, 1, 5, 0.0)
    joint = multivariate_normal(mean, covariance)
    one_gap = np.array([True, True, True, False, True])
    filled, variance = condition(mean, covariance, rows, one_gap[None])
    marginal = multivariate_normal(mean[one_gap], covariance[np.ix_(one_gap, one_gap)])
    for value in (-1.0, 0.5, 4.0):
        row = np.where(one_gap, rows[0], value)
        density = joint.logpdf(row) - marginal.logpdf(row[one_gap])
        center, spread = filled[0, 3], variance[0, 3]
        np.testing.assert_allclose(
            density, -((value - center) ** 2) / (2 * spread) - np.log(2 * np.pi * spread) / 2
        )


def test_both_sides_are_equal_for_many_rows():
    mean, covariance, rows, observed = planted(2, 300, 12, 0.4)
    first, second = (
        expectation(mean, covariance, rows, observed, side=s) for s in ("precision", "covariance")
    )
    for a, b in zip(first, second, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)
    with pytest.raises(ValueError, match="side: expected 'precision', 'covariance' or None, got 'left'"):
        condition(mean, covariance, rows, observed, side="left")


def test_rows_in_small_batches_are_the_same(monkeypatch):
    mean, covariance, rows, observed = planted(3, 50, 6, 0.5)
    expected = expectation(mean, covariance, rows, observed)
    monkeypatch.setattr("airnp.resemblance.gaussian._LARGEST_BATCH", 40)
    for a, b in zip(expectation(mean, covariance, rows, observed), expected, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)


# --- the Gaussian given the rows ---


@given(st.sampled_from([(), (3,)]), st.integers(1, 5), st.integers(1, 4), seeds)
def test_statistics_of_groups(batch, K, d, seed):
    rng = np.random.default_rng(seed)
    values, variances = rng.standard_normal((*batch, K, d)), rng.random((*batch, K, d))
    weights = rng.random((*batch, K)) + 0.1
    mean, covariance = group_statistics(values, variances, weights=weights, ridge=0.1, noise=0.02)
    plain = group_statistics(values)
    for group in np.ndindex(*batch):
        X, w = values[group], weights[group] / weights[group].sum()
        np.testing.assert_allclose(mean[group], w @ X, atol=1e-12)
        C = (X - w @ X).T @ np.diag(w) @ (X - w @ X) + np.diag(w @ variances[group])
        C += (0.1 * np.trace(C) / d + 0.02) * np.eye(d)
        np.testing.assert_allclose(covariance[group], C, atol=1e-12)
        np.testing.assert_allclose(plain[0][group], X.mean(0), atol=1e-12)
        np.testing.assert_allclose(plain[1][group], np.cov(X.T, bias=True).reshape(d, d), atol=1e-12)


def test_without_gaps_em_is_the_sample():
    _, _, rows, _ = planted(4, 40, 3, 0.0)
    found = fit_gaussian(rows, np.ones(rows.shape, bool), max_iter=5)
    np.testing.assert_allclose(found.mean, rows.mean(0))
    np.testing.assert_allclose(found.covariance, np.cov(rows.T, bias=True))
    assert found.n_iter == 2


def test_the_gradient_of_the_likelihood_vanishes_where_em_ends():
    _, _, rows, observed = planted(5, 60, 4, 0.3)
    found = fit_gaussian(rows, observed, max_iter=3000, tolerance=1e-10)
    top = log_likelihood(found.mean, found.covariance, rows, observed)
    rng = np.random.default_rng(6)
    step = 1e-5
    for _ in range(8):
        direction = rng.standard_normal(4)
        turn = rng.standard_normal((4, 4))
        turn = turn + turn.T
        ends = [
            log_likelihood(found.mean + s * direction, found.covariance + s * turn, rows, observed)
            for s in (step, -step)
        ]
        slope, curvature = (ends[0] - ends[1]) / (2 * step), (ends[0] + ends[1] - 2 * top) / step**2
        assert abs(slope) < 1e-6 < 0.1 < -curvature
    # Away from there the gradient is not zero, so the bound above means something.
    other = shrunk(found.covariance, 0.05, 0.0)
    ends = [log_likelihood(found.mean, other + s * np.eye(4), rows, observed) for s in (step, -step)]
    assert abs(ends[0] - ends[1]) / (2 * step) > 1e-3


def test_no_iteration_lowers_the_likelihood():
    _, _, rows, observed = planted(7, 50, 5, 0.4)
    moments, heights = None, []
    for _ in range(12):
        moments = fit_gaussian(rows, observed, start=moments, max_iter=1)
        heights.append(log_likelihood(moments.mean, moments.covariance, rows, observed))
    assert (np.diff(heights) > 0).all()


def test_planted_gaussians_are_found_without_bias():
    found = []
    for seed in range(60):
        rng = np.random.default_rng([8, seed])
        mean, covariance, _, _ = planted(8, 1, 4, 0.0)
        rows = rng.multivariate_normal(mean, covariance, size=400)
        # Gaps of the last two columns depend on the first: missing at random, but not completely.
        observed = np.ones(rows.shape, bool)
        observed[:, 2:] = rng.random((400, 2)) < np.where(rows[:, :1] > mean[0], 0.4, 0.9)
        found.append(fit_gaussian(rows, observed, tolerance=1e-6))
    means = np.stack([each.mean for each in found])
    doubt = means.std(0) / np.sqrt(60)
    assert (np.abs(means.mean(0) - mean) < 3.5 * doubt).all()
    covariances = np.stack([each.covariance for each in found])
    doubt = covariances.std(0) / np.sqrt(60)
    # The maximum of the likelihood divides by n, not n − 1: a bias of 1/400 or a little more.
    assert (np.abs(covariances.mean(0) - covariance) < 3.5 * doubt + np.abs(covariance) / 150).all()


def test_variances_are_those_of_the_errors():
    mean, covariance, rows, observed = planted(9, 20_000, 5, 0.4)
    filled, variance = condition(mean, covariance, rows, observed)
    scores = ((filled - rows) / np.sqrt(np.where(observed, 1, variance)))[~observed]
    assert abs(scores.mean()) < 0.02
    assert abs(scores.std() - 1) < 0.02
    assert abs((np.abs(scores) < 1.645).mean() - 0.9) < 0.01


def test_weights_count_rows():
    _, _, rows, observed = planted(10, 40, 3, 0.3)
    counts = np.arange(40) % 3 + 1
    weighted = fit_gaussian(rows, observed, weights=counts, max_iter=10, tolerance=0)
    repeated = fit_gaussian(rows.repeat(counts, 0), observed.repeat(counts, 0), max_iter=10, tolerance=0)
    np.testing.assert_allclose(weighted.mean, repeated.mean)
    np.testing.assert_allclose(weighted.covariance, repeated.covariance, atol=1e-10)


def test_groups_are_fitted_apart():
    tables = [planted(seed, 30, 4, 0.3) for seed in (11, 12, 13)]
    values, observed = (np.stack([table[k] for table in tables]) for k in (2, 3))
    together = fit_gaussian(values, observed, ridge=0.01, noise=1e-3, max_iter=15, tolerance=0)
    for k in range(3):
        alone = fit_gaussian(values[k], observed[k], ridge=0.01, noise=1e-3, max_iter=15, tolerance=0)
        np.testing.assert_allclose(together.mean[k], alone.mean)
        np.testing.assert_allclose(together.covariance[k], alone.covariance)


def test_more_entries_than_rows_need_the_ridge():
    _, _, rows, observed = planted(14, 6, 15, 0.2)
    observed[0] = True
    found = fit_gaussian(rows, observed, ridge=0.1, max_iter=20)
    assert np.linalg.eigvalsh(found.covariance).min() > 0
    assert np.isfinite(condition(found.mean, found.covariance, rows, observed)[0]).all()


def test_a_column_without_entries_is_refused():
    with pytest.raises(ValueError, match="observed: expected at least one observed entry in each column"):
        fit_gaussian(np.zeros((3, 2)), np.array([[True, False]] * 3))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_any_namespace(dtype):
    xp = array_api_strict
    tables = [planted(seed, 20, 4, 0.4) for seed in (15, 16)]
    values, observed = (np.stack([table[k] for table in tables]) for k in (2, 3))
    weights = np.random.default_rng(17).random((2, 20))
    strict = [xp.asarray(values.astype(dtype)), xp.asarray(observed)]
    options = {"ridge": 0.01, "noise": 1e-3, "max_iter": 8}
    found = fit_gaussian(*strict, weights=xp.asarray(weights), **options)
    expected = fit_gaussian(values, observed, weights=weights, **options)
    assert isinstance(found, Moments)
    assert found.mean.dtype == found.covariance.dtype == getattr(xp, dtype)
    for side in ("precision", "covariance"):
        filled, variance = condition(found.mean, found.covariance, *strict, side=side)
        known = condition(expected.mean, expected.covariance, values, observed, side=side)
        np.testing.assert_allclose(np.asarray(filled), known[0], rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(np.asarray(variance), known[1], rtol=1e-3, atol=1e-3)
        assert filled.dtype == variance.dtype == getattr(xp, dtype)
