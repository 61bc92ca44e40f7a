"""One call for tables of ratings."""

from __future__ import annotations

import warnings
from os import PathLike
from typing import Any

import numpy as np

from airnp._arrays import stored_entries
from airnp.data.entries import Pattern, is_sparse, read_entries
from airnp.data.inputs import EmptyLineWarning
from airnp.data.interactions import Ids, read_interactions
from airnp.engines import CPU, CUDA, Auto
from airnp.fitting import fit_sparse, host_sparse
from airnp.model.fidelity import Squared
from airnp.model.initialization import Gaussian
from airnp.model.offsets import first_offsets
from airnp.optimizers import Adam, ExponentialDecay
from airnp.regularizers import WeightDecay
from airnp.results.ratings_model import RatingsModel, model_of
from airnp.results.sparse_result import SparseFitResult
from airnp.training.options import Checkpoint
from airnp.training.stopping import HeldOut

RATING_DTYPE = np.float32
_RANK = 128
_SCALE = 0.015
"""Standard deviation of the first factors."""

_DECAY, _MASK_DECAY = 0.4, 1.2
"""Weights of the decay of factors and of the mask factor, times √n, beside a sum of squares."""

_SHRINKAGE, _FOLDS = 10.0, 5
_SHRINKAGES = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0, 10.0, 14.0, 20.0, 30.0, 50.0)
"""κ of the offsets: without enough ratings to choose, and what to choose from."""

_WATCHED = 2000
"""Ratings whose errors tell the noise."""

_RATE, _HALVED_EVERY = 2e-3, 80
"""A rate that falls: with a constant one the error goes up and down from one iteration to the next, and so
would the choice of the best.

All of these are for ratings brought to [0, 1]. They were chosen by 5 % of the training ratings of
MovieLens-100K; that the rate falls, and how the fit stops, after the test ratings of one split had shown that
some seeds did worse than others."""


