"""Imputation of matrices: means, nearest neighbours, and low rank by SVDimpute and SoftImpute."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np

from airnp._checks import checked_choice, checked_number, checked_seed, checked_whole
from airnp.baselines.common import Bools, Values, complete_each, line_means, show_progress
from airnp.data.holdout import like_the_gaps

_STEPS, _LOWEST = 30, 1e-3
"""Values of λ on the path of SoftImpute, and the last one as a share of the first."""

_PATIENCE, _BETTER = 5, 0.99
"""Solutions in a row that may be no better, and the share of the error that counts as better."""


def mean(Y: Any, mask: Any = None, *, by: str = "all") -> Any:
    """Fill every gap with a mean of observed entries. Observed entries are kept.

    Parameters
    ----------
    Y, mask : array-like (…, m, n)
        As in :func:`airnp.fit`: the mask is True where observed; without it, NaN means missing.
    by : {"all", "rows", "columns", "both"}
        Mean of all observed entries, of those of the gap's row, of its column, or the average of the last
        two. Where such a line is empty, ``"both"`` uses the other one, the rest the mean of all.

    Returns
    -------
    ndarray or DataFrame (…, m, n)

    Examples
    --------
    >>> from numpy import nan
    >>> mean([[1.0, 2.0], [6.0, nan]])
    array([[1., 2.],
           [6., 3.]])
    """
    checked_choice("by", by, ("all", "rows", "columns", "both"))

    def complete(values: Values, mask: Bools) -> Values:
        if by == "both":
            return np.where(mask, values, line_means(values, mask))
        axis = {"all": None, "rows": 1, "columns": 0}[by]
        count = mask.sum(axis=axis, keepdims=True)
        means = values.sum(axis=axis, keepdims=True) / np.maximum(count, 1)
        return np.where(mask, values, np.where(count > 0, means, values[mask].mean()))

    return complete_each(Y, mask, complete, "they are filled with means of other entries")


def knn(Y: Any, mask: Any = None, *, k: int = 5, by: str = "rows", weights: str = "distance") -> Any:
    """Fill a gap from the k nearest rows, columns, or both. Observed entries are kept.

    Lines are compared on the entries that both have; the neighbours of a gap are the nearest lines that have
    it. Uses :class:`sklearn.impute.KNNImputer`.

    Parameters
    ----------
    Y, mask : array-like (…, m, n)
        As in :func:`airnp.fit`: the mask is True where observed; without it, NaN means missing.
    k : int
        Neighbours of a gap; fewer where there are fewer.
    by : {"rows", "columns", "both"}
        Whether neighbours are rows, columns, or the average of the two answers is taken.
    weights : {"distance", "uniform"}
        Whether near neighbours count more, by the inverse of their distance, or all the same.

    Returns
    -------
    ndarray or DataFrame (…, m, n)

    Notes
    -----
    A row without any observed entry has no neighbours and becomes the mean of the columns (of the observed
    entries of each), a column likewise the mean of the rows; where both are empty the mean of all.

    Examples
    --------
    >>> from numpy import nan
    >>> knn([[1.0, 2.0, 3.0], [1.0, 2.0, nan], [9.0, 8.0, 7.0]], k=1)
    array([[1., 2., 3.],
           [1., 2., 3.],
           [9., 8., 7.]])
    """
    k = checked_whole("k", k)
    checked_choice("by", by, ("rows", "columns", "both"))
    checked_choice("weights", weights, ("distance", "uniform"))
    try:
        from sklearn.impute import KNNImputer
    except ImportError as error:
        raise ImportError('knn needs scikit-learn: pip install "airnp[baselines]"') from error

    def by_rows(values: Values, mask: Bools) -> Values:
        X = np.where(mask, values, line_means(values, mask))
        # A column without entries has no neighbour to ask, and the imputer would make it zero.
        some = mask.any(axis=0)
        gaps = np.where(mask, values, np.nan)[:, some]
        X[:, some] = KNNImputer(n_neighbors=k, weights=weights).fit_transform(gaps)
        return X

    def complete(values: Values, mask: Bools) -> Values:
        answers = [by_rows(values, mask)] if by != "columns" else []
        if by != "rows":
            answers.append(by_rows(values.T, mask.T).T)
        average: Values = np.mean(answers, axis=0)
        return average

    return complete_each(Y, mask, complete, "they are filled with means of other entries")


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
    Y, mask : array-like (…, m, n)
        As in :func:`airnp.fit`: the mask is True where observed; without it, NaN means missing.
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
        best = rank or _choose_rank(values, mask, max_iter, tol, held_out, seed, progress)
        ranks = [r for r in climbing_ranks(smallest) if r < best] + [best]
        *_, low = show_progress(_climb(values, mask, ranks, max_iter, tol), progress, "svd", len(ranks))
        return np.where(mask, values, low)

    return complete_each(Y, mask, complete, "they are filled with the low-rank part of line means")


def _choose_rank(
    values: Values, mask: Bools, max_iter: int, tol: float, share: float, seed: int, progress: bool
) -> int:
    """Return the rank that predicts held-out entries best, in the mean absolute error."""
    held = hold_out(mask, share, seed)
    ranks = list(climbing_ranks(min(values.shape)))
    climb = _climb(np.where(held, 0, values), mask & ~held, ranks, max_iter, tol)
    return ranks[best_solution(show_progress(climb, progress, "svd: rank", len(ranks)), values, held)]


def _climb(values: Values, mask: Bools, ranks: list[int], max_iter: int, tol: float) -> Iterator[Values]:
    """Yield the low-rank matrix of each rank in turn, each starting from the one before."""
    X = line_means(values, mask)
    for rank in ranks:
        cut = _RankCut(np.where(mask, values, X), rank)
        X = impute(values, mask, X, cut, max_iter, tol)
        yield X


class _RankCut:
    """Approximates slowly changing matrices by matrices of some rank.

    Each call is one step of the power method: the basis converges as the gaps do.
    """

    def __init__(self, first: Values, rank: int) -> None:
        self._basis = np.linalg.svd(first, full_matrices=False)[2][:rank].T

    def __call__(self, filled: Values) -> Values:
        left = np.linalg.qr(filled @ self._basis)[0]
        self._basis = filled.T @ left
        low: Values = left @ self._basis.T
        return low


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
    Y, mask : array-like (…, m, n)
        As in :func:`airnp.fit`: the mask is True where observed; without it, NaN means missing.
    shrinkage : float, optional
        λ, in the units of Y. Default: the one of the path that predicts held-out entries best.
    max_iter, tol, held_out, seed, progress
        As in :func:`svd`, with λ in the place of the rank.

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
        # The first λ makes X constant.
        path = (float(np.linalg.norm(centred, 2)) * np.geomspace(1, _LOWEST, _STEPS)).tolist()
        if shrinkage is None:
            held = hold_out(mask, held_out, seed)
            solutions = show_progress(
                _solutions(np.where(held, 0, centred), mask & ~held, path, max_iter, tol),
                progress,
                "soft_impute: shrinkage",
                len(path),
            )
            path = path[: best_solution(solutions, centred, held) + 1]
        else:
            path = [*(step for step in path if step > shrinkage), shrinkage]
        solutions = show_progress(
            _solutions(centred, mask, path, max_iter, tol), progress, "soft_impute", len(path)
        )
        *_, X = solutions
        moved: Values = X + centre
        return moved

    return complete_each(Y, mask, complete, "they are filled with the mean of all observed entries")


def _solutions(
    centred: Values, mask: Bools, path: list[float], max_iter: int, tol: float
) -> Iterator[Values]:
    """Yield the minimiser for each λ, each starting from the one before."""
    X = np.zeros_like(centred)
    for step in path:
        X = impute(centred, mask, X, partial(_shrink, step=step), max_iter, tol)
        yield X


def _shrink(filled: Values, step: float) -> Values:
    """Subtract λ from all singular values, down to 0 at least."""
    left, sizes, right = np.linalg.svd(filled, full_matrices=False)
    low: Values = (left * np.maximum(sizes - step, 0)) @ right
    return low


# --- both methods ---


def climbing_ranks(highest: int) -> Iterator[int]:
    """Yield 1, 2, 3, … with steps that grow to a fifth of the rank."""
    rank = 1
    while rank <= highest:
        yield rank
        rank += max(1, rank // 5)


def impute(
    values: Values,
    mask: Bools,
    X: Values,
    simplify: Callable[[Values], Values],
    max_iter: int,
    tol: float,
) -> Values:
    """Iterate ``X ← simplify(values where observed, X elsewhere)`` until X no longer changes; return X.

    The gaps are filled from an extrapolation of X by Nesterov's momentum, which restarts whenever it points
    backwards. It needs fewer iterations for the same answer, above all where little is observed.
    """
    ahead, age = X, 1.0
    for _ in range(max_iter):
        new = simplify(np.where(mask, values, ahead))
        change = new - X
        if np.sum((ahead - new) * change) > 0:
            age = 1.0
        older = (1 + np.sqrt(1 + 4 * age**2)) / 2
        ahead, X, age = new + (age - 1) / older * change, new, older
        if np.linalg.norm(change) <= tol * np.linalg.norm(new):
            break
    return X


def best_solution(solutions: Iterable[Values], values: Values, held: Bools) -> int:
    """Return the number of the solution with the least mean absolute error on held-out entries.

    The solutions go from simple to complex. A more complex one must be better by 1 %, and the search ends
    when a few in a row were not.
    """
    best, lowest = 0, np.inf
    for number, X in enumerate(solutions):
        error = float(np.abs(X - values)[held].mean())
        if error < _BETTER * lowest:
            best, lowest = number, error
        elif number - best >= _PATIENCE:
            break
    return best


def hold_out(mask: Bools, share: float, seed: int) -> Bools:
    """Choose observed entries to hold out, in the shape of the gaps; no line loses its last one.

    Raise ValueError if no entry can be spared.
    """
    wanted = max(1, round(share * int(mask.sum())))
    held = like_the_gaps(mask, wanted, np.random.default_rng([seed, 7]))
    if not held.any():
        raise ValueError("Y: has no observed entry to spare for choosing an option; give it instead")
    return held


def checked_share(name: str, value: Any) -> float:
    """Return ``value`` as a float if it lies strictly between 0 and 1, else raise."""
    share = checked_number(name, value)
    if not 0 < share < 1:
        raise ValueError(f"{name}: expected a number between 0 and 1, got {value!r}")
    return share


def checked_positive(name: str, value: Any) -> float:
    """Return ``value`` as a float if it is a positive number, else raise."""
    number = checked_number(name, value)
    if number <= 0:
        raise ValueError(f"{name}: expected a positive number, got {value!r}")
    return number
