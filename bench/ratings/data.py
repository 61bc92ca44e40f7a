"""The tables to complete: MovieLens 100K, parts of it, Syn-Netflix, and drugs with their targets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

FEW_NEIGHBOURS = 10
"""Neighbours of each node in a graph that is made from similarities of all pairs."""


@dataclass(frozen=True)
class Entries:
    """Entries of a matrix: values[k] is at (rows[k], columns[k])."""

    rows: np.ndarray
    columns: np.ndarray
    values: np.ndarray

    def __len__(self) -> int:
        return len(self.values)

    def select(self, which: np.ndarray) -> Entries:
        """Return the entries that a mask or an array of positions selects."""
        return Entries(self.rows[which], self.columns[which], self.values[which])


@dataclass(frozen=True)
class Table:
    """Training entries, test entries, and the graphs that come with the data.

    ``held_out`` is the share of the training entries on which settings are chosen.
    """

    name: str
    shape: tuple[int, int]
    train: Entries
    test: Entries
    bounds: tuple[float, float]
    row_graph: Any = None
    column_graph: Any = None
    held_out: float = 0.05

    @property
    def matrix(self) -> csr_array:
        """The training entries, as ``airnp.fit_sparse`` takes them."""
        where = (self.train.rows, self.train.columns)
        return csr_array((self.train.values, where), shape=self.shape)

    def dense(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the training entries as a matrix with zeros elsewhere, and its mask."""
        filled, mask = np.zeros(self.shape), np.zeros(self.shape, bool)
        filled[self.train.rows, self.train.columns] = self.train.values
        mask[self.train.rows, self.train.columns] = True
        return filled, mask

    def for_validation(self) -> Table:
        """Return a table that tests on a share ``held_out`` of the training entries, always the same."""
        rng = np.random.default_rng(2024)
        held = np.zeros(len(self.train), bool)
        held[rng.permutation(len(held))[: round(self.held_out * len(held))]] = True
        return replace(self, train=self.train.select(~held), test=self.train.select(held))

    def sample(self, share: float, seed: int) -> Table:
        """Return the table with a share of its training entries."""
        order = np.random.default_rng([seed, 7]).permutation(len(self.train))
        kept = np.sort(order[: round(share * len(order))])
        return replace(self, train=self.train.select(kept))


def _entries(matrix: np.ndarray, mask: np.ndarray) -> Entries:
    rows, columns = np.nonzero(mask)
    return Entries(rows, columns, matrix[rows, columns].astype(np.float64))


@cache
def _load(loader: str) -> Any:
    from airnp import datasets

    return getattr(datasets, loader)()


def movielens(share: float, seed: int, held_out: float = 0.05) -> Table:
    """Return MovieLens 100K on its own split, with a share of the training ratings."""
    found = _load("movielens_100k")
    train, test = _entries(found.matrix, found.mask), _entries(found.matrix, found.test_mask)
    graphs = (csr_array(found.row_graph), csr_array(found.column_graph))
    table = Table("movielens", found.matrix.shape, train, test, (1.0, 5.0), *graphs, held_out)
    return table if share == 1 else table.sample(share, seed)


def resplit(seed: int) -> Table:
    """Return all ratings of MovieLens 100K, a random 80 % for training and the others for testing."""
    found = _load("movielens_100k")
    rated = _entries(found.matrix, found.mask | found.test_mask)
    order = np.random.default_rng([seed, 13]).permutation(len(rated))
    cut = round(0.8 * len(rated))
    graphs = (csr_array(found.row_graph), csr_array(found.column_graph))
    train, test = (rated.select(np.sort(part)) for part in (order[:cut], order[cut:]))
    return Table("resplit", found.matrix.shape, train, test, (1.0, 5.0), *graphs)


def random_gaps(loader: str, share: float, seed: int) -> Table:
    """Return a complete matrix with a random share for training and the rest for testing."""
    found = _load(loader)
    given = np.random.default_rng([seed, 11]).random(found.matrix.shape) < share
    bounds = float(found.matrix.min()), float(found.matrix.max())
    graphs = (_few_neighbours(found.row_graph), _few_neighbours(found.column_graph))
    train, test = _entries(found.matrix, given), _entries(found.matrix, ~given)
    return Table(loader, found.matrix.shape, train, test, bounds, *graphs, held_out=0.2)


def _few_neighbours(graph: Any) -> csr_array:
    """Return a sparse graph as it is, and a dense one with the strongest edges of each node."""
    from airnp.results.graphs import strongest

    return csr_array(graph) if issparse(graph) else strongest(csr_array(graph), FEW_NEIGHBOURS)


@dataclass(frozen=True)
class Source:
    """A table by its label, with the kind of grid to try on it.

    ``draw(seed)`` returns the table; with ``has_draws`` its entries depend on the seed.
    """

    label: str
    draw: Callable[[int], Table]
    grids: str = "ratings"
    has_draws: bool = True


def _whole(label: str, loader: str, share: float) -> Source:
    return Source(f"{label}, {share:.0%} given", partial(random_gaps, loader, share), "whole")


TABLES: dict[str, Source] = {
    "movielens": Source("MovieLens 100K, 80 000 ratings", partial(movielens, 1.0), has_draws=False),
    "batches": Source(
        "MovieLens 100K, fewer entries an iteration", partial(movielens, 1.0), "batches", has_draws=False
    ),
    "resplit": Source("MovieLens 100K, five random splits, settings of the given split", resplit),
    "movielens50": Source("MovieLens 100K, 50 % of the training ratings", partial(movielens, 0.50)),
    "movielens25": Source("MovieLens 100K, 25 % of the training ratings", partial(movielens, 0.25)),
    "movielens10": Source(
        "MovieLens 100K, 10 % of the training ratings", partial(movielens, 0.10, held_out=0.2), "scarce"
    ),
    "netflix20": _whole("Syn-Netflix", "syn_netflix", 0.2),
    "ion80": _whole("drugs × ion channels", "dti_ic", 0.8),
    "gpcr80": _whole("drugs × G protein-coupled receptors", "dti_gpcr", 0.8),
    "gpcr20": _whole("drugs × G protein-coupled receptors", "dti_gpcr", 0.2),
}
