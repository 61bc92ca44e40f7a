"""``RatingsModel``: predictions by id, rankings, fold-in, standard deviations, files."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import coo_array

import airnp
from airnp.data.entries import read_entries
from airnp.data.interactions import Ids, column_roles, read_interactions
from airnp.ratings import chosen_shrinkage


def sample():
    rng = np.random.default_rng(3)
    truth = 3 + rng.normal(0, 0.5, (40, 1)) + rng.standard_normal((40, 2)) @ rng.standard_normal((2, 25))
    rows, columns = np.nonzero(rng.random(truth.shape) < 0.5)
    stars = np.clip(np.rint(truth), 1, 5)[rows, columns]
    return rows, columns, stars


ROWS, COLUMNS, STARS = sample()
USERS = np.array([f"user {row}" for row in ROWS], dtype=object)
FILMS = 100 + COLUMNS


@pytest.fixture(scope="module")
def model():
    frame = pd.DataFrame({"when": 1, "userId": USERS, "movieId": FILMS, "rating": STARS})
    return airnp.fit_ratings(frame, rank=4, max_iter=400, seed=0, engine=airnp.CPU(threads=1))


def test_all_forms_of_the_same_ratings(model):
    frame = pd.DataFrame({"a": USERS, "b": FILMS, "c": STARS})
    pivot = frame.pivot_table(index="a", columns="b", values="c")
    whole = {(user, film): star for user, film, star in zip(USERS, FILMS.tolist(), STARS, strict=True)}
    for given in (
        read_interactions(frame, user="a", item="b", rating="c"),
        read_interactions(pivot),
        read_interactions((USERS, FILMS, STARS)),
        read_interactions(list(zip(USERS, FILMS, STARS, strict=True))),
    ):
        there = given.matrix.tocoo()
        places = zip(there.row, there.col, there.data, strict=True)
        assert {(given.users[i], given.items[j]): value for i, j, value in places} == whole
    assert model.users.labels == list(dict.fromkeys(USERS))


def test_arrow_tables_and_times():
    arrow = pytest.importorskip("pyarrow")
    table = arrow.table({"timestamp": [3, 1], "user": ["b", "a"], "item": [1, 2], "rating": [4.0, 5.0]})
    found = read_interactions(table)
    assert (found.users.labels, found.items.labels, found.times.tolist()) == (["b", "a"], [1, 2], [3, 1])


def test_mistakes():
    frame = pd.DataFrame({"a": [1, 2], "b": [1, 2], "c": [1.0, 2.0]})
    with pytest.raises(ValueError, match="R: expected columns for users, items and ratings"):
        airnp.fit_ratings(frame)
    with pytest.raises(ValueError, match="user: expected the name of a column"):
        airnp.fit_ratings(frame, user="x")
    with pytest.raises(ValueError, match="item: expected the name of a column"):
        airnp.fit_ratings(frame, user="a")
    with pytest.raises(ValueError, match=r"got 2 ratings of 1 pairs"):
        airnp.fit_ratings((["a", "a"], ["x", "x"], [1, 2]))
    with pytest.raises(ValueError, match="weights: expected R to be a sparse matrix"):
        airnp.fit_ratings((["b", "a"], ["x", "x"], [1, 2]), weights=[1, 2])
    with pytest.raises(ValueError, match="columns: expected one for the item"):
        column_roles(["user", "item", "film", "rating"])


def test_predictions_by_id_are_those_of_the_table(model):
    table = model.X
    i, j = model.users.places(["user 3", "user 7"]), model.items.places([104, 110])
    np.testing.assert_allclose(model.predict(["user 3", "user 7"], [104, 110]), table[i, j], rtol=1e-6)
    assert model.predict("user 3", 104).shape == ()
    wide = model.predict(np.array([["user 3"], ["user 7"]], dtype=object), np.array([104, 110]))
    np.testing.assert_allclose(wide, table[np.ix_(i, j)], rtol=1e-6)


def test_unknown_ids_are_predicted_by_the_other_side_and_said(model):
    mean, rows, columns = model.offsets
    with pytest.warns(airnp.UnknownIdWarning, match="1 of 1 users are not known"):
        found = model.predict("nobody", 104)
    assert found == pytest.approx(np.clip(mean + columns[model.items.places(104)], 1, 5), rel=1e-6)
    with pytest.warns(airnp.UnknownIdWarning, match="items are not known"):
        found = model.predict("user 3", "nothing")
    assert found == pytest.approx(np.clip(mean + rows[model.users.places("user 3")], 1, 5), rel=1e-6)
    with pytest.warns(airnp.UnknownIdWarning):
        best = model.recommend("nobody", 2)
    assert best[0].id == model.items[int(np.argmax(columns))]


def test_recommendations_are_unseen_allowed_and_in_order(model):
    seen = set(FILMS[USERS == "user 5"].tolist())
    found = model.recommend("user 5", 4)
    assert not seen & {item for item, _ in found}
    rest = [label for label in model.items.labels if label not in seen]
    scores = model.predict("user 5", rest)
    assert [score for _, score in found] == pytest.approx(sorted(scores, reverse=True)[:4])
    assert {item for item, _ in model.recommend("user 5", 99, exclude_seen=False)} == set(model.items.labels)
    even = model.recommend("user 5", 99, filter=lambda item: item % 2 == 0)
    assert [item for item, _ in even] == [item for item, _ in model.recommend("user 5", 99) if item % 2 == 0]
    assert [item for item, _ in model.recommend("user 5", filter=rest[:2])] == [
        item for item, _ in model.recommend("user 5", 99) if item in rest[:2]
    ]
    users, items, scores = model.recommend_all(4, users=["user 5", "user 1"])
    assert list(zip(users, items, strict=True)) == [
        (user, item) for user in ("user 5", "user 1") for item, _ in model.recommend(user, 4)
    ]
    with pytest.raises(ValueError, match="users: expected users that the model knows, got 'eve'"):
        model.recommend_all(users=["eve"])


def test_similar_ones_have_the_highest_cosine(model):
    factors = model.column_factors / np.linalg.norm(model.column_factors, axis=1, keepdims=True)
    cosines = factors @ factors[3]
    cosines[3] = -2
    best = model.similar_items(model.items[3], 2)
    assert [item for item, _ in best] == [model.items[place] for place in np.argsort(-cosines)[:2]]
    assert len(model.similar_users("user 2", 5)) == 5
    with pytest.raises(ValueError, match="user: expected one that the model knows, got 'eve'"):
        model.similar_users("eve")


def test_fold_in_is_the_minimum_of_the_loss(model):
    """The gradient of the loss in b and u₀ is zero there, by its formula in the data's units."""
    given = {101: 5.0, 104: 1.0, 110: 4.0}
    new = model.fold_in(given)
    places, values = model.items.places(list(given)), np.array(list(given.values()))
    v, (kappa, decay, _) = model.column_factors[places].astype(float), model.penalties
    start = model.mask_factors[0][places].sum(axis=0) / np.sqrt(3)
    mean, _, columns = model.offsets
    errors = mean + new.offset + columns[places] + v @ new.factor - values
    assert errors.sum() + kappa * new.offset == pytest.approx(0, abs=1e-4)
    slope = v.T @ errors + decay * np.sqrt(3) * (new.factor - start)
    np.testing.assert_allclose(slope, 0, atol=1e-4)
    assert 101 not in {item for item, _ in model.recommend(new, 99)}
    with pytest.raises(ValueError, match="users: expected a new user, got a new item"):
        model.predict(model.fold_in({"user 1": 3}, side="item"), 101)


