"""Arguments at the edge of what can be meant: they give the right answer, or an error that names them."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import airnp
import airnp.baselines
from airnp import masks, metrics
from airnp.data.entries import read_entries
from airnp.data.inputs import read
from airnp.ratings import chosen_shrinkage
from airnp.sklearn import AIRImputer
from tests.conftest import Backend

RNG = np.random.default_rng(21)
MASK = RNG.random((20, 20)) < 0.6
Y = RNG.random((20, 20))
QUICK: dict[str, Any] = {"max_iter": 20, "stop": None, "seed": 0}


# --- constants ---


def stack_with_a_constant() -> np.ndarray:
    stack = RNG.random((3, 20, 20))
    stack[1] = 5.0
    return stack


@pytest.mark.parametrize("constant", [5.0, 0.0, -3e9])
def test_a_constant_matrix_is_completed_by_the_constant(constant: float) -> None:
    size = abs(constant) or 1.0
    result = airnp.fit(np.full((20, 20), constant), MASK, seed=0, max_iter=200)
    np.testing.assert_allclose(result.X, constant, atol=1e-4 * size)
    completion = airnp.complete(np.full((20, 20), constant), MASK, seed=0)
    np.testing.assert_allclose(completion.X, constant, atol=1e-4 * size)
    assert completion.expected < 1e-4


def test_a_constant_matrix_of_a_stack_is_completed_by_the_constant() -> None:
    result = airnp.fit(stack_with_a_constant(), MASK, seed=0, max_iter=100)
    np.testing.assert_allclose(result.X[1], 5.0, atol=1e-3)
    assert np.ptp(result.X[0]) > 0.1


@pytest.mark.parametrize("method", ["auto", "air"])
def test_constant_pictures_and_channels_are_filled_with_the_constant(method: str) -> None:
    options = {"max_iter": 50} if method == "air" else {}
    white = np.full((20, 20, 3), 255, np.uint8)
    assert (airnp.inpaint(white, MASK, method=method, **options) == 255).all()
    empty = RNG.random((20, 20, 3))
    empty[..., 1] = 0
    np.testing.assert_allclose(airnp.inpaint(empty, MASK, method=method, **options)[..., 1], 0, atol=1e-4)


def test_constant_sparse_matrices_are_completed_by_the_constant() -> None:
    S = sp.csr_array(np.where(MASK, 5.0, 0.0))
    np.testing.assert_allclose(airnp.fit_sparse(S, 2, max_iter=500, stop=None, seed=0).X, 5.0, atol=1e-3)
    np.testing.assert_allclose(airnp.fit_ratings(S, max_iter=20, seed=0).X, 5.0, atol=1e-3)


# --- parameters of an objective ---


def objective_and_params() -> tuple[airnp.Objective, list[np.ndarray]]:
    objective = airnp.Objective(np.arange(12.0).reshape(3, 4) + 1, np.ones((3, 4), bool))
    return objective, [np.ones(shape) for shape in objective.param_shapes]


@pytest.mark.parametrize("dtype", ["bool", "int8", "int32", "int64", "uint16", "float16", "float32", ">f8"])
def test_parameters_of_any_real_dtype_have_the_loss_of_floats(dtype: str) -> None:
    objective, ones = objective_and_params()
    value, grads = objective.value_and_grad(ones)
    found, found_grads = objective.value_and_grad([one.astype(dtype) for one in ones])
    assert found == value
    for grad, expected in zip(found_grads, grads, strict=True):
        np.testing.assert_array_equal(grad, expected)


def test_parameters_that_cannot_be_written_or_are_strided_have_the_loss_of_floats() -> None:
    objective, _ = objective_and_params()
    params = objective.init(seed=0)
    value, _ = objective.value_and_grad(params)
    locked = [param.copy() for param in params]
    for param in locked:
        param.flags.writeable = False
    assert objective.value_and_grad(locked)[0] == value
    strided = [np.repeat(param, 2, axis=1)[:, ::2] for param in params]
    assert objective.value_and_grad(strided)[0] == value
    assert objective.value_and_grad([np.asfortranarray(param) for param in params])[0] == value


def test_parameters_of_other_shapes_and_types_are_refused() -> None:
    objective, ones = objective_and_params()
    wrong = [np.ones((2, 2)) for _ in ones]
    for method in (objective.value_and_grad, objective.adjacencies, objective.matrix):
        with pytest.raises(ValueError, match=r"^params: array 0 must have shape \(3, 4\), got \(2, 2\)"):
            method(wrong)
        with pytest.raises(TypeError, match=r"^params: array 0 must hold real numbers, got dtype complex128"):
            method([one * 1j for one in ones])
        with pytest.raises(TypeError, match=r"^params: array 0 must be an array, got list"):
            method([one.tolist() for one in ones])


# --- sparse matrices ---


def broken(fmt: str) -> Any:
    """Return a sparse matrix (4, 5) that refers to a column, or a row, that there is not."""
    matrix = sp.coo_array(np.eye(4, 5)).asformat(fmt)
    if fmt == "coo":
        matrix.coords = (matrix.coords[0], np.array([0, 1, 2, 10**6]))
    elif fmt == "lil":
        matrix.rows[3] = [10**6]
    else:
        matrix.indices[3] = 10**6
    return matrix


CHILD = """
import sys
import numpy as np, airnp
from tests.test_edges import broken
calls = {
    "fit": lambda S: airnp.fit(S, max_iter=1),
    "fit_sparse": lambda S: airnp.fit_sparse(S, 2, max_iter=1),
    "fit_ratings": lambda S: airnp.fit_ratings(S, max_iter=1),
    "mask": lambda S: airnp.fit(np.ones((4, 5)), S, max_iter=1),
    "weights": lambda S: airnp.fit(np.ones((4, 5)), weights=S, max_iter=1),
}
for fmt in ("csr", "csc", "coo", "lil"):
    for name, call in calls.items():
        try:
            call(broken(fmt))
        except ValueError as error:
            assert "expected indices from 0 to" in str(error) or "exceeds" in str(error), (fmt, name, error)
        else:
            raise SystemExit(f"{fmt} as {name} was accepted")
