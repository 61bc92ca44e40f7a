"""How to read a table, as arguments."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airnp.inputs import Labels
    from airnp.tables import Reading, Table
    from airnp.tables.table import Values


def add_reading_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what decides how a table is read, where it is not to be guessed."""
    group = parser.add_argument_group(
        "reading", "What is left out is guessed where that is safe, and reported."
    )
    add_header_argument(group)
    group.add_argument(
        "--index-col",
        metavar="NAME",
        help="column with the labels of the rows: its name, its number from 1, or none",
    )
    add_delimiter_argument(group)
    group.add_argument(
        "--missing",
        action="append",
        default=[],
        metavar="TEXT",
        help="what else means missing; may be repeated",
    )
    group.add_argument("--array", metavar="NAME", help="which array of an .npz file")


def add_header_argument(group: argparse._ArgumentGroup) -> None:
    """Add ``--header`` and ``--no-header``."""
    group.add_argument(
        "--header",
        action=argparse.BooleanOptionalAction,
        help="whether the first line holds the names of the columns",
    )


def add_delimiter_argument(group: argparse._ArgumentGroup) -> None:
    """Add ``--delimiter``."""
    group.add_argument(
        "--delimiter", type=_delimiter, metavar="CHAR", help="between the cells: ',' or tab, for example"
    )


def _delimiter(text: str) -> str:
    found = {"tab": "\t", "\\t": "\t", "space": " "}.get(text, text)
    if len(found) != 1 or found in '"\r\n':
        raise argparse.ArgumentTypeError(f"must be one character, tab or space, got {text!r}")
    return found


def reading_of(options: argparse.Namespace) -> Reading:
    """Return the parsed arguments."""
    from airnp.tables import Reading

    return Reading(
        options.header, options.index_col, options.delimiter, tuple(options.missing), options.array
    )


def decided(table: Table) -> str:
    """Return in words what was found about labels."""
    header = "no header" if table.columns is None else "header"
    if table.rows is None:
        return f"{header}, no row labels"
    return f"{header}, row labels" + (f" from {table.corner!r}" if table.corner else "")


def labels_of(table: Table) -> Labels | None:
    """Return the labels of a table as a saved result holds them; an axis without any is numbered from 0."""
    if table.rows is None and table.columns is None:
        return None
    from airnp.inputs import Labels

    try:
        import pandas
    except ImportError as error:
        raise ImportError('labels are saved through pandas: pip install "airnp[tables]"') from error
    rows, columns = (
        pandas.RangeIndex(length) if labels is None else pandas.Index(labels)
        for labels, length in zip((table.rows, table.columns), table.values.shape, strict=True)
    )
    return Labels(rows.rename(table.corner) if table.corner else rows, columns)


def labelled_table(values: Values, labels: Labels | None, whole: Any = False) -> Table:
    """Return values as a table with the labels of a saved result: the way back from :func:`labels_of`.

    ``whole`` says which columns have nothing but whole numbers, which the table gives back as int64.
    """
    import numpy as np

    from airnp.tables import Table

    kinds = np.broadcast_to(whole, values.shape[1:])
    dtypes = [np.dtype(np.int64) if kind else values.dtype for kind in kinds]
    if labels is None:
        return Table(values, dtypes=dtypes)
    rows, columns = (None if _is_numbered(index) else index for index in (labels.index, labels.columns))
    name = labels.index.name
    return Table(values, rows, columns, None if name is None else str(name), dtypes=dtypes)


def _is_numbered(index: Any) -> bool:
    """Whether an index only counts from 0, as one does where there are no labels."""
    import numpy as np

    plain = index.dtype.kind == "i" and index.name is None
    return bool(plain and np.array_equal(index, np.arange(len(index))))
