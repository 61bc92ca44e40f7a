"""The metrics against explicit loops, in several namespaces, and what they refuse."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import array_api_strict
import numpy as np
import pandas as pd
import pytest
import skimage.metrics
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from airnp import metrics

M, N = 9, 13


@pytest.fixture
def problem() -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """One non-square problem: estimate, truth, mask. Read-only, so that a modified input raises."""
    rng = np.random.default_rng(0)
    truth = rng.normal(3.0, 2.0, (M, N))
    X = truth + rng.normal(0.0, 0.5, (M, N))
    mask = rng.random((M, N)) < 0.6
    for array in (X, truth, mask):
        array.flags.writeable = False
    return X, truth, mask


@pytest.fixture
def stack() -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """A (2, 3) stack whose problems differ in scale and in how much is missing."""
    rng = np.random.default_rng(1)
    scale = np.arange(1.0, 7.0).reshape(2, 3, 1, 1)
    truth = scale * rng.normal(size=(2, 3, M, N))
    X = truth + scale**2 * rng.normal(size=truth.shape)
    mask = rng.random(truth.shape) < scale / 7
    return X, truth, mask


def loop_errors(X: Any, truth: Any, mask: Any) -> list[float]:
    """The errors on the missing entries of one matrix, entry by entry."""
    m, n = truth.shape
    return [float(X[i, j] - truth[i, j]) for i in range(m) for j in range(n) if not mask[i, j]]


def loop_nmae(X: Any, truth: Any, mask: Any) -> float:
    errors = loop_errors(X, truth, mask)
    return sum(abs(e) for e in errors) / len(errors) / float(truth.max() - truth.min())


def loop_rmse(X: Any, truth: Any, mask: Any) -> float:
    errors = loop_errors(X, truth, mask)
    return math.sqrt(sum(e * e for e in errors) / len(errors))


def loop_psnr(X: Any, truth: Any, mask: Any) -> float:
    return 20 * math.log10(float(truth.max() - truth.min()) / loop_rmse(X, truth, mask))


MASKED = [
    pytest.param(metrics.nmae, loop_nmae, id="nmae"),
    pytest.param(metrics.rmse, loop_rmse, id="rmse"),
    pytest.param(metrics.psnr, loop_psnr, id="psnr"),
]
Metric = Callable[..., Any]


@pytest.mark.parametrize(("metric", "loop"), MASKED)
def test_matches_an_explicit_loop(metric: Metric, loop: Metric, problem: Any) -> None:
    X, truth, mask = problem
    for passed, measured in ((mask, mask), (None, np.zeros((M, N), dtype=bool))):  # no mask: all entries
        value = metric(X, truth, passed)
        assert type(value) is float
        assert value == pytest.approx(loop(X, truth, measured), rel=1e-13)


@pytest.mark.parametrize(("metric", "loop"), MASKED)
def test_stacks_give_one_value_per_problem(metric: Metric, loop: Metric, stack: Any) -> None:
    values = metric(*stack)
    assert isinstance(values, np.ndarray)
    assert values.dtype == np.float64
    assert values.shape == (2, 3)
    for index in np.ndindex(2, 3):
        assert values[index] == pytest.approx(loop(*(array[index] for array in stack)), rel=1e-13)


@pytest.mark.parametrize(("metric", "loop"), MASKED)
def test_observed_entries_do_not_matter(metric: Metric, loop: Metric, problem: Any) -> None:
    X, truth, mask = problem
    spoiled = np.where(mask, np.inf, X)
    assert metric(spoiled, truth, mask) == metric(X, truth, mask)
    # The range of the truth is part of nmae and psnr, so only entries that are neither extreme may vanish.
    middle = mask & (truth > truth.min()) & (truth < truth.max())
    for unknown in (np.nan, np.inf):
        partly_known = np.where(middle, unknown, truth)
        assert metric(spoiled, partly_known, mask) == metric(X, truth, mask)


@given(
    data=st.data(),
    shape=hnp.array_shapes(min_dims=2, max_dims=4, max_side=5),
    shift=st.floats(-8, 8, width=16),
    scale=st.floats(0.125, 8, width=16),
)
def test_nmae_is_invariant_and_rmse_equivariant(
    data: st.DataObject, shape: tuple[int, ...], shift: float, scale: float
) -> None:
    entries = st.floats(-4, 4, width=16)
    X, truth = (data.draw(hnp.arrays(np.float64, shape, elements=entries)) for _ in range(2))
    mask = data.draw(hnp.arrays(np.bool_, shape))
    assume(shape[-1] * shape[-2] > 1)  # every problem needs two values and a missing entry
    truth[..., 0, 0], truth[..., -1, -1] = 5.0, -5.0
    mask[..., 0, 0] = False

    moved = (scale * X + shift, scale * truth + shift, mask)
    np.testing.assert_allclose(metrics.nmae(*moved), metrics.nmae(X, truth, mask), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(
        metrics.rmse(*moved), scale * metrics.rmse(X, truth, mask), rtol=1e-9, atol=1e-12
    )
    # The mean of absolute values never exceeds the root of the mean square, and errors here are at most 9.
    assert np.all(10 * metrics.nmae(X, truth, mask) <= metrics.rmse(X, truth, mask) * (1 + 1e-12))
    assert np.all(metrics.rmse(X, truth, mask) <= 9)


def test_nmae_is_the_absolute_error_not_the_papers_squared_norm(problem: Any) -> None:
    X, truth, mask = problem
    squared = float(((X - truth)[~mask] ** 2).mean() / (truth.max() - truth.min()))
    assert abs(metrics.nmae(X, truth, mask) - squared) > 0.1 * squared


@pytest.mark.parametrize(("metric", "loop"), MASKED)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_any_namespace(metric: Metric, loop: Metric, problem: Any, dtype: str, backend: Any) -> None:
    X, truth = (array.astype(dtype) for array in problem[:2])
    value = metric(*map(backend.array, (X, truth, problem[2].copy())))
    assert type(value) is float
    assert value == pytest.approx(loop(X.astype(float), truth.astype(float), problem[2]), rel=1e-13)


@pytest.mark.parametrize(("metric", "loop"), MASKED)
def test_tensors_that_need_gradients(metric: Metric, loop: Metric, stack: Any) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed: its tensors cannot be tried")
    X, truth, mask = (torch.from_numpy(array) for array in stack)
    values = metric(X.requires_grad_(), truth, mask)
    assert isinstance(values, np.ndarray)
    np.testing.assert_array_equal(values, metric(*stack))


@pytest.mark.parametrize(("metric", "loop"), MASKED)
def test_lists_and_frames(metric: Metric, loop: Metric, problem: Any) -> None:
    expected = metric(*problem)
    assert metric(*(array.tolist() for array in problem)) == expected
    # Frames lie column by column in memory, so NumPy adds the entries up in another order.
    assert metric(*(pd.DataFrame(array) for array in problem)) == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float32])
def test_masks_of_zeros_and_ones(problem: Any, dtype: Any) -> None:
    X, truth, mask = problem
    assert metrics.nmae(X, truth, mask.astype(dtype)) == metrics.nmae(X, truth, mask)


def test_bytes_do_not_wrap_around() -> None:
    X = np.array([[0, 200]], dtype=np.uint8)
    truth = np.array([[10, 210]], dtype=np.uint8)
    assert metrics.nmae(X, truth, None) == pytest.approx(0.05)
    assert metrics.rmse(X, truth, None) == pytest.approx(10.0)


@pytest.mark.parametrize(("metric", "loop"), MASKED)
def test_a_diverged_answer_is_nan_not_hidden(metric: Metric, loop: Metric, problem: Any) -> None:
    X, truth, mask = problem
    diverged = X.copy()
    diverged[tuple(np.argwhere(~mask)[0])] = np.nan
    assert math.isnan(metric(diverged, truth, mask))


def test_a_perfect_answer_has_no_error(problem: Any) -> None:
    _, truth, mask = problem
    assert metrics.nmae(truth, truth, mask) == 0.0
    assert metrics.rmse(truth, truth, mask) == 0.0
    assert metrics.psnr(truth, truth, mask) == math.inf


def test_psnr_data_range(problem: Any) -> None:
    X, truth, mask = problem
    own = metrics.psnr(X, truth, mask)
    spread = float(truth.max() - truth.min())
    assert metrics.psnr(X, truth, mask, data_range=spread) == pytest.approx(own, rel=1e-13)
    assert metrics.psnr(X, truth, mask, data_range=10 * spread) == pytest.approx(own + 20.0, rel=1e-13)
    # A constant truth has no range of its own, but a stated one will do.
    assert metrics.psnr(np.full((2, 2), 0.6), np.full((2, 2), 0.5), data_range=1) == pytest.approx(20.0)


def test_psnr_agrees_with_scikit_image(problem: Any) -> None:
    X, truth, _ = problem
    expected = skimage.metrics.peak_signal_noise_ratio(truth, X, data_range=4.0)
    assert metrics.psnr(X, truth, data_range=4.0) == pytest.approx(expected, rel=1e-12)


def single_window_ssim(x: Any, y: Any, data_range: float) -> float:
    """The textbook formula for one 7×7 window, with the unbiased variances that scikit-image takes."""
    c1, c2 = (0.01 * data_range) ** 2, (0.03 * data_range) ** 2
    covariance = np.cov(x.ravel(), y.ravel())
    means = x.mean(), y.mean()
    top = (2 * means[0] * means[1] + c1) * (2 * covariance[0, 1] + c2)
    bottom = (means[0] ** 2 + means[1] ** 2 + c1) * (covariance[0, 0] + covariance[1, 1] + c2)
    return float(top / bottom)


def test_ssim_of_one_window_is_the_formula() -> None:
    rng = np.random.default_rng(2)
    truth = rng.random((7, 7))
    X = truth + 0.2 * rng.random((7, 7))
    spread = float(truth.max() - truth.min())
    assert metrics.ssim(X, truth) == pytest.approx(single_window_ssim(X, truth, spread), rel=1e-9)
    assert metrics.ssim(X, truth, data_range=1) == pytest.approx(single_window_ssim(X, truth, 1), rel=1e-9)


def test_ssim_of_stacks(stack: Any) -> None:
    X, truth, _ = stack
    values = metrics.ssim(X, truth)
    assert isinstance(values, np.ndarray)
    assert values.shape == (2, 3)
    assert len(np.unique(values)) == 6
    for index in np.ndindex(2, 3):
        single = metrics.ssim(array_api_strict.asarray(X[index]), truth[index])
        assert type(single) is float
        assert values[index] == single
    np.testing.assert_allclose(metrics.ssim(truth, truth), 1.0, rtol=1e-12)


def test_ssim_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    # None in sys.modules is how Python itself marks a module that cannot be imported.
    monkeypatch.setitem(sys.modules, "skimage", None)
    monkeypatch.setitem(sys.modules, "skimage.metrics", None)
    with pytest.raises(ImportError, match=r'pip install "airnp\[images\]"'):
        metrics.ssim(np.eye(8), np.eye(8))


def test_ssim_refuses_what_has_no_window() -> None:
    with pytest.raises(ValueError, match=r"at least 7×7.*\(6, 8\)"):
        metrics.ssim(np.eye(6, 8), np.eye(6, 8))
    with pytest.raises(ValueError, match=r"truth: expected finite.*nan at index \(0, 0\)"):
        metrics.ssim(np.eye(8), np.full((8, 8), np.nan))
    with pytest.raises(ValueError, match=r"truth: .*constant"):
        metrics.ssim(np.eye(8), np.ones((8, 8)))


@pytest.mark.parametrize(("metric", "loop"), MASKED)
def test_refuses_shapes_that_differ(metric: Metric, loop: Metric) -> None:
    wide, tall = np.eye(2, 3), np.eye(3, 2)
    with pytest.raises(ValueError, match=r"X \(2, 3\) and truth \(3, 2\)"):
        metric(wide, tall, None)
    with pytest.raises(ValueError, match=r"mask \(3, 2\) and truth \(2, 3\)"):
        metric(wide, wide, tall)
    # What NumPy would broadcast is refused too: a column is no matrix of equal columns.
    with pytest.raises(ValueError, match=r"X \(2, 1\) and truth \(2, 3\)"):
        metric(np.ones((2, 1)), wide, None)
    with pytest.raises(ValueError, match=r"matrices .* got shape \(3,\)"):
        metric(np.arange(3), np.arange(3), None)


@pytest.mark.parametrize(("metric", "loop"), MASKED)
def test_refuses_when_nothing_is_missing(metric: Metric, loop: Metric, stack: Any) -> None:
    X, truth, mask = stack
    with pytest.raises(ValueError, match=r"mask: .*all True$"):
        metric(X[0, 0], truth[0, 0], np.ones((M, N), dtype=bool))
    mask[1, 2] = True
    with pytest.raises(ValueError, match=r"mask: .*in problem \(1, 2\)"):
        metric(X, truth, mask)
    with pytest.raises(ValueError, match=r"truth: .*at least one entry, got shape \(0, 3\)"):
        metric(np.ones((0, 3)), np.ones((0, 3)), None)


@pytest.mark.parametrize(("metric", "loop"), MASKED)
@pytest.mark.parametrize("unknown", [np.nan, np.inf])
def test_refuses_an_unknown_truth(metric: Metric, loop: Metric, problem: Any, unknown: float) -> None:
    X, truth, mask = problem
    i, j = np.argwhere(~mask)[2]
    truth = truth.copy()
    truth[i, j] = unknown
    with pytest.raises(ValueError, match=rf"truth: expected finite.*{unknown} at index \({i}, {j}\)"):
        metric(X, truth, mask)


@pytest.mark.parametrize("metric", [metrics.nmae, metrics.psnr])
def test_refuses_a_constant_truth(metric: Metric, stack: Any) -> None:
    X, truth, mask = stack
    with pytest.raises(ValueError, match=r"truth: .*constant$"):
        metric(np.eye(2), np.ones((2, 2)), np.eye(2))
    truth[0, 1] = 4.0
    with pytest.raises(ValueError, match=r"truth: .*constant in problem \(0, 1\)"):
        metric(X, truth, mask)


@pytest.mark.parametrize("value", [2, -1, 0.5, np.nan])
def test_refuses_masks_that_are_not_masks(value: float) -> None:
    mask = np.array([[1, value], [0, 1]])
    with pytest.raises(ValueError, match=r"mask: .* at index \(0, 1\)"):
        metrics.rmse(np.eye(2), np.eye(2), mask)


@pytest.mark.parametrize("values", [np.eye(2) * 1j, np.array([["a", "b"], ["c", "d"]])])
def test_refuses_what_is_no_real_number(values: Any) -> None:
    with pytest.raises(TypeError, match="X: expected real numbers"):
        metrics.rmse(values, np.eye(2), None)
    with pytest.raises(TypeError, match="truth: expected real numbers"):
        metrics.rmse(np.eye(2), values, None)


@pytest.mark.parametrize("value", [0, -1.0, math.inf, math.nan, "1", True, [1.0]])
def test_refuses_a_data_range_that_is_no_positive_number(value: Any) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    with pytest.raises(ValueError if is_number else TypeError, match="data_range: "):
        metrics.psnr(np.eye(2), np.ones((2, 2)), data_range=value)


# ----------------------------------------------------------------------------------------- average precision


@given(
    ones=hnp.arrays(bool, (4, 7)),
    scores=hnp.arrays(np.float64, (4, 7), elements=st.sampled_from([-1.0, 0.0, 0.2, 0.5, 1.0])),
    mask=hnp.arrays(bool, (4, 7)),
)
def test_average_precision_agrees_with_scikit_learn(ones: Any, scores: Any, mask: Any) -> None:
    """Also with equal estimates, whose order must not matter."""
    from sklearn.metrics import average_precision_score

    assume((ones & ~mask).any())
    expected = average_precision_score(ones[~mask], scores[~mask])
    assert metrics.average_precision(scores, ones, mask) == pytest.approx(expected, rel=1e-12)


def test_average_precision_tells_apart_what_nmae_does_not() -> None:
    """One in 20 is 1: zero everywhere has a lower NMAE than an answer that finds all ones."""
    rng = np.random.default_rng(0)
    truth = (rng.random((40, 30)) < 0.05).astype(float)
    nothing, finds = np.zeros_like(truth), 0.05 + 0.05 * truth
    share = truth.mean()
    assert metrics.nmae(nothing, truth, None) < metrics.nmae(finds, truth, None)
    assert metrics.average_precision(nothing, truth, None) == pytest.approx(share)
    assert metrics.average_precision(finds, truth, None) == 1.0


def test_average_precision_of_stacks_and_of_a_diverged_answer() -> None:
    truth = np.zeros((2, 3, 4))
    truth[:, 1, 2] = 1
    X = np.stack([truth[0], np.where(truth[1] == 1, 0.5, 1.0)])
    np.testing.assert_allclose(metrics.average_precision(X, truth, None), [1.0, 1 / 12])
    X[0, 0, 0] = np.nan
    assert np.isnan(metrics.average_precision(X, truth, None)).tolist() == [True, False]


def test_average_precision_refuses_what_is_not_binary() -> None:
    truth = np.eye(3)
    with pytest.raises(ValueError, match=r"truth: expected 0 or 1 .* got 2 at index \(0, 0\)"):
        metrics.average_precision(truth, 2 * truth, None)
    with pytest.raises(ValueError, match="truth: expected a missing entry that is 1, got none"):
        metrics.average_precision(truth, truth, np.eye(3))
