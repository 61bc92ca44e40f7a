"""Every engine on the same cases: each operation against its definition and finite differences."""

from __future__ import annotations

import importlib
import inspect

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airnp import engines
from airnp.engines import contract, reference
from tests.gradcheck import check_coordinates
from tests.strategies import ADJACENCIES, seeds, symmetric_graph

ALL = [importlib.import_module(name) for name in engines._MODULES.values()]
ENGINES = [module for module in ALL if not module.__name__.endswith("cuda")]  # tested in test_cuda_engine.py
OPERATIONS = [
    name for name, item in vars(contract.Engine).items() if inspect.isfunction(item) and name[0] != "_"
]


def short_name(module):
    return module.__name__.rsplit(".", 1)[-1]


engine = pytest.mark.parametrize("ops", ENGINES, ids=short_name)
sizes = st.integers(1, 6)
batches = st.sampled_from([(), (2,), (2, 1)])


@pytest.mark.parametrize("ops", ALL, ids=short_name)
@pytest.mark.parametrize("name", OPERATIONS)
def test_signatures_are_those_of_the_contract(ops, name):
    expected = inspect.signature(getattr(contract.Engine, name)).parameters
    offered = inspect.signature(getattr(ops, name)).parameters
    described = [(p.name, p.kind, p.default) for p in expected.values()][1:]
    assert [(p.name, p.kind, p.default) for p in offered.values()] == described


def test_the_contract_lists_operations():
    assert {"product", "laplacian_terms", "residual", "apply_updates"} <= set(OPERATIONS)
    assert {"residuals", "entry_values", "line_sums", "edge_terms", "gram_factors", "decay"} <= set(
        OPERATIONS
    )


@engine
@given(batches, sizes, sizes, sizes, seeds)
def test_products(ops, batch, m, k, n, seed):
    rng = np.random.default_rng(seed)
    a, b, c = (rng.standard_normal((*batch, *shape)) for shape in ((m, k), (k, n), (m, n)))
    expected = np.einsum("...mk,...kn->...mn", a, b)
    np.testing.assert_allclose(ops.product(a, b), expected, atol=1e-12)
    np.testing.assert_allclose(ops.add_product(c.copy(), a, b, alpha=-0.7), c - 0.7 * expected, atol=1e-12)
    np.testing.assert_allclose(ops.gram(a), np.einsum("...ik,...jk->...ij", a, a), atol=1e-12)
    np.testing.assert_allclose(ops.gram(a, columns=True), np.einsum("...ki,...kj->...ij", a, a), atol=1e-12)
    turned_a, turned_b = (np.ascontiguousarray(array.swapaxes(-1, -2)) for array in (a, b))
    np.testing.assert_allclose(ops.product(turned_a, b, transpose_a=True), expected, atol=1e-12)
    np.testing.assert_allclose(ops.product(a, turned_b, transpose_b=True), expected, atol=1e-12)
    both = ops.product(turned_a, turned_b, transpose_a=True, transpose_b=True)
    np.testing.assert_allclose(both, expected, atol=1e-12)


def literal_adjacency(kind, V):
    """Return an adjacency of one matrix, entry by entry."""
    k = len(V)
    E = np.exp(V)
    if kind == "product":
        return np.array([[np.exp(V[i, j] + V[j, i]) / E.sum() for j in range(k)] for i in range(k)])
    P = E / (E.sum(axis=1, keepdims=True) if kind == "row" else E.sum())
    return (P + P.T) / (2 if kind == "row" else 1)


def literal_energy(A, Z):
    """Return ½ Σ A_ij ‖z_i − z_j‖², entry by entry."""
    k = len(Z)
    return sum(A[i, j] * np.sum((Z[i] - Z[j]) ** 2) for i in range(k) for j in range(k)) / 2


