"""Tables as text, .csv and .tsv."""

from __future__ import annotations

import csv
import io
from typing import Any, BinaryIO

import numpy as np

from airnp.tables.cells import MISSING, number_of, told_delimiter
from airnp.tables.names import Cells, has_header, index_column
from airnp.tables.reading import Reading
from airnp.tables.table import Table, TableError


def read_text(file: BinaryIO, reading: Reading, delimiter: str | None) -> Table:
    """Read a table whose cells this separates, if the user does not say; None: guess."""
    try:
        text = file.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TableError(f"expected text in UTF-8 ({error.reason} at byte {error.start})") from error
    delimiter = reading.delimiter or delimiter or told_delimiter(text)
    # Blank lines separate nothing and say nothing; the numbers of lines are kept for messages.
    source = csv.reader(
        io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True, strict=True
    )
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
    for place, line in enumerate(body):
        for target, number in enumerate(columns):
            values[place, target] = _value(line[number], missing, lines[place + header], number, names)
    return Table(
        values,
        rows=None if index is None else [line[index] for line in body],
        columns=None if names is None else [names[number] for number in columns],
        corner=None if index is None or names is None else names[index],
        delimiter=delimiter,
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
    """Write a table with this between its cells."""
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    if table.columns is not None:
        corner = [] if table.rows is None else [table.corner or ""]
        writer.writerow([*corner, *table.columns])
    for number, line in enumerate(table.values):
        label = [] if table.rows is None else [table.rows[number]]
        writer.writerow([*label, *map(_cell, line)])
    text.detach()  # writes what is left; closing the file is its owner's


def _cell(value: Any) -> str:
    """Return the shortest text that is read as this number; whole numbers have no decimal point."""
    return "" if np.isnan(value) else str(value).removesuffix(".0")
