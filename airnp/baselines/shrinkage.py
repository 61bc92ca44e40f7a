"""SoftImpute: least squares on the observed entries with a price on the nuclear norm."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
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
    shown,
)

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
