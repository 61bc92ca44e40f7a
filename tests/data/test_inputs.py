"""Every kind of data, mask and weights gives the same answer, or a clear error."""

from __future__ import annotations

import copy
import pickle
import warnings
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, aslinearoperator

import airnp
from airnp.data.inputs import read

SHAPE = (12, 9)
FORMATS = ("bsr", "coo", "csc", "csr", "dia", "dok", "lil")


def _data(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return a low-rank matrix and a mask that leaves something in every row and column."""
    rng = np.random.default_rng(seed)
    Y = rng.standard_normal((SHAPE[0], 2)) @ rng.standard_normal((2, SHAPE[1]))
    mask = rng.random(SHAPE) < 0.6
    mask[np.arange(12), np.arange(12) % 9] = True
    return Y, mask


Y, MASK = _data()
HOLES = np.where(MASK, Y, np.nan)
WHOLE = np.round(20 * (Y - Y.min())).astype(np.int64)  # 0 … about 200
GRAPH = np.eye(12, k=1) + np.eye(12, k=-1)
LAPLACIAN = np.diag(GRAPH.sum(axis=1)) - GRAPH
L = {"kind": "laplacian"}


def fit(Y: Any, mask: Any = None, **options: Any) -> airnp.FitResult:
    """A fit short enough for a test, long enough that every entry has moved."""
    return airnp.fit(Y, mask, **{"max_iter": 40, "stop": None, "seed": 3, **options})


@pytest.fixture(scope="module")
def expected() -> np.ndarray:
    """The answer for plain C-contiguous float64 data and a boolean mask."""
    return fit(Y.copy(), MASK.copy()).X


class _Subclass(np.ndarray):
    """An ndarray subclass, as from other libraries."""


def _strided(array: np.ndarray) -> np.ndarray:
    spaced = np.full((2 * array.shape[0], 3 * array.shape[1]), 77, dtype=array.dtype)
    spaced[::2, ::3] = array
    return spaced[::2, ::3]


def _read_only(array: np.ndarray) -> np.ndarray:
    locked = array.copy()
    locked.flags.writeable = False
    return locked


LAYOUTS = {
    "read-only": _read_only,
    "fortran": np.asfortranarray,
    "strided": _strided,
    "negative strides": lambda array: array[::-1, ::-1].copy()[::-1, ::-1],
    "big-endian": lambda array: array.astype(array.dtype.newbyteorder(">")),
    "unaligned": lambda array: np.frombuffer(b"x" + array.tobytes(), array.dtype, offset=1).reshape(SHAPE),
    "matrix subclass": lambda array: array.copy().view(_Subclass),
    "broadcast": lambda array: np.broadcast_to(array, array.shape),
}


def _sparse_with_zeros(fmt: str) -> tuple[Any, np.ndarray, np.ndarray]:
    """Return a sparse matrix, its values and which entries it stores, explicit zeros among them."""
    values, stored = Y.copy(), MASK.copy()
    values[np.nonzero(MASK)[0][::5], np.nonzero(MASK)[1][::5]] = 0.0
    if fmt == "dia":  # stores whole diagonals
        offsets = np.array([-7, -4, 0, 2, 5])
        stored = np.zeros(SHAPE, dtype=bool)
        for offset in offsets:
            stored |= np.eye(*SHAPE, k=offset, dtype=bool)
        values[3, 3] = values[7, 0] = 0.0
        rows = np.arange(SHAPE[1]) - offsets[:, None]
        inside = (rows >= 0) & (rows < SHAPE[0])
        data = np.where(inside, values[np.clip(rows, 0, SHAPE[0] - 1), np.arange(SHAPE[1])], 0.0)
        return sp.dia_array((data, offsets), shape=SHAPE), values, stored
    if fmt == "bsr":  # stores whole blocks
        stored = np.kron(np.random.default_rng(0).random((4, 3)) < 0.7, np.ones((3, 3), dtype=bool))
        stored[:3, :3] = stored[3:6, 3:6] = stored[6:9, 6:9] = stored[9:] = True
        matrix = sp.bsr_array(np.where(stored, values + 100, 0.0), blocksize=(3, 3))
        matrix.data -= 100
        return matrix, matrix.toarray(), stored
    places = np.nonzero(stored)
    return sp.coo_array((values[places], places), shape=SHAPE).asformat(fmt), values, stored


# --- the same answer from every container ---


DATA = {
    "NaN is missing": (HOLES, None),
    "int8 mask": (Y, MASK.astype(np.int8)),
    "uint64 mask": (Y, MASK.astype(np.uint64)),
    "float mask": (Y, MASK.astype(np.float32)),
    "NaN outside a mask": (HOLES, MASK),
    "inf outside a mask": (np.where(MASK, Y, np.inf), MASK),
    "numpy.ma": (np.ma.array(Y, mask=~MASK), None),
    "numpy.ma with NaN below": (np.ma.masked_invalid(HOLES), None),
    "numpy.ma with inf below": (np.ma.array(np.where(MASK, Y, -np.inf), mask=~MASK), None),
    "numpy.ma mask": (Y, np.ma.array(np.ones(SHAPE, dtype=int), mask=~MASK)),
    "numpy.ma and mask": (
        np.ma.array(Y, mask=~(MASK | (np.arange(9) % 2 == 0))),
        MASK | (np.arange(9) % 2 == 1),
    ),
    "sparse and mask": (sp.csr_array(np.where(MASK, Y, 0)), np.ones(SHAPE)),
    "nested lists with None": (np.where(MASK, Y.astype(object), None).tolist(), None),
    "nested lists with NaN": (HOLES.tolist(), None),
    "nested tuples and list mask": (tuple(map(tuple, Y.tolist())), MASK.tolist()),
    "list of rows": (list(HOLES), None),
    "list of numpy.ma rows": (list(np.ma.array(Y, mask=~MASK)), None),
    "lists of NumPy scalars and None": ([[None if x != x else x for x in row] for row in HOLES], None),
    "DataFrame": (pd.DataFrame(HOLES), None),
    "DataFrame and mask": (pd.DataFrame(Y), pd.DataFrame(MASK)),
    "DataFrame and plain mask": (pd.DataFrame(Y), MASK),
    "array and DataFrame mask": (Y, pd.DataFrame(MASK.astype(int))),
    "DataFrame Float64 with NA": (pd.DataFrame(HOLES).astype("Float64"), None),
    "DataFrame and nullable mask": (pd.DataFrame(Y), pd.DataFrame(MASK).astype("boolean")),
    "DataFrame of sparse columns": (pd.DataFrame(HOLES).astype(pd.SparseDtype(float, np.nan)), None),
    "longdouble": (HOLES.astype(np.longdouble), None),
    **{f"{name} data": (change(HOLES), None) for name, change in LAYOUTS.items()},
    **{f"{name} mask": (Y, change(MASK)) for name, change in LAYOUTS.items() if name != "big-endian"},
    "big-endian int mask": (Y, MASK.astype(">i4")),
    **{f"{fmt} mask": (Y, sp.coo_array(MASK).asformat(fmt)) for fmt in FORMATS},
    **{
        f"{make.__name__} data": (make(np.where(MASK, Y, 0)), None)
        for make in (sp.csr_matrix, sp.coo_matrix, sp.csc_matrix)
    },
}


def _frozen(value: Any) -> bytes:
    """Return all that there is to change in an input, as bytes."""
    if isinstance(value, np.ma.MaskedArray):
        return _frozen(value.data) + _frozen(np.ma.getmaskarray(value))
    if isinstance(value, np.ndarray):
        return repr((value.dtype, value.shape, value.strides)).encode() + value.tobytes()
    if isinstance(value, pd.DataFrame):
        labels = repr((list(value.index), list(value.columns), list(value.dtypes))).encode()
        return labels + value.to_numpy(dtype=float, na_value=np.nan).tobytes()
    return pickle.dumps(value)


@pytest.mark.parametrize("name", DATA)
def test_every_container_gives_the_answer_of_plain_arrays_and_is_left_alone(
    name: str, expected: np.ndarray
) -> None:
    data, mask = copy.deepcopy(DATA[name]) if name not in ("broadcast data", "broadcast mask") else DATA[name]
    before = _frozen(data), _frozen(mask)
    result = fit(data, mask)
    assert result.matrix.dtype == np.float64
    np.testing.assert_allclose(result.matrix, expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(result.mask, MASK)
    assert (_frozen(data), _frozen(mask)) == before


def test_the_answer_depends_on_mask_and_data(expected: np.ndarray) -> None:
    assert np.abs(fit(Y, np.roll(MASK, 1)).X - expected).max() > 1e-3
    assert np.abs(fit(np.roll(Y, 1), MASK).X - expected).max() > 1e-3


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_layout_does_not_change_one_bit(layout: str, expected: np.ndarray) -> None:
    change = LAYOUTS[layout]
    result = fit(change(HOLES), change(MASK), weights=change(np.ones(SHAPE)))
    np.testing.assert_array_equal(result.X, expected)
    assert result.observed.flags.c_contiguous
    assert result.mask.flags.c_contiguous
    completed = result.completed()
    np.testing.assert_array_equal(completed, np.where(MASK, Y, result.X))
    assert type(completed) is np.ndarray
    assert completed.dtype.isnative


def test_results_of_plain_arrays_share_no_memory_with_them_and_have_no_labels() -> None:
    data, mask, weights = Y.copy(), MASK.copy(), np.ones(SHAPE)
    result = fit(data, mask, weights=weights, normalize=False, max_iter=3)
    arrays = [result.matrix, result.observed, result.mask, *result.factors, result.completed()]
    for array in arrays:
        for given in (data, mask, weights):
            assert not np.shares_memory(array, given)
    assert result.index is None
    assert result.columns is None


# --- scipy.sparse ---


@pytest.mark.parametrize("fmt", FORMATS)
def test_sparse_stored_entries_are_the_observed_ones_explicit_zeros_included(fmt: str) -> None:
    matrix, values, stored = _sparse_with_zeros(fmt)
    assert matrix.format == fmt
    assert np.any(stored & (values == 0))
    if fmt in ("dia", "bsr"):  # their zeros may be padding
        stored = stored & (values != 0)
    assert not stored.all()
    before = pickle.dumps(matrix)
    result = fit(matrix)
    np.testing.assert_array_equal(result.mask, stored)
    np.testing.assert_array_equal(result.observed, np.where(stored, values, 0))
    np.testing.assert_allclose(result.X, fit(values, stored).X, rtol=1e-10, atol=1e-12)
    assert pickle.dumps(matrix) == before


@pytest.mark.parametrize("fmt", ["coo", "csr", "csc"])
def test_sparse_duplicates_are_refused(fmt: str) -> None:
    rows, columns = (np.repeat(places, 2) for places in np.nonzero(MASK))
    pieces = (Y[MASK][:, None] * [0.25, 0.75]).ravel()
    matrix = sp.coo_array((pieces, (rows, columns)), shape=SHAPE)
    if fmt != "coo":
        make, major, minor = (sp.csr_array, rows, columns) if fmt == "csr" else (sp.csc_array, columns, rows)
        order, size = np.argsort(major, kind="stable"), SHAPE[fmt == "csc"]
        starts = np.searchsorted(major[order], np.arange(size + 1))
        matrix = make((pieces[order], minor[order], starts), shape=SHAPE)
    assert matrix.nnz == 2 * MASK.sum()
    before = pickle.dumps(matrix)
    places = f"{2 * MASK.sum()} entries at {MASK.sum()} places"
    with pytest.raises(ValueError, match=rf"^Y: expected at most one entry for each place, got {places}"):
        read(matrix)
    with pytest.raises(ValueError, match=rf"^S: expected at most one entry for each place, got {places}"):
        airnp.fit_sparse(matrix, 2)
    with pytest.raises(
        ValueError, match=rf"^weights: expected at most one entry for each place, got {places}"
    ):
        read(Y, weights=matrix)
    assert pickle.dumps(matrix) == before


def test_many_duplicates_of_a_boolean_mask_stay_one() -> None:
    rows, columns = np.nonzero(MASK)
    mask = sp.coo_array((np.ones(512 * rows.size, bool), (np.tile(rows, 512), np.tile(columns, 512))), SHAPE)
    np.testing.assert_array_equal(read(Y, mask).mask, MASK)


def test_explicit_zeros_of_a_sparse_mask_are_missing_and_weights_zero_where_nothing_is_stored() -> None:
    mask = sp.csr_array(np.ones(SHAPE))
    mask.data[~MASK.ravel()] = 0
    assert mask.nnz == Y.size
    np.testing.assert_array_equal(read(Y, mask).mask, MASK)
    observations = read(Y, weights=sp.csc_array(np.where(MASK, 2.5, 0)))
    np.testing.assert_array_equal(observations.weights, np.where(MASK, 2.5, 0))
    np.testing.assert_array_equal(observations.mask, MASK)


def test_sparse_stacks_are_stacks() -> None:
    try:
        stack = sp.coo_array(np.stack([np.where(MASK, Y, 0), np.where(MASK, -Y, 0)]))
    except (TypeError, ValueError) as error:
        pytest.skip(f"this SciPy has no sparse arrays of three axes: {error}")
    observations = read(stack)
    np.testing.assert_array_equal(observations.mask, np.stack([MASK, MASK]))
    np.testing.assert_array_equal(observations.values[1], np.where(MASK, -Y, 0))


# --- pandas ---


def _labelled(values: np.ndarray = HOLES) -> pd.DataFrame:
    index = pd.date_range("2024-01-01", periods=12, name="day")
    return pd.DataFrame(values, index=index, columns=[f"station {k}" for k in range(9)])


def test_labels_of_a_table_come_back(expected: np.ndarray) -> None:
    frame = _labelled()
    untouched = frame.copy()
    result = fit(frame)
    for table in (result.X, result.completed()):
        assert isinstance(table, pd.DataFrame)
    for labelled in (result.X, result.completed(), result):
        pd.testing.assert_index_equal(labelled.index, frame.index)
        pd.testing.assert_index_equal(labelled.columns, frame.columns)
    np.testing.assert_allclose(result.X.to_numpy(), expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(result.completed().to_numpy()[MASK], Y[MASK])
    pd.testing.assert_frame_equal(frame, untouched)


def test_labels_may_have_levels_and_repeat() -> None:
    frame = pd.DataFrame(HOLES)
    frame.index = pd.MultiIndex.from_product([["a", "b", "c"], [1, 2, 3, 4]], names=["group", "item"])
    frame.columns = ["x"] * 9
    completed = fit(frame, max_iter=2).completed()
    pd.testing.assert_index_equal(completed.index, frame.index)
    pd.testing.assert_index_equal(completed.columns, frame.columns)


NULLABLE = {
    "float32": ["float32", "Float32", "UInt8", "Int16", "Sparse[float32, nan]"],
    "float64": ["float64", "Float64", "Int64", "Int32"],
}


@pytest.mark.parametrize(
    ("dtype", "found"), [(kind, found) for found in NULLABLE for kind in NULLABLE[found]]
)
def test_nullable_tables_read_na_as_missing(dtype: str, found: str) -> None:
    frame = pd.DataFrame(np.where(MASK, WHOLE, np.nan)).astype(dtype)
    assert frame.isna().to_numpy().sum() == (~MASK).sum()
    observations = read(frame)
    assert observations.dtype == found
    np.testing.assert_array_equal(observations.mask, MASK)
    np.testing.assert_array_equal(observations.values, np.where(MASK, WHOLE, 0))


@pytest.mark.parametrize(
    ("dtype", "found"),
    [("uint8", "float32"), ("int64", "float64"), ("bool", "float32"), ("boolean", "float32")],
)
def test_tables_of_whole_numbers(dtype: str, found: str) -> None:
    values = WHOLE if "int" in dtype else WHOLE > 100
    observations = read(pd.DataFrame(values).astype(dtype))
    assert observations.dtype == found
    np.testing.assert_array_equal(observations.values, values)
    assert observations.mask.all()


def test_tables_of_mixed_columns_take_the_wider_type() -> None:
    halves = np.array([1.5, np.nan, 3], dtype=np.float32)
    frame = pd.DataFrame({"a": np.arange(3, dtype=np.int8), "b": halves})
    assert read(frame).dtype == "float32"
    frame["c"] = pd.array([2**40 + 1, None, 3], dtype="Int64")
    observations = read(frame)
    assert observations.dtype == "float64"
    np.testing.assert_array_equal(observations.values, [[0, 1.5, 2**40 + 1], [1, 0, 0], [2, 3, 3]])
    np.testing.assert_array_equal(observations.mask, [[1, 1, 1], [1, 0, 0], [1, 1, 1]])


@pytest.mark.parametrize("name", ["mask", "weights"])
def test_tables_that_are_not_aligned_are_refused(name: str) -> None:
    frame, other = _labelled(Y), _labelled(MASK.astype(float))
    for wrong in (other.iloc[::-1], other.iloc[:, ::-1], other.reset_index(drop=True)):
        with pytest.raises(ValueError, match=f"{name}: its index and columns must equal those of Y"):
            fit(frame, **{name: wrong})
    assert fit(frame, **{name: other}, max_iter=1).mask.sum() == MASK.sum()


@pytest.mark.parametrize(
    "column",
    [
        ["a"] * 12,
        pd.Categorical(["a"] * 12),
        pd.date_range("2024", periods=12),
        pd.timedelta_range("1s", periods=12),
        [1.0, None] * 6,
        [1j] * 12,
    ],
    ids=["text", "category", "date", "timedelta", "object", "complex"],
)
def test_columns_that_are_not_numbers_are_refused_by_name(column: Any) -> None:
    frame = _labelled(Y)
    frame["remarks"] = pd.Series(column, index=frame.index, dtype=object if None in list(column) else None)
    with pytest.raises(TypeError, match="Y: expected numeric columns, these are not: 'remarks'"):
        fit(frame)


# --- numbers of every type ---


NUMBERS = {
    "float32": ["uint8", "int8", "int16", "uint16", "float16", "float32", ">u2", ">f4"],
    "float64": ["int32", "uint32", "int64", "uint64", "float64", ">i8"],
}


@pytest.mark.parametrize(("dtype", "found"), [(kind, found) for found in NUMBERS for kind in NUMBERS[found]])
def test_each_type_has_its_float(dtype: str, found: str) -> None:
    data = (WHOLE // 2).astype(dtype)
    before = data.tobytes()
    result = fit(data, MASK)
    assert result.X.dtype == result.completed().dtype == np.dtype(found)
    assert all(factor.dtype == np.dtype(found) for factor in result.factors)
    reference = fit((WHOLE // 2).astype(np.float64), MASK).X
    tolerance = 1e-10 if found == "float64" else 2e-4 * np.abs(reference).max()
    np.testing.assert_allclose(result.X, reference, rtol=0, atol=tolerance)
    assert data.tobytes() == before


def test_booleans_are_zero_and_one() -> None:
    data = Y > 0
    result = fit(data, MASK)
    assert result.X.dtype == np.float32
    np.testing.assert_allclose(result.X, fit(data.astype(float), MASK).X, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "float64", np.float32, np.dtype(">f8"), "f4", float])
def test_a_dtype_may_be_asked_for(dtype: Any, expected: np.ndarray) -> None:
    name = np.dtype(dtype).newbyteorder("=")
    result = fit(Y, MASK, dtype=dtype)
    assert result.X.dtype == name
    np.testing.assert_allclose(result.X, expected, atol=1e-10 if name == np.float64 else 1e-4)


def test_a_wider_dtype_normalises_in_that_type() -> None:
    """In the data's own float32, (Y − min)/(max − min) would be off by 1e-8."""
    narrow = (1 + Y).astype(np.float32)
    np.testing.assert_array_equal(fit(narrow, MASK, dtype="float64").X, fit(narrow.astype(float), MASK).X)


@pytest.mark.parametrize("dtype", ["float16", "int32", "complex128", object, "nonsense", np.longdouble])
def test_other_dtypes_are_refused(dtype: Any) -> None:
    with pytest.raises(ValueError, match="dtype: expected float32 or float64, got"):
        fit(Y, MASK, dtype=dtype)


def test_lists_of_odd_numbers() -> None:
    observations = read([[10**30, None], [True, np.float32(0.5)]])
    np.testing.assert_array_equal(observations.values, [[1e30, 0], [1, 0.5]])
    np.testing.assert_array_equal(observations.mask, [[True, False], [True, True]])


def test_masked_elements_in_lists_are_missing() -> None:
    observations = read([[1.0, np.ma.masked], [3.0, 4.0]])
    np.testing.assert_array_equal(observations.mask, [[True, False], [True, True]])
    stack = [np.ma.array(Y, mask=~MASK), np.ma.array(-Y, mask=MASK)]
    np.testing.assert_array_equal(read(stack).mask, np.stack([MASK, ~MASK]))


# --- any scale ---


SCALES = [
    (1e-8, 0.0, 1e-11),
    (1e8, 0.0, 1e-11),
    (1e-30, 0.0, 1e-11),
    (1e200, 0.0, 1e-11),
    (1.0, 1e6, 1e-7),
    (1.0, -1e6, 1e-7),
    (1e-8, 1e-2, 1e-7),
    (1e8, -1e14, 1e-7),
    (2.0**-40, 0.0, 0.0),
]


@cache
def _plain_answer(stop: Any) -> airnp.FitResult:
    return fit(Y, MASK, max_iter=200, stop=stop)


@pytest.mark.parametrize(("scale", "offset", "tolerance"), SCALES)
@pytest.mark.parametrize("stop", [None, "auto"])
def test_data_of_any_scale_has_the_same_relative_answer(
    scale: float, offset: float, tolerance: float, stop: Any
) -> None:
    plain = _plain_answer(stop)
    moved = fit(offset + scale * Y, MASK, max_iter=200, stop=stop)
    assert moved.best_iter == plain.best_iter
    size = np.abs(plain.X).max()
    np.testing.assert_allclose((moved.X - offset) / scale, plain.X, rtol=0, atol=tolerance * size)
    np.testing.assert_allclose(moved.history["loss"], plain.history["loss"], rtol=max(tolerance, 1e-12))


@pytest.mark.parametrize(("scale", "offset"), [(1e-8, 0.0), (1e8, 0.0), (1e-3, 1.0), (-1.0, 0.0)])
@pytest.mark.parametrize(
    "options",
    [
        {"regularizers": [airnp.TotalVariation(1e-3)]},
        {"regularizers": [airnp.FixedLaplacian(GRAPH), airnp.DirichletEnergy("columns")]},
        {"fidelity": airnp.Huber(0.05), "regularizers": []},
    ],
    ids=["variation", "graphs", "huber"],
)
def test_every_model_has_the_same_relative_answer(scale: float, offset: float, options: Any) -> None:
    base = Y if scale > 0 else -Y
    plain = fit(base, MASK, max_iter=100, **options).X
    moved = fit(offset + abs(scale) * base, MASK, max_iter=100, **options).X
    np.testing.assert_allclose((moved - offset) / abs(scale), plain, rtol=0, atol=1e-10 * np.abs(plain).max())


def test_a_large_offset_does_not_eat_the_digits_of_a_float32_fit() -> None:
    """Normalised before the cast: in float32, 1e6 + Y alone would leave steps of 0.06."""
    plain = fit(Y, MASK, dtype="float32", max_iter=100)
    moved = fit(1e6 + Y, MASK, dtype="float32", max_iter=100)
    undone = [r.factors[2] @ r.factors[1] @ r.factors[0] for r in (plain, moved)]
    np.testing.assert_allclose(undone[1], undone[0], atol=2e-5)


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_measurements_of_any_scale_have_the_same_relative_answer(scale: float) -> None:
    matrix = np.random.default_rng(1).standard_normal((60, 108))
    measured, operator = matrix @ Y.ravel(), airnp.Operator(aslinearoperator(matrix), SHAPE)
    plain = fit(measured, operator=operator, max_iter=100).X
    moved = fit(scale * measured, operator=operator, max_iter=100).X
    np.testing.assert_allclose(moved / scale, plain, rtol=0, atol=1e-10 * np.abs(plain).max())


def test_missing_measurements_do_not_change_the_scale() -> None:
    operator = aslinearoperator(np.eye(108))
    half = np.where(MASK, 3.0, np.nan)
    scale = fit(half.ravel(), operator=airnp.Operator(operator, SHAPE), max_iter=1).normalization.scale
    np.testing.assert_allclose(scale, [[6.0]])


@pytest.mark.parametrize("value", [5.0, -3e8, 1e-8, 1e-200, 0.0])
def test_constant_data_is_completed_by_the_constant(value: float) -> None:
    result = fit(np.full(SHAPE, value), MASK, max_iter=200)
    assert np.isfinite(result.X).all()
    np.testing.assert_allclose(result.X, value, rtol=1e-2, atol=1e-2 if value == 0 else 0)
    np.testing.assert_array_equal(result.completed()[MASK], value)


def test_one_observed_entry_is_enough() -> None:
    data = np.full((4, 3), np.nan)
    data[1, 2] = -7e-5
    with pytest.warns(airnp.EmptyLineWarning, match="3 rows and 2 columns"):
        result = fit(data)
    np.testing.assert_allclose(result.X[1, 2], -7e-5, rtol=1e-2)
    assert np.isfinite(result.X).all()


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (7, 1)])
def test_single_rows_and_columns_are_matrices(shape: tuple[int, int]) -> None:
    data = np.arange(1.0, 1 + np.prod(shape)).reshape(shape)
    result = fit(data, regularizers=[], depth=2, max_iter=300, learning_rate=1e-2)
    np.testing.assert_allclose(result.X, data, atol=0.05)


