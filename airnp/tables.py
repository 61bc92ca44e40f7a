"""Tables on disk: matrices with gaps and labels, read from and written to the formats people have.

======================  ============================================  =======================
suffix                  what is missing                               labels
======================  ============================================  =======================
.csv .tsv, also .gz     empty cells, NaN, NA, null, …                 header and one column
.parquet                nulls and NaN                                 columns and index
.npz                    NaN; in a sparse matrix what is not stored    arrays rows and columns
.npy                    NaN                                           none
.mtx, also .gz          what is not stored                            none
======================  ============================================  =======================

Numbers are read exactly and written with as many digits as bring them back.
"""

from __future__ import annotations

import csv
import gzip
import io
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from airnp.bounds import ALL_WHOLE

__all__ = [
    "SUFFIXES",
    "Reading",
    "Table",
    "TableError",
    "holds_result",
    "kind_of",
    "load_pandas",
    "number_of",
    "opened",
    "packing",
    "read",
    "read_sparse",
    "told_delimiter",
    "write",
]

NEEDS_PANDAS = 'parquet files need pandas and pyarrow: pip install "airnp[tables]"'

_MISSING = frozenset({"", "nan", "na", "n/a", "#n/a", "<na>", "null", "none"})
_DELIMITERS = (",", ";", "\t", "|", " ")
_LOOKED_AT = 50
"""Lines from which the delimiter is told."""

Values = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]
Cells = list[list[str]]


class TableError(ValueError):
    """A file that cannot be read or written as a table; the message names it."""


@dataclass(frozen=True, eq=False)
class Table:
    """A matrix with gaps.

    Attributes
    ----------
    values : array of float32 or float64 (m, n)
        NaN where missing.
    rows, columns : sequence or None
        Labels.
    corner : str or None
        What the column of row labels is called.
    delimiter : str or None
        Between the cells of a text file.
    dtypes : sequence of dtype or None
        Of each column in the file; whole numbers are given back in it. None where a file has text.
    others : dict of str to array (m, n)
        Further matrices, which an ``.npz`` file can hold beside the values, and no other format.
    """

    values: Values
    rows: Sequence[Any] | None = None
    columns: Sequence[Any] | None = None
    corner: str | None = None
    delimiter: str | None = None
    dtypes: Sequence[np.dtype[Any]] | None = None
    others: Mapping[str, Values] = field(default_factory=dict)

    @property
    def observed(self) -> Bools:
        """True where there is a number."""
        return ~np.isnan(self.values)

    @property
    def whole(self) -> Bools:
        """For each column, whether it has observed numbers and all of them are whole, shape (n,)."""
        fractional = ALL_WHOLE.fractional(self.values).any(axis=0)
        return np.asarray(~fractional & self.observed.any(axis=0))

    def place(self, row: int, column: int) -> str:
        """Return what the user calls an entry; rows and columns without labels count from 1."""
        names = (
            str(number + 1) if labels is None else repr(str(labels[number]))
            for labels, number in ((self.rows, row), (self.columns, column))
        )
        return "row {}, column {}".format(*names)


@dataclass(frozen=True)
class Reading:
    """How to read a file, where that is not to be guessed.

    Attributes
    ----------
    header : bool or None
        Whether the first line of a text file holds the columns' names; None: guess.
    index : str or None
        The column with the rows' labels: its name, or its number from 1; ``"none"`` for none; None: guess.
    delimiter : str or None
        Between the cells of a text file; None: guess.
    missing : tuple of str
        What else means missing, besides empty cells, NaN, NA and the like. A number is compared as a number.
    array : str or None
        Which array of an ``.npz`` file.
    """

    header: bool | None = None
    index: str | None = None
    delimiter: str | None = None
    missing: tuple[str, ...] = ()
    array: str | None = None


class _Format(NamedTuple):
    read: Callable[[BinaryIO, Reading], Table]
    write: Callable[[BinaryIO, Table], None]


def kind_of(path: Path) -> str:
    """Return which of `SUFFIXES` a file's name ends in.

    Raises
    ------
    TableError
        If it ends in none of them.

    Examples
    --------
    >>> kind_of(Path("Ratings.CSV.gz"))
    '.csv.gz'
    """
    for suffix in SUFFIXES:
        if path.name.lower().endswith(suffix):
            return suffix
    raise TableError(f"{path}: expected a name that ends in one of {', '.join(SUFFIXES)}")


