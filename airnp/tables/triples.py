"""Tables of ratings on disk: a line for each entry of a sparse matrix.

A line has a user (the row of the matrix), an item (the column) and a rating; in a file of pairs, no rating.
Labels are any text, and further columns are ignored. Formats go by the suffix: .csv and .tsv, also .gz, and
.parquet; besides, what MovieLens has: .data with tabs and .dat with ``::`` between the cells, to read only.
"""

from __future__ import annotations

import csv
import io
import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from airnp.data.interactions import column_roles, moment, read_times
from airnp.tables.binary import load_pandas
from airnp.tables.files import compressing, kind_of, open_table
from airnp.tables.table import TableError
from airnp.tables.text import SAMPLE_LINES, guess_delimiter, number_of

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")
"""The endings of file names that can be read and written."""

_READ_ONLY = {".data": "\t", ".dat": "::"}
"""Endings of file names that can be read, and what stands between the cells."""

_MOVIELENS_TIME = 3
"""Position of the time in these files, which have no header."""

Places = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Labels = list[Any]


@dataclass(frozen=True, eq=False)
class Triples:
    """Entries of a sparse matrix, in the order of the file.

    Attributes
    ----------
    users, items : list
        Labels of the rows and columns, in the order in which they first appear.
    rows, columns : int64 arrays (k,)
        Position of each entry's labels in these lists.
    values : float64 array (k,)
        Ratings; empty for pairs.
    names : list of str or None
        Names of the columns that were read, if there is a header.
    times : float64 array (k,) or None
        When each entry was made, if a column with a usual name, or that of MovieLens, says so for all.
    """

    users: Labels
    items: Labels
    rows: Places
    columns: Places
    values: Floats
    names: list[str] | None
    times: Floats | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def place(self, number: int) -> str:
        """Return the labels of an entry, for messages."""
        user, item = self.users[self.rows[number]], self.items[self.columns[number]]
        return f"user {str(user)!r}, item {str(item)!r}"


@dataclass(frozen=True)
class Layout:
    """How to read a file of triples.

    Attributes
    ----------
    columns : tuple of str
        Names or numbers, from 1, of the columns with user, item and rating; only two for pairs.
    by_name : bool
        Let a header with usual names, such as userId, say which columns these are.
    header : bool or None
        Whether the first line holds names; None: ``is_header`` decides.
    delimiter : str or None
        Between the cells of a text file; None: guess.
    is_header : callable
        Decides whether the first line's cells in these columns are names.
    """

    columns: tuple[str, ...] = ("1", "2", "3")
    header: bool | None = None
    delimiter: str | None = None
    is_header: Callable[[list[str]], bool] = lambda cells: number_of(cells[-1]) is None
    by_name: bool = False

    def places(self, names: Sequence[str]) -> list[int]:
        """Return the positions of the columns, by the names in a header.

        Raises
        ------
        TableError
            If there is no such column, or names and positions disagree.
        """
        places = [_column(name, names) for name in self.columns]
        if not self.by_name:
            return places
        try:
            told = column_roles(names)
        except ValueError as error:
            raise TableError(f"{error} by --columns") from error
        roles = ("user", "item", "rating")[: len(places)]
        if all(role in told for role in roles):
            return [told[role] for role in roles]
        wrong = [role for role, place in told.items() if role in roles and places[roles.index(role)] != place]
        if wrong or told.get("timestamp") in places:
            listed = ", ".join(map(repr, names[:10]))
            raise TableError(
                f"cannot tell which columns are {', '.join(roles)} among {listed}; --columns decides"
            )
        return places

    def time_place(self, names: Sequence[str]) -> int | None:
        """Return the position of the column with times that a header tells, if there is one."""
        if not self.by_name:
            return None
        try:
            return column_roles(names).get("timestamp")
        except ValueError:
            return None


def kind_of_triples(path: Path) -> str:
    """Return the suffix of a file's name; raise a TableError if it is not among `SUFFIXES`."""
    if not path.name.lower().endswith(SUFFIXES):
        raise TableError(f"{path}: expected a name that ends in one of {', '.join(SUFFIXES)}")
    return kind_of(path)


def read(path: Path, layout: Layout | None = None) -> Triples:
    """Read triples, or pairs if the layout has two columns.

    Raises
    ------
    OSError
        If there is no such file to read.
    ImportError
        If a package is missing; the message names the extra.
    TableError
        If the file is not what its name says; the message names the line.
    """
    layout = Layout() if layout is None else layout
    suffix = path.suffix.lower()
    kind = suffix if suffix in _READ_ONLY else kind_of_triples(path)
    with open_table(path, kind) as content:
        if kind == ".parquet":
            found = _from_frame(load_pandas().read_parquet(content), layout)
        elif kind in _READ_ONLY:
            found = _from_text(content, layout, _READ_ONLY[kind], _MOVIELENS_TIME)
        else:
            found = _from_text(content, layout, "\t" if kind.startswith(".tsv") else None)
    if not len(found):
        raise TableError(f"{path}: there are no entries in it")
    return found


# --- text ---


def _from_text(
    content: BinaryIO, layout: Layout, delimiter: str | None, time_at: int | None = None
) -> Triples:
    text = io.TextIOWrapper(content, encoding="utf-8-sig", newline="")
    try:
        return _from_lines(text, layout, delimiter, time_at)
    except UnicodeDecodeError as error:
        raise TableError(f"expected text in UTF-8 ({error.reason})") from error
    finally:
        text.detach()  # the caller closes the file


