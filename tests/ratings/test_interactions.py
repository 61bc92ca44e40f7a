"""Ratings as people have them, and as they should not be: forms, ids, columns, times, sizes."""

from __future__ import annotations

import datetime
import uuid
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array

import airnp
from airnp.data.interactions import Ids, column_roles, read_interactions, read_pairs, split

FRAME = pd.DataFrame({"userId": [1, 1, 2], "movieId": [7, 8, 7], "rating": [4.0, 3.0, 5.0]})
QUICK = {"rank": 1, "max_iter": 10, "seed": 0, "engine": airnp.CPU(threads=1)}


@pytest.mark.parametrize(
    ("ratings", "error", "message"),
    [
        (FRAME.assign(rating=FRAME.rating + 1j), TypeError, "ratings that are numbers, got complex128"),
        (FRAME.assign(rating=pd.Timestamp("2020")), TypeError, "ratings that are numbers, got datetime64"),
        (FRAME.assign(rating=np.inf), ValueError, "finite ratings, got inf; 3 ratings are not finite"),
        (([1, 2], [1, 2], [3, None]), ValueError, "finite ratings, got nan; 1 ratings are not finite"),
        (([1, 2], [1, 2], np.ma.masked_equal([3, 4], 4)), ValueError, "a rating in every row, got masked"),
        (([np.nan, np.nan], [1, 2], [3, 4]), ValueError, "a user and an item in every row, got rows with"),
        (([1, 2], [1, None], [3, 4]), ValueError, "a user and an item in every row, got rows with"),
        (([1, 2], np.ma.masked_equal([3, 4], 4), [3, 4]), ValueError, "a user and an item in every row"),
        (([[1], [2]], [1, 2], [3, 4]), TypeError, "users and items that are hashable"),
        (FRAME[:0], ValueError, "at least one rating, got none"),
        (csr_array((3, 4)), ValueError, "at least one rating, got none"),
        (csr_array(np.eye(3) * 1j), TypeError, "ratings that are numbers, got complex128"),
    ],
)
def test_what_is_no_table_of_ratings(ratings, error, message):
    with pytest.raises(error, match=rf"R: expected {message}"):
        read_interactions(ratings)


def test_columns_that_cannot_be_meant():
    twice = pd.DataFrame([[1, 2, 3, 4]], columns=["a", "b", "c", "c"])
    with pytest.raises(ValueError, match="expected the names of different columns, got 'c' twice"):
        read_interactions(twice, user="a", item="b", rating="c")
    with pytest.raises(ValueError, match="columns: expected one for the rating"):
        read_interactions(twice.set_axis(["userId", "itemId", "rating", "rating"], axis=1))
    with pytest.raises(ValueError, match="expected the names of different columns, got 'userId' twice"):
        read_interactions(FRAME, user="userId", item="userId")
    with pytest.raises(ValueError, match="columns: expected one for the item"):
        column_roles(["userId", "movieId", "itemId", "rating"])


def test_columns_that_are_named_need_no_guess():
    """Two columns could be the item, but the user says which."""
    frame = FRAME.assign(title=["x", "y", "x"], film=["p", "q", "p"])
    assert read_interactions(frame, item="title").items.labels == ["x", "y"]
    frame = FRAME.rename(columns={"rating": "when"})
    assert read_interactions(frame, rating="when").times is None  # not a time as well


@pytest.mark.parametrize(
    "ids",
    [
        [b"a", b"\xff"],
        [uuid.UUID(int=1), uuid.UUID(int=2)],
        [Decimal("1.10"), Decimal(2)],
        [datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1, 5)],
        [pd.Timestamp("2020", tz="UTC"), pd.Timestamp("2021")],
        [("a",), ("a", 1, ("b",))],
    ],
)
def test_ids_of_other_types_are_kept_and_saved(ids):
    found = read_interactions((ids, ["x", "y"], [1, 2])).users
    assert found.labels == ids
    again = Ids.restore(*found.stored("users"), "users").labels
    assert [(type(label), label) for label in again] == [(type(label), label) for label in ids]