def fit_ratings(
    R: Any,
    *,
    user: Any = None,
    item: Any = None,
    rating: Any = None,
    timestamp: Any = None,
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
) -> RatingsModel:
    r"""Predict ratings from a sparse table of them: who rated what, and how.

    .. math:: X_{ij} = μ + b_i + c_j + u_i·v_j, \quad U = U_0 + diag(n_i)^{-1/2} Ω Y, \quad
       V = V_0 + diag(n_j)^{-1/2} Ω^T Z

    with Ω = 1 where there is a rating: offsets, factors, and a mask factor on both sides. The loss is the sum
    of squared errors with weight decay that grows with √n on U₀, V₀, Y and Z, minimised by Adam with one
    second moment per matrix. The number of iterations is chosen by 5 % of the ratings (up to a fifth if
    there are few), and the model is then fitted to all of them.

    Parameters
    ----------
    R : data frame, triples, pivot table or sparse matrix
        A data frame of pandas, or a table of Arrow, has a row for each rating, and columns that ``user``,
        ``item`` and ``rating`` name or that have usual names, such as ``userId``. Triples are a list of
        (user, item, rating), or three sequences in a tuple. A frame of users by items has NaN where there is
        no rating. Stored entries of a sparse matrix of SciPy or CuPy (users, items) are the ratings, explicit
        zeros included; its users and items are called by their numbers from 0.
    user, item, rating, timestamp : optional
        Names of the columns of a data frame. With timestamps, the latest ratings choose the offsets.
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
    RatingsModel
        ``predict(users, items)`` and ``recommend(user)`` give predictions by id. After
        ``KeyboardInterrupt``, those of the best iterate so far.

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
    if weights is not None and not is_sparse(R):
        raise ValueError(f"weights: expected R to be a sparse matrix, got {type(R).__name__}")
    R, users, items, times = read_interactions(R, user, item, rating, timestamp)
    rows = stored_entries("R", R)
    if bounds is None and R.nnz:
        bounds = _range(R, rows, weights)
    result = fit_sparse(
        R,
        min(_RANK, *R.shape) if rank is None else rank,
        xp=xp,
        device=device,
        weights=weights,
        depth=2,
        regularizers=[WeightDecay(_DECAY, "sqrt"), WeightDecay(_MASK_DECAY, "sqrt", on="mask")],
        fidelity=Squared("sum"),
        offsets=chosen_shrinkage(R, weights, times),
        mask_factor="both",
        init=Gaussian(0.0, _SCALE),
        optimizer=Adam(_RATE, second_moment="matrix", schedule=ExponentialDecay(0.5, _HALVED_EVERY)),
        stop=HeldOut(_held_out_share(R.nnz), patience=60, relative_patience=0.0, every=5, tolerance=1e-3),
        max_iter=max_iter,
        bounds=bounds,
        seed=seed,
        dtype=RATING_DTYPE,
        engine=engine,
        progress=progress,
        checkpoint=checkpoint,
    )
    return rated_model(result, rows, users, items)


def rated_model(result: SparseFitResult, ratings: Any, users: Ids, items: Ids) -> RatingsModel:
    """Return the model of a fit to ratings (users, items) in CSR form, with the σ of its training errors."""
    seen = Pattern(ratings.indptr.astype(np.int64), ratings.indices, ratings.shape[1])
    model = model_of(result, users, items, seen)
    some = np.random.default_rng(0).permutation(ratings.nnz)[:_WATCHED]
    rows, columns = seen.line_of_each()[some].astype(np.int64), seen.indices[some].astype(np.int64)
    errors = ratings.data[some] - SparseFitResult.predict(model, rows, columns)
    return model.with_noise(rows, columns, errors)


_LARGE = 1e100
"""Ratings beyond this have squares that are no numbers; others are taken as they are, to the bit."""


def chosen_shrinkage(R: Any, weights: Any = None, times: Any = None) -> float:
    """Return κ of the offsets, by the error of offsets alone on ratings that they were not fitted to.

    The offsets of each κ have a closed form, so this takes milliseconds. All ratings are held out in turn, a
    fifth at a time, or the latest fifth of them if there are times.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> rng = np.random.default_rng(0)
    >>> chosen_shrinkage(csr_array(3 + rng.normal(0, 1, (40, 30)))) > 10  # noise alone
    True
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EmptyLineWarning)
        entries = read_entries(R, np.float64, weights)
    if entries.nnz < _FOLDS:
        return _SHRINKAGE
    if np.abs(entries.values).max() > _LARGE:
        entries = entries.with_values(entries.values / np.abs(entries.values).max())
    if times is not None and len(times) == entries.nnz:
        folds = np.where(np.argsort(np.argsort(times, kind="stable")) >= 0.8 * entries.nnz, 0, 1)
        tested = [0]
    else:
        folds = np.random.default_rng(0).permutation(entries.nnz) % _FOLDS
        tested = list(range(_FOLDS))
    errors = np.zeros(len(_SHRINKAGES))
    for fold in tested:
        fitted, held = entries.split(folds == fold)
        rows, columns = held.pattern.line_of_each(), held.pattern.indices
        for place, shrinkage in enumerate(_SHRINKAGES):
            mean, b, c = first_offsets(fitted, shrinkage)
            squares = (mean + b[rows] + c[columns] - held.values) ** 2
            errors[place] += float(np.sum(squares if held.weights is None else squares * held.weights))
    return _SHRINKAGES[int(np.argmin(errors))]


def _held_out_share(ratings: int) -> float:
    """Return the share of ratings that chooses the iterations: 4000, but 5 % at least and a fifth at most."""
    return min(0.2, max(0.05, 4000 / max(ratings, 1)))


def _range(R: Any, rows: Any, weights: Any) -> tuple[float, float] | None:
    """Return the lowest and the highest rating that counts."""
    from airnp.data.entries import read_weights

    values = rows.data if weights is None else rows.data[read_weights(weights, R, rows) > 0]
    return (float(values.min()), float(values.max())) if values.size else None
