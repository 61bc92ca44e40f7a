"""The tables to complete: MovieLens 100K, less of it, Syn-Netflix, and drugs with their targets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from scipy.sparse import csr_array

VALIDATION = 0.05
"""Share of the training entries that chooses settings."""


@dataclass(frozen=True)
class Entries:
    """Entries of a matrix: value[k] stands at (row[k], column[k])."""

    rows: np.ndarray
    columns: np.ndarray
    values: np.ndarray

    def __len__(self) -> int:
        return len(self.values)

    def chosen(self, which: np.ndarray) -> Entries:
        """Return some of them."""
        return Entries(self.rows[which], self.columns[which], self.values[which])


@dataclass(frozen=True)
class Table:
    """What is known, what is asked for, and what the source says about rows and columns."""

    name: str
    shape: tuple[int, int]
    train: Entries
    test: Entries
    bounds: tuple[float, float]
    row_graph: Any = None
    column_graph: Any = None

    @property
    def matrix(self) -> csr_array:
        """The training entries, as ``airnp.fit`` takes them."""
        where = (self.train.rows, self.train.columns)
        return csr_array((self.train.values, where), shape=self.shape)

    def dense(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the training entries as a matrix with zeros elsewhere, and its mask."""
        filled, mask = np.zeros(self.shape), np.zeros(self.shape, bool)
        filled[self.train.rows, self.train.columns] = self.train.values
        mask[self.train.rows, self.train.columns] = True
        return filled, mask

    def for_validation(self) -> Table:
        """Return the table whose test entries are 5 % of the training entries, always the same."""
        rng = np.random.default_rng(2024)
        held = np.zeros(len(self.train), bool)
        held[rng.permutation(len(held))[: round(VALIDATION * len(held))]] = True
        return replace(self, train=self.train.chosen(~held), test=self.train.chosen(held))

    def thinned(self, share: float, seed: int) -> Table:
        """Return the table with a share of its training entries."""
        order = np.random.default_rng([seed, 7]).permutation(len(self.train))
        kept = np.sort(order[: round(share * len(order))])
        return replace(self, train=self.train.chosen(kept))


def _entries(matrix: np.ndarray, mask: np.ndarray) -> Entries:
    rows, columns = np.nonzero(mask)
    return Entries(rows, columns, matrix[rows, columns].astype(np.float64))


@cache
def _loaded(loader: str) -> Any:
    from airnp import datasets

    return getattr(datasets, loader)()


def movielens(share: float, seed: int) -> Table:
    """MovieLens 100K on its own split, with a share of the training ratings."""
    found = _loaded("movielens_100k")
    train, test = _entries(found.matrix, found.mask), _entries(found.matrix, found.test_mask)
    graphs = (csr_array(found.row_graph), csr_array(found.column_graph))
    table = Table("movielens", found.matrix.shape, train, test, (1.0, 5.0), *graphs)
    return table if share == 1 else table.thinned(share, seed)


def resplit(seed: int) -> Table:
    """All ratings of MovieLens 100K, split anew: 80 % at random for training, the others for testing."""
    found = _loaded("movielens_100k")
    rated = _entries(found.matrix, found.mask | found.test_mask)
    order = np.random.default_rng([seed, 13]).permutation(len(rated))
    cut = round(0.8 * len(rated))
    graphs = (csr_array(found.row_graph), csr_array(found.column_graph))
    train, test = (rated.chosen(np.sort(part)) for part in (order[:cut], order[cut:]))
    return Table("resplit", found.matrix.shape, train, test, (1.0, 5.0), *graphs)


def random_gaps(loader: str, share: float, seed: int) -> Table:
    """A whole matrix of which a random share is given, all else asked for."""
    found = _loaded(loader)
    given = np.random.default_rng([seed, 11]).random(found.matrix.shape) < share
    bounds = float(found.matrix.min()), float(found.matrix.max())
    graphs = (csr_array(found.row_graph), csr_array(found.column_graph))
    train, test = _entries(found.matrix, given), _entries(found.matrix, ~given)
    return Table(loader, found.matrix.shape, train, test, bounds, *graphs)


TABLES: dict[str, tuple[str, Callable[[int], Table]]] = {
    "movielens": ("MovieLens 100K, 80 000 ratings", lambda seed: movielens(1.0, seed)),
    "resplit": ("MovieLens 100K, five random splits, settings of the given split", resplit),
    "movielens25": ("MovieLens 100K, 25 % of the training ratings", lambda seed: movielens(0.25, seed)),
    "movielens10": ("MovieLens 100K, 10 % of the training ratings", lambda seed: movielens(0.10, seed)),
    "netflix15": ("Syn-Netflix, 15 % given", lambda seed: random_gaps("syn_netflix", 0.15, seed)),
    "ion15": ("drugs × ion channels, 15 % given", lambda seed: random_gaps("dti_ic", 0.15, seed)),
}
"""Name, what it is, and the table of a seed; where entries are drawn, another seed draws others."""
