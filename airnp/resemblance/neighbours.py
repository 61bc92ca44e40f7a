"""Each row once more, from the rows that resemble it: the nearest ones, or those in the same leaves of trees.

A group is the K rows nearest to a row, as they are completed so far. Its Gaussian has the mean of the group;
its covariance is mostly that of the group, with some of the covariance of all rows, which keeps it regular:

    C = (1 − β)·C_group + β·C_all

The gaps of the row follow from its observed entries as in :mod:`airnp.resemblance.gaussian`.

Trees choose what resembles: extremely randomised ones, many for each column with gaps, which cut the rows
where the column changes most. They see jumps and interactions, which no Gaussian does, and ignore columns
that do not matter, which distances do not. A leaf says the mean of its rows, and their variance.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from airnp.resemblance.gaussian import condition, group_statistics
from airnp.resemblance.mixture import Mixture

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_OF_ALL_ROWS = 0.1
"""β."""

_AT_ONCE = 2**23
"""Numbers in the covariances, the distances or the groups of the rows that are processed together."""


_LEAST_LEAF, _MOST_TRIED = 4, 12
"""Rows of a leaf, at least; up to so many other columns, a node of a tree tries all of them."""

_LEAST_VARIANCE = 1e-6

_SEED = 20


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Completes rows from the nearest rows of a table.

    Attributes
    ----------
    first : Mixture
        Completes rows before their neighbours are looked up.
    filled, variance : ndarray (n, d)
        The table as ``first`` completes it.
    K : int
        Size of groups.
    ridge : float
    """

    first: Mixture
    filled: Floats
    variance: Floats
    K: int
    ridge: float

    @classmethod
    def of(cls, first: Mixture, values: Floats, observed: Bools, K: int, ridge: float) -> Neighbours:
        """Complete a table with ``first`` and return its neighbourhoods."""
        posterior = first.posterior(values, observed)
        return cls(first, posterior.filled, posterior.variance, K, ridge)

    def complete(self, values: Floats, observed: Bools) -> tuple[Floats, Floats]:
        """Return rows with their gaps filled, and the variances of filled entries, both (n, d)."""
        posterior = self.first.posterior(values, observed)
        filled, variance = posterior.filled, posterior.variance
        for part, means, covariances in self._groups(filled, observed):
            there = observed[part][:, None]
            found, spread = condition(means, covariances, values[part][:, None], there)
            filled[part], variance[part] = found[:, 0], spread[:, 0]
        return filled, variance

    def draw(self, values: Floats, observed: Bools, rng: np.random.Generator) -> Floats:
        """Return rows with their gaps drawn from their conditional distribution, (n, d)."""
        drawn = self.first.posterior(values, observed).filled
        for part, means, covariances in self._groups(drawn.copy(), observed):
            # A row of the joint Gaussian, moved by what its observed entries miss.
            there = observed[part]
            free = rng.standard_normal(means.shape)
            free = means + (np.linalg.cholesky(covariances) @ free[:, :, None])[:, :, 0]
            wanted = np.where(there, values[part] - free, 0.0)
            moved, _ = condition(np.zeros_like(means), covariances, wanted[:, None], there[:, None])
            drawn[part] = np.where(there, values[part], free + moved[:, 0])
        return drawn

    def _groups(self, filled: Floats, observed: Bools) -> Iterator[tuple[Any, Floats, Floats]]:
        """Yield positions of rows with gaps, and means and covariances of their groups."""
        _, covariance = group_statistics(self.filled, self.variance)
        gappy = np.flatnonzero(~observed.all(axis=1))
        d = filled.shape[1]
        step = max(1, _AT_ONCE // max(d * d, self.K * d, len(self.filled)))
        squares = (self.filled**2).sum(axis=1)
        for part in (gappy[first : first + step] for first in range(0, len(gappy), step)):
            distances = squares - 2 * filled[part] @ self.filled.T
            group = np.argpartition(distances, self.K - 1, axis=1)[:, : self.K]
            means, covariances = group_statistics(
                self.filled[group], self.variance[group], ridge=self.ridge, noise=1e-6
            )
            yield part, means, (1 - _OF_ALL_ROWS) * covariances + _OF_ALL_ROWS * covariance


@dataclass(frozen=True, eq=False)
class Forest:
    """Completes rows by trees.

    Attributes
    ----------
    first : RowModel
        Completes rows before they descend the trees.
    places : ndarray (d,)
        The column's place among those that have trees; −1 for the others, which ``first`` completes.
    trees : int
        For each column.
    nodes : tuple of ndarray (T, M)
        See :func:`airnp.engines._row_kernels.grow`.
    """

    first: Any
    places: npt.NDArray[np.int64]
    trees: int
    nodes: tuple[Any, ...]

    @classmethod
    def of(
        cls, first: Any, values: Floats, observed: Bools, targets: npt.NDArray[np.int64], trees: int
    ) -> Forest:
        """Complete a table with ``first`` and grow trees for the ``targets``, columns that have entries."""
        from airnp.engines import _row_kernels
        from airnp.engines.threads import current_threads

        filled, _ = first.complete(values, observed)
        n, d = filled.shape
        targets = targets[observed[:, targets].any(axis=0)]
        total, most = len(targets) * trees, 2 * max(n // _LEAST_LEAF, 1) + 1
        nodes = (
            np.full((total, most), -1, np.int32),
            np.zeros((total, most)),
            np.zeros((total, most), np.int32),
            np.zeros((total, most)),
            np.zeros((total, most)),
        )
        tried = d - 1 if d <= _MOST_TRIED else max(_MOST_TRIED, d // 3)
        chunks = max(1, min(current_threads(), total))
        _row_kernels.grow.build(chunks)(
            np.ascontiguousarray(filled.T), np.ascontiguousarray(observed.T), targets, trees, tried,
            _LEAST_LEAF, _SEED, *nodes, chunks,
        )  # fmt: skip
        places = np.full(d, -1)
        places[targets] = np.arange(len(targets))
        return cls(first, places, trees, nodes)

    def complete(self, values: Floats, observed: Bools) -> tuple[Floats, Floats]:
        """Return rows with their gaps filled, and the variances of filled entries, both (n, d)."""
        from airnp.engines import _row_kernels
        from airnp.engines.threads import current_threads

        filled, variance = self.first.complete(values, observed)
        entries = np.argwhere(~observed & (self.places >= 0))
        found, spread = np.empty(len(entries)), np.empty(len(entries))
        chunks = min(current_threads(), max(1, len(entries)))
        _row_kernels.ask.build(chunks)(
            filled.copy(), entries, self.places, self.trees, *self.nodes, found, spread, chunks
        )
        filled[tuple(entries.T)] = found
        variance[tuple(entries.T)] = spread + _LEAST_VARIANCE
        return filled, variance

    def draw(self, values: Floats, observed: Bools, rng: np.random.Generator) -> Floats:
        """Return rows with their gaps drawn, each entry by itself, (n, d)."""
        filled, variance = self.complete(values, observed)
        return filled + np.sqrt(variance) * rng.standard_normal(filled.shape)
