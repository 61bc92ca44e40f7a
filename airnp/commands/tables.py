"""How to read a table, as arguments."""

from __future__ import annotations

import argparse
import io
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from airnp.commands.base import (
    UsageError,
    WorkError,
    add_output_arguments,
    check_archive,
    check_output,
    share,
    write_whole,
)
from airnp.commands.options import explained

if TYPE_CHECKING:
    import numpy.typing as npt

    from airnp.data.inputs import Labels
    from airnp.results.result import FitResult
    from airnp.results.sparse_result import SparseFitResult
    from airnp.tables import Reading, Table
    from airnp.tables.table import Values


def add_reading_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what decides how a table is read, where it is not to be guessed."""
    group = parser.add_argument_group(
        "reading", "What is left out is guessed where that is safe, and reported."
    )
    add_header_argument(group)
    group.add_argument(
        "--index-col",
        metavar="NAME",
        help="column with the labels of the rows: its name, its number from 1, or none",
    )
    add_delimiter_argument(group)
    group.add_argument(
        "--missing",
        action="append",
        default=[],
        metavar="TEXT",
        help="what else means missing; may be repeated",
    )
    group.add_argument("--array", metavar="NAME", help="which array of an .npz file")


def add_header_argument(group: argparse._ArgumentGroup) -> None:
    """Add ``--header`` and ``--no-header``."""
    group.add_argument(
        "--header",
        action=argparse.BooleanOptionalAction,
        help="whether the first line holds the names of the columns",
    )


def add_delimiter_argument(group: argparse._ArgumentGroup) -> None:
    """Add ``--delimiter``."""
    group.add_argument(
        "--delimiter", type=_delimiter, metavar="CHAR", help="between the cells: ',' or tab, for example"
    )


def _delimiter(text: str) -> str:
    found = {"tab": "\t", "\\t": "\t", "space": " "}.get(text, text)
    if len(found) != 1 or found in '"\r\n':
        raise argparse.ArgumentTypeError(f"must be one character, tab or space, got {text!r}")
    return found


def reading_of(options: argparse.Namespace) -> Reading:
    """Return the parsed arguments."""
    from airnp.tables import Reading

    return Reading(
        options.header, options.index_col, options.delimiter, tuple(options.missing), options.array
    )


def decided(table: Table) -> str:
    """Return in words what was found about labels."""
    header = "no header" if table.columns is None else "header"
    if table.rows is None:
        return f"{header}, no row labels"
    return f"{header}, row labels" + (f" from {table.corner!r}" if table.corner else "")


def labels_of(table: Table) -> Labels | None:
    """Return the labels of a table as a saved result holds them; an axis without any is numbered from 0."""
    if table.rows is None and table.columns is None:
        return None
    from airnp.data.inputs import Labels

    try:
        import pandas
    except ImportError as error:
        raise ImportError('labels are saved through pandas: pip install "airnp[tables]"') from error
    rows, columns = (
        pandas.RangeIndex(length) if labels is None else pandas.Index(labels)
        for labels, length in zip((table.rows, table.columns), table.values.shape, strict=True)
    )
    return Labels(rows.rename(table.corner) if table.corner else rows, columns)


def labelled_table(values: Values, labels: Labels | None, whole: Any = False) -> Table:
    """Return values as a table with the labels of a saved result: the way back from :func:`labels_of`.

    ``whole`` says which columns have nothing but whole numbers, which the table gives back as int64.
    """
    import numpy as np

    from airnp.tables import Table

    kinds = np.broadcast_to(whole, values.shape[1:])
    dtypes = [np.dtype(np.int64) if kind else values.dtype for kind in kinds]
    if labels is None:
        return Table(values, dtypes=dtypes)
    rows, columns = (None if _is_numbered(index) else index for index in (labels.index, labels.columns))
    name = labels.index.name
    return Table(values, rows, columns, None if name is None else str(name), dtypes=dtypes)


def _is_numbered(index: Any) -> bool:
    """Whether an index only counts from 0, as one does where there are no labels."""
    import numpy as np

    plain = index.dtype.kind == "i" and index.name is None
    return bool(plain and np.array_equal(index, np.arange(len(index))))


def add_completed_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what decides about the files that are written."""
    kinds = ".csv .tsv .npy .npz .mtx .parquet, also .csv.gz .tsv.gz .mtx.gz"
    add_output_arguments(parser, kinds, required=False)
    parser.add_argument(
        "--result",
        type=Path,
        metavar="FILE.npz",
        help="save all that was learned as well, for airnp graph and airnp.load",
    )
    parser.add_argument("--fitted", action="store_true", help="write the fitted values everywhere")
    parser.add_argument(
        "--interval",
        type=share,
        metavar="LEVEL",
        help="write between what numbers a share LEVEL of the gaps is, such as 0.9: FILE.csv gets "
        "FILE.lower.csv and FILE.upper.csv beside it, an .npz file the arrays lower and upper",
    )


class Files(NamedTuple):
    """Where to write, checked; None for what is not wanted.

    ``lower`` and ``upper`` are None too where they go into ``output`` itself.
    """

    output: Path | None
    kind: str
    lower: Path | None
    upper: Path | None
    result: Path | None