def _from_lines(text: Iterable[str], layout: Layout, delimiter: str | None, time_at: int | None) -> Triples:
    if delimiter == "::":  # a csv reader has delimiters of one character
        text, delimiter = (line.replace("::", "\t") for line in text), "\t"
    lines = iter(text)
    first = list(islice(lines, SAMPLE_LINES))
    delimiter = layout.delimiter or delimiter or guess_delimiter("".join(first))
    source = csv.reader(chain(first, lines), delimiter=delimiter, skipinitialspace=True, strict=True)
    numbered = ((source.line_num, cells) for cells in source if cells)
    start = next(numbered, None)
    if start is None:
        raise TableError("there are no entries in it")
    head = [cell.strip() for cell in start[1]]
    asked = [head[_column(name, head)] for name in layout.columns]
    header = layout.header
    if header is None:
        named = not all(name.isdecimal() for name in layout.columns)
        header = named or layout.is_header(asked)
    told = replace(layout, by_name=layout.by_name and header)
    places = told.places(head)
    if header:
        time_at = told.time_place(head)
    elif time_at is not None and (not layout.by_name or time_at >= len(head)):
        time_at = None
    asked = [head[place] for place in places]
    body = numbered if header else chain([start], numbered)
    return _collect(body, places, asked if header else None, time_at)


def _column(wanted: str, names: Sequence[str]) -> int:
    """Return the position of a column by its name or its number from 1."""
    # A number is never a name: without a header, the first line holds labels, which may be numbers.
    if wanted.isdecimal() and 1 <= int(wanted) <= len(names):
        return int(wanted) - 1
    if not wanted.isdecimal() and wanted in names:
        return names.index(wanted)
    listed = ", ".join(map(repr, names[:10]))
    raise TableError(f"there is no column {wanted!r} among the {len(names)}: {listed}")


def _collect(
    lines: Iterator[tuple[int, list[str]]], places: list[int], names: list[str] | None, time_at: int | None
) -> Triples:
    """Collect entries line by line, because many millions of lines need too much memory as text."""
    users: dict[str, int] = {}
    items: dict[str, int] = {}
    rows, columns, values, times = array("q"), array("q"), array("d"), array("d")
    user_at, item_at, *value_at = places
    least = max(places) + 1
    for number, cells in lines:
        if len(cells) < least:
            raise TableError(f"line {number} has {len(cells)} cells, expected at least {least}")
        user, item = cells[user_at].strip(), cells[item_at].strip()
        if not user or not item:
            raise TableError(f"line {number}: the {'item' if user else 'user'} is missing")
        if value_at:
            cell = cells[value_at[0]].strip()
            value = number_of(cell)
            if value is None or not math.isfinite(value):
                raise TableError(f"line {number}: {cell!r} is no rating, expected a number")
            values.append(value)
        if time_at is not None:
            time = moment(cells[time_at].strip()) if time_at < len(cells) else None
            if time is None:
                time_at = None  # an order of some of the entries is none
            else:
                times.append(time)
        rows.append(users.setdefault(user, len(users)))
        columns.append(items.setdefault(item, len(items)))
    found = np.array(rows, dtype=np.int64), np.array(columns, dtype=np.int64)
    when = None if time_at is None else np.array(times, dtype=np.float64)
    return Triples(list(users), list(items), *found, np.array(values, dtype=np.float64), names, when)


# --- parquet ---


def _from_frame(frame: Any, layout: Layout) -> Triples:
    pandas = load_pandas()
    names = [str(name) for name in frame.columns]
    places = layout.places(names)
    parts = [frame.iloc[:, place] for place in places]
    for part in parts:
        if part.isna().any():
            line = int(np.argmax(part.isna().to_numpy())) + 1
            raise TableError(f"row {line}: column {str(part.name)!r} has no value")
    values = np.empty(0)
    if len(parts) > 2:
        try:
            values = parts[2].to_numpy(dtype=np.float64)
        except (TypeError, ValueError):
            raise TableError(f"column {str(parts[2].name)!r}: expected numbers") from None
        if not np.isfinite(values).all():
            line = int(np.argmin(np.isfinite(values))) + 1
            raise TableError(f"row {line}: {values[line - 1]} is no rating, expected a number")
    (rows, users), (columns, items) = (pandas.factorize(part) for part in parts[:2])
    found = rows.astype(np.int64), columns.astype(np.int64)
    chosen, time_at = [names[place] for place in places], layout.time_place(names)
    times = None if time_at is None else _moments(frame.iloc[:, time_at])
    return Triples(list(users), list(items), *found, values, chosen, times)


def _moments(column: Any) -> Floats | None:
    """Return times as numbers; None if some are missing or are neither numbers nor dates."""
    try:
        return read_times(column, len(column)).astype(np.float64)
    except ValueError:
        return None


# --- writing ---


def write(
    file: BinaryIO, kind: str, names: Sequence[str], users: Labels, items: Labels, values: npt.NDArray[Any]
) -> None:
    """Write a header and lines of user, item and number to an open file.

    Parameters
    ----------
    file : binary file
    kind : str
        One of `SUFFIXES`.
    names : sequence of 3 str
        The header.
    users, items : list (k,)
    values : array (k,)
    """
    if kind == ".parquet":
        pandas = load_pandas()
        columns = dict(zip(names, (users, items, values), strict=True))
        pandas.DataFrame(columns).to_parquet(file, engine="pyarrow", index=False)
        return
    with compressing(file, kind) as plain:
        text = io.TextIOWrapper(plain, encoding="utf-8", newline="")
        delimiter = "\t" if kind.startswith(".tsv") else ","
        writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
        writer.writerow(names)
        writer.writerows(zip(users, items, map(str, values), strict=True))
        text.detach()  # writes what is left; the caller closes the file