print("all refused")
"""


def test_sparse_matrices_with_indices_outside_are_refused_everywhere() -> None:
    # In a process of its own: what is not refused may kill it.
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "all refused", done.stderr[-2000:]


def test_starts_of_rows_that_descend_are_refused() -> None:
    matrix = sp.csr_array(np.eye(4, 5))
    matrix.indptr[2] = 4
    with pytest.raises(ValueError, match=r"^S: its arrays do not describe a sparse matrix"):
        airnp.fit_sparse(matrix, 2)
    matrix = sp.csr_array(np.eye(4, 5))
    matrix.indptr[-1] = 99
    with pytest.raises(ValueError, match=r"^Y: its arrays do not describe a sparse matrix"):
        airnp.fit(matrix)


def test_graphs_with_indices_outside_are_refused() -> None:
    graph = sp.csr_array(np.ones((4, 4)))
    graph.indices[3] = 1000
    with pytest.raises(ValueError, match=r"^graph: expected indices from 0 to 3"):
        airnp.FixedLaplacian(graph)
    regularizers = [airnp.AdaptiveLaplacian("rows", candidates=graph)]
    with pytest.raises(ValueError, match=r"^candidates: expected indices from 0 to 3"):
        airnp.fit_sparse(sp.csr_array(np.ones((4, 5))), 2, regularizers=regularizers)


@pytest.mark.parametrize("fmt", ["dia", "bsr"])
def test_padding_is_missing_in_both_forms(fmt: str) -> None:
    entries = sp.csr_array(np.where(MASK, Y, 0.0))
    matrix = entries.todia() if fmt == "dia" else entries.tobsr(blocksize=(4, 5))
    padded = matrix.copy()
    padded.data = np.ones_like(padded.data)
    assert padded.toarray().sum() > MASK.sum()  # there is padding
    with_padding = read(matrix)
    np.testing.assert_array_equal(with_padding.mask, MASK)
    assert read_entries(matrix).nnz == MASK.sum()


# --- sizes ---


def calls_of_both_forms(**arguments: Any) -> Any:
    """Yield calls of both forms with weights or values of some size."""
    scale, weight = arguments.get("scale", 1.0), arguments.get("weight")
    dense = None if weight is None else np.full(Y.shape, weight)
    sparse = sp.csr_array(np.where(MASK, Y, 0.0))
    dtype = arguments["dtype"]
    yield lambda: airnp.fit(Y * scale, MASK, weights=dense, dtype=dtype, **QUICK)
    vector = None if weight is None else np.full(sparse.nnz, weight)
    yield lambda: airnp.fit_sparse(sparse * scale, 2, weights=vector, dtype=dtype, **QUICK)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("weight", [1e-60, 1e-6, 1e30, 1e60])
def test_weights_beside_which_the_data_or_the_regularizers_vanish_are_refused(
    weight: float, dtype: str
) -> None:
    for call in calls_of_both_forms(weight=weight, dtype=dtype):
        with pytest.raises(
            ValueError, match=r"^weights: expected the largest of a matrix .*divide them by their"
        ):
            call()


def test_each_matrix_of_a_stack_needs_weights_that_count() -> None:
    weights = np.ones((2, 20, 20))
    weights[1] = 1e-60
    with pytest.raises(ValueError, match=r"^weights: expected the largest of a matrix .* got 1e-60"):
        airnp.fit(np.stack([Y, Y]), MASK, weights=weights)


def test_weights_over_many_decades_are_right_and_what_is_observed_stays_so() -> None:
    weights = 10.0 ** RNG.uniform(-60, 0, Y.shape)
    weights[tuple(np.argwhere(MASK)[0])] = 1
    result = airnp.fit(Y, MASK, weights=weights, dtype="float32", **QUICK)
    np.testing.assert_array_equal(result.mask, MASK)
    np.testing.assert_array_equal(result.completed()[MASK], Y.astype(np.float32)[MASK])
    sparse = sp.csr_array(np.where(MASK, Y, 0.0))
    for options in ({"dtype": "float32"}, {"offsets": True}, {"mask_factor": "both"}):
        found = airnp.fit_sparse(sparse, 2, weights=weights[MASK], **options, **QUICK)
        assert np.isfinite(found.X).all()
    assert read_entries(sparse, "float32", weights[MASK]).nnz == MASK.sum()
    assert np.isfinite(airnp.fit_ratings(sparse, weights=weights[MASK], max_iter=20, seed=0).X).all()


@pytest.mark.parametrize("scale", [1e-300, 1e-40, 1e300])
def test_data_of_a_size_that_the_type_does_not_hold_is_refused_by_both_forms(scale: float) -> None:
    for call in calls_of_both_forms(scale=scale, dtype="float32"):
        with pytest.raises(ValueError, match=r"^dtype: float32 holds numbers of size"):
            call()
    for call in calls_of_both_forms(scale=scale, dtype="float64"):
        assert np.isfinite(call().X).all()


# --- options and containers ---


@pytest.mark.parametrize("depth", [101, 140, 10**9])
def test_too_many_factors_are_refused_at_once(depth: int) -> None:
    for call in (
        lambda: airnp.fit(Y, MASK, depth=depth),
        lambda: airnp.fit_sparse(sp.csr_array(Y), 2, depth=depth),
        lambda: airnp.fit(sp.csr_array(Y), depth=depth),
        lambda: airnp.Objective(Y, MASK, depth=depth),
    ):
        with pytest.raises(ValueError, match=rf"^depth: expected at most 100 factors, got {depth}"):
            call()


def test_integers_that_no_float_holds_are_refused() -> None:
    huge = [[10**400, 1], [2, 3]]
    with pytest.raises(ValueError, match=r"^Y: expected numbers that float64 can hold"):
        airnp.fit(huge)
    with pytest.raises(ValueError, match=r"^weights: expected numbers that float64 can hold"):
        airnp.fit(np.ones((2, 2)), weights=huge)
    with pytest.raises(ValueError, match=r"^mask: expected numbers that float64 can hold"):
        airnp.fit(np.ones((2, 2)), huge)
    with pytest.raises(ValueError, match=r"^delta: expected a finite number"):
        airnp.Huber(10**400)


LARGE = np.array([[2**53 + 1, 2], [3, 4]])


@pytest.mark.parametrize(
    "data",
    [
        LARGE,
        LARGE.astype(np.uint64) + np.uint64(2**63),
        LARGE.tolist(),
        [[2**60 + 1, None], [1, 2]],
        pd.DataFrame(LARGE),
        pd.DataFrame(LARGE).astype("Int64"),
        sp.csr_array(LARGE),
    ],
    ids=["int64", "uint64", "lists", "lists with None", "frame", "nullable", "sparse"],
)
def test_integers_that_floats_round_are_refused(data: Any) -> None:
    with pytest.raises(ValueError, match=r"^Y: \d observed integers are rounded by float64, the first is \d"):
        airnp.fit(data, **QUICK)


def test_integers_that_floats_hold_or_that_are_hidden_are_taken() -> None:
    hidden = airnp.fit(LARGE, np.array([[0, 1], [1, 1]]), **QUICK)
    assert hidden.completed()[1].tolist() == [3, 4]
    large = airnp.fit(LARGE * 0 + 2**60, **QUICK).completed()
    assert (large.astype(np.int64) == 2**60).all()
    with pytest.raises(ValueError, match=r"^S: 1 observed integers are rounded"):
        airnp.fit_sparse(sp.csr_array(LARGE), 1, **QUICK)


def test_arrays_of_dask_are_refused_by_name() -> None:
    dask = pytest.importorskip("dask.array")
    lazy = dask.from_array(Y)
    with pytest.raises(TypeError, match=r"^Y: expected an array in memory, got one of Dask"):
        airnp.fit(lazy)
    with pytest.raises(TypeError, match=r"^Y: expected an array in memory, got one of Dask"):
        airnp.complete(lazy, MASK)
    with pytest.raises(TypeError, match=r"^image: expected an array in memory, got one of Dask"):
        airnp.inpaint(lazy, MASK)


def test_structured_masked_arrays_are_refused_by_name() -> None:
    table = np.ma.array(np.zeros((3, 3), dtype=[("a", float)]), mask=False)
    with pytest.raises(TypeError, match=r"^Y: expected real numbers, got dtype"):
        airnp.fit(table)
    with pytest.raises(TypeError, match=r"^image: expected integers"):
        airnp.inpaint(table)


@pytest.mark.parametrize("candidates", [3, "nearest", np.eye(3)])
def test_candidates_that_cannot_be_meant_are_refused(candidates: Any) -> None:
    with pytest.raises(TypeError, match=r"^candidates: expected Nearest"):
        airnp.AdaptiveLaplacian("rows", candidates=candidates)


def test_what_is_masked_is_missing_to_the_imputer() -> None:
    holes = np.where(MASK, Y, np.nan)
    for masked in (np.ma.array(np.where(MASK, Y, 999), mask=~MASK), np.ma.masked_invalid(holes)):
        filled = AIRImputer(random_state=0).fit_transform(masked)
        np.testing.assert_array_equal(filled, AIRImputer(random_state=0).fit_transform(holes))
    whole = AIRImputer(random_state=0).fit_transform(
        np.ma.array([[1, 2], [3, 4], [5, 99]], mask=[[0, 0], [0, 0], [0, 1]])
    )
    assert whole.max() < 20


def test_dates_are_no_numbers_to_the_imputer() -> None:
    with pytest.raises(TypeError, match=r"^X: expected numbers, got dtype datetime64"):
        AIRImputer(random_state=0).fit(np.full((3, 3), np.datetime64("2020")))


# --- what fuzzing found ---


def test_a_column_of_float32_beside_others_is_filled_in_its_dtype() -> None:
    frame = pd.DataFrame({"a": [True, False, True], "b": np.array([0.8, np.nan, 0.1], np.float32)})
    filled = AIRImputer(random_state=0).fit_transform(frame)
    assert filled["b"].dtype == np.float32
    assert filled["b"].notna().all()


def test_a_random_state_below_zero_is_named() -> None:
    with pytest.raises(ValueError, match=r"^random_state: expected at least 0, got -1"):
        AIRImputer(random_state=-1).fit(np.where(MASK, Y, np.nan))


def test_ratings_of_any_size_choose_a_shrinkage() -> None:
    ratings = sp.csr_array(RNG.random((6, 5)) + 1)
    plain = chosen_shrinkage(read_entries(ratings))
    assert chosen_shrinkage(read_entries(ratings * 1e200)) == plain


def test_baselines_refuse_numbers_whose_squares_overflow() -> None:
    for method in (airnp.baselines.svd, airnp.baselines.soft_impute):
        with pytest.raises(ValueError, match=r"^Y: expected numbers up to 1e\+100 in size"):
            method(Y * 1e200, MASK)


def test_a_seed_of_masks_that_is_none_is_named() -> None:
    for call in (airnp.masks.random, airnp.masks.rows, airnp.masks.columns, airnp.masks.scratches):
        with pytest.raises(ValueError, match=r"^seed: .* got -1"):
            call((5, 5), seed=-1)


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_ssim_does_not_depend_on_the_unit(scale: float) -> None:
    X, truth = np.random.default_rng(0).standard_normal((2, 9, 8))
    assert metrics.ssim(scale * X, scale * truth) == pytest.approx(metrics.ssim(X, truth))
    assert abs(metrics.ssim(X, truth, data_range=scale)) <= 1


def test_equal_ratings_of_1e200_choose_a_spread() -> None:
    users, items = [0, 0, 0, 2, 3, 3], [1, 2, 3, 1, 0, 4]
    R = sp.coo_array((np.full(6, 1e200), (users, items)), shape=(4, 5))
    with pytest.warns(airnp.EmptyLineWarning):
        found = airnp.fit_ratings(R, max_iter=5, seed=0)
    np.testing.assert_allclose(found.predict([0], [1]), 1e200)


def test_a_tiny_constant_column_is_filled_by_its_constant() -> None:
    Y = np.random.default_rng(0).choice([0.0, 1e-200], (12, 4))
    Y[:, 1] = 1e-200
    seen = masks.random(Y.shape, 0.3, seed=0)
    found = AIRImputer(random_state=0).fit_transform(np.where(seen, Y, np.nan))
    np.testing.assert_allclose(found[:, 1], 1e-200, rtol=1e-9)


# --- masks ---


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float32"])
def test_masks_of_0_and_255_are_masks(dtype: str) -> None:
    result = airnp.fit(Y, MASK.astype(dtype) * 255, **QUICK)
    np.testing.assert_array_equal(result.mask, MASK)
    np.testing.assert_array_equal(result.X, airnp.fit(Y, MASK, **QUICK).X)


def test_masks_of_0_1_and_255_are_refused() -> None:
    marks = MASK.astype(np.uint8)
    marks[0, 0] = 255
    with pytest.raises(ValueError, match=r"^mask: expected True/False, 1/0 or 255/0"):
        airnp.fit(Y, marks)


def test_a_mask_of_numpy_may_stand_beside_data_of_another_namespace(backend: Backend) -> None:
    expected = airnp.fit(Y, MASK, weights=2 * MASK, engine="reference", **QUICK)
    for mask in (MASK, MASK.astype(np.uint8), MASK.astype(np.uint16), MASK.tolist()):
        result = airnp.fit(backend.array(Y), mask, weights=2 * MASK, engine="reference", **QUICK)
        np.testing.assert_allclose(np.asarray(result.to_numpy().X), expected.X, rtol=1e-10)
