"""Bounds and whole numbers: what callers may say, what it does to a matrix, and that all answers keep it."""

from __future__ import annotations

import re
from typing import Any

import array_api_compat as compat
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import airnp
from airnp._arrays import to_numpy
from airnp.data.bounds import ALL_WHOLE, Bounds
from tests.conftest import Backend
from tests.cupy_double.fixture import Double

RNG = np.random.default_rng(0)
TABLE = RNG.uniform(1, 5, (12, 4))
SEEN = RNG.random(TABLE.shape) < 0.7
SEEN[np.arange(12), np.arange(12) % 4] = True
STARS = np.rint(TABLE)
QUICK: dict[str, Any] = {"max_iter": 60, "stop": None, "seed": 0}


def limits(*said: Any, **more: Any) -> Bounds:
    found = Bounds.of(*said, **more)
    assert found is not None
    return found


# --- what callers say ---


@pytest.mark.parametrize(
    "said",
    [
        (),
        (None,),
        ((None, None),),
        ((-np.inf, np.inf),),
        (None, False),
        (([None] * 4, [np.nan] * 4),),
        (None, []),
    ],
)
def test_nothing_said_is_no_bounds(said: Any) -> None:
    assert Bounds.of(*said, columns=4) is None


@pytest.mark.parametrize(
    ("bounds", "low", "high"),
    [
        ((0, 1), 0, 1),
        ([None, 2.5], -np.inf, 2.5),
        ((np.float32(1), np.int64(3)), 1, 3),
        (([0, None, np.nan, -np.inf], 9), [0, -np.inf, -np.inf, -np.inf], 9),
        ((np.arange(4), np.arange(4) + 1.0), [0, 1, 2, 3], [1, 2, 3, 4]),
    ],
)
def test_sides_may_be_numbers_or_one_for_each_column(bounds: Any, low: Any, high: Any) -> None:
    found = limits(bounds, columns=4)
    np.testing.assert_array_equal(found.low, np.broadcast_to(low, found.low.shape))
    np.testing.assert_array_equal(found.high, np.broadcast_to(high, found.high.shape))


def test_sides_may_be_arrays_of_other_libraries(backend: Backend) -> None:
    side = backend.array(np.array([0.0, 1.0, 2.0]))
    np.testing.assert_array_equal(limits((side, None), columns=3).low, [0, 1, 2])


@pytest.mark.parametrize(
    ("integers", "whole"),
    [
        (True, [True, True, True]),
        ([False, True, False], [False, True, False]),
        (np.array([True, False, False]), [True, False, False]),
        ([0, -1], [True, False, True]),
        (np.array([1]), [False, True, False]),
        ((2,), [False, False, True]),
    ],
)
def test_integers_are_all_columns_or_some(integers: Any, whole: list[bool]) -> None:
    np.testing.assert_array_equal(np.broadcast_to(limits(None, integers, columns=3).whole, 3), whole)


def test_labels_name_columns() -> None:
    found = limits({"b": (0, 1), "a": (None, 5)}, ["c"], columns=3, labels=["a", "b", "c"])
    np.testing.assert_array_equal(found.low, [-np.inf, 0, -np.inf])
    np.testing.assert_array_equal(found.high, [5, 1, np.inf])
    np.testing.assert_array_equal(found.whole, [False, False, True])


