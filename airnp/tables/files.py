"""Read and write tables in the format of the file's suffix, compressed or not."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from airnp.tables.binary import (
    read_any_mtx,
    read_mtx,
    read_npy,
    read_npz,
    read_parquet,
    read_sparse_npz,
    write_mtx,
    write_npy,
    write_npz,
    write_parquet,
)
from airnp.tables.table import Reading, Table, TableError
from airnp.tables.text import number_of, read_text, write_text


class _Format(NamedTuple):
    read: Callable[[BinaryIO, Reading], Table]
    write: Callable[[BinaryIO, Table], None]


_FORMATS = {
    ".csv": _Format(
        lambda file, reading: read_text(file, reading, None),
        lambda file, table: write_text(file, table, table.delimiter or ","),
    ),
    ".tsv": _Format(
        lambda file, reading: read_text(file, reading, "\t"),
        lambda file, table: write_text(file, table, "\t"),
    ),
    ".npy": _Format(read_npy, write_npy),
    ".npz": _Format(read_npz, write_npz),
    ".mtx": _Format(read_mtx, write_mtx),
    ".parquet": _Format(read_parquet, write_parquet),
}

_SPARSE = {".npz": read_sparse_npz, ".mtx": read_any_mtx}

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".npy", ".npz", ".mtx", ".mtx.gz", ".parquet")
"""The endings of file names that can be read and written."""


def kind_of(path: Path) -> str:
    """Return the suffix of a file's name; raise a TableError if it is not among `SUFFIXES`.

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
    with open_table(path, kind) as content:
        table = _FORMATS[kind.removesuffix(".gz")].read(content, reading)
    if table.values.size == 0:
        raise TableError(f"{path}: there are no numbers in it")
    return _without_missing_codes(table, reading.missing)


def read_sparse(path: Path) -> Any | None:
    """Return the sparse matrix of SciPy in a file; None if the file holds something else.

    Raises
    ------
    OSError, TableError
        As :func:`read` does.
    """
    kind = kind_of(path)
    if kind.removesuffix(".gz") not in _SPARSE:
        return None
    with open_table(path, kind) as content:
        found = _SPARSE[kind.removesuffix(".gz")](content)
    return None if isinstance(found, np.ndarray) else found


def write(file: BinaryIO, kind: str, table: Table) -> None:
    """Write a table to an open file in one of the formats `SUFFIXES`.

    Raises
    ------
    ImportError
        If a package is missing; the message names the extra.
    TableError
        If the format cannot hold the table.
    """
    with compressing(file, kind) as plain:
        _FORMATS[kind.removesuffix(".gz")].write(plain, table)


def _without_missing_codes(table: Table, missing: Iterable[str]) -> Table:
    """Return the table with NaN in place of numbers that mean missing."""
    codes = [number for number in map(number_of, missing) if number is not None]
    if not codes:
        return table
    return replace(table, values=np.where(np.isin(table.values, codes), np.nan, table.values))


@contextmanager
def compressing(file: BinaryIO, kind: str) -> Iterator[BinaryIO]:
    """Yield a file to write plain content to, which is compressed if the kind ends in ``.gz``."""
    if kind.endswith(".gz"):
        # Without name and time inside, the same table gives the same bytes.
        with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
            yield packed  # type: ignore[misc]
    else:
        yield file


@contextmanager
def open_table(path: Path, kind: str) -> Iterator[BinaryIO]:
    """Open a file to read, uncompressed; re-raise any parsing error as a TableError that names the file."""
    with open(path, "rb") as file:
        try:
            content: Any = gzip.GzipFile(fileobj=file) if kind.endswith(".gz") else file
            with content:
                yield content
        except TableError as error:
            raise TableError(f"{path}: {error}") from error
        except (ImportError, MemoryError):
            raise
        except Exception as error:
            # A file that is not what its name says can fail in any way.
            raise TableError(f"{path}: cannot be read as {kind} ({error})") from error
