"""The paper's first table: the error of every method on eleven rows, beside the printed numbers.

    python -m bench.table1                # everything, over five seeds: hours; can be stopped and resumed
    python -m bench.table1 --quick        # three rows, few iterations, one seed: less than a minute
    python -m bench.table1 --rows "Barbara 30%" --methods knn svd --seeds 1
    python -m bench.table1 --redo air     # delete the cells of a method first
    python -m bench.table1 --report-only  # only write the tables again

In a clone, with ``pip install -e ".[data,baselines,bench]"``; the data come from :mod:`airnp.datasets`.

A cell is one row, method and seed. The seed is that of the method and, if the mask is random, of the mask; if
neither depends on it there is one run. PNMC, RDMF and inpainting need neighbouring entries to be related and
run on images only, DMF+DE on the other rows only, as in the paper. ``air`` is :func:`airnp.fit`
with its defaults; ``air_full`` is the same without a stop and only serves to measure the regret of the
stopping rule. No method sees a missing entry; the runs of AIR record the truth, but do not use it.

Each finished cell is one file in ``OUT/cells``, written atomically: the next start computes only the missing
ones, and tries failed ones again. Cells with other settings (``--full-iterations``, ``--quick``) are other
cells. A cell does **not** expire when airnp changes: the tables then name the methods whose cells come from
other code, and ``--redo stale`` computes these again. ``--redo`` applies to the requested rows, methods and
seeds.

``OUT/table1.json`` (all cells and statistics), ``.md`` and ``.html`` are written from all cells of the
folder, also during the run. ``--quick`` has a folder of its own inside OUT. Cells run in ``--jobs`` processes
of one thread each, so seconds are those of a busy machine.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import airnp
from airnp import baselines
from bench.cells import (
    Cells,
    Experiment,
    Method,
    Task,
    compute_missing,
    positive,
    processors,
    write_file,
)
from bench.paper_rows import COLUMNS, ROWS, Problem
from bench.speed import RESULTS
from bench.table1_page import (
    AIR,
    NEVER_STOPPED,
    RECORD_EVERY,
    as_html,
    as_markdown,
    sections,
    summarize,
)


def _baseline(name: str, problem: Problem, seed: int, **settings: Any) -> tuple[Any, dict[str, Any]]:
    options = dict(settings)
    if METHODS[name].is_seeded:
        options["seed"] = seed
    if name in ("dmf", "rdmf", "dmf_de"):
        options["engine"] = airnp.CPU(threads=1)
    if name == "dmf_de":
        options |= problem.graphs
    return baselines.METHODS[name](problem.observed, problem.mask, **options), {}


def _air(problem: Problem, seed: int, **settings: Any) -> tuple[Any, dict[str, Any]]:
    """Run AIR with its defaults and ``settings``. The truth is recorded, and decides nothing."""
    result = problem.fit(seed, record=airnp.Record(RECORD_EVERY, problem.truth), **settings)
    points = zip(result.history["iteration"], result.history["nmae"], strict=True)
    return result.X, {
        "n_iter": int(result.n_iter),
        "best_iter": int(result.best_iter),
        "stop_reason": result.stop_reason,
        "trajectory": [[int(iteration), float(f"{nmae:.6g}")] for iteration, nmae in points],
    }


def _of(baseline: str, title: str, **options: Any) -> Method:
    column = baseline if baseline in COLUMNS else None
    return Method(title, partial(_baseline, baseline), column=column, **options)


def _complete(problem: Problem, seed: int) -> tuple[Any, dict[str, Any]]:
    found = airnp.complete(problem.observed, problem.mask, seed=seed, threads=1)
    return found.X, {"model": found.model, "expected": found.expected}


METHODS = {
    "mean": _of("mean", "mean", is_seeded=False),
    "knn": _of("knn", "KNN", is_seeded=False),
    "svd": _of("svd", "SVD"),
    "soft_impute": _of("soft_impute", "SoftImpute"),
    "pnmc": _of("pnmc", "PNMC", rows="images"),
    "linear": _of("linear", "linear", rows="images", is_seeded=False),
    "biharmonic": _of("biharmonic", "biharmonic", rows="images", is_seeded=False),
    "navier_stokes": _of("navier_stokes", "Navier-Stokes", rows="images", is_seeded=False),
    "telea": _of("telea", "Telea", rows="images", is_seeded=False),
    "fsr": _of("fsr", "FSR", rows="images", is_seeded=False),
    "dmf": _of("dmf", "DMF, last iterate", is_fit=True),
    # At most as many iterations as AIR.
    "dmf_auto": _of("dmf", "DMF, stopped", settings={"stop": "auto", "max_iter": 40_000}, is_fit=True),
    "rdmf": _of("rdmf", "RDMF", rows="images", is_fit=True),
    "dmf_de": _of("dmf_de", "DMF+DE", rows="others", is_fit=True),
    AIR: Method("AIR", _air, column="air", is_fit=True),
    "complete": Method("complete", _complete),
    NEVER_STOPPED: Method("AIR, never stopped", _air, {"stop": None, "max_iter": 20_000}, is_fit=True),
}
PAPER = Experiment(ROWS, METHODS)

QUICK_ROWS = ("Barbara 30%", "Syn-Netflix 70%", "IC 20%")
QUICK_METHODS = ("mean", "knn", "svd", "biharmonic", "dmf", "dmf_de", AIR, NEVER_STOPPED)
QUICK_ITERATIONS = 300
STALE = "stale"


def main(argv: Sequence[str] | None = None, experiment: Experiment = PAPER) -> int:
    """Compute the missing cells and write the tables; return 1 if cells failed, 130 after an interrupt."""
    arguments = _arguments(argv, experiment)
    folder = arguments.out / "quick" if arguments.quick else arguments.out
    plan = Plan(experiment, folder, arguments)
    if arguments.report_only:
        print(plan.report())
        return 0
    plan.forget(arguments.redo)
    try:
        failed = plan.compute(arguments.jobs)
    except KeyboardInterrupt:
        plan.report()
        print("interrupted; the next start goes on from here", file=sys.stderr)
        return 130
    print(plan.report())
    print(f"written to {folder}", file=sys.stderr)
    if failed:
        print(f"{failed} cells failed; the next start tries them again", file=sys.stderr)
    return 1 if failed else 0


class Plan:
    """The requested cells, and the report on all cells of the folder."""

    def __init__(self, experiment: Experiment, folder: Path, arguments: argparse.Namespace) -> None:
        self._experiment, self._folder, self._quick = experiment, folder, arguments.quick
        self._iterations = arguments.full_iterations
        self._cells = Cells(folder)
        self._seeds = arguments.seeds
        self._rows = arguments.rows or [
            row for row in experiment.rows if not arguments.quick or row in QUICK_ROWS
        ]
        self._methods = arguments.methods or [
            method for method in experiment.methods if not arguments.quick or method in QUICK_METHODS
        ]
        # Seed by seed, so that the first whole table is there after a fifth of the time.
        self.tasks = [
            Task(row, method, seed, self._settings(method))
            for seed in range(arguments.seeds)
            for row in self._rows
            for method in self._methods
            if self._has(row, method, seed)
        ]

    def _has(self, row: str, method: str, seed: int) -> bool:
        chosen, line = self._experiment.methods[method], self._experiment.rows[row]
        return chosen.suits(line) and seed in chosen.seeds(line, self._seeds)

    def _settings(self, name: str) -> dict[str, object]:
        method = self._experiment.methods[name]
        settings = dict(method.settings)
        if method.is_fit and self._quick:
            settings["max_iter"] = QUICK_ITERATIONS
        elif name == NEVER_STOPPED and self._iterations is not None:
            settings["max_iter"] = self._iterations
        return settings

    def forget(self, methods: Sequence[str]) -> None:
        """Delete the cells of some methods, or those that another version of the code computed."""
        for task in self.tasks:
            record = self._cells.find(task)
            if record is not None and (
                task.method in methods or (STALE in methods and self._experiment.is_stale(record))
            ):
                self._cells.drop(task)

    def compute(self, jobs: int) -> int:
        """Compute the missing cells; return how many failed."""
        return compute_missing(self.tasks, self._experiment, self._folder, jobs, self.report)

    def report(self) -> str:
        """Write JSON, Markdown and HTML from the cells of the folder; return the Markdown.

        It covers the requested rows, methods and seeds, and all others that have a cell.
        """
        experiment = self._experiment
        cells = [
            cell
            for cell in self._cells.all()
            if cell["row"] in experiment.rows
            and cell["method"] in experiment.methods
            and cell["settings"] == self._settings(cell["method"])
        ]
        summary = summarize(
            experiment,
            cells,
            rows=_union(experiment.rows, self._rows, [cell["row"] for cell in cells]),
            methods=_union(experiment.methods, self._methods, [cell["method"] for cell in cells]),
            seeds=max([self._seeds, *(cell["seed"] + 1 for cell in cells)]),
        )
        title = "Table 1" + (
            ", quick: few iterations, which say nothing about quality" if self._quick else ""
        )
        content = sections(summary)
        text = as_markdown(title, content)
        write_file(self._folder / "table1.json", json.dumps(summary, indent=1) + "\n")
        write_file(self._folder / "table1.md", text)
        write_file(self._folder / "table1.html", as_html(title, content))
        return text


def _union(order: Iterable[str], first: Sequence[str], second: Sequence[str]) -> list[str]:
    return [name for name in order if name in first or name in second]


def _arguments(argv: Sequence[str] | None, experiment: Experiment) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="three rows, few iterations, one seed")
    parser.add_argument("--rows", nargs="+", choices=list(experiment.rows), metavar="ROW")
    parser.add_argument("--methods", nargs="+", choices=list(experiment.methods), metavar="METHOD")
    parser.add_argument("--seeds", type=positive, help="how many, from 0 on (default 5; 1 with --quick)")
    parser.add_argument("--jobs", type=positive, default=processors(), help="processes (default: all cores)")
    parser.add_argument("--out", type=Path, default=RESULTS / "table1")
    parser.add_argument(
        "--full-iterations", type=positive, help="iterations of air_full (default 20 000; 300 with --quick)"
    )
    parser.add_argument(
        "--redo",
        nargs="+",
        default=[],
        choices=[*experiment.methods, STALE],
        metavar="METHOD",
        help="delete the cells of these methods first; 'stale': those of other code",
    )
    parser.add_argument("--report-only", action="store_true", help="compute nothing, write the tables again")
    arguments = parser.parse_args(argv)
    if arguments.report_only and arguments.redo:
        parser.error("--redo computes cells, --report-only none")
    arguments.seeds = arguments.seeds or (1 if arguments.quick else 5)
    return arguments


if __name__ == "__main__":
    sys.exit(main())
