"""``python -m bench.ratings``: its statistics, how it chooses settings, and that it resumes."""

from __future__ import annotations

import json
from unittest.mock import Mock

import numpy as np
import pytest

import airnp
from bench.ratings import __main__ as command
from bench.ratings import data, fits, models, used
from bench.ratings.fits import rmse
from bench.ratings.models import ABLATION, Model
from bench.ratings.page import compare
from bench.ratings.peers import PEERS


def small_table(seed=0):
    """A table of rank two with offsets, a third of it for training."""
    rng = np.random.default_rng(seed)
    whole = 3 + rng.normal(0, 0.5, (30, 1)) + rng.normal(0, 0.5, 40)
    whole += rng.standard_normal((30, 2)) @ rng.standard_normal((2, 40)) * 0.3
    whole, part = np.clip(whole, 1, 5), rng.random(whole.shape)
    graphs = [data.csr_array(np.eye(size, k=1) + np.eye(size, k=-1)) for size in whole.shape]
    train, test = data._entries(whole, part < 0.35), data._entries(whole, part > 0.8)
    return data.Table("small", whole.shape, train, test, (1.0, 5.0), *graphs)


QUICK_GRID = {"rank": (2,), "spread": (0.1,), "rate": (3e-2,), "max_iter": (30,)}
DECAY_GRID = QUICK_GRID | {"decay": (0.1, 1.0)}
SMALL = {
    "offsets": ABLATION["offsets"],
    "dmf2": Model("two factors", ABLATION["dmf2"].solve, {"ratings": QUICK_GRID}, True),
    "l2": Model("decay", ABLATION["l2"].solve, {"ratings": DECAY_GRID}, True),
    "absent": Model("absent", ABLATION["l2"].solve, {"ratings": {}}, needs="no_such_package"),
}


@pytest.fixture
def small(monkeypatch, tmp_path):
    """A folder for the command, which knows a small table and few models only."""
    monkeypatch.setattr(data, "TABLES", {"small": data.Source("a small table", small_table)})
    monkeypatch.setattr(fits, "MODELS", SMALL)
    monkeypatch.setattr(used, "page", lambda seeds: f"used, {seeds} seeds")
    monkeypatch.setattr(used, "is_missing", lambda: True)
    monkeypatch.setattr(command, "PLAN", {"small": tuple(SMALL)})
    monkeypatch.setattr(fits, "CHOSEN", tmp_path / "chosen.json")
    return tmp_path


# --- statistics ---


def test_only_a_clear_difference_is_called_clear():
    rng = np.random.default_rng(0)
    base = rng.standard_normal((3, 4000))
    better, same = compare(0.95 * base, base), compare(base, base)
    assert better.is_clear
    assert better.high < 0
    assert better.mean == pytest.approx(-0.05 * rmse(base).mean(), rel=1e-9)
    assert (same.mean, same.low, same.high, same.is_clear) == (0, 0, 0, False)
    assert not compare(base + 1e-3 * rng.standard_normal(base.shape), base).is_clear
    # A single seed is compared with every seed of the other.
    assert compare(base, base[:1]).mean == pytest.approx((rmse(base) - rmse(base[0])).mean())


def test_the_interval_of_a_mean_is_the_known_one():
    """Errors of 1 + δ make the difference of two RMSEs almost a mean, whose standard error is known."""
    errors = 1 + np.random.default_rng(1).normal(0, 0.1, (1, 5000))
    found = compare(errors, np.ones((1, 5000)))
    standard = np.std(errors**2) / 2 / np.sqrt(5000)
    assert found.high - found.low == pytest.approx(2 * 1.96 * standard, rel=0.1)


def test_resampling_users_gives_wider_intervals_if_users_differ():
    rng = np.random.default_rng(2)
    users = np.repeat(np.arange(50), 40)
    base = rng.standard_normal((2, 2000))
    errors = base * (1 + 0.2 * rng.standard_normal(50))[users]
    one_by_one, by_user = compare(errors, base), compare(errors, base, users)
    assert one_by_one.mean == pytest.approx(by_user.mean)
    assert by_user.high - by_user.low > 1.5 * (one_by_one.high - one_by_one.low)