def test_normalize_false_leaves_the_data_as_it_is() -> None:
    result = fit(Y, MASK, normalize=False, regularizers=[])
    np.testing.assert_array_equal(result.normalization.scale, [[1.0]])
    product = result.factors[2] @ result.factors[1] @ result.factors[0]
    np.testing.assert_allclose(product, result.X, rtol=1e-12)


@pytest.mark.parametrize(
    ("data", "dtype", "message"),
    [
        (Y / np.abs(Y).max() * 1.7e308, None, "Y: the range of observed entries overflows float64"),
        ((Y / np.abs(Y).max() * 3.4e38).astype(np.float32), None, "Y: the range of .* overflows float32"),
        (Y * 1e50, "float32", "dtype: float32 holds numbers of size .*, the largest of Y is"),
        (Y * 1e-50, "float32", "dtype: float32 holds numbers of size .*, the largest of Y is"),
    ],
    ids=["float64", "float32", "too large for float32", "too small for float32"],
)
def test_numbers_out_of_range_are_an_error_and_no_warning(data: Any, dtype: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit(data, MASK, dtype=dtype)


# --- weights and masks ---


def test_weights_of_one_change_nothing(expected: np.ndarray) -> None:
    for ones in (np.ones(SHAPE), np.ones(SHAPE, dtype=np.int8), np.ones(SHAPE, dtype=bool)):
        np.testing.assert_allclose(fit(Y, MASK, weights=ones).X, expected, rtol=1e-10, atol=1e-12)


def test_weights_of_zero_are_missing(expected: np.ndarray) -> None:
    hidden = np.ma.array(np.ones(SHAPE), mask=~MASK)
    kinds = (MASK.astype(float), MASK, hidden, pd.DataFrame(MASK.astype(int)), sp.csr_array(1.0 * MASK))
    even = np.arange(9) % 2 == 0
    for data, mask, weights in (
        *((Y, None, weights) for weights in kinds),
        (Y, MASK | even, 1.0 * (MASK | ~even)),
        (HOLES, np.ones(SHAPE), MASK.astype(float)),  # NaN where the weight is zero
    ):
        result = fit(data, mask, weights=weights)
        np.testing.assert_array_equal(result.mask, MASK)
        np.testing.assert_allclose(result.X, expected, rtol=1e-10, atol=1e-12)


def test_a_weight_of_two_is_an_entry_seen_twice() -> None:
    weights = np.random.default_rng(0).uniform(0.1, 3, SHAPE)
    before = weights.tobytes()
    objective = airnp.Objective(Y, MASK, weights=weights, regularizers=[], fidelity=airnp.Squared("sum"))
    params = objective.init(0)
    error = objective.matrix(params) - Y
    np.testing.assert_allclose(objective.value_and_grad(params)[0], 0.5 * np.sum(MASK * weights * error**2))
    assert weights.tobytes() == before
    assert np.abs(fit(Y, MASK, weights=weights).X - fit(Y, MASK).X).max() > 1e-4


@pytest.mark.parametrize(
    ("bad", "dtype"), [(-1.0, None), (-1e-300, None), (np.nan, None), (np.inf, None), (1e60, "float32")]
)
def test_weights_that_are_negative_or_not_finite_in_the_dtype_are_refused(bad: float, dtype: Any) -> None:
    weights = np.ones(SHAPE)
    weights[2, 3] = bad
    with pytest.raises(ValueError, match="weights: expected finite numbers of at least 0"):
        fit(Y.astype(dtype), MASK, weights=weights)


@pytest.mark.parametrize("batch", [(2,), (2, 3)])
def test_a_stack_takes_masks_and_weights_for_all_or_for_each(batch: tuple[int, ...]) -> None:
    rng = np.random.default_rng(2)
    stack = rng.standard_normal((*batch, *SHAPE))
    shared = read(stack, MASK, np.where(MASK, 2.0, 1.0))
    assert shared.mask.shape == shared.weights.shape == stack.shape
    assert np.array_equal(shared.mask, np.broadcast_to(MASK, stack.shape))
    np.testing.assert_array_equal(shared.weights, np.broadcast_to(2.0 * MASK, stack.shape))
    each = rng.random(stack.shape) < 0.9
    np.testing.assert_array_equal(read(stack, each).mask, each)
    for wrong in ((9, 12), (1, *SHAPE), (5, *SHAPE), SHAPE[:1], (*batch, 1, 1)):
        for name in ("mask", "weights"):
            with pytest.raises(ValueError, match=rf"{name}: expected the shape of Y, \({batch[0]}, .*got"):
                read(stack, **{name: np.ones(wrong)})


# --- rows and columns without any entry ---


def test_empty_rows_and_columns_warn_once_and_are_filled() -> None:
    mask = MASK.copy()
    mask[[2, 5]] = False
    mask[:, 7] = False
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = fit(Y, mask, max_iter=300)
    assert [item.category for item in caught] == [airnp.EmptyLineWarning]
    assert "2 rows and 1 columns have no observed entry" in str(caught[0].message)
    assert caught[0].filename == __file__, "the warning must name the caller's line"
    filled = result.completed()
    assert np.isfinite(filled).all()
    observed = Y[mask]
    lines = np.concatenate([filled[[2, 5]].ravel(), filled[:, 7]])
    assert np.all((lines > observed.min()) & (lines < observed.max()))


def test_empty_lines_of_weights_and_stacks_and_objectives_warn_of_all() -> None:
    weights = np.ones((2, *SHAPE))
    weights[0, 3] = weights[1, :, 1] = weights[1, :, 4] = 0
    for call in (airnp.Objective, fit):
        with pytest.warns(airnp.EmptyLineWarning, match="1 rows and 2 columns") as caught:
            call(np.stack([Y, Y]), weights=weights)
        if call is airnp.Objective:
            assert caught[0].filename == __file__


@pytest.mark.parametrize("kind", [bool, np.uint8])
def test_a_mask_that_seems_inverted_is_asked_about(kind: Any) -> None:
    """A black logo in a picture: all that an inverted mask calls observed is black."""
    logo = np.zeros(SHAPE, dtype=bool)
    logo[2:6, 3:8] = True
    picture = np.where(logo, 0.0, Y)
    hint = "is the mask inverted"
    with pytest.warns(UserWarning, match=f"8 rows and 4 columns .* {hint}"):
        read(picture, logo.astype(kind))
    for data, mask in (
        (Y, logo),  # entries that differ
        (np.where(logo, 0.0, np.nan), None),  # no mask
        (np.zeros(SHAPE), ~np.eye(*SHAPE, dtype=bool) & (np.arange(9) > 0)),  # most is observed
    ):
        with pytest.warns(airnp.EmptyLineWarning) as caught:
            read(data, mask)
        assert hint not in str(caught[0].message)
    read(picture, ~logo)


def test_full_lines_do_not_warn() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(HOLES, stop="auto")
        fit(HOLES.astype(np.float16))
        fit(pd.DataFrame(HOLES).astype("Float32"))
        fit(np.ma.masked_invalid(HOLES))
    assert caught == []


# --- errors ---


def _with(place: tuple[int, ...], value: float, data: np.ndarray = Y) -> np.ndarray:
    changed = data.copy()
    changed[place] = value
    return changed


OBSERVED = tuple(int(k) for k in np.argwhere(MASK)[4])


class Map:
    """A user's map, given by two functions."""

    def __init__(self, forward: Any = lambda X: X, adjoint: Any = lambda Z: Z) -> None:
        self.forward, self.adjoint = forward, adjoint


NOT_ADJOINT = Map(adjoint=lambda Z: 0.5 * Z)
AFFINE = Map(forward=lambda X: X + 1)


class _Rectifier:
    """|X|, with the adjoint of its derivative, which passes the dot test."""

    def forward(self, X: Any) -> Any:
        self.sign = np.sign(X)
        return self.sign * X

    def adjoint(self, Z: Any) -> Any:
        return self.sign * Z if hasattr(self, "sign") else Z


BAD_DATA = {
    "no axes": (np.array(1.0), None, ValueError, r"Y: expected a matrix .* got shape \(\)"),
    "one axis": (np.ones(3), None, ValueError, r"Y: expected a matrix .* got shape \(3,\)"),
    "flat list": ([1.0, 2.0], None, ValueError, r"Y: expected a matrix .* got shape \(2,\)"),
    "a number": (3.0, None, TypeError, "Y: expected an array, a table or nested lists, got float"),
    "nothing": (None, None, TypeError, "Y: expected an array, a table or nested lists, got NoneType"),
    "text": ("abc", None, TypeError, "Y: expected an array, a table or nested lists, got str"),
    "a generator": ((row for row in Y), None, TypeError, "Y: expected an array.* got generator"),
    "a dict": ({"a": 1}, None, TypeError, "Y: expected an array.* got dict"),
    "a Series": (pd.Series([1.0]), None, TypeError, "Y: expected an array.* got Series"),
    "ragged lists": ([[1.0, 2.0], [3.0]], None, ValueError, "Y: expected nested lists of .* equal lengths"),
    "ragged masked lists": (
        [np.ma.ones(2), np.ma.ones(3)],
        None,
        ValueError,
        "Y: expected nested lists of .* equal lengths",
    ),
    "empty": (np.ones((0, 3)), None, ValueError, r"Y: expected at least one .* shape \(0, 3\)"),
    "empty columns": (np.ones((3, 0)), None, ValueError, r"Y: expected at least one .* shape \(3, 0\)"),
    "empty stack": (np.ones((0, 3, 3)), None, ValueError, r"Y: expected at least one .* shape \(0, "),
    "empty list": ([[]], None, ValueError, r"Y: expected at least one .* shape \(1, 0\)"),
    "empty table": (pd.DataFrame(), None, ValueError, r"Y: expected at least one .* shape \(0, 0\)"),
    "all NaN": (np.full(SHAPE, np.nan), None, ValueError, "Y: no entry is observed$"),
    "all None": ([[None, None]], None, ValueError, "Y: no entry is observed$"),
    "all NA": (pd.DataFrame({"a": [pd.NA]}, dtype="Int64"), None, ValueError, "Y: no entry is observed$"),
    "all masked": (np.ma.masked_all(SHAPE), None, ValueError, "Y: no entry is observed$"),
    "nothing stored": (sp.csr_array(SHAPE), None, ValueError, "Y: no entry is observed$"),
    "mask of nothing": (Y, np.zeros(SHAPE), ValueError, "Y: no entry is observed$"),
    "one matrix of a stack": (
        np.stack([Y, np.full(SHAPE, np.nan)]),
        None,
        ValueError,
        "Y: no entry is observed in at least one matrix of the stack",
    ),
    "infinite": (_with((3, 4), np.inf), None, ValueError, r"Y: 1 observed .* infinite, first at \(3, 4\)"),
    "minus infinite": (_with((3, 4), -np.inf), None, ValueError, r"Y: 1 observed .* first at \(3, 4\)"),
    "NaN observed": (_with(OBSERVED, np.nan), MASK, ValueError, r"Y: 1 observed entries are NaN"),
    "NaN stored": (sp.csr_array([[1.0, np.nan]]), None, ValueError, r"Y: 1 observed .* first at \(0, 1\)"),
    "NaN not masked": (np.ma.array([[1.0, np.nan]]), None, ValueError, r"Y: 1 observed .* first at \(0, 1\)"),
    "infinite in a stack": (
        np.stack([Y, _with((3, 4), np.inf)]),
        None,
        ValueError,
        r"Y: 1 observed .* first at \(1, 3, 4\)",
    ),
    "complex": (Y + 0j, MASK, TypeError, "Y: expected real numbers, .* complex128"),
    "complex lists": ([[1j]], None, TypeError, "Y: expected real numbers, .* complex128"),
    "complex sparse": (sp.csr_array(Y + 0j), None, TypeError, "Y: expected real numbers, .* complex128"),
    "object": (Y.astype(object), MASK, TypeError, "Y: expected real numbers, got dtype object"),
    "strings": ([["a", "b"]], None, TypeError, "Y: expected real numbers, got dtype <U1"),
    "objects in lists": ([[object(), 1]], None, TypeError, "Y: expected real numbers, got dtype object"),
    "dates": (np.zeros(SHAPE, "M8[s]"), None, TypeError, "Y: expected real numbers, got dtype datetime64"),
    "records": (np.zeros(SHAPE, "f8,f8"), None, TypeError, "Y: expected real numbers, got dtype"),
    "transposed mask": (Y, MASK.T, ValueError, r"mask: expected the shape of Y, \(12, 9\), got \(9, 12\)"),
    "flat mask": (Y, MASK.ravel(), ValueError, r"mask: expected the shape of Y, \(12, 9\), got \(108,\)"),
    "mask of a row": (Y, MASK[:1], ValueError, r"mask: expected the shape of Y, \(12, 9\), got \(1, 9\)"),
    "mask True": (Y, True, TypeError, "mask: expected an array, a table or nested lists, got bool"),
    "ragged mask": (Y, [[True], [True, False]], ValueError, "mask: expected nested lists"),
    "mask with 2": (Y, 2 * MASK, ValueError, r"mask: expected True/False, 1/0 .* found 2"),
    "mask with -1": (Y, -1.0 * MASK, ValueError, "mask: expected True/False, 1/0 .* found -1.0"),
    "mask with a half": (Y, 0.5 * MASK, ValueError, "mask: expected True/False, 1/0 .* found 0.5"),
    "mask with NaN": (Y, _with((0, 0), np.nan, 1.0 * MASK), ValueError, "mask: expected .* found nan"),
    "mask with NA": (
        Y,
        pd.DataFrame(MASK).astype("boolean").mask(np.eye(12, 9, dtype=bool)),
        ValueError,
        "mask: expected .* found nan",
    ),
    "sparse mask with 2": (Y, sp.csr_array(2.0 * MASK), ValueError, "mask: expected True/False, .* found 2"),
    "masked mask with 2": (Y, np.ma.array(2 * MASK), ValueError, "mask: expected True/False, .* found 2"),
    "complex mask": (Y, MASK + 0j, TypeError, "mask: expected booleans .* got dtype complex128"),
    "object mask": (Y, MASK.astype(object), TypeError, "mask: expected booleans .* got dtype object"),
    "text mask": (Y, MASK.astype(str), TypeError, "mask: expected booleans .* got dtype <U5"),
}


@pytest.mark.parametrize("call", [fit, airnp.Objective], ids=["fit", "Objective"])
@pytest.mark.parametrize("name", BAD_DATA)
def test_bad_data_and_masks_are_refused_by_name(name: str, call: Any) -> None:
    data, mask, error, message = BAD_DATA[name]
    with pytest.raises(error, match=message):
        call(data, mask)


BAD_OPTIONS = {
    "weights shape": ({"weights": np.ones((9, 12))}, ValueError, r"weights: expected the shape.*\(9, 12\)"),
    "weights dtype": ({"weights": np.ones(SHAPE) + 0j}, TypeError, "weights: expected real.*complex128"),
    "weights object": ({"weights": np.ones(SHAPE, object)}, TypeError, "weights: expected real.*object"),
    "weights number": ({"weights": 2.0}, TypeError, "weights: expected an array.* got float"),
    "weights zero": ({"weights": np.zeros(SHAPE)}, ValueError, "Y: no entry is observed"),
    "depth 0": ({"depth": 0}, ValueError, "depth: expected at least 1, got 0"),
    "depth -2": ({"depth": -2}, ValueError, "depth: expected at least 1, got -2"),
    "depth 2.5": ({"depth": 2.5}, TypeError, "depth: expected a whole number, got 2.5"),
    "depth True": ({"depth": True}, TypeError, "depth: expected a whole number, got True"),
    "rank 0": ({"rank": 0}, ValueError, "rank: expected at least 1, got 0"),
    "rank 10": ({"rank": 10}, ValueError, r"rank: expected at most min\(m, n\) = 9 .*12x9, got 10"),
    "rank 2.0": ({"rank": 2.0}, TypeError, "rank: expected a whole number, got 2.0"),
    "rank of one factor": ({"rank": 3, "depth": 1}, ValueError, r"rank: a single factor \(depth=1\)"),
    "fidelity": ({"fidelity": "mean"}, TypeError, "fidelity: expected .* got 'mean'"),
    "engine": ({"engine": "warp"}, ValueError, "engine: expected one of 'auto', 'reference'.*got 'warp'"),
    "one regularizer": ({"regularizers": airnp.TotalVariation(1)}, TypeError, "regularizers: .* a list"),
    "regularizer name": ({"regularizers": ["tv"]}, TypeError, "regularizers: expected objects .* got 'tv'"),
    "xp name": ({"xp": "numpy"}, TypeError, "xp: expected an array module .* got 'numpy'"),
    "xp module": ({"xp": pickle}, TypeError, "xp: expected an array module"),
    "graph size": (
        {"regularizers": [airnp.FixedLaplacian(np.ones((9, 9)))]},
        ValueError,
        "graph: expected 12 nodes, one for each of the rows, got 9",
    ),
    "blocks": (
        {"regularizers": [airnp.AdaptiveLaplacian(airnp.Blocks(5, 3))]},
        ValueError,
        "axis: blocks of 5x3 do not tile a matrix of 12x9",
    ),
    "axis without adjoint": (
        {"regularizers": [airnp.AdaptiveLaplacian(NOT_ADJOINT)]},
        ValueError,
        "axis: adjoint is not the adjoint of forward",
    ),
    "axis that is not linear": (
        {"regularizers": [airnp.AdaptiveLaplacian(_Rectifier())]},
        ValueError,
        "axis: forward is not linear",
    ),
    "axis that gives lists": (
        {"regularizers": [airnp.AdaptiveLaplacian(Map(lambda X: [[1.0]]))]},
        TypeError,
        "axis: forward must return an array of numpy, got list",
    ),
    "operator": ({"operator": "blur"}, TypeError, "operator: expected a scipy.* or an object .* got str"),
    "operator matrix": ({"operator": np.eye(108)}, TypeError, "operator: expected .* got ndarray"),
    "operator not adjoint": ({"operator": NOT_ADJOINT}, ValueError, "operator: adjoint is not the adjoint"),
    "operator affine": ({"operator": AFFINE}, ValueError, "operator: adjoint is not the adjoint"),
    "operator not linear": ({"operator": _Rectifier()}, ValueError, "operator: forward is not linear"),
    "operator of lists": (
        {"operator": Map(lambda X: [1])},
        TypeError,
        "operator: forward must return an array",
    ),
    "operator complex": (
        {"operator": aslinearoperator(np.eye(108) * 1j)},
        TypeError,
        "operator: forward must return real numbers, got dtype complex128",
    ),
    "operator without adjoint": (
        {"operator": LinearOperator((108, 108), matvec=lambda x: x, dtype=float)},
        ValueError,
        r"operator: expected one with an adjoint \(rmatvec\)",
    ),
    "operator of another size": (
        {"operator": airnp.Operator(aslinearoperator(np.ones((7, 108))), SHAPE)},
        ValueError,
        r"operator: its shape \(7, 108\) does not fit 108 measurements of a matrix of 12x9",
    ),
    "operator without shape": (
        {"operator": aslinearoperator(np.ones((108, 50)))},
        ValueError,
        r"shape: expected \(m, n\) with m·n = 50",
    ),
    **{
        f"shape {shape}": (
            {"operator": airnp.Operator(AFFINE, shape)},
            ValueError,
            f"shape: expected {message}",
        )
        for shape, message in {
            (1, 2, 3): "two whole",
            "34": "two whole",
            (12.5, 9): "two whole",
            (0, 9): "at least",
        }.items()
    },
}


@pytest.mark.parametrize("call", [fit, airnp.Objective], ids=["fit", "Objective"])
@pytest.mark.parametrize("name", BAD_OPTIONS)
def test_bad_options_of_the_objective_are_refused_by_name(name: str, call: Any) -> None:
    options, error, message = BAD_OPTIONS[name]
    with pytest.raises(error, match=message):
        call(Y, **options)


BAD_FITS = {
    "max_iter 0": ({"max_iter": 0}, ValueError, "max_iter: expected at least 1, got 0"),
    "max_iter float": ({"max_iter": 10.0}, TypeError, "max_iter: expected a whole number, got 10.0"),
    "record": ({"record": 0}, ValueError, "record: expected at least 1, got 0"),
    "stop name": ({"stop": "soon"}, ValueError, "stop: expected 'auto', None or a rule .* got 'soon'"),
    "stop number": ({"stop": 3}, TypeError, "stop: expected 'auto', None or a rule .* got"),
    "optimizer name": (
        {"optimizer": "sgd"},
        ValueError,
        "optimizer: expected one of 'adam', 'gradient_descent' .* got 'sgd'",
    ),
    "optimizer kind": ({"optimizer": 1}, TypeError, "optimizer: expected a name or an object .* got int"),
    "learning_rate 0": ({"learning_rate": 0.0}, ValueError, "learning_rate: expected a positive"),
    "learning_rate nan": ({"learning_rate": np.nan}, ValueError, "learning_rate: expected a positive number"),
    "learning_rate text": ({"learning_rate": "1"}, TypeError, "learning_rate: expected a number, got str"),
    "init name": ({"init": "zeros"}, ValueError, "init: expected one of 'gaussian', 'balanced'"),
    "init kind": ({"init": 3}, TypeError, "init: expected a name, an initializer .* got int"),
    "init count": ({"init": [np.ones((9, 9))]}, ValueError, "init: expected 3 factors, .* 5 arrays.* got 1"),
    "init shape": (
        {"init": [np.ones((9, 9)), np.ones((9, 9)), np.ones((9, 12))]},
        ValueError,
        r"init: array 2 must have shape \(12, 9\), got \(9, 12\)",
    ),
    "init NaN": (
        {"init": [np.full((9, 9), np.nan), np.ones((9, 9)), np.ones((12, 9))]},
        ValueError,
        "init: array 0 has NaN or infinite entries",
    ),
    "seed": ({"seed": 1.5}, TypeError, "seed: expected a whole number, got 1.5"),
    "seed -1": ({"seed": -1}, ValueError, "seed: expected at least 0, got -1"),
    "truth shape": (
        {"record": airnp.Record(truth=np.ones((9, 12)))},
        ValueError,
        r"truth: .* \(12, 9\), got \(9, 12\)",
    ),
    "callback": ({"callback": 3}, TypeError, "callback: expected a function .* got int"),
}


@pytest.mark.parametrize("name", BAD_FITS)
def test_bad_options_of_a_fit_are_refused_by_name(name: str) -> None:
    options, error, message = BAD_FITS[name]
    with pytest.raises(error, match=message):
        fit(Y, MASK, **options)


def _unsymmetric(graph: np.ndarray) -> np.ndarray:
    changed = graph.copy()
    changed[0, 5] += 1
    return changed


BAD_GRAPHS = {
    "not square": (np.ones((3, 4)), {}, ValueError, r"expected a square matrix, got shape \(3, 4\)"),
    "not square sparse": (
        sp.csr_array(np.ones((3, 4))),
        {},
        ValueError,
        r"expected a square matrix, got shape \(3, 4\)",
    ),
    "a vector": (np.ones(3), {}, ValueError, r"expected a square .*\(3,\)"),
    "asymmetric Laplacian": (
        _unsymmetric(LAPLACIAN),
        L,
        ValueError,
        "expected a symmetric laplacian, got an asymmetric one",
    ),
    "asymmetric": (_unsymmetric(GRAPH), {}, ValueError, "expected a symmetric matrix, got an asymmetric one"),
    "asymmetric sparse": (sp.csc_array(_unsymmetric(GRAPH)), {}, ValueError, "expected a symmetric"),
    "Laplacian rows": (LAPLACIAN + np.eye(12), L, ValueError, "the rows of a Laplacian sum to zero"),
    "Laplacian signs": (-LAPLACIAN, L, ValueError, "a Laplacian has no positive entries off its diagonal"),
    "negative": (-GRAPH, {"kind": "adjacency"}, ValueError, "an adjacency has no negative entries"),
    "NaN": (GRAPH * np.nan, {}, ValueError, "expected finite numbers"),
    "complex": (GRAPH * 1j, {}, TypeError, "expected real numbers, got dtype complex128"),
    "complex sparse": (
        sp.csr_array(GRAPH * 1j),
        {},
        TypeError,
        "expected real numbers, got dtype complex128",
    ),
    "object": (GRAPH.astype(object), {}, TypeError, ".*real.*object"),
    "name": ("knn", {}, TypeError, "expected an array .* got str"),
}


@pytest.mark.parametrize("name", BAD_GRAPHS)
def test_bad_graphs_are_refused_by_name(name: str) -> None:
    graph, options, error, message = BAD_GRAPHS[name]
    with pytest.raises(error, match=f"graph: {message}"):
        airnp.FixedLaplacian(graph, **options)


@pytest.mark.parametrize(
    ("make", "arguments", "error", "message"),
    [
        (
            airnp.FixedLaplacian,
            {"graph": GRAPH, "kind": "knn"},
            ValueError,
            "kind: expected one of 'auto', 'adjacency', 'laplacian', got 'knn'",
        ),
        (
            airnp.AdaptiveLaplacian,
            {"adjacency": "rows"},
            ValueError,
            "adjacency: expected one of 'row', 'global', 'product', got 'rows'",
        ),
        (airnp.AdaptiveLaplacian, {"weight": -1}, ValueError, "weight: expected a finite"),
        (
            airnp.DirichletEnergy,
            {"axis": "blocks"},
            ValueError,
            "axis: expected one of 'rows', 'columns', got 'blocks'",
        ),
        (airnp.TotalVariation, {"weight": np.nan}, ValueError, "weight: expected a finite number"),
        (airnp.TotalVariation, {"weight": "1"}, TypeError, "weight: expected a number, got str"),
        (
            airnp.TotalVariation,
            {"kind": "l2"},
            ValueError,
            "kind: expected one of 'l1', 'quadratic', got 'l2'",
        ),
        (airnp.TotalVariation, {"epsilon": 0}, ValueError, "epsilon: expected a positive"),
        (airnp.Blocks, {"height": 0, "width": 3}, ValueError, "height: .* whole number of at least 1, got 0"),
    ],
)
def test_bad_regularizers_are_refused_by_name(make: Any, arguments: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        make(**arguments)


@pytest.mark.parametrize("measured", [(12, 1), (1, 12), (3, 4), (11,)])
def test_measurements_of_another_shape_than_forward_gives_are_refused(measured: tuple[int, ...]) -> None:
    # This adjoint would broadcast (12, 1) to a wrong shape.
    sums = Map(lambda X: X.sum(axis=1), lambda Z: Z[:, None] * np.ones(SHAPE))
    for call in (fit, airnp.Objective):
        with pytest.raises(
            ValueError, match=r"operator: forward gives shape \(12,\), the measurements Y have"
        ):
            call(np.ones(measured), operator=airnp.Operator(sums, SHAPE))


def test_a_scipy_operator_measures_in_any_shape() -> None:
    matrix = np.random.default_rng(1).standard_normal((60, 108))
    operator, measured = aslinearoperator(matrix), matrix @ Y.ravel()
    flat = fit(measured, operator=airnp.Operator(operator, SHAPE)).X
    np.testing.assert_allclose(
        fit(measured.reshape(6, 10), operator=airnp.Operator(operator, SHAPE)).X, flat, atol=1e-10
    )
    square = aslinearoperator(np.diag(np.linspace(1, 2, 108)))
    assert fit(Y * np.linspace(1, 2, 108).reshape(SHAPE), operator=square).X.shape == SHAPE


def test_labels_of_measurements_are_not_those_of_the_matrix() -> None:
    measured = pd.DataFrame(Y.sum(axis=1)[:, None], index=list("abcdefghijkl"))
    sums = Map(lambda X: X.sum(axis=1, keepdims=True), lambda Z: np.repeat(Z, 9, axis=1))
    result = fit(measured, operator=sums, max_iter=2)
    assert type(result.X) is np.ndarray
    assert result.index is None


def test_an_adjoint_that_is_wrong_is_found_in_float32_at_any_size() -> None:
    """Random vectors of a million entries are nearly orthogonal, so ⟨x, z⟩ alone would not tell."""
    data = np.random.default_rng(0).random((1000, 1000), dtype=np.float32)
    with pytest.raises(ValueError, match="operator: adjoint is not the adjoint of forward"):
        airnp.Objective(data, operator=Map(adjoint=lambda Z: 0 * Z), regularizers=[], rank=1)


def test_a_float64_operator_keeps_a_float32_problem_in_float32() -> None:
    matrix = np.random.default_rng(1).standard_normal((60, 108))
    measured = (matrix @ Y.ravel()).astype(np.float32)
    objective = airnp.Objective(measured, operator=airnp.Operator(aslinearoperator(matrix), SHAPE))
    _, grads = objective.value_and_grad(objective.init(0))
    assert [grad.dtype for grad in grads] == [np.float32] * 5