@engine
@pytest.mark.parametrize("kind", ADJACENCIES)
@given(k=sizes, d=sizes, seed=seeds)
def test_laplacian_terms_by_definition(ops, kind, k, d, seed):
    rng = np.random.default_rng(seed)
    Z, V = rng.standard_normal((k, d)), rng.standard_normal((k, k))
    terms = ops.laplacian_terms(kind, V, Z @ Z.T, weight=0.3)
    A = literal_adjacency(kind, V)
    np.testing.assert_allclose(terms.adjacency, A, rtol=1e-12)
    np.testing.assert_allclose(ops.adjacency(kind, V), A, rtol=1e-12)
    np.testing.assert_allclose(terms.pull, 0.6 * A.sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose(terms.energy, literal_energy(A, Z), rtol=1e-9, atol=1e-12)
    laplacian = np.diag(A.sum(axis=1)) - A
    np.testing.assert_allclose(terms.energy, np.trace(Z.T @ laplacian @ Z), rtol=1e-9, atol=1e-12)


@engine
@pytest.mark.parametrize("kind", ADJACENCIES)
@given(k=sizes, d=sizes, seed=seeds)
def test_gradient_of_the_graph(ops, kind, k, d, seed):
    rng = np.random.default_rng(seed)
    Z, V = rng.standard_normal((k, d)), rng.standard_normal((k, k))
    K, weight = Z @ Z.T, 0.3
    terms = ops.laplacian_terms(kind, V, K, weight=weight)

    def value(point):
        return weight * float(ops.laplacian_terms(kind, point[0], K, weight=weight).energy)

    check_coordinates(value, [V], [terms.gradient])


@engine
@pytest.mark.parametrize("kind", ADJACENCIES)
def test_fused_graph_update_equals_gradient_then_update(ops, kind):
    rng = np.random.default_rng(0)
    V, Z = rng.standard_normal((5, 5)), rng.standard_normal((5, 3))

    def update():
        moments = contract.Moments(np.full((5, 5), 0.1), np.full((5, 5), 0.2))
        return contract.AdamUpdate(moments, 1e-2, 3, 0.9, 0.999, 1e-8)

    apart, fused = update(), update()
    terms = ops.laplacian_terms(kind, V.copy(), Z @ Z.T, weight=0.3)
    (expected,) = ops.apply_updates([V.copy()], [terms.gradient], [apart])
    moved = ops.laplacian_terms(kind, V.copy(), Z @ Z.T, weight=0.3, update=fused)
    assert moved.gradient is None
    np.testing.assert_allclose(moved.parameter, expected, rtol=1e-12)
    np.testing.assert_allclose(fused.moments.second, apart.moments.second, rtol=1e-12)
    np.testing.assert_allclose(moved.adjacency, terms.adjacency, rtol=1e-12)
    assert float(moved.energy) == pytest.approx(float(terms.energy), rel=1e-12)


@engine
@given(
    m=sizes,
    n=sizes,
    seed=seeds,
    delta=st.sampled_from([None, 0.5, 2.0]),
    rows=st.booleans(),
    columns=st.booleans(),
)
def test_residual(ops, m, n, seed, delta, rows, columns):
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((m, n)), rng.standard_normal((m, n))
    weights = rng.random((m, n)) * (rng.random((m, n)) < 0.7)
    row_scale = rng.random(m) if rows else None
    column_scale = rng.random(n) if columns else None
    settings = {"scale": 0.6, "huber_delta": delta}
    value, gradient = ops.residual(x, y, weights, row_scale=row_scale, column_scale=column_scale, **settings)
    error = x - y
    if delta is None:
        expected = 0.3 * np.sum(weights * error**2)
    else:
        tails = delta * (np.abs(error) - delta / 2)
        expected = 0.6 * np.sum(weights * np.where(np.abs(error) <= delta, error**2 / 2, tails))
    assert float(value) == pytest.approx(float(expected), rel=1e-12, abs=1e-14)

    def total(point):
        found = float(ops.residual(point[0], y, weights, **settings)[0])
        found += 0 if row_scale is None else 0.5 * float(np.sum(row_scale[:, None] * point[0] ** 2))
        return found + (0 if column_scale is None else 0.5 * float(np.sum(column_scale * point[0] ** 2)))

    check_coordinates(total, [x], [gradient], step=1e-5, tol=1e-5)


@engine
@given(batch=batches, k=sizes, d=sizes, seed=seeds, weight=st.floats(0.1, 2))
def test_fixed_laplacian(ops, batch, k, d, seed, weight):
    rng = np.random.default_rng(seed)
    z, g, A = (
        rng.standard_normal((*batch, k, d)),
        rng.standard_normal((*batch, k, d)),
        symmetric_graph(rng, k),
    )
    energy, accumulated = ops.fixed_laplacian(g.copy(), z, A, A.sum(axis=1), weight=weight)
    laplacian = np.diag(A.sum(axis=1)) - A
    np.testing.assert_allclose(
        energy, np.einsum("...id,ij,...jd->...", z, laplacian, z), rtol=1e-9, atol=1e-10
    )
    np.testing.assert_allclose(accumulated - g, 2 * weight * (laplacian @ z), rtol=1e-9, atol=1e-10)


@engine
@pytest.mark.parametrize("kind", ["l1", "quadratic"])
@given(m=sizes, n=sizes, seed=seeds)
def test_total_variation(ops, kind, m, n, seed):
    rng = np.random.default_rng(seed)
    x, g, weight, epsilon = rng.standard_normal((m, n)), rng.standard_normal((m, n)), 0.4, 0.3
    settings = {"kind": kind, "epsilon": epsilon, "weight": weight}
    energy, accumulated = ops.total_variation(g.copy(), x, **settings)
    steps = np.concatenate([np.diff(x, axis=0).ravel(), np.diff(x, axis=1).ravel()])
    expected = np.sum(np.sqrt(steps**2 + epsilon**2) - epsilon) if kind == "l1" else np.sum(steps**2)
    assert float(energy) == pytest.approx(float(expected), rel=1e-9, abs=1e-12)

    def value(point):
        return weight * float(ops.total_variation(np.zeros_like(g), point[0], **settings)[0])

    check_coordinates(value, [x], [accumulated - g])


def test_quadratic_variation_is_the_dirichlet_energy_of_two_paths():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4, 3))
    path = {size: np.eye(size, k=1) + np.eye(size, k=-1) for size in (4, 3)}
    zero = np.zeros_like(x)
    rows, _ = reference.fixed_laplacian(zero, x, path[4], path[4].sum(axis=1), weight=1.0)
    columns, _ = reference.fixed_laplacian(zero.T, x.T, path[3], path[3].sum(axis=1), weight=1.0)
    both, _ = reference.total_variation(zero, x, kind="quadratic", epsilon=1.0, weight=1.0)
    assert float(both) == pytest.approx(float(rows + columns), rel=1e-12)


@engine
def test_run_returns_the_values_of_every_iteration(ops):
    counter = iter(range(100))

    def step(updates):
        assert updates == ["update"]
        number = next(counter)
        return [np.asarray([number, 10.0 * number]), np.asarray([-number, 0.5])]

    recorded = ops.prepare(lambda: ["update"], step)(3)
    assert recorded.dtype == np.float64
    np.testing.assert_array_equal(recorded[:, 0, 1], [0, 10, 20])
    assert recorded.shape == (3, 2, 2)


def test_an_unknown_engine_is_named_with_the_valid_ones():
    with pytest.raises(ValueError, match=r"engine: expected one of 'auto', 'reference'.*got 'warp'"):
        engines.select_engine("warp", np)
