"""The paper's first table: the error of every method on eleven rows, beside the printed numbers.

    python -m bench.table1                # everything, over five seeds: hours; stop it and start it at will
    python -m bench.table1 --quick        # three rows, few iterations, one seed: less than a minute
    python -m bench.table1 --rows "Barbara 30%" --methods knn svd --seeds 1
    python -m bench.table1 --redo air     # forget the cells of a method first
    python -m bench.table1 --report-only  # only write the tables again

In a clone, with ``pip install -e ".[data,baselines]"``; the data come from :mod:`airnp.datasets`. A cell is
one row, method and seed. The seed moves the method, and the mask where that is random; where neither
depends on it there is one run. PNMC, RDMF and biharmonic inpainting, which need neighbouring entries to
mean neighbouring things, run on images only, DMF+DE on the others only, as in the paper. ``air`` is
:func:`airnp.fit` with its defaults; ``air_full`` is the same without a stop, and only serves to measure the
regret of the stopping rule. No method is shown a missing entry; the truth that AIR's runs record decides
nothing.

Each finished cell is one file in ``OUT/cells``, written in one piece: a second start computes only what is
missing. Failed cells are shown as failed and tried again. A cell belongs to the settings of its method
(``--full-iterations``, ``--quick``), so those of other settings are never mixed in. It does **not** expire
when airnp itself changes: the tables then name the methods whose cells come from other code, and ``--redo
stale`` computes these again. ``--redo`` keeps to the rows, methods and seeds that are asked for.

``OUT/table1.json`` (all cells and what follows from them), ``.md`` and ``.html`` are written from all cells
of the folder, also while it runs. ``--quick`` has a folder of its own inside OUT. Cells run side by side in
``--jobs`` processes of one thread each, so seconds are those of a busy machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from bench.speed import RESULTS
from bench.table1_cells import Cells, Record, write_whole
from bench.table1_methods import PAPER, Experiment, Task
from bench.table1_pages import as_html, as_markdown
from bench.table1_sections import number, sections
from bench.table1_summary import AIR, NEVER_STOPPED, is_stale, summarize
from bench.table1_workers import compute_all

QUICK_ROWS = ("Barbara 30%", "Syn-Netflix 70%", "IC 20%")
QUICK_METHODS = ("mean", "knn", "svd", "biharmonic", "dmf", "dmf_de", AIR, NEVER_STOPPED)
QUICK_ITERATIONS = 300
STALE = "stale"

_WRITE_EVERY = 30.0
"""Seconds between two reports while cells are being computed."""


def main(argv: Sequence[str] | None = None, experiment: Experiment = PAPER) -> int:
    """Compute what is missing and write the tables; return 1 if cells failed, 130 after an interrupt."""
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
    """The cells that are asked for, and the report on all that the folder has."""

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
        # Seed by seed: the first whole table is there after a fifth of the time.
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
        """Drop the cells of some methods, or those of other code."""
        for task in self.tasks:
            record = self._cells.find(task)
            if record is not None and (
                task.method in methods or (STALE in methods and is_stale(record, self._experiment))
            ):
                self._cells.drop(task)

    def compute(self, jobs: int) -> int:
        """Compute what is not there; return how many cells failed."""
        waiting = [task for task in self.tasks if not self._cells.is_finished(task)]
        print(f"{len(self.tasks) - len(waiting)} of {len(self.tasks)} cells are there", file=sys.stderr)
        clock = _Clock(waiting, jobs, list(self._cells.all()))
        failed, written = 0, time.monotonic()
        with closing(compute_all(waiting, self._experiment, self._folder, jobs)) as found:
            for count, (task, record) in enumerate(found, start=1):
                failed += record["status"] == "failed"
                clock.finish(task, record)
                place = f"[{count}/{len(waiting)}] {task.row} · {task.method} · seed {task.seed}"
                print(f"{place}: {_said(record)}{clock.left()}", file=sys.stderr, flush=True)
                if time.monotonic() - written > _WRITE_EVERY:
                    self.report()
                    written = time.monotonic()
        return failed

    def report(self) -> str:
        """Write JSON, Markdown and HTML from the cells of the folder; return the Markdown.

        Rows, methods and seeds are those asked for and all that there is a cell of.
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
            rows=_also(experiment.rows, self._rows, [cell["row"] for cell in cells]),
            methods=_also(experiment.methods, self._methods, [cell["method"] for cell in cells]),
            seeds=max([self._seeds, *(cell["seed"] + 1 for cell in cells)]),
        )
        title = "Table 1" + (
            ", quick: few iterations, which say nothing about quality" if self._quick else ""
        )
        found = sections(summary)
        text = as_markdown(title, found)
        write_whole(self._folder / "table1.json", json.dumps(summary, indent=1) + "\n")
        write_whole(self._folder / "table1.md", text)
        write_whole(self._folder / "table1.html", as_html(title, found))
        return text


