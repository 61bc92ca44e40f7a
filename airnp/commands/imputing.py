"""``airnp complete`` for tables whose columns have units and kinds: standardised, blended, with samples."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from airnp import tables
from airnp.commands.base import UsageError, check_outputs, finish, first_given, whole_number, write_file
from airnp.commands.fits import explain_errors
from airnp.commands.tables import path_beside
from airnp.data.bounds import Bounds
from airnp.metrics import nmae
from airnp.tables import Reading, TableError
from airnp.tables.imputation import TableCompletion, fit_table
from airnp.tables.kinds import FrameCode, kinds_of
from airnp.tables.sheets import Sheet, find_columns, read_sheet, sheet_kind, write_sheet

OF_THE_FACTOR_MODEL = (
    *("fitted", "result", "auto", "checkpoint", "checkpoint_every", "time_limit", "max_iter"),
    *("regularizers", "rank", "depth", "dtype", "device", "form", "array"),
)
"""Options that only the factor model has."""

_OF_STANDARDISED_COLUMNS = ("max_iter", "rank", "depth")
"""Those of them that ``--method air`` takes on a table whose columns have units; others need a matrix."""

_NULLABLE = {"i": "Int64", "u": "UInt64"}

OF_SHEETS = ("columns", "ignore", "decimal", "encoding", "samples")
"""Options that a matrix of numbers does not have."""


def add_sheet_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for tables whose columns have units and kinds."""
    group = parser.add_argument_group("columns with units and kinds")
    group.add_argument(
        "--method",
        choices=("auto", "em", "local", "air"),
        help="auto: standardised columns of any kind, several models blended by held-out entries; em, local: "
        "fewer of them; air: the factor model on standardised columns, or on a matrix as it is (auto for "
        ".csv, .tsv, .parquet and .xlsx, unless an option of the factor model is given)",
    )
    group.add_argument("--columns", metavar="A,B", help="fill only these columns, by name or number from 1")
    group.add_argument("--ignore", metavar="A,B", help="carry these columns through as they are")
    group.add_argument("--decimal", choices=(".", ","), help="decimal sign of numbers in text files (.)")
    group.add_argument("--encoding", metavar="NAME", help="of text files, such as latin-1 (utf-8)")
    group.add_argument(
        "--samples",
        type=whole_number(1),
        metavar="N",
        help="also write N imputations drawn from what is known: FILE.csv gets FILE.1.csv, FILE.2.csv, …",
    )


def is_sheet(options: argparse.Namespace) -> bool:
    """Return whether to treat the file as a table with columns of any kind; check the options for it."""
    method = options.method
    kinds = [sheet_kind(path) for path in (options.table, options.output) if path is not None]
    factor, sheet = first_given(options, OF_THE_FACTOR_MODEL), first_given(options, OF_SHEETS)
    if method is None:
        suits = len(kinds) == 2 and None not in kinds and find_spec("pandas") is not None
        needs = sheet is not None or ".xlsx" in kinds
        method = "auto" if needs or (suits and factor is None) else "air"
    others = first_given(options, [n for n in OF_THE_FACTOR_MODEL if n not in _OF_STANDARDISED_COLUMNS])
    if options.method == "air" and options.samples is not None:
        raise UsageError("--samples: not with --method air")
    if options.method == "air" and len(kinds) == 2 and None not in kinds and others is None:
        return True
    if method == "air":
        if sheet is not None:
            raise UsageError(f"{sheet}: not with a matrix of numbers, which {others or 'such a file'} needs")
        return False
    if factor is not None:
        raise UsageError(f"{factor}: only with --method air, which {sheet or f'--method {method}'} is not")
    return True


