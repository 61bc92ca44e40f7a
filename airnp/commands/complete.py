"""``airnp complete``: fill the gaps of a table."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airnp.commands import resuming, sparse_complete
from airnp.commands.base import (
    INTERRUPTED,
    OK,
    Command,
    UsageError,
    add_talk_arguments,
    report,
    shows_progress,
)
from airnp.commands.completed import (
    add_completed_arguments,
    checked_files,
    rehearse,
    table_facts,
    table_line,
    written,
    written_lines,
)
from airnp.commands.fitting import add_fit_arguments, explained, fit_options, fit_within
from airnp.commands.limits import add_bounds_argument, bounds_of, check_within
from airnp.commands.reading import add_reading_arguments, labels_of, reading_of

if TYPE_CHECKING:
    from airnp.result import FitResult
    from airnp.tables import Table
    from airnp.tables.table import Values

DESCRIPTION = """\
Fill the gaps of a table of numbers. Formats go by the name: .csv and .tsv (also .gz), .npy, .npz, .mtx,
.parquet. Labels are kept where the format of the output has them. Missing are empty cells, NaN, NA, n/a, null
and none, in a sparse matrix (.mtx, .npz of SciPy) all entries that are not stored.

Numbers that are there stay as they are; --fitted writes the model's own values in their place.

With --checkpoint a run that was interrupted, killed or out of time can go on: --resume FILE takes its data
and its settings from the file, and ends with the numbers of an uninterrupted run.
"""

EXAMPLES = """\
  airnp complete ratings.csv -o filled.csv
  airnp complete ratings.csv -o filled.csv --bounds 1 5 --round
  airnp complete sensors.csv -o filled.csv --auto
  airnp complete sensors.csv -o filled.csv --interval 0.9
  airnp complete sensors.parquet -o filled.parquet --index-col time --missing -999
  airnp complete values.npy --mask observed.npy -o filled.npy --device cuda
  airnp complete large.npy -o filled.npy --checkpoint run.npz --time-limit 3600
  airnp complete --resume run.npz -o filled.npy --force
  airnp complete links.mtx -o filled.npz --form sparse --rank 32
  airnp complete links.mtx -o filled.npz --result learned.npz && airnp graph learned.npz -o graph.csv
