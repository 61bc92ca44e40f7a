"""Regularisers of a user's own: a function of X, or a subclass with terms for both forms."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

import airnp
from airnp import AdaptiveLaplacian, Custom, Objective, TotalVariation, WeightDecay
from airnp.regularizers.base import FactoredTerm, Term
from tests.gradcheck import check_coordinates


def row_sums(X):
    """R = Σ (row sum − 1)², of each matrix of a stack."""
    off = X.sum(axis=-1, keepdims=True) - 1
    return (off**2).sum(axis=(-2, -1)), 2 * off + 0 * X


def data(*batch):
    rng = np.random.default_rng(0)
    return rng.random((*batch, 7, 5)), rng.random((*batch, 7, 5)) < 0.8


def test_the_gradient_of_a_stack_with_a_custom_regularizer():
    rng = np.random.default_rng(1)
    terms = [AdaptiveLaplacian("columns", 0.3), Custom(row_sums, 0.7), TotalVariation(0.2, epsilon=0.3)]
    objective = Objective(*data(2), regularizers=terms, depth=2, rank=3)
    point = [rng.standard_normal(shape) for shape in objective.param_shapes]
    _, grads = objective.value_and_grad(point)
    check_coordinates(lambda params: objective.value_and_grad(params)[0], point, grads)
    X = objective.matrix(point)
    others = Objective(*data(2), regularizers=[terms[0], terms[2]], depth=2, rank=3)
    difference = objective.value_and_grad(point)[0] - others.value_and_grad(point)[0]
    assert difference == pytest.approx(0.7 * float(np.sum((X.sum(axis=-1) - 1) ** 2)), rel=1e-10)


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (
            lambda X: (0.0, X[..., :-1]),
            ValueError,
            r"expected a gradient of shape \(2, 7, 5\), got \(2, 7, 4\)",
        ),
        (lambda X: (X.sum(axis=-1), X), ValueError, r"expected a value of shape \(2,\), got \(2, 7\)"),
        (lambda X: (0.0, X), ValueError, r"expected a value of shape \(2,\), got \(\)"),
        (
            lambda X: (X.sum(axis=(1, 2)), X.tolist()),
            TypeError,
            "expected an array like X as gradient, got list",
        ),
    ],
)
def test_a_custom_function_that_returns_something_else_is_refused(function, error, message):
    with pytest.raises(error, match=f"value_and_grad: {message}"):
        airnp.fit(*data(2), regularizers=[Custom(function, 0.1)])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((3, 0.1), TypeError, "value_and_grad: expected a function of X, got int"),
        ((row_sums, -1), ValueError, "weight: expected a finite number of at least 0"),
        ((row_sums, 0.1, "two words"), ValueError, "name: expected a word such as 'smoothness'"),
    ],
)
def test_bad_arguments_of_a_custom_regularizer_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        Custom(*arguments)


@pytest.mark.parametrize("engine", ["cpu", "reference"])
def test_a_fit_with_a_custom_regularizer(engine):
    """Every iteration calls the function: a replay of the first one would not."""
    options = {"normalize": False, "max_iter": 300, "stop": None, "seed": 0, "engine": engine}
    strong = airnp.fit(*data(), regularizers=[Custom(row_sums, 10.0, name="sums")], **options)
    without = airnp.fit(*data(), regularizers=[], **options)
    energy = strong.history["energy_sums"]
    assert energy[-1] < 0.1 * energy[0]
    assert energy[-1] == pytest.approx(row_sums(strong.X)[0], rel=0.05)
    assert row_sums(strong.X)[0] < 0.1 * row_sums(without.X)[0]
    assert strong.regularizers[0].description == "Custom(row_sums, weight=10.0, name='sums')"


def test_a_checkpoint_asks_for_a_custom_regularizer_again(tmp_path):
    file, terms = tmp_path / "run.npz", [AdaptiveLaplacian(), Custom(row_sums, 0.1)]
    common = {"regularizers": terms, "stop": None, "seed": 0}
    airnp.fit(*data(), max_iter=20, checkpoint=file, **common)
    with pytest.raises(ValueError, match=r"regularizers: the run had .*a file cannot hold; give it again"):
        airnp.resume(file, max_iter=50)
    resumed = airnp.resume(file, max_iter=50, regularizers=terms)
    np.testing.assert_array_equal(resumed.X, airnp.fit(*data(), max_iter=50, **common).X)


def test_a_sparse_fit_refuses_what_needs_the_whole_matrix():
    for term in (Custom(row_sums, 0.1), TotalVariation(1e-3), airnp.DirichletEnergy()):
        with pytest.raises(ValueError, match="regularizers: fit_sparse has AdaptiveLaplacian, Fixed"):
            airnp.fit_sparse(csr_array(data()[0]), rank=2, regularizers=[term])


# --- a subclass ---


class Ridge(airnp.Regularizer):
    """½ ‖X‖² for a whole matrix, ½ ‖U‖² + ½ ‖V‖² in the factored form, by NumPy and not by an engine."""

    name = "ridge"

    def __init__(self, weight):
        self.weight = weight

    def bind(self, problem):
        return RidgeTerm(self.weight)

    def bind_factored(self, problem):
        return FactoredRidgeTerm(self.weight)


class RidgeTerm(Term):
    def __init__(self, weight):
        self.weight = weight

    def accumulate(self, ops, x, g, contribution):
        return 0.5 * (x**2).sum(axis=(-2, -1)), g + self.weight * x


class FactoredRidgeTerm(FactoredTerm):
    def __init__(self, weight):
        self.weight = weight

    def accumulate(self, ops, sides, graph, space):
        for matrix, slope in sides.values():
            slope += self.weight * matrix
        return np.array(0.5 * sum(float((matrix**2).sum()) for matrix, _ in sides.values()))


@pytest.mark.parametrize("engine", ["cpu", "reference"])
def test_a_subclass_in_both_forms(engine):
    Y, mask = data()
    common = {"max_iter": 60, "stop": None, "seed": 0, "engine": engine}
    found = airnp.fit(Y, mask, regularizers=[Ridge(0.3)], **common)
    wanted = airnp.fit(
        Y, mask, regularizers=[Custom(lambda X: (0.5 * (X**2).sum(), X), 0.3, name="ridge")], **common
    )
    np.testing.assert_array_equal(found.X, wanted.X)
    np.testing.assert_allclose(found.history["energy_ridge"], wanted.history["energy_ridge"], rtol=1e-12)
    common |= {"rank": 3, "depth": 2}
    found = airnp.fit_sparse(csr_array(Y * mask), regularizers=[Ridge(0.3)], **common)
    wanted = airnp.fit_sparse(csr_array(Y * mask), regularizers=[WeightDecay(0.3)], **common)
    np.testing.assert_allclose(found.X, wanted.X, rtol=1e-9)
    np.testing.assert_allclose(found.history["energy_ridge"], wanted.history["energy_decay"], rtol=1e-9)
