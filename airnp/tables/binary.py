"""Tables in binary formats: .npy and .npz, Matrix Market, parquet, and sparse matrices of SciPy."""

from __future__ import annotations

import io
import os
import warnings
import zipfile
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from airnp._devices import available_memory
from airnp.results.files import check_array_header, read_array
from airnp.tables.table import (
    MOST_EXACT,
    Reading,
    Table,
    TableError,
    as_array,
    from_array,
    from_sparse,
    in_file_dtype,
)
from airnp.tables.text import find_column


def read_npy(file: BinaryIO, reading: Reading) -> Table:
    """Read the array of a file."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    return from_array(read_array(file, size))


def write_npy(file: BinaryIO, table: Table) -> None:
    """Write the values, without labels."""
    np.lib.format.write_array(file, as_array(table), allow_pickle=False)


def read_npz(file: BinaryIO, reading: Reading) -> Table:
    """Read a sparse matrix, or an array and its labels."""
    stored = read_sparse_npz(file)
    if stored is not None:
        return from_sparse(stored)
    with np.load(file, allow_pickle=False) as arrays:
        table = from_array(arrays[_array_name(arrays, reading.array)])
        rows, columns = (
            [str(label) for label in arrays[name]]
            if name in arrays and arrays[name].shape == (length,)
            else None
            for name, length in zip(("rows", "columns"), table.values.shape, strict=True)
        )
    return replace(table, rows=rows, columns=columns)


def write_npz(file: BinaryIO, table: Table) -> None:
    """Write the values, labels and further matrices."""
    arrays = {"X": as_array(table)}
    for name, labels in (("rows", table.rows), ("columns", table.columns)):
        if labels is not None:
            arrays[name] = np.asarray([str(label) for label in labels])
    arrays |= table.others
    np.savez_compressed(file, allow_pickle=False, **arrays)


def read_sparse_npz(file: BinaryIO) -> Any | None:
    """Return the sparse matrix that SciPy saved; None if the file holds other arrays."""
    if holds_result(file):
        raise TableError("is a result saved by airnp, not a table; airnp.load and airnp graph read it")
    _check_archive(file)
    with zipfile.ZipFile(file) as archive:
        found = {"format.npy", "shape.npy", "data.npy"} <= set(archive.namelist())
    file.seek(0)
    if not found:
        return None
    from scipy.sparse import load_npz

    return load_npz(file)


def _check_archive(file: BinaryIO) -> None:
    """Raise unless the arrays of an archive are as large as they say, and fit into memory together."""
    size = file.seek(0, os.SEEK_END)
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        if sum(member.compress_size for member in members) > size:
            raise TableError("its members overlap, which no honest archive needs")
        total = sum(member.file_size for member in members)
        if total > available_memory():
            raise TableError(f"its arrays need {total / 2**30:.1f} GiB, there are not as many")
        for member in members:
            if member.filename.endswith(".npy"):
                with archive.open(member) as content:
                    check_array_header(content, member.file_size)
    file.seek(0)


def holds_result(file: Path | BinaryIO) -> bool:
    """Return whether an ``.npz`` file is a result that airnp saved, by the names of its members."""
    with zipfile.ZipFile(file) as archive:
        names = set(archive.namelist())
    return "header.npy" in names and bool(names & {"factor_0.npy", "row_factors.npy"})


def _array_name(arrays: Any, wanted: str | None) -> str:
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


def read_mtx(file: BinaryIO, reading: Reading) -> Table:
    """Read a matrix; entries that a sparse one does not store are missing."""
    matrix = read_any_mtx(file)
    return from_array(matrix) if isinstance(matrix, np.ndarray) else from_sparse(matrix)


def read_any_mtx(file: BinaryIO) -> Any:
    """Return a matrix, sparse if the file says where each entry is.

    SciPy's reader writes where no memory is its own if a file has more numbers than it declares.
    """
    text = io.StringIO(file.read().decode("ascii"))
    banner = text.readline().lower().split()
    form, field, symmetry = banner[2:] if len(banner) == 5 else ("", "", "")
    if banner[:2] != ["%%matrixmarket", "matrix"] or form not in ("array", "coordinate"):
        raise TableError("expected a first line such as: %%MatrixMarket matrix coordinate real general")
    if field == "pattern":
        raise TableError("it stores where entries are, but not their values")
    if field not in _MTX_NUMBERS:
        raise TableError(f"expected real numbers, found {field}")
    if symmetry not in ("general", "symmetric", "skew-symmetric"):
        raise TableError(f"expected a general, symmetric or skew-symmetric matrix, found {symmetry}")
    line = text.readline()
    while line and (not line.strip() or line.startswith("%")):
        line = text.readline()
    sizes = [int(size) for size in line.split()]
    if len(sizes) != (2 if form == "array" else 3) or min(sizes) < 0:
        raise TableError(f"expected the sizes of the matrix, found {line.strip()!r}")
    m, n = sizes[:2]
    if symmetry != "general" and m != n:
        raise TableError(f"it declares a {symmetry} matrix of {m}x{n}")
    number = _MTX_NUMBERS[field]
    if form == "coordinate":
        kind = np.dtype([("row", np.int64), ("column", np.int64), ("value", number)])
        return _sparse_mtx(_lines_of_mtx(text, sizes[2], kind), m, n, symmetry)
    gap = 1 if symmetry == "skew-symmetric" else 0  # its diagonal is zero and not stored
    count = m * n if symmetry == "general" else (m - gap) * (m - gap + 1) // 2
    values = _lines_of_mtx(text, count, np.dtype(number))
    if symmetry == "general":
        return values.reshape(n, m).T
    matrix = np.zeros((n, n), number)
    matrix.T[np.tri(n, k=-gap, dtype=bool).T] = values  # column by column
    mirrored = np.tril(matrix, -1).T
    return matrix + (mirrored if symmetry == "symmetric" else -mirrored)


_MTX_NUMBERS: dict[str, Any] = {"real": np.float64, "double": np.float64, "integer": np.int64}


def _lines_of_mtx(text: io.StringIO, count: int, dtype: np.dtype[Any]) -> Any:
    """Return the numbers of a Matrix Market file, which has as many lines as it declares."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "loadtxt: input contained no data", UserWarning)
        found = np.loadtxt(text, dtype=dtype, comments=None, ndmin=1)
    if found.shape != (count,):
        raise TableError(f"it declares {count} lines of numbers, and has others")
    return found


