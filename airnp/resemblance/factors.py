r"""A Gaussian of low rank plus diagonal over the rows of a table with gaps, for tables with many columns.

Row i is x = μ + W z + noise, with k hidden factors z ~ N(0, I) and noise of variance ψ_j in column j. So the
covariance is C = W Wᵀ + Ψ, which is never formed. With w_j the rows of W, and for a row observed at o

.. math::
    A = I + \sum_{j∈o} w_j w_j^T / ψ_j, \qquad
    \hat z = A^{-1} \sum_{j∈o} w_j (y_j - μ_j) / ψ_j, \qquad
    \mathrm{cov}(z | y_o) = A^{-1},

which is C_oo⁻¹ through the other side (Woodbury), at the cost of k³ for a row. In the M step
each column is a regression of its observed entries on E z, with E z zᵀ = ẑ ẑᵀ + A⁻¹; the mean is the
coefficient of a constant. A ridge of λ·ψ_j, as of a prior N(0, 1/λ), keeps loadings of columns with few
entries small.

All sums over rows and columns are products of a mask with a matrix of outer products, (n, d)·(d, k²) and
(d, n)·(n, k²): O(n·d·k²) for an iteration.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Factors:
    """The model: x = μ + W z + noise.

    Attributes
    ----------
    loadings : ndarray (d, k)
        W.
    mean : ndarray (d,)
        μ.
    noise : ndarray (d,)
        ψ.
    """

    loadings: Floats
    mean: Floats
    noise: Floats

    def hidden(self, values: Floats, observed: Bools) -> tuple[Floats, Floats]:
        """Return ẑ (n, k) and cov(z | y_o) (n, k, k)."""
        k = self.loadings.shape[1]
        outer = (self.loadings[:, :, None] * self.loadings[:, None, :]).reshape(-1, k * k)
        weights = observed / self.noise
        precision = (weights @ outer).reshape(-1, k, k) + np.eye(k)
        covariance = np.asarray(np.linalg.inv(precision), dtype=np.float64)
        pulls = np.where(observed, (values - self.mean) / self.noise, 0.0) @ self.loadings
        return (covariance @ pulls[:, :, None])[:, :, 0], covariance

    def complete(self, values: Floats, observed: Bools) -> tuple[Floats, Floats]:
        """Return rows with their gaps filled, and the variances of filled entries, both (n, d)."""
        k = self.loadings.shape[1]
        hidden, covariance = self.hidden(values, observed)
        outer = (self.loadings[:, :, None] * self.loadings[:, None, :]).reshape(-1, k * k)
        variance = covariance.reshape(-1, k * k) @ outer.T + self.noise
        filled = np.where(observed, values, self.mean + hidden @ self.loadings.T)
        return filled, np.where(observed, 0.0, variance)

    def draw(self, values: Floats, observed: Bools, rng: np.random.Generator) -> Floats:
        """Return rows with their gaps drawn from their conditional distribution, (n, d)."""
        hidden, covariance = self.hidden(values, observed)
        free = rng.standard_normal(hidden.shape)
        hidden = hidden + (np.linalg.cholesky(covariance) @ free[:, :, None])[:, :, 0]
        noise = np.sqrt(self.noise) * rng.standard_normal(values.shape)
        return np.where(observed, values, self.mean + hidden @ self.loadings.T + noise)


def fit_factors(
    values: Floats,
    observed: Bools,
    rank: int,
    *,
    start: Factors | None = None,
    ridge: float = 1.0,
    max_iter: int = 30,
    tolerance: float = 3e-3,
    seed: int = 0,
) -> Factors:
    """Fit the model by EM.

    Parameters
    ----------
    values : ndarray (n, d)
        Standardised columns.
    observed : bool ndarray (n, d)
    rank : int
        k.
    start : Factors, optional
        A model of at most this rank to go on from.
    ridge : float
        λ, the precision of loadings before they are estimated.
    max_iter : int
    tolerance : float
        EM ends if the loadings change by less than this share.
    seed : int
        Of the first loadings.

    Returns
    -------
    Factors
    """
    n, d = values.shape
    clean = np.where(observed, values, 0.0)
    seen = observed.astype(np.float64)
    model = _start(clean, seen, rank, start, np.random.default_rng(seed))
    k = rank + 1
    for _ in range(max_iter):
        hidden, covariance = model.hidden(clean, observed)
        inputs = np.hstack([hidden, np.ones((n, 1))])
        second = inputs[:, :, None] * inputs[:, None, :]
        second[:, :rank, :rank] += covariance
        left = (seen.T @ second.reshape(n, k * k)).reshape(d, k, k)
        left[:, np.arange(rank), np.arange(rank)] += ridge * np.minimum(model.noise, 1)[:, None]
        left[:, rank, rank] += 1e-9
        right = clean.T @ inputs
        coefficients = np.linalg.solve(left, right[:, :, None])[:, :, 0]
        # Σ (y − w·ẑ)² + wᵀ(Σ cov)w, with the ridge: what the regression leaves of Σ y².
        left_over = (clean**2).sum(axis=0) - (coefficients * right).sum(axis=1)
        noise = np.maximum(left_over, 0.0) / np.maximum(seen.sum(axis=0), 1) + 1e-10
        change = np.linalg.norm(coefficients[:, :rank] - model.loadings)
        model = Factors(coefficients[:, :rank], coefficients[:, rank], noise)
        if change < tolerance * np.linalg.norm(model.loadings):
            break
    return model


def _start(
    clean: Floats, seen: Floats, rank: int, start: Factors | None, rng: np.random.Generator
) -> Factors:
    """Return a first model: the given one with more factors, or one from a random projection of the rows."""
    total = np.maximum(seen.sum(axis=0), 1)
    mean = clean.sum(axis=0) / total if start is None else start.mean
    apart = np.where(seen > 0, clean - mean, 0.0)
    old = np.zeros((len(mean), 0)) if start is None else start.loadings
    if start is not None:
        hidden, _ = start.hidden(clean, seen > 0)
        apart = np.where(seen > 0, apart - hidden @ old.T, 0.0)
    more = rank - old.shape[1]
    # One step of the power method towards the leading axes of what is not explained yet.
    random = rng.standard_normal((len(mean), more))
    basis = np.linalg.qr(apart.T @ (apart @ random))[0] if more else random
    scores = apart @ basis
    new = basis * np.sqrt((scores**2).mean(axis=0) + 1e-6)
    variance = (apart**2).sum(axis=0) / total
    return Factors(np.hstack([old, new]), mean, variance + 0.01)
