"""Mixtures of Gaussians over rows: against the reference, likelihoods and planted mixtures."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from airnp.engines.threads import using
from airnp.resemblance.gaussian import condition, expectation, fit_gaussian
from airnp.resemblance.mixture import Mixture, Rows, first_mixture, fit_mixture, split
from tests.strategies import seeds


def random_mixture(rng: np.random.Generator, J: int, d: int) -> Mixture:
    half = rng.standard_normal((J, d, d + 2))
    weights = rng.random(J) + 0.2
    covariances = half @ half.swapaxes(1, 2) / d
    return Mixture(weights / weights.sum(), 2 * rng.standard_normal((J, d)), covariances, np.ones(J))


def planted(seed: int, n: int, rate: float = 0.3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows of three clusters with a shape of their own, where they are observed, and their cluster."""
    rng = np.random.default_rng(seed)
    mixture = random_mixture(np.random.default_rng(0), 3, 5)
    which = rng.choice(3, n, p=mixture.weights)
    roots = np.linalg.cholesky(mixture.covariances / 4)
    rows = 2 * mixture.means[which] + np.einsum("nij,nj->ni", roots[which], rng.standard_normal((n, 5)))
    return rows, rng.random(rows.shape) >= rate, which


@given(st.integers(1, 4), st.integers(1, 6), st.integers(1, 12), st.sampled_from([1, 2]), seeds)
def test_the_posterior_is_that_of_the_reference(J, d, n, threads, seed):
    rng = np.random.default_rng(seed)
    mixture = random_mixture(rng, J, d)
    values, observed = rng.standard_normal((n, d)), rng.random((n, d)) < 0.6
    with using(threads):
        posterior = mixture.posterior(np.where(observed, values, np.nan), observed)
    heights = np.zeros((n, J))
    for i, o in enumerate(observed):
        for j in range(J):
            C = mixture.covariances[j][np.ix_(o, o)]
            density = multivariate_normal.logpdf(values[i, o], mixture.means[j, o], C) if o.any() else 0.0
            heights[i, j] = np.log(mixture.weights[j]) + density
    shares = np.exp(heights - heights.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(posterior.shares, shares, atol=1e-9)
    np.testing.assert_allclose(posterior.heights, np.logaddexp.reduce(heights, axis=1), atol=1e-9)
    many = np.broadcast_to(values, (J, n, d)), np.broadcast_to(observed, (J, n, d))
    filled, variance = condition(mixture.means, mixture.covariances, *many)
    mean = np.einsum("nj,jnd->nd", shares, filled)
    spread = np.einsum("nj,jnd->nd", shares, variance + (filled - mean) ** 2)
    np.testing.assert_allclose(posterior.filled, np.where(observed, values, mean), atol=1e-9)
    np.testing.assert_allclose(posterior.variance, np.where(observed, 0, spread), atol=1e-3)
    for found, expected in zip(mixture.components(values, observed), (filled, variance), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-9)


def test_one_component_is_the_gaussian_of_the_reference():
    rows, observed, _ = planted(1, 200)
    expected = fit_gaussian(rows, observed, ridge=0.01, noise=1e-6, tolerance=1e-7, max_iter=300)
    table = Rows(rows, observed)
    found = fit_mixture(table, first_mixture(table), ridge=0.01, prior=0, tolerance=1e-10, max_iter=300)
    np.testing.assert_allclose(found.means[0], expected.mean, atol=1e-4)
    np.testing.assert_allclose(found.covariances[0], expected.covariance, atol=1e-3)


def test_an_iteration_is_that_of_the_reference():
    rows, observed, _ = planted(2, 80)
    start = random_mixture(np.random.default_rng(3), 3, 5)
    found = fit_mixture(Rows(rows, observed), start, ridge=0.02, prior=7.0, max_iter=1)
    shares = start.posterior(rows, observed).shares.T
    many = np.broadcast_to(rows, (3, 80, 5)), np.broadcast_to(observed, (3, 80, 5))
    filled, _, unknown = expectation(start.means, start.covariances, *many, weights=shares)
    counts = shares.sum(axis=1)
    means = np.einsum("jn,jnd->jd", shares, filled) / counts[:, None]
    apart = filled - means[:, None]
    S = np.einsum("jn,jna,jnb->jab", shares, apart, apart) / counts[:, None, None] + unknown
    pooled = np.einsum("j,jab->ab", counts, S) / 80
    C = (counts[:, None, None] * S + 7.0 * pooled) / (counts + 7.0)[:, None, None]
    C += (0.02 * np.trace(C, axis1=1, axis2=2) / 5 + 1e-6)[:, None, None] * np.eye(5)
    np.testing.assert_allclose(found.means, means, atol=1e-3)
    np.testing.assert_allclose(found.covariances, C, atol=1e-3 * np.abs(C).max())


def test_em_raises_the_likelihood():
    rows, observed, _ = planted(4, 150)
    table = Rows(rows, observed)
    mixture = split(fit_mixture(table, first_mixture(table), ridge=0.0, prior=0))
    heights = []
    for _ in range(10):
        mixture = fit_mixture(table, mixture, ridge=0.0, prior=0, max_iter=1)
        heights.append(mixture.posterior(rows, observed).heights.mean())
    assert (np.diff(heights) > -1e-4).all()
    assert heights[-1] > heights[0] + 0.01


def test_halves_keep_mean_and_covariance():
    whole = random_mixture(np.random.default_rng(5), 2, 4)
    halves = split(whole)
    assert len(halves.weights) == 4
    for j in range(2):
        means = halves.means[2 * j : 2 * j + 2]
        np.testing.assert_allclose(means.mean(axis=0), whole.means[j])
        between = (means - means.mean(axis=0)).T @ (means - means.mean(axis=0)) / 2
        np.testing.assert_allclose(halves.covariances[2 * j] + between, whole.covariances[j], atol=1e-12)
        assert np.linalg.eigvalsh(halves.covariances[2 * j]).min() > 0


def test_planted_clusters_are_found_and_gaps_are_better_filled():
    rows, observed, which = planted(6, 600)
    table = Rows(rows, observed)
    gaussian = fit_mixture(table, first_mixture(table), ridge=1e-3, prior=0)
    four = fit_mixture(
        table, split(fit_mixture(table, split(gaussian), ridge=1e-3, prior=5)), ridge=1e-3, prior=5
    )
    errors = [
        np.sqrt(((model.complete(rows, observed)[0] - rows)[~observed] ** 2).mean())
        for model in (gaussian, four)
    ]
    assert errors[1] < 0.8 * errors[0]
    members = four.posterior(rows, observed).shares.argmax(axis=1)
    purity = sum(np.bincount(which[members == j]).max() for j in np.unique(members)) / 600
    assert purity > 0.9


def test_draws_have_the_conditional_distribution():
    mixture = random_mixture(np.random.default_rng(7), 2, 3)
    row, observed = np.array([[0.4, -0.2, 0.0]]), np.array([[True, False, False]])
    many = np.repeat(row, 20_000, axis=0), np.repeat(observed, 20_000, axis=0)
    drawn = mixture.draw(*many, np.random.default_rng(8))
    assert (drawn[:, 0] == 0.4).all()
    filled, variance = mixture.complete(row, observed)
    spread = np.sqrt(variance[0, 1:])
    assert (np.abs(drawn[:, 1:].mean(axis=0) - filled[0, 1:]) < 4 * spread / np.sqrt(20_000)).all()
    np.testing.assert_allclose(drawn[:, 1:].std(axis=0), spread, rtol=0.03)
    # They are drawn together: the gaps keep their correlation.
    shares = mixture.posterior(row, observed).shares[0]
    expected = np.zeros((2, 2))
    for j, share in enumerate(shares):
        C = mixture.covariances[j]
        within = C[1:, 1:] - np.outer(C[1:, 0], C[1:, 0]) / C[0, 0]
        mean = mixture.means[j, 1:] + C[1:, 0] / C[0, 0] * (0.4 - mixture.means[j, 0]) - filled[0, 1:]
        expected += share * (within + np.outer(mean, mean))
    np.testing.assert_allclose(np.cov(drawn[:, 1:].T), expected, atol=0.04 * np.abs(expected).max())


def test_more_threads_give_the_same_up_to_rounding():
    rows, observed, _ = planted(9, 3000)
    mixture = random_mixture(np.random.default_rng(10), 16, 5)
    answers = []
    for threads in (1, 2):
        with using(threads):
            answers.append(mixture.complete(rows, observed))
    for one, two in zip(*answers, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_rows_without_gaps_and_without_entries(rate):
    rows, observed, _ = planted(11, 20, rate)
    mixture = random_mixture(np.random.default_rng(12), 2, 5)
    filled, variance = mixture.complete(rows, observed)
    if rate:
        np.testing.assert_allclose(filled, np.broadcast_to(mixture.weights @ mixture.means, (20, 5)))
        assert (variance > 0).all()
    else:
        np.testing.assert_array_equal(filled, rows)
        assert not variance.any()
