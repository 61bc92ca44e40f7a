"""Where a file has the names of its columns and rows: what the user says, or a guess."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airnp.tables.cells import is_text
from airnp.tables.reading import Reading
from airnp.tables.table import TableError

Cells = list[list[str]]


def has_header(cells: Cells, missing: frozenset[str]) -> bool:
    """Whether the first line holds names: if a cell other than the first is text, or the corner is empty."""
    first = cells[0]
    if any(is_text(cell, missing) for cell in first[1:]):
        return True
    below = [line[0] for line in cells[1:]]
    labelled = any(is_text(cell, missing) for cell in below)
    if not first[0]:
        return labelled or all(below)
    if not is_text(first[0], missing):
        return False
    if len(first) > 1 and labelled:
        # Names of years over labelled rows look like a row of numbers with a label of its own.
        raise TableError("cannot tell whether the first line holds names; --header or --no-header decides")
    return True


def index_column(
    names: list[str] | None, body: Cells, missing: frozenset[str], reading: Reading
) -> int | None:
    """Return which column holds the rows' labels: the first, if it holds text or its name is empty."""
    if reading.index is not None:
        return named_column(reading.index, names, len(body[0]) if body else 0)
    width = len(names) if names is not None else len(body[0])
    if width == 1:
        return None
    unnamed = names is not None and not names[0] and all(line[0] for line in body)
    return 0 if unnamed or any(is_text(line[0], missing) for line in body) else None


def named_column(wanted: str, names: Sequence[Any] | None, width: int) -> int | None:
    """Return the place of a column that is called by its name or its number from 1; None for ``"none"``."""
    if wanted == "none":
        return None
    known = [] if names is None else [str(name) for name in names]
    if wanted in known:
        return known.index(wanted)
    if wanted.isdecimal() and 1 <= int(wanted) <= width:
        return int(wanted) - 1
    listed = f", the names are {', '.join(map(repr, known[:10]))}" if known else ""
    raise TableError(f"--index-col: there is no column {wanted!r} among the {width}{listed}")
