"""The history of a fit: loss, fidelity and energies at the iterations that were recorded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]


class History(Mapping[str, npt.NDArray[Any]]):
    """Columns of numbers, one row per recorded iteration.

    Columns are ``iteration``, ``loss``, ``fidelity``, ``energy_<name>`` for each regulariser (R without
    its λ), and ``nmae`` where the truth was given. Losses are those that the iteration started from, in
    normalised units. For a stack each row has the stack's shape.

    Examples
    --------
    >>> history = History(["loss"])
    >>> history.append(1, {"loss": np.array(0.5)})
    >>> history["iteration"], history["loss"]
    (array([1]), array([0.5]))
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = list(columns)
        # Whole rows, so that an interrupt cannot leave columns of different lengths behind.
        self._rows: list[tuple[int, dict[str, Values]]] = []

    def append(self, iteration: int, row: Mapping[str, Values]) -> None:
        """Record one iteration; ``row`` has a value for every column."""
        values = {name: np.array(row[name], dtype=np.float64) for name in self._columns}
        self._rows.append((iteration, values))

    def truncate(self, iteration: int) -> None:
        """Forget everything after ``iteration``."""
        self._rows = [row for row in self._rows if row[0] <= iteration]

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        if name == "iteration":
            return np.asarray([iteration for iteration, _ in self._rows], dtype=np.int64)
        if name not in self._columns:
            raise KeyError(f"{name!r} was not recorded; there are {', '.join(self)}")
        return np.asarray([values[name] for _, values in self._rows], dtype=np.float64)

    def __iter__(self) -> Iterator[str]:
        yield "iteration"
        yield from self._columns

    def __len__(self) -> int:
        return 1 + len(self._columns)

    # Comparing arrays entry by entry has no single answer; a history is equal to itself alone.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"<History of {len(self._rows)} records: {', '.join(self)}>"

    @classmethod
    def from_columns(cls, columns: Mapping[str, Values]) -> History:
        """Return a history with the given columns, ``iteration`` among them."""
        names = [name for name in columns if name != "iteration"]
        history = cls(names)
        for position, iteration in enumerate(columns["iteration"]):
            history.append(int(iteration), {name: columns[name][position] for name in names})
        return history


def energy_columns(names: Sequence[str]) -> list[str]:
    """Return one column name per regulariser, with a number where a name comes again.

    Examples
    --------
    >>> energy_columns(["rows", "columns", "rows"])
    ['energy_rows', 'energy_columns', 'energy_rows_2']
    """
    columns: list[str] = []
    for position, name in enumerate(names):
        again = names[: position + 1].count(name)
        columns.append(f"energy_{name}" if again == 1 else f"energy_{name}_{again}")
    return columns
