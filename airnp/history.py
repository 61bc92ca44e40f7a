"""What a fit recorded on its way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]


class History(Mapping[str, Values]):
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
        self._iterations: list[int] = []
        self._columns: dict[str, list[Values]] = {name: [] for name in columns}

    def append(self, iteration: int, row: Mapping[str, Values]) -> None:
        """Record one iteration; ``row`` has a value for every column."""
        self._iterations.append(iteration)
        for name, column in self._columns.items():
            column.append(np.asarray(row[name], dtype=np.float64))

    def truncate(self, iteration: int) -> None:
        """Forget everything after ``iteration``."""
        keep = int(np.searchsorted(self._iterations, iteration, side="right"))
        del self._iterations[keep:]
        for column in self._columns.values():
            del column[keep:]

    def __getitem__(self, name: str) -> Values:
        if name == "iteration":
            return np.asarray(self._iterations)
        if name not in self._columns:
            raise KeyError(f"{name!r} was not recorded; there are {', '.join(self)}")
        return np.asarray(self._columns[name], dtype=np.float64)

    def __iter__(self) -> Iterator[str]:
        yield "iteration"
        yield from self._columns

    def __len__(self) -> int:
        return 1 + len(self._columns)

    def __repr__(self) -> str:
        return f"<History of {len(self._iterations)} records: {', '.join(self)}>"

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