def checked_files(options: argparse.Namespace, *, needs_output: bool = True) -> Files:
    """Return the files to write; raise a UsageError unless all can be written without harm."""
    from airnp import tables

    output, result = options.output, options.result
    if output is None and (needs_output or result is None):
        raise UsageError("the following arguments are required: -o/--output")
    kind = "" if output is None else tables.kind_of(output)
    lower, upper = (
        None if options.interval is None or output is None or kind == ".npz" else beside(output, kind, end)
        for end in ("lower", "upper")
    )
    for name in ("result", "checkpoint"):
        check_archive(name, getattr(options, name))
    places: dict[str, str] = {}
    named = {"--output": output, "--result": result, "--checkpoint": options.checkpoint}
    for name, path in {**named, "--interval (lower)": lower, "--interval (upper)": upper}.items():
        if path is None:
            continue
        other = places.setdefault(os.path.realpath(path), name)
        if other != name:
            raise UsageError(f"{name} and {other} are the same file")
        check_output(path, options.force)
    return Files(output, kind, lower, upper, result)


def beside(output: Path, kind: str, end: str) -> Path:
    """Return where one end of the intervals goes.

    Examples
    --------
    >>> beside(Path("there/out.csv.gz"), ".csv.gz", "lower").name
    'out.lower.csv.gz'
    """
    stem, suffix = output.name[: -len(kind)], output.name[-len(kind) :]
    return output.with_name(f"{stem}.{end}{suffix}")


def rehearse(files: Files, table: Table) -> None:
    """Write nowhere what will be written: what the format cannot hold is known before the work."""
    from airnp import tables

    tables.write(io.BytesIO(), files.kind, table)


def written(
    options: argparse.Namespace,
    files: Files,
    table: Table,
    observed: npt.NDArray[Any],
    result: FitResult,
) -> tuple[Values, dict[str, Any]]:
    """Write a completed table and what goes with it; return its values, and the facts about the files.

    Intervals that cannot be had do not cost the table.
    """
    import numpy as np

    fitted = result.matrix.astype(table.values.dtype)
    filled = fitted if options.fitted else np.where(observed, table.values, fitted)
    ends, obstacle = None, None
    if options.interval is not None:
        try:
            ends = _ends(result, options.interval, table.values.dtype)
        except UsageError as error:
            obstacle = error
    others = ends if ends is not None and files.lower is None else {}
    _write(files.output, files.kind, replace(table, values=filled, others=others))
    if ends is not None and files.lower is not None:
        for end, values in ends.items():
            _write(getattr(files, end), files.kind, replace(table, values=values))
    if files.result is not None:
        save(result, files.result)
    if obstacle is not None:
        raise WorkError(f"wrote {files.output}, but no intervals: {obstacle}") from obstacle
    interval = None
    if ends is not None:
        widths = (ends["upper"] - ends["lower"])[~observed]
        interval = {
            "level": options.interval,
            "lower": str(files.lower or files.output),
            "upper": str(files.upper or files.output),
            "median_width": float(np.median(widths)) if widths.size else 0.0,
        }
    return filled, {**file_facts(options), "interval": interval}


def file_facts(options: argparse.Namespace) -> dict[str, Any]:
    """Return the names of the files as JSON has them."""
    return {
        name: None if getattr(options, name) is None else str(getattr(options, name))
        for name in ("output", "result", "checkpoint")
    }


def table_facts(table: Table, observed: npt.NDArray[Any]) -> dict[str, Any]:
    """Return what was found about a table."""
    return {
        "form": "dense",
        "rows": table.values.shape[0],
        "columns": table.values.shape[1],
        "missing": int((~observed).sum()),
        "header": table.columns is not None,
        "index": table.corner if table.rows is not None else None,
    }


def table_line(source: Path, table: Table, facts: dict[str, Any]) -> str:
    """Return the same in words."""
    shape = f"{facts['rows']} rows, {facts['columns']} columns"
    return f"{source}: {shape} ({decided(table)}), {facts['missing'] / table.values.size:.1%} missing"


def _ends(result: FitResult, level: float, dtype: Any) -> dict[str, Values]:
    names = {"level": "--interval", "interval": "--interval"}
    ends = explained(lambda: replace(result, labels=None).interval(level), names)
    return {name: end.astype(dtype) for name, end in zip(("lower", "upper"), ends, strict=True)}


def _write(path: Path | None, kind: str, table: Table) -> None:
    from airnp import tables

    assert path is not None
    write_whole(path, lambda file: tables.write(file, kind, table))


def save(result: FitResult | SparseFitResult, path: Path) -> None:
    """Save all that was learned.

    Raises
    ------
    WorkError
        If the disk refuses.
    """
    try:
        result.save(path)
    except OSError as error:
        raise WorkError(f"could not write {path}: {error}") from error


def written_lines(facts: dict[str, Any]) -> list[str]:
    """Return in words what was written."""
    lines = []
    interval = facts.get("interval")
    if interval is not None:
        lines.append(
            f"intervals for {interval['level']:.4g} of the gaps, half of them at most "
            f"{interval['median_width']:.4g} wide"
        )
    so_far = " the result so far to" if facts["stop_reason"] == "interrupted" else ""
    ends = [] if interval is None else [interval["lower"], interval["upper"]]
    paths = dict.fromkeys([facts["output"], *ends, facts["result"]])
    return lines + [f"wrote{so_far} {path}" for path in paths if path is not None]
