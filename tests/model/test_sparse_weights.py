"""Weights of observed entries in the sparse form: as in the dense one, and as the gradient of the loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array, csc_array, csr_array, lil_array

import airnp
from airnp import AdaptiveLaplacian, Gaussian, HeldOut, WeightDecay
from airnp.data.entries import read_entries, read_weights
from airnp.engines import sparse_cpu as cpu
from airnp.engines import sparse_reference as reference
from airnp.model.factored import Layout, SparseModel, SparseState
from airnp.model.initialization import first_state
from airnp.model.offsets import first_offsets
from tests.gradcheck import check_direction
from tests.strategies import seeds

pytestmark = pytest.mark.filterwarnings("ignore::airnp.EmptyLineWarning")


def weighted_table(rng: np.random.Generator, m: int, n: int, zeros: bool = False) -> tuple[Any, Any]:
    """Return a sparse matrix with entries in any order, and weights of the same pattern, some zero."""
    mask = rng.random((m, n)) < 0.5
    mask[0] = mask[:, 0] = True
    rows, columns = np.nonzero(mask)
    order = rng.permutation(len(rows))
    places = rows[order], columns[order]
    weights = rng.uniform(0.1, 3.0, len(rows))
    if zeros:
        weights[(rng.random(len(rows)) < 0.2) & (places[0] > 0) & (places[1] > 0)] = 0
    values = 3 + rng.standard_normal(len(rows))
    return coo_array((values, places), shape=(m, n)), coo_array((weights, places), shape=(m, n))


def model_of(
    rng: np.random.Generator, m: int, n: int, depth: int, ops: Any, sides: bool, zeros: bool = True
) -> tuple[SparseModel, SparseState, Any, Any]:
    Y, W = weighted_table(rng, m, n, zeros)
    entries = read_entries(Y, None, W)
    rank = int(rng.integers(1, min(m, n) + 1))
    layout = Layout(m, n, depth, rank, mask_rows=sides, offsets=sides)
    terms = [AdaptiveLaplacian("rows", 0.8, neighbors=m), AdaptiveLaplacian("columns", 0.6, neighbors=n)]
    model = SparseModel(entries, layout, terms, scale=0.7, shrinkage=0.4, ops=ops)
    start = first_state(model, 0, "gaussian", 0.4 if sides else None, 1)
    point = [rng.standard_normal(param.shape) for param in start.params]
    return model, SparseState(point, start.edges), Y, W


# --- the loss ---


@settings(max_examples=60, deadline=None)
@given(seeds, st.integers(2, 8), st.integers(2, 8), st.integers(2, 4), st.booleans(), st.booleans())
def test_the_gradient_is_that_of_the_weighted_loss(seed, m, n, depth, sides, by_reference):
    rng = np.random.default_rng(seed)
    ops = reference if by_reference else cpu
    model, state, _, _ = model_of(rng, m, n, depth, ops, sides)
    grads = [grad.copy() for grad in model.evaluate(state).gradients]

    def value(params: Any) -> float:
        found = model.evaluate(SparseState(list(params), state.edges))
        return model.loss(found.fidelity, found.energies)

    check_direction(value, state.params, grads, rng, tol=1e-6)


@settings(max_examples=40, deadline=None)
@given(seeds, st.integers(2, 8), st.integers(2, 8), st.integers(2, 4))
def test_with_all_candidates_loss_and_gradients_are_those_of_the_dense_form(seed, m, n, depth):
    rng = np.random.default_rng(seed)
    model, state, Y, W = model_of(rng, m, n, depth, cpu, sides=False)
    terms = [AdaptiveLaplacian("rows", 0.8), AdaptiveLaplacian("columns", 0.6)]
    rank = model.layout.rank
    dense = airnp.Objective(Y, weights=W, regularizers=terms, depth=depth, rank=rank, fidelity="sum")
    model.scale = 1.0
    point = [state.params[0].T.copy(), *state.params[1:depth]]
    point += [v.reshape(k, k) for v, k in zip(state.params[depth:], (m, n), strict=True)]
    loss, grads = dense.value_and_grad(point)
    found = model.evaluate(state)
    assert model.loss(found.fidelity, found.energies) == pytest.approx(loss, rel=1e-12)
    expected = [grads[0].T, *grads[1:depth], *(grad.reshape(1, -1) for grad in grads[depth:])]
    size = max(np.abs(grad).max() for grad in expected)
    for ours, theirs in zip(found.gradients, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12 * size)


@pytest.mark.parametrize("shape", [(12, 9), (9, 12)])
def test_fits_of_both_forms_agree_where_all_candidates_are_kept(shape):
    Y, W = weighted_table(np.random.default_rng(0), *shape, zeros=True)
    common = {"depth": 3, "rank": 4, "max_iter": 150, "stop": None, "seed": 5, "init": Gaussian(0.1, 0.3)}
    graphs = [AdaptiveLaplacian("rows", 0.02), AdaptiveLaplacian("columns", 0.03)]
    near = [AdaptiveLaplacian("rows", 0.02, neighbors=11), AdaptiveLaplacian("columns", 0.03, neighbors=11)]
    dense = airnp.fit(Y, regularizers=graphs, weights=W, form="dense", **common)
    sparse = airnp.fit(Y, regularizers=near, weights=W, form="sparse", **common)
    np.testing.assert_allclose(sparse.X, dense.X, rtol=0, atol=1e-9)
    np.testing.assert_allclose(sparse.history["loss"], dense.history["loss"], rtol=1e-9)


@pytest.mark.parametrize("batch_size", [None, 25])
def test_weights_of_one_are_none_and_weights_of_zero_are_missing(batch_size):
    rng = np.random.default_rng(1)
    Y, W = weighted_table(rng, 15, 11, zeros=True)
    options = {"form": "sparse", "rank": 3, "depth": 2, "max_iter": 30, "seed": 0, "offsets": True}
    options |= {"regularizers": [WeightDecay(1e-3, "sqrt")], "mask_factor": "both", "batch_size": batch_size}
    options["stop"] = HeldOut(0.1, patience=10, every=5)
    one, none = airnp.fit(Y, weights=np.ones(Y.nnz), **options), airnp.fit(Y, **options)
    np.testing.assert_allclose(one.X, none.X, rtol=1e-9)
    some = W.data > 0
    values = np.where(some, Y.data, np.nan)  # what is missing may be anything
    zero = airnp.fit(coo_array((values, (Y.row, Y.col)), Y.shape), weights=some.astype(int), **options)
    there = coo_array((Y.data[some], (Y.row[some], Y.col[some])), Y.shape)
    np.testing.assert_allclose(zero.X, airnp.fit(there, **options).X, rtol=1e-9)


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
    options = {"form": "sparse", "rank": 2, "depth": 2, "regularizers": [], "stop": None, "seed": 0}
    result = airnp.fit(
        Y, weights=np.where(often, 10.0, 0.1), optimizer=airnp.Adam(0.02), max_iter=400, **options
    )
    error = np.abs(result.predict(Y.row, Y.col) - Y.data)
    assert error[often].mean() < 0.5 * error[~often].mean()


def test_ratings_have_weights():
    rng = np.random.default_rng(3)
    Y, _ = weighted_table(rng, 20, 15)
    R = coo_array((np.clip(np.rint(Y.data), 1, 5), (Y.row, Y.col)), Y.shape)
    R.data[0], weights = 99.0, np.ones(R.nnz)
    weights[0] = 0
    result = airnp.fit_ratings(R, weights=weights, rank=3, max_iter=20, seed=0)
    assert float(result.bounds.high) <= 5


# --- reading ---


@pytest.mark.parametrize("kind", [coo_array, csr_array, csc_array, lil_array])
def test_weights_in_any_format(kind):
    Y, W = weighted_table(np.random.default_rng(4), 7, 6)
    wanted = csr_array(W)
    wanted.sort_indices()
    for weights in (kind(W), wanted.toarray()):
        np.testing.assert_array_equal(read_entries(kind(Y), None, weights).weights, wanted.data)
    if kind is not lil_array:
        vector = kind(W).data
        np.testing.assert_array_equal(
            read_entries(kind(Y), np.float32, vector).weights, wanted.data.astype("f4")
        )


def test_entries_carry_their_weights_along():
    Y, W = weighted_table(np.random.default_rng(5), 7, 6)
    entries = read_entries(Y, None, W)
    np.testing.assert_array_equal(entries.turned.weights, read_entries(Y.T, None, W.T).weights)
    kept, held = entries.split(np.arange(entries.nnz) % 3 == 0)
    np.testing.assert_array_equal(np.sort(np.concatenate([kept.weights, held.weights])), np.sort(W.data))
    np.testing.assert_array_equal(held.weights, entries.weights[::3])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda Y, W: W.data[1:], r"weights: expected a sparse matrix like Y, or one number for each of its"),
        (lambda Y, W: -W, "weights: expected finite numbers of at least 0"),
        (lambda Y, W: W.data * np.inf, "weights: expected finite numbers of at least 0"),
        (lambda Y, W: 0 * W.data, "weights: expected at least one above 0"),
        (lambda Y, W: csr_array(np.ones(Y.shape)), "weights: expected an entry wherever Y stores one and"),
        (lambda Y, W: csr_array((3, 3)), r"weights: expected the shape of Y, \(7, 6\), got \(3, 3\)"),
    ],
)
def test_odd_weights_are_refused(make, message):
    Y, W = weighted_table(np.random.default_rng(6), 7, 6)
    with pytest.raises(ValueError, match=message):
        airnp.fit(Y, weights=make(Y, W), form="sparse", rank=2)


def test_weights_that_are_no_numbers_or_have_no_order_are_refused():
    Y, W = weighted_table(np.random.default_rng(7), 7, 6)
    with pytest.raises(TypeError, match="weights: expected real numbers, got dtype complex"):
        airnp.fit(Y, weights=W.data * 1j, form="sparse", rank=2)
    with pytest.raises(ValueError, match=r"weights: a vector is in the order of Y.data, .* in lil format"):
        airnp.fit(lil_array(Y), weights=W.data, form="sparse", rank=2)
    twice = coo_array(([1.0, 2.0, 3.0], ([0, 0, 1], [0, 0, 1])), shape=(2, 2))
    with pytest.raises(ValueError, match="stores no entry twice; got one in coo format with 3 entries at 2"):
        airnp.fit(twice, weights=[1, 1, 1], form="sparse", rank=1)
    assert read_weights(twice, twice, csr_array(twice)).tolist() == [3.0, 3.0]


# --- on a device ---


@pytest.mark.parametrize("longest", [1024, 3])
def test_weights_on_a_device(gpu, monkeypatch, longest):
    from functools import partial

    from airnp.engines import sparse_cuda as cuda_lines
    from airnp.engines.sparse_cuda import cut

    monkeypatch.setattr(cuda_lines, "cut", partial(cut, longest=longest))
    Y, W = weighted_table(np.random.default_rng(8), 23, 17, zeros=True)
    options = {"form": "sparse", "rank": 3, "depth": 2, "max_iter": 25, "stop": None, "seed": 0}
    options |= {"offsets": True, "mask_factor": "both", "regularizers": [AdaptiveLaplacian(neighbors=4)]}
    host = airnp.fit(Y, weights=W, engine="reference", **options)
    there = gpu.cupyx.scipy.sparse.csr_matrix(W)
    for weights in (W, there):
        device = airnp.fit(Y, weights=weights, xp=gpu.cupy, **options)
        np.testing.assert_allclose(device.X, host.X, rtol=1e-9)
        np.testing.assert_allclose(device.history["loss"], host.history["loss"], rtol=1e-8)
    wide = {**options, "rank": 131, "max_iter": 2, "regularizers": []}
    Y, W = weighted_table(np.random.default_rng(9), 140, 135)
    host, device = airnp.fit(Y, weights=W, **wide), airnp.fit(Y, weights=W, xp=gpu.cupy, **wide)
    np.testing.assert_allclose(device.X, host.X, rtol=1e-9)
