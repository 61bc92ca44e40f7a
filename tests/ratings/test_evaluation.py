"""Measures of predictions and rankings, and splits of ratings."""

from __future__ import annotations

import numpy as np
import pytest

import airnp
from airnp.data.interactions import split
from airnp.metrics import ranking


def test_rankings_by_hand():
    lists = {"a": [1, 2, 3], "b": [4, 5, 6], "c": [7]}
    found = ranking(lists, {"a": [3, 9], "b": [4], "c": [], "d": [1]}, 3, items=10)
    gain = [0.5 / (1 + 1 / np.log2(3)), 1, 0]
    assert found == pytest.approx(
        {"precision": 2 / 9, "recall": 1.5 / 3, "ndcg": np.mean(gain), "coverage": 0.7}, rel=1e-12
    )
    assert ranking(lists, {"b": [4, 5, 6]}, 3)["ndcg"] == pytest.approx(1)
    with pytest.raises(ValueError, match="relevant: expected a user"):
        ranking(lists, {"a": []})
    with pytest.raises(ValueError, match="recommended: expected different items"):
        ranking({"a": [1, 1]}, {"a": [1]})


def test_splits():
    users, times = np.repeat(["a", "b", "c"], [5, 4, 1]), np.array([3, 9, 1, 2, 4, 8, 7, 6, 5, 10])
    one = split(users, times, how="one")
    assert np.flatnonzero(one).tolist() == [1, 5]  # the latest of each, but not the only one of c
    assert split(users, how="one").sum() == 2
    assert np.flatnonzero(split(users, times, how="time", share=0.3)).tolist() == [1, 5, 9]
    assert split(users, share=0.3).sum() == 3
    assert not np.array_equal(split(users, share=0.3), split(users, share=0.3, seed=1))
    for options, message in (
        ({"how": "time"}, "times: expected"),
        ({"how": "all"}, "how: expected"),
        ({"share": 1.0}, "share: expected"),
    ):
        with pytest.raises(ValueError, match=message):
            split(users, **options)


def test_a_model_is_measured_by_other_ratings():
    rng = np.random.default_rng(0)
    users, items = (part.ravel() for part in np.indices((20, 15)))
    stars = rng.integers(1, 6, 300).astype(float)
    test = split(users, share=0.3)
    train = ~test
    model = airnp.fit_ratings((users[train], items[train], stars[train]), rank=2, max_iter=20, seed=0)
    found = model.evaluate(users[test], items[test], stars[test], k=3)
    errors = model.predict(users[test], items[test]) - stars[test]
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean(errors**2)))
    assert found["mae"] == pytest.approx(np.mean(np.abs(errors)))
    lists = {user: [item for item, _ in model.recommend(user, 3)] for user in range(20)}
    good = {user: items[test & (users == user) & (stars >= 4)].tolist() for user in range(20)}
    ndcg = ranking(lists, good, 3)["ndcg"]
    assert found["ndcg"] == pytest.approx(ndcg)