"""


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("table", type=Path, nargs="?", help="file to read, unless --resume is given")
    add_completed_arguments(parser)
    add_bounds_argument(parser, "clip what is filled in; numbers that are there must be within")
    parser.add_argument(
        "--round",
        action="store_true",
        help="round what is filled into columns whose numbers are all whole",
    )
    parser.add_argument(
        "--mask", type=Path, metavar="FILE", help="table of 1 (observed) and 0 (missing); gaps stay missing"
    )
    parser.add_argument(
        "--truth",
        type=Path,
        metavar="FILE",
        help="the complete table, to report the error (NMAE) of the gaps",
    )
    parser.add_argument(
        "--auto",
        action="store_true",
        help="try several settings, take what predicts held-out numbers best, and report the error to expect "
        "(takes about five times as long)",
    )
    resuming.add_run_arguments(parser)
    add_reading_arguments(parser)
    add_fit_arguments(parser)
    sparse_complete.add_form_argument(parser)
    add_talk_arguments(parser)


def _run(options: argparse.Namespace) -> int:
    if options.resume is not None:
        return resuming.run(options)
    if options.table is None:
        raise UsageError("the following arguments are required: table, or --resume")
    resuming.check_run_options(options)
    matrix = sparse_complete.wanted(options)
    return _run_dense(options) if matrix is None else sparse_complete.run(options, matrix)


def _run_dense(options: argparse.Namespace) -> int:
    from airnp import tables

    _check_choice(options)
    files = checked_files(options)
    table = tables.read(options.table, reading_of(options))
    observed = _observed(options, table)
    width = table.values.shape[1]
    check_within(options, options.table, table.values.ravel(), lambda k: table.place(*divmod(k, width)))
    truth = None if options.truth is None else _truth(options.truth, table, observed)
    keeps_labels = options.result is not None or options.checkpoint is not None
    labels = labels_of(table) if keeps_labels else None
    rehearse(files, table)
    _check_interval(options, table.values, observed)
    settings = {
        **fit_options(options),
        **resuming.checkpoint_options(options),
        "bounds": bounds_of(options),
        "integers": table.whole if options.round else None,
        "progress": shows_progress(options),
    }

    names = {"Y": str(options.table), "mask": str(options.mask or options.table)}
    work: Callable[..., Any] = _chosen if options.auto else partial(fit_within, options.time_limit)
    data = table.values if labels is None else labels.put_on(table.values)
    result, facts = work(data, observed, names, **settings)
    filled, files_facts = written(options, files, table, observed, result)

    facts = {
        "command": "complete",
        "input": str(options.table),
        **files_facts,
        **table_facts(table, observed),
        **facts,
        "nmae": None if truth is None else _error(filled, truth, observed),
    }
    report(options, facts, _text(options, table, facts))
    return INTERRUPTED if facts["stop_reason"] == "interrupted" else OK


# --- before the work ---


def _check_choice(options: argparse.Namespace) -> None:
    if options.auto and options.regularizers not in (None, "auto"):
        raise UsageError("--auto chooses --regularizers by itself")
    if options.auto and options.checkpoint is not None:
        raise UsageError("--checkpoint: several fits cannot share one, as --auto would have to")
    if options.auto and options.time_limit is not None:
        raise UsageError("--time-limit: several fits cannot share one, as --auto would have to")


def _check_interval(options: argparse.Namespace, values: Values, observed: Any) -> None:
    """Raise a UsageError if there cannot be intervals of that level: better now than after the fit."""
    from airnp.confidence.beforehand import check_level
    from airnp.stopping.holdout import have_holes
    from airnp.stopping.rules import resolve_stop

    # Nothing is uncertain without gaps; how many entries lie under copies of holes differs from fit to fit.
    if options.interval is None or observed.all() or (options.auto and have_holes(observed)):
        return
    rule = resolve_stop("auto", regularized=options.regularizers not in (None, "auto"))
    names = {"level": "--interval", "Y": str(options.table), "mask": str(options.mask or options.table)}
    explained(lambda: check_level(options.interval, values, observed, rule, options.seed or 0), names)


def _observed(options: argparse.Namespace, table: Table) -> Any:
    """Return what counts as observed; there must be something to do."""
    observed = table.observed
    if options.mask is not None:
        marks = _beside(options.mask, table)
        if not ((marks == 0) | (marks == 1)).all():
            raise UsageError(f"{options.mask}: expected 1 (observed) and 0 (missing) and nothing else")
        observed = observed & (marks == 1)
    if observed.all() and not options.fitted:
        raise UsageError(
            f"{options.table}: no number is missing; --missing says how gaps are written, --mask where they "
            "are, --fitted fits a table without gaps"
        )
    return observed


def _beside(path: Path, table: Table) -> Values:
    """Return the values of another table of the same shape."""
    from airnp import tables

    values = tables.read(path).values
    if values.shape != table.values.shape:
        expected, found = ("{} rows and {} columns".format(*array.shape) for array in (table.values, values))
        raise UsageError(f"{path}: expected {expected} as in the table, found {found}")
    return values


def _truth(path: Path, table: Table, observed: Any) -> Values:
    import numpy as np

    truth = _beside(path, table)
    if not np.isfinite(truth[~observed]).all():
        raise UsageError(f"{path}: expected numbers wherever the table has gaps")
    return truth


# --- the work ---


def _chosen(
    values: Values, observed: Any, names: Mapping[str, str], **settings: Any
) -> tuple[FitResult, dict[str, Any]]:
    """Complete with settings that held-out numbers choose; return the result and the facts about it."""
    import airnp

    del settings["regularizers"]
    started = time.perf_counter()
    found = explained(lambda: airnp.complete(values, observed, **settings), names)
    result = found.result.to_numpy()
    chosen = {name: value for name, value in found.choice.items() if name not in {*settings, "seed"}}
    return result, {
        "iterations": result.n_iter,
        "stop_reason": result.stop_reason,
        "seconds": round(time.perf_counter() - started, 3),
        "seed": result.seed,
        "expected_nmae": found.expected_nmae,
        "standard_error": found.standard_error,
        "choice": ", ".join(f"{name}={value!r}" for name, value in chosen.items()) or "the defaults",
    }


# --- after it ---


def _error(filled: Values, truth: Values, observed: Any) -> float:
    from airnp.metrics import nmae

    return float(nmae(filled, truth, observed))


def _text(options: argparse.Namespace, table: Table, facts: dict[str, Any]) -> str:
    lines = [
        table_line(options.table, table, facts),
        f"{facts['iterations']} iterations in {facts['seconds']:.1f} s: {facts['stop_reason']}",
    ]
    if facts.get("expected_nmae") is not None:
        expected = f"{facts['expected_nmae']:.4f} ± {facts['standard_error']:.4f}"
        lines.append(f"expected NMAE of the gaps {expected}, with {facts['choice']}")
    if facts["nmae"] is not None:
        lines.append(f"NMAE of the gaps {facts['nmae']:.4f}")
    return "\n".join(lines + written_lines(facts))


COMMAND = Command("fill the gaps of a table", _arguments, _run, EXAMPLES, DESCRIPTION)