def read(path: Path, reading: Reading | None = None) -> Table:
    """Read a table in the format of its suffix.

    Raises
    ------
    OSError
        If there is no such file to read.
    ImportError
        If a package is missing; the message names the extra.
    TableError
        If the file is not what its name says, or holds no matrix of real numbers.
    """
    reading = Reading() if reading is None else reading
    kind = kind_of(path)
    with opened(path, kind) as content:
        table = _FORMATS[kind.removesuffix(".gz")].read(content, reading)
    if table.values.size == 0:
        raise TableError(f"{path}: there are no numbers in it")
    return _without_codes(table, reading.missing)


def read_sparse(path: Path) -> Any | None:
    """Return the sparse matrix of SciPy in a file as it is; None if a table is in it, or something else.

    Raises
    ------
    OSError, TableError
        As :func:`read` does.
    """
    kind = kind_of(path)
    if kind.removesuffix(".gz") not in _SPARSE:
        return None
    with opened(path, kind) as content:
        found = _SPARSE[kind.removesuffix(".gz")](content)
    return None if isinstance(found, np.ndarray) else found


def write(file: BinaryIO, kind: str, table: Table) -> None:
    """Write a table to an open file in one of the formats `SUFFIXES`.

    Raises
    ------
    ImportError
        If a package is missing; the message names the extra.
    TableError
        If the format cannot hold it.
    """
    with packing(file, kind) as plain:
        _FORMATS[kind.removesuffix(".gz")].write(plain, table)


@contextmanager
def packing(file: BinaryIO, kind: str) -> Iterator[BinaryIO]:
    """Return where to write a file's plain content, which is compressed if its kind ends in ``.gz``."""
    if kind.endswith(".gz"):
        # No name and no time inside: the same table gives the same bytes.
        with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
            yield packed  # type: ignore[misc]
    else:
        yield file


@contextmanager
def opened(path: Path, kind: str) -> Iterator[BinaryIO]:
    """Open a file of one of the formats `SUFFIXES` to read; what is wrong with its content names the file."""
    with open(path, "rb") as file:
        try:
            with _unpacked(file, kind) as content:
                yield content
        except TableError as error:
            raise TableError(f"{path}: {error}") from error
        except (ImportError, MemoryError):
            raise
        except Exception as error:
            # Bytes that are not what the name says can fail in any way; to the user each means the same.
            raise TableError(f"{path}: cannot be read as {kind} ({error})") from error


def _unpacked(file: BinaryIO, kind: str) -> Any:
    return gzip.GzipFile(fileobj=file) if kind.endswith(".gz") else file


def _without_codes(table: Table, missing: Iterable[str]) -> Table:
    """Return the table with NaN where a number stands for missing."""
    codes = [number for number in map(number_of, missing) if number is not None]
    if not codes:
        return table
    return replace(table, values=np.where(np.isin(table.values, codes), np.nan, table.values))


def _from_array(array: Values) -> Table:
    """Return a matrix as a table of floating-point numbers, as precise as it needs to be."""
    if array.ndim != 2:
        raise TableError(f"expected a matrix, found an array of shape {array.shape}")
    if array.dtype.kind not in "biuf":
        raise TableError(f"expected real numbers, found dtype {array.dtype}")
    narrow = array.dtype.itemsize <= 2 or array.dtype == np.float32
    return Table(array.astype(np.float32 if narrow else np.float64), dtypes=[array.dtype] * array.shape[1])


def _in_own_dtype(values: Values, dtype: np.dtype[Any]) -> Values:
    """Return numbers in the dtype they came in, if these were integers and nothing is lost."""
    if dtype.kind not in "iu" or not np.isfinite(values).all() or ALL_WHOLE.fractional(values).any():
        return values
    limits = np.iinfo(dtype)
    fits = limits.min <= values.min() and values.max() <= limits.max
    return values.astype(dtype) if fits else values


def _whole_array(table: Table) -> Values:
    """Return all values as one array, in the dtype they came in if that is one and loses nothing."""
    kinds = set(table.dtypes or ())
    return _in_own_dtype(table.values, kinds.pop()) if len(kinds) == 1 else table.values


# --- text ---


def _read_text(file: BinaryIO, reading: Reading, delimiter: str | None) -> Table:
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
    missing = _MISSING | {text.strip().lower() for text in reading.missing}
    header = _has_header(cells, missing) if reading.header is None else reading.header
    names, body = (cells[0], cells[1:]) if header else (None, cells)
    index = _index_column(names, body, missing, reading)
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


def told_delimiter(text: str) -> str:
    """Return what separates the cells: what cuts all of the first lines into equally many."""
    lines = [line for line in text.splitlines()[:_LOOKED_AT] if line.strip()]
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


def _check_equal_lengths(lines: list[int], cells: Cells) -> None:
    for number, line in zip(lines, cells, strict=True):
        if len(line) != len(cells[0]):
            raise TableError(
                f"line {number} has {len(line)} cells, line {lines[0]} has {len(cells[0])} "
                "(--delimiter decides what separates them)"
            )


