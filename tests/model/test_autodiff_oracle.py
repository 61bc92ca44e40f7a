"""The closed-form gradients against automatic differentiation of a program that shares no line with airnp."""

from __future__ import annotations

import autograd
import autograd.numpy as anp
import numpy as np
import pytest
from hypothesis import given, settings
from scipy.sparse import issparse

from airnp import AdaptiveLaplacian, DirichletEnergy, FixedLaplacian, TotalVariation
from tests.strategies import Blur, Case, RowMixing, cases

pytestmark = pytest.mark.filterwarnings("ignore::airnp.EmptyLineWarning")


def laplacian(A):
    return anp.diag(anp.sum(A, axis=1)) - A


def adjacency(kind, V):
    E = anp.exp(V)
    if kind == "product":
        return anp.exp(V + V.T) / anp.sum(E)
    if kind == "row":
        P = E / anp.sum(E, axis=1, keepdims=True)
        return (P + P.T) / 2
    P = E / anp.sum(E)
    return P + P.T


def nodes(axis, X):
    if axis == "rows":
        return X
    if axis == "columns":
        return X.T
    if isinstance(axis, RowMixing):
        return anp.dot(axis.mixing, X)
    m, n = X.shape
    h, w = axis.height, axis.width
    blocks = [X[i : i + h, j : j + w].reshape(-1) for i in range(0, m, h) for j in range(0, n, w)]
    return anp.stack(blocks)


def covariance_graph(Y, mask):
    k = len(Y)
    A = np.zeros((k, k))
    centred = [np.where(mask[i], Y[i] - (Y[i][mask[i]].mean() if mask[i].any() else 0), 0) for i in range(k)]
    for i in range(k):
        for j in range(k):
            if i != j:
                A[i, j] = max(0.0, centred[i] @ centred[j] / max(1, np.sum(mask[i] & mask[j])))
    mean = A.sum() / k
    return A / mean if mean > 0 else A


def energy(regularizer, X, V, case):
    if isinstance(regularizer, AdaptiveLaplacian):
        Z = nodes(regularizer.axis, X)
        return anp.trace(anp.dot(Z.T, anp.dot(laplacian(adjacency(regularizer.adjacency, V)), Z)))
    if isinstance(regularizer, TotalVariation):
        down, across = X[1:] - X[:-1], X[:, 1:] - X[:, :-1]
        if regularizer.kind == "quadratic":
            return anp.sum(down**2) + anp.sum(across**2)
        e = regularizer.epsilon
        return anp.sum(anp.sqrt(down**2 + e**2) - e) + anp.sum(anp.sqrt(across**2 + e**2) - e)
    Z = nodes(regularizer.axis, X)
    if isinstance(regularizer, DirichletEnergy):
        Y, mask = case.settings["Y"], case.settings["mask"]
        A = covariance_graph(*((Y, mask) if regularizer.axis == "rows" else (Y.T, mask.T)))
        return anp.trace(anp.dot(Z.T, anp.dot(laplacian(A), Z)))
    assert isinstance(regularizer, FixedLaplacian)
    graph = regularizer.graph.toarray() if issparse(regularizer.graph) else regularizer.graph
    L = graph if regularizer.kind == "laplacian" else laplacian(graph)
    return anp.trace(anp.dot(Z.T, anp.dot(L, Z)))


def measured(operator, X):
    if operator is None:
        return X
    if isinstance(operator, Blur):
        return operator.forward(X)
    return anp.dot(operator.operator.A, X.reshape(-1))


def loss(params, case: Case):
    chosen = case.settings
    X = params[0]
    for W in params[1 : chosen["depth"]]:
        X = anp.dot(W, X)
    weights = chosen.get("weights", 1.0) * chosen.get("mask", True)
    error = measured(chosen.get("operator"), X) - chosen["Y"]
    delta = chosen["fidelity"].threshold
    if delta is not None:
        size = anp.abs(error)
        penalty = anp.where(size <= delta, error**2 / 2, delta * (size - delta / 2))
    else:
        penalty = error**2 / 2
    scale = 1.0 if chosen["fidelity"].scale == "sum" else 2 / X.size
    total = scale * anp.sum(weights * penalty)
    graphs = iter(params[chosen["depth"] :])
    for regularizer in chosen["regularizers"]:
        V = next(graphs) if isinstance(regularizer, AdaptiveLaplacian) else None
        total = total + regularizer.weight * energy(regularizer, X, V, case)
    return total


@given(cases(high=9))
@settings(max_examples=120)
def test_value_and_gradient_equal_those_of_automatic_differentiation(case):
    value, grads = case.objective.value_and_grad(case.point)
    assert value == pytest.approx(float(loss(case.point, case)), rel=1e-10)
    for position, grad in enumerate(grads):
        expected = autograd.grad(
            lambda p, i=position: loss([*case.point[:i], p, *case.point[i + 1 :]], case)
        )(case.point[position])
        scale = max(np.abs(expected).max(), 1e-12)
        np.testing.assert_allclose(grad / scale, expected / scale, atol=1e-9, err_msg=f"parameter {position}")
