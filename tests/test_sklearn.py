"""The scikit-learn estimator: conventions, containers, errors, and how well it completes."""

from __future__ import annotations

import importlib
import pickle
import sys
from typing import Any

import numpy as np
import pandas
import pytest
import scipy.sparse
import sklearn
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils.estimator_checks import parametrize_with_checks

import airnp
from airnp import AdaptiveLaplacian
from airnp.data.normalization import ColumnScaling
from airnp.sklearn import AIRImputer

RNG = np.random.default_rng(3)
RIGHT = RNG.standard_normal((2, 8))
TRUTH = RNG.standard_normal((60, 2)) @ RIGHT + 5
SEEN = RNG.random(TRUTH.shape) < 0.75
TABLE = np.where(SEEN, TRUTH, np.nan)
TABLE.flags.writeable = False
NEW = RNG.standard_normal((20, 2)) @ RIGHT + 5
NEW_SEEN = RNG.random(NEW.shape) < 0.6
NEW_ROWS = np.where(NEW_SEEN, NEW, np.nan)
NEW_ROWS.flags.writeable = False
NAMES = list("abcdefgh")


def imputer(**options: Any) -> AIRImputer:
    return AIRImputer(**{"method": "air", "max_iter": 50, "random_state": 0, **options})


def frame(table: np.ndarray) -> pandas.DataFrame:
    return pandas.DataFrame(table, columns=NAMES, index=[f"row {i}" for i in range(len(table))])


def standardised(table: np.ndarray) -> tuple[ColumnScaling, np.ndarray]:
    """Return the scaling of a table, and what the fit sees: NaN in gaps."""
    observed = ~np.isnan(table)
    scaling = ColumnScaling.of(table, observed)
    return scaling, np.where(observed, scaling.standardised(table, observed), np.nan)


# No check is declared as an expected failure.
@parametrize_with_checks([imputer(max_iter=20), AIRImputer(random_state=0), AIRImputer(method="em")])
def test_conventions_of_scikit_learn(estimator, check):
    check(estimator)


# --- what it completes ---


def test_fit_transform_is_the_fit_itself():
    scaling, inside = standardised(TABLE)
    expected = airnp.fit(inside, max_iter=50, seed=0)
    learner = imputer()
    completed = np.where(SEEN, TABLE, scaling.undone(expected.X))
    np.testing.assert_array_equal(learner.fit_transform(TABLE), completed)
    assert learner.n_iter_ == expected.n_iter
    freed = imputer(keep_observed=False).fit_transform(TABLE)
    np.testing.assert_array_equal(freed, scaling.undone(expected.X))
    assert not np.array_equal(freed, completed)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("depth", 2),
        ("rank", 2),
        ("learning_rate", 1e-2),
        ("stop", None),
        ("regularizers", []),
        ("max_iter", 9),
    ],
)
def test_options_reach_the_fit(option, value):
    usual = {"max_iter": 50, "seed": 0, "engine": airnp.CPU(threads=1)}
    scaling, inside = standardised(TABLE)
    expected = airnp.fit(inside, **{**usual, option: value})
    found = imputer(threads=1, **{option: value}).fit(TABLE).result_.X
    np.testing.assert_array_equal(found, scaling.undone(expected.X))
    assert not np.array_equal(expected.X, airnp.fit(inside, **usual).X)
    with pytest.raises(ValueError, match=f"{option}: only for method='air', got"):
        AIRImputer(**{option: value}).fit(TABLE)


def test_new_rows_are_completed_without_another_fit(monkeypatch):
    learner = imputer(max_iter=10_000, regularizers=[])
    fitted = learner.fit_transform(TABLE)
    monkeypatch.setattr("airnp.tables.imputation.fit", None)
    completed = learner.transform(NEW_ROWS)
    np.testing.assert_array_equal(completed[NEW_SEEN], NEW[NEW_SEEN])
    means = np.nanmean(TABLE, axis=0)
    assert np.abs(completed - NEW)[~NEW_SEEN].mean() < 0.1 * np.abs(means - NEW)[~NEW_SEEN].mean()
    np.testing.assert_allclose(completed[3:4], learner.transform(NEW_ROWS[3:4]), rtol=1e-9)
    # Rows that it was fitted to come out nearly as the fit completes them.
    apart = np.abs(learner.transform(TABLE) - fitted)[~SEEN].mean()
    assert 0 < apart < 0.05 * np.abs(means - TRUTH)[~SEEN].mean()


