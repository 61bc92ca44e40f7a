"""Tables with columns of any kind, as people have them in files: text, parquet, Excel.

The cells of a text file are kept as they were written. Only gaps are written anew, in the manner of their
column: with a decimal comma, a percent sign, or as a date.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from airnp.tables.binary import load_pandas
from airnp.tables.files import compressing, open_table
from airnp.tables.table import Reading, TableError
from airnp.tables.text import MISSING, find_column, guess_delimiter, has_header, number_of

SHEET_SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".xlsx")
"""Files whose columns may be of different kinds."""

MISSING_CELLS = MISSING | {"?", "-", "."}
"""Cells that mean missing, in lower case."""

_DATE = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d+)?)?)?")
_DOTTED_DATE = re.compile(r"(\d\d?)\.(\d\d?)\.(\d{4})")


@dataclass(frozen=True, eq=False)
class Manner:
    """How the numbers of a column are written.

    Attributes
    ----------
    decimal : str
        The decimal sign.
    thousands : bool
        Whether groups of three digits are separated.
    percent : str
        The percent sign that follows, with the space before it; empty if there is none.
    date : str
        The format of dates: ``"iso"``, ``"dotted"`` (day.month.year), or empty for what is no date.
    """

    decimal: str = "."
    thousands: bool = False
    percent: str = ""
    date: str = ""

    def text(self, value: Any) -> str:
        """Return a filled cell."""
        if isinstance(value, int | float | np.number):
            plain = str(value) if isinstance(value, int | np.integer) else str(float(f"{value:.10g}"))
            plain = plain.removesuffix(".0")
            if self.thousands and "e" not in plain:
                whole, point, fraction = plain.partition(".")
                plain = f"{'-' * whole.startswith('-')}{int(whole.lstrip('-')):,}{point}{fraction}"
            if self.decimal == ",":
                plain = plain.translate(str.maketrans(".,", ",."))
            return plain + self.percent
        if self.date == "dotted":
            return f"{value:%d.%m.%Y}"
        if self.date:
            return str(value.isoformat(sep=" ")).removesuffix(" 00:00:00")
        return str(value)


@dataclass(frozen=True, eq=False)
class Sheet:
    """A table with columns of any kind.

    Attributes
    ----------
    frame : DataFrame (n, d)
        What the cells mean.
    cells : list of list of str, or None
        The lines of a text file as they were written, without the header.
    header : bool
        Whether the columns have names of their own.
    delimiter : str
        Between the cells of a text file.
    encoding : str
    manners : list of Manner
        One for each column.
    odd : dict of label to str
        Columns that are numbers but for few cells, and the first of these.
    """

    frame: Any
    cells: list[list[str]] | None = None
    header: bool = True
    delimiter: str = ","
    encoding: str = "utf-8"
    manners: list[Manner] = field(default_factory=list)
    odd: dict[Any, str] = field(default_factory=dict)

    def check_words(self, ignored: Collection[Any]) -> None:
        """Raise unless columns of words are that: an odd cell would keep a column of numbers from it."""
        for name, cell in self.odd.items():
            if name not in ignored:
                raise TableError(
                    f"column {name!r}: {cell!r} is not a number, as most of its cells are "
                    f"(--missing {cell!r} if that means missing, --ignore {name!r} to carry it through)"
                )

    def notes(self) -> list[str]:
        """Return in words what was guessed about the columns."""
        found = []
        for name, manner in zip(self.frame.columns, self.manners, strict=False):
            told = [word for word in ("thousands", "percent", "date") if getattr(manner, word)]
            if told:
                found.append(f"{name}: {', '.join(told)}")
        return found


def sheet_kind(path: Path) -> str | None:
    """Return the suffix of a file that may hold columns of different kinds; None for any other."""
    return next((suffix for suffix in SHEET_SUFFIXES if path.name.lower().endswith(suffix)), None)


def read_sheet(path: Path, reading: Reading, decimal: str = ".", encoding: str = "utf-8-sig") -> Sheet:
    """Read a table; raise a TableError that names the file if that fails."""
    kind = sheet_kind(path)
    if kind is None:
        raise TableError(f"{path}: expected a name that ends in one of {', '.join(SHEET_SUFFIXES)}")
    pandas = _pandas()
    with open_table(path, kind) as content:
        if kind == ".parquet":
            frame = load_pandas().read_parquet(content)
        elif kind == ".xlsx":
            _check_excel()
            frame = pandas.read_excel(content, na_values=sorted(MISSING_CELLS | set(reading.missing)))
        else:
            try:
                text = content.read().decode(encoding)
            except LookupError:
                raise TableError(f"--encoding: there is no encoding {encoding!r}") from None
            except UnicodeDecodeError as error:
                name = encoding.upper().removesuffix("-SIG")
                raise TableError(
                    f"expected text in {name} ({error.reason} at byte {error.start}); "
                    "--encoding latin-1, for example, reads another one"
                ) from None
            return _parsed(text, reading, decimal, encoding, "\t" if kind.startswith(".tsv") else None)
    if not len(frame) or not len(frame.columns):
        raise TableError(f"{path}: there are no cells in it")
    codes = [number for number in map(number_of, reading.missing) if number is not None]
    if codes or reading.missing:
        frame = frame.mask(frame.isin([*codes, *reading.missing]))
    if kind == ".xlsx":
        frame = frame.apply(_read_as_text, args=(decimal,))
    return Sheet(frame, manners=[Manner()] * len(frame.columns))


def write_sheet(file: BinaryIO, kind: str, sheet: Sheet, frame: Any) -> None:
    """Write a completed sheet: cells that had a value as they were, gaps from ``frame``."""
    if kind == ".parquet":
        load_pandas()
        frame.to_parquet(file)
        return
    if kind == ".xlsx":
        _check_excel()
        frame.to_excel(file, index=False, header=sheet.header)
        return
    kept = sheet.frame.notna().to_numpy()
    columns = []
    for j, manner in enumerate(sheet.manners):
        written = ["" if _is_gap(value) else manner.text(value) for value in frame.iloc[:, j]]
        if sheet.cells is not None:
            written = [
                line[j] if there else new
                for line, there, new in zip(sheet.cells, kept[:, j], written, strict=True)
            ]
        columns.append(written)
    with compressing(file, kind) as plain:
        encoding = "utf-8" if sheet.encoding == "utf-8-sig" else sheet.encoding
        text = io.TextIOWrapper(plain, encoding=encoding, newline="")
        delimiter = "\t" if kind.startswith(".tsv") else sheet.delimiter
        writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
        if sheet.header:
            writer.writerow(frame.columns)
        writer.writerows(zip(*columns, strict=True))
        text.detach()  # writes what is left; the caller closes the file


def _is_gap(value: Any) -> bool:
    return value is None or value != value or type(value).__name__ in ("NAType", "NaTType")


# --- text ---


def _parsed(text: str, reading: Reading, decimal: str, encoding: str, delimiter: str | None) -> Sheet:
    delimiter = reading.delimiter or delimiter or guess_delimiter(text)
    source = csv.reader(
        io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True, strict=True
    )
    numbered = [(source.line_num, [cell.strip() for cell in line]) for line in source if line]
    if not numbered:
        raise TableError("there are no cells in it")
    width = len(numbered[0][1])
    for number, line in numbered:
        if len(line) != width:
            raise TableError(
                f"line {number} has {len(line)} cells, line {numbered[0][0]} has {width} "
                "(--delimiter decides what separates them)"
            )
    cells = [line for _, line in numbered]
    missing = MISSING_CELLS | {each.strip().lower() for each in reading.missing}
    header = _has_names(cells, missing) if reading.header is None else reading.header
    names = cells[0] if header else [f"column {j + 1}" for j in range(width)]
    body = cells[1:] if header else cells
    if not body:
        raise TableError("there are no cells below the header")
    pandas = _pandas()
    codes = [number for number in map(number_of, reading.missing) if number is not None]
    columns, manners, odd = [], [], {}
    for j in range(width):
        column = [line[j] for line in body]
        values, manner = _column(column, missing, codes, decimal)
        if values.dtype == object and (cell := _odd_cell(column, missing, decimal)) is not None:
            odd[j] = cell
        columns.append(pandas.Series(values))
        manners.append(manner)
    frame = pandas.concat(columns, axis=1)
    frame.columns = _different(names)
    named = {frame.columns[j]: cell for j, cell in odd.items()}
    return Sheet(frame, body, header, delimiter, encoding, manners, named)


def _has_names(cells: list[list[str]], missing: frozenset[str]) -> bool:
    """Return whether the first line holds names."""
    first, body = cells[0], cells[1:]
    texts = [j for j in range(len(first)) if any(_is_word(line[j], missing) for line in body)]
    if not texts or texts == [0]:
        return has_header(cells, missing)
    # A name is a word above numbers, or a word that its column does not have.
    return all(
        (_is_word(first[j], missing) and first[j] not in {line[j] for line in body}) or not first[j]
        for j in range(len(first))
    )


def _is_word(cell: str, missing: frozenset[str]) -> bool:
    return cell.lower() not in missing and number_of(cell) is None


def _different(names: Sequence[str]) -> list[str]:
    """Return names that are all different."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        count = seen[name] = seen.get(name, 0) + 1
        found.append(name if count == 1 else f"{name} ({count})")
    return found