def test_a_known_user_that_is_folded_in_is_predicted_much_as_before(model):
    mine = USERS == "user 5"
    new = model.fold_in(dict(zip(FILMS[mine].tolist(), STARS[mine], strict=True)))
    old = model.predict("user 5", model.items.labels)
    assert np.corrcoef(model.predict(new, model.items.labels), old)[0, 1] > 0.8


def test_less_is_known_about_those_with_few_ratings(model):
    few, many = model.fold_in({101: 5}), model.fold_in(dict.fromkeys(model.items.labels, 4))
    assert model.std(few, 104) > model.std(many, 104) > model.noise > 0
    assert model.std(["user 1", "user 2"], [104, 105]).shape == (2,)


@pytest.mark.parametrize("labels", [[1, 5], ["ä", "b"], [("a", 1), 2.5, True, "x"]])
def test_ids_come_back(labels):
    header, arrays = Ids(labels).stored("users")
    found = Ids.restore(header, arrays, "users").labels
    assert [(type(label), label) for label in found] == [(type(label), label) for label in labels]


def test_files(model, tmp_path):
    path = tmp_path / "model.npz"
    model.save(path)
    again = airnp.load(path)
    assert isinstance(again, airnp.RatingsModel)
    assert again.recommend("user 5", 4) == model.recommend("user 5", 4)
    assert again.noise == model.noise
    assert again.fold_in({101: 5}).offset == model.fold_in({101: 5}).offset
    with np.load(path) as content:  # no pickle
        assert all(content[name].dtype != object for name in content.files)
    path.write_bytes(path.read_bytes()[:-3000])
    with pytest.raises(ValueError, match="not a result saved by airnp, or damaged"):
        airnp.load(path)


