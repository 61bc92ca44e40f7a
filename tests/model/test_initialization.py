"""Shapes of the factors, and where a fit starts: lively at every size and depth, balanced, or as given."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import airnp
from airnp import Balanced, Gaussian, Objective
from airnp.model.factorization import factor_shapes
from airnp.model.initialization import draw_graph, lively_scale

SHAPES = [(12, 9), (9, 12), (30, 20), (60, 40), (120, 80), (240, 240), (300, 200)]
DEPTHS = range(1, 7)


def product(factors: list[np.ndarray]) -> np.ndarray:
    result = factors[0]
    for factor in factors[1:]:
        result = factor @ result
    return result


@pytest.mark.parametrize(("depth", "rank"), [(1, 4), (2, 3), (3, 2), (5, 1)])
def test_factor_shapes_multiply_to_the_matrix(depth, rank):
    shapes = factor_shapes(6, 4, depth, rank)
    assert len(shapes) == depth
    assert product([np.ones(shape) for shape in shapes]).shape == (6, 4)


# --- Gaussian ---


def test_the_default_is_that_of_the_paper_at_its_own_size():
    drawn = Gaussian().draw(np.random.default_rng(5), 240, 240, 3, 240)
    rng = np.random.default_rng(5)
    for factor in drawn:
        np.testing.assert_allclose(factor, rng.normal(1e-3, 1e-3, (240, 240)), rtol=1e-9, atol=1e-15)
        assert factor.mean() == pytest.approx(1e-3, rel=0.02)
        assert factor.std() == pytest.approx(1e-3, rel=0.02)
    named = Objective(np.ones((240, 240)), regularizers=[]).init(5, "gaussian")
    default = Objective(np.ones((240, 240)), regularizers=[]).init(5)
    for factor, mine, other in zip(drawn, named, default, strict=True):
        np.testing.assert_array_equal(mine, factor)
        np.testing.assert_array_equal(other, factor)


def test_mean_and_scale_are_taken():
    factors = Gaussian(0.5, 0.01).draw(np.random.default_rng(0), 80, 50, 3, 40)
    assert [factor.shape for factor in factors] == [(40, 50), (40, 40), (80, 40)]
    for factor in factors:
        assert factor.mean() == pytest.approx(0.5, abs=0.002)
        assert factor.std() == pytest.approx(0.01, rel=0.1)
    constant = Gaussian(0.5, 0).draw(np.random.default_rng(0), 8, 5, 2, 3)
    assert all((factor == 0.5).all() for factor in constant)
    centred = Gaussian(mean=0.0).draw(np.random.default_rng(0), 240, 240, 3, 240)[0]
    assert abs(centred.mean()) < 2e-5
    assert centred.std() == pytest.approx(1e-3, rel=0.02)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mean": np.nan}, "mean: expected a finite number"),
        ({"mean": np.inf}, "mean: expected a finite number"),
        ({"scale": -1.0}, "scale: expected a finite number of at least 0"),
        ({"scale": np.nan}, "scale: expected a finite number of at least 0"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        Gaussian(**arguments)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("depth", DEPTHS)
def test_the_first_matrix_is_small_beside_the_data(shape, depth):
    """The bias to low rank comes from a small start; data is in [0, 1]."""
    x = product(Gaussian().draw(np.random.default_rng(0), *shape, depth, min(shape)))
    assert 1e-5 < np.abs(x).mean() < 5e-3


# --- balanced ---


@given(
    m=st.integers(1, 14),
    n=st.integers(1, 14),
    depth=st.integers(1, 6),
    share=st.floats(0, 1),
    seed=st.integers(0, 2**32),
)
def test_balanced_factors_are_balanced(m, n, depth, share, seed):
    rank = min(m, n) if depth == 1 else 1 + round(share * (min(m, n) - 1))
    assert_balanced(m, n, depth, rank, seed)


@pytest.mark.parametrize(
    ("m", "n", "depth", "rank"), [(240, 240, 3, 240), (300, 200, 6, 200), (90, 120, 4, 7)]
)
def test_large_balanced_factors_are_balanced(m, n, depth, rank):
    assert_balanced(m, n, depth, rank, 0, 0.1, 0.2)


def assert_balanced(m, n, depth, rank, seed, *settings):
    """Assert that balanced factors are balanced, and that their product is that of Gaussian ones."""
    factors = Balanced(*settings).draw(np.random.default_rng(seed), m, n, depth, rank)
    assert len(factors) == depth
    for lower, upper in itertools.pairwise(factors):
        inner, outer = lower @ lower.T, upper.T @ upper
        assert inner.shape == (rank, rank)
        np.testing.assert_allclose(outer, inner, rtol=0, atol=1e-12 * np.abs(inner).max())
    gaussian = product(Gaussian(*settings).draw(np.random.default_rng(seed), m, n, depth, rank))
    np.testing.assert_allclose(product(factors), gaussian, rtol=0, atol=1e-12 * np.abs(gaussian).max())


def test_gaussian_factors_are_not_balanced():
    lower, upper, _ = Gaussian().draw(np.random.default_rng(0), 12, 9, 3, 9)
    assert np.abs(upper.T @ upper - lower @ lower.T).max() > 0.1 * np.abs(lower @ lower.T).max()


def test_balanced_factors_stay_balanced_under_small_steps():
    """Gradient flow keeps the balance; descent leaves it only by the square of its step."""
    rng = np.random.default_rng(0)
    objective = Objective(rng.random((8, 6)), rng.random((8, 6)) < 0.7, regularizers=[])
    drift = []
    for rate in (1e-2, 1e-3):
        params = objective.init(1, Balanced(0.3, 0.3))
        optimizer = airnp.GradientDescent(rate)
        state = optimizer.init(params)
        for _ in range(round(1 / rate)):
            optimizer.step(params, objective.value_and_grad(params)[1], state)
        drift.append(np.abs(params[1].T @ params[1] - params[0] @ params[0].T).max())
    assert drift[1] < 0.2 * drift[0]
    assert drift[1] < 1e-4


def test_balanced_is_named():
    result = airnp.fit(np.eye(5), init="balanced", max_iter=1, stop=None, seed=0)
    other = airnp.fit(np.eye(5), init=Balanced(), max_iter=1, stop=None, seed=0)
    gaussian = airnp.fit(np.eye(5), init="gaussian", max_iter=1, stop=None, seed=0)
    np.testing.assert_array_equal(result.X, other.X)
    assert not np.array_equal(result.X, gaussian.X)


# --- the start ---


def test_problems_of_a_stack_start_alike():
    rng = np.random.default_rng(0)
    stack, single = rng.random((2, 3, 6, 5)), rng.random((6, 5))
    for many, one in zip(Objective(stack).init(3), Objective(single).init(3), strict=True):
        assert many.shape == (2, 3, *one.shape)
        np.testing.assert_array_equal(many, np.broadcast_to(one, many.shape))
        assert many.flags.c_contiguous
        many[0, 0] += 1
        assert not np.array_equal(many[0, 0], many[0, 1]), "each has memory of its own"


def test_graphs_start_within_bounds():
    v = draw_graph(np.random.default_rng(0), 50)
    bound = 1 / np.sqrt(50)
    assert np.abs(v).max() <= bound
    assert np.abs(v).max() > 0.99 * bound
    assert abs(v.mean()) < 0.03 * bound
    assert [p.shape for p in Objective(np.ones((6, 4)), depth=1).init(0)] == [(6, 4), (6, 6), (4, 4)]


@pytest.mark.parametrize("init", ["gaussian", "balanced"])
def test_the_seed_decides(init):
    objective = Objective(np.ones((6, 4)))
    first, again, other = (objective.init(seed, init) for seed in (1, 1, 2))
    for a, b, c in zip(first, again, other, strict=True):
        np.testing.assert_array_equal(a, b)
        assert not np.array_equal(a, c)


def test_given_arrays_are_copied():
    objective = Objective(np.ones((2, 4, 3)), depth=2, rank=2)
    given_factors = [np.full((2, 3), 0.5), np.arange(16.0).reshape(2, 4, 2)]
    start = objective.init(0, given_factors)
    np.testing.assert_array_equal(start[0], np.full((2, 2, 3), 0.5))  # one matrix serves the whole stack
    np.testing.assert_array_equal(start[1], given_factors[1])
    start[1] += 1
    assert given_factors[1][0, 0, 0] == 0
    assert len(start) == 4


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("depth", DEPTHS)
def test_the_first_gradient_is_well_above_the_epsilon_of_adam(shape, depth):
    rng = np.random.default_rng(0)
    objective = Objective(rng.random(shape), rng.random(shape) < 0.7, regularizers=[], depth=depth)
    _, grads = objective.value_and_grad(objective.init(0))
    for grad in grads:
        assert np.median(np.abs(grad)) >= 1e-7


@pytest.mark.parametrize("depth", DEPTHS)
def test_larger_matrices_start_lively_as_well(depth):
    """By the docstring's estimate of the first gradient, μᴸ⁻¹ rᴸ⁻² / max(m, n)."""
    mean = lively_scale(2000, 1500, depth, 1500)
    assert depth == 1 or mean ** (depth - 1) * 1500 ** (depth - 2) / 2000 >= 1e-7