def _sparse_mtx(entries: Any, m: int, n: int, symmetry: str) -> Any:
    from scipy.sparse import coo_array

    rows, columns, values = entries["row"] - 1, entries["column"] - 1, entries["value"]
    for places, size in ((rows, m), (columns, n)):
        if len(places) and not (places.min() >= 0 and places.max() < size):
            raise TableError(f"an entry is at {places.min() + 1} or {places.max() + 1}, outside of {m}x{n}")
    if symmetry != "general":
        away = rows != columns
        mirrored = values[away] if symmetry == "symmetric" else -values[away]
        rows, columns = np.concatenate([rows, columns[away]]), np.concatenate([columns, rows[away]])
        values = np.concatenate([values, mirrored])
    return coo_array((values, (rows, columns)), shape=(m, n))


def write_mtx(file: BinaryIO, table: Table) -> None:
    """Write the values, without labels."""
    from scipy.io import mmwrite

    mmwrite(file, as_array(table))


_NEEDS_PANDAS = 'parquet files need pandas and pyarrow: pip install "airnp[tables]"'


def read_parquet(file: BinaryIO, reading: Reading) -> Table:
    """Read columns of numbers, and labels from the index or a column of text."""
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
    large = (np.abs(values) > MOST_EXACT).any() and any(kind.kind in "iu" for kind in dtypes)
    cells = frame.to_numpy(dtype=object) if large else None
    return Table(values, None if plain else frame.index, frame.columns, corner, dtypes=dtypes, cells=cells)


def _frame_index(frame: Any, reading: Reading) -> int | None:
    """Return the column with the row labels: the one that is named, or the first if it is text or dates."""
    if reading.index is not None:
        return find_column(reading.index, frame.columns, frame.shape[1])
    if frame.shape[1] < 2:
        return None
    first = frame.iloc[:, 0]
    words = all(isinstance(value, str) for value in first.dropna()) and first.notna().any()
    return 0 if words or getattr(first.dtype, "kind", "O") == "M" else None


def write_parquet(file: BinaryIO, table: Table) -> None:
    """Write the columns, whole numbers in their dtype in the file that was read."""
    pandas = load_pandas()
    columns = range(1, table.values.shape[1] + 1) if table.columns is None else table.columns
    names = [str(name) for name in columns]
    if len(set(names)) < len(names):
        raise TableError(".parquet cannot hold two columns of the same name")
    dtypes = table.dtypes or [table.values.dtype] * len(names)
    numbers = {name: in_file_dtype(table, place, dtypes[place]) for place, name in enumerate(names)}
    index = None if table.rows is None else pandas.Index(table.rows, name=table.corner or None)
    frame = pandas.DataFrame(numbers, index=index)
    frame.to_parquet(file, engine="pyarrow", index=table.rows is not None)


def load_pandas() -> Any:
    """Return pandas, for parquet files, or raise an ImportError that names the extra."""
    try:
        import pandas

        import_module("pyarrow")  # pandas' own message about it names no extra
    except ImportError as error:
        raise ImportError(_NEEDS_PANDAS) from error
    return pandas