def run_sheet(options: argparse.Namespace) -> int:
    """Complete a table with columns of any kind; return the exit code."""
    output, kind, ends, samples = _outputs(options)
    how = (options.header, None, options.delimiter, tuple(options.missing), None)
    sheet = read_sheet(options.table, Reading(*how), options.decimal or ".", options.encoding or "utf-8-sig")
    ignored = _ignored(options, sheet)
    with explain_errors({"X": str(options.table)}):
        code = FrameCode(kinds_of(sheet.frame, "auto", ignored))
    given = _marked(options, sheet, code)
    sheet = replace(sheet, frame=given)
    values = code.encode(given)
    observed = ~np.isnan(values)
    seen = observed.any(axis=0)
    gaps = sum(int(given.iloc[:, j].isna().sum()) for j, each in enumerate(code.columns) if each.width)
    _check(options, values, observed, gaps)
    limits = _limits(options, code, values, observed)
    truth = _truth(options, code, observed)
    started = time.perf_counter()
    with explain_errors({}):
        model, completion = fit_table(
            values[:, seen],
            observed[:, seen],
            method=options.method or "auto",
            seed=options.seed or 0,
            replicates=options.samples or 0,
            threads=options.threads,
            **{n: getattr(options, n) for n in _OF_STANDARDISED_COLUMNS if first_given(options, [n])},
        )
    seconds = time.perf_counter() - started

    def whole(part: Any) -> Any:
        filled = np.where(observed, values, np.nan)
        filled[:, seen] = part
        if limits is not None:
            filled = np.where(observed, values, limits.put_on(filled))
        return filled

    filled = whole(completion.X)
    completed = code.decode(given, filled)
    write_file(output, partial(write_sheet, kind=kind, sheet=sheet, frame=completed))
    tables_beside: list[tuple[Path, Any]] = []
    if ends:
        tables_beside += zip(ends, completion.interval(options.interval), strict=True)
    draws = model.draws(values[:, seen], observed[:, seen], np.random.default_rng([options.seed or 0, 5]))
    for path, numbers in chain(tables_beside, zip(samples, draws, strict=True)):
        frame = code.decode(given, whole(numbers))
        write_file(path, partial(write_sheet, kind=kind, sheet=sheet, frame=frame))
    facts = _facts(options, sheet, code, completion, seconds, gaps, ends, samples)
    if truth is not None:
        number = _numbers(code)
        facts["nmae"] = float(nmae(filled[:, number], truth[:, number], observed[:, number]))
    return finish(options, facts, _report(options, sheet, facts))


def _outputs(options: argparse.Namespace) -> tuple[Path, str, list[Path], list[Path]]:
    """Return the file to write, its suffix, those of the intervals and those of the samples."""
    output = options.output
    if output is None:
        raise UsageError("the following arguments are required: -o/--output")
    kind = sheet_kind(output)
    if kind is None:
        raise UsageError(f"{output}: --method air writes such a file; here .csv, .tsv, .parquet or .xlsx")
    ends = [path_beside(output, kind, end) for end in ("lower", "upper")] if options.interval else []
    samples = [path_beside(output, kind, str(k + 1)) for k in range(options.samples or 0)]
    named = {f"--interval ({path.name})": path for path in ends}
    named |= {f"--samples ({path.name})": path for path in samples}
    check_outputs(options, {"--output": output, **named})
    return output, kind, ends, samples


def _ignored(options: argparse.Namespace, sheet: Sheet) -> list[Any]:
    """Return the columns to carry through."""
    names = list(sheet.frame.columns)
    try:
        found = [] if options.ignore is None else find_columns(names, options.ignore, "--ignore")
        if options.index_col is not None:
            found += find_columns(names, options.index_col, "--index-col")
        if options.columns is not None:
            wanted = find_columns(names, options.columns, "--columns")
            found += [name for name in names if name not in wanted]
        sheet.check_words(found)
    except TableError as error:
        raise UsageError(f"{options.table}: {error}") from error
    return found


def _marked(options: argparse.Namespace, sheet: Sheet, code: FrameCode) -> Any:
    """Return the table with further gaps where ``--mask`` has 0, which has no columns to carry through."""
    if options.mask is None:
        return sheet.frame
    places = [j for j, column in enumerate(code.columns) if column.kind != "identifier"]
    marks = tables.read(options.mask).values
    if marks.shape != (len(sheet.frame), len(places)):
        expected, found = (
            "{} rows and {} columns".format(*shape)
            for shape in ((len(sheet.frame), len(places)), marks.shape)
        )
        raise UsageError(f"{options.mask}: expected {expected} as in the table, found {found}")
    if not ((marks == 0) | (marks == 1)).all():
        raise UsageError(f"{options.mask}: expected 1 (observed) and 0 (missing) and nothing else")
    whole = np.ones(sheet.frame.shape, bool)
    whole[:, places] = marks == 1
    # Integers stay integers where a gap is; a plain column would become one of floats.
    nullable = {name: _NULLABLE[kind.kind] for name, kind in sheet.frame.dtypes.items() if kind.kind in "iu"}
    return sheet.frame.astype(nullable).where(whole)


def _check(options: argparse.Namespace, values: Any, observed: Any, gaps: int) -> None:
    """Raise a UsageError if there is nothing to fill or to learn from."""
    if not observed.any():
        raise UsageError(f"{options.table}: no entry is observed")
    infinite = np.argwhere(np.isinf(values))
    if len(infinite):
        first = tuple(map(int, infinite[0]))
        raise UsageError(
            f"{options.table}: {len(infinite)} observed entries are NaN or infinite, first at {first}"
        )
    if not gaps:
        raise UsageError(
            f"{options.table}: nothing is missing; --missing says how gaps are written, --mask where they are"
        )