def test_ids_in_any_container():
    ids = Ids([3, 5])
    for given in (pd.Series([5, 4]), pd.Index([5, 4]), pd.array([5, 4], dtype="Int64"), (5, 4), iter([5, 4])):
        assert ids.places(given).tolist() == [1, -1]
    arrow = pytest.importorskip("pyarrow")
    assert ids.places(arrow.array([5, 4])).tolist() == [1, -1]


TIMES = {
    "text": ["2020-02-01", "2020-01-01 10:00:00", "2020-10-01"],
    "dates": pd.to_datetime(["2020-02-01", "2020-01-01", "2020-10-01"]),
    "dates and places": pd.to_datetime(["2020-02-01", "2020-01-01", "2020-10-01"], utc=True),
    "days": [datetime.date(2020, 2, 1), datetime.date(2020, 1, 1), datetime.date(2020, 10, 1)],
    "numbers": pd.array([9, 8, 10], dtype="Int64"),
    "text of numbers": ["9", "8", "10"],
}


@pytest.mark.parametrize("kind", TIMES)
def test_times_of_any_kind_have_an_order(kind):
    found = read_interactions(FRAME.assign(timestamp=TIMES[kind])).times
    assert np.argsort(found).tolist() == [1, 0, 2]
    assert np.flatnonzero(split([1, 1, 1], TIMES[kind], how="time", share=0.4)).tolist() == [2]


@pytest.mark.parametrize(
    ("times", "row"),
    [
        (["2020-02-01", "1/31/2020", "2020-10-01"], 2),
        ([1.0, np.nan, 2.0], 2),
        (pd.to_datetime(["2020-02-01", None, "2020-10-01"]), 2),
        (pd.array([None, 8, 10], dtype="Int64"), 1),
        (["soon", 3, 4], 1),
    ],
)
def test_times_that_have_no_order_are_refused(times, row):
    message = f"timestamp: expected a number or a date .* in row {row};"
    for read in (read_interactions, read_pairs):
        with pytest.raises(ValueError, match=message):
            read(FRAME.assign(timestamp=times))
    with pytest.raises(ValueError, match=message):
        split([1, 1, 1], times, how="time")
    with pytest.raises(ValueError, match="timestamp: expected a time for each of 3 ratings"):
        split([1, 1, 1], times[:2], how="time")


def test_ratings_of_any_size_or_far_from_zero():
    """The same ratings in other units, and with a constant added, have the same predictions."""
    rng = np.random.default_rng(0)
    users, items = np.nonzero(rng.random((12, 9)) < 0.9)
    stars = rng.integers(1, 6, len(users)).astype(float)

    def fitted(values):
        model = airnp.fit_ratings((users, items, values), **QUICK)
        new = model.fold_in({int(items[0]): values[0], int(items[1]): values[1]})
        return np.array([*model.predict(0, range(9)), model.noise, model.std(0, 1), model.predict(new, 0)])

    plain = fitted(stars)
    for scale in (1e-100, 1e-37, 1e30, 1e199):
        np.testing.assert_allclose(fitted(stars * scale) / scale, plain, rtol=1e-4)
    moved = fitted(stars + 1e9)
    np.testing.assert_allclose(moved - np.where(np.isin(range(12), (9, 10)), 0, 1e9), plain, rtol=1e-4)
    for scale in (1e-300, 1e300):
        with pytest.raises(ValueError, match="R: expected the largest rating to be from 1e-100 to 1e"):
            fitted(stars * scale)


def test_one_rating_says_nothing_of_noise():
    model = airnp.fit_ratings([("ann", "Alien", 4)], seed=0)
    assert model.predict("ann", "Alien") == 4
    assert np.isnan([model.noise, model.std("ann", "Alien")]).all()