def _column(
    cells: list[str], missing: frozenset[str], codes: list[float], decimal: str
) -> tuple[npt.NDArray[Any], Manner]:
    """Return what the cells of a column mean: numbers, dates or words, and how they are written."""
    gaps = np.array([cell.lower() in missing for cell in cells])
    known = [cell for cell, gap in zip(cells, gaps, strict=True) if not gap]
    comma = "." if decimal == "," else ","
    percent = ""
    if known and all(cell.endswith("%") for cell in known):
        percent = " %" if known[0][-2:-1].isspace() else "%"
    plain = [cell.removesuffix("%").strip() if percent else cell for cell in known]
    grouped = re.compile(rf"[+-]?\d{{1,3}}(\{comma}\d{{3}})+(\{decimal}\d+)?")
    thousands = any(grouped.fullmatch(cell) for cell in plain)
    # A number with leading zeros is a name: of a place, a person, a thing.
    if any(re.fullmatch(r"0\d+", cell) for cell in plain):
        return _words(cells, gaps), Manner()
    numbers = []
    for cell in plain:
        digits = cell.replace(comma, "") if grouped.fullmatch(cell) else cell
        if decimal == "," and "." in digits:
            break
        value = number_of(digits.replace(decimal, "."))
        if value is None:
            break
        numbers.append(value)
    if len(numbers) == len(known):
        values = np.full(len(cells), np.nan)
        values[~gaps] = numbers
        values[np.isin(values, codes)] = np.nan
        return values, Manner(decimal, thousands, percent)
    for name, pattern in (("iso", _DATE), ("dotted", _DOTTED_DATE)):
        found = [pattern.fullmatch(cell) for cell in known]
        if all(found):
            stamps = np.full(len(cells), np.datetime64("NaT"), dtype="datetime64[ns]")
            try:
                stamps[~gaps] = np.array([_iso(each) for each in found if each], dtype="datetime64[ns]")
            except ValueError:  # such as the 31st of June
                break
            return stamps, Manner(date=name)
    return _words(cells, gaps), Manner()


