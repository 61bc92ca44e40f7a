"""Tables in parquet files, through pandas."""

from __future__ import annotations

from importlib import import_module
from typing import Any, BinaryIO

import numpy as np

from airnp.tables.arrays import in_own_dtype
from airnp.tables.names import named_column
from airnp.tables.reading import Reading
from airnp.tables.table import Table, TableError

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
    return Table(values, None if plain else frame.index, frame.columns, corner, dtypes=dtypes)


def _frame_index(frame: Any, reading: Reading) -> int | None:
    """Return which column holds the labels: the one that was named, or the first if it is text."""
    if reading.index is not None:
        return named_column(reading.index, frame.columns, frame.shape[1])
    first_is_text = frame.shape[1] > 1 and getattr(frame.dtypes.iloc[0], "kind", "O") not in "biuf"
    return 0 if first_is_text else None


def write_parquet(file: BinaryIO, table: Table) -> None:
    """Write one column of each of the table, whole numbers in the dtype that they came in."""
    pandas = load_pandas()
    columns = range(1, table.values.shape[1] + 1) if table.columns is None else table.columns
    names = [str(name) for name in columns]
    if len(set(names)) < len(names):
        raise TableError(".parquet cannot hold two columns of the same name")
    dtypes = table.dtypes or [table.values.dtype] * len(names)
    numbers = {
        name: in_own_dtype(values, dtype)
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
        raise ImportError(_NEEDS_PANDAS) from error
    return pandas
