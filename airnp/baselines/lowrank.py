"""SVD: a matrix of given rank, and the gaps filled with its entries, in turn until both agree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from airnp._checks import checked_whole
from airnp.baselines._imputation import best_solution, imputed
from airnp.baselines._problem import (
    Bools,
    Values,
    checked_positive,
    checked_seed,
    checked_share,
    complete_each,
    hold_out,
    line_means,
    shown,
)
from airnp.lowrank import climbing_ranks


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
