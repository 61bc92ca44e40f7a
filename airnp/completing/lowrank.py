"""Complete a matrix by one of low rank, found in closed-form steps and chosen by held-out entries.

Rows of a matrix of rank k are :math:`x_i = V u_i`. The rows of U are taken as draws from a normal
distribution whose mean μ and covariance C are those of the rows found so far, and the data as exact up to
noise of variance σ². The best :math:`u_i` given V then has a closed form:

.. math:: (V^T W_i V + σ^2 C^{-1}) u_i = V^T W_i y_i + σ^2 C^{-1} μ

with :math:`W_i` the weights of row i. The same holds with the two sides exchanged, so the sides take turns.
The prior completes a row with fewer entries than the rank from what the other rows are like, and keeps
components small that the data do not support. σ² is the mean square of the residuals, so that the prior
fades as the fit becomes exact.

The rank climbs from 1, each new component starting where the residuals are largest. Gradient descent on
a product of factors finds the same components one after the other, and needs thousands of iterations for
each; where the data are exactly of low rank this takes a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from airnp._arrays import from_numpy, on_device, to_numpy
from airnp._checks import checked_seed, checked_whole
from airnp.baselines.imputers import climbing_ranks
from airnp.data.holdout import hold_out, like_the_gaps
from airnp.data.normalization import prepare
from airnp.engines.threads import using
from airnp.results.calibration import calibration
from airnp.results.history import History
from airnp.results.result import FitResult

Values = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

Sides: TypeAlias = tuple[Values, Values]
"""L (m, k) and R (n, k) of the matrix L Rᵀ."""

_FEWEST_JUDGES = 20
"""Held-out entries that a rank above 1 is chosen by, at least."""

_HIGHEST_RANK = 32

_PATIENCE, _GAIN = 3, 0.05
"""The climb ends after so many ranks in a row that do not lower the held-out error by this share."""

_CLIMB_SWEEPS, _CLIMB_GAIN = 50, 3e-2
_FINAL_SWEEPS, _FINAL_GAIN = 300, 1e-3
"""Sweeps at most, and the share of the squared residuals that a sweep must remove for another to follow."""

_REFIT_SWEEPS = 5
"""Sweeps after which a matrix has forgotten the entries that are left out."""

_NOISE_FLOOR = 1e-8
"""σ² at least, in units of the data's range: float32 data are exact to a few times its root."""

_NEGLIGIBLE = 1e-5
"""Errors in units of the data's range, and components in units of the first, that do not count."""

_SMALL = 1e-12
"""Share of the mean variance that every component has at least, so that C can be inverted."""

_POWER_STEPS = 6

