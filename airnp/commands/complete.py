"""``airnp complete``: fill the gaps of a table."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from airnp import tables
from airnp._arrays import stored_entries
from airnp.commands.base import Command, UsageError, add_message_arguments, finish, first_given, save_result
from airnp.commands.fits import (
    MODEL_OPTIONS,
    TimeLimit,
    add_bounds_argument,
    add_fit_arguments,
    add_run_arguments,
    bounds_of,
    check_run_arguments,
    checkpoint_options,
    describe_run,
    device_options,
    explain_errors,
    fit_best,
    fit_dense,
    fit_sparse,
    load_result,
    resume_run,
)
from airnp.commands.imputing import OF_SHEETS, OF_THE_FACTOR_MODEL, add_sheet_arguments, is_sheet, run_sheet
from airnp.commands.tables import (
    Outputs,
    add_completion_arguments,
    add_reading_arguments,
    check_within_bounds,
    describe_labels,
    labels_of,
    read_table,
    table_with_labels,
    write_completion,
)
from airnp.data.bounds import ALL_WHOLE
from airnp.data.holdout import have_holes
from airnp.images import formats as pictures
from airnp.metrics import nmae
from airnp.tables import Table
from airnp.training.stopping import check_interval_level, resolve_stop

if TYPE_CHECKING:
    from airnp.results.result import FitResult
    from airnp.tables.table import Bools, Values

DESCRIPTION = """\
Fill the gaps of a table. Formats go by the name: .csv and .tsv (also .gz), .parquet, .xlsx, .npy, .npz, .mtx.
Missing are empty cells, NaN, NA, n/a, null and none, in a sparse matrix (.mtx, .npz of SciPy) all entries
that are not stored.

Columns of a .csv, .tsv, .parquet or .xlsx file may be of any kind: numbers, with decimal commas, thousands
separators or percent signs, words, dates. They are standardised, and several models are blended by held-out
entries. There, the cells ? - and . are missing, too. Columns that only tell rows apart are carried through.
--method air is the factor model on such columns, with --rank, --depth and --max-iter.

Other formats are one matrix of numbers, and so is any file with --auto: models of many kinds compete for it,
as in airnp.complete. --fitted, --result, --method air, and any option of "the fit" or "long runs" but --seed
and --threads take the factor model instead.

What is there stays as it is; --fitted writes the model's own values in its place.

With --checkpoint a run that was interrupted, killed or out of time can go on: --resume FILE takes its data
and its settings from the file, and ends with the numbers of an uninterrupted run.
"""

EXAMPLES = """\
  airnp complete ratings.csv -o filled.csv
  airnp complete ratings.csv -o filled.csv --bounds 1 5 --round
  airnp complete people.xlsx -o filled.xlsx --ignore name,phone --samples 5
  airnp complete personen.csv -o voll.csv --decimal , --encoding latin-1
  airnp complete sensors.csv -o filled.csv --auto
  airnp complete sensors.csv -o filled.csv --interval 0.9
  airnp complete sensors.parquet -o filled.parquet --index-col time --missing -999
  airnp complete values.npy -o filled.npy
  airnp complete values.npy --mask observed.npy -o filled.npy --device cuda
  airnp complete large.npy -o filled.npy --checkpoint run.npz --time-limit 3600
  airnp complete --resume run.npz -o filled.npy --force
  airnp complete links.mtx -o filled.npz --form sparse --rank 32
  airnp complete links.mtx -o filled.npz --result learned.npz && airnp graph learned.npz -o graph.csv