def test_an_empty_row_becomes_the_mean_and_a_full_one_stays():
    learner = imputer()
    mean = learner.fit_transform(TABLE).mean(axis=0)
    empty, full = learner.transform(np.stack([np.full(8, np.nan), NEW[0]]))
    np.testing.assert_allclose(empty, mean)
    np.testing.assert_array_equal(full, NEW[0])


def test_without_keeping_them_observed_entries_are_estimated():
    kept, freed = (imputer(keep_observed=kept).fit(TABLE).transform(NEW_ROWS) for kept in (True, False))
    np.testing.assert_allclose(freed[~NEW_SEEN], kept[~NEW_SEEN])
    assert not np.isclose(freed[NEW_SEEN], NEW[NEW_SEEN]).all()


def test_an_empty_training_row_warns_as_the_fit_does():
    table = TABLE.copy()
    table[4] = np.nan
    with pytest.warns(airnp.EmptyLineWarning, match="1 rows and 0 columns"):
        completed = imputer().fit_transform(table)
    assert np.isfinite(completed).all()


def test_missing_values_may_be_a_number():
    expected = imputer().fit(TABLE)
    learner = imputer(missing_values=-1).fit(np.where(SEEN, TRUTH, -1))
    np.testing.assert_array_equal(
        learner.transform(np.where(NEW_SEEN, NEW, -1)), expected.transform(NEW_ROWS)
    )
    with pytest.raises(ValueError, match="contains NaN"):
        learner.transform(NEW_ROWS)
    assert not learner.__sklearn_tags__().input_tags.allow_nan
    assert expected.__sklearn_tags__().input_tags.allow_nan


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_dtype_of_the_rows_is_kept(dtype):
    learner = imputer(keep_empty_features=True, add_indicator=True)
    assert learner.fit_transform(TABLE.astype(dtype)).dtype == dtype
    assert learner.transform(NEW_ROWS.astype(dtype)).dtype == dtype
    assert learner.result_.X.dtype == dtype
    assert dtype in learner.__sklearn_tags__().transformer_tags.preserves_dtype


def test_random_states():
    draws = [imputer(random_state=np.random.RandomState(5)).fit(TABLE).result_.seed for _ in range(2)]
    assert draws[0] == draws[1] == np.random.RandomState(5).randint(2**31)
    assert imputer(random_state=np.int64(7)).fit(TABLE).result_.seed == 7
    assert len({imputer(random_state=None).fit(TABLE).result_.seed for _ in range(3)}) == 3


# --- columns without entries, and the indicator ---


def emptied(table: np.ndarray) -> np.ndarray:
    """Column c without any entry."""
    return np.where(np.arange(8) == 2, np.nan, table)


def test_columns_without_entries_are_left_out():
    learner = imputer()
    with pytest.warns(airnp.EmptyLineWarning, match="columns c have no observed entry and are left out"):
        completed = learner.fit_transform(frame(emptied(TABLE)))
    others = np.arange(8) != 2
    np.testing.assert_array_equal(completed, imputer().fit_transform(TABLE[:, others]))
    np.testing.assert_array_equal(
        learner.transform(frame(NEW_ROWS)), imputer().fit(TABLE[:, others]).transform(NEW_ROWS[:, others])
    )
    assert list(learner.get_feature_names_out()) == list("abdefgh")


def test_columns_without_entries_may_stay_with_their_gaps_as_zero():
    learner = imputer(keep_empty_features=True)
    completed = learner.fit_transform(emptied(TABLE))
    np.testing.assert_array_equal(completed[:, 2], 0)
    np.testing.assert_array_equal(learner.transform(NEW_ROWS)[:, 2], np.nan_to_num(NEW_ROWS[:, 2]))
    np.testing.assert_array_equal(
        np.delete(completed, 2, axis=1), imputer().fit_transform(np.delete(TABLE, 2, axis=1))
    )
    assert list(learner.get_feature_names_out()) == [f"x{i}" for i in range(8)]


