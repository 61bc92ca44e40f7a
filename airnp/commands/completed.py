"""What ``airnp complete`` writes: the filled table, the ends of intervals beside it, and what was learned."""

from __future__ import annotations

import argparse
import io
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from airnp.commands.base import UsageError, WorkError, share
from airnp.commands.fitting import explained
from airnp.commands.outputs import add_output_arguments, check_archive, check_output, write_whole
from airnp.commands.reading import decided

if TYPE_CHECKING:
    import numpy.typing as npt

    from airnp.result import FitResult
    from airnp.sparse import SparseFitResult
    from airnp.tables import Table
    from airnp.tables.table import Values


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