# --- data ---


def test_validation_and_samples_take_from_the_training_entries_alone():
    table = small_table()
    inner = table.for_validation()
    parts = (inner.train, inner.test, table.train)
    train, test, both = (set(zip(part.rows, part.columns, strict=True)) for part in parts)
    assert train | test == both
    assert not train & test
    assert len(inner.test) == round(0.05 * len(table.train))
    np.testing.assert_array_equal(inner.test.rows, table.for_validation().test.rows)
    less = table.sample(0.25, 0)
    assert less.matrix.nnz == len(less.train) == round(0.25 * len(table.train))
    assert less.test is table.test


def test_similarities_of_all_pairs_become_a_graph_of_few_neighbours():
    similar = np.random.default_rng(0).random((30, 30))
    graph = data._few_neighbours((similar + similar.T) / 2).toarray()
    assert (graph > 0).sum(axis=1).min() >= data.FEW_NEIGHBOURS
    assert (graph != 0).sum() < 2 * data.FEW_NEIGHBOURS * 30
    assert not graph.diagonal().any()
    sparse = data.csr_array(np.eye(30, k=1))
    np.testing.assert_array_equal(data._few_neighbours(sparse).toarray(), sparse.toarray())


def test_the_splits_of_real_tables(data_directory):
    table = data.movielens(1.0, 0)
    assert (len(table.train), len(table.test), table.shape) == (80_000, 20_000, (943, 1682))
    table = data.TABLES["gpcr20"].draw(1)
    assert len(table.train) + len(table.test) == 223 * 95
    assert len(table.train) == pytest.approx(0.2 * 223 * 95, rel=0.05)
    assert len(table.for_validation().test) == round(0.2 * len(table.train))
    assert not np.array_equal(table.train.rows, data.TABLES["gpcr20"].draw(2).train.rows)


# --- models ---


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({}, []),
        ({"decay": 1.0}, ["WeightDecay"]),
        ({"graph": "nearest", "neighbors": 3, "refresh": 5}, ["AdaptiveLaplacian"] * 2),
        ({"graph": "given"}, ["FixedLaplacian"] * 2),
        ({"graph": "both", "given_weight": 3.0}, ["AdaptiveLaplacian", "FixedLaplacian"] * 2),
    ],
)
def test_settings_become_regularizers(settings, names):
    found = models._regularizers(small_table(), {"graph_weight": 2.0} | settings)
    assert [type(item).__name__ for item in found] == names
    weights = {type(item).__name__: item.weight for item in found}
    assert weights.get("AdaptiveLaplacian", 2.0) == 2.0
    assert weights.get("FixedLaplacian", 2.0) == settings.get("given_weight", 2.0)


