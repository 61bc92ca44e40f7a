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
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import airnp
from airnp import AdaptiveLaplacian
from airnp.sklearn import AIRImputer
from airnp.tables.imputation import Scaling

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


def standardised(table: np.ndarray) -> tuple[Scaling, np.ndarray]:
    """Return the scaling of a table, and what the fit sees: NaN in gaps."""
    observed = ~np.isnan(table)
    scaling = Scaling.of(table, observed)
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
        ({"random_state": -1}, ValueError, "seed: expected at least 0"),
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
