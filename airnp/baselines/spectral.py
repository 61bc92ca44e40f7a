"""Low-rank baselines by iterated singular value decompositions: SVD and SoftImpute."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from airnp._checks import checked_whole
from airnp.baselines.problem import (
    Bools,
    Values,
    best_solution,
    checked_positive,
    checked_seed,
    checked_share,
    complete_each,
    hold_out,
    imputed,
    line_means,
    shown,
)
from airnp.completing.lowrank import climbing_ranks


def svd(
    Y: Any,
    mask: Any = None,
    *,
    rank: int | None = None,
    max_iter: int = 300,
    tol: float = 1e-5,
    held_out: float = 0.1,
    seed: int | None = None,
    progress: bool = False,
) -> Any:
    """Impute by a low-rank matrix, iteratively (SVDimpute). Observed entries are kept.

    Gaps start as the means of their rows and columns; then the matrix is replaced by its best approximation
    of some rank and the gaps are filled from that, until they no longer change. The rank climbs from 1, each
    starting from the one before.

    Parameters
    ----------
    Y : array-like (…, m, n)
        As in :func:`airnp.fit`.
    mask : array-like, optional
        True where observed. Without it, NaN means missing.
    rank : int, optional
        At most min(m, n). Default: the one that predicts held-out entries best.
    max_iter : int
        Iterations at most for each rank.
    tol : float
        An iteration that changes the low-rank matrix by less than this share (Frobenius norm) is the last.
    held_out : float
        Share of the observed entries that judge the rank; they are chosen in the shape of the gaps.
    seed : int, optional
        Which ones. The same seed gives the same answer. Default: a new one.
    progress : bool
        Show a bar over the ranks.

    Returns
    -------
    ndarray or DataFrame (…, m, n)

    Notes
    -----
    Rows and columns without any observed entry are filled as well: a row with the mean of the columns, as
    far as the low rank can express it.

    References
    ----------
    Troyanskaya et al., Missing value estimation methods for DNA microarrays, Bioinformatics 17 (2001).

    Examples
    --------
    >>> import numpy as np
    >>> Y = np.outer([1.0, 2.0, 3.0], [1.0, 2.0, 4.0])
    >>> Y[1, 1] = np.nan
    >>> float(svd(Y, rank=1)[1, 1].round(2))
    4.0
    """
    rank = None if rank is None else checked_whole("rank", rank)
    max_iter = checked_whole("max_iter", max_iter)
    tol = checked_positive("tol", tol)
    held_out = checked_share("held_out", held_out)
    seed = checked_seed(seed)

    def complete(values: Values, mask: Bools) -> Values:
        smallest = min(values.shape)
        if rank is not None and rank > smallest:
            raise ValueError(f"rank: expected at most {smallest}, the smaller side of Y, got {rank}")
        best = rank or _chosen_rank(values, mask, max_iter, tol, held_out, seed, progress)
        ranks = [r for r in climbing_ranks(smallest) if r < best] + [best]
        *_, low = shown(_climb(values, mask, ranks, max_iter, tol), progress, "svd", len(ranks))
        return np.where(mask, values, low)

    return complete_each(Y, mask, complete, "they are filled with the low-rank part of line means")


def _chosen_rank(
    values: Values, mask: Bools, max_iter: int, tol: float, share: float, seed: int, progress: bool
) -> int:
    """Return the rank that predicts held-out entries best, in the mean absolute error."""
    held = hold_out(mask, share, seed)
    ranks = list(climbing_ranks(min(values.shape)))
    climb = _climb(np.where(held, 0, values), mask & ~held, ranks, max_iter, tol)
    return ranks[best_solution(shown(climb, progress, "svd: rank", len(ranks)), values, held)]


def _climb(values: Values, mask: Bools, ranks: list[int], max_iter: int, tol: float) -> Iterator[Values]:
    """Yield the low-rank matrix of each rank in turn, each started from the one before."""
    X = line_means(values, mask)
    for rank in ranks:
        cut = _RankCut(np.where(mask, values, X), rank)
        X = imputed(values, mask, X, cut, max_iter, tol)
        yield X


class _RankCut:
    """Approximates matrices that hardly differ from one call to the next by matrices of some rank.

    One step of the power method a call: while the gaps settle, so does the basis.
    """

    def __init__(self, first: Values, rank: int) -> None:
        self._basis = np.linalg.svd(first, full_matrices=False)[2][:rank].T

    def __call__(self, filled: Values) -> Values:
        left = np.linalg.qr(filled @ self._basis)[0]
        self._basis = filled.T @ left
        low: Values = left @ self._basis.T
        return low


_STEPS = 30
_LOWEST = 1e-3


def soft_impute(
    Y: Any,
    mask: Any = None,
    *,
    shrinkage: float | None = None,
    max_iter: int = 200,
    tol: float = 1e-4,
    held_out: float = 0.1,
    seed: int | None = None,
    progress: bool = False,
) -> Any:
    r"""Minimise :math:`½ ‖M ⊙ (X − Y)‖² + λ ‖X − c‖_*`, c being the mean of the observed entries.

    The path begins at the λ that makes X constant and goes down, each solution starting from the one before.
    Observed entries are **not** kept: X is the minimiser.

    Parameters
    ----------
    Y : array-like (…, m, n)
        As in :func:`airnp.fit`.
    mask : array-like, optional
        True where observed. Without it, NaN means missing.
    shrinkage : float, optional
        λ, in the units of Y. Default: the one of the path that predicts held-out entries best.
    max_iter : int
        Iterations at most for each λ.
    tol : float
        An iteration that changes X by less than this share (Frobenius norm) is the last.
    held_out : float
        Share of the observed entries that judge λ; they are chosen in the shape of the gaps.
    seed : int, optional
        Which ones. The same seed gives the same answer. Default: a new one.
    progress : bool
        Show a bar over the path.

    Returns
    -------
    ndarray or DataFrame (…, m, n)

    Notes
    -----
    Rows and columns without any observed entry become the mean c.

    References
    ----------
    Mazumder, Hastie and Tibshirani, Spectral regularization algorithms for learning large incomplete
    matrices, JMLR 11 (2010).

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.standard_normal((30, 2)) @ rng.standard_normal((2, 20))
    >>> mask = rng.random(truth.shape) < 0.7
    >>> X = soft_impute(truth, mask, seed=0)
    >>> bool(np.abs(X - truth)[~mask].mean() < 0.2 * np.abs(truth).mean())
    True
    """
    shrinkage = None if shrinkage is None else checked_positive("shrinkage", shrinkage)
    max_iter = checked_whole("max_iter", max_iter)
    tol = checked_positive("tol", tol)
    held_out = checked_share("held_out", held_out)
    seed = checked_seed(seed)

    def complete(values: Values, mask: Bools) -> Values:
        centre = values[mask].mean()
        centred = np.where(mask, values - centre, 0)
        path = _path(float(np.linalg.norm(centred, 2)))
        if shrinkage is None:
            held = hold_out(mask, held_out, seed)
            solutions = shown(
                _solutions(np.where(held, 0, centred), mask & ~held, path, max_iter, tol),
                progress,
                "soft_impute: shrinkage",
                len(path),
            )
            path = path[: best_solution(solutions, centred, held) + 1]
        else:
            path = [*(step for step in path if step > shrinkage), shrinkage]
        solutions = shown(_solutions(centred, mask, path, max_iter, tol), progress, "soft_impute", len(path))
        *_, X = solutions
        moved: Values = X + centre
        return moved

    return complete_each(Y, mask, complete, "they are filled with the mean of all observed entries")


def _path(largest: float) -> list[float]:
    """Return λ from the one that makes X constant, down by a constant factor."""
    return [float(step) for step in largest * np.geomspace(1, _LOWEST, _STEPS)]


def _solutions(
    centred: Values, mask: Bools, path: list[float], max_iter: int, tol: float
) -> Iterator[Values]:
    """Yield the minimiser for each λ, each started from the one before."""
    X = np.zeros_like(centred)
    for step in path:
        X = imputed(centred, mask, X, partial(_shrunk, step=step), max_iter, tol)
        yield X


def _shrunk(filled: Values, step: float) -> Values:
    """Return the matrix with all singular values made smaller by λ, at least 0."""
    left, sizes, right = np.linalg.svd(filled, full_matrices=False)
    low: Values = (left * np.maximum(sizes - step, 0)) @ right
    return low
