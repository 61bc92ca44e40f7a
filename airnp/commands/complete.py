"""``airnp complete``: fill the gaps of a table."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airnp.commands.base import (
    INTERRUPTED,
    OK,
    Command,
    UsageError,
    add_bounds_argument,
    add_talk_arguments,
    bounds_of,
    check_within,
    given,
    positive_number,
    report,
    shows_progress,
    write_whole,
)
from airnp.commands.options import (
    Fitted,
    add_fit_arguments,
    explained,
    fit_options,
    fit_within,
    place_of,
    timed,
)
from airnp.commands.tables import (
    Files,
    add_completed_arguments,
    add_reading_arguments,
    checked_files,
    file_facts,
    labelled_table,
    labels_of,
    reading_of,
    rehearse,
    save,
    table_facts,
    table_line,
    written,
    written_lines,
)

if TYPE_CHECKING:
    from airnp.results.result import FitResult
    from airnp.results.sparse_result import SparseFitResult
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
    add_run_arguments(parser)
    add_reading_arguments(parser)
    add_fit_arguments(parser)
    add_form_argument(parser)
    add_talk_arguments(parser)


def _run(options: argparse.Namespace) -> int:
    if options.resume is not None:
        return run_resumed(options)
    if options.table is None:
        raise UsageError("the following arguments are required: table, or --resume")
    check_run_options(options)
    matrix = wanted(options)
    return _run_dense(options) if matrix is None else run_sparse(options, matrix)


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
        **checkpoint_options(options),
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
    from airnp.data.holdout import have_holes
    from airnp.results.intervals import check_level
    from airnp.training.stopping import resolve_stop

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


_WRITTEN_AT_MOST = 2**28
"""Entries of a matrix that is still written whole; more of them are not formed."""

_DENSE_ONLY = (
    *("mask", "truth", "auto", "interval", "checkpoint"),
    *("header", "index_col", "delimiter", "missing", "array"),
)


def add_form_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--form``."""
    parser.add_argument(
        "--form",
        choices=("auto", "dense", "sparse"),
        help="sparse: never make a sparse matrix dense, work on thin factors of --rank N; auto: if the dense "
        "form would not fit into memory (auto)",
    )


def wanted(options: argparse.Namespace) -> Any | None:
    """Return the sparse matrix that is to be fitted as such; None where the dense form is meant."""
    from airnp import tables

    if options.form == "dense":
        return None
    matrix = tables.read_sparse(options.table)
    if matrix is None:
        if options.form == "sparse":
            raise UsageError(
                f"--form sparse: {options.table} holds no sparse matrix; they are in .mtx files and in .npz "
                "files of scipy.sparse.save_npz"
            )
        return None
    from airnp.sparse_choice import wants_sparse

    sizes = (options.depth or 3, options.rank, options.dtype)
    return matrix if wants_sparse(options.form or "auto", matrix, *sizes) else None


def run_sparse(options: argparse.Namespace, matrix: Any) -> int:
    """Complete a sparse matrix, and write it whole if it is not too large for that."""
    import numpy as np

    import airnp

    refused = given(options, _DENSE_ONLY)
    if refused is not None:
        raise UsageError(f"{refused}: not with the sparse form; --form dense has it")
    files = checked_files(options, needs_output=False)
    m, n = matrix.shape
    if files.output is not None and m * n > _WRITTEN_AT_MOST:
        raise UsageError(
            f"{files.output}: a matrix of {m}x{n} is not written whole; --result FILE.npz saves its factors, "
            "whose predict(rows, columns) gives any entry in Python"
        )
    matrix = _summed(matrix)
    check_within(
        options,
        options.table,
        matrix.data.astype(np.float64),
        lambda k: f"row {matrix.row[k] + 1}, column {matrix.col[k] + 1}",
    )
    settings = {
        **fit_options(options),
        "bounds": bounds_of(options),
        "integers": _whole_columns(matrix) if options.round else None,
        "progress": shows_progress(options),
        "form": "sparse",
    }
    names = {"Y": str(options.table), "xp": "--device"}
    result, facts = timed(
        options.time_limit, lambda clock: _fitted(airnp.fit(matrix, callback=clock, **settings)), names
    )
    _write(options, files, matrix, result)
    facts = {
        "command": "complete",
        "input": str(options.table),
        **file_facts(options),
        "interval": None,
        "form": "sparse",
        "rows": m,
        "columns": n,
        "missing": m * n - matrix.nnz,
        "header": False,
        "index": None,
        **facts,
        "nmae": None,
    }
    lines = [
        f"{options.table}: {m} rows, {n} columns, {facts['missing'] / (m * n):.1%} missing",
        f"{facts['iterations']} iterations in {facts['seconds']:.1f} s: {facts['stop_reason']}",
        *written_lines(facts),
    ]
    report(options, facts, "\n".join(lines))
    return INTERRUPTED if facts["stop_reason"] == "interrupted" else OK


def _fitted(result: Any) -> SparseFitResult:
    """Return what ``airnp.fit`` gives for this form."""
    found: SparseFitResult = result
    return found


def _summed(matrix: Any) -> Any:
    """Return the entries as coordinates; those stored twice are added, as SciPy does."""
    from scipy.sparse import coo_array

    found = coo_array(matrix)
    found.sum_duplicates()
    return found


def _whole_columns(matrix: Any) -> Any:
    """Return for each column whether it has entries and all of them are whole numbers, (n,)."""
    import numpy as np

    from airnp.data.bounds import ALL_WHOLE

    n = matrix.shape[1]
    broken = ALL_WHOLE.fractional(matrix.data.astype(np.float64))
    return (np.bincount(matrix.col, minlength=n) > 0) & (np.bincount(matrix.col[broken], minlength=n) == 0)


def _write(options: argparse.Namespace, files: Files, matrix: Any, result: SparseFitResult) -> None:
    from airnp import tables

    if files.output is not None:
        filled = result.X
        if not options.fitted:
            filled[matrix.row, matrix.col] = matrix.data
        table = tables.Table(filled)
        write_whole(files.output, lambda file: tables.write(file, files.kind, table))
    if files.result is not None:
        save(result, files.result)


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


def run_resumed(options: argparse.Namespace) -> int:
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
