"""Tables as text: .csv and .tsv files, whose delimiter, header and row labels are guessed if necessary."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np

from airnp.tables.table import Reading, Table, TableError

Cells = list[list[str]]

MISSING = frozenset({"", "nan", "na", "n/a", "#n/a", "<na>", "null", "none"})
"""Cells that mean missing, in lower case."""

SAMPLE_LINES = 50
"""First lines of a file, from which the delimiter is guessed."""

_DELIMITERS = (",", ";", "\t", "|", " ")


def read_text(file: BinaryIO, reading: Reading, delimiter: str | None) -> Table:
    """Read a table; ``delimiter`` counts unless the user names one, None means guess."""
    try:
        text = file.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TableError(f"expected text in UTF-8 ({error.reason} at byte {error.start})") from error
    delimiter = reading.delimiter or delimiter or guess_delimiter(text)
    content = io.StringIO(text, newline="")
    source = csv.reader(content, delimiter=delimiter, skipinitialspace=True, strict=True)
    # Blank lines are skipped, so messages need the number of each line.
    numbered = [(source.line_num, [cell.strip() for cell in line]) for line in source if line]
    if not numbered:
        raise TableError("there are no numbers in it")
    lines, cells = [number for number, _ in numbered], [line for _, line in numbered]
    _check_equal_lengths(lines, cells)
    missing = MISSING | {text.strip().lower() for text in reading.missing}
    header = has_header(cells, missing) if reading.header is None else reading.header
    names, body = (cells[0], cells[1:]) if header else (None, cells)
    index = index_column(names, body, missing, reading)
    columns = [number for number in range(len(cells[0])) if number != index]
    values = np.empty((len(body), len(columns)))
    written = np.empty(values.shape, dtype=object)
    for place, line in enumerate(body):
        for target, number in enumerate(columns):
            values[place, target] = _value(line[number], missing, lines[place + header], number, names)
            written[place, target] = line[number]
    return Table(
        values,
        rows=None if index is None else [line[index] for line in body],
        columns=None if names is None else [names[number] for number in columns],
        corner=None if index is None or names is None else names[index],
        delimiter=delimiter,
        cells=written,
    )


def _check_equal_lengths(lines: list[int], cells: Cells) -> None:
    for number, line in zip(lines, cells, strict=True):
        if len(line) != len(cells[0]):
            raise TableError(
                f"line {number} has {len(line)} cells, line {lines[0]} has {len(cells[0])} "
                "(--delimiter decides what separates them)"
            )


def _value(cell: str, missing: frozenset[str], line: int, column: int, names: list[str] | None) -> float:
    if cell.lower() in missing:
        return np.nan
    value = number_of(cell)
    if value is None:
        name = str(column + 1) if names is None else repr(names[column])
        raise TableError(
            f"line {line}, column {name}: {cell!r} is not a number (--missing says what else means missing, "
            "--index-col which column holds labels)"
        )
    return value


def write_text(file: BinaryIO, table: Table, delimiter: str) -> None:
    """Write a table with ``delimiter`` between its cells."""
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    if table.columns is not None:
        corner = [] if table.rows is None else [table.corner or ""]
        writer.writerow([*corner, *table.columns])
    for number, line in enumerate(table.values):
        label = [] if table.rows is None else [table.rows[number]]
        cells: Iterator[str] = map(_cell, line)
        if table.kept is not None and table.cells is not None:
            originals = zip(cells, table.cells[number], table.kept[number], strict=True)
            cells = (str(old) if kept else new for new, old, kept in originals)
        writer.writerow([*label, *cells])
    text.detach()  # writes what is left; the caller closes the file


def _cell(value: Any) -> str:
    """Return the shortest text for a number that is read back exactly, without a decimal point if whole."""
    return "" if np.isnan(value) else str(value).removesuffix(".0")


def number_of(text: str) -> float | None:
    """Return a cell as a number; None if it is none."""
    if "_" in text:  # Python would read 1_000
        return None
    try:
        return float(text)
    except ValueError:
        return None


def is_text(cell: str, missing: frozenset[str]) -> bool:
    """Return whether a cell is neither a number nor missing."""
    return cell.lower() not in missing and number_of(cell) is None


def guess_delimiter(text: str) -> str:
    """Return the delimiter that cuts all of the first lines into equally many cells."""
    lines = [line for line in text.splitlines()[:SAMPLE_LINES] if line.strip()]
    fitting = []
    for delimiter in _DELIMITERS:
        lengths = {len(line) for line in csv.reader(lines, delimiter=delimiter, skipinitialspace=True)}
        if len(lengths) == 1 and lengths != {1}:
            fitting.append(delimiter)
    # Spaces are also written after another delimiter, or inside labels.
    if len(fitting) > 1 and " " in fitting:
        fitting.remove(" ")
    if len(fitting) > 1:
        found = " or ".join(map(repr, fitting))
        raise TableError(f"cannot tell whether {found} separates the cells; --delimiter decides")
    return fitting[0] if fitting else ","


def has_header(cells: Cells, missing: frozenset[str]) -> bool:
    """Return whether the first line holds names: a cell after the first is text, or the first is empty."""
    first = cells[0]
    if any(is_text(cell, missing) for cell in first[1:]):
        return True
    below = [line[0] for line in cells[1:]]
    labelled = any(is_text(cell, missing) for cell in below)
    if not first[0]:
        return labelled or all(below)
    if not is_text(first[0], missing):
        return False
    if len(first) > 1 and labelled:
        # Names of years over labelled rows look like a row of numbers with a label of its own.
        raise TableError("cannot tell whether the first line holds names; --header or --no-header decides")
    return True


def index_column(
    names: list[str] | None, body: Cells, missing: frozenset[str], reading: Reading
) -> int | None:
    """Return the column with the row labels: by default the first, if it holds text alone or has no name.

    A single odd cell among numbers does not make labels of them.
    """
    if reading.index is not None:
        return find_column(reading.index, names, len(body[0]) if body else 0)
    width = len(names) if names is not None else len(body[0])
    if width == 1:
        return None
    unnamed = names is not None and not names[0] and all(line[0] for line in body)
    known = [line[0] for line in body if line[0].lower() not in missing]
    return 0 if unnamed or (known and all(is_text(cell, missing) for cell in known)) else None


def find_column(wanted: str, names: Sequence[Any] | None, width: int) -> int | None:
    """Return the position of a column by its name or its number from 1; None for ``"none"``."""
    if wanted == "none":
        return None
    known = [] if names is None else [str(name) for name in names]
    if wanted in known:
        return known.index(wanted)
    if wanted.isdecimal() and 1 <= int(wanted) <= width:
        return int(wanted) - 1
    listed = f", the names are {', '.join(map(repr, known[:10]))}" if known else ""
    raise TableError(f"--index-col: there is no column {wanted!r} among the {width}{listed}")
