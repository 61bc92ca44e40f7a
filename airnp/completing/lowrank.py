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
from typing import Any

import numpy as np
import numpy.typing as npt

from airnp._arrays import from_numpy, on_device, to_numpy
from airnp._checks import checked_seed, checked_whole
from airnp.data.holdout import how_many, like_the_gaps
from airnp.data.prepared import prepare
from airnp.engines.threads import using
from airnp.results.calibration import calibration
from airnp.results.history import History
from airnp.results.result import FitResult

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

_TURNS, _AT_A_TURN = 10, 0.02
"""How often entries are left out to see how well the rest predict them, and what share of them at a time."""


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


def fit_low_rank(
    Y: Any,
    mask: Any = None,
    *,
    weights: Any = None,
    rank: int | None = None,
    fraction: float = 0.05,
    seed: int | None = None,
    xp: Any = None,
    device: Any = None,
    dtype: Any = None,
    bounds: Any = None,
) -> FitResult:
    """Complete a matrix, or every matrix of a stack, by the matrix of low rank that predicts entries best.

    Parameters
    ----------
    Y, mask, weights, xp, device, dtype, bounds
        As in :func:`airnp.fit`.
    rank : int, optional
        The highest to try, at most 32.
    fraction : float
        Share of the observed entries that choose the rank, in the shape of the gaps.
    seed : int, optional
        Draws them. Default: a new one, kept in ``result.seed``.

    Returns
    -------
    FitResult
        Of two factors, without graphs. Where there are too few entries to judge by, of rank 1.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> matrix = rng.random((40, 3)) @ rng.random((3, 30))
    >>> result = fit_low_rank(matrix, rng.random(matrix.shape) < 0.6, seed=0)
    >>> bool(np.abs(result.X - matrix).max() < 1e-3), result.stop_reason
    (True, 'a matrix of rank 3 predicts held-out entries best')
    """
    seed = checked_seed(seed)
    data = prepare(Y, mask, weights, xp, device, dtype, None, True).within(bounds)
    seen = data.observations
    values, counted = (to_numpy(array).astype(np.float64) for array in (seen.values, seen.weights))
    (m, n), batch = data.shape, values.shape[:-2]
    highest = min(m, n) if rank is None else checked_whole("rank", rank)
    found, folds = [], []
    for place in np.ndindex(batch):
        one, turns = _explained(values[place], counted[place], fraction, highest, seed)
        found.append(one)
        folds.append(turns)
    matrix = np.stack([one.left @ one.right.T for one in found]).reshape(*batch, m, n)
    width = max(one.rank for one in found)
    sides = [
        np.stack([np.pad(side, ((0, 0), (0, width - side.shape[1]))) for side in each])
        for each in ([one.right for one in found], [one.left for one in found])
    ]
    factors = [
        sides[0].swapaxes(-1, -2).reshape(*batch, width, n),
        sides[1].reshape(*batch, m, width),
    ]
    ranks = sorted({one.rank for one in found})
    said = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks[0]} to {ranks[-1]}"
    with on_device(seen.xp, seen.device):
        home = (seen.xp, seen.device, seen.dtype)
        calibrated = (
            (np.stack(left_out).reshape(values.shape), np.stack(predicted).reshape(values.shape))
            for left_out, predicted in (zip(*turn, strict=True) for turn in zip(*folds, strict=True))
        )
        assert data.original is not None
        return FitResult(
            matrix=data.restored(from_numpy(matrix, *home)),
            factors=[from_numpy(factor, *home) for factor in factors],
            regularizers=[],
            history=History(["loss", "fidelity"]),
            n_iter=0,
            best_iter=0,
            stop_reason=f"a matrix of {said} predicts held-out entries best",
            seed=seed,
            normalization=data.normalization,
            mask=seen.mask,
            observed=data.original,
            labels=seen.labels,
            calibration=calibration(data.original, calibrated, data.normalization, data.bounds),
            bounds=data.bounds,
        )


def _explained(
    values: Values, weights: Values, fraction: float, highest: int, seed: int
) -> tuple[LowRank, list[tuple[Bools, Values]]]:
    """Return the best matrix of one problem, and what it predicts of entries left out, turn by turn."""
    observed = weights > 0
    rng = np.random.default_rng([seed, 1])
    held_out = like_the_gaps(observed, how_many(int(observed.sum()), fraction), rng)
    found = explanation(values, weights, held_out, highest)
    if found is None:
        with using(1):
            left, right = np.ones((len(values), 1)), np.zeros((values.shape[1], 1))
            sides = _settled(values, weights, left, right, _FINAL_SWEEPS, _FINAL_GAIN)
        found = LowRank(*sides, float("nan"))
    used, turns = np.zeros(observed.shape, dtype=bool), []
    wanted = max(1, round(_AT_A_TURN * int(observed.sum())))
    for turn in range(_TURNS):
        drawn = like_the_gaps(observed, wanted, np.random.default_rng([turn, 2]))
        turns.append((drawn & ~used, _refit_without(values, weights, drawn, found)))
        used |= drawn
    return found, turns


def _refit_without(values: Values, weights: Values, left_out: Bools, found: LowRank) -> Values:
    """Return the matrix that is found without some of the entries, starting from the one found with them.

    A start from nothing might end elsewhere, and would tell little about the one that was found.
    """
    with using(1):
        kept = np.where(left_out, 0.0, weights)
        left, right = _settled(values, kept, found.left, found.right, _AGAIN_SWEEPS, -np.inf)
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
    kept = singular >= _NEGLIGIBLE * singular[0]  # zeros, too, if there is nothing else
    return left @ mixing[kept].T, basis[:, kept] * singular[kept]
