"""The composed objective against finite differences, and its public promises."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

import airnp
from airnp import AdaptiveLaplacian, Objective
from tests.gradcheck import check_coordinates, check_direction
from tests.strategies import Case, cases, seeds

pytestmark = pytest.mark.filterwarnings("ignore::airnp.EmptyLineWarning")


def value_of(case: Case):
    return lambda params: case.objective.value_and_grad(params)[0]


@given(cases(high=5))
@settings(max_examples=60)
def test_every_coordinate_of_the_composed_gradient(case):
    _, grads = case.objective.value_and_grad(case.point)
    check_coordinates(value_of(case), case.point, grads)


@given(cases(low=5, high=17), seeds)
@settings(max_examples=60)
def test_the_composed_gradient_along_random_directions(case, seed):
    _, grads = case.objective.value_and_grad(case.point)
    check_direction(value_of(case), case.point, grads, np.random.default_rng(seed))


@given(cases())
def test_value_and_grad_is_pure(case):
    before = [param.copy() for param in case.point]
    first_value, first = case.objective.value_and_grad(case.point)
    kept = [grad.copy() for grad in first]
    second_value, second = case.objective.value_and_grad(case.point)
    assert first_value == second_value
    for old, new in zip(before, case.point, strict=True):
        np.testing.assert_array_equal(old, new)
    for old, new, again in zip(kept, first, second, strict=True):
        np.testing.assert_array_equal(old, new)
        np.testing.assert_array_equal(old, again)
        assert not np.shares_memory(new, again)
        assert not any(np.shares_memory(new, param) for param in case.point)


@given(cases())
def test_params_and_grads_have_the_promised_shapes(case):
    params = case.objective.init(seed=0)
    value, grads = case.objective.value_and_grad(params)
    assert type(value) is float
    assert [p.shape for p in params] == [g.shape for g in grads] == case.objective.param_shapes


def test_factors_come_first_then_one_graph_per_adaptive_regularizer():
    regularizers = [
        airnp.TotalVariation(0.1),
        AdaptiveLaplacian("columns"),
        airnp.DirichletEnergy("rows"),
        AdaptiveLaplacian("rows"),
    ]
    objective = Objective(np.eye(4, 6), np.eye(4, 6) > 0, regularizers=regularizers, depth=3, rank=2)
    assert [p.shape for p in objective.init(0)] == [(2, 6), (2, 2), (4, 2), (6, 6), (4, 4)]


def test_the_loss_is_that_of_the_design_written_out():
    rng = np.random.default_rng(0)
    Y, mask = 7 + 5 * rng.standard_normal((4, 6)), rng.random((4, 6)) < 0.7
    regularizers = [AdaptiveLaplacian("rows", 0.3), AdaptiveLaplacian("columns", 0.2)]
    for fidelity, scale in ((airnp.Squared(), 2 / 24), (airnp.Squared("sum"), 1.0)):
        objective = Objective(Y, mask, regularizers=regularizers, depth=3, fidelity=fidelity)
        W0, W1, W2, Vr, Vc = params = [rng.standard_normal(s) for s in objective.param_shapes]
        X = W2 @ W1 @ W0
        expected = scale / 2 * sum((X[i, j] - Y[i, j]) ** 2 for i in range(4) for j in range(6) if mask[i, j])
        for Z, V, weight in ((X, Vr, 0.3), (X.T, Vc, 0.2)):
            P = np.exp(V) / np.exp(V).sum(axis=1, keepdims=True)
            A = (P + P.T) / 2
            expected += weight * np.trace(Z.T @ (np.diag(A.sum(axis=1)) - A) @ Z)
        assert objective.value_and_grad(params)[0] == pytest.approx(expected, rel=1e-12)


def test_a_mask_and_the_operator_that_selects_its_entries_are_the_same_objective():
    rng = np.random.default_rng(1)
    Y, mask = rng.standard_normal((3, 5)), rng.random((3, 5)) < 0.6
    from scipy.sparse.linalg import aslinearoperator

    select = aslinearoperator(np.eye(15)[mask.ravel()])
    by_mask = Objective(Y, mask, depth=2)
    by_operator = Objective(Y[mask], operator=airnp.Operator(select, (3, 5)), depth=2)
    params = by_mask.init(3)
    value, grads = by_mask.value_and_grad(params)
    other_value, other_grads = by_operator.value_and_grad(params)
    assert value == pytest.approx(other_value, rel=1e-12)
    for a, b in zip(grads, other_grads, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_values_at_missing_entries_do_not_matter_even_nan():
    rng = np.random.default_rng(2)
    Y, mask = rng.standard_normal((4, 3)), rng.random((4, 3)) < 0.7
    spoiled = np.where(mask, Y, np.nan)
    params = Objective(Y, mask).init(0)
    clean, dirty = (Objective(data, mask).value_and_grad(params) for data in (Y, spoiled))
    assert clean[0] == dirty[0]
    for a, b in zip(clean[1], dirty[1], strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("kind", ["row", "global", "product"])
def test_a_large_v_does_not_overflow(kind):
    """Adding a constant to V leaves "row" and "global" as they are; a naive softmax would give NaN."""
    rng = np.random.default_rng(3)
    objective = Objective(rng.random((4, 3)), regularizers=[AdaptiveLaplacian("rows", 1.0, kind)], depth=1)
    W, V = objective.init(0)
    shift = -400.0 if kind == "product" else 1e4
    value, grads = objective.value_and_grad([W, V + shift])
    assert np.isfinite(value)
    assert all(np.isfinite(grad).all() for grad in grads)
    if kind != "product":
        np.testing.assert_allclose(value, objective.value_and_grad([W, V])[0], rtol=1e-9)


def test_scipy_minimizes_it():
    rng = np.random.default_rng(4)
    truth = rng.random((8, 2)) @ rng.random((2, 7))
    mask = rng.random(truth.shape) < 0.8
    objective = Objective(truth, mask, regularizers=[], depth=2, rank=2)

    def value_and_gradient(vector):
        value, grads = objective.value_and_grad(objective.unpack(vector))
        return value, objective.pack(grads)

    start = objective.pack(objective.init(0, airnp.Gaussian(0.3, 0.3)))
    found = minimize(
        value_and_gradient, start, jac=True, method="L-BFGS-B", options={"maxiter": 2000, "ftol": 1e-15}
    )
    X = objective.matrix(objective.unpack(found.x))
    assert airnp.metrics.nmae(X, truth, mask) < 0.02


@given(cases())
def test_pack_and_unpack_are_inverse(case):
    vector = case.objective.pack(case.point)
    for a, b in zip(case.point, case.objective.unpack(vector), strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(ValueError, match="vector: expected shape"):
        case.objective.unpack(vector[:-1])


@given(st.sampled_from([(2,), (2, 3)]), st.integers(1, 4), seeds)
def test_a_stack_is_the_sum_of_its_problems(batch, depth, seed):
    rng = np.random.default_rng(seed)
    Y, mask = rng.standard_normal((*batch, 5, 3)), rng.random((*batch, 5, 3)) < 0.7
    mask[..., 0, 0] = True
    settings = {
        "depth": depth,
        "fidelity": airnp.Huber(),
        "regularizers": [
            *(AdaptiveLaplacian("columns", 0.4, kind) for kind in ("row", "global", "product")),
            AdaptiveLaplacian(airnp.Blocks(5, 1), 0.3),
            airnp.TotalVariation(0.2),
            airnp.TotalVariation(0.2, "quadratic"),
            airnp.DirichletEnergy("columns", 0.1),
            airnp.FixedLaplacian(np.ones((5, 5)), "rows", 0.1),
        ],
    }
    stack = Objective(Y, mask, **settings)
    params = [rng.standard_normal(shape) for shape in stack.param_shapes]
    value, grads = stack.value_and_grad(params)
    total = 0.0
    for place in np.ndindex(*batch):
        single = Objective(Y[place], mask[place], **settings)
        one, one_grads = single.value_and_grad([param[place] for param in params])
        total += one
        for grad, expected in zip(grads, one_grads, strict=True):
            np.testing.assert_allclose(grad[place], expected, rtol=1e-10, atol=1e-12)
    assert value == pytest.approx(total, rel=1e-12)


def test_default_graph_weight():
    mean = Objective(np.zeros((240, 240)) + 0.5)
    assert [term.weight for term in mean.terms] == pytest.approx([5e-5, 5e-5])
    total = Objective(np.zeros((240, 240)) + 0.5, fidelity=airnp.Squared("sum"))
    assert [term.weight for term in total.terms] == pytest.approx([1.44, 1.44])


def test_wrong_params_are_named():
    objective = Objective(np.ones((3, 4)))
    params = objective.init(0)
    with pytest.raises(ValueError, match="params: expected 5 arrays, got 4"):
        objective.value_and_grad(params[:-1])
    with pytest.raises(ValueError, match=r"params: array 0 must have shape \(3, 4\), got \(4, 3\)"):
        objective.value_and_grad([params[0].T, *params[1:]])


def test_no_warning_from_arithmetic():
    terms = [AdaptiveLaplacian(), airnp.TotalVariation(1)]
    objective = Objective(np.zeros((1, 1)), depth=2, regularizers=terms)
    value, grads = objective.value_and_grad(objective.init(0))
    assert np.isfinite(value)
    assert all(np.isfinite(grad).all() for grad in grads)
