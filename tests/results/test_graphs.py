"""Learned graphs as results: which edges are kept, their weights and labels, stacks, recorded moments."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

import airnp
from airnp import AdaptiveLaplacian, FixedLaplacian
from airnp.engines import reference
from airnp.results.graphs import Graph, chosen_problem, learned_graph, reduced
from airnp.training.recorder import GraphRecorder

RNG = np.random.default_rng(5)
# Rows come in three kinds of four, columns in two kinds of five.
TRUTH = np.kron(RNG.random((3, 2)), np.ones((4, 5))) * 6 - 2
MASK = RNG.random(TRUTH.shape) < 0.8
TABLE = pd.DataFrame(
    np.where(MASK, TRUTH, np.nan), index=[f"row {i}" for i in range(12)], columns=list("abcdefghij")
)


def fit(Y: Any = TABLE, **options: Any) -> airnp.FitResult:
    return airnp.fit(Y, **{"regularizers": None, "max_iter": 30, "stop": None, "seed": 2, **options})


def strongest_by_hand(adjacency: np.ndarray, k: int) -> np.ndarray:
    """The same reduction, node by node."""
    expected = np.zeros_like(adjacency)
    for i in range(len(adjacency)):
        others = [j for j in range(len(adjacency)) if j != i]
        for j in sorted(others, key=lambda j: adjacency[i, j], reverse=True)[:k]:
            expected[i, j] = expected[j, i] = adjacency[i, j]
    return expected


def without_diagonal(matrix: np.ndarray) -> np.ndarray:
    return matrix - np.diag(np.diagonal(matrix))


# ---------------------------------------------------------------------------------------------- what is kept


@given(st.integers(1, 9), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_the_strongest_neighbours_of_each_node_are_kept(nodes, k, seed):
    weights = np.random.default_rng(seed).random((nodes, nodes))
    weights = weights + weights.T
    graph = reduced(weights, k)
    np.testing.assert_array_equal(graph.adjacency.toarray(), strongest_by_hand(weights, k))
    assert isinstance(graph.adjacency, scipy.sparse.csr_array)
    assert graph.n_nodes == nodes
    assert graph.n_edges == np.count_nonzero(np.triu(graph.adjacency.toarray()))


def test_an_edge_stays_if_one_of_its_ends_wants_it():
    # Node 2 has only node 1 to choose; node 1 prefers node 0.
    weights = np.array([[0, 3.0, 0], [3.0, 0, 1.0], [0, 1.0, 0]])
    assert reduced(weights, 1).n_edges == 2


def test_an_edge_of_no_weight_is_none():
    weights = np.array([[0, 3.0, 0], [3.0, 0, 0], [0, 0, 0]])
    for k in (1, 2, 3, None):
        graph = reduced(weights, k)
        assert graph.n_edges == 1
        assert graph.adjacency.nnz == 2
    assert reduced(np.zeros((3, 3))).n_edges == 0
    assert reduced(np.ones((1, 1)), 1).n_edges == 0


def test_without_a_number_only_negligible_edges_go():
    weights = np.array([[5.0, 1.0, 0.0011], [1.0, 5.0, 0.0009], [0.0011, 0.0009, 5.0]])
    kept = reduced(weights).adjacency.toarray()
    np.testing.assert_array_equal(kept, [[0, 1.0, 0.0011], [1.0, 0, 0], [0.0011, 0, 0]])


def test_an_asymmetric_adjacency_is_made_symmetric():
    graph = reduced(np.array([[0, 1.0], [3.0, 0]]))
    np.testing.assert_array_equal(graph.adjacency.toarray(), [[0, 2.0], [2.0, 0]])


def test_the_given_adjacency_is_not_modified():
    weights = np.ones((3, 3))
    reduced(weights, 1)
    np.testing.assert_array_equal(weights, np.ones((3, 3)))


@pytest.mark.parametrize("axis", ["rows", "columns"])
@pytest.mark.parametrize("kind", ["row", "global", "product"])
def test_weights_are_those_of_the_fit(axis, kind):
    result = fit(regularizers=[AdaptiveLaplacian(axis, adjacency=kind)])
    graph = result.row_graph(k=99) if axis == "rows" else result.column_graph(k=99)
    item = result.regularizers[0]
    expected = without_diagonal(reference.adjacency(kind, item.parameter))
    np.testing.assert_allclose(graph.adjacency.toarray(), expected, rtol=1e-12)
    np.testing.assert_allclose(graph.laplacian().toarray(), item.laplacian, atol=1e-12)


def test_laplacian_is_that_of_the_edges_that_are_left():
    graph = fit().row_graph(k=2)
    laplacian = graph.laplacian()
    assert isinstance(laplacian, scipy.sparse.csr_array)
    np.testing.assert_array_equal(without_diagonal(laplacian.toarray()), -graph.adjacency.toarray())
    np.testing.assert_allclose(np.diagonal(laplacian.toarray()), graph.adjacency.toarray().sum(axis=1))
    np.testing.assert_allclose(graph.degrees, laplacian.diagonal())


def test_a_fit_finds_which_rows_are_alike():
    result = airnp.fit(TRUTH, MASK, regularizers=None, max_iter=3000, stop=None, seed=2)
    kinds = np.repeat(np.arange(3), 4)
    edges = result.row_graph(k=3).adjacency.tocoo()
    assert (kinds[edges.row] == kinds[edges.col]).all()


@pytest.mark.parametrize(
    ("adjacency", "message"),
    [
        (np.ones((2, 3)), r"square matrix, got shape \(2, 3\)"),
        (np.ones(4), "square matrix"),
        (np.array([[0, -1.0], [-1.0, 0]]), "at least 0"),
        (np.array([[0, np.nan], [np.nan, 0]]), "finite"),
    ],
)
def test_other_matrices_are_refused(adjacency, message):
    with pytest.raises(ValueError, match=message):
        reduced(adjacency)


@pytest.mark.parametrize(
    ("k", "error"), [(0, ValueError), (-1, ValueError), (1.5, TypeError), (True, TypeError)]
)
def test_a_number_of_neighbours_that_cannot_be_meant(k, error):
    with pytest.raises(error, match=r"^k: "):
        fit().row_graph(k=k)


# -------------------------------------------------------------------------------------- labels and networkx


def test_labels_are_kept():
    result = fit()
    assert list(result.row_graph(k=2).labels) == list(TABLE.index)
    assert list(result.column_graph(k=2).labels) == list(TABLE.columns)
    assert fit(TABLE.to_numpy()).row_graph(k=2).labels is None
    assert repr(result.column_graph(k=9)) == "<Graph of 10 columns, 45 edges>"


def test_networkx_has_the_same_graph():
    graph = fit().row_graph(k=2)
    drawn = graph.to_networkx()
    assert list(drawn.nodes) == list(TABLE.index)
    assert drawn.number_of_edges() == graph.n_edges
    weights = {frozenset(ends): weight for *ends, weight in drawn.edges(data="weight")}
    for i, j in zip(*graph.adjacency.nonzero(), strict=True):
        assert weights[frozenset((f"row {i}", f"row {j}"))] == graph.adjacency[i, j]
    assert all(type(weight) is float for weight in weights.values())


@pytest.mark.parametrize("labels", [None, pd.Index(["a", "b", "a"])], ids=["none", "ambiguous"])
def test_networkx_nodes_are_positions_where_labels_do_not_tell(labels):
    graph = reduced(np.array([[0, 1.0, 0], [1.0, 0, 0], [0, 0, 0]]), labels=labels)
    drawn = graph.to_networkx()
    assert list(drawn.nodes) == [0, 1, 2], "a node without edges is a node, too"
    assert list(drawn.edges) == [(0, 1)]


def test_without_networkx_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "networkx", None)
    with pytest.raises(ImportError, match=r'pip install "airnp\[graph\]"'):
        reduced(np.ones((2, 2))).to_networkx()


# --------------------------------------------------------------------------- which graph, which problem


@pytest.mark.parametrize(
    "regularizers",
    [
        [],
        [AdaptiveLaplacian("columns")],
        [AdaptiveLaplacian("rows", weight=0.0)],
        [FixedLaplacian(np.ones((12, 12)))],
        [AdaptiveLaplacian(airnp.Blocks(3, 5))],
    ],
    ids=["none", "columns", "no weight", "given", "blocks"],
)
def test_a_graph_that_was_not_learned(regularizers):
    result = fit(regularizers=regularizers)
    with pytest.raises(
        ValueError, match=r"row_graph: .*no graph over rows.*AdaptiveLaplacian\('rows'\)"
    ) as caught:
        result.row_graph()
    assert str(caught.value).endswith(", ".join(map(repr, regularizers)) or "none")


def test_the_first_learned_graph_is_taken():
    result = fit(
        regularizers=[
            FixedLaplacian(np.ones((12, 12))),
            AdaptiveLaplacian("columns"),
            AdaptiveLaplacian("rows", adjacency="global"),
            AdaptiveLaplacian("rows"),
        ]
    )
    expected = without_diagonal(np.asarray(result.regularizers[2].adjacency))
    np.testing.assert_allclose(result.row_graph(k=99).adjacency.toarray(), expected)


def test_blocks_have_a_graph_through_reduced():
    result = fit(TRUTH, regularizers=[AdaptiveLaplacian(airnp.Blocks(4, 5))])
    assert reduced(result.regularizers[0].adjacency, 2, name="blocks").n_nodes == 6


def test_one_problem_of_a_stack():
    stack = np.stack([TRUTH, TRUTH[::-1] ** 2]) * 1.0
    result = fit(stack)
    for problem in (0, 1, -1, (1,), np.int64(1)):
        place = problem[0] if isinstance(problem, tuple) else problem
        expected = without_diagonal(np.asarray(result.regularizers[1].adjacency[place]))
        found = result.column_graph(k=99, problem=problem).adjacency.toarray()
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("batch", "problem", "error", "message"),
    [
        ((2,), None, ValueError, r"stack of shape \(2,\), as problem=0$"),
        ((2, 3), None, ValueError, r"stack of shape \(2, 3\), as problem=\(0, 0\)$"),
        ((2, 3), 1, ValueError, "choose one"),
        ((2,), (0, 0), ValueError, "choose one"),
        ((), 0, ValueError, "no stack"),
        ((2,), 2, IndexError, "2 is outside"),
        ((2, 3), (0, -4), IndexError, "outside"),
        ((2,), 0.0, TypeError, "whole number"),
        ((2,), "0", TypeError, "whole number"),
    ],
)
def test_a_problem_that_is_not_there(batch, problem, error, message):
    with pytest.raises(error, match=f"^problem: .*{message}"):
        chosen_problem(batch, problem)


def test_other_axes_are_refused():
    with pytest.raises(ValueError, match="expected 'rows' or 'columns', got 'blocks'"):
        learned_graph(fit(), "blocks")


def test_any_namespace(backend):
    Y = backend.array(TRUTH)
    graph = fit(Y, mask=backend.array(MASK)).row_graph(k=3)
    expected = fit(TRUTH, mask=MASK, engine="reference").row_graph(k=3)
    assert isinstance(graph, Graph)
    np.testing.assert_allclose(graph.adjacency.toarray(), expected.adjacency.toarray(), rtol=1e-6)


def test_saved_results_have_their_graphs(tmp_path):
    result = fit()
    result.save(tmp_path / "result.npz")
    again = airnp.load(tmp_path / "result.npz").row_graph(k=2)
    np.testing.assert_array_equal(again.adjacency.toarray(), result.row_graph(k=2).adjacency.toarray())
    assert list(again.labels) == list(TABLE.index)


# ------------------------------------------------------------------------------------------ recorded moments


def test_moments_are_taken_at_the_first_call_not_before_them():
    recorder = GraphRecorder(at=[1, 2, 10, 12, 30, 99])
    fit(callback=recorder, max_iter=35)
    assert recorder.moments == [1, 10, 20, 30]
    assert recorder.adjacencies("rows").shape == (4, 12, 12)


@pytest.mark.parametrize("kind", ["row", "global", "product"])
def test_recorded_graphs_are_those_of_a_fit_that_ends_there(kind):
    regularizers = [
        AdaptiveLaplacian("rows", weight=0.0),
        FixedLaplacian(np.ones((12, 12))),
        AdaptiveLaplacian("columns", adjacency=kind),
        airnp.TotalVariation(),
        AdaptiveLaplacian("rows"),
    ]
    recorder = GraphRecorder(at=[5, 20])
    fit(callback=recorder, regularizers=regularizers, record=5)
    assert recorder.names == ["columns", "rows_3"]
    for moment, columns, rows in zip(
        (5, 20), recorder.adjacencies("columns"), recorder.adjacencies("rows_3"), strict=True
    ):
        there = fit(regularizers=regularizers, max_iter=moment)
        np.testing.assert_allclose(columns, there.regularizers[2].adjacency, rtol=1e-12)
        np.testing.assert_allclose(rows, there.regularizers[4].adjacency, rtol=1e-12)
        np.testing.assert_allclose(
            recorder.laplacians("columns")[(5, 20).index(moment)], there.regularizers[2].laplacian, atol=1e-12
        )


def test_a_second_fit_starts_a_new_record():
    recorder = GraphRecorder(at=[1, 20])
    fit(callback=recorder)
    first = recorder.adjacencies("rows")
    fit(callback=recorder, seed=9)
    assert recorder.moments == [1, 20]
    assert not np.array_equal(first, recorder.adjacencies("rows"))


def test_a_recorder_changes_nothing():
    np.testing.assert_array_equal(fit().X, fit(callback=GraphRecorder()).X)


def test_graphs_that_were_not_recorded():
    recorder = GraphRecorder()
    with pytest.raises(KeyError, match="callback="):
        recorder.adjacencies("rows")
    fit(callback=recorder, regularizers=[])
    with pytest.raises(KeyError, match="learned no graphs"):
        recorder.adjacencies("rows")
    fit(callback=recorder)
    with pytest.raises(KeyError, match="'rows', 'columns'"):
        recorder.adjacencies("blocks")


def test_moments_that_cannot_be_meant():
    with pytest.raises(ValueError, match=r"^at: "):
        GraphRecorder(at=[0])
    with pytest.raises(TypeError, match=r"^at: "):
        GraphRecorder(at=[1.5])
