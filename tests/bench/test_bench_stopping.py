"""``python -m bench.stopping``, which measures the regret of the automatic stop."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from bench.cells import Experiment
from bench.paper_rows import Problem
from bench.stopping import CASES, EXPERIMENT, Case, main, report, summary
from bench.table1_page import AIR, NEVER_STOPPED


def noisy(rank: int, seed: int) -> Problem:
    rng = np.random.default_rng(rank)
    truth = rng.random((20, rank)) @ rng.random((rank, 15)) + 0.1 * rng.standard_normal((20, 15))
    return Problem(truth.astype(np.float32), rng.random(truth.shape) < 0.7)


TINY = Experiment(
    {
        f"rank {rank}": Case(f"rank {rank}", partial(noisy, rank), {}, half=half)
        for rank, half in ((1, "tuning"), (2, "report"))
    },
    {
        name: replace(method, settings={**method.settings, "max_iter": 200})
        for name, method in EXPERIMENT.methods.items()
    },
)


def test_cells_are_computed_once_and_both_halves_reported(tmp_path, capsys):
    options = ["--seeds", "2", "--jobs", "1", "--out", str(tmp_path)]
    assert main(options, TINY) == 0
    first = capsys.readouterr()
    assert "0 of 6 cells are there" in first.err
    assert "| rank 1 | tuning | 2 |" in first.out
    assert "report: 2 fits of 1 problems, regret" in first.out
    assert (tmp_path / "stopping.md").read_text().strip() == first.out.strip()
    assert main([*options, "--redo"], TINY) == 0
    second = capsys.readouterr()
    assert "6 of 6 cells are there" in second.err
    assert second.out == first.out
    assert main([*options, "--half", "report", "--report-only"], TINY) == 0
    assert "rank 1" not in capsys.readouterr().out


def test_regret_is_against_both_runs_and_spread_against_the_best_seed():
    def cell(seed: int, nmae: float, *trajectory: float, method: str = AIR) -> dict:
        points = [[100 * look, error] for look, error in enumerate(trajectory, start=1)]
        run = {"row": "rank 2", "method": method, "seed": seed, "nmae": nmae, "n_iter": 1000 * (seed + 1)}
        return {**run, "trajectory": points}

    cells = [
        cell(0, 0.11, 0.2, 0.10),
        cell(0, 0.5, 0.2, 0.08, 0.5, method=NEVER_STOPPED),
        cell(1, 0.22, 0.3, 0.20),
    ]
    (found,) = summary(cells)
    assert found["regret"] == pytest.approx([0.11 / 0.08 - 1, 0.1])
    text = report(TINY, cells)
    assert "| rank 2 | report | 2 | 0.16500 | 23.8% | 37.5% | 2.000 | 1500 |" in text
    assert "spread 2.00 at worst" in text


def test_every_problem_has_one_mask_and_belongs_to_a_half():
    assert {case.half for case in CASES.values()} == {"tuning", "report"}
    for name in ("binary 70%", "walks 30%"):
        first, second = (CASES[name].load(seed) for seed in (0, 1))
        np.testing.assert_array_equal(first.mask, second.mask)
        np.testing.assert_array_equal(first.truth, second.truth)
        assert first.mask.mean() == pytest.approx(1 - float(name[-3:-1]) / 100, abs=0.02)
