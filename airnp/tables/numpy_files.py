"""Tables in the files of NumPy, .npy and .npz, and sparse matrices in those of SciPy."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from airnp.tables.arrays import from_array, from_sparse, whole_array
from airnp.tables.reading import Reading
from airnp.tables.table import Table, TableError


def read_npy(file: BinaryIO, reading: Reading) -> Table:
    """Read the array of a file."""
    return from_array(np.lib.format.read_array(file, allow_pickle=False))


def write_npy(file: BinaryIO, table: Table) -> None:
    """Write the values, without labels."""
    np.lib.format.write_array(file, whole_array(table), allow_pickle=False)


def read_npz(file: BinaryIO, reading: Reading) -> Table:
    """Read a sparse matrix, or one of several arrays with labels beside it."""
    stored = read_sparse_npz(file)
    if stored is not None:
        return from_sparse(stored)
    with np.load(file, allow_pickle=False) as arrays:
        table = from_array(arrays[_chosen_array(arrays, reading.array)])
        rows, columns = (
            [str(label) for label in arrays[name]]
            if name in arrays and arrays[name].shape == (length,)
            else None
            for name, length in zip(("rows", "columns"), table.values.shape, strict=True)
        )
    return replace(table, rows=rows, columns=columns)


def write_npz(file: BinaryIO, table: Table) -> None:
    """Write the values, labels, and what else the table holds."""
    arrays = {"X": whole_array(table)}
    for name, labels in (("rows", table.rows), ("columns", table.columns)):
        if labels is not None:
            arrays[name] = np.asarray([str(label) for label in labels])
    arrays |= table.others
    np.savez_compressed(file, allow_pickle=False, **arrays)


def read_sparse_npz(file: BinaryIO) -> Any | None:
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
