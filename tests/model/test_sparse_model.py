"""The sparse form's loss: kernels against the specification, gradients against differences."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from airnp.training.sparse_saved import fitted_graphs
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array, csr_array

import airnp
from airnp import AdaptiveLaplacian, FixedLaplacian, WeightDecay
from airnp.data.entries import Pattern, read_entries
from airnp.engines import sparse_cpu as cpu
from airnp.engines import sparse_cpu as tiling
from airnp.engines import sparse_reference as reference
from airnp.engines import threads as pool
from airnp.engines.contract import Edges, Offsets, Slopes
from airnp.model import initialization as start
from airnp.model.factored import Layout, SparseModel, SparseState
from airnp.model.initialization import first_state
from airnp.regularizers.candidates import Exchange, edges_to, exact, given_edges, near_each_other
from tests.gradcheck import check_direction
from tests.strategies import seeds, symmetric_graph

# Rows and columns without entries are part of the cases.
pytestmark = pytest.mark.filterwarnings("ignore::airnp.EmptyLineWarning")


def random_entries(
    rng: np.random.Generator, m: int, n: int, dtype: Any = np.float64, share: float = 0.4
) -> Any:
    mask = rng.random((m, n)) < share
    mask[rng.integers(m), rng.integers(n)] = True
    rows, columns = np.nonzero(mask)
    return read_entries(coo_array((rng.standard_normal(len(rows)), (rows, columns)), shape=(m, n)), dtype)


def random_sides(rng: np.random.Generator, m: int, n: int, rank: int, dtype: Any) -> Any:
    u, v = rng.standard_normal((m, rank)).astype(dtype), rng.standard_normal((n, rank)).astype(dtype)
    offsets = Offsets(0.3, rng.standard_normal(m).astype(dtype), rng.standard_normal(n).astype(dtype))
    return SimpleNamespace(u=u, v=v, offsets=offsets)


def close(a: Any, b: Any, dtype: Any) -> None:
    tolerance = 1e-4 if dtype == np.float32 else 1e-12
    scale = max(np.abs(b).max(initial=0.0), 1e-30)
    np.testing.assert_allclose(a / scale, b / scale, rtol=0, atol=tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("m", "n", "rank"), [(1, 1, 1), (7, 5, 3), (60, 90, 17), (50, 40, 48), (400, 150, 100)]
)
class TestKernelsAnswerAsTheSpecification:
    @pytest.mark.parametrize("strips", [1, 4])
    def test_residuals(self, m, n, rank, strips, threads, dtype, monkeypatch):
        monkeypatch.setattr(cpu, "_SMALL", 1)
        monkeypatch.setattr(tiling, "_ENTRIES_PER_LINE", 1)
        row = rank * np.dtype(dtype).itemsize
        monkeypatch.setattr(tiling, "_CACHE_BYTES", 2 * n * row if strips == 1 else -(-2 * n * row // strips))
        rng = np.random.default_rng(m)
        entries, sides = random_entries(rng, m, n, dtype), random_sides(rng, m, n, rank, dtype)
        found = []
        for ops in (cpu, reference):
            out = Slopes(*(np.full(shape, 9, dtype) for shape in ((m, rank), (n, rank), m, n)))
            with pool.using(threads):
                value = ops.residuals(entries, sides.u, sides.v, sides.offsets, scale=0.7, out=out)
            found.append((value, *out))
        for a, b in zip(*found, strict=True):
            close(np.asarray(a), np.asarray(b), dtype)

    def test_values_and_sums(self, m, n, rank, threads, dtype, monkeypatch):
        monkeypatch.setattr(cpu, "_SMALL", 1)
        rng = np.random.default_rng(m + 1)
        entries, sides = random_entries(rng, m, n, dtype), random_sides(rng, m, n, rank, dtype)
        places = entries.pattern.line_of_each(), entries.pattern.indices
        found = []
        for ops in (cpu, reference):
            sums = np.full((m, rank), 9, dtype)
            with pool.using(threads):
                values = ops.values_at(*places, sides.u, sides.v, sides.offsets)
                ops.line_sums(entries.pattern, sides.v, sums)
            found.append((values, sums))
        for a, b in zip(*found, strict=True):
            close(a, b, dtype)

    def test_learned_and_given_graphs(self, m, n, rank, threads, dtype, monkeypatch):
        monkeypatch.setattr(cpu, "_SMALL", 1)
        rng = np.random.default_rng(m + 2)
        t, metric = rng.standard_normal((m, rank)).astype(dtype), rng.random(rank).astype(dtype)
        k = min(4, m - 1)
        edges = edges_to(exact(t, np.arange(m), k) if k else np.empty((m, 0), int))
        logits = rng.standard_normal(edges.count).astype(dtype)
        graph = csr_array(symmetric_graph(rng, m))
        given = read_entries(graph, dtype) if graph.nnz else None
        found = []
        for ops in (cpu, reference):
            weights, slopes = np.empty(edges.count, dtype), np.empty(edges.count, dtype)
            pull, other = np.full((m, rank), 9, dtype), np.full((m, rank), 9, dtype)
            with pool.using(threads):
                energy = ops.edge_terms(edges, logits, t, metric, weights=weights, slopes=slopes, pull=pull)
                if given is not None:
                    energy += ops.laplacian(given.pattern, given.values, t, metric, pull=other)
            found.append((energy, weights, slopes, pull, other))
        for a, b in zip(*found, strict=True):
            close(np.asarray(a), np.asarray(b), dtype)


@pytest.mark.parametrize("threads", [1, 2])
def test_without_offsets_they_are_neither_read_nor_written(threads, monkeypatch):
    monkeypatch.setattr(cpu, "_SMALL", 1)
    rng = np.random.default_rng(0)
    entries, sides = random_entries(rng, 40, 30), random_sides(rng, 40, 30, 5, np.float64)
    zeros = Offsets(0.0, np.zeros(40), np.zeros(30))
    found = []
    for offsets, plain in ((zeros, False), (sides.offsets, True)):
        out = Slopes(*(np.full(shape, 9.0) for shape in ((40, 5), (30, 5), 40, 30)))
        with pool.using(threads):
            value = cpu.residuals(entries, sides.u, sides.v, offsets, scale=0.7, out=out, plain=plain)
        found.append((np.asarray(value), out.u, out.v))
    for a, b in zip(*found, strict=True):
        close(a, b, np.float64)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rank", [1, 7, 8, 15, 16, 17, 31, 32, 47, 63, 64, 65, 95, 130])
def test_kernels_write_to_their_rows_and_to_nothing_else(rank, dtype):
    m, n, sentinel, gap = 9, 6, 77.0, 24
    rng = np.random.default_rng(rank)
    entries, sides = random_entries(rng, m, n, dtype), random_sides(rng, m, n, rank, dtype)
    edges = edges_to(exact(sides.u, np.arange(m), 3))
    logits, metric = rng.standard_normal(edges.count).astype(dtype), rng.random(rank).astype(dtype)
    shapes = [(m, rank), (n, rank), (m,), (n,), (m, rank), (m, rank), (edges.count,), (edges.count,)]

    def results(ops):
        # One allocation for all: a stray write would land among the sentinels between two of them.
        memory = np.full(gap + sum(int(np.prod(shape)) + gap for shape in shapes), sentinel, dtype)
        taken, arrays, place = np.zeros(memory.size, bool), [], gap
        for shape in shapes:
            size = int(np.prod(shape))
            arrays.append(memory[place : place + size].reshape(shape))
            taken[place : place + size] = True
            place += size + gap
        *slopes, sums, pull, weights, graph = arrays
        with pool.using(1):
            ops.residuals(entries, sides.u, sides.v, sides.offsets, scale=1.0, out=Slopes(*slopes))
            ops.line_sums(entries.pattern, sides.v, sums)
            ops.edge_terms(edges, logits, sides.u, metric, weights=weights, slopes=graph, pull=pull)
        assert (memory[~taken] == sentinel).all()
        return arrays

    for ours, theirs in zip(results(cpu), results(reference), strict=True):
        close(ours, theirs, dtype)


@st.composite
def models(draw: st.DrawFn) -> tuple[SparseModel, SparseState, np.random.Generator]:
    """Any model: depth, offsets, mask factor, regularisers of every kind together."""
    rng = np.random.default_rng(draw(seeds))
    m, n = draw(st.integers(2, 9)), draw(st.integers(2, 9))
    rank, depth = draw(st.integers(1, min(m, n))), draw(st.integers(2, 4))
    sides = draw(st.sampled_from(["none", "rows", "columns", "both"]))
    layout = Layout(
        m, n, depth, rank, sides in ("rows", "both"), sides in ("columns", "both"), draw(st.booleans())
    )
    regularizers = []
    for axis, nodes in (("rows", m), ("columns", n)):
        kind = draw(st.sampled_from(["none", "nearest", "given", "fixed"]))
        weight = draw(st.floats(0.1, 2.0))
        graph = csr_array(symmetric_graph(rng, nodes))
        if kind == "nearest":
            k = draw(st.integers(1, nodes))
            regularizers.append(AdaptiveLaplacian(axis, weight, neighbors=k))
        elif kind == "given":
            regularizers.append(AdaptiveLaplacian(axis, weight, candidates=graph))
        elif kind == "fixed":
            regularizers.append(FixedLaplacian(graph, axis, weight))
    decays = st.builds(WeightDecay, st.floats(0.1, 2.0), st.sampled_from([None, "sqrt"]))
    masks = st.builds(WeightDecay, st.floats(0.1, 2.0), st.sampled_from([None, "sqrt"]), st.just("mask"))
    regularizers += draw(st.lists(decays if sides == "none" else decays | masks, max_size=2))
    entries = random_entries(rng, m, n)
    ops = draw(st.sampled_from([cpu, reference]))
    scale, shrinkage = draw(st.floats(0.2, 2.0)), draw(st.floats(0.0, 3.0))
    model = SparseModel(entries, layout, regularizers, scale=scale, shrinkage=shrinkage, ops=ops)
    begin = first_state(model, 0, "gaussian", shrinkage if layout.offsets else None, 1)
    point = [0.7 * rng.standard_normal(param.shape) for param in begin.params]
    edges = tuple(near_each_other(e) if draw(st.booleans()) else e for e in begin.edges)
    return model, SparseState(point, edges), rng


@settings(max_examples=150, deadline=None)
@given(models())
def test_the_whole_gradient_is_that_of_the_loss(case):
    model, state, rng = case
    grads = [grad.copy() for grad in model.evaluate(state).gradients]

    def value(params):
        found = model.evaluate(SparseState(list(params), state.edges))
        return model.loss(found.fidelity, found.energies)

    assert [grad.shape for grad in grads] == [param.shape for param in state.params]
    check_direction(value, state.params, grads, rng, tol=1e-6)


@settings(max_examples=40, deadline=None)
@given(seeds, st.integers(2, 8), st.integers(2, 8), st.integers(2, 4), st.sampled_from(["mean", "sum"]))
def test_with_all_candidates_loss_and_gradients_are_those_of_the_dense_form(seed, m, n, depth, fidelity):
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, min(m, n) + 1))
    entries = random_entries(rng, m, n)
    Y = csr_array((entries.values, entries.pattern.indices, entries.pattern.indptr), shape=(m, n))
    graph = csr_array(symmetric_graph(rng, n))
    terms = [
        AdaptiveLaplacian("rows", 0.8),
        AdaptiveLaplacian("columns", 0.6),
        FixedLaplacian(graph, "columns", 0.4),
    ]
    dense = airnp.Objective(Y, regularizers=terms, depth=depth, rank=rank, fidelity=fidelity)
    scale = 1.0 if fidelity == "sum" else 2 / (m * n)
    chosen = [
        AdaptiveLaplacian(t.axis, t.weight, neighbors=k - 1) for t, k in zip(terms[:2], (m, n), strict=True)
    ]
    model = SparseModel(entries, Layout(m, n, depth, rank), [*chosen, terms[2]], scale=scale)
    state = first_state(model, seed, "gaussian", None, 1)
    point = dense.init(seed)
    for ours, theirs in zip(state.params, [point[0].T, *point[1:]], strict=True):
        np.testing.assert_allclose(ours.ravel(), theirs.ravel(), rtol=0, atol=1e-15)
    point = [rng.standard_normal(param.shape) for param in point]
    params = [point[0].T.copy(), *point[1:depth], *(v.reshape(1, -1) for v in point[depth:])]
    loss, grads = dense.value_and_grad(point)
    found = model.evaluate(SparseState(params, state.edges))
    assert model.loss(found.fidelity, found.energies) == pytest.approx(loss, rel=1e-12)
    expected = [grads[0].T, *grads[1:depth], *(grad.reshape(1, -1) for grad in grads[depth:])]
    # The dense form has distances as differences of squares: what is left of them is as exact as these are.
    size = max(np.abs(grad).max() for grad in expected)
    for ours, theirs in zip(found.gradients, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12 * size)


@settings(max_examples=40, deadline=None)
@given(models())
def test_the_order_of_nodes_changes_nothing_but_speed(case):
    model, state, _ = case
    plain = tuple(unordered(edges) for edges in state.edges)
    params = list(state.params)
    first = model.layout.graphs_from
    exchanges = [Exchange(old, new) for old, new in zip(state.edges, plain, strict=True)]
    for place, exchange in enumerate(exchanges, first):
        assert exchange.stays.all()
        params[place] = exchange.logits(params[place][0])[None]
    found = model.evaluate(state)
    gradients = [grad.copy() for grad in found.gradients]
    for place, exchange in enumerate(exchanges, first):
        gradients[place] = exchange.carried(gradients[place][0], np.nan)[None]
    expected = model.evaluate(SparseState(params, plain))
    np.testing.assert_allclose(found.energies, expected.energies, rtol=1e-12)
    for ours, theirs in zip(gradients, expected.gradients, strict=True):
        close(ours, theirs, np.float64)
    for ours, theirs in zip(
        fitted_graphs(model, state), fitted_graphs(model, SparseState(params, plain)), strict=True
    ):
        close(ours.adjacency.toarray(), theirs.adjacency.toarray(), np.float64)


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


def test_neighbours_come_near_each_other():
    rng = np.random.default_rng(0)
    ring = rng.permutation(300)
    neighbours = np.empty((300, 2), int)
    neighbours[ring] = np.stack([np.roll(ring, 1), np.roll(ring, -1)], axis=1)
    edges = near_each_other(edges_to(neighbours))
    assert sorted(edges.order.tolist()) == list(range(300))
    assert np.abs(edges.pattern.line_of_each() - edges.pattern.indices).max() <= 2


def test_many_nodes_are_brought_near_each_other(monkeypatch):
    entries = random_entries(np.random.default_rng(0), 30, 8)
    graph = csr_array(symmetric_graph(np.random.default_rng(1), 30))
    terms = [AdaptiveLaplacian("rows", neighbors=3), AdaptiveLaplacian("rows", candidates=graph)]
    model = SparseModel(entries, Layout(30, 8, 2, 3), terms, scale=1.0)
    assert [edges.order for edges in first_state(model, 0, "gaussian", None, 1).edges] == [None, None]
    monkeypatch.setattr(start, "_MANY_NODES", 30)
    assert all(edges.order is not None for edges in first_state(model, 0, "gaussian", None, 1).edges)


def test_candidates_are_the_strongest_of_a_given_graph_and_the_node_itself():
    graph = csr_array(np.array([[7.0, 1, 3, 2], [1, 0, 0, 0], [3, 0, 0, 0], [2, 0, 0, 0]]))
    edges = given_edges(graph, 4, 2)
    lines = np.split(edges.pattern.indices, edges.pattern.indptr[1:-1])
    assert [line.tolist() for line in lines] == [[0, 2, 3], [0, 1], [0, 2], [0, 3]]
