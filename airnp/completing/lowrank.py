"""Is the matrix simply one of low rank? Found by closed-form steps, judged on held-out entries.

Rows of a matrix of rank k are :math:`x_i = V u_i`. Taking the rows of U as draws from a normal distribution
whose mean μ and covariance C are those of the rows found so far, and the data as exact up to noise of
variance σ², the best :math:`u_i` given V has a closed form:

.. math:: (V^T W_i V + σ^2 C^{-1}) u_i = V^T W_i y_i + σ^2 C^{-1} μ

with :math:`W_i` the weights of row i. The same holds with the two sides exchanged, so they take turns. A
row with fewer entries than the rank is completed by what the other rows are like, and a component that the
data do not support has little variance and stays small. σ² is the mean square of the residuals, so that the
prior fades as the fit becomes exact.

The rank climbs from 1, each new component starting where the residuals are largest. Gradient descent on
a product of factors finds the same components one after the other, and needs thousands of iterations for
each; where the data are exactly of low rank this takes a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from airnp.engines.threads import using

Values = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

EXACT = 0.05
"""Held-out error, as a share of the held-out entries' own spread, below which a matrix explains the data."""

_FEWEST_JUDGES = 20
_HIGHEST_RANK = 32
_WAIT, _GAIN = 3, 0.05
"""How many ranks may follow each other without lowering the held-out error by such a share."""

_CLIMB_SWEEPS, _CLIMB_GAIN = 50, 3e-2
_FINAL_SWEEPS, _FINAL_GAIN = 300, 1e-3
"""Sweeps at most, and the share of the residuals' square that another one must take away."""

_AGAIN_SWEEPS = 5
"""Sweeps that make a matrix forget entries that are left out."""

_NOISE_FLOOR = 1e-8
"""σ² at least, in units of the data's range: float32 data are exact to a few times its root."""

_NEGLIGIBLE = 1e-5
"""Errors in units of the data's range, and components in units of the first, that do not count."""

_SMALL = 1e-12
"""Share of the mean variance that every component has at least, so that C can be inverted."""

_POWER_STEPS = 6


@dataclass(frozen=True)
class LowRank:
    """A matrix L Rᵀ of low rank, and how far it is from entries that it was not fitted to.

    Attributes
    ----------
    left : ndarray (m, k)
    right : ndarray (n, k)
    error : float
        Mean absolute error on the entries that judged it.
    is_exact : bool
        Whether that is next to nothing beside their own spread.
    """

    left: Values
    right: Values
    error: float
    is_exact: bool = False

    @property
    def rank(self) -> int:
        """Number of components."""
        return int(self.left.shape[1])


def explanation(values: Values, weights: Values, held_out: Bools, rank: int) -> LowRank | None:
    """Return the matrix of low rank that predicts held-out entries best, fitted to all entries.

    None if there are too few to judge by.

    Parameters
    ----------
    values : ndarray (m, n)
        In units of the data's range; anything where not observed.
    weights : ndarray (m, n)
        Of each entry; zero is missing.
    held_out : ndarray of bool (m, n)
        Observed entries that judge.
    rank : int
        The highest to try; 32 is never passed.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> matrix = rng.random((40, 3)) @ rng.random((3, 30))
    >>> observed = rng.random(matrix.shape) < 0.6
    >>> held_out = observed & (rng.random(matrix.shape) < 0.1)
    >>> found = explanation(matrix, observed * 1.0, held_out, rank=10)
    >>> found.rank, bool(np.abs(found.left @ found.right.T - matrix).max() < 1e-3)
    (3, True)
    """
    judges = values[held_out]
    if len(judges) < _FEWEST_JUDGES:
        return None
    spread = float(np.abs(judges - np.median(judges)).mean())
    with using(1):  # the same bits, whatever else runs beside it
        best = _climbed(values, np.where(held_out, 0.0, weights), held_out, min(rank, _HIGHEST_RANK))
        if best is None:
            return None
        sides = _settled(values, weights, best.left, best.right, _FINAL_SWEEPS, _FINAL_GAIN)
    return LowRank(*_trimmed(*sides), best.error, best.error <= EXACT * spread)