def test_batches_take_a_share_of_the_entries(monkeypatch):
    """A quarter of the entries gives another result than all at once."""
    table, settings = small_table(), {name: value[0] for name, value in QUICK_GRID.items()}
    fit = Mock(wraps=airnp.fit_sparse)
    monkeypatch.setattr(airnp, "fit_sparse", fit)
    whole = models.factorisation(table, settings, 0, None)
    quarter = models.factorisation(table, settings | {"batches": 4}, 0, None)
    sizes = [call.kwargs["batch_size"] for call in fit.call_args_list]
    assert sizes == [None, -(-len(table.train) // 4)]
    assert not np.allclose(whole, quarter)


@pytest.mark.filterwarnings("ignore")  # warnings of other programs
@pytest.mark.parametrize("name", PEERS)
def test_installed_peers_beat_the_mean_of_all_ratings(name):
    model = PEERS[name]
    if model.is_missing:
        pytest.skip(f"{model.needs} is not installed")
    table = small_table()
    settings = next(iter(model.trials("ratings"))) | {"rank": 2, "shrinkage": 3.0}
    found = model.answer(table, settings, 0).predictions
    assert rmse(found - table.test.values) < 0.97 * rmse(table.train.values.mean() - table.test.values)


def test_unseeded_and_slow_models_have_fewer_seeds():
    assert list(PEERS["nmf"].seeds(5, has_draws=False)) == [0]
    assert list(PEERS["nmf"].seeds(5, has_draws=True)) == [0, 1, 2, 3, 4]
    assert list(PEERS["surprise_svdpp"].seeds(5, has_draws=True)) == [0, 1, 2]


# --- who used what ---


def test_recommendations_are_measured_and_shown(monkeypatch):
    table = small_table()
    liked = [used._liked(part, table.shape) for part in (table.train, table.test)]
    monkeypatch.setattr(used, "LIKED", 3.0)
    monkeypatch.setattr(used, "pairs", lambda seed: tuple(liked))
    monkeypatch.delitem(used.MODELS, "implicit")
    text = used.page(seeds=2)
    assert "| the items with the most users | 0." in text
    assert text.count("| `airnp.fit_implicit`, the choice of its settings included | 0.") == 2
    wanted = liked[1].toarray() > 0
    nothing = data.csr_array(table.shape)
    factors = np.ones((table.shape[0], 1)), -np.arange(table.shape[1], dtype=float)[:, None]
    found = used.measured(factors, nothing, liked[1])
    assert found["precision"] == pytest.approx(wanted[wanted.any(axis=1)][:, :10].mean())


# --- command ---


def test_the_plan_names_known_tables_and_models():
    for plan in (command.PLAN, command.QUICK):
        assert set(plan) <= set(data.TABLES)
        for table, names in plan.items():
            assert set(names) <= set(fits.MODELS)
            assert set(names) <= set(fits.chosen_for(table)) | set(PEERS), table


def test_tune_compute_and_report(small, capsys, monkeypatch):
    assert command.main(["--out", str(small), "--models", "l2"]) == 1
    assert "no settings chosen" in capsys.readouterr().err
    assert command.main(["--tune", "--out", str(small)]) == 0
    chosen = json.loads((small / "chosen.json").read_text())
    assert set(chosen["small"]) == {"offsets", "dmf2", "l2"}
    assert "no_such_package is not installed" in capsys.readouterr().out
    for found in chosen["small"].values():
        assert found["validation_rmse"] == min(error for _, error in found["tried"])
    assert 0 < chosen["small"]["dmf2"]["settings"]["max_iter"] <= 30
    assert command.main(["--out", str(small), "--seeds", "2"]) == 0
    text = (small / "ratings.md").read_text()
    assert "no_such_package is not installed" in text
    assert "| two factors | " in text
    assert "`l2` − `dmf2`" in text
    files = sorted((small / "cells").glob("*.npz"))
    assert len(files) == 6  # three models, two draws of the table
    monkeypatch.setattr(Model, "answer", None)  # finished fits are not computed again
    assert command.main(["--out", str(small), "--seeds", "2"]) == 0


def test_the_watch_chooses_the_best_iteration():
    table = small_table()
    watch = fits.Watch(table, 800)
    for iteration, error in ((5, 0.5), (10, 0.1), (15, 0.3), (20, 0.4)):
        assert not watch(iteration, np.minimum(table.test.values, 4.0) + error)
    assert watch.iteration == 10
    assert watch(500, table.test.values + 1.0), "it stops long after the best"


def test_recorded_settings_are_the_best_of_their_grids():
    assert "movielens" in fits.chosen()
    for table, chosen in fits.chosen().items():
        for name, found in chosen.items():
            trials = fits.MODELS[name].trials(data.TABLES[table].grids)
            tried = [settings for settings, _ in found["tried"]]
            assert [t | {"max_iter": 0} for t in tried] == [t | {"max_iter": 0} for t in trials], name
            assert found["validation_rmse"] == min(error for _, error in found["tried"])
            assert [found["settings"], found["validation_rmse"]] in found["tried"]
