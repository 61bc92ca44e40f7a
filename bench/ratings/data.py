"""The tables to complete: MovieLens 100K, less of it, Syn-Netflix, and drugs with their targets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

FEW_NEIGHBOURS = 10
"""Similarities of drugs and of targets are known for all pairs; this many of each are a graph."""


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
    """What is known, what is asked for, and what the source says about rows and columns.

    ``held_out`` is the share of the training entries that chooses settings.
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
        """Return the table whose test entries are ``held_out`` of the training entries, always the same."""
        rng = np.random.default_rng(2024)
        held = np.zeros(len(self.train), bool)
        held[rng.permutation(len(held))[: round(self.held_out * len(held))]] = True
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


def movielens(share: float, seed: int, held_out: float = 0.05) -> Table:
    """MovieLens 100K on its own split, with a share of the training ratings."""
    found = _loaded("movielens_100k")
    train, test = _entries(found.matrix, found.mask), _entries(found.matrix, found.test_mask)
    graphs = (csr_array(found.row_graph), csr_array(found.column_graph))
    table = Table("movielens", found.matrix.shape, train, test, (1.0, 5.0), *graphs, held_out)
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
    graphs = (_few_neighbours(found.row_graph), _few_neighbours(found.column_graph))
    train, test = _entries(found.matrix, given), _entries(found.matrix, ~given)
    return Table(loader, found.matrix.shape, train, test, bounds, *graphs, held_out=0.2)


def _few_neighbours(graph: Any) -> csr_array:
    """Return a graph as it is if it is sparse, else with the strongest edges of each node."""
    from airnp.results.graphs import strongest

    return csr_array(graph) if issparse(graph) else strongest(csr_array(graph), FEW_NEIGHBOURS)


@dataclass(frozen=True)
class Source:
    """What a table is, how it is drawn, and which grids of settings are tried on it.

    ``draw(seed)`` returns the table. Where entries are drawn, another seed draws others.
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
    "movielens25": Source("MovieLens 100K, 25 % of the training ratings", partial(movielens, 0.25)),
    "movielens10": Source(
        "MovieLens 100K, 10 % of the training ratings", partial(movielens, 0.10, held_out=0.2), "scarce"
    ),
    "netflix20": _whole("Syn-Netflix", "syn_netflix", 0.2),
    "ion80": _whole("drugs × ion channels", "dti_ic", 0.8),
    "gpcr80": _whole("drugs × G protein-coupled receptors", "dti_gpcr", 0.8),
    "gpcr20": _whole("drugs × G protein-coupled receptors", "dti_gpcr", 0.2),
}
