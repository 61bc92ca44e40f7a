"""Kinds of columns, scaling, and models of whole tables."""

from __future__ import annotations

import numpy as np
import pandas
import pytest

from airnp.data.normalization import ColumnScaling
from airnp.tables.imputation import fit_table
from airnp.tables.kinds import FrameCode, is_identifier, kinds_of

N = 40


def frame() -> pandas.DataFrame:
    rng = np.random.default_rng(0)
    return pandas.DataFrame(
        {
            "float": rng.standard_normal(N),
            "int": rng.integers(0, 9, N),
            "Int": pandas.array(rng.integers(0, 9, N), dtype="Int64"),
            "bool": rng.random(N) < 0.5,
            "boolean": pandas.array(rng.random(N) < 0.5, dtype="boolean"),
            "category": pandas.Categorical(rng.choice(list("abc"), N)),
            "ordered": pandas.Categorical(rng.choice(["lo", "hi"], N), categories=["lo", "hi"], ordered=True),
            "word": rng.choice(["x", "y"], N),
            "date": pandas.Timestamp("2024-05-01") + pandas.to_timedelta(rng.integers(0, 99, N), unit="D"),
            "span": pandas.to_timedelta(rng.integers(0, 99, N), unit="h"),
            "id": np.arange(5, 5 + N),
            "note": [f"note {k}" for k in range(N)],
        }
    )


def test_kinds():
    kinds = {column.name: column.kind for column in kinds_of(frame())}
    assert kinds == {
        "float": "number",
        "int": "number",
        "Int": "number",
        "bool": "boolean",
        "boolean": "boolean",
        "category": "category",
        "ordered": "ordered",
        "word": "category",
        "date": "date",
        "span": "date",
        "id": "identifier",
        "note": "identifier",
    }
    assert next(column for column in kinds_of(frame(), ["float"])).kind == "identifier"
    assert {column.kind for column in kinds_of(frame()[["id"]], [])} == {"number"}


def test_what_is_encoded_comes_back():
    table = frame()
    gappy = table.copy()
    for name in ("float", "Int", "boolean", "category", "ordered", "word", "date", "span"):
        gappy.loc[3:7, name] = None
    code = FrameCode(kinds_of(table))
    numbers, gaps = code.encode(table), code.encode(gappy)
    assert np.isfinite(numbers).all()
    assert np.isnan(gaps[3:8]).any()
    decoded = code.decode(gappy, numbers)
    pandas.testing.assert_frame_equal(decoded, table)
    pandas.testing.assert_series_equal(decoded.dtypes, table.dtypes)
    assert gappy["float"].isna().sum() == 5  # inputs are not modified


def test_categories_become_the_likeliest_and_dates_whole_days():
    table = frame()[["category", "date"]]
    code = FrameCode(kinds_of(table))
    numbers = code.encode(table)
    gappy = table.copy()
    gappy.loc[0] = [None, pandas.NaT]
    numbers[0] = [0.2, 0.7, 0.1, numbers[0, 3] + 3.6e12]  # an hour later
    decoded = code.decode(gappy, numbers)
    assert decoded.loc[0, "category"] == "b"
    assert decoded.loc[0, "date"] == table.loc[0, "date"]
    shares = code.probabilities(gappy, numbers)["category"]
    np.testing.assert_allclose(shares.loc[0], [0.2, 0.7, 0.1])
    np.testing.assert_allclose(shares.sum(axis=1), 1)


def test_unknown_categories_stay_and_are_not_seen():
    code = FrameCode(kinds_of(frame()[["word"]]))
    table = pandas.DataFrame({"word": ["x", "z", None]})
    with pytest.warns(UserWarning, match="column 'word' has 'z', which was not there in fit: it stays"):
        numbers = code.encode(table)
    np.testing.assert_array_equal(np.isnan(numbers[:, 0]), [False, True, True])
    assert list(code.decode(table, np.array([[1, 0], [0, 1], [0, 1]]))["word"]) == ["x", "z", "y"]


