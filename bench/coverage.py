"""Coverage and width of intervals of missing entries, on the paper's eleven rows.

    python -m bench.coverage                # everything, over five seeds; can be stopped and resumed
    python -m bench.coverage --quick        # three rows, few iterations, one seed: less than a minute
    python -m bench.coverage --rows "IC 20%" --seeds 2
    python -m bench.coverage --redo         # delete the fits first
    python -m bench.coverage --report-only  # only write the table again

In a clone, with ``pip install -e ".[data]"``; the data come from :mod:`airnp.datasets`. Three rows of another
picture, which influenced no default, are added. A cell is a row and a seed: :func:`airnp.fit` with its
defaults, and ``result.interval(level)`` at four levels. The seed is that of the fit, of the entries that it
holds out and, if the mask is random, of the mask. Coverage is the share of missing entries whose true value
is inside; widths are means over missing entries, in units of the data's range. "Constant" is an interval of
one width for all entries, calibrated by the same entries.

Each finished fit is kept in ``OUT/cells``; the next start computes only the missing ones. Every start
measures the intervals of all requested fits that are finished, and writes ``OUT/coverage.json`` and ``.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import airnp
from airnp.results import calibration as conformal
from bench.cells import Cells, Experiment, Method, Record, Task, compute_all, write_file
from bench.paper_rows import ROWS, Problem, Row, load
from bench.speed import RESULTS
from bench.timing import markdown

LEVELS = (0.5, 0.8, 0.9, 0.95)
WITHIN = 0.03
"""The largest accepted distance of a row's mean coverage from its level."""

QUICK_ROWS = ("Barbara 30%", "Syn-Netflix 70%", "IC 20%")
QUICK_ITERATIONS = 300


@dataclass(frozen=True)
class Fits(Experiment):
    """One fit per row and seed with all defaults; results are saved, to measure their intervals later."""

    folder: Path = RESULTS / "coverage"

    def path(self, task: Task) -> Path:
        """Return the file of the result."""
        return Cells(self.folder).path(task).with_suffix(".npz")

    def solve(self, task: Task) -> dict[str, Any]:
        """Fit and save."""
        problem = self.rows[task.row].load(task.seed)
        start = time.perf_counter()
        result = problem.fit(task.seed, **task.settings)
        seconds = round(time.perf_counter() - start, 3)
        path = self.path(task)
        path.parent.mkdir(parents=True, exist_ok=True)
        result.save(path)
        return {"seconds": seconds, "n_iter": int(result.n_iter), "stop_reason": result.stop_reason}


METHOD = "air"
UNUSED = {
    name: Row(name, partial(load, name), {}, has_fixed_mask=not name.endswith("%"), is_image=True)
    for name in ("Cameraman 30%", "Cameraman patch", "Cameraman texture")
}
"""Rows beyond the paper's; they influenced no default."""

PAPER = Fits(ROWS | UNUSED, {METHOD: Method("AIR", airnp.fit, is_fit=True)})


def measure(problem: Problem, result: airnp.FitResult) -> dict[str, Any]:
    """Compare the intervals of a fit with the truth."""
    missing = ~problem.mask
    truth, predicted = (array[missing].astype(np.float64) for array in (problem.truth, result.matrix))
    span = float(np.ptp(problem.truth[problem.mask]))
    residuals = result.calibration.errors
    levels = []
    for level in LEVELS:
        lower, upper = (side[missing].astype(np.float64) for side in result.interval(level))
        constant = conformal.quantile(residuals, level)
        levels.append(
            {
                "level": level,
                "coverage": float(((lower <= truth) & (truth <= upper)).mean()),
                "width": float((upper - lower).mean()) / span,
                "constant_coverage": float((np.abs(truth - predicted) <= constant).mean()),
                "constant_width": 2 * constant / span,
            }
        )
    return {
        "levels": levels,
        "held_out": len(residuals),
        "held_out_error": float(residuals.mean()) / span,
        "missing_error": float(np.abs(truth - predicted).mean()) / span,
    }


