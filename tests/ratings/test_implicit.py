"""``airnp.fit_implicit``: who used what."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array

import airnp
from airnp.data.entries import read_entries
from airnp.data.interactions import read_pairs, split
from airnp.engines import select_engine
from airnp.implicit import Settings, _factors, _solved
from airnp.metrics import ranking
from airnp.results.ratings_model import implicit_decays

ENGINE = airnp.CPU(threads=1)


def sample(seed=0):
    """Users of two kinds who mostly use items of their own kind."""
    rng = np.random.default_rng(seed)
    own = np.add.outer(np.arange(60), np.arange(40)) % 2 == 0
    return np.nonzero(rng.random(own.shape) < np.where(own, 0.35, 0.03))


WHO, WHAT = sample()
USERS = [f"user {row}" for row in WHO]


@pytest.fixture(scope="module")
def model():
    return airnp.fit_implicit((USERS, 100 + WHAT), rank=8, seed=0, engine=ENGINE)


def test_half_steps_solve_the_weighted_squares():
    """Many steps of conjugate gradients: every user's factor solves the normal equations."""
    entries = read_entries(csr_array((np.ones(len(WHO)), (WHO, WHAT)), shape=(60, 40)), np.float32)
    entries, rng = entries.with_values(np.zeros_like(entries.values)), np.random.default_rng(0)
    u, v = (rng.standard_normal((lines, 6)).astype(np.float32) for lines in (60, 40))
    decays = np.linspace(1, 3, 60, dtype=np.float32)[:, None]
    for _ in range(10):
        u = _solved(entries, u, v, decays, 4.0, select_engine("reference", np))
    for user in range(60):
        some = v[WHAT[user == WHO]]
        normal = v.T @ v + 4 * some.T @ some + decays[user] * np.eye(6)
        np.testing.assert_allclose(u[user], np.linalg.solve(normal, 5 * some.sum(axis=0)), atol=1e-4)


def test_engines_agree():
    seen = read_entries(csr_array((np.ones(len(WHO)), (WHO, WHAT)), shape=(60, 40))).pattern
    fits = [
        _factors(seen, Settings(10.0, 0.03), 4, 2, 0, select_engine(engine, np))
        for engine in ("reference", ENGINE)
    ]
    for found, expected in zip(*fits, strict=True):
        np.testing.assert_allclose(found, expected, atol=2e-3)


def test_what_users_of_a_kind_use_is_recommended(model):
    for user in range(0, 60, 7):
        found = model.recommend(f"user {user}", 5)
        assert sum((item - 100 + user) % 2 == 0 for item, _ in found) >= 4
        assert not {item for item, _ in found} & set((100 + WHAT[user == WHO]).tolist())


def test_better_than_popularity():
    test = split(WHO, share=0.25)
    fitted = airnp.fit_implicit((WHO[~test], WHAT[~test]), rank=8, seed=0, engine=ENGINE)
    found = fitted.evaluate(WHO[test], WHAT[test], k=5)
    counts = np.bincount(WHAT[~test], minlength=40)
    lists, wanted = {}, {}
    for user in range(60):
        seen = set(WHAT[~test & (user == WHO)].tolist())
        lists[user] = [item for item in np.argsort(-counts).tolist() if item not in seen][:5]
        wanted[user] = WHAT[test & (user == WHO)].tolist()
    assert found["ndcg"] > 1.2 * ranking(lists, wanted, 5)["ndcg"]


def test_fold_in_solves_the_normal_equations(model):
    used = [100, 104, 108]
    new = model.fold_in(used)
    v = model.column_factors.astype(float)
    some, counts = v[model.items.places(used)], model.seen.counts
    decay = implicit_decays(counts, 40, model.weight, model.decay, of=np.array([3]))
    slope = (v.T @ v + model.weight * some.T @ some + decay * np.eye(8)) @ new.factor
    np.testing.assert_allclose(slope, (1 + model.weight) * some.sum(axis=0), atol=1e-4)
    assert not {item for item, _ in model.recommend(new, 40)} & set(used)
    assert sum(item % 2 == 0 for item, _ in model.recommend(new, 5)) >= 4
    film = model.fold_in(["user 0", "user 2"], side="item")
    assert model.predict("user 4", film) > model.predict("user 5", film)


