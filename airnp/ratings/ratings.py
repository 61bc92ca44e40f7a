"""One call for tables of ratings."""

from __future__ import annotations

from os import PathLike
from typing import Any

import numpy as np

from airnp._arrays import stored_entries
from airnp.data.entries import is_sparse
from airnp.engines import CPU, CUDA, Auto
from airnp.fitting import fit_sparse, host_sparse
from airnp.model.fidelity import Squared
from airnp.model.initialization import Gaussian
from airnp.optimizers import Adam, ExponentialDecay
from airnp.regularizers import WeightDecay
from airnp.results.sparse_result import SparseFitResult
from airnp.training.options import Checkpoint
from airnp.training.stopping import HeldOut

RATING_DTYPE = np.float32
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
    weights: Any = None,
    rank: int | None = None,
    max_iter: int = 1000,
    seed: int | None = None,
    xp: Any = None,
    device: Any = None,
    engine: str | CPU | CUDA | Auto = "auto",
    progress: bool = False,
    checkpoint: str | PathLike[str] | Checkpoint | None = None,
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
    R : sparse matrix or array of SciPy or CuPy (users, items)
        Stored entries are the ratings, explicit zeros included.
    bounds : (low, high), optional
        What predictions are clipped to. Default: the lowest and the highest rating.
    weights : optional
        How much each rating counts, at least 0; zero is none at all. A sparse matrix that stores entries
        where R does, or one number for each rating, in the order of ``R.data``.
    rank : int, optional
        Length of a factor. Default: 128, or as large as the table allows.
    max_iter : int
        Iterations at most: half of them to find out how many are best, as many again to fit all ratings.
    seed : int, optional
        The same seed gives the same answer, bit for bit, on the same machine with as many threads.
    xp : module, optional
        ``cupy`` to compute on a CUDA device. Default: NumPy, or CuPy for an R of CuPy.
    device : int or device, optional
        Which device, as in :func:`airnp.fit`.
    engine : {"auto", "cpu", "cuda", "reference"}, CPU or CUDA
        As in :func:`airnp.fit`.
    progress : bool
        Show a progress bar.
    checkpoint : path or Checkpoint, optional
        Save the run to this file now and then, after an interrupt and at the end, for :func:`airnp.resume`.

    Returns
    -------
    SparseFitResult
        ``predict(rows, columns)`` gives predictions. After ``KeyboardInterrupt``, those of the best iterate
        so far.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> rng = np.random.default_rng(0)
    >>> ratings = csr_array(rng.integers(1, 6, (30, 20)) * (rng.random((30, 20)) < 0.5))
    >>> result = fit_ratings(ratings, max_iter=20, seed=0)
    >>> predicted = result.predict([0, 1, 2], [5, 5, 5])
    >>> bool((predicted >= 1).all() and (predicted <= 5).all())
    True
    """
    R, xp, device = host_sparse(R, xp, device)
    if not is_sparse(R):
        raise TypeError(
            f"R: expected a sparse matrix of SciPy, got {type(R).__name__}; "
            "scipy.sparse.coo_array((ratings, (users, items)), shape) makes one"
        )
    rows = stored_entries("R", R)
    if bounds is None and R.nnz:
        bounds = _range(R, rows, weights)
    return fit_sparse(
        R,
        min(_RANK, *R.shape) if rank is None else rank,
        xp=xp,
        device=device,
        weights=weights,
        depth=2,
        regularizers=[WeightDecay(_DECAY, "sqrt"), WeightDecay(_MASK_DECAY, "sqrt", on="mask")],
        fidelity=Squared("sum"),
        offsets=_SHRINKAGE,
        mask_factor="both",
        init=Gaussian(0.0, _SCALE),
        optimizer=Adam(_RATE, second_moment="matrix", schedule=ExponentialDecay(0.5, _HALVED_EVERY)),
        stop=HeldOut(0.05, patience=60, relative_patience=0.0, every=5, tolerance=1e-3),
        max_iter=max_iter,
        bounds=bounds,
        seed=seed,
        dtype=RATING_DTYPE,
        engine=engine,
        progress=progress,
        checkpoint=checkpoint,
    )


def _range(R: Any, rows: Any, weights: Any) -> tuple[float, float] | None:
    """Return the lowest and the highest rating that counts."""
    from airnp.data.entries import read_weights

    values = rows.data if weights is None else rows.data[read_weights(weights, R, rows) > 0]
    return (float(values.min()), float(values.max())) if values.size else None