def fitted(shape: tuple[int, int], depth: int, init: str = "gaussian") -> np.ndarray:
    """The fidelities of a fit that ends once they have fallen to a hundredth."""
    rng = np.random.default_rng(1)
    truth = rng.random((shape[0], 3)) @ rng.random((3, shape[1]))
    first = []

    def enough(iteration, state):
        first.append(state.fidelity)
        return state.fidelity < first[0] / 100

    options = {"regularizers": [], "depth": depth, "init": init, "max_iter": 5000, "stop": None, "seed": 0}
    result = airnp.fit(truth, rng.random(shape) < 0.7, dtype="float32", callback=enough, **options)
    return result.history["fidelity"]


@pytest.mark.parametrize(
    "shape",
    [
        *[(12, 9), (30, 20), (60, 40)],
        *[pytest.param(shape, marks=pytest.mark.slow) for shape in [(120, 80), (240, 240), (300, 200)]],
    ],
)
@pytest.mark.parametrize("depth", DEPTHS)
def test_every_size_and_depth_gets_going(shape, depth):
    """Rank 3, so that more than the mean must be found: a start too small stays at the first component."""
    fidelities = fitted(shape, depth)
    assert fidelities[-1] < fidelities[0] / 100


@pytest.mark.parametrize("depth", [2, 3, 6])
def test_balanced_starts_get_going(depth):
    fidelities = fitted((30, 20), depth, "balanced")
    assert fidelities[-1] < fidelities[0] / 100
