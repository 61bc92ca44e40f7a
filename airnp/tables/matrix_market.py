"""Tables in the format of Matrix Market, .mtx, where a sparse matrix says what is missing."""

from __future__ import annotations

import io
from typing import Any, BinaryIO

import numpy as np

from airnp.tables.arrays import from_array, from_sparse, whole_array
from airnp.tables.reading import Reading
from airnp.tables.table import Table, TableError


def read_mtx(file: BinaryIO, reading: Reading) -> Table:
    """Read a matrix; of a sparse one, what is not stored is missing."""
    matrix = read_any_mtx(file)
    return from_array(matrix) if isinstance(matrix, np.ndarray) else from_sparse(matrix)


def read_any_mtx(file: BinaryIO) -> Any:
    """Return a matrix, sparse if the file says where each entry is."""
    from scipy.io import mminfo, mmread

    content = io.BytesIO(file.read())
    if mminfo(content)[4] == "pattern":
        raise TableError("it stores where entries are, but not their values")
    content.seek(0)
    return mmread(content)


def write_mtx(file: BinaryIO, table: Table) -> None:
    """Write the values, without labels."""
    from scipy.io import mmwrite

    mmwrite(file, whole_array(table))
