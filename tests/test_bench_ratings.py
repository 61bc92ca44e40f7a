"""The command on ratings: its statistics, how it chooses settings, and that it goes on where it was."""

from __future__ import annotations

import json

import numpy as np
import pytest

from bench.ratings import __main__ as command
from bench.ratings import cells, data, page, tuning
from bench.ratings.models import ABLATION, Model
from bench.ratings.peers import PEERS
from bench.ratings.statistics import compared, rmse


def small_table(seed=0):
    """A table of rank two with offsets, a third of it for training."""
    rng = np.random.default_rng(seed)
    whole = 3 + rng.normal(0, 0.5, (30, 1)) + rng.normal(0, 0.5, 40)
    whole += rng.standard_normal((30, 2)) @ rng.standard_normal((2, 40)) * 0.3
    whole, part = np.clip(whole, 1, 5), rng.random(whole.shape)
    graph = data.csr_array(np.eye(30, k=1) + np.eye(30, k=-1))
    other = data.csr_array(np.eye(40, k=1) + np.eye(40, k=-1))
    train, test = data._entries(whole, part < 0.35), data._entries(whole, part > 0.8)
    return data.Table("small", whole.shape, train, test, (1.0, 5.0), graph, other)


QUICK_GRID = {"rank": (2,), "spread": (0.1,), "rate": (3e-2,), "max_iter": (30,)}
SMALL = {
    "offsets": ABLATION["offsets"],
    "dmf2": Model("two factors", ABLATION["dmf2"].solve, QUICK_GRID, True),
    "l2": Model("decay", ABLATION["l2"].solve, QUICK_GRID | {"decay": (0.1, 1.0)}, True),
    "absent": Model("absent", ABLATION["l2"].solve, {}, needs="a_program_that_nobody_has"),
}


@pytest.fixture
def small(monkeypatch, tmp_path):
    """The command on a small table and few models, with files of its own."""
    tables = {"small": ("a small table", small_table)}
    for module in (data, tuning, cells, page, command):
        monkeypatch.setattr(module, "TABLES", tables)
    for module in (command, page):
        monkeypatch.setattr(module, "MODELS", SMALL)
    monkeypatch.setattr(command, "PLAN", {"small": tuple(SMALL)})
    monkeypatch.setattr(tuning, "CHOSEN", tmp_path / "chosen.json")
    monkeypatch.setattr(tuning.keep, "__defaults__", (tmp_path / "chosen.json",))
    return tmp_path


# ------------------------------------------------------------------------------------------------- statistics


def test_a_clear_difference_is_found_and_no_difference_is_not():
    rng = np.random.default_rng(0)
    base = rng.standard_normal((3, 4000))
    better = compared(0.95 * base, base)
    assert better.is_clear
    assert better.high < 0
    assert better.mean == pytest.approx(-0.05 * rmse(base).mean(), rel=1e-9)
    same = compared(base, base)
    assert (same.mean, same.low, same.high) == (0, 0, 0)
    assert not same.is_clear
    other = compared(base + 1e-3 * rng.standard_normal(base.shape), base)
    assert not other.is_clear


def test_the_interval_of_a_mean_is_the_known_one():
    """Errors of ±(1 ± δ) make the difference of two RMSEs almost a mean: compare with its standard error."""
    rng = np.random.default_rng(1)
    base = np.ones((1, 5000))
    change = rng.normal(0, 0.1, (1, 5000))
    found = compared(base + change, base)
    standard = np.std((1 + change) ** 2) / 2 / np.sqrt(5000)
    assert found.high - found.low == pytest.approx(2 * 1.96 * standard, rel=0.1)


def test_whole_users_make_wider_intervals_when_users_differ():
    rng = np.random.default_rng(2)
    users = np.repeat(np.arange(50), 40)
    base = rng.standard_normal((2, 2000))
    errors = base * (1 + 0.2 * rng.standard_normal(50))[users]
    one_by_one, by_user = compared(errors, base), compared(errors, base, users)
    assert one_by_one.mean == pytest.approx(by_user.mean)
    assert by_user.high - by_user.low > 1.5 * (one_by_one.high - one_by_one.low)


