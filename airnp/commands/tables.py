"""Tables for the commands: arguments for reading them, their labels, and the files of a completed one."""

from __future__ import annotations

import argparse
import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from airnp import tables
from airnp.commands.base import (
    UsageError,
    WorkError,
    add_output_arguments,
    check_outputs,
    fraction,
    save_result,
    write_file,
)
from airnp.commands.fits import explain_errors
from airnp.data.bounds import Bounds
from airnp.data.inputs import Labels
from airnp.tables import Reading, Table

if TYPE_CHECKING:
    from airnp.results.result import FitResult
    from airnp.tables.table import Bools, Values


# --- reading ---


def add_reading_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that say how to read a table."""
    group = parser.add_argument_group(
        "reading", "What is left out is guessed where that is safe, and reported."
    )
    add_text_arguments(group)
    group.add_argument(
        "--index-col",
        metavar="NAME",
        help="column with the labels of the rows: its name, its number from 1, or none",
    )
    group.add_argument(
        "--missing",
        action="append",
        default=[],
        metavar="TEXT",
        help="what else means missing; may be repeated",
    )
    group.add_argument("--array", metavar="NAME", help="which array of an .npz file")


def add_text_arguments(group: argparse._ArgumentGroup) -> None:
    """Add the arguments for text files: ``--header``, ``--no-header`` and ``--delimiter``."""
    group.add_argument(
        "--header",
        action=argparse.BooleanOptionalAction,
        help="whether the first line holds the names of the columns",
    )
    group.add_argument(
        "--delimiter", type=_delimiter, metavar="CHAR", help="between the cells: ',' or tab, for example"
    )


def _delimiter(text: str) -> str:
    found = {"tab": "\t", "\\t": "\t", "space": " "}.get(text, text)
    if len(found) != 1 or found in '"\r\n':
        raise argparse.ArgumentTypeError(f"must be one character, tab or space, got {text!r}")
    return found


def read_table(options: argparse.Namespace, path: Path) -> Table:
    """Read a table as the arguments say."""
    how = (options.header, options.index_col, options.delimiter, tuple(options.missing), options.array)
    return tables.read(path, Reading(*how))


def check_within_bounds(
    options: argparse.Namespace, path: Path, values: npt.NDArray[Any], place: Callable[[int], str]
) -> None:
    """Raise a UsageError if numbers of a file are outside of ``--bounds``.

    Parameters
    ----------
    options : Namespace
    path : Path
        The file.
    values : array (k,)
        Its numbers, NaN where one is missing.
    place : callable
        Returns where in the file number k is.
    """
    if options.bounds is None:
        return
    low, high = options.bounds
    if low > high:
        raise UsageError(f"--bounds: expected LOW <= HIGH, got {low:g} {high:g}")
    bounds = Bounds.of((low, high))
    assert bounds is not None
    outside = np.flatnonzero(bounds.outside(values))
    if len(outside):
        raise UsageError(
            f"{path}: {len(outside)} numbers are outside --bounds {low:g} {high:g}, the first is "
            f"{values[outside[0]]:g} in {place(int(outside[0]))}"
        )


# --- labels ---


def describe_labels(table: Table) -> str:
    """Return in words which labels a table has."""
    header = "no header" if table.columns is None else "header"
    if table.rows is None:
        return f"{header}, no row labels"
    return f"{header}, row labels" + (f" from {table.corner!r}" if table.corner else "")


def labels_of(table: Table) -> Labels | None:
    """Return the labels of a table as a saved result holds them; an axis without any is numbered from 0."""
    if table.rows is None and table.columns is None:
        return None
    try:
        import pandas
    except ImportError as error:
        raise ImportError('labels are saved through pandas: pip install "airnp[tables]"') from error
    rows, columns = (
        pandas.RangeIndex(length) if labels is None else pandas.Index(labels)
        for labels, length in zip((table.rows, table.columns), table.values.shape, strict=True)
    )
    return Labels(rows.rename(table.corner) if table.corner else rows, columns)


def table_with_labels(values: Values, labels: Labels | None, whole: Any = False) -> Table:
    """Return values as a table with the labels of a saved result: the inverse of :func:`labels_of`.

    Columns in which ``whole`` is True have only whole numbers, which the table writes as int64.
    """
    kinds = np.broadcast_to(whole, values.shape[1])
    dtypes = [np.dtype(np.int64) if kind else values.dtype for kind in kinds]
    if labels is None:
        return Table(values, dtypes=dtypes)
    rows, columns = (None if _counts_from_zero(index) else index for index in (labels.index, labels.columns))
    name = labels.index.name
    return Table(values, rows, columns, None if name is None else str(name), dtypes=dtypes)


def _counts_from_zero(index: Any) -> bool:
    """Return whether an index has the numbers that :func:`labels_of` gives to an axis without labels."""
    plain = index.dtype.kind == "i" and index.name is None
    return bool(plain and np.array_equal(index, np.arange(len(index))))


# --- writing ---


def add_completion_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that say which files to write for a completed table."""
    kinds = ".csv .tsv .parquet .xlsx .npy .npz .mtx, also .csv.gz .tsv.gz .mtx.gz"
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
        type=fraction,
        metavar="LEVEL",
        help="write between what numbers a share LEVEL of the gaps is, such as 0.9: FILE.csv gets "
        "FILE.lower.csv and FILE.upper.csv beside it, an .npz file the arrays lower and upper",
    )


