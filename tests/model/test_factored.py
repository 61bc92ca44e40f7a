"""The objective of the factored form: gradients by finite differences, and equality with the dense form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

import airnp
from airnp import AdaptiveLaplacian, FixedLaplacian, Gaussian, HeldOut, Nearest, Squared, WeightDecay
from airnp.data.entries import Pattern, read_entries
from airnp.engines import cpu, reference
from airnp.engines.contract import Edges
from airnp.model.factored import FactoredObjective, Layout
from airnp.model.offsets import first_offsets
from airnp.regularizers import candidates
from airnp.regularizers.candidates import Exchange, edges_to, given_edges, near_each_other
from tests.gradcheck import check_direction
from tests.sparse_tables import weighted_table
from tests.strategies import SCALES, seeds, symmetric_graph

# Rows and columns without entries are part of the cases.
pytestmark = pytest.mark.filterwarnings("ignore::airnp.EmptyLineWarning")


def loss(objective: FactoredObjective, params: Any) -> float:
    found = objective.evaluate(params)
    return float(objective.losses(found.fidelity, found.energies))


def gradients(objective: FactoredObjective, params: Any) -> list[np.ndarray]:
    return [grad.copy() for grad in objective.evaluate(params).gradients]


@st.composite
def objectives(draw: st.DrawFn) -> tuple[FactoredObjective, list[np.ndarray], np.random.Generator]:
    """Any objective and a point: depth, offsets, mask factor, weights, all kinds of regularisers together."""
    rng = np.random.default_rng(draw(seeds))
    m, n = draw(st.integers(2, 9)), draw(st.integers(2, 9))
    rank, depth = draw(st.integers(1, min(m, n))), draw(st.integers(2, 4))
    sides = draw(st.sampled_from(["none", "rows", "columns", "both"]))
    layout = Layout(
        m, n, depth, rank, sides in ("rows", "both"), sides in ("columns", "both"), draw(st.booleans())
    )
    regularizers: list[airnp.Regularizer] = []
    for axis, nodes in (("rows", m), ("columns", n)):
        kind = draw(st.sampled_from(["none", "nearest", "given", "fixed"]))
        weight = draw(st.floats(0.1, 2.0))
        graph = csr_array(symmetric_graph(rng, nodes))
        if kind == "nearest":
            regularizers.append(
                AdaptiveLaplacian(axis, weight, candidates=Nearest(draw(st.integers(1, nodes))))
            )
        elif kind == "given":
            regularizers.append(AdaptiveLaplacian(axis, weight, candidates=graph))
        elif kind == "fixed":
            regularizers.append(FixedLaplacian(graph, axis, weight))
    decays = st.builds(WeightDecay, st.floats(0.1, 2.0), st.sampled_from([None, "sqrt"]))
    masks = st.builds(WeightDecay, st.floats(0.1, 2.0), st.sampled_from([None, "sqrt"]), st.just("mask"))
    regularizers += draw(st.lists(decays if sides == "none" else decays | masks, max_size=2))
    Y, W = weighted_table(rng, m, n, 0.4, zeros=True)
    objective = FactoredObjective(
        read_entries(Y, None, W if draw(st.booleans()) else None),
        layout,
        regularizers,
        ops=draw(st.sampled_from([cpu, reference])),
        scale=draw(st.floats(0.2, 2.0)),
        shrinkage=draw(st.floats(0.0, 3.0)),
    )
    point = [0.7 * rng.standard_normal(param.shape) for param in objective.init(0)]
    objective.edges = tuple(near_each_other(e) if draw(st.booleans()) else e for e in objective.edges)
    return objective, point, rng


@settings(max_examples=200, deadline=None)
@given(objectives())
def test_the_whole_gradient_is_that_of_the_loss(case):
    objective, point, rng = case
    grads = gradients(objective, point)
    assert [grad.shape for grad in grads] == [param.shape for param in point] == objective.param_shapes
    check_direction(lambda params: loss(objective, list(params)), point, grads, rng, tol=1e-6)


@settings(max_examples=80, deadline=None)
@given(seeds, st.integers(2, 8), st.integers(2, 8), st.integers(2, 4), st.sampled_from(SCALES), st.booleans())
def test_with_all_candidates_loss_and_gradients_are_those_of_the_dense_form(
    seed, m, n, depth, scale, weighted
):
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, min(m, n) + 1))
    Y, W = weighted_table(rng, m, n, zeros=True)
    weights, fidelity = (W if weighted else None), Squared(scale)
    fixed = FixedLaplacian(csr_array(symmetric_graph(rng, n)), "columns", 0.4)
    graphs = [AdaptiveLaplacian("rows", 0.8), AdaptiveLaplacian("columns", 0.6)]
    dense = airnp.Objective(
        Y, weights=weights, regularizers=[*graphs, fixed], depth=depth, rank=rank, fidelity=fidelity
    )
    chosen = [
        AdaptiveLaplacian(g.axis, g.weight, candidates=Nearest(k - 1))
        for g, k in zip(graphs, (m, n), strict=True)
    ]
    factored = FactoredObjective(
        read_entries(Y, None, weights),
        Layout(m, n, depth, rank),
        [*chosen, fixed],
        ops=cpu,
        scale=fidelity.factor(m, n),
    )
    point = dense.init(seed)
    for ours, theirs in zip(factored.init(seed), [point[0].T, *point[1:]], strict=True):
        np.testing.assert_allclose(ours.ravel(), theirs.ravel(), rtol=0, atol=1e-15)
    point = [rng.standard_normal(param.shape) for param in point]
    params = [point[0].T.copy(), *point[1:depth], *(v.reshape(1, -1) for v in point[depth:])]
    value, grads = dense.value_and_grad(point)
    assert loss(factored, params) == pytest.approx(value, rel=1e-12)
    expected = [grads[0].T, *grads[1:depth], *(grad.reshape(1, -1) for grad in grads[depth:])]
    # The dense form has distances as differences of squares: what is left of them is as exact as these are.
    size = max(np.abs(grad).max() for grad in expected)
    for ours, theirs in zip(gradients(factored, params), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12 * size)


@settings(max_examples=40, deadline=None)
@given(objectives())
def test_the_order_of_nodes_changes_nothing_but_speed(case):
    objective, point, _ = case
    first = objective.layout.graphs_from
    found, grads = objective.evaluate(point).energies, gradients(objective, point)
    adjacencies = objective.adjacencies(point)
    plain, params = tuple(unordered(edges) for edges in objective.edges), list(point)
    for place, (old, new) in enumerate(zip(objective.edges, plain, strict=True), first):
        exchange = Exchange(old, new)
        assert exchange.stays.all()
        params[place] = exchange.logits(params[place][0])[None]
        grads[place] = exchange.carried(grads[place][0], np.nan)[None]
    objective.edges = plain
    np.testing.assert_allclose(found, objective.evaluate(params).energies, rtol=1e-12)
    for ours, theirs in zip(grads, gradients(objective, params), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12 * np.abs(theirs).max(initial=1e-30))
    for ours, theirs in zip(adjacencies, objective.adjacencies(params), strict=True):
        if theirs is not None:
            np.testing.assert_allclose(ours.toarray(), theirs.toarray(), atol=1e-12)


def unordered(edges):
    """Return the same edges with node i as row i."""
    if edges.order is None:
        return edges
    pattern, order = edges.pattern, edges.order
    lines = csr_array(
        (np.ones(edges.count), (order[pattern.line_of_each()], order[pattern.indices])),
        shape=(pattern.lines, pattern.width),
    )
    lines.sort_indices()
    return Edges(Pattern(lines.indptr.astype(np.int64), lines.indices.astype(np.int32), pattern.width))


# --- candidates ---


def test_neighbours_come_near_each_other():
    rng = np.random.default_rng(0)
    ring = rng.permutation(300)
    neighbours = np.empty((300, 2), int)
    neighbours[ring] = np.stack([np.roll(ring, 1), np.roll(ring, -1)], axis=1)
    edges = near_each_other(edges_to(neighbours))
    assert sorted(edges.order.tolist()) == list(range(300))
    assert np.abs(edges.pattern.line_of_each() - edges.pattern.indices).max() <= 2


def test_many_nodes_are_brought_near_each_other(monkeypatch):
    rng = np.random.default_rng(0)
    graph = csr_array(symmetric_graph(rng, 30))
    terms = [AdaptiveLaplacian(candidates=said) for said in (Nearest(3), graph)]
    entries = read_entries(weighted_table(rng, 30, 8)[0])
    objective = FactoredObjective(entries, Layout(30, 8, 2, 3), terms, ops=cpu, scale=1.0)
    objective.init(0)
    assert [edges.order for edges in objective.edges] == [None, None]
    monkeypatch.setattr(candidates, "_MANY_NODES", 30)
    objective.init(0)
    assert all(edges.order is not None for edges in objective.edges)


def test_candidates_are_the_strongest_of_a_given_graph_and_the_node_itself():
    graph = csr_array(np.array([[7.0, 1, 3, 2], [1, 0, 0, 0], [3, 0, 0, 0], [2, 0, 0, 0]]))
    edges = given_edges(graph, 4, 2)
    lines = np.split(edges.pattern.indices, edges.pattern.indptr[1:-1])
    assert [line.tolist() for line in lines] == [[0, 2, 3], [0, 1], [0, 2], [0, 3]]


# --- weights ---


@pytest.mark.parametrize("shape", [(12, 9), (9, 12)])
def test_fits_of_both_forms_agree_where_all_candidates_are_kept(shape):
    Y, W = weighted_table(np.random.default_rng(0), *shape, zeros=True)
    common = {"depth": 3, "rank": 4, "max_iter": 150, "stop": None, "seed": 5, "init": Gaussian(0.1, 0.3)}
    graphs = [AdaptiveLaplacian("rows", 0.02), AdaptiveLaplacian("columns", 0.03)]
    near = [AdaptiveLaplacian(g.axis, g.weight, candidates=Nearest(11)) for g in graphs]
    dense = airnp.fit(Y, regularizers=graphs, weights=W, **common)
    sparse = airnp.fit_sparse(Y, regularizers=near, weights=W, **common)
    np.testing.assert_allclose(sparse.X, dense.X, rtol=0, atol=1e-9)
    np.testing.assert_allclose(sparse.history["loss"], dense.history["loss"], rtol=1e-9)


@pytest.mark.parametrize("batch_size", [None, 25])
def test_weights_of_one_are_none_and_weights_of_zero_are_missing(batch_size):
    Y, W = weighted_table(np.random.default_rng(1), 15, 11, zeros=True)
    options = {"rank": 3, "depth": 2, "max_iter": 60, "seed": 0, "offsets": True, "mask_factor": "both"}
    options |= {"regularizers": [WeightDecay(1e-3, "sqrt")], "batch_size": batch_size}
    options["stop"] = HeldOut(0.1, patience=10, every=5)
    one, none = airnp.fit_sparse(Y, weights=np.ones(Y.nnz), **options), airnp.fit_sparse(Y, **options)
    np.testing.assert_allclose(one.X, none.X, rtol=1e-9)
    some = W.data > 0
    unknown, there = Y.copy(), Y.copy()
    unknown.data[~some] = np.nan  # what is missing may be anything
    there.data[~some] = 0
    there.eliminate_zeros()
    zero = airnp.fit_sparse(unknown, weights=some.astype(int), **options)
    np.testing.assert_allclose(zero.X, airnp.fit_sparse(there, **options).X, rtol=1e-9)


def test_first_offsets_of_a_row_of_weight_two_are_those_of_a_row_that_is_there_twice():
    Y = csr_array(np.array([[1.0, 4.0], [2.0, 8.0], [1.0, 4.0]]))
    once = read_entries(csr_array(np.array([[1.0, 4.0], [2.0, 8.0]])), None, np.array([2.0, 2.0, 1.0, 1.0]))
    # Shrinkage would count a row for each time that it is there.
    mean, rows, columns = first_offsets(once, 0.0)
    wanted_mean, wanted_rows, wanted_columns = first_offsets(read_entries(Y), 0.0)
    assert mean == pytest.approx(wanted_mean)
    np.testing.assert_allclose(columns, wanted_columns, atol=1e-6)
    np.testing.assert_allclose(rows, wanted_rows[:2], atol=1e-6)


def test_what_counts_more_is_fitted_better():
    rng = np.random.default_rng(2)
    Y, _ = weighted_table(rng, 20, 15)
    often = rng.random(Y.nnz) < 0.5
    options = {"rank": 2, "depth": 2, "regularizers": [], "max_iter": 400, "stop": None, "seed": 0}
    weights = np.where(often, 10.0, 0.1)
    result = airnp.fit_sparse(Y, weights=weights, optimizer=airnp.Adam(0.02), **options)
    error = np.abs(result.predict(Y.row, Y.col) - Y.data)
    assert error[often].mean() < 0.5 * error[~often].mean()


def test_ratings_have_weights():
    R, _ = weighted_table(np.random.default_rng(3), 20, 15)
    R.data = np.clip(np.rint(R.data), 1, 5)
    R.data[0], weights = 99.0, np.ones(R.nnz)
    weights[0] = 0
    result = airnp.fit_ratings(R, weights=weights, rank=3, max_iter=40, seed=0)
    assert float(result.bounds.high) <= 5