_FOLDS, _FOLD_SHARE = 10, 0.02
"""How many times entries are left out to calibrate intervals, and what share of them at a time."""


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
        Of two factors, without graphs. Where there are too few entries to choose by, of rank 1.

    Examples
    --------
    Three components, and one more because the data are brought to [0, 1]:

    >>> rng = np.random.default_rng(0)
    >>> matrix = rng.random((40, 3)) @ rng.random((3, 30))
    >>> result = fit_low_rank(matrix, rng.random(matrix.shape) < 0.6, seed=0)
    >>> bool(np.abs(result.X - matrix).max() < 1e-3), result.stop_reason
    (True, 'a matrix of rank 4 predicts held-out entries best')
    """
    seed = checked_seed(seed)
    data = prepare(Y, mask, weights, xp, device, dtype, None, True).within(bounds)
    seen = data.observations
    values, counted = (to_numpy(array).astype(np.float64) for array in (seen.values, seen.weights))
    (m, n), batch = data.shape, values.shape[:-2]
    highest = min(m, n) if rank is None else checked_whole("rank", rank)
    found = {}
    for place in np.ndindex(batch):
        observed = counted[place] > 0
        held_out = hold_out(observed, fraction, seed)
        found[place] = find_low_rank(values[place], counted[place], held_out, highest)

    ranks = sorted({left.shape[1] for left, _ in found.values()})
    matrix = np.empty(values.shape)
    factors = [np.zeros((*batch, ranks[-1], n)), np.zeros((*batch, m, ranks[-1]))]
    left_out = np.empty((_FOLDS, *values.shape), dtype=bool)
    predicted = np.empty(left_out.shape)
    for place, (left, right) in found.items():
        matrix[place] = left @ right.T
        factors[0][place][: right.shape[1]] = right.T
        factors[1][place][:, : left.shape[1]] = left
        for fold, parts in enumerate(_predict_left_out(values[place], counted[place], left, right)):
            left_out[fold][place], predicted[fold][place] = parts
    name = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks[0]} to {ranks[-1]}"
    with on_device(seen.xp, seen.device):
        home = (seen.xp, seen.device, seen.dtype)
        assert data.original is not None
        folds = ((left_out[fold], predicted[fold]) for fold in range(_FOLDS))
        return FitResult(
            matrix=data.restored(from_numpy(matrix, *home)),
            factors=[from_numpy(factor, *home) for factor in factors],
            regularizers=[],
            history=History(["loss", "fidelity"]),
            n_iter=0,
            best_iter=0,
            stop_reason=f"a matrix of {name} predicts held-out entries best",
            seed=seed,
            normalization=data.normalization,
            mask=seen.mask,
            observed=data.original,
            labels=seen.labels,
            calibration=calibration(data.original, folds, data.normalization, data.bounds),
            bounds=data.bounds,
        )


def find_low_rank(values: Values, weights: Values, held_out: Bools, rank: int) -> Sides:
    """Choose the rank that predicts held-out entries best, and fit a matrix of that rank to all entries.

    Parameters
    ----------
    values : ndarray (m, n)
        In units of the data's range; anything where not observed.
    weights : ndarray (m, n)
        Of each entry; zero is missing.
    held_out : ndarray of bool (m, n)
        Observed entries that choose the rank. If they are fewer than 20, the rank is 1.
    rank : int
        The highest to try; 32 is never passed.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> matrix = rng.random((40, 3)) @ rng.random((3, 30))
    >>> observed = rng.random(matrix.shape) < 0.6
    >>> held_out = observed & (rng.random(matrix.shape) < 0.1)
    >>> left, right = find_low_rank(matrix, observed * 1.0, held_out, rank=10)
    >>> left.shape[1], bool(np.abs(left @ right.T - matrix).max() < 1e-3)
    (3, True)
    """
    with using(1):  # the same bits, whatever else runs beside it
        if held_out.sum() < _FEWEST_JUDGES:
            start = _climb(values, weights, weights > 0, 1)
        else:
            kept = np.where(held_out, 0.0, weights)
            start = _climb(values, kept, held_out, min(rank, _HIGHEST_RANK))
        return _trim(*_alternate(values, weights, *start, _FINAL_SWEEPS, _FINAL_GAIN))


def _predict_left_out(
    values: Values, weights: Values, left: Values, right: Values
) -> Iterator[tuple[Bools, Values]]:
    """Yield, fold by fold, entries that are left out and the matrix (m, n) that the others give.

    Each fold starts from the matrix of all entries: a start from nothing might end elsewhere, and would tell
    little about the one that was found.
    """
    observed = weights > 0
    used = np.zeros(observed.shape, dtype=bool)
    wanted = max(1, round(_FOLD_SHARE * int(observed.sum())))
    for fold in range(_FOLDS):
        drawn = like_the_gaps(observed, wanted, np.random.default_rng([fold, 2]))
        with using(1):
            kept = np.where(drawn, 0.0, weights)
            rows, columns = _alternate(values, kept, left, right, _REFIT_SWEEPS, -np.inf)
        yield drawn & ~used, rows @ columns.T
        used |= drawn


def _climb(values: Values, weights: Values, judges: Bools, highest: int) -> Sides:
    """Return the matrix of the lowest rank that no higher one betters by much."""
    rng = np.random.default_rng(0)
    m, n = values.shape
    left, right = np.zeros((m, 0)), np.zeros((n, 0))
    residuals = np.where(weights > 0, weights * values, 0.0)
    scale = weights.sum() / weights.size
    best, lowest, waited = (left, right), np.inf, 0
    for rank in climbing_ranks(highest):
        added = _leading(residuals, rank - right.shape[1], rng)
        left, right = np.hstack([left, residuals @ added / scale]), np.hstack([right, added])
        left, right = _alternate(values, weights, left, right, _CLIMB_SWEEPS, _CLIMB_GAIN)
        fitted = left @ right.T
        residuals = np.where(weights > 0, weights * (values - fitted), 0.0)
        error = float(np.abs(fitted - values)[judges].mean())
        if error < (1 - _GAIN) * lowest:
            best, lowest, waited = (left, right), error, 0
        else:
            waited += 1
        if waited == _PATIENCE or lowest < _NEGLIGIBLE:
            break
    return best


def _leading(matrix: Values, count: int, rng: np.random.Generator) -> Values:
    """Approximate the leading right singular vectors, (n, count), by a few power steps."""
    basis = rng.standard_normal((matrix.shape[1], count))
    for _ in range(_POWER_STEPS):
        basis = np.linalg.qr(matrix.T @ (matrix @ basis))[0]
    return basis


def _alternate(
    values: Values, weights: Values, left: Values, right: Values, sweeps: int, gain: float
) -> Sides:
    """Improve the sides in turns until a sweep gains little; end with an orthogonalised left side."""
    weighted = np.where(weights > 0, weights * values, 0.0)
    total = weights.sum()
    misfit = _misfit(values, weights, left, right)
    for _ in range(sweeps):
        noise = max(misfit / total, _NOISE_FLOOR)
        left = _best_rows(weights, weighted, right, left, noise)
        right = _best_rows(weights.T, weighted.T, left, right, noise)
        left, right = _orthogonalize(left, right)
        before, misfit = misfit, _misfit(values, weights, left, right)
        if misfit > (1 - gain) * before:
            break
    return left, right


def _misfit(values: Values, weights: Values, left: Values, right: Values) -> float:
    """Return the weighted sum of squared residuals."""
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


def _orthogonalize(left: Values, right: Values) -> Sides:
    """Return the same product with a left side whose columns are orthogonal and of unit mean square."""
    basis, mixing = np.linalg.qr(left)
    size = np.sqrt(len(left))
    return basis * size, right @ mixing.T / size


def _trim(left: Values, right: Values) -> Sides:
    """Return the product without the components that are negligible; the left side is orthogonalised."""
    basis, singular, mixing = np.linalg.svd(right, full_matrices=False)
    kept = singular >= _NEGLIGIBLE * singular[0]  # zeros, too, if there is nothing else
    return left @ mixing[kept].T, basis[:, kept] * singular[kept]