class Outputs(NamedTuple):
    """The files of a completed table, checked; None for those that are not to be written.

    ``lower`` and ``upper`` are also None where the ends of the intervals go into ``output`` itself.
    """

    output: Path | None
    kind: str
    lower: Path | None
    upper: Path | None
    result: Path | None

    @classmethod
    def of(cls, options: argparse.Namespace, *, needs_output: bool = True) -> Outputs:
        """Return the files that the arguments name; raise a UsageError unless all can be written."""
        output, result = options.output, options.result
        if output is None and (needs_output or result is None):
            raise UsageError("the following arguments are required: -o/--output")
        kind = "" if output is None else tables.kind_of(output)
        has_ends = options.interval is not None and output is not None and kind != ".npz"
        lower, upper = (path_beside(output, kind, end) if has_ends else None for end in ("lower", "upper"))
        files = {"--output": output, "--result": result, "--checkpoint": options.checkpoint}
        check_outputs(options, {**files, "--interval (lower)": lower, "--interval (upper)": upper})
        return cls(output, kind, lower, upper, result)

    def rehearse(self, table: Table) -> None:
        """Write the table nowhere: what the format cannot hold should be known before the work."""
        tables.write(io.BytesIO(), self.kind, table)

    def write(self, table: Table, path: Path | None = None) -> None:
        """Write a table to ``path``, by default to ``output``."""
        path = path or self.output
        assert path is not None
        write_file(path, lambda file: tables.write(file, self.kind, table))


def path_beside(output: Path, kind: str, end: str) -> Path:
    """Return the file for one end of the intervals.

    Examples
    --------
    >>> path_beside(Path("there/out.csv.gz"), ".csv.gz", "lower").name
    'out.lower.csv.gz'
    """
    stem, suffix = output.name[: -len(kind)], output.name[-len(kind) :]
    return output.with_name(f"{stem}.{end}{suffix}")


def write_completion(
    options: argparse.Namespace, outputs: Outputs, table: Table, observed: Bools, result: FitResult
) -> tuple[Values, dict[str, Any] | None]:
    """Write a completed table with its intervals and its result.

    The table is written even if there can be no intervals.

    Returns
    -------
    filled : array (m, n)
        The values of the completed table.
    interval : dict or None
        The facts about the intervals, if they were wanted.

    Raises
    ------
    WorkError
        If the disk refuses, or there can be no intervals.
    """
    fitted = result.matrix.astype(table.values.dtype)
    filled = fitted if options.fitted else np.where(observed, table.values, fitted)
    table = replace(table, kept=None if options.fitted else observed)
    ends: dict[str, Values] = {}
    obstacle = None
    if options.interval is not None:
        try:
            ends = _interval_ends(result, options.interval, table.values.dtype)
        except UsageError as error:
            obstacle = error
    outputs.write(replace(table, values=filled, others={} if outputs.lower else ends))
    if outputs.lower is not None:
        for end, values in ends.items():
            outputs.write(replace(table, values=values), getattr(outputs, end))
    save_result(result, outputs.result)
    if obstacle is not None:
        raise WorkError(f"wrote {outputs.output}, but no intervals: {obstacle}") from obstacle
    if not ends:
        return filled, None
    widths = (ends["upper"] - ends["lower"])[~observed]
    return filled, {
        "level": options.interval,
        "lower": str(outputs.lower or outputs.output),
        "upper": str(outputs.upper or outputs.output),
        "median_width": float(np.median(widths)) if widths.size else 0.0,
    }


def _interval_ends(result: FitResult, level: float, dtype: Any) -> dict[str, Values]:
    with explain_errors({"level": "--interval", "interval": "--interval"}):
        lower, upper = replace(result, labels=None).interval(level)
    return {"lower": lower.astype(dtype), "upper": upper.astype(dtype)}