@pytest.mark.parametrize(
    ("said", "kind", "message"),
    [
        ({"bounds": 3}, TypeError, r"bounds: expected \(low, high\), got 3"),
        ({"bounds": (1, 2, 3)}, TypeError, r"bounds: expected \(low, high\)"),
        ({"bounds": ("a", 1)}, TypeError, "bounds: expected a number, got 'a'"),
        ({"bounds": (True, 1)}, TypeError, "bounds: expected a number, got True"),
        ({"bounds": (["a"] * 4, 1)}, TypeError, "bounds: expected numbers, or None for no bound"),
        ({"bounds": (np.nan, 1)}, ValueError, "bounds: expected a number, or None for no bound, got nan"),
        ({"bounds": (np.inf, None)}, ValueError, "bounds: expected a number, or None for no bound, got inf"),
        ({"bounds": (2, 1)}, ValueError, r"bounds: expected low <= high, got \(2, 1\)$"),
        (
            {"bounds": ([0, 3, 0, 0], 2)},
            ValueError,
            r"bounds: expected low <= high, got \(3, 2\) in column 1",
        ),
        ({"bounds": ([0, 1], 2)}, ValueError, r"bounds: expected 4 numbers, one for each column, got \(2,\)"),
        ({"bounds": {"a": (0, 1)}}, TypeError, "bounds: .* a mapping needs columns with labels"),
        (
            {"bounds": airnp.Integers(1.2, 1.8, [2])},
            ValueError,
            r"bounds: expected a whole number between them for integers, got \(1.2, 1.8\) in column 2",
        ),
        *(
            ({"bounds": airnp.Integers(columns=columns)}, kind, f"integers: expected {message}")
            for columns, kind, message in [
                ("all", TypeError, "True, False, 4 booleans"),
                (2, TypeError, "True, False"),
                ([True, False], ValueError, "4 booleans, .* got 2"),
                ([4], ValueError, "columns 0 to 3, got 4"),
                ([-5], ValueError, "at least -4, got -5"),
                (["a"], TypeError, "a whole number, got 'a'"),
            ]
        ),
        ({"bounds": (1e300, None), "dtype": "float32"}, ValueError, "bounds: .* beyond the range of float32"),
    ],
)
def test_what_cannot_be_meant_is_refused(said: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match="^" + message):
        airnp.fit(STARS, SEEN, **said)


@pytest.mark.parametrize("bounds", [{"x": (0, 1)}, airnp.Integers(columns=["x"])])
def test_unknown_labels_are_refused(bounds: Any) -> None:
    pandas = pytest.importorskip("pandas")
    with pytest.raises(ValueError, match=r"^(bounds|integers): .* none called 'x'"):
        airnp.fit(pandas.DataFrame(STARS, columns=list("abcd")), SEEN, bounds=bounds)


def test_a_series_in_another_order_is_refused() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(STARS, columns=list("abcd"))
    with pytest.raises(ValueError, match=r"^bounds: expected a series with the labels of the columns"):
        airnp.fit(frame, SEEN, bounds=(frame.min()[::-1], None))
    assert airnp.fit(frame, SEEN, bounds=(frame.min(), frame.max()), **QUICK).X.ge(frame.min()).all(axis=None)


def test_observed_entries_must_keep_the_bounds() -> None:
    data = np.where(SEEN, STARS, np.nan)
    data[2, 1], data[5, 3] = 7, 8
    with pytest.raises(
        ValueError, match=r"^bounds: 2 observed entries, such as 7.0 at \(2, 1\), are outside of \(1, 5\)"
    ):
        airnp.fit(data, bounds=(1, 5))
    hidden = ~np.isnan(data) & (data < 6)
    assert airnp.fit(data, hidden, bounds=(1, 5), **QUICK).X.max() <= 5  # hidden ones need not


def test_observed_entries_of_integer_columns_must_be_whole() -> None:
    data = STARS.copy()
    data[4, 2] = 2.5
    with pytest.raises(
        ValueError, match=r"^integers: 1 observed entries, such as 2.5 at \(4, 2\), are not whole"
    ):
        airnp.fit(data, bounds=airnp.Integers(columns=[2]))
    airnp.fit(data, bounds=airnp.Integers(columns=[0, 1]), **QUICK)


# --- what it does to a matrix ---


@given(
    arrays(np.float64, (3, 2), elements=st.floats(-1e6, 1e6)),
    st.tuples(st.floats(-50, 50), st.floats(0, 20)),
    st.sampled_from(["float16", "float32", "float64"]),
    st.sampled_from([False, True]),
)
def test_what_is_put_on_is_the_nearest_within(matrix: Any, about: Any, kind: str, whole: bool) -> None:
    low, width = about
    high = low + width
    if whole and np.ceil(low) > np.floor(high):
        high = low + 1
    with np.errstate(over="ignore"):
        given_matrix = matrix.astype(kind)
    found = limits((low, high), whole).put_on(given_matrix)
    assert found.dtype == kind
    exact = found.astype(np.float64)
    nothing_between = np.nextafter(np.array(low, kind), np.array(np.inf, kind)) > high
    if not nothing_between:
        assert (exact >= low).all()
        assert (exact <= high).all()
    if whole:
        np.testing.assert_array_equal(exact, np.rint(exact))
        assert not np.signbit(exact[exact == 0]).any()
    else:
        before = given_matrix.astype(np.float64)
        inside = (before >= low) & (before <= high)
        np.testing.assert_array_equal(found[inside], given_matrix[inside])
    again = limits((low, high), whole).put_on(found)
    np.testing.assert_array_equal(again, found)


