"""``python -m bench.tables``: gaps, scores, summaries, and that cells are kept."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from bench.tables import __main__ as command
from bench.tables import data, protocol, unlike
from bench.tables.gaps import MECHANISMS, make_gaps
from bench.tables.measure import OURS, codes, measure, one_hot, scores, with_gaps
from bench.tables.peers import ON_REQUEST, PEERS


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_gaps_have_their_rate_and_mechanism(mechanism):
    values = np.random.default_rng(0).standard_normal((3000, 10))
    observed = make_gaps(values, 0.3, mechanism, seed=1)
    gappy = ~observed.all(axis=0)
    assert gappy.sum() == (7 if mechanism == "MAR" else 10)
    np.testing.assert_allclose((~observed).mean(axis=0)[gappy], 0.3, atol=0.04)
    np.testing.assert_array_equal(observed, make_gaps(values, 0.3, mechanism, seed=1))
    # Whether an entry is missing depends on other columns, unless gaps are completely at random.
    links = np.corrcoef(np.hstack([values, (~observed)[:, gappy]]).T)[:10, 10:]
    strongest = np.abs(links).max()
    assert strongest < 0.1 if mechanism == "MCAR" else strongest > 0.2


def test_every_row_and_column_keeps_entries():
    observed = make_gaps(np.random.default_rng(0).standard_normal((6, 2)), 0.5, "MCAR", seed=3)
    assert observed.any(axis=1).all()
    assert (observed.sum(axis=0) >= 2).all()


def test_blocks_are_missing_together_where_their_values_are_large():
    values = np.random.default_rng(0).standard_normal((3000, 10))
    gaps = ~make_gaps(values, 0.3, "blocks", seed=1)
    np.testing.assert_allclose(gaps.mean(axis=0), 0.3, atol=0.04)
    alike = np.corrcoef(gaps.T) > 0.7
    assert (alike.sum(axis=0) == 5).all()
    larger = [values[gone, j].mean() - values[~gone, j].mean() for j, gone in enumerate(gaps.T)]
    assert (np.array(larger) > 0.3).sum() == 2  # one column of each block decides


@pytest.mark.parametrize("name", [*data.TUNING, *data.REPORT, *unlike.STRANGE, *unlike.SEALED])
def test_tables_are_complete(name):
    dataset = data.load(name)
    assert not dataset.frame.isna().any(axis=None)
    assert dataset.target is None or len(dataset.target) == len(dataset.frame)
    assert codes(dataset.frame).shape == dataset.frame.shape


def test_tuning_and_report_have_nothing_in_common():
    assert not set(data.TUNING) & set(data.REPORT)
    assert not set(unlike.STRANGE) & set(unlike.SEALED)


def test_scores_and_encodings():
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0, 4.0], "b": pd.Categorical(["x", "y", "x", "y"])})
    dataset = data.Dataset("small", frame)
    observed = np.array([[False, True], [True, False], [True, True], [True, False]])
    filled = codes(frame)
    filled[0, 0] += frame["a"].std(ddof=0)
    filled[1, 1] = 0
    assert scores(filled, dataset, observed) == pytest.approx({"nrmse": 1.0, "error": 0.5})
    table, owners = one_hot(frame, observed)
    assert owners.tolist() == [0, 1, 1]
    np.testing.assert_array_equal(np.isnan(table), ~observed[:, owners])
    assert with_gaps(frame, observed).isna().to_numpy().tolist() == (~observed).tolist()


def test_a_cell_measures_all_methods():
    found = measure(data.load("linnerud"), "MCAR", 0.3, 0, (OURS, "mean", "iterative"), 1)
    assert set(found) == {OURS, "mean", "iterative"}
    assert all(each["nrmse"] > 0 and each["seconds"] > 0 for each in found.values())
    assert 0 <= found[OURS]["cover"] <= 1


def test_cells_are_kept_and_summed_up(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(command, "RATES", (0.3,))
    line = ["--tables", "linnerud", "--masks", "1", "--peers", "mean", "iterative", "--threads", "1"]
    line += ["--results", str(tmp_path)]
    assert command.main(line) == 0
    first = capsys.readouterr().out
    assert len(list(tmp_path.iterdir())) == 3
    monkeypatch.setattr(command, "measure", lambda *given: pytest.fail("a cell is computed again"))
    assert command.main(line) == 0
    assert capsys.readouterr().out.splitlines() == first.splitlines()[-3:]
    asked = []
    monkeypatch.setattr(command, "measure", lambda *given: asked.append(given[4]) or {})
    assert command.main([*line, "--again", OURS]) == 0
    assert asked == [[OURS]] * 3


def test_the_summary_compares_means_over_masks():
    def record(seed, ours, other):
        each = {"work": 1.0}
        found = {OURS: {"nrmse": ours, **each, "cover": 0.9}, "iterative": {"nrmse": other, "work": 2.0}}
        return {"table": "t", "mechanism": "MAR", "rate": 0.1, "seed": seed, "found": found}

    last = command.summary([record(0, 0.5, 0.9), record(1, 0.7, 0.6)]).splitlines()[-1].split()
    assert last[:4] == ["all", "0.800", "100%", "0.50"]


def test_coverage_of_columns_is_over_all_masks():
    found = [{OURS: {"inside": [[30, 40], [9, 10]]}}, {OURS: {"inside": [[50, 60], [8, 10]]}}, {OURS: {}}]
    np.testing.assert_array_equal(command._covered(found), [[80], [100]])  # the other column has 20 gaps
    assert command._covered([{OURS: {}}]).shape == (2, 0)


def test_the_protocol_runs_on_a_folder(tmp_path, capsys):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.standard_normal((60, 2)) @ rng.standard_normal((2, 5)), columns=list("abcde"))
    frame["kind"] = np.where(frame["a"] > 0, "x", "y")
    frame["target"] = (frame["b"] + frame["c"] > 0).astype(int)
    frame.to_csv(tmp_path / "small.csv", index=False)
    records = protocol.run(tmp_path, ("mean",), ("MCAR",))
    assert len(records) == 2 * protocol.REPEATS
    assert all(0 < r["rmse"] < 1 and 0 < r["wasserstein"] < 1 and 0.5 < r["auroc"] <= 1 for r in records)
    ours, mean = (np.mean([r["rmse"] for r in records if r["method"] == m]) for m in (OURS, "mean"))
    assert ours < mean
    assert command.main(["--folder", str(tmp_path), "--peers", "mean"]) == 0
    assert "MNAR" in capsys.readouterr().out


def test_peers_fill_everything():
    rng = np.random.default_rng(1)
    table = np.where(rng.random((30, 4)) < 0.2, np.nan, rng.standard_normal((30, 4)))
    for name, impute in PEERS.items():
        if name in ON_REQUEST:
            continue
        filled = impute(table.copy(), 0)
        assert np.isfinite(filled).all(), name
        np.testing.assert_allclose(filled[~np.isnan(table)], table[~np.isnan(table)], err_msg=name)