def predicted_without(values: Values, weights: Values, left_out: Bools, found: LowRank) -> Values:
    """Return the matrix that is found without some of the entries, starting from the one found with them.

    A start from nothing might end elsewhere, and would tell little about the one that was found.

    Parameters
    ----------
    values, weights : ndarray (m, n)
        As for :func:`explanation`.
    left_out : ndarray of bool (m, n)
    found : LowRank
        Fitted to all entries.
    """
    with using(1):
        left, right = _settled(
            values, np.where(left_out, 0.0, weights), found.left, found.right, _AGAIN_SWEEPS, -np.inf
        )
    return left @ right.T


def _climbed(values: Values, weights: Values, judges: Bools, highest: int) -> LowRank | None:
    """Return the matrix of the lowest rank that no higher one betters by much."""
    rng = np.random.default_rng(0)
    m, n = values.shape
    left, right = np.zeros((m, 0)), np.zeros((n, 0))
    residuals = np.where(weights > 0, weights * values, 0.0)
    scale = weights.sum() / weights.size
    best: LowRank | None = None
    waited = 0
    for rank in climbing_ranks(highest):
        added = _leading(residuals, rank - right.shape[1], rng)
        left, right = np.hstack([left, residuals @ added / scale]), np.hstack([right, added])
        left, right = _settled(values, weights, left, right, _CLIMB_SWEEPS, _CLIMB_GAIN)
        fitted = left @ right.T
        residuals = np.where(weights > 0, weights * (values - fitted), 0.0)
        error = float(np.abs(fitted - values)[judges].mean())
        if best is None or error < (1 - _GAIN) * best.error:
            best, waited = LowRank(left, right, error), 0
        else:
            waited += 1
        if waited == _WAIT or best.error < _NEGLIGIBLE:
            break
    return best


def climbing_ranks(highest: int) -> Iterator[int]:
    """Yield 1, 2, 3, … with steps that grow to a fifth of the rank."""
    rank = 1
    while rank <= highest:
        yield rank
        rank += max(1, rank // 5)


def _leading(matrix: Values, count: int, rng: np.random.Generator) -> Values:
    """Return about the leading right singular vectors, shape (n, count), by a few power steps."""
    basis = rng.standard_normal((matrix.shape[1], count))
    for _ in range(_POWER_STEPS):
        basis = np.linalg.qr(matrix.T @ (matrix @ basis))[0]
    return basis


def _settled(
    values: Values, weights: Values, left: Values, right: Values, sweeps: int, gain: float
) -> tuple[Values, Values]:
    """Take turns until a sweep gains little; the left side then has orthogonal columns of equal size."""
    weighted = np.where(weights > 0, weights * values, 0.0)
    total = weights.sum()
    misfit = _misfit(values, weights, left, right)
    for _ in range(sweeps):
        noise = max(misfit / total, _NOISE_FLOOR)
        left = _best_rows(weights, weighted, right, left, noise)
        right = _best_rows(weights.T, weighted.T, left, right, noise)
        left, right = _levelled(left, right)
        before, misfit = misfit, _misfit(values, weights, left, right)
        if misfit > (1 - gain) * before:
            break
    return left, right


def _misfit(values: Values, weights: Values, left: Values, right: Values) -> float:
    residuals = np.where(weights > 0, values - left @ right.T, 0.0)
    return float((weights * residuals * residuals).sum())


def _best_rows(weights: Values, weighted: Values, other: Values, rows: Values, noise: float) -> Values:
    """Return the rows that are best given the other side, by the equation at the top of this file."""
    rank = other.shape[1]
    mean = rows.mean(axis=0)
    spread = (rows - mean).T @ (rows - mean) / len(rows)
    spread[np.diag_indices(rank)] += _SMALL * np.trace(spread) / rank + np.finfo(float).tiny
    prior = noise * np.linalg.inv(spread)
    products = (other[:, :, None] * other[:, None, :]).reshape(len(other), rank * rank)
    normal = (weights @ products).reshape(-1, rank, rank) + prior
    return np.linalg.solve(normal, (weighted @ other + prior @ mean)[..., None])[..., 0]


def _levelled(left: Values, right: Values) -> tuple[Values, Values]:
    """Return the same product with a left side whose columns are orthogonal and of unit mean square."""
    basis, mixing = np.linalg.qr(left)
    size = np.sqrt(len(left))
    return basis * size, right @ mixing.T / size


def _trimmed(left: Values, right: Values) -> tuple[Values, Values]:
    """Return the product without the components that are negligible; the left side is levelled."""
    basis, singular, mixing = np.linalg.svd(right, full_matrices=False)
    kept = singular > _NEGLIGIBLE * singular[0]
    return left @ mixing[kept].T, basis[:, kept] * singular[kept]