def test_zero_has_no_sign() -> None:
    found = limits((-0.5, None), True).put_on(np.array([[-3.0, -0.4]]))
    np.testing.assert_array_equal(np.signbit(found), [[False, False]])


def test_where_a_type_has_no_number_between_the_nearest_is_taken() -> None:
    found = limits((0.1, 0.1)).put_on(np.zeros((2, 2), np.float32))
    np.testing.assert_array_equal(found, np.float32(0.1))


def test_bounds_at_the_end_of_a_type() -> None:
    found = limits((-1e300, 1e300)).put_on(np.array([np.inf, -np.inf, 3], np.float32))
    np.testing.assert_array_equal(
        found, np.array([1, -1, 0], np.float32) * np.finfo(np.float32).max + [0, 0, 3]
    )


def test_all_namespaces_do_the_same(backend: Backend) -> None:
    matrix = np.array([[[-0.6, 2.5, 7.0], [1.5, 3.3, 0.2]]], np.float32)
    bounds = limits(([0.5, None, 0.3], [9, 3, np.inf]), [0], columns=3)
    found = bounds.put_on(backend.array(matrix))
    assert compat.array_namespace(found) is compat.array_namespace(backend.array(matrix))
    assert str(compat.device(found)) == str(compat.device(backend.array(matrix)))
    np.testing.assert_array_equal(
        to_numpy(found), np.array([[[1, 2.5, 7], [2, 3, np.float32(0.3)]]], np.float32)
    )
    assert to_numpy(found).dtype == np.float32


def test_what_is_missing_is_neither_outside_nor_fractional() -> None:
    values = np.array([[np.nan, 0.5, 9.0]])
    np.testing.assert_array_equal(limits((1, 5)).outside(values), [[False, True, True]])
    np.testing.assert_array_equal(ALL_WHOLE.fractional(values), [[False, True, False]])


# --- every answer keeps to it ---


def assert_kept(result: Any, low: Any, high: Any, whole: Any = False) -> None:
    for matrix in (result.matrix, result.X, result.completed()):
        exact = np.asarray(to_numpy(matrix), dtype=np.float64)
        assert (exact >= low).all()
        assert (exact <= high).all()
        rounded = exact[..., np.broadcast_to(whole, exact.shape[-1])]
        np.testing.assert_array_equal(rounded, np.rint(rounded))


def test_fits_in_all_namespaces_keep_their_bounds(backend: Backend) -> None:
    high = float(TABLE[SEEN].max())
    low = [float(TABLE[:, j][SEEN[:, j]].min()) for j in range(4)]
    result = airnp.fit(
        backend.array(TABLE), backend.array(SEEN), bounds=(low, high), dtype="float32", **QUICK
    )
    assert_kept(result, low, high)
    assert str(result.matrix.dtype).endswith("float32")


def test_cupy_keeps_its_bounds(cupy_double: Double) -> None:
    bounds = airnp.Integers(0.5, 5.2, [1, 3])
    result = airnp.fit(STARS, SEEN, xp=cupy_double.cupy, engine="reference", bounds=bounds, **QUICK)
    assert compat.is_cupy_array(result.matrix)
    assert_kept(result, 0.5, 5.2, [False, True, False, True])


def test_a_stack_keeps_them(tmp_path: Any) -> None:
    stack = np.stack([STARS, 6 - STARS])
    file = tmp_path / "result.npz"
    bounds = airnp.Integers([1, 1, 0, None], 5)
    result = airnp.fit(stack, SEEN, bounds=bounds, checkpoint=file, **QUICK)
    assert result.matrix.shape == stack.shape
    assert_kept(result, [1, 1, 0, -np.inf], 5, True)
    assert_kept(airnp.load(file), [1, 1, 0, -np.inf], 5, True)


