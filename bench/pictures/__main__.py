"""``python -m bench.pictures``; see the package."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import bench.pictures
from bench import measurements
from bench.cells import Cells, Record, Task, compute_missing, positive, processors, write_file
from bench.pictures import measure
from bench.pictures.methods import METHODS, Pictures
from bench.pictures.page import page
from bench.pictures.problems import CASES
from bench.pictures.summary import summarize
from bench.speed import RESULTS

EVERYTHING = Pictures(CASES, METHODS)
QUICK = {
    "picture": ("camera", "coffee"),
    "size": ("240",),
    "mask": ("30%", "patches"),
    "method": ("inpaint", "inpaint_fast", "biharmonic", "linear", "navier_stokes", "telea", "fsr"),
}
PAPER_SEEDS = 5
STALE = "stale"
TIMES = "times"
"""Folder of measurements of time and memory."""

PAGE = Path(__file__).parents[2] / "docs" / "pictures_measured.md"

Only = Mapping[str, Sequence[str]]
"""Accepted values of some of the fields half, picture, size, mask and method."""


def main(argv: Sequence[str] | None = None, experiment: Pictures = EVERYTHING) -> int:
    """Compute the missing cells and report; return 1 if cells failed, 130 after an interrupt."""
    arguments = _arguments(argv, experiment)
    folder = arguments.out / "quick" if arguments.quick else arguments.out
    only = (QUICK if arguments.quick else {}) | arguments.only
    tasks, cells = plan(experiment, only), Cells(folder)
    failed = 0
    if arguments.time:
        failed = sum(
            "failed" in measurements.measure(folder / TIMES, measure.__name__, kind, case, label=label)
            for kind, label, case in measure.cases(arguments.threads, quick=arguments.quick)
        )
    elif not arguments.report:
        for task in tasks:
            if _is_to_redo(cells.find(task), experiment, arguments.redo):
                cells.drop(task)
        try:
            failed = compute_missing(tasks, experiment, folder, arguments.jobs)
        except KeyboardInterrupt:
            print("interrupted; the next start goes on from here", file=sys.stderr)
            return 130
    summary = summarize(experiment, cells.all(), measurements.finished(folder / TIMES))
    text = page(experiment, summary)
    write_file(folder / "pictures.json", json.dumps(summary, indent=1) + "\n")
    write_file(folder / "pictures.md", text)
    if arguments.page is not None:
        write_file(arguments.page, text)
    print(text)
    if failed:
        what = "measurements" if arguments.time else "cells"
        print(f"{failed} {what} failed; the next start tries them again", file=sys.stderr)
    return 1 if failed else 0


def plan(experiment: Pictures, only: Only) -> list[Task]:
    """Return the wanted cells, seed by seed and method by method, so that quick methods come first."""
    return [
        Task(name, method, seed, dict(filler.settings))
        for seed in range(PAPER_SEEDS)
        for method, filler in experiment.methods.items()
        if _has(only, "method", method, default=not filler.on_request)
        for name, case in experiment.rows.items()
        if all(_has(only, field, getattr(case, field)) for field in ("half", "picture", "size", "mask"))
        if filler.suits(case) and seed in filler.seeds(case, PAPER_SEEDS if case.half == "paper" else 1)
    ]


def _has(only: Only, field: str, value: str, *, default: bool = True) -> bool:
    return value in only[field] if field in only else default


def _is_to_redo(record: Record | None, experiment: Pictures, redo: Sequence[str]) -> bool:
    if record is None:
        return False
    return record["method"] in redo or (STALE in redo and experiment.is_stale(record))


def _arguments(argv: Sequence[str] | None, experiment: Pictures) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.pictures",
        description=bench.pictures.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="two pictures, two masks")
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="FIELD=VALUE,…",
        help="fields: half, picture, size, mask, method",
    )
    parser.add_argument(
        "--redo",
        nargs="+",
        default=[],
        choices=[*experiment.methods, STALE],
        metavar="METHOD",
        help="delete the requested cells of these methods first; 'stale': those of other code",
    )
    parser.add_argument("--jobs", type=positive, default=processors(), help="processes (default: all cores)")
    parser.add_argument("--time", action="store_true", help="measure time and memory, compute no cells")
    parser.add_argument("--threads", type=positive, default=2, help="of --time (default 2)")
    parser.add_argument("--out", type=Path, default=RESULTS / "pictures")
    parser.add_argument("--report", action="store_true", help="compute nothing")
    parser.add_argument(
        "--page", type=Path, nargs="?", const=PAGE, help=f"write the report to a file, by default {PAGE.name}"
    )
    arguments = parser.parse_args(argv)
    try:
        arguments.only = _read_only(arguments.only, experiment)
    except ValueError as error:
        parser.error(str(error))
    if arguments.redo and (arguments.report or arguments.time):
        parser.error("--redo computes cells, --report and --time none")
    return arguments


def _read_only(words: Sequence[str], experiment: Pictures) -> dict[str, list[str]]:
    """Return the values of ``field=value,…`` words by field; raise ValueError for a value that is none."""
    cases = experiment.rows.values()
    known = {field: {getattr(case, field) for case in cases} for field in ("half", "picture", "size", "mask")}
    known["method"] = set(experiment.methods)
    only: dict[str, list[str]] = {}
    for word in words:
        field, _, values = word.partition("=")
        if field not in known:
            raise ValueError(f"--only: expected a field of {', '.join(known)}, got {word!r}")
        wrong = set(values.split(",")) - known[field]
        if wrong:
            raise ValueError(f"--only: expected {field} of {', '.join(sorted(known[field]))}, got {wrong}")
        only.setdefault(field, []).extend(values.split(","))
    return only


if __name__ == "__main__":
    sys.exit(main())