@pytest.mark.parametrize("container", ["default", "pandas"])
def test_the_indicator_tells_what_was_missing(container):
    table = np.where(np.arange(8) == 5, TRUTH, TABLE)  # a column without gaps has no indicator
    learner = imputer(add_indicator=True)
    with sklearn.config_context(transform_output=container):
        trained, completed = learner.fit_transform(table), learner.transform(NEW_ROWS)
    gappy = np.arange(8) != 5
    np.testing.assert_array_equal(np.asarray(trained)[:, 8:], ~SEEN[:, gappy])
    np.testing.assert_array_equal(np.asarray(completed)[:, 8:], ~NEW_SEEN[:, gappy])
    expected = [f"x{i}" for i in range(8)] + [f"missingindicator_x{i}" for i in range(8) if i != 5]
    assert list(learner.get_feature_names_out()) == expected
    assert container == "default" or list(completed.columns) == expected


# --- tables, pipelines, searches, pickles ---


def test_tables_in_and_tables_out():
    learner = imputer().set_output(transform="pandas")
    trained, completed = learner.fit_transform(frame(TABLE)), learner.transform(frame(NEW_ROWS))
    for table, source in ((trained, TABLE), (completed, NEW_ROWS)):
        assert list(table.columns) == NAMES
        assert list(table.index) == list(frame(source).index)
    np.testing.assert_array_equal(trained, imputer().fit_transform(TABLE))
    assert list(learner.feature_names_in_) == NAMES
    assert learner.n_features_in_ == 8
    with pytest.raises(ValueError, match="input_features is not equal to feature_names_in_"):
        learner.get_feature_names_out(NAMES[::-1])


def test_nullable_columns_are_read():
    table = frame(TABLE).astype("Float64")
    assert table.isna().sum().sum() == (~SEEN).sum()
    np.testing.assert_array_equal(imputer().fit_transform(table), imputer().fit_transform(TABLE))


def test_a_search_in_a_pipeline_chooses_settings():
    target = TRUTH @ np.arange(8.0)
    pipeline = make_pipeline(imputer(), Ridge())
    grid = {
        "airimputer__regularizers": [None, [], [AdaptiveLaplacian("columns")]],
        "airimputer__max_iter": [1, 60],
    }
    search = GridSearchCV(pipeline, grid, cv=3, error_score="raise").fit(TABLE, target)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert len(set(search.cv_results_["mean_test_score"])) == 6
    assert search.predict(NEW_ROWS).shape == (20,)


def test_a_clone_has_the_settings_and_nothing_learned():
    learner = imputer(depth=2, regularizers=[AdaptiveLaplacian("rows", weight=0.5)]).fit(TABLE)
    copy = clone(learner)
    assert copy.depth == 2
    assert repr(copy.regularizers) == repr(learner.regularizers)
    with pytest.raises(NotFittedError):
        copy.transform(NEW_ROWS)
    with pytest.raises(NotFittedError):
        copy.get_feature_names_out()
    np.testing.assert_array_equal(copy.fit(TABLE).transform(NEW_ROWS), learner.transform(NEW_ROWS))


def test_a_pickle_completes_the_same():
    learner = imputer(add_indicator=True).fit(frame(TABLE))
    copy = pickle.loads(pickle.dumps(learner))
    np.testing.assert_array_equal(copy.transform(frame(NEW_ROWS)), learner.transform(frame(NEW_ROWS)))


# --- refusals ---


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"method": "best"}, ValueError, "method: expected one of 'auto', 'em', 'local', 'air', got 'best'"),
        ({"sample_posterior": True}, ValueError, "sample_posterior: expected False with method='air'"),
        ({"sample_posterior": 1}, TypeError, "sample_posterior: expected True or False"),
        ({"n_imputations": 0}, ValueError, "n_imputations: expected at least 1"),
        ({"identifiers": "x"}, TypeError, "identifiers: expected 'auto' or a list of columns"),
        ({"max_iter": 0}, ValueError, "max_iter: expected at least 1"),
        ({"max_iter": 2.5}, TypeError, "max_iter: expected a whole number"),
        ({"depth": 0}, ValueError, "depth: expected at least 1"),
        ({"rank": 100}, ValueError, "rank"),
        ({"stop": "soon"}, ValueError, "stop: expected 'auto'"),
        ({"regularizers": "air"}, TypeError, "regularizers: expected None or a list"),
        ({"random_state": -1}, ValueError, "random_state: expected at least 0"),
        ({"random_state": "x"}, ValueError, "cannot be used to seed"),
        ({"threads": 0}, ValueError, "threads: expected at least 1"),
        ({"missing_values": "?"}, TypeError, "missing_values: expected a number or nan"),
        ({"missing_values": None}, TypeError, "missing_values: expected a number or nan"),
        ({"keep_observed": "no"}, TypeError, "keep_observed: expected True or False"),
        ({"keep_empty_features": 1}, TypeError, "keep_empty_features: expected True or False"),
        ({"add_indicator": None}, TypeError, "add_indicator: expected True or False"),
    ],
    ids=str,
)
def test_options_that_cannot_be_meant(options, error, message):
    learner = imputer(**options)  # nothing is checked before fit
    with pytest.raises(error, match=message):
        learner.fit(TABLE)