def _has_header(cells: Cells, missing: frozenset[str]) -> bool:
    """Whether the first line holds names: if a cell other than the first is text, or the corner is empty."""
    first = cells[0]
    if any(_is_text(cell, missing) for cell in first[1:]):
        return True
    below = [line[0] for line in cells[1:]]
    labelled = any(_is_text(cell, missing) for cell in below)
    if not first[0]:
        return labelled or all(below)
    if not _is_text(first[0], missing):
        return False
    if len(first) > 1 and labelled:
        # Names of years over labelled rows look like a row of numbers with a label of its own.
        raise TableError("cannot tell whether the first line holds names; --header or --no-header decides")
    return True


def _index_column(
    names: list[str] | None, body: Cells, missing: frozenset[str], reading: Reading
) -> int | None:
    """Return which column holds the rows' labels: the first, if it holds text or its name is empty."""
    if reading.index is not None:
        return _named_column(reading.index, names, len(body[0]) if body else 0)
    width = len(names) if names is not None else len(body[0])
    if width == 1:
        return None
    unnamed = names is not None and not names[0] and all(line[0] for line in body)
    return 0 if unnamed or any(_is_text(line[0], missing) for line in body) else None


def _named_column(wanted: str, names: Sequence[Any] | None, width: int) -> int | None:
    if wanted == "none":
        return None
    known = [] if names is None else [str(name) for name in names]
    if wanted in known:
        return known.index(wanted)
    if wanted.isdecimal() and 1 <= int(wanted) <= width:
        return int(wanted) - 1
    listed = f", the names are {', '.join(map(repr, known[:10]))}" if known else ""
    raise TableError(f"--index-col: there is no column {wanted!r} among the {width}{listed}")


def _is_text(cell: str, missing: frozenset[str]) -> bool:
    return cell.lower() not in missing and number_of(cell) is None


def number_of(text: str) -> float | None:
    """Return a cell as a number, None if it is something else."""
    if "_" in text:  # digits in groups are Python's, not a table's
        return None
    try:
        return float(text)
    except ValueError:
        return None


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


def _write_text(file: BinaryIO, table: Table, delimiter: str) -> None:
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


# --- arrays ---


def _read_npy(file: BinaryIO, reading: Reading) -> Table:
    return _from_array(np.lib.format.read_array(file, allow_pickle=False))


def _write_npy(file: BinaryIO, table: Table) -> None:
    np.lib.format.write_array(file, _whole_array(table), allow_pickle=False)


def _read_npz(file: BinaryIO, reading: Reading) -> Table:
    stored = _read_sparse_npz(file)
    if stored is not None:
        return _from_sparse(stored)
    with np.load(file, allow_pickle=False) as arrays:
        table = _from_array(arrays[_chosen_array(arrays, reading.array)])
        rows, columns = (
            [str(label) for label in arrays[name]]
            if name in arrays and arrays[name].shape == (length,)
            else None
            for name, length in zip(("rows", "columns"), table.values.shape, strict=True)
        )
    return replace(table, rows=rows, columns=columns)


def _read_sparse_npz(file: BinaryIO) -> Any | None:
    """Return the sparse matrix that SciPy saved; None where arrays are saved."""
    if holds_result(file):
        raise TableError("is a result saved by airnp, not a table; airnp.load and airnp graph read it")
    with zipfile.ZipFile(file) as archive:
        found = {"format.npy", "shape.npy", "data.npy"} <= set(archive.namelist())
    file.seek(0)
    if not found:
        return None
    from scipy.sparse import load_npz

    return load_npz(file)


def holds_result(file: Path | BinaryIO) -> bool:
    """Whether an ``.npz`` file is a result that airnp saved, by the names of its members."""
    with zipfile.ZipFile(file) as archive:
        names = set(archive.namelist())
    return "header.npy" in names and bool(names & {"factor_0.npy", "row_factors.npy"})


def _chosen_array(arrays: Any, wanted: str | None) -> str:
    names = list(arrays)
    if wanted is not None:
        if wanted not in names:
            raise TableError(f"--array: there is no array {wanted!r}; there are {', '.join(names)}")
        return wanted
    matrices = [name for name in names if arrays[name].ndim == 2]
    if len(matrices) != 1:
        found = f"the matrices {', '.join(matrices)}" if matrices else "no matrix"
        raise TableError(f"expected one matrix, found {found}; --array decides")
    return str(matrices[0])


def _write_npz(file: BinaryIO, table: Table) -> None:
    arrays = {"X": _whole_array(table)}
    for name, labels in (("rows", table.rows), ("columns", table.columns)):
        if labels is not None:
            arrays[name] = np.asarray([str(label) for label in labels])
    arrays |= table.others
    np.savez_compressed(file, allow_pickle=False, **arrays)