def test_unknown_users_get_what_most_use(model):
    with pytest.warns(airnp.UnknownIdWarning):
        best = model.recommend("nobody", 1)
    assert best[0].id == 100 + np.argmax(np.bincount(WHAT))
    with pytest.warns(airnp.UnknownIdWarning):
        assert model.predict("nobody", best[0].id) == pytest.approx(np.bincount(WHAT).max() / 60)
    with pytest.warns(airnp.UnknownIdWarning):
        assert model.predict("user 1", "nothing") == 0


def test_files(model, tmp_path):
    model.save(tmp_path / "model.npz")
    again = airnp.load(tmp_path / "model.npz")
    assert isinstance(again, airnp.ImplicitModel)
    assert again.recommend_all(3).items == model.recommend_all(3).items
    assert again.fold_in([100]).factor.tolist() == model.fold_in([100]).factor.tolist()
    assert repr(again).startswith("<ImplicitModel of 60 users and 40 items")


def test_all_forms_of_the_same_pairs(model):
    frame = pd.DataFrame({"a": USERS, "b": 100 + WHAT})
    matrix = csr_array((np.full(len(WHO), 3.0), (WHO, WHAT)), shape=(60, 40))
    named = frame.rename(columns={"a": "userId", "b": "movieId"}).assign(rating=1.0)
    for given in (frame, named, list(zip(USERS, 100 + WHAT, strict=True)), matrix):
        found = airnp.fit_implicit(given, rank=8, seed=0, engine=ENGINE)
        if given is not matrix:
            assert found.users.labels == model.users.labels
            assert found.recommend_all(2).scores.tolist() == model.recommend_all(2).scores.tolist()
    again = read_pairs(pd.concat([frame, frame]))
    assert again.matrix.nnz == len(WHO)


def test_of_a_repeated_pair_the_latest_time_counts():
    frame = pd.DataFrame({"user": ["a", "a", "b"], "item": [1, 1, 1], "time": [1, 9, 4]})
    found = read_pairs(frame)
    assert found.times.tolist() == [9, 4]
    assert airnp.fit_implicit(frame, seed=0, engine=ENGINE).shape == (2, 1)


def test_tiny_tables_and_the_same_seed():
    one, other = (airnp.fit_implicit([("a", "x"), ("b", "y")], seed=3, engine=ENGINE) for _ in range(2))
    np.testing.assert_array_equal(one.X, other.X)
    assert one.X[0, 0] > one.X[0, 1]


def test_mistakes():
    for given, options, error, message in (
        ((USERS, WHAT), {"rank": 41}, ValueError, r"rank: expected at most min\(m, n\) = 40"),
        ((USERS, WHAT), {"user": "a"}, ValueError, "names of columns go with a data frame"),
        ((USERS, WHAT[:-1]), {}, ValueError, "R: expected as many users as items"),
        (([], []), {}, ValueError, "R: expected at least one pair"),
        (np.ones((3, 3)), {}, TypeError, "R: expected a sparse matrix of SciPy, a data frame or pairs"),
        (csr_array([[1.0, -1.0]]), {}, ValueError, "R: expected stored entries above 0"),
        (pd.DataFrame({"a": [1], "b": [1], "c": [1]}), {}, ValueError, "user: expected the name of a col"),
        (pd.DataFrame({"user": [1, None], "item": [1, 2]}), {}, ValueError, "got rows with gaps"),
        ((USERS, WHAT), {"engine": "cuda"}, ValueError, "engine: 'cuda' works on CuPy arrays"),
    ):
        with pytest.raises(error, match=message):
            airnp.fit_implicit(given, **options)