def _also(order: Sequence[str], asked: Sequence[str], found: Sequence[str]) -> list[str]:
    return [name for name in order if name in asked or name in found]


class _Clock:
    """Guesses how long the cells that are left will take, from cells like them."""

    def __init__(self, waiting: Sequence[Task], jobs: int, known: Sequence[Record]) -> None:
        self._waiting = list(waiting)
        self._jobs = jobs
        self._seconds: dict[tuple[str, ...], list[float]] = {}
        for record in known:
            self._learn(record)

    def _learn(self, record: Record) -> None:
        if record["status"] == "done":
            for like in ((), (record["method"],), (record["method"], record["row"])):
                self._seconds.setdefault(like, []).append(record["seconds"])

    def finish(self, task: Task, record: Record) -> None:
        self._waiting.remove(task)
        self._learn(record)

    def left(self) -> str:
        if not self._waiting or not self._seconds:
            return ""
        minutes = sum(map(self._guess, self._waiting)) / self._jobs / 60
        return f"; about {minutes:.0f} min left" if minutes >= 1 else ""

    def _guess(self, task: Task) -> float:
        for like in ((task.method, task.row), (task.method,), ()):
            if like in self._seconds:
                return statistics.fmean(self._seconds[like])
        return 0.0


def _said(record: Record) -> str:
    if record["status"] == "failed":
        return f"failed: {record['error']}"
    return f"{number(record['nmae'])} in {record['seconds']:.1f} s"


def _arguments(argv: Sequence[str] | None, experiment: Experiment) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="three rows, few iterations, one seed")
    parser.add_argument("--rows", nargs="+", choices=list(experiment.rows), metavar="ROW")
    parser.add_argument("--methods", nargs="+", choices=list(experiment.methods), metavar="METHOD")
    parser.add_argument("--seeds", type=_positive, help="how many, from 0 on (default 5; 1 with --quick)")
    parser.add_argument(
        "--jobs", type=_positive, default=_processors(), help="processes (default: all cores)"
    )
    parser.add_argument("--out", type=Path, default=RESULTS / "table1")
    parser.add_argument(
        "--full-iterations", type=_positive, help="iterations of air_full (default 20 000; 300 with --quick)"
    )
    parser.add_argument(
        "--redo",
        nargs="+",
        default=[],
        choices=[*experiment.methods, STALE],
        metavar="METHOD",
        help="forget the cells of these methods first; 'stale': those of other code",
    )
    parser.add_argument("--report-only", action="store_true", help="compute nothing, write the tables again")
    arguments = parser.parse_args(argv)
    if arguments.report_only and arguments.redo:
        parser.error("--redo computes cells, --report-only none")
    arguments.seeds = arguments.seeds or (1 if arguments.quick else 5)
    return arguments


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")
    return int(text)


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


if __name__ == "__main__":
    sys.exit(main())
