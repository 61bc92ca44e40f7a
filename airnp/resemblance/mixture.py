"""Mixtures of Gaussians over the rows of a table with gaps.

One Gaussian describes a table whose columns depend on each other linearly. A mixture has several groups of
rows that resemble each other, each with a Gaussian of its own; which group a row belongs to is a probability,
and follows from its observed entries. So clusters, bends and products of columns are described as well, by
pieces that are linear. :mod:`airnp.resemblance.gaussian` is the case of one group.

With π the shares, p_j(y_o) the density of the observed entries of a row under component j, and x̂_j, Σ_j the
mean and covariance of its gaps given the rest:

    r_j = π_j p_j(y_o) / Σ_l π_l p_l(y_o)        x̂ = Σ_j r_j x̂_j
    var = Σ_j r_j (diag Σ_j + (x̂_j − x̂)²)

EM repeats this and then estimates each component from all rows, weighted by r_j, as for one Gaussian. Small
components borrow from all others: with N_j the rows of a component and S_j their covariance,

    C_j = (N_j S_j + ν S) / (N_j + ν) + ρ·tr/d·I,        S = Σ_j N_j S_j / n
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_NOISE = 1e-6
"""Added to the variances of standardised columns, so that covariances can be inverted."""

_LEAST_SHARE = 1e-5
"""Components with a smaller share of a row do not count it."""

_IGNORED, _REFRESHED = 1e-3, 8
"""Between every few iterations, components with a smaller share of a row are not looked at."""

_CUT = 0.8
"""Where the halves of a component lie, in standard deviations along its longest axis."""

_UNCORRELATED = 10
"""Rows without correlation that join the observed ones in the first covariances."""

_WORTH_A_THREAD = 1e6
"""Operations of one thread, at least."""


@dataclass(frozen=True, eq=False)
class Posterior:
    """What a mixture says about rows.

    Attributes
    ----------
    filled : ndarray (n, d)
        Rows with their gaps filled by their conditional means.
    variance : ndarray (n, d)
        Conditional variances, 0 where observed.
    shares : ndarray (n, J)
        Probabilities of the components.
    heights : ndarray (n,)
        Log-densities of the observed entries.
    """

    filled: Floats
    variance: Floats
    shares: Floats
    heights: Floats


@dataclass(frozen=True, eq=False)
class Mixture:
    """A mixture of J Gaussians over rows of d entries.

    Attributes
    ----------
    weights : ndarray (J,)
    means : ndarray (J, d)
    covariances : ndarray (J, d, d)
    counts : ndarray (J,)
        How many rows each component was estimated from.
    n_iter : int
        Iterations of EM.
    """

    weights: Floats
    means: Floats
    covariances: Floats
    counts: Floats
    n_iter: int = 0

    def posterior(self, values: Floats, observed: Bools) -> Posterior:
        """Return what the mixture says about rows (n, d); entries in gaps of ``values`` do not matter."""
        return _expectation(self, Rows(values, observed), sums=False)[0]

    def complete(self, values: Floats, observed: Bools) -> tuple[Floats, Floats]:
        """Return rows with their gaps filled, and the variances of filled entries, both (n, d)."""
        posterior = self.posterior(values, observed)
        return posterior.filled, posterior.variance

    def components(self, values: Floats, observed: Bools) -> tuple[Floats, Floats]:
        """Return means and variances of rows under each component, both (J, n, d)."""
        from airnp.engines import _row_kernels

        rows = Rows(values, observed)
        precisions, _ = _precisions(self)
        shape = (len(self.weights), *values.shape)
        filled, variance = np.empty(shape), np.empty(shape)
        _row_kernels.components.build(1)(
            rows.values, rows.order, rows.gaps, self.means, precisions, filled, variance, 1
        )
        return filled, variance

    def draw(self, values: Floats, observed: Bools, rng: np.random.Generator) -> Floats:
        """Return rows with their gaps drawn from their conditional distribution, (n, d)."""
        shares = self.posterior(values, observed).shares
        which = (rng.random((len(values), 1)) > np.cumsum(shares, axis=1)[:, :-1]).sum(axis=1)
        drawn = np.where(observed, values, 0.0)
        for j in np.unique(which):
            members = np.flatnonzero(which == j)
            # A row of the joint Gaussian, moved by what its observed entries miss, has the conditional law.
            root = np.linalg.cholesky(self.covariances[j])
            free = rng.standard_normal((len(members), len(root))) @ root.T
            single = Mixture(np.ones(1), np.zeros((1, len(root))), self.covariances[j : j + 1], np.ones(1))
            wanted = values[members] - self.means[j] - free
            moved = single.posterior(np.where(observed[members], wanted, 0.0), observed[members]).filled
            drawn[members] = np.where(observed[members], values[members], self.means[j] + free + moved)
        return drawn


class Rows:
    """Rows with gaps, and the order of their entries that the kernels read: gaps first."""

    def __init__(self, values: Floats, observed: Bools) -> None:
        self.values = np.ascontiguousarray(values, dtype=np.float64)
        self.observed = observed
        order = np.argsort(observed, axis=1, kind="stable")
        self.order = np.ascontiguousarray(order, dtype=np.uintp)  # numba need not check for negative places
        self.gaps = np.asarray((~observed).sum(axis=1))

    def __len__(self) -> int:
        return len(self.values)


def _precisions(mixture: Mixture) -> tuple[Floats, Floats]:
    precisions = np.linalg.inv(mixture.covariances)
    precisions = (precisions + precisions.swapaxes(1, 2)) / 2
    return precisions, np.linalg.slogdet(precisions)[1]


def _expectation(
    mixture: Mixture, rows: Rows, before: Floats | None = None, *, sums: bool = True
) -> tuple[Posterior, Floats, Floats, Floats]:
    """Return the posterior, and the sums of rows, entries and squares for each component, on request.

    Components with a negligible share of a row in ``before`` (n, J) are not looked at.
    """
    from airnp.engines import _row_kernels
    from airnp.engines.threads import current_threads

    n, d = rows.values.shape
    J = len(mixture.weights)
    work = J * (n * d * d + float((rows.gaps.astype(float) ** 3).sum()))
    chunks = int(min(current_threads(), max(1, work // _WORTH_A_THREAD)))
    precisions, heights = _precisions(mixture)
    shares = np.ones((n, J)) if before is None else before.copy()
    posterior = Posterior(np.empty((n, d)), np.empty((n, d)), shares, np.empty(n))
    parts = chunks if sums else 0
    counts, firsts, squares = np.empty((parts, J)), np.empty((parts, J, d)), np.empty((parts, J, d, d))
    _row_kernels.expectation.build(chunks)(
        *(rows.values, rows.order, rows.gaps, mixture.means, precisions),
        *(np.log(mixture.weights) + heights / 2, _LEAST_SHARE, 0.0 if before is None else _IGNORED),
        *(posterior.filled, posterior.variance, posterior.shares, posterior.heights),
        *(counts, firsts, squares, chunks),
    )
    square = squares.sum(axis=0)
    square = square + np.tril(square, -1).swapaxes(1, 2)
    return posterior, counts.sum(axis=0), firsts.sum(axis=0), square


def fit_mixture(
    rows: Rows,
    start: Mixture,
    *,
    ridge: float,
    prior: float,
    max_iter: int = 60,
    tolerance: float = 1e-3,
) -> Mixture:
    """Improve a mixture by EM.

    Parameters
    ----------
    rows : Rows
    start : Mixture
    ridge : float
        ρ, see :func:`airnp.resemblance.gaussian.group_statistics`.
    prior : float
        ν: the rows that the pooled covariance counts in each component.
    max_iter : int
    tolerance : float
        EM ends if an iteration raises the mean log-density by less than this for each observed entry.

    Returns
    -------
    Mixture
    """
    mixture, height, iteration = start, -math.inf, 0
    posterior: Posterior | None = None
    entries = float(rows.observed.sum(axis=1).mean())
    for iteration in range(1, max_iter + 1):
        looked_at = None if posterior is None or iteration % _REFRESHED == 0 else posterior.shares
        posterior, counts, sums, squares = _expectation(mixture, rows, looked_at)
        mixture = _maximisation(mixture, counts, sums, squares, ridge, prior)
        before, height = height, float(posterior.heights.mean())
        if height - before < tolerance * entries:
            break
    return Mixture(mixture.weights, mixture.means, mixture.covariances, mixture.counts, iteration)


def _maximisation(
    mixture: Mixture, counts: Floats, sums: Floats, squares: Floats, ridge: float, prior: float
) -> Mixture:
    J = len(mixture.weights)
    counts = counts + 1e-9
    moved = sums / counts[:, None]
    scatter = squares - counts[:, None, None] * moved[:, :, None] * moved[:, None, :]
    pooled = scatter.sum(axis=0) / counts.sum()
    covariances = (scatter + prior * pooled) / (counts + prior)[:, None, None] if J > 1 else pooled[None]
    return Mixture(
        (counts + 1) / (counts.sum() + J),
        mixture.means + moved,
        _regular(covariances, ridge),
        counts,
    )


def _regular(covariances: Floats, ridge: float) -> Floats:
    d = covariances.shape[-1]
    added = ridge * np.trace(covariances, axis1=-2, axis2=-1) / d + _NOISE
    return np.asarray(covariances + added[..., None, None] * np.eye(d))


def first_mixture(rows: Rows) -> Mixture:
    """Return one Gaussian with the mean, variances and correlations of the entries that are observed.

    A covariance is that of the rows in which both columns are observed, as if a few more rows had none. Such
    a matrix may have negative eigenvalues; these become small positive ones.
    """
    there = rows.observed.astype(np.float64)
    seen = there.sum(axis=0)
    clean = np.where(rows.observed, rows.values, 0.0)
    mean = clean.sum(axis=0) / np.maximum(seen, 1)
    apart = np.where(rows.observed, clean - mean, 0.0)
    variance = (apart**2).sum(axis=0) / np.maximum(seen, 1) + 0.01
    covariance = apart.T @ apart / (there.T @ there + _UNCORRELATED)
    np.fill_diagonal(covariance, variance)
    lengths, axes = np.linalg.eigh(covariance)
    covariance = (axes * np.maximum(lengths, 0.02 * variance.mean())) @ axes.T
    return Mixture(np.ones(1), mean[None], covariance[None], np.array([float(len(rows))]))


def rescaled(mixture: Mixture, rows: Rows) -> Mixture:
    """Return one Gaussian with the means and variances of other rows, and the correlations of a given one."""
    seen = np.maximum(rows.observed.sum(axis=0), 1)
    mean = np.where(rows.observed, rows.values, 0.0).sum(axis=0) / seen
    variance = (np.where(rows.observed, rows.values - mean, 0.0) ** 2).sum(axis=0) / seen + 0.01
    factors = np.sqrt(variance / np.diag(mixture.covariances[0]))
    covariance = mixture.covariances[0] * np.outer(factors, factors)
    return Mixture(np.ones(1), mean[None], covariance[None], mixture.counts)


def split(mixture: Mixture) -> Mixture:
    """Return a mixture of twice the components: each one cut in two, across its longest axis.

    With λ, u the largest eigenvalue of a covariance and its axis, the halves lie at ±a·√λ·u. The Gaussian
    is kept up to its second moments if each half has the covariance C − a²λ·u·uᵀ.
    """
    lengths, axes = np.linalg.eigh(mixture.covariances)
    steps = _CUT * np.sqrt(lengths[:, -1:]) * axes[:, :, -1]
    halves = mixture.covariances - steps[:, :, None] * steps[:, None, :]
    means = np.stack([mixture.means - steps, mixture.means + steps], axis=1)
    return Mixture(
        np.repeat(mixture.weights / 2, 2),
        means.reshape(-1, means.shape[-1]),
        np.repeat(halves, 2, axis=0),
        np.repeat(mixture.counts / 2, 2),
    )