def test_a_divergence_carries_a_result_within_bounds() -> None:
    with pytest.raises(airnp.DivergenceError) as caught:
        airnp.fit(
            STARS, SEEN, bounds=airnp.Integers(1, 5), optimizer="gradient_descent", learning_rate=1e6, **QUICK
        )
    assert_kept(caught.value.result, 1, 5, True)


def test_matrices_behind_an_operator_keep_them() -> None:
    class Doubling:
        def forward(self, X: Any) -> Any:
            return 2 * X

        adjoint = forward

    free, bound, rounded = (
        airnp.fit(2 * TABLE, operator=airnp.Operator(Doubling(), TABLE.shape), bounds=bounds, **QUICK).X
        for bounds in (None, (2, [3, 4, 4, 9]), airnp.Integers())
    )
    np.testing.assert_array_equal(bound, np.clip(free, 2, [3, 4, 4, 9]))
    np.testing.assert_array_equal(rounded, np.rint(free))


def test_tables_with_labels_keep_them() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(np.where(SEEN, STARS, np.nan), columns=list("abcd"))
    bounds = airnp.Integers({"a": (1, 5), "c": (0.5, None)}, columns=["c"])
    result = airnp.fit(frame, bounds=bounds, **QUICK)
    assert result.X["a"].between(1, 5).all()
    np.testing.assert_array_equal(result.X["c"], np.rint(result.X["c"]))
    assert list(result.completed().columns) == list("abcd")


def test_nothing_else_changes() -> None:
    free = airnp.fit(STARS, SEEN, **QUICK)
    bound = airnp.fit(STARS, SEEN, bounds=(1, 5), **QUICK)
    np.testing.assert_array_equal(bound.X, np.clip(free.X, 1, 5))
    for ours, theirs in zip(bound.factors, free.factors, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(bound.completed()[SEEN], STARS[SEEN])


# --- the scikit-learn imputer ---


def test_an_imputer_completes_within_bounds() -> None:
    imputers = pytest.importorskip("airnp.sklearn")
    table = np.where(SEEN, STARS, np.nan)
    said: dict[str, Any] = {"bounds": (1, 5), "integers": [0, 1]}
    imputer = imputers.AIRImputer(method="air", max_iter=60, random_state=0, keep_observed=False, **said)
    new = np.array([[np.nan, 1.0, 5.0, np.nan], [5.0, np.nan, 5.0, 5.0]])
    for answer in (imputer.fit_transform(table), imputer.transform(new), imputer.result_.X):
        assert answer.min() >= 1
        assert answer.max() <= 5
        np.testing.assert_array_equal(answer[:, :2], np.rint(answer[:, :2]))
    with pytest.raises(ValueError, match=r"^bounds: 1 observed entries, such as 6.0 at \(0, 1\)"):
        imputer.transform(new + np.array([[0, 5, 0, 0], [0, 0, 0, 0]]))


def test_an_imputer_fills_empty_columns_within_bounds() -> None:
    imputers = pytest.importorskip("airnp.sklearn")
    table = np.where(SEEN, STARS, np.nan)
    table[:, 2] = np.nan
    bounds = ([1, 1, 2, 1], [5, 5, 4, 5])
    imputer = imputers.AIRImputer(
        method="air", max_iter=60, random_state=0, keep_empty_features=True, bounds=bounds
    )
    np.testing.assert_array_equal(imputer.fit_transform(table)[:, 2], 2)


def test_an_imputer_knows_columns_by_name() -> None:
    pandas, imputers = pytest.importorskip("pandas"), pytest.importorskip("airnp.sklearn")
    frame = pandas.DataFrame(np.where(SEEN, STARS, np.nan), columns=list("abcd"))
    imputer = imputers.AIRImputer(
        method="air", max_iter=60, random_state=0, bounds={"b": (1, 5)}, integers=["d"]
    )
    answer = imputer.fit_transform(frame)
    assert answer[:, 1].min() >= 1
    np.testing.assert_array_equal(answer[:, 3], np.rint(answer[:, 3]))
    with pytest.raises(
        ValueError, match=re.escape("bounds: expected labels of columns, there is none called 'z'")
    ):
        imputer.set_params(bounds={"z": (0, 1)}).fit(frame)
