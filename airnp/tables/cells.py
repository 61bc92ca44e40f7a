"""Cells of text: numbers, gaps or names, and what separates them."""

from __future__ import annotations

import csv

from airnp.tables.table import TableError

MISSING = frozenset({"", "nan", "na", "n/a", "#n/a", "<na>", "null", "none"})
"""What means missing, in lower case."""

LOOKED_AT = 50
"""Lines from which the delimiter is told."""

_DELIMITERS = (",", ";", "\t", "|", " ")


def number_of(text: str) -> float | None:
    """Return a cell as a number, None if it is something else."""
    if "_" in text:  # digits in groups are Python's, not a table's
        return None
    try:
        return float(text)
    except ValueError:
        return None


def is_text(cell: str, missing: frozenset[str]) -> bool:
    """Whether a cell is neither a number nor one of those that mean missing."""
    return cell.lower() not in missing and number_of(cell) is None


def told_delimiter(text: str) -> str:
    """Return what separates the cells: what cuts all of the first lines into equally many."""
    lines = [line for line in text.splitlines()[:LOOKED_AT] if line.strip()]
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