def _numbers(code: FrameCode) -> Any:
    """Return which of the columns inside are numbers, (D,)."""
    return np.array([code.columns[owner].kind == "number" for owner in code.owners])


def _limits(options: argparse.Namespace, code: FrameCode, values: Any, observed: Any) -> Bounds | None:
    """Return the bounds of the columns inside: of numbers, and whole ones with ``--round``."""
    number = _numbers(code)
    low, high = options.bounds or (-np.inf, np.inf)
    if low > high:
        raise UsageError(f"--bounds: expected LOW <= HIGH, got {low:g} {high:g}")
    known = np.where(observed & number, values, np.nan)
    outside = np.argwhere((known < low) | (known > high))
    if len(outside):
        row, column = outside[0]
        raise UsageError(
            f"{options.table}: {len(outside)} numbers are outside --bounds {low:g} {high:g}, the first is "
            f"{known[row, column]:g} in row {row + 1}, column {code.columns[code.owners[column]].name!r}"
        )
    fractions = (observed & (values != np.rint(values))).any(axis=0)
    rounded = number & ~fractions & bool(options.round)
    if options.bounds is None and not rounded.any():
        return None
    return Bounds(np.where(number, low, -np.inf), np.where(number, high, np.inf), rounded)


def _truth(options: argparse.Namespace, code: FrameCode, observed: Any) -> Any:
    """Return the complete table (n, D), if it is given."""
    if options.truth is None:
        return None
    sheet = read_sheet(options.truth, Reading(), options.decimal or ".", options.encoding or "utf-8-sig")
    if sheet.frame.shape != (len(observed), len(code.columns)):
        raise UsageError(f"{options.truth}: expected the rows and columns of the table")
    truth = code.encode(sheet.frame)
    if np.isnan(truth[~observed]).any():
        raise UsageError(f"{options.truth}: expected numbers wherever the table has gaps")
    return truth


def _facts(
    options: argparse.Namespace,
    sheet: Sheet,
    code: FrameCode,
    completion: TableCompletion,
    seconds: float,
    gaps: int,
    ends: list[Path],
    samples: list[Path],
) -> dict[str, Any]:
    return {
        "command": "complete",
        "method": options.method or "auto",
        "input": str(options.table),
        "output": str(options.output),
        "samples": [str(path) for path in samples],
        "interval": None
        if not ends
        else {"level": options.interval, "lower": str(ends[0]), "upper": str(ends[1])},
        "form": "table",
        "rows": len(sheet.frame),
        "columns": len(sheet.frame.columns),
        "missing": gaps,
        "header": sheet.header,
        "kinds": {str(column.name): column.kind for column in code.columns},
        "left_empty": {
            str(column.name): int(gone)
            for column, gone in zip(code.columns, sheet.frame.isna().sum(), strict=True)
            if column.kind == "identifier" and gone
        },
        "guessed": sheet.notes(),
        "weights": completion.weights,
        "expected_error": completion.expected_error if completion.errors else None,
        "seconds": seconds,
        "nmae": None,
        "stop_reason": "completed",
    }


def _report(options: argparse.Namespace, sheet: Sheet, facts: dict[str, Any]) -> str:
    total = facts["rows"] * facts["columns"]
    header = "header" if sheet.header else "no header"
    by_kind: dict[str, list[str]] = {}
    for name, kind in facts["kinds"].items():
        by_kind.setdefault(kind, []).append(name)
    empty = facts["left_empty"]
    carried = [
        f"{name} ({empty[name]} gaps stay)" if name in empty else name
        for name in by_kind.pop("identifier", [])
    ]
    kinds = ", ".join(f"{len(names)} {kind}" for kind, names in by_kind.items())
    blend = ", ".join(f"{name} {weight:.0%}" for name, weight in facts["weights"].items())
    lines = [
        f"{facts['input']}: {facts['rows']} rows, {facts['columns']} columns ({header}; {kinds}), "
        f"{facts['missing'] / total:.1%} missing",
        *([f"carried through: {', '.join(carried)}"] if carried else []),
        *([f"read as {'; '.join(facts['guessed'])}"] if facts["guessed"] else []),
        f"{blend} in {facts['seconds']:.1f} s",
    ]
    if facts["expected_error"] is not None:
        error = f"{facts['expected_error']:.2f} standard deviations of a column"
        lines.append(f"error to expect in gaps: {error}")
    if facts["nmae"] is not None:
        lines.append(f"NMAE of the gaps {facts['nmae']:.4f}")
    ends = [] if facts["interval"] is None else [facts["interval"]["lower"], facts["interval"]["upper"]]
    return "\n".join([*lines, *(f"wrote {path}" for path in [facts["output"], *ends, *facts["samples"]])])