def main(argv: Sequence[str] | None = None, experiment: Fits = PAPER) -> int:
    """Compute the missing fits and write the table; return 1 if fits failed, 130 after an interrupt."""
    arguments = _arguments(argv, experiment)
    folder = arguments.out / "quick" if arguments.quick else arguments.out
    experiment = replace(experiment, folder=folder)
    settings = {"max_iter": QUICK_ITERATIONS} if arguments.quick else {}
    rows = arguments.rows or [row for row in experiment.rows if not arguments.quick or row in QUICK_ROWS]
    seeds = range(arguments.seeds or (1 if arguments.quick else 5))
    tasks = [Task(row, METHOD, seed, settings) for seed in seeds for row in rows]
    cells = Cells(folder)
    if arguments.redo:
        for task in tasks:
            cells.drop(task)
    waiting = [] if arguments.report_only else [task for task in tasks if not cells.is_finished(task)]
    if waiting:
        print(f"{len(waiting)} of {len(tasks)} fits are to be made", file=sys.stderr)
    failed = 0
    try:
        with closing(compute_all(waiting, experiment, folder, arguments.jobs)) as found:
            for count, (task, record) in enumerate(found, start=1):
                failed += record["status"] == "failed"
                place = f"[{count}/{len(waiting)}] {task.row} · seed {task.seed}"
                print(f"{place}: {_outcome(record)}", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        print("interrupted; the next start goes on from here", file=sys.stderr)
        return 130
    finally:
        text = _report(experiment, [task for task in tasks if cells.is_finished(task)])
    print(text)
    return 1 if failed else 0


def _outcome(record: Record) -> str:
    if record["status"] == "failed":
        return f"failed: {record['error']}"
    return f"{record['n_iter']} iterations in {record['seconds']:.0f} s"


def _report(experiment: Fits, tasks: Sequence[Task]) -> str:
    """Measure the intervals of finished fits; write JSON and Markdown, and return the Markdown."""
    cells = []
    for task in tasks:
        problem, result = experiment.rows[task.row].load(task.seed), airnp.load(experiment.path(task))
        cells.append({"row": task.row, "seed": task.seed, **measure(problem, result)})
    names = dict.fromkeys(task.row for task in tasks)
    rows = [summary(name, [cell for cell in cells if cell["row"] == name]) for name in names]
    text = as_markdown(rows) + "\n"
    write_file(
        experiment.folder / "coverage.json", json.dumps({"rows": rows, "cells": cells}, indent=1) + "\n"
    )
    write_file(experiment.folder / "coverage.md", text)
    return text


def summary(name: str, cells: Sequence[Record]) -> dict[str, Any]:
    """Return the means of a row over its seeds, and the lowest and highest coverage, level by level."""
    levels = []
    for position, level in enumerate(LEVELS):
        lines = [cell["levels"][position] for cell in cells]
        shares = [line["coverage"] for line in lines]
        means = {key: float(np.mean([line[key] for line in lines])) for key in lines[0] if key != "level"}
        is_met = bool(abs(means["coverage"] - level) <= WITHIN + 1e-9)
        levels.append({"level": level, **means, "lowest": min(shares), "highest": max(shares), "met": is_met})
    errors = {
        key: float(np.mean([cell[key] for cell in cells])) for key in ("held_out_error", "missing_error")
    }
    return {"row": name, "seeds": len(cells), "levels": levels, **errors}


def as_markdown(rows: Sequence[dict[str, Any]]) -> str:
    """Return the table: mean coverage (lowest to highest) in percent, and widths at 90 %."""
    header = ["", "seeds", *(f"{100 * level:g} %" for level in LEVELS)]
    header += ["width at 90 %", "constant width", "its coverage", "error: missing / held out"]
    body = []
    for row in rows:
        at_90 = row["levels"][LEVELS.index(0.9)]
        body.append(
            [
                row["row"],
                str(row["seeds"]),
                *map(_field, row["levels"]),
                f"{at_90['width']:.3g}",
                f"{at_90['constant_width']:.3g}",
                f"{100 * at_90['constant_coverage']:.1f}",
                f"{row['missing_error'] / row['held_out_error']:.2f}",
            ]
        )
    return markdown(header, body)


def _field(line: dict[str, Any]) -> str:
    share, low, high = (100 * line[key] for key in ("coverage", "lowest", "highest"))
    spread = f" ({low:.1f}–{high:.1f})" if low < high else ""
    return f"{share:.1f}{spread} {'✓' if line['met'] else '✗'}"


def _arguments(argv: Sequence[str] | None, experiment: Experiment) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="three rows, few iterations, one seed")
    parser.add_argument("--rows", nargs="+", choices=list(experiment.rows), metavar="ROW")
    parser.add_argument("--seeds", type=int, help="how many, from 0 on (default 5; 1 with --quick)")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: all cores)"
    )
    parser.add_argument("--out", type=Path, default=RESULTS / "coverage")
    parser.add_argument("--redo", action="store_true", help="delete the requested fits first")
    parser.add_argument("--report-only", action="store_true", help="compute nothing, write the table again")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