def _read_mtx(file: BinaryIO, reading: Reading) -> Table:
    matrix = _read_any_mtx(file)
    return _from_array(matrix) if isinstance(matrix, np.ndarray) else _from_sparse(matrix)


def _read_any_mtx(file: BinaryIO) -> Any:
    """Return a matrix, sparse if the file says where each entry is."""
    from scipy.io import mminfo, mmread

    content = io.BytesIO(file.read())
    if mminfo(content)[4] == "pattern":
        raise TableError("it stores where entries are, but not their values")
    content.seek(0)
    return mmread(content)


def _write_mtx(file: BinaryIO, table: Table) -> None:
    from scipy.io import mmwrite

    mmwrite(file, _whole_array(table))


def _from_sparse(matrix: Any) -> Table:
    """Return a sparse matrix as a table: what it stores is observed, be it an explicit zero."""
    entries = matrix.tocoo()
    table = _from_array(entries.toarray())
    stored = np.zeros(table.values.shape, dtype=bool)
    stored[entries.row, entries.col] = True
    return replace(table, values=np.where(stored, table.values, np.nan).astype(table.values.dtype))


# --- parquet ---


def _read_parquet(file: BinaryIO, reading: Reading) -> Table:
    pandas = load_pandas()
    frame = pandas.read_parquet(file)
    index = _frame_index(frame, reading)
    if index is not None:
        frame = frame.set_index(frame.columns[index])
    odd = [str(name) for name, kind in frame.dtypes.items() if getattr(kind, "kind", "O") not in "biuf"]
    if odd:
        raise TableError(
            f"these columns are not numbers: {', '.join(map(repr, odd[:5]))} (--index-col says which column "
            "holds labels)"
        )
    values = frame.to_numpy(dtype=np.float64, na_value=np.nan)
    if all(kind == np.float32 for kind in frame.dtypes):
        values = values.astype(np.float32)
    plain = isinstance(frame.index, pandas.RangeIndex) and frame.index.name is None
    corner = None if plain or frame.index.name is None else str(frame.index.name)
    dtypes = [np.dtype(getattr(kind, "numpy_dtype", kind)) for kind in frame.dtypes]
    return Table(values, None if plain else frame.index, frame.columns, corner, dtypes=dtypes)


def _frame_index(frame: Any, reading: Reading) -> int | None:
    """Return which column holds the labels: the one that was named, or the first if it is text."""
    if reading.index is not None:
        return _named_column(reading.index, frame.columns, frame.shape[1])
    first_is_text = frame.shape[1] > 1 and getattr(frame.dtypes.iloc[0], "kind", "O") not in "biuf"
    return 0 if first_is_text else None


def _write_parquet(file: BinaryIO, table: Table) -> None:
    pandas = load_pandas()
    columns = range(1, table.values.shape[1] + 1) if table.columns is None else table.columns
    names = [str(name) for name in columns]
    if len(set(names)) < len(names):
        raise TableError(".parquet cannot hold two columns of the same name")
    dtypes = table.dtypes or [table.values.dtype] * len(names)
    numbers = {
        name: _in_own_dtype(values, dtype)
        for name, values, dtype in zip(names, table.values.T, dtypes, strict=True)
    }
    index = None if table.rows is None else pandas.Index(table.rows, name=table.corner or None)
    frame = pandas.DataFrame(numbers, index=index)
    frame.to_parquet(file, engine="pyarrow", index=table.rows is not None)


def load_pandas() -> Any:
    """Return pandas, for parquet files, or raise an ImportError that names the extra."""
    try:
        import pandas

        import_module("pyarrow")  # pandas' own message about it names no extra
    except ImportError as error:
        raise ImportError(NEEDS_PANDAS) from error
    return pandas


# --- the formats ---

_FORMATS = {
    ".csv": _Format(
        lambda file, reading: _read_text(file, reading, None),
        lambda file, table: _write_text(file, table, table.delimiter or ","),
    ),
    ".tsv": _Format(
        lambda file, reading: _read_text(file, reading, "\t"),
        lambda file, table: _write_text(file, table, "\t"),
    ),
    ".npy": _Format(_read_npy, _write_npy),
    ".npz": _Format(_read_npz, _write_npz),
    ".mtx": _Format(_read_mtx, _write_mtx),
    ".parquet": _Format(_read_parquet, _write_parquet),
}

_SPARSE = {".npz": _read_sparse_npz, ".mtx": _read_any_mtx}

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".npy", ".npz", ".mtx", ".mtx.gz", ".parquet")
"""The endings of file names that can be read and written."""
