"""A round of Gaussian patches: the fused loops against the formula, threads, borders, constant pictures."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.ndimage import gaussian_filter

from airnp.resemblance.patches import (
    VALUE_ONE,
    WEIGHT_ONE,
    Round,
    Sums,
    apply,
    collect,
    collect_by_formula,
    group_moments,
    reference_places,
    touching,
)
from tests.strategies import seeds

HOW = Round(patch=4, stride=2, search=4, neighbours=24, answers=6, noise=1e-3)


def problem(channels=1, frames=1, missing=0.3, shape=(18, 21), shared=False, seed=0):
    """Return a smooth picture with noise, variances, and where it is observed."""
    rng = np.random.default_rng(seed)
    X = gaussian_filter(rng.random((frames, channels, *shape)), (0, 0, 1.5, 1.5))
    X = ((X - X.min()) / np.ptp(X) + 0.05 * rng.random(X.shape)).astype(np.float32)
    M = rng.random((frames, 1 if shared else channels, *shape)) >= missing
    M = np.broadcast_to(M, X.shape).copy()
    U = np.where(M, 0, 1e-3 * rng.random(X.shape)).astype(np.float32)
    return X, U, M


def places(X, how):
    return [reference_places(length, how.patch, how.stride) for length in X.shape[2:]]


def arrays(sums: Sums) -> tuple[np.ndarray, ...]:
    return sums.values, sums.weights, sums.counts


def check_against_formula(X, U, M, how, frame=0):
    found = collect(X, U, M, frame, *places(X, how), how)
    expected = collect_by_formula(X, U, M, frame, *places(X, how), how)
    np.testing.assert_array_equal(found.counts, expected.counts)
    np.testing.assert_allclose(
        found.weights / WEIGHT_ONE, expected.weights / WEIGHT_ONE, rtol=2e-3, atol=1e-7
    )
    told = found.counts > 0
    means = [sums.values[told] / sums.weights[told] / VALUE_ONE for sums in (found, expected)]
    np.testing.assert_allclose(*means, atol=1e-3)
    return found


@pytest.mark.parametrize("missing", [0.15, 0.8], ids=["by precisions", "by covariances"])
@pytest.mark.parametrize("shared", [True, False], ids=["shared gaps", "gaps of its own"])
@pytest.mark.parametrize("frames", [1, 3])
@pytest.mark.parametrize("channels", [1, 3])
def test_the_loops_follow_the_formula(channels, frames, shared, missing):
    X, U, M = problem(channels, frames, missing, shared=shared)
    found = check_against_formula(X, U, M, HOW, frame=frames // 2)
    assert (found.counts[~M[frames // 2]] > 0).all(), "each gap is covered"
    assert (found.counts[M[frames // 2]] == 0).all(), "what is observed is not filled"


@settings(max_examples=25)
@given(
    st.integers(4, 12), st.integers(4, 12), st.integers(1, 4), st.integers(1, 4), st.integers(4, 40), seeds
)
def test_small_pictures_and_any_settings_follow_the_formula(height, width, patch, search, neighbours, seed):
    how = Round(patch, max(1, patch // 2), search, neighbours, answers=5, noise=1e-2)
    check_against_formula(*problem(shape=(height, width), seed=seed), how)


@pytest.mark.parametrize("frames", [1, 3])
def test_threads_do_not_change_a_bit(frames):
    X, U, M = problem(3, frames)
    expected = arrays(collect(X, U, M, 0, *places(X, HOW), HOW, 1))
    for threads in (2, 3, 50):
        found = arrays(collect(X, U, M, 0, *places(X, HOW), HOW, threads))
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("corner", [(0, 0), (0, -1), (-1, 0), (-1, -1)])
def test_a_gap_in_a_corner_is_filled(corner):
    X, U, M = problem(missing=0)
    M[..., *corner] = False
    how = Round(patch=5, stride=3, search=4, neighbours=20)
    sums = check_against_formula(X, U, M, how)
    assert sums.counts[0][corner] > 0
    assert sums.counts.astype(bool).sum() == 1


def test_places_without_a_gap_are_passed_over():
    X, U, M = problem(missing=0)
    for threads in (1, 2):
        assert not np.any(arrays(collect(X, U, M, 0, *places(X, HOW), HOW, threads)))
        nowhere = np.array([], np.int64)
        assert not np.any(arrays(collect(X, U, ~M, 0, nowhere, nowhere, HOW, threads)))


@pytest.mark.parametrize("missing", [0.3, 0.9, 1.0])
def test_a_constant_picture_stays_constant(missing):
    X, U, M = problem(3, missing=missing)
    X[:] = 0.37
    sums = collect(X, U, M, 0, *places(X, HOW), HOW)
    new, variances = apply(sums, X[0], U[0], ~M[0], HOW)
    np.testing.assert_allclose(new, 0.37, atol=1e-5)
    assert np.isfinite(variances).all()
    assert (variances >= 0).all()


@given(st.integers(1, 30), st.integers(1, 9), st.integers(1, 9))
def test_reference_patches_cover_an_axis(length, patch, stride):
    patch, stride = min(patch, length), min(stride, patch, length)
    covered = np.zeros(length, bool)
    for start in reference_places(length, patch, stride):
        assert 0 <= start <= length - patch
        covered[start : start + patch] = True
    assert covered.all()


@given(st.integers(1, 9), st.integers(1, 9), seeds)
def test_touching_finds_patches_with_a_gap(height, width, seed):
    rng = np.random.default_rng(seed)
    gaps, patch = rng.random((height, width)) < 0.1, int(rng.integers(1, min(height, width) + 1))
    rows, columns = np.arange(height - patch + 1), np.arange(width - patch + 1)
    found = touching(gaps, rows, columns, patch)
    for y, x in np.ndindex(found.shape):
        assert found[y, x] == gaps[y : y + patch, x : x + patch].any()


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9))
def test_a_round_within_a_picture_has_patches_that_fit(height, width, patch):
    how = Round(patch=patch, stride=max(1, patch // 2))
    small = how.within((height, width))
    assert small.patch == min(patch, height, width)
    assert small.stride <= small.patch
    assert small.reach <= how.reach


def test_apply_is_the_mean_weighted_by_inverse_variances():
    how = Round(step=1.0, softening=1e-4)
    says, unsure = np.array([0.2, 0.5, 0.9]), np.array([1e-4, 5e-4, 2e-3])
    weights = (WEIGHT_ONE * how.softening / (unsure + how.softening)).astype(np.int64)
    gaps = np.array([[[True, True, False]]])
    values = np.full((1, 1, 3), 0.25, np.float32)
    variances = np.full((1, 1, 3), 7e-3, np.float32)
    told = np.array([[[1, 0, 1]]])
    total = [int((weights * says * VALUE_ONE).sum()), int(weights.sum()), 3]
    sums = Sums(*(one * told for one in total))
    new, after = apply(sums, values, variances, gaps, how)
    expected = (says / (unsure + 1e-4)).sum() / (1 / (unsure + 1e-4)).sum()
    np.testing.assert_allclose(new, [[[expected, 0.25, 0.25]]], rtol=1e-6)
    harmonic = 3 / (1 / (unsure + 1e-4)).sum() - 1e-4
    np.testing.assert_allclose(after, [[[harmonic, 7e-3, 7e-3]]], rtol=1e-5)
    longer, _ = apply(sums, values, variances, gaps, Round(step=1.7, softening=1e-4))
    np.testing.assert_allclose(longer[0, 0, 0], 0.25 + 1.7 * (expected - 0.25), rtol=1e-6)


@given(st.integers(2, 20), st.integers(1, 8), seeds)
def test_what_is_not_known_is_added_with_the_correlations_of_the_group(K, d, seed):
    rng = np.random.default_rng(seed)
    Z, V = rng.standard_normal((K, d)), rng.random((K, d))
    mean, covariance = group_moments(Z, V, Round(ridge=0, noise=0))
    np.testing.assert_allclose(mean, Z.mean(axis=0))
    own = np.cov(Z.T, bias=True).reshape(d, d)
    np.testing.assert_allclose(np.diagonal(covariance), np.diagonal(own) + V.mean(axis=0), rtol=1e-6)
    assert np.linalg.eigvalsh(covariance).min() > -1e-9
