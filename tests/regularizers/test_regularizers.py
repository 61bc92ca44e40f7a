"""What users may say of regularisers, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import airnp
from airnp import AdaptiveLaplacian, DirichletEnergy, FixedLaplacian, Nearest, Objective, TotalVariation
from airnp.data.entries import read_entries
from airnp.engines import cpu
from airnp.engines.contract import NO_MEMORY
from airnp.model.factored import FactoredObjective, Layout

PATH = np.eye(4, k=1) + np.eye(4, k=-1)


def energies(regularizers, X):
    """Energies at X of a depth-1 objective."""
    objective = Objective(X, regularizers=regularizers, depth=1)
    return [float(e) for e in objective.evaluate([X], memory=NO_MEMORY).energies]


@pytest.mark.parametrize(
    "form", [np.asarray, np.ndarray.tolist, sparse.csr_array, sparse.coo_matrix, sparse.dia_array]
)
def test_a_graph_may_be_dense_or_sparse_an_adjacency_or_a_laplacian(form):
    X = np.random.default_rng(0).standard_normal((4, 3))
    laplacian = np.diag(PATH.sum(axis=1)) - PATH
    expected = np.trace(X.T @ laplacian @ X)
    found = energies(
        [
            FixedLaplacian(form(PATH), "rows", 0.1),
            FixedLaplacian(form(laplacian), "rows", 0.1),
            FixedLaplacian(form(laplacian), "rows", 0.1, kind="laplacian"),
        ],
        X,
    )
    assert found == pytest.approx([expected] * 3, rel=1e-12)


def test_a_sparse_graph_stays_sparse_on_one_numpy_matrix():
    result = airnp.fit(
        np.ones((4, 3)), regularizers=[FixedLaplacian(sparse.csr_array(PATH))], max_iter=2, stop=None, seed=0
    )
    assert sparse.issparse(result.regularizers[0].adjacency)
    laplacian = result.regularizers[0].laplacian
    np.testing.assert_allclose(laplacian.toarray(), np.diag(PATH.sum(axis=1)) - PATH)


@pytest.mark.parametrize(
    ("graph", "kind", "message"),
    [
        (np.ones((4, 3)), "auto", r"graph: expected a square matrix, got shape \(4, 3\)"),
        (np.ones(4), "auto", "graph: expected a square matrix"),
        (np.triu(PATH), "auto", "graph: expected a symmetric matrix"),
        (np.triu(PATH), "laplacian", "graph: expected a symmetric laplacian"),
        (sparse.csr_array(np.triu(PATH)), "auto", "graph: expected a symmetric matrix"),
        (-PATH, "adjacency", "graph: an adjacency has no negative entries"),
        (np.eye(4) - PATH, "laplacian", "graph: the rows of a Laplacian sum to zero"),
        (PATH - np.diag(PATH.sum(axis=1)), "laplacian", "no positive entries off its diagonal"),
        (
            sparse.csr_array(PATH - np.diag(PATH.sum(axis=1))),
            "laplacian",
            "no positive entries off its diagonal",
        ),
        (np.where(PATH > 0, np.nan, 0), "auto", "graph: expected finite numbers"),
        (np.ones((5, 5)), "auto", "graph: expected 4 nodes, one for each of the rows, got 5"),
    ],
)
def test_a_bad_graph_is_refused(graph, kind, message):
    with pytest.raises(ValueError, match=message):
        Objective(np.ones((4, 3)), regularizers=[FixedLaplacian(graph, "rows", 0.1, kind=kind)])


@pytest.mark.parametrize("graph", [PATH.astype(complex), PATH.astype(str), "path", None])
def test_a_graph_of_the_wrong_type_is_refused(graph):
    with pytest.raises(TypeError, match="graph: expected"):
        FixedLaplacian(graph, "rows", 0.1)


@pytest.mark.parametrize("weight", [-1, np.inf, np.nan])
def test_a_weight_out_of_range_is_refused(weight):
    for make in (
        TotalVariation,
        lambda w: AdaptiveLaplacian("rows", w),
        lambda w: DirichletEnergy("rows", w),
    ):
        with pytest.raises(ValueError, match="weight: expected a finite number of at least 0"):
            make(weight)


@pytest.mark.parametrize("weight", ["1", True, [1]])
def test_a_weight_of_the_wrong_type_is_refused(weight):
    with pytest.raises(TypeError, match="weight: expected a number"):
        TotalVariation(weight)


def test_unknown_names_list_the_valid_ones():
    with pytest.raises(
        ValueError, match="adjacency: expected one of 'row', 'global', 'product', got 'column'"
    ):
        AdaptiveLaplacian("rows", adjacency="column")
    with pytest.raises(ValueError, match="kind: expected one of 'l1', 'quadratic', got 'l2'"):
        TotalVariation(1, "l2")
    with pytest.raises(ValueError, match="axis: expected one of 'rows', 'columns', got 'blocks'"):
        DirichletEnergy("blocks")
    with pytest.raises(ValueError, match="epsilon: expected a positive number"):
        TotalVariation(1, epsilon=0)


@pytest.mark.parametrize("bad", [TotalVariation(1), ["tv"], [None], 3])
def test_regularizers_must_be_a_list_of_regularizers(bad):
    with pytest.raises(TypeError, match="regularizers: expected"):
        Objective(np.ones((3, 3)), regularizers=bad)


def test_the_covariance_graph_connects_lines_that_vary_together():
    wave = np.sin(np.arange(12.0))
    Y = np.stack([wave, wave + 3, -wave, np.cos(np.arange(12.0))])
    result = airnp.fit(Y, regularizers=[DirichletEnergy("rows")], max_iter=2, stop=None, seed=0)
    A = result.regularizers[0].adjacency
    assert A[0, 1] == A.max()
    assert A[0, 2] == A[1, 2] == 0
    assert A.sum(axis=1).mean() == pytest.approx(1)
    np.testing.assert_allclose(A, A.T)


def test_the_covariance_graph_needs_entries():
    from tests.strategies import Blur

    with pytest.raises(ValueError, match="DirichletEnergy takes its graph from observed entries"):
        Objective(np.ones((3, 3)), operator=Blur(), regularizers=[DirichletEnergy()])


def test_total_variation_of_a_constant_is_zero_and_of_a_step_its_height():
    flat, step = np.full((3, 4), 2.0), np.repeat([[0.0, 0.0, 5.0, 5.0]], 3, axis=0)
    assert energies([TotalVariation(1), TotalVariation(1, "quadratic")], flat) == [0.0, 0.0]
    l1, quadratic = energies([TotalVariation(1, epsilon=1e-9), TotalVariation(1, "quadratic")], step)
    assert (l1, quadratic) == (pytest.approx(15), pytest.approx(75))


def test_a_fixed_graph_without_a_weight_pulls_like_a_learned_one():
    objective = Objective(np.ones((4, 3)), regularizers=[FixedLaplacian(PATH), AdaptiveLaplacian("rows")])
    fixed, learned = (term.weight for term in objective.terms)
    assert fixed * PATH.sum() / 4 == pytest.approx(learned)


# --- the factored form ---


@pytest.mark.parametrize("axis", ["rows", "columns"])
@pytest.mark.parametrize("kind", ["learned", "fixed", "sparse"])
def test_the_factored_term_is_the_dense_one_where_all_edges_are_candidates(kind, axis):
    rng, nodes = np.random.default_rng(0), 4 if axis == "rows" else 3
    graph = PATH[:nodes, :nodes]
    dense, factored = {
        "learned": (AdaptiveLaplacian(axis), AdaptiveLaplacian(axis, candidates=Nearest(nodes))),
        "fixed": (FixedLaplacian(graph, axis),) * 2,
        "sparse": (FixedLaplacian(sparse.csr_array(graph), axis),) * 2,
    }[kind]
    Y = 1 + rng.random((4, 3))
    whole = Objective(Y, regularizers=[dense], depth=2)
    thin = FactoredObjective(
        read_entries(sparse.csr_array(Y)), Layout(4, 3, 2, 3), [factored], ops=cpu, scale=2 / 12
    )
    thin.init(0)
    point = [rng.standard_normal(shape) for shape in whole.param_shapes]
    params = [point[0].T.copy(), point[1], *(v.reshape(1, -1) for v in point[2:])]
    wanted, found = whole.evaluate(point, memory=NO_MEMORY), thin.evaluate(params)
    assert thin.terms[0].weight == whole.terms[0].weight
    assert float(found.energies[0]) == pytest.approx(float(wanted.energies[0]), rel=1e-12)
    slopes = [
        wanted.factor_grads[0].T,
        wanted.factor_grads[1],
        *(g.reshape(1, -1) for g in wanted.graph_grads),
    ]
    for ours, theirs in zip(found.gradients, slopes, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12 * np.abs(theirs).max())
    (ours,), (theirs,) = thin.adjacencies(params), whole.adjacencies(point)
    np.testing.assert_allclose(ours.toarray(), theirs.toarray() if kind == "sparse" else theirs, atol=1e-14)


def test_candidates_are_searched_anew_unless_they_are_given_or_all():
    graph = sparse.csr_array(PATH)
    said = [None, Nearest(2, refresh=7), Nearest(3), Nearest(1, among=graph), graph]
    objective = FactoredObjective(
        read_entries(sparse.csr_array(np.ones((4, 30)))),
        Layout(4, 30, 2, 2),
        [AdaptiveLaplacian("columns"), *(AdaptiveLaplacian("rows", candidates=each) for each in said)],
        ops=cpu,
        scale=1.0,
    )
    objective.init(0)
    assert objective.rhythms == [200, 7]
    assert [edges.count for edges in objective.edges] == [30 * 21, 4 * 4, 4 * 3, 4 * 4, 4 * 2, 4 + 6]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Nearest(0), ValueError, "k: expected"),
        (lambda: Nearest(2.5), TypeError, "k: expected"),
        (lambda: Nearest(2, refresh=0), ValueError, "refresh: expected"),
        (lambda: factored(Nearest(1, among=PATH)), TypeError, "candidates: expected a scipy.sparse matrix"),
        (
            lambda: factored(sparse.eye_array(3)),
            ValueError,
            r"candidates: expected shape \(4, 4\), got \(3, 3\)",
        ),
        (
            lambda: airnp.fit(PATH, regularizers=[AdaptiveLaplacian(candidates=Nearest())]),
            ValueError,
            "fit_sparse",
        ),
    ],
)
def test_bad_candidates_are_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


def factored(candidates):
    return airnp.fit_sparse(
        sparse.csr_array(np.ones((4, 3))), rank=2, regularizers=[AdaptiveLaplacian(candidates=candidates)]
    )
