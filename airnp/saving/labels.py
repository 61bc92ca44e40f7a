"""Row and column labels of tables as plain JSON values, and back. Only called where pandas is in use."""

from __future__ import annotations

from typing import Any

import numpy as np


def to_plain(index: Any) -> dict[str, Any]:
    """Return a pandas index as JSON can hold it.

    Text, numbers and times come back as they were, with their names and levels. Labels that are none of
    these (intervals, objects of one's own) come back as their text.
    """
    from pandas import MultiIndex

    if isinstance(index, MultiIndex):
        return {"levels": [to_plain(index.get_level_values(level)) for level in range(index.nlevels)]}
    stored = {"name": _plain(index.name), "dtype": str(index.dtype), "values": _plain_values(index)}
    return stored if _comes_back(stored, index) else {**stored, "dtype": "object"}


def _plain_values(index: Any) -> list[Any]:
    if index.dtype.kind in "mM":
        # Ticks since 1970, in UTC where there is a time zone.
        return [int(tick) for tick in index.asi8]
    return [_plain(label) for label in index]


def _plain(label: Any) -> Any:
    """Return one label: numbers and strings as they are, nothing as None, the rest by its text."""
    from pandas import NA

    label = label.item() if isinstance(label, np.generic) else label
    if isinstance(label, tuple):
        return [_plain(part) for part in label]
    if label is None or label is NA:
        return None
    return label if isinstance(label, str | int | float) else str(label)


def _comes_back(stored: dict[str, Any], index: Any) -> bool:
    try:
        return bool(from_plain(stored).equals(index))
    except (TypeError, ValueError):
        return False


def from_plain(stored: dict[str, Any]) -> Any:
    """Return the pandas index that :func:`to_plain` stored."""
    from pandas import Index, MultiIndex

    if "levels" in stored:
        return MultiIndex.from_arrays([from_plain(level) for level in stored["levels"]])
    values = [_label(label) for label in stored["values"]]
    return Index(values, dtype=stored["dtype"], name=_label(stored["name"]), tupleize_cols=False)


def _label(stored: Any) -> Any:
    return tuple(_label(part) for part in stored) if isinstance(stored, list) else stored