@pytest.mark.parametrize(
    ("table", "error", "message"),
    [
        ([["a", "b"], ["c", "d"]], ValueError, "could not convert string to float"),
        (pandas.DataFrame({"a": [1.0, 2.0], "b": [1 + 1j, 2]}), ValueError, "Complex data not supported"),
        (pandas.DataFrame({"a": [1.0, np.inf], "b": ["x", "x"]}), ValueError, "X: contains infinity"),
        (TRUTH + 1j, ValueError, "Complex data not supported"),
        (np.where(SEEN, TRUTH, np.inf), ValueError, "contains infinity"),
        (scipy.sparse.csr_array(TRUTH), TypeError, "Sparse data was passed"),
        (TRUTH[0], ValueError, "Expected 2D array, got 1D array"),
        (np.full((3, 4), np.nan), ValueError, "X: no entry is observed"),
    ],
    ids=["lists", "complex table", "infinite table", "complex", "infinite", "sparse", "one row", "nothing"],
)
def test_tables_that_cannot_be_completed(table, error, message):
    with pytest.raises(error, match=message):
        imputer().fit(table)


def test_rows_that_do_not_fit_the_training_table():
    learner = imputer().fit(frame(TABLE))
    with pytest.raises(ValueError, match="X has 5 features, but AIRImputer is expecting 8"):
        imputer().fit(TABLE).transform(NEW_ROWS[:, :5])
    with pytest.raises(ValueError, match="feature names should match"):
        learner.transform(frame(NEW_ROWS)[NAMES[::-1]])


def test_without_scikit_learn_the_error_names_the_extra(monkeypatch):
    monkeypatch.delitem(sys.modules, "airnp.sklearn")
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    with pytest.raises(ImportError, match=r'pip install "airnp\[sklearn\]"'):
        importlib.import_module("airnp.sklearn")


# --- the blend: standardised columns of any kind ---


def blended(**options: Any) -> AIRImputer:
    return AIRImputer(**{"random_state": 0, **options})


def test_the_blend_fills_gaps_and_new_rows_alike():
    learner = blended()
    fitted = learner.fit_transform(TABLE)
    np.testing.assert_array_equal(fitted, learner.transform(TABLE))
    np.testing.assert_array_equal(fitted[SEEN], TRUTH[SEEN])
    means = np.nanmean(TABLE, axis=0)
    assert np.abs(fitted - TRUTH)[~SEEN].mean() < 0.2 * np.abs(means - TRUTH)[~SEEN].mean()
    completed = learner.transform(NEW_ROWS)
    assert np.abs(completed - NEW)[~NEW_SEEN].mean() < 0.3 * np.abs(means - NEW)[~NEW_SEEN].mean()
    np.testing.assert_allclose(completed[3:4], learner.transform(NEW_ROWS[3:4]), rtol=1e-9)
    assert abs(sum(learner.result_.weights.values()) - 1) < 1e-9
    assert learner.result_.errors["blend"] == learner.result_.expected_error


def test_an_identifier_is_passed_through_with_a_warning():
    table = np.column_stack([np.arange(60.0), TABLE])
    learner = blended()
    with pytest.warns(UserWarning, match="columns 0 look like identifiers and are passed through"):
        found = learner.fit_transform(table)
    np.testing.assert_array_equal(found[:, 0], np.arange(60))
    np.testing.assert_array_equal(found[:, 1:], blended().fit_transform(TABLE))
    assert learner.kinds_ == ["identifier", *["number"] * 8]
    assert not np.array_equal(blended(identifiers=[]).fit_transform(table)[:, 1:], found[:, 1:])
    named = blended(identifiers=["a"]).fit_transform(frame(TABLE))
    np.testing.assert_array_equal(named[:, 0], TABLE[:, 0])


