"""Monotone transforms of skewed columns to normal scores, and moments through them.

A column with a long tail is not Gaussian, but its normal scores are: the value with rank q among the observed
ones becomes the q-quantile of the standard normal distribution. Between observed values the transform is
linear; beyond them it is constant. A conditional Gaussian of a score gives mean and variance of the column
itself by quadrature, E g(z) = Σ_k w_k g(m + s·t_k), which is not g(E z).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from airnp.resemblance.mixture import Mixture

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_NODES, _NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(7)
_NODE_WEIGHTS = _NODE_WEIGHTS / _NODE_WEIGHTS.sum()

_SKEWED, _TAILED, _DISTINCT = 0.5, 1.0, 10
"""A column is transformed above this skewness or excess kurtosis, if it has this many different values."""

_MOST_KNOTS = 512

_NEGLIGIBLE = 1e-3

_AT_ONCE = 2**21
"""Numbers in the conditional means of the rows that are processed together."""


@dataclass(frozen=True, eq=False)
class ColumnScores:
    """The transform of one column: increasing knots in the column and in its scores, (k,) each."""

    knots: Floats
    scores: Floats

    def forward(self, values: Floats) -> Floats:
        """Return scores of values."""
        return np.interp(values, self.knots, self.scores)

    def backward(self, scores: Floats) -> Floats:
        """Return values of scores."""
        return np.interp(scores, self.scores, self.knots)

    def moments(self, mean: Floats, variance: Floats) -> tuple[Floats, Floats]:
        """Return first and second moments of a column whose scores are Gaussian."""
        nodes = self.backward(mean[..., None] + np.sqrt(variance)[..., None] * _NODES)
        return nodes @ _NODE_WEIGHTS, nodes**2 @ _NODE_WEIGHTS


@dataclass(frozen=True, eq=False)
class TableScores:
    """The transforms of some columns of a table; all others stay as they are.

    Attributes
    ----------
    columns : dict of int to ColumnScores
    """

    columns: dict[int, ColumnScores]

    def forward(self, values: Floats) -> Floats:
        """Return the table with the columns transformed, (n, d)."""
        changed = values.copy()
        for j, column in self.columns.items():
            changed[:, j] = column.forward(values[:, j])
        return changed

    def backward(self, values: Floats) -> Floats:
        """Undo :meth:`forward`."""
        changed = values.copy()
        for j, column in self.columns.items():
            changed[:, j] = column.backward(values[:, j])
        return changed


def learn_scores(values: Floats, observed: Bools) -> TableScores:
    """Return the transforms of columns that look skewed or have heavy tails.

    Parameters
    ----------
    values : ndarray (n, d)
        Standardised columns.
    observed : bool ndarray (n, d)
    """
    found = {}
    for j in range(values.shape[1]):
        column = values[observed[:, j], j]
        if len(column) > _DISTINCT and _is_far_from_normal(column):
            transform = _column_scores(column)
            if len(transform.knots) > _DISTINCT:
                found[j] = transform
    return TableScores(found)


def relearn_scores(scores: TableScores, values: Floats, observed: Bools) -> TableScores:
    """Return the transforms of the same columns, learned from another table."""
    return TableScores({j: _column_scores(values[observed[:, j], j]) for j in scores.columns})


def _is_far_from_normal(column: Floats) -> bool:
    apart = column - column.mean()
    scale = np.sqrt((apart**2).mean())
    if scale <= 0:
        return False
    apart = apart / scale
    return bool(abs((apart**3).mean()) > _SKEWED or (apart**4).mean() - 3 > _TAILED)


def _column_scores(column: Floats) -> ColumnScores:
    from scipy.special import ndtri

    knots, counts = np.unique(column, return_counts=True)
    ranks = (np.cumsum(counts) - counts / 2) / counts.sum()
    if len(knots) > _MOST_KNOTS:
        kept = np.unique(np.linspace(0, len(knots) - 1, _MOST_KNOTS).round().astype(int))
        knots, ranks = knots[kept], ranks[kept]
    return ColumnScores(knots, ndtri(ranks))


@dataclass(frozen=True, eq=False)
class ScoredMixture:
    """A mixture of Gaussians over the scores of rows.

    Attributes
    ----------
    scores : TableScores
    mixture : Mixture
        Of rows whose columns are transformed.
    """

    scores: TableScores
    mixture: Mixture

    def complete(self, values: Floats, observed: Bools) -> tuple[Floats, Floats]:
        """Return rows with their gaps filled, and the variances of filled entries, both (n, d)."""
        filled, variance = np.empty_like(values), np.empty_like(values)
        step = max(1, _AT_ONCE // (values.shape[1] * len(self.mixture.weights)))
        for part in (slice(first, first + step) for first in range(0, len(values), step)):
            filled[part], variance[part] = self._complete(values[part], observed[part])
        return filled, variance

    def _complete(self, values: Floats, observed: Bools) -> tuple[Floats, Floats]:
        inside = self.scores.forward(values)
        posterior = self.mixture.posterior(inside, observed)
        filled, variance = posterior.filled, posterior.variance
        means, variances = self.mixture.components(inside, observed)
        for j, column in self.scores.columns.items():
            gaps = np.flatnonzero(~observed[:, j])
            filled[:, j] = values[:, j]
            # Components with hardly any share of a row are left out.
            shares = posterior.shares[gaps]
            entry, component = np.nonzero(shares > _NEGLIGIBLE)
            row = gaps[entry]
            first, second = column.moments(means[component, row, j], variances[component, row, j])
            weights = shares[entry, component]
            total = np.bincount(entry, weights, minlength=len(gaps))
            mean = np.bincount(entry, weights * first, minlength=len(gaps)) / total
            square = np.bincount(entry, weights * second, minlength=len(gaps)) / total
            filled[gaps, j] = mean
            variance[gaps, j] = np.maximum(square - mean**2, 0.0)
        return filled, variance

    def draw(self, values: Floats, observed: Bools, rng: np.random.Generator) -> Floats:
        """Return rows with their gaps drawn from their conditional distribution, (n, d)."""
        drawn = self.scores.backward(self.mixture.draw(self.scores.forward(values), observed, rng))
        return np.where(observed, values, drawn)
