"""``airnp complete --checkpoint`` and ``--resume``: a run that goes on after it was interrupted."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airnp.commands.base import (
    INTERRUPTED,
    OK,
    UsageError,
    given,
    positive_number,
    report,
    shows_progress,
)
from airnp.commands.completed import checked_files, rehearse, table_facts, table_line, written, written_lines
from airnp.commands.fitting import Fitted, place_of, timed
from airnp.commands.reading import labelled_table

if TYPE_CHECKING:
    from airnp.result import FitResult
    from airnp.tables import Table

_IN_THE_FILE = (
    *("mask", "truth", "bounds", "round", "auto", "form"),
    *("header", "index_col", "delimiter", "missing", "array"),
    *("seed", "regularizers", "rank", "depth", "dtype"),
)
"""Options that say what is fitted and how, which a run cannot change on its way."""


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what decides about runs that are saved and go on."""
    group = parser.add_argument_group("long runs")
    group.add_argument(
        "--checkpoint", type=Path, metavar="FILE.npz", help="save the run now and then, for --resume"
    )
    group.add_argument(
        "--checkpoint-every", type=positive_number, metavar="SECONDS", help="how often to save it (30)"
    )
    group.add_argument(
        "--resume",
        type=Path,
        metavar="FILE.npz",
        help="go on with a run from its checkpoint, which is kept up to date; --max-iter may give it more "
        "iterations",
    )


def check_run_options(options: argparse.Namespace) -> None:
    """Raise a UsageError for what makes no sense without ``--resume``."""
    if options.checkpoint_every is not None and options.checkpoint is None:
        raise UsageError("--checkpoint-every goes with --checkpoint or --resume")


def checkpoint_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return what is said about checkpoints as options of :func:`airnp.fit`."""
    found = {"checkpoint": options.checkpoint, "checkpoint_every": options.checkpoint_every}
    return {name: value for name, value in found.items() if value is not None}


def run(options: argparse.Namespace) -> int:
    """Go on with a run and write what comes of it."""
    name = "a table" if options.table is not None else given(options, _IN_THE_FILE)
    if name is not None:
        raise UsageError(f"{name} cannot be given with --resume: {options.resume} says what the run fits")
    files = checked_files(options)
    table = _table(options, _loaded(options.resume))
    rehearse(files, table)
    result, facts = _resumed(options)
    _, files_facts = written(options, files, table, table.observed, result)
    facts = {
        "command": "complete",
        "input": str(options.resume),
        **files_facts,
        "checkpoint": str(options.checkpoint or options.resume),
        **table_facts(table, table.observed),
        **facts,
        "nmae": None,
    }
    lines = [
        table_line(options.resume, table, facts),
        f"{facts['iterations']} iterations in all, after {facts['seconds']:.1f} s more: "
        f"{facts['stop_reason']}",
        *written_lines(facts),
    ]
    report(options, facts, "\n".join(lines))
    return INTERRUPTED if facts["stop_reason"] == "interrupted" else OK


def _loaded(path: Path) -> FitResult:
    import airnp

    try:
        return airnp.load(path)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _table(options: argparse.Namespace, result: FitResult) -> Table:
    """Return the table of a run: its labels, and NaN where it has gaps."""
    import numpy as np

    matrix = getattr(result, "matrix", None)
    if matrix is None:
        raise UsageError(f"{options.resume}: holds a sparse fit; Python's airnp.resume goes on with its run")
    if matrix.ndim != 2:
        raise UsageError(f"{options.resume}: is a stack of matrices; Python's airnp.resume goes on with it")
    if result.mask is None or result.observed is None:
        raise UsageError(f"{options.resume}: the run had an operator; Python's airnp.resume goes on with it")
    values = np.where(result.mask, result.observed, np.nan).astype(matrix.dtype)
    return labelled_table(values, result.labels, False if result.bounds is None else result.bounds.whole)


def _resumed(options: argparse.Namespace) -> tuple[FitResult, dict[str, Any]]:
    limit = math.inf if options.time_limit is None else options.time_limit
    return gone_on(options, limit, lambda result: result.to_numpy(), **place_of(options))


def gone_on(
    options: argparse.Namespace,
    limit: float | None,
    prepared: Callable[[Any], Fitted] = lambda result: result,
    **where: Any,
) -> tuple[Fitted, dict[str, Any]]:
    """Go on with the run in a file; return what ``prepared`` makes of its result, and how it went."""
    import airnp

    settings: dict[str, Any] = {
        "max_iter": options.max_iter,
        "threads": options.threads,
        "checkpoint": options.checkpoint or True,
        "checkpoint_every": options.checkpoint_every,
        "progress": shows_progress(options),
        **where,
    }
    path = str(options.resume)
    ours = {"operator": path, "regularizers": path, "stop": path, "optimizer": path, "xp": "--device"}
    try:
        return timed(limit, lambda clock: prepared(airnp.resume(path, callback=clock, **settings)), ours)
    except ValueError as error:
        if not str(error).startswith(f"{path}: "):
            raise
        raise UsageError(str(error)) from error