def people() -> tuple[pandas.DataFrame, pandas.DataFrame]:
    """Return a complete table of several kinds and the same one with gaps."""
    rng = np.random.default_rng(5)
    size = rng.standard_normal(120)
    full = pandas.DataFrame(
        {
            "height": 170 + 9 * size + rng.standard_normal(120),
            "visits": pandas.array(np.round(20 + 5 * size).astype(int), dtype="Int64"),
            "tall": pandas.array(size > 0, dtype="boolean"),
            "group": pandas.Categorical(np.where(size > 0.5, "high", np.where(size > -0.5, "mid", "low"))),
            "born": pandas.Timestamp("2000-01-01") + pandas.to_timedelta((50 * size).astype(int), unit="D"),
            "count": rng.integers(0, 5, 120),
        },
        index=[f"person {k}" for k in range(120)],
    )
    gappy = full.copy()
    for name in full.columns[:5]:
        gappy.loc[rng.random(120) < 0.2, name] = None
    return full, gappy


def test_frames_of_many_kinds_in_and_out():
    full, gappy = people()
    learner = blended()
    filled = learner.fit_transform(gappy)
    assert filled.dtypes.equals(gappy.dtypes)
    assert filled.index.equals(gappy.index)
    assert list(filled.columns) == list(gappy.columns)
    assert not filled.isna().any(axis=None)
    pandas.testing.assert_frame_equal(filled.where(gappy.notna()), gappy.where(gappy.notna()))
    for name, least in (("tall", 0.85), ("group", 0.7)):
        gaps = gappy[name].isna()
        assert (filled[name][gaps] == full[name][gaps]).mean() > least
    gaps = gappy["visits"].isna()
    assert (filled["visits"] - full["visits"])[gaps].abs().mean() < 2.5
    pandas.testing.assert_frame_equal(learner.transform(gappy.iloc[:7]), filled.iloc[:7])
    shares = learner.probabilities(gappy)
    assert set(shares) == {"tall", "group"}
    np.testing.assert_allclose(shares["group"].sum(axis=1), 1)
    known = gappy["group"].notna()
    assert (shares["group"].idxmax(axis=1)[known] == gappy["group"][known]).all()
    assert learner.kinds_ == ["number", "number", "boolean", "category", "date", "number"]


def test_frames_of_many_kinds_in_pipelines():
    _, gappy = people()
    target = np.arange(120) % 2
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    numbers = make_column_transformer(
        (encoder, ["group"]), ("passthrough", ["height", "count"]), remainder="drop"
    )
    pipeline = make_pipeline(blended(), numbers, GaussianNB())
    scores = cross_val_score(pipeline, gappy, target, cv=3, error_score="raise")
    assert np.isfinite(scores).all()
    part = make_column_transformer((blended(), ["height", "visits", "count"]), remainder="drop")
    found = part.set_output(transform="pandas").fit_transform(gappy)
    assert list(found.columns) == [f"airimputer__{name}" for name in ("height", "visits", "count")]
    assert not found.isna().any(axis=None)


def test_the_indicator_and_empty_columns_of_frames():
    _, gappy = people()
    gappy["none"] = pandas.Series(np.nan, index=gappy.index)
    learner = blended(add_indicator=True)
    with pytest.warns(airnp.EmptyLineWarning, match="columns none have no observed entry"):
        found = learner.fit_transform(gappy)
    assert list(found.columns) == list(learner.get_feature_names_out())
    assert "missingindicator_group" in found.columns
    assert "none" not in found.columns
    np.testing.assert_array_equal(found["missingindicator_group"], gappy["group"].isna())


def test_bounds_and_integers_of_the_blend():
    found = blended(bounds="data", integers=[2]).fit_transform(
        np.where(np.arange(8) == 2, np.round(TABLE), TABLE)
    )
    low, high = np.nanmin(TABLE, axis=0), np.nanmax(TABLE, axis=0)
    others = np.arange(8) != 2
    assert ((found >= low) & (found <= high))[:, others].all()
    assert (found[:, 2] == np.round(found[:, 2])).all()
    learner = blended(bounds=(float(np.nanmin(TABLE)), float(np.nanmax(TABLE)))).fit(TABLE)
    for end in (*learner.result_.interval(0.99), learner.result_.X):
        assert end.min() >= np.nanmin(TABLE)
        assert end.max() <= np.nanmax(TABLE)
    _, gappy = people()
    clipped = blended(bounds={"height": (160, 180)})
    with pytest.raises(ValueError, match="outside of"):
        clipped.fit(gappy)