def _iso(found: re.Match[str]) -> str:
    if found.re is not _DOTTED_DATE:
        return found[0]
    day, month, year = found.groups()
    return f"{year}-{month:0>2}-{day:0>2}"


def _read_as_text(column: Any, decimal: str) -> Any:
    """Return what the cells of a column of Excel mean: numbers and dates are often kept as text there."""
    known = column.dropna()
    if not len(known) or not all(isinstance(value, str) for value in known):
        return column
    cells = ["" if gone else value.strip() for value, gone in zip(column, column.isna(), strict=True)]
    values, _ = _column(cells, frozenset({""}), [], decimal)
    return column if values.dtype == object else _pandas().Series(values, index=column.index)


def _odd_cell(cells: list[str], missing: frozenset[str], decimal: str) -> str | None:
    """Return the first cell of a column of words that is none, if most others are numbers.

    Numbers with leading zeros are names. Words that come again, such as 1, 2 and 3+, are categories.
    """
    known = [cell for cell in cells if cell.lower() not in missing]
    odd = [cell for cell in known if number_of(cell.replace(decimal, ".")) is None]
    mostly_numbers = 0 < 2 * len(odd) < len(known)
    return odd[0] if mostly_numbers and 2 * len(set(known)) > len(known) else None


def _words(cells: list[str], gaps: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    words = np.empty(len(cells), dtype=object)
    words[:] = [None if gap else cell for cell, gap in zip(cells, gaps, strict=True)]
    return words


def find_columns(names: Sequence[Any], wanted: str, option: str) -> list[Any]:
    """Return the columns that a list of names or numbers from 1, separated by commas, means."""
    found = []
    for each in wanted.split(","):
        try:
            place = find_column(each.strip(), names, len(names))
        except TableError as error:
            raise TableError(str(error).replace("--index-col", option)) from None
        if place is not None:
            found.append(names[place])
    return found


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        raise ImportError('columns of any kind need pandas: pip install "airnp[tables]"') from error
    return pandas


def _check_excel() -> None:
    try:
        import openpyxl  # noqa: F401
    except ImportError as error:
        raise ImportError('Excel files need openpyxl: pip install "airnp[excel]"') from error