def test_a_single_line_stands_against_every_seed():
    rng = np.random.default_rng(3)
    errors = rng.standard_normal((4, 300))
    found = compared(errors, errors[:1])
    assert found.mean == pytest.approx(float((rmse(errors) - rmse(errors[0])).mean()))


# ------------------------------------------------------------------------------------------------------- data


def test_validation_entries_come_from_the_training_entries_alone():
    table = small_table()
    inner = table.for_validation()
    places = [
        set(zip(part.rows, part.columns, strict=True)) for part in (inner.train, inner.test, table.train)
    ]
    assert places[0] | places[1] == places[2]
    assert not places[0] & places[1]
    assert len(inner.test) == round(0.05 * len(table.train))
    again = table.for_validation()
    np.testing.assert_array_equal(inner.test.rows, again.test.rows)


def test_less_of_a_table_keeps_its_test_entries():
    table = small_table()
    less = table.thinned(0.25, 0)
    assert len(less.train) == round(0.25 * len(table.train))
    assert less.test is table.test
    assert table.matrix.nnz == len(table.train)


def test_the_given_split_of_movielens(data_directory):
    table = data.movielens(1.0, 0)
    assert (len(table.train), len(table.test), table.shape) == (80_000, 20_000, (943, 1682))


# ---------------------------------------------------------------------------------------------------- command


def test_tune_compute_and_report(small, capsys):
    assert command.main(["--tune", "--out", str(small)]) == 0
    chosen = json.loads((small / "chosen.json").read_text())
    assert set(chosen["small"]) == {"offsets", "dmf2", "l2"}
    assert "a_program_that_nobody_has is not installed" in capsys.readouterr().out
    for found in chosen["small"].values():
        assert found["validation_rmse"] == min(error for _, error in found["tried"])
    assert 0 < chosen["small"]["dmf2"]["settings"]["max_iter"] <= 30
    assert command.main(["--out", str(small), "--seeds", "2"]) == 0
    text = (small / "ratings.md").read_text()
    assert "a_program_that_nobody_has is not installed" in text
    assert "| two factors | " in text
    assert "`l2` − `dmf2`" in text
    files = sorted((small / "cells").glob("*.npz"))
    assert len(files) == 6  # three models, two draws of the table
    stamps = [file.stat().st_mtime_ns for file in files]
    assert command.main(["--out", str(small), "--seeds", "2"]) == 0
    assert [file.stat().st_mtime_ns for file in files] == stamps, "what is there is not computed again"


def test_a_model_without_settings_is_an_error(small, capsys):
    assert command.main(["--out", str(small), "--models", "l2"]) == 1
    assert "no settings chosen" in capsys.readouterr().err


def test_the_watch_chooses_the_best_iteration():
    table = small_table()
    watch = tuning._Watch(table)
    for iteration, error in ((5, 0.5), (10, 0.1), (15, 0.3), (20, 0.4)):
        assert not watch(iteration, np.minimum(table.test.values, 4.0) + error)
    assert watch.iteration == 10
    assert watch(500, table.test.values + 1.0), "long after the best it asks to stop"


def test_recorded_settings_belong_to_the_grids():
    """What is written down as chosen was tried, was the best of its grid, and is a grid that still stands."""
    everything = tuning.chosen()
    assert "movielens" in everything
    models = ABLATION | PEERS
    for models_of_table in everything.values():
        for name, found in models_of_table.items():
            tried = [{k: v for k, v in settings.items() if k != "max_iter"} for settings, _ in found["tried"]]
            grid = [{k: v for k, v in trial.items() if k != "max_iter"} for trial in models[name].trials()]
            assert tried == grid, name
            assert found["validation_rmse"] == min(error for _, error in found["tried"])
            assert [found["settings"], found["validation_rmse"]] in found["tried"]