def test_new_rows_may_go_beyond_the_bounds_of_the_data():
    learner = blended(bounds="data").fit(TABLE)
    rows = np.where(np.arange(8) < 4, 10 * NEW, np.nan)
    found, (low, high) = learner.transform(rows), learner.interval(rows)
    for end in (found, low, high):
        np.testing.assert_array_equal(end[:, :4], rows[:, :4])
        assert (end[:, 4:] >= np.nanmin(TABLE, axis=0)[4:]).all()
        assert (end[:, 4:] <= np.nanmax(TABLE, axis=0)[4:]).all()


@pytest.mark.parametrize(("table", "unknown"), [(TABLE, 8), (frame(TABLE), "z")])
def test_identifiers_are_columns(table, unknown):
    with pytest.raises(ValueError, match=f"identifiers: expected columns of X, got {unknown!r}"):
        blended(identifiers=[unknown]).fit(table)


def test_observed_entries_may_be_estimated_from_the_others():
    kept, freed = (blended(keep_observed=kept).fit_transform(TABLE) for kept in (True, False))
    np.testing.assert_allclose(freed[~SEEN], kept[~SEEN])
    apart = np.abs(freed - TRUTH)[SEEN]
    assert 0 < apart.mean() < 0.3 * np.abs(TRUTH - TRUTH.mean(axis=0)).mean()
    with pytest.raises(ValueError, match="keep_observed: expected True for a table whose columns"):
        blended(keep_observed=False).fit(people()[1])


def test_intervals_for_new_rows():
    rng = np.random.default_rng(6)
    truth = np.vstack([TRUTH, NEW] * 3) + rng.standard_normal((240, 8))
    rows = np.where(rng.random(truth.shape) < 0.25, np.nan, truth)
    learner = blended().fit(rows[:120])
    low, high = learner.interval(rows[120:], 0.9)
    known = ~np.isnan(rows[120:])
    np.testing.assert_array_equal(low[known], truth[120:][known])
    assert 0.8 < ((low <= truth[120:]) & (truth[120:] <= high))[~known].mean() < 0.98
    with pytest.raises(ValueError, match="level"):
        learner.interval(NEW_ROWS, 1.0)
    with pytest.raises(ValueError, match="method: 'air' has intervals for its training table only"):
        imputer().fit(TABLE).interval(NEW_ROWS)


def test_intervals_of_frames_have_their_numbers_and_dates():
    _, gappy = people()
    learner = blended(bounds="data").fit(gappy)
    low, high = learner.interval(gappy)
    numbers = [name for name in gappy if name in low]
    assert numbers
    assert list(low) == list(high)
    for name in numbers:
        gaps = gappy[name].isna()
        assert (low[name] <= high[name]).all()
        if pandas.api.types.is_numeric_dtype(low[name]):
            assert (low[name][gaps] >= gappy[name].min()).all()
        assert (low[name][~gaps] == gappy[name][~gaps]).all()


def test_imputations_are_drawn():
    learner = blended(sample_posterior=True, n_imputations=4).fit(TABLE)
    drawn = learner.imputations(TABLE)
    assert len(drawn) == 4
    for table in drawn:
        np.testing.assert_array_equal(table[SEEN], TRUTH[SEEN])
    spread = np.std(drawn, axis=0)
    assert (spread[~SEEN] > 0).all()
    np.testing.assert_array_equal(learner.transform(TABLE), learner.transform(TABLE))
    again = blended(sample_posterior=True, n_imputations=4).fit(TABLE).imputations(TABLE)
    np.testing.assert_array_equal(drawn, again)
    with pytest.raises(ValueError, match="sample_posterior: expected True to draw imputations"):
        blended().fit(TABLE).imputations(TABLE)
    _, gappy = people()
    frames = blended(sample_posterior=True, n_imputations=2).fit(gappy).imputations(gappy)
    assert all(frame.dtypes.equals(gappy.dtypes) for frame in frames)