def test_dates_of_time_zones_periods_and_objects_of_numbers():
    days = pandas.Series(pandas.date_range("2024-03-01", periods=N, tz="Europe/Berlin"))
    table = pandas.DataFrame(
        {
            "local": days,
            "month": pandas.period_range("2001-01", periods=N, freq="M"),
            "number": pandas.Series([1.5, 2, 7.25, 2] * (N // 4), dtype=object),
            "small": np.linspace(0, 1, N).astype(np.float32),
        }
    )
    gappy = table.copy()
    gappy.iloc[3:7] = None
    code = FrameCode(kinds_of(table))
    assert [column.kind for column in code.columns] == ["date", "date", "number", "number"]
    decoded = code.decode(gappy, code.encode(table))
    pandas.testing.assert_frame_equal(decoded, table)
    assert list(code.numbers(gappy, code.encode(table)).columns) == list(table.columns)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.arange(30.0), True),
        (np.arange(30.0)[::-1] * 10 + 1000, True),
        (np.delete(np.arange(40.0), [3, 7, 20]), True),
        (np.arange(15.0), False),  # few
        (np.arange(30.0) / 7, False),
        (np.repeat(np.arange(15.0), 2), False),
        (np.random.default_rng(0).permutation(1000)[:30].astype(float), False),
        (np.full(30, 5.0), False),
    ],
)
def test_identifiers(values, expected):
    assert is_identifier(values) is expected


def test_scaling_ignores_outliers_and_constants():
    rng = np.random.default_rng(1)
    values = np.column_stack([rng.standard_normal(200), np.full(200, 7.0), rng.standard_normal(200)])
    spoilt = values.copy()
    spoilt[0, 0] = 1e12
    observed = np.ones(values.shape, bool)
    observed[:, 2] = False
    plain, robust = ColumnScaling.of(values, observed), ColumnScaling.of(spoilt, observed)
    assert abs(robust.scale[0] / plain.scale[0] - 1) < 0.2
    assert (robust.center[1], robust.scale[1]) == (7.0, 1.0)
    assert (robust.center[2], robust.scale[2]) == (0.0, 1.0)
    np.testing.assert_allclose(plain.undone(plain.standardised(values, observed))[:, :2], values[:, :2])


def table(scales=1.0):
    rng = np.random.default_rng(2)
    truth = rng.standard_normal((200, 2)) @ rng.standard_normal((2, 6)) + 0.2 * rng.standard_normal((200, 6))
    return truth * scales + 3 * scales, rng.random(truth.shape) < 0.75


def test_units_do_not_matter():
    plain, observed = table()
    scales = 10.0 ** np.arange(-6, 6, 2)
    wild, _ = table(scales)
    _, first = fit_table(plain, observed, seed=1)
    _, second = fit_table(wild, observed, seed=1)
    # Rounding may decide between two cuts of a tree that are equally good.
    np.testing.assert_allclose(second.X / scales, first.X, atol=0.05)
    assert np.median(np.abs(second.X / scales - first.X)) < 1e-8
    np.testing.assert_allclose(second.std / scales, first.std, atol=0.05)


def test_an_outlier_does_not_spoil_the_others():
    truth, observed = table()
    spoilt, seen = truth.copy(), observed.copy()
    spoilt[5, 2], seen[5, 2] = 1e9, True
    _, completion = fit_table(spoilt, seen, seed=1)
    errors = np.abs(completion.X - truth)[~seen]
    assert errors.mean() < 0.5 * np.abs(truth - truth.mean(axis=0))[~seen].mean()
    assert completion.completed()[5, 2] == 1e9


@pytest.mark.parametrize("method", ["auto", "em", "local"])
def test_intervals_cover(method):
    truth, observed = table(10.0 ** np.arange(6))
    model, completion = fit_table(truth, observed, method=method, seed=3)
    low, high = completion.interval(0.9)
    inside = ((low <= truth) & (truth <= high))[~observed]
    assert 0.82 < inside.mean() < 0.98
    np.testing.assert_array_equal(low[observed], truth[observed])
    assert completion.expected_error < 0.6
    with pytest.raises(ValueError, match="level: expected a number between 0 and 1, got 2"):
        completion.interval(2)
    assert model.blend is not None


def test_the_factor_model_sees_standardised_columns():
    scales = 10.0 ** np.arange(6)
    options = {"method": "air", "seed": 3, "max_iter": 300, "threads": 1}
    (plain, observed), (wild, _) = table(), table(scales)
    _, first = fit_table(plain, observed, **options)
    model, second = fit_table(wild, observed, **options)
    assert second.fit is not None
    np.testing.assert_allclose(second.X / scales, first.X, rtol=1e-4, atol=1e-4)
    low, high = second.interval(0.8)
    assert (low <= high).all()
    assert model.rows is not None
    assert np.isfinite(model.complete(wild[:3], observed[:3])[0]).all()
