"""``python -m bench.coverage``, which counts how often intervals contain the truth."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from bench.cells import Cells, Method, Task
from bench.coverage import LEVELS, METHOD, Fits, main, summary
from bench.paper_rows import Problem, Row


def noisy(seed: int) -> Problem:
    rng = np.random.default_rng(seed)
    truth = rng.random((40, 2)) @ rng.random((2, 30)) + 0.05 * rng.standard_normal((40, 30))
    return Problem(truth, rng.random(truth.shape) < 0.7)


TINY = Fits({"noisy 30%": Row("noisy 30%", noisy, {})}, {METHOD: Method("AIR", noisy, is_fit=True)})


def test_fits_are_kept_and_their_intervals_counted(tmp_path, capsys):
    experiment = replace(TINY, folder=tmp_path)
    for seed in range(2):
        task = Task("noisy 30%", METHOD, seed, {})
        found = experiment.solve(replace(task, settings={"max_iter": 300}))
        experiment.path(replace(task, settings={"max_iter": 300})).rename(experiment.path(task))
        Cells(tmp_path).put(task, {"status": "done", **found})
    assert main(["--seeds", "3", "--report-only", "--out", str(tmp_path)], TINY) == 0
    assert "| noisy 30% | 2 |" in capsys.readouterr().out
    (row,) = json.loads((tmp_path / "coverage.json").read_text())["rows"]
    assert [line["level"] for line in row["levels"]] == list(LEVELS)
    for line in row["levels"]:
        assert line["lowest"] <= line["coverage"] <= line["highest"]
        assert abs(line["coverage"] - line["level"]) < 0.2
    widths = [line["width"] for line in row["levels"]]
    assert widths == sorted(widths)


@pytest.mark.parametrize(("coverage", "met"), [(0.47, True), (0.531, False)])
def test_a_level_is_met_within_three_points(coverage, met):
    lines = [{"level": level, "coverage": coverage, "width": 1.0} for level in LEVELS]
    cell = {"levels": lines, "held_out_error": 1.0, "missing_error": 1.0}
    found = summary("a", [cell])["levels"][0]
    assert found["met"] is met
    assert found["lowest"] == found["highest"] == coverage