def test_the_shrinkage_of_offsets_comes_from_the_data():
    """Users that differ by much need little shrinkage, and users that do not differ a lot of it."""
    rng = np.random.default_rng(0)
    rows, columns = np.nonzero(rng.random((60, 40)) < 0.3)
    noise = rng.standard_normal(len(rows))
    differ = 3 + 3 * rng.standard_normal(60)[rows] + noise
    found = [
        chosen_shrinkage(read_entries(coo_array((values, (rows, columns)), shape=(60, 40))))
        for values in (differ, 3 + noise)
    ]
    assert found[0] < 5 < 14 < found[1]


def test_what_is_asked_of_a_model_and_cannot_be_meant(model):
    other = airnp.fit_ratings((USERS, FILMS, STARS), rank=3, max_iter=3, seed=0).fold_in({101: 5})
    for ask, error, message in (
        (lambda: model.predict(["user 1", "user 2"], [101, 104, 110]), ValueError, "users, items: expected"),
        (lambda: model.recommend(["user 1", "user 2"]), TypeError, "user: expected one id, got"),
        (lambda: model.similar_items([101, 104]), TypeError, "item: expected one id, got"),
        (lambda: model.recommend("user 1", filter="104"), TypeError, "filter: expected a function of an id"),
        (lambda: model.recommend("user 1", filter=104), TypeError, "filter: expected a function of an id"),
        (lambda: model.recommend_all(users="user 1"), TypeError, "users: expected a list of ids, got 'user"),
        (lambda: model.recommend(other), ValueError, "users: expected a new user that was folded into this"),
        (lambda: model.similar_items(other), ValueError, "items: expected a new item, got a new user"),
        (lambda: model.fold_in({101: "good"}), TypeError, "ratings: expected a mapping of ids to numbers"),
        (lambda: model.fold_in({101: np.nan}), ValueError, "ratings: expected finite numbers, got nan"),
        (
            lambda: model.evaluate(["user 1"], [101, 104], [3, 4]),
            ValueError,
            "ratings: expected at least one",
        ),
        (lambda: model.evaluate([], [], []), ValueError, "ratings: expected at least one"),
        (lambda: model.evaluate(["user 1"], [101], [np.nan]), ValueError, "ratings: expected finite numbers"),
        (lambda: model.evaluate(["user 1"], [101], [5], k=0), ValueError, "k: expected at least 1"),
    ):
        with pytest.raises(error, match=message):
            ask()


def test_series_and_generators_of_ids(model):
    users, films = pd.Series(USERS[:3]), pd.Series(FILMS[:3])
    np.testing.assert_array_equal(model.predict(users, films), model.predict(USERS[:3], FILMS[:3]))
    np.testing.assert_array_equal(model.std(users, films), model.std(USERS[:3], FILMS[:3]))
    assert model.recommend_all(2, users=iter(["user 5"])).users == ["user 5"] * 2
    assert model.fold_in(pd.Series({101: 5.0})).offset == model.fold_in({101: 5}).offset


def test_what_is_relevant_comes_from_the_bounds(model):
    users = [f"user {row}" for row in range(40)]
    films = [model.recommend(user, 1)[0].id for user in users]
    stars = np.arange(40) % 2 + 4.0
    assert model.evaluate(users, films, stars, k=1) == model.evaluate(users, films, stars, k=1, relevant=4.0)
    assert model.evaluate(users, films, stars, k=1)["coverage"] > 0
    assert model.evaluate(users[:1], films[:1], [3.9], k=1).keys() == {"rmse", "mae"}