"""

_READING = ("header", "index_col", "delimiter", "missing", "array")

_DENSE_ONLY = ("mask", "truth", "auto", "interval", "checkpoint", *_READING)
"""Options that the sparse form does not have."""

_FIXED_BY_A_RUN = (
    *("mask", "truth", "bounds", "round", "auto", "form", *_READING),
    *("seed", "regularizers", "rank", "depth", "dtype", "method", *OF_SHEETS),
)
"""Options for the data and the model, which a resumed run takes from its file."""

_LARGEST_WRITTEN = 2**28
"""Entries of the largest matrix that the sparse form writes whole."""


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("table", type=Path, nargs="?", help="file to read, unless --resume is given")
    add_completion_arguments(parser)
    add_bounds_argument(parser, "clip what is filled in; numbers that are there must be within")
    parser.add_argument(
        "--round", action="store_true", help="round what is filled into columns whose numbers are all whole"
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
        help="take the file for one matrix, try several models, keep what predicts held-out entries best, "
        "and report the error to expect (the default for .npy, .npz and .mtx)",
    )
    add_sheet_arguments(parser)
    add_run_arguments(parser)
    add_reading_arguments(parser)
    add_fit_arguments(parser)
    parser.add_argument(
        "--form",
        choices=("dense", "sparse"),
        help="sparse: never form the whole matrix, for large .mtx and SciPy's .npz, with --rank (dense)",
    )
    add_message_arguments(parser)


def _run(options: argparse.Namespace) -> int:
    if options.resume is not None:
        return _run_resumed(options)
    if options.table is None:
        raise UsageError("the following arguments are required: table, or --resume")
    if options.table.suffix.lower() in set(pictures.SUFFIXES) - set(tables.SUFFIXES):
        raise UsageError(f"{options.table}: expected a table; airnp inpaint fills pictures")
    check_run_arguments(options)
    if is_sheet(options):
        return run_sheet(options)
    wishes = [name for name in OF_THE_FACTOR_MODEL if name != "array"]
    if options.method is None and first_given(options, wishes) is None:
        options.auto = True
    matrix = _sparse_matrix(options)
    return _run_dense(options) if matrix is None else _run_sparse(options, matrix)


# --- the dense form ---


def _run_dense(options: argparse.Namespace) -> int:
    _check_auto(options)
    outputs = Outputs.of(options)
    table = read_table(options, options.table)
    observed = _observed(options, table)
    m, n = table.values.shape
    check_within_bounds(options, options.table, table.values.ravel(), lambda k: table.place(*divmod(k, n)))
    truth = None if options.truth is None else _truth(options.truth, table, observed)
    _check_exact(options, table, outputs.kind)
    keeps_labels = options.result is not None or options.checkpoint is not None
    labels = labels_of(table) if keeps_labels else None
    outputs.rehearse(table)
    names = {"level": "--interval", "Y": str(options.table), "mask": str(options.mask or options.table)}
    with explain_errors(names):
        _check_interval(options, observed)

    fit = fit_best if options.auto else fit_dense
    data = table.values if labels is None else labels.put_on(table.values)
    settings = {"bounds": bounds_of(options, table.whole if options.round else None)}
    result, facts = fit(options, names, data, observed, **settings, **checkpoint_options(options))
    filled, facts["interval"] = write_completion(options, outputs, table, observed, result)
    if truth is not None:
        facts["nmae"] = float(nmae(filled, truth, observed))
    return _finish(options, table, (m, n), int(observed.sum()), facts)


def _check_exact(options: argparse.Namespace, table: Table, kind: str) -> None:
    """Raise a UsageError if a whole number would come back as another one, because no float64 holds it."""
    place = table.rounded()
    if place is None or options.fitted or table.cells is None:
        return
    number = f"{options.table}: {table.cells[place]} in {table.place(*place)} is no float64"
    if (option := first_given(options, ["result", "checkpoint"])) is not None:
        raise UsageError(f"{number}, which {option} stores; --index-col says which column holds labels")
    is_text = kind.startswith((".csv", ".tsv"))
    if not is_text and table.cells.dtype == object and table.dtypes is None:
        raise UsageError(f"{number}, which {kind} would hold; .csv and .tsv keep the cells as they are")
    if not is_text and not options.round:
        raise UsageError(f"{number}; --round fills in whole numbers, so that the file holds integers")


def _check_auto(options: argparse.Namespace) -> None:
    if options.auto and (option := first_given(options, [*MODEL_OPTIONS, "device", "checkpoint"])):
        raise UsageError(f"{option}: --auto compares models that do not have it")


def _check_interval(options: argparse.Namespace, observed: Bools) -> None:
    """Raise a ValueError if there cannot be intervals of that level, which should be known before the fit."""
    # Nothing is uncertain without gaps; how many entries lie under copies of holes differs from fit to fit.
    if options.interval is None or observed.all() or (options.auto and have_holes(observed)):
        return
    check_interval_level(options.interval, observed, resolve_stop("auto"), options.seed or 0)


def _observed(options: argparse.Namespace, table: Table) -> Bools:
    """Return which entries are observed; raise a UsageError if there is nothing to fill or to fit."""
    observed = table.observed
    if options.mask is not None:
        marks = _read_beside(options.mask, table)
        if not ((marks == 0) | (marks == 1)).all():
            raise UsageError(f"{options.mask}: expected 1 (observed) and 0 (missing) and nothing else")
        observed = observed & (marks == 1)
    if observed.all() and not options.fitted:
        raise UsageError(
            f"{options.table}: no number is missing; --missing says how gaps are written, --mask where they "
            "are, --fitted fits a table without gaps"
        )
    return observed


def _truth(path: Path, table: Table, observed: Bools) -> Values:
    truth = _read_beside(path, table)
    if not np.isfinite(truth[~observed]).all():
        raise UsageError(f"{path}: expected numbers wherever the table has gaps")
    return truth


def _read_beside(path: Path, table: Table) -> Values:
    """Return the values of another table, which must have the same shape."""
    values = tables.read(path).values
    if values.shape != table.values.shape:
        expected, found = ("{} rows and {} columns".format(*array.shape) for array in (table.values, values))
        raise UsageError(f"{path}: expected {expected} as in the table, found {found}")
    return values


# --- the sparse form ---


def _sparse_matrix(options: argparse.Namespace) -> Any | None:
    """Return the sparse matrix to fit as such; None where the dense form is meant."""
    if options.form != "sparse":
        return None
    matrix = tables.read_sparse(options.table)
    if matrix is None:
        raise UsageError(
            f"--form sparse: {options.table} holds no sparse matrix; they are in .mtx files and in .npz "
            "files of scipy.sparse.save_npz"
        )
    if options.rank is None:
        raise UsageError("--form sparse needs --rank, for example --rank 32")
    return matrix


def _run_sparse(options: argparse.Namespace, matrix: Any) -> int:
    from scipy.sparse import coo_array

    refused = first_given(options, _DENSE_ONLY)
    if refused is not None:
        raise UsageError(f"{refused}: not with the sparse form; --form dense has it")
    outputs = Outputs.of(options, needs_output=False)
    m, n = matrix.shape
    if outputs.output is not None and m * n > _LARGEST_WRITTEN:
        raise UsageError(
            f"{outputs.output}: a matrix of {m}x{n} is not written whole; --result FILE.npz saves its "
            "factors, whose predict(rows, columns) gives any entry in Python"
        )
    try:
        matrix = coo_array(stored_entries("S", matrix))
    except ValueError as error:
        raise UsageError(f"{options.table}: {error}") from error
    check_within_bounds(
        options,
        options.table,
        matrix.data.astype(np.float64),
        lambda k: f"row {matrix.row[k] + 1}, column {matrix.col[k] + 1}",
    )
    names = {"S": str(options.table), "xp": "--device"}
    whole = _whole_columns(matrix) if options.round else None
    result, facts = fit_sparse(options, names, matrix, bounds=bounds_of(options, whole))
    if outputs.output is not None:
        filled = result.X
        if not options.fitted:
            filled[matrix.row, matrix.col] = matrix.data
        outputs.write(Table(filled))
    save_result(result, outputs.result)
    return _finish(options, None, (m, n), matrix.nnz, facts)


def _whole_columns(matrix: Any) -> Bools:
    """Return for each column whether it has entries and all of them are whole numbers, (n,)."""
    broken = ALL_WHOLE.fractional(matrix.data.astype(np.float64))
    whole = np.isin(np.arange(matrix.shape[1]), matrix.col)
    whole[matrix.col[broken]] = False
    return whole


# --- resumed runs ---


def _run_resumed(options: argparse.Namespace) -> int:
    name = "a table" if options.table is not None else first_given(options, _FIXED_BY_A_RUN)
    if name is not None:
        raise UsageError(f"{name} cannot be given with --resume: {options.resume} says what the run fits")
    outputs = Outputs.of(options)
    table = _table_of_run(options.resume, load_result(options.resume))
    outputs.rehearse(table)
    # A run that had a time limit needs one again, if only an infinite one.
    clock = TimeLimit(math.inf if options.time_limit is None else options.time_limit)
    result, facts = resume_run(options, clock, **device_options(options))
    _, facts["interval"] = write_completion(options, outputs, table, table.observed, result)
    return _finish(options, table, table.values.shape, int(table.observed.sum()), facts)


def _table_of_run(path: Path, result: FitResult) -> Table:
    """Return the table that a run fits: its labels, and NaN where it has gaps."""
    matrix = getattr(result, "matrix", None)
    if matrix is None:
        raise UsageError(f"{path}: holds a sparse fit; Python's airnp.resume goes on with its run")
    if matrix.ndim != 2:
        raise UsageError(f"{path}: is a stack of matrices; Python's airnp.resume goes on with it")
    if result.mask is None or result.observed is None:
        raise UsageError(f"{path}: the run had an operator; Python's airnp.resume goes on with it")
    values = np.where(result.mask, result.observed, np.nan).astype(matrix.dtype)
    return table_with_labels(values, result.labels, False if result.bounds is None else result.bounds.whole)


# --- the report ---


def _finish(
    options: argparse.Namespace,
    table: Table | None,
    shape: tuple[int, ...],
    n_observed: int,
    facts: dict[str, Any],
) -> int:
    """Report a completed matrix, whose table is None in the sparse form; return the exit code."""
    m, n = shape
    files = {"output": options.output, "result": options.result}
    files["checkpoint"] = options.checkpoint or options.resume
    facts = {
        "command": "complete",
        "input": str(options.resume or options.table),
        **{name: None if path is None else str(path) for name, path in files.items()},
        "interval": None,
        "form": "sparse" if table is None else "dense",
        "rows": m,
        "columns": n,
        "missing": m * n - n_observed,
        "header": table is not None and table.columns is not None,
        "index": None if table is None or table.rows is None else table.corner,
        "nmae": None,
        **facts,
    }
    labels = "" if table is None else f" ({describe_labels(table)})"
    lines = [
        f"{facts['input']}: {m} rows, {n} columns{labels}, {facts['missing'] / (m * n):.1%} missing",
        describe_run(options, facts),
    ]
    if facts.get("expected_error") is not None:
        expected = f"{facts['expected_error']:.4f} ± {facts['standard_error']:.4f}"
        lines.append(
            f"a {facts['kind']}; expected {facts['metric']} of the gaps {expected}: {facts['choice']}"
        )
    if facts["nmae"] is not None:
        lines.append(f"NMAE of the gaps {facts['nmae']:.4f}")
    interval = facts["interval"]
    if interval is not None:
        lines.append(
            f"intervals for {interval['level']:.4g} of the gaps, half of them at most "
            f"{interval['median_width']:.4g} wide"
        )
    so_far = " the result so far to" if facts["stop_reason"] == "interrupted" else ""
    ends = [] if interval is None else [interval["lower"], interval["upper"]]
    written = dict.fromkeys([facts["output"], *ends, facts["result"]])
    lines += [f"wrote{so_far} {path}" for path in written if path is not None]
    return finish(options, facts, "\n".join(lines))


COMMAND = Command(_arguments, _run, EXAMPLES, DESCRIPTION)
