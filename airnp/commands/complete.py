"""``airnp complete``: fill the gaps of a table."""

from __future__ import annotations

import argparse
import io
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airnp.commands.base import (
    INTERRUPTED,
    OK,
    Command,
    UsageError,
    WorkError,
    add_talk_arguments,
    finite_number,
    report,
    shows_progress,
)
from airnp.commands.fitting import add_fit_arguments, fit_options, fit_within
from airnp.commands.outputs import add_output_arguments, check_output, write_whole
from airnp.commands.reading import add_reading_arguments, decided, labels_of, reading_of

if TYPE_CHECKING:
    from airnp.result import FitResult
    from airnp.tables import Table, Values

DESCRIPTION = """\
Fill the gaps of a table of numbers. Formats go by the name: .csv and .tsv (also .gz), .npy, .npz, .mtx,
.parquet. Labels are kept where the format of the output has them. Missing are empty cells, NaN, NA, n/a, null
and none, in a sparse matrix (.mtx, .npz of SciPy) all entries that are not stored.

Numbers that are there stay as they are; --fitted writes the model's own values in their place.
"""

EXAMPLES = """\
  airnp complete ratings.csv -o filled.csv
  airnp complete ratings.csv -o filled.csv --bounds 1 5 --round
  airnp complete sensors.parquet -o filled.parquet --index-col time --missing -999
  airnp complete values.npy --mask observed.npy -o filled.npy --device cuda
  airnp complete links.mtx -o filled.npz --result learned.npz && airnp graph learned.npz -o graph.csv
"""


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("table", type=Path, help="file to read")
    add_output_arguments(parser, ".csv .tsv .npy .npz .mtx .parquet, also .csv.gz .tsv.gz .mtx.gz")
    parser.add_argument(
        "--result",
        type=Path,
        metavar="FILE.npz",
        help="save all that was learned as well, for airnp graph and airnp.load",
    )
    parser.add_argument("--fitted", action="store_true", help="write the fitted values everywhere")
    parser.add_argument(
        "--bounds",
        nargs=2,
        type=finite_number,
        metavar=("LOW", "HIGH"),
        help="clip what is filled in; numbers that are there must be within",
    )
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
    add_reading_arguments(parser)
    add_fit_arguments(parser)
    add_talk_arguments(parser)


def _run(options: argparse.Namespace) -> int:
    import numpy as np

    from airnp import tables

    kind = tables.kind_of(options.output)
    _check_files(options)
    table = tables.read(options.table, reading_of(options))
    observed = _observed(options, table)
    _check_bounds(options, table)
    truth = None if options.truth is None else _truth(options.truth, table, observed)
    labels = None if options.result is None else labels_of(table)
    tables.write(
        io.BytesIO(), kind, table
    )  # a rehearsal: what the format cannot hold is known before the work
    settings = {**fit_options(options), "progress": shows_progress(options)}

    names = {"Y": str(options.table), "mask": str(options.mask or options.table)}
    result, facts = fit_within(options.time_limit, table.values, observed, names, **settings)
    fitted = _within(options, table, result.matrix.astype(table.values.dtype))
    filled = fitted if options.fitted else np.where(observed, table.values, fitted)
    write_whole(options.output, lambda file: tables.write(file, kind, replace(table, values=filled)))
    if options.result is not None:
        _save(replace(result, labels=labels), options.result)

    facts = {
        "command": "complete",
        "input": str(options.table),
        "output": str(options.output),
        "result": None if options.result is None else str(options.result),
        "rows": table.values.shape[0],
        "columns": table.values.shape[1],
        "missing": int((~observed).sum()),
        "header": table.columns is not None,
        "index": table.corner if table.rows is not None else None,
        **facts,
        "nmae": None if truth is None else _error(filled, truth, observed),
    }
    report(options, facts, _text(options, table, facts))
    return INTERRUPTED if facts["stop_reason"] == "interrupted" else OK


# --- before the work ---


def _check_files(options: argparse.Namespace) -> None:
    check_output(options.output, options.force)
    if options.result is None:
        return
    if options.result.suffix != ".npz":
        raise UsageError(f"--result: expected a name that ends in .npz, got {options.result}")
    if options.result == options.output:
        raise UsageError("--result and --output are the same file")
    check_output(options.result, options.force)


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


def _check_bounds(options: argparse.Namespace, table: Table) -> None:
    import numpy as np

    if options.bounds is None:
        return
    low, high = options.bounds
    if low > high:
        raise UsageError(f"--bounds: expected LOW <= HIGH, got {low:g} {high:g}")
    outside = np.argwhere((table.values < low) | (table.values > high))
    if len(outside):
        row, column = outside[0]
        raise UsageError(
            f"{options.table}: {len(outside)} numbers are outside --bounds {low:g} {high:g}, the first is "
            f"{table.values[row, column]:g} in {table.place(row, column)}"
        )


# --- after it ---


def _within(options: argparse.Namespace, table: Table, values: Values) -> Values:
    """Return fitted values, rounded and clipped as asked for; a rounded one stays within the bounds."""
    import numpy as np

    rounded = table.whole if options.round else np.zeros(values.shape[1], dtype=bool)
    values = np.where(rounded, np.rint(values), values)
    if options.bounds is None:
        return values
    low, high = options.bounds
    return np.clip(
        values,
        np.where(rounded, np.ceil(low), low).astype(values.dtype),
        np.where(rounded, np.floor(high), high).astype(values.dtype),
    )


def _save(result: FitResult, path: Path) -> None:
    try:
        result.save(path)
    except OSError as error:
        raise WorkError(f"could not write {path}: {error}") from error


def _error(filled: Values, truth: Values, observed: Any) -> float:
    from airnp.metrics import nmae

    return float(nmae(filled, truth, observed))


def _text(options: argparse.Namespace, table: Table, facts: dict[str, Any]) -> str:
    shape = f"{facts['rows']} rows, {facts['columns']} columns"
    lines = [
        f"{options.table}: {shape} ({decided(table)}), {facts['missing'] / table.values.size:.1%} missing",
        f"{facts['iterations']} iterations in {facts['seconds']:.1f} s: {facts['stop_reason']}",
    ]
    if facts["nmae"] is not None:
        lines.append(f"NMAE of the gaps {facts['nmae']:.4f}")
    so_far = " the result so far to" if facts["stop_reason"] == "interrupted" else ""
    lines += [f"wrote{so_far} {path}" for path in (options.output, options.result) if path is not None]
    return "\n".join(lines)


COMMAND = Command("fill the gaps of a table", _arguments, _run, EXAMPLES, DESCRIPTION)