def test_imputations_give_the_right_standard_error():
    """Regressions on imputed tables, pooled by Rubin's rules, over simulated tables with gaps at random."""
    inside, estimates, errors = [], [], []
    for seed in range(40):
        rng = np.random.default_rng([8, seed])
        x = rng.multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], 200)
        y = 0.5 * x[:, 0] - 0.7 * x[:, 1] + 0.8 * rng.standard_normal(200)
        table = np.column_stack([x, y])
        table[rng.random(200) < 1 / (1 + np.exp(0.5 - x[:, 1])), 0] = np.nan
        learner = blended(sample_posterior=True, n_imputations=8, random_state=seed, threads=1).fit(table)
        found = []
        for each in learner.imputations(table):
            inputs = each[:, :2]
            gram = np.linalg.inv(inputs.T @ inputs)
            slope = gram @ inputs.T @ each[:, 2]
            left = each[:, 2] - inputs @ slope
            found.append((slope[0], left @ left / 198 * gram[0, 0]))
        slopes, within = np.array(found).T
        error = np.sqrt(within.mean() + (1 + 1 / 8) * slopes.var(ddof=1))
        estimates.append(slopes.mean())
        errors.append(error)
        inside.append(abs(slopes.mean() - 0.5) < 2.1 * error)
    assert np.mean(inside) >= 0.85
    assert abs(np.mean(estimates) - 0.5) < 3 * np.std(estimates) / np.sqrt(40) + 0.01
    assert 0.75 < np.mean(errors) / np.std(estimates) < 1.4


def test_rows_of_frames_that_cannot_be_read():
    learner = blended().fit(people()[1])
    with pytest.raises(TypeError, match="X: expected a DataFrame as in fit"):
        learner.transform(np.zeros((2, 6)))
    with pytest.raises(TypeError, match="X: expected a DataFrame with categories"):
        blended().fit(TABLE).probabilities(TABLE)
    with pytest.raises(ValueError, match="missing_values: expected nan for a table"):
        blended(missing_values=-1).fit(people()[0])


EDGES = np.random.default_rng(9)


def with_gaps(table: np.ndarray, rate: float = 0.2) -> np.ndarray:
    return np.where(EDGES.random(table.shape) < rate, np.nan, table)


def dropping_out(n: int, d: int) -> np.ndarray:
    """Return rows that end sooner or later."""
    table = EDGES.standard_normal((n, 1)) + 0.3 * EDGES.standard_normal((n, d))
    table[np.arange(d) >= EDGES.integers(1, d + 1, n)[:, None]] = np.nan
    return table


LINE = EDGES.standard_normal(60)
APART = np.full((40, 4), np.nan)
APART[:20, :2], APART[20:, 2:] = EDGES.standard_normal((20, 2)), EDGES.standard_normal((20, 2))


@pytest.mark.parametrize(
    "table",
    [
        np.array([[1.0, np.nan], [2.0, 3.0]]),
        np.array([[1.0], [4.0], [2.0]]),
        with_gaps(np.full((30, 3), 5.0)),
        EDGES.standard_normal((30, 4)),
        dropping_out(80, 6),
        APART,
        with_gaps(1e300 * EDGES.standard_normal((50, 4))),
        with_gaps(1e-300 * EDGES.standard_normal((50, 4))),
        with_gaps(1e9 + EDGES.standard_normal((50, 4))),
        with_gaps(np.column_stack([LINE, 2 * LINE, 3 * LINE, -LINE])),
        with_gaps((EDGES.random((60, 5)) < 0.5).astype(float)),
        np.vstack([np.ones(160), with_gaps(EDGES.standard_normal((3, 160)))]),
    ],
    ids=[
        *("two rows", "one column", "constant", "complete", "drop-out", "nothing in common", "huge", "tiny"),
        *("far from zero", "collinear", "binary", "four rows"),
    ],
)
def test_unusual_tables_are_filled(table):
    learner = blended(sample_posterior=True, n_imputations=2).fit(table)
    for filled in (*learner.imputations(table), learner.result_.X):
        assert np.isfinite(filled).all()
        np.testing.assert_array_equal(filled[~np.isnan(table)], table[~np.isnan(table)])
    low, high = learner.result_.interval(0.9)
    assert np.isfinite(low).all()
    assert (low <= high).all()
