"""One call for tables of ratings."""

from __future__ import annotations

import warnings
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from airnp._arrays import stored_entries
from airnp._checks import checked_whole
from airnp.data.entries import Entries, Pattern, is_sparse, read_entries
from airnp.data.holdout import Place, best_place, lowest_between, moved
from airnp.data.inputs import EmptyLineWarning
from airnp.data.interactions import Ids, latest, read_interactions
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

_RANK = 128
_SCALE = 0.015
"""Standard deviation of the first factors."""

_RATE, _HALVED_EVERY = 2e-3, 80
"""A rate that falls: with a constant one the error goes up and down from one iteration to the next, and so
would the choice of the best."""

_SPREAD = 0.23
"""Standard deviation of what the offsets leave, as a share of the range, that these two and the decays below
are for. They were chosen by 5 % of the training ratings of MovieLens-100K; that the rate falls, after the
test ratings of one split had shown that some seeds did worse than others."""

_DECAYS = (0.4, 1.2)
"""Weights of the decay of factors and of the mask factor, times √n, that the search begins with."""

_LEAST_GAIN = 1e-4
"""Share of the error by which other decays have to be better."""

_SURE, _CONFIRMED, _PLAIN = 1.0, 0.5, 3.0
"""By how many of its standard errors the squared error has to be below that of the offsets alone: in the
first turns, and, because the best of several trials looks better than it is, in others. Above the third
there is no doubt."""

_ALONE = 40
"""Iterations with the strongest decays, after which nothing is left of the first factors."""

_FURTHEST = 8
"""How often a decay is doubled or halved at most."""

_STARTS, _LEAST_LEAD = ((0, 0), (-1, _FURTHEST)), 5e-4
"""Where a search may begin, in doublings of both decays: where who rated what tells something, and where it
tells nothing, so that the factors are left without a mask factor; and by which share of the error the second
has to be better."""

_TRIAL_RANK = 32
"""Rank of the fits that choose decays: strong decay leaves few directions, and a quarter of the time."""

_LOOK_EVERY, _PATIENCE, _TOLERANCE = 10, 60, 1e-3
"""A trial's error is looked at every so many iterations, and the trial ends when it has not fallen for so
many. The rate falls, so the error ends on a plateau: of almost equal ones the last counts."""

_HELD_OUT, _TURNS = 8000, 3
"""How many ratings to hold out, and in how many turns at most if a fifth of the ratings are fewer. The
first turn chooses the decays alone, unless it leaves doubt that factors help and has few ratings."""

_FEW = 2000
"""Held-out ratings that are few."""

_SHRINKAGE, _FOLDS = 10.0, 5
_SHRINKAGES = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0, 10.0, 14.0, 20.0, 30.0, 50.0)
"""κ of the offsets: without enough ratings to choose, and what to choose from."""

_WATCHED = 2000
"""Ratings whose errors tell the noise."""

_NARROW, _SMALL, _BIG = 1e-3, 1e-30, 1e30
"""A range of ratings, as a share of the largest, that float32 resolves, and sizes that it holds."""

_SIZES = 1e-100, 1e200
"""Largest ratings whose products with offsets and factors float64 holds."""


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
    max_iter: int = 400,
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
    second moment per matrix. The shrinkage of the offsets, both decays and the number of iterations are
    chosen by the errors on held-out ratings, and the model is then fitted to all of them.

    Parameters
    ----------
    R : data frame, triples, pivot table or sparse matrix
        A data frame of pandas, or a table of Arrow, has a row for each rating, and columns that ``user``,
        ``item`` and ``rating`` name or that have usual names, such as ``userId``. Triples are a list of
        (user, item, rating), or three sequences in a tuple. A frame of users by items has NaN where there is
        no rating. Stored entries of a sparse matrix of SciPy or CuPy (users, items) are the ratings, explicit
        zeros included; its users and items are called by their numbers from 0.
    user, item, rating, timestamp : optional
        Names of the columns of a data frame. With timestamps, the latest ratings are held out.
    bounds : (low, high), optional
        What predictions are clipped to. Default: the lowest and the highest rating.
    weights : optional
        How much each rating counts, at least 0; zero is none at all. A sparse matrix that stores entries
        where R does, or one number for each rating, in the order of ``R.data``.
    rank : int, optional
        Length of a factor. Default: 128, or as large as the table allows.
    max_iter : int
        Iterations at most, of each fit that chooses settings and of the fit to all ratings.
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
        Save the fit to all ratings, which begins when the settings are chosen, to this file now and then,
        after an interrupt and at the end, for :func:`airnp.resume`.

    Returns
    -------
    RatingsModel
        ``predict(users, items)`` and ``recommend(user)`` give predictions by id. After
        ``KeyboardInterrupt``, those of the iterate so far; while settings are chosen, of the first iterate,
        which has little more than offsets.

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
    options = {
        "dtype": rating_dtype(rows.data),
        "rank": min(_RANK, *R.shape) if rank is None else checked_whole("rank", rank),
        "max_iter": checked_whole("max_iter", max_iter),
        "bounds": bounds,
        "seed": seed,
        "xp": xp,
        "device": device,
        "engine": engine,
    }
    trials = Trials(R, weights, times, options)
    chosen = trials.choose()
    result = fitted_with(
        R,
        chosen,
        **{**options, "max_iter": chosen.iterations},
        weights=weights,
        progress=progress,
        checkpoint=None if trials.interrupted else checkpoint,
        callback=_interrupt if trials.interrupted else None,
    )
    return rated_model(result, rows, users, items)


def rating_dtype(ratings: npt.NDArray[Any]) -> type[np.floating[Any]]:
    """Return in what to compute: float32, or float64 where float32 would lose differences of ratings.

    Raise a ValueError if float64 would lose them, too.

    Examples
    --------
    >>> rating_dtype(np.array([1.0, 5.0])).__name__, rating_dtype(np.array([1e6 + 1, 1e6 + 5])).__name__
    ('float32', 'float64')
    """
    if not ratings.size:
        return np.float32
    low, high = float(ratings.min()), float(ratings.max())
    largest = max(abs(low), abs(high))
    if largest and not _SIZES[0] <= largest <= _SIZES[1]:
        raise ValueError(
            f"R: expected the largest rating to be from {_SIZES[0]:g} to {_SIZES[1]:g}, got {largest:g}; "
            "divide ratings by it"
        )
    return np.float32 if high - low >= _NARROW * largest and _SMALL < largest < _BIG else np.float64


class Settings(NamedTuple):
    """What is chosen for a table of ratings.

    Attributes
    ----------
    shrinkage : float
        κ of the offsets.
    decay, mask_decay : float
        Weights of the decay of factors and of the mask factor.
    iterations : int
    spread : float
        Standard deviation of what the offsets leave, over ``_SPREAD`` of the range of the ratings.
    """

    shrinkage: float
    decay: float
    mask_decay: float
    iterations: int
    spread: float


def fitted_with(R: Any, settings: Settings, **options: Any) -> SparseFitResult:
    """Return the fit with these settings.

    The range of the ratings becomes [0, 1]. Ratings that differ c times as much from their offsets as those
    that the constants are for have products u·v that are c times as large, so that factors and their rate
    grow with √c. The squared errors grow with c², the squares of factors with c: the decays grow with c.
    """
    spread = settings.spread
    decays = [
        WeightDecay(settings.decay * spread, "sqrt"),
        WeightDecay(settings.mask_decay * spread, "sqrt", on="mask"),
    ]
    rate = _RATE * np.sqrt(spread)
    return fit_sparse(
        R,
        depth=2,
        regularizers=decays,
        fidelity=Squared("sum"),
        offsets=settings.shrinkage,
        mask_factor="both",
        init=Gaussian(0.0, _SCALE * np.sqrt(spread)),
        optimizer=Adam(rate, second_moment="matrix", schedule=ExponentialDecay(0.5, _HALVED_EVERY)),
        stop=None,
        **options,
    )


def _interrupt(iteration: int, state: Any) -> None:
    """End a fit as Ctrl-C does."""
    raise KeyboardInterrupt


class Trial(NamedTuple):
    """What a fit tells about its decays.

    Attributes
    ----------
    error : float
        The smallest root mean square on held-out ratings.
    iterations : int
        After how many iterations.
    gain : float
        How much smaller the squared error is than that of the offsets alone, in its standard errors.
    """

    error: float
    iterations: int
    gain: float


class Trials:
    """Fits to a part of the ratings, judged by the others.

    Parameters
    ----------
    R : sparse matrix
    weights : optional
        Of the ratings.
    times : array (nnz,), optional
        When they were made: the latest are held out. Without them any, at random.
    options : dict
        Of :func:`airnp.fit_sparse`, for each fit.
    """

    def __init__(self, R: Any, weights: Any, times: Any, options: dict[str, Any]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EmptyLineWarning)
            self._entries = read_entries(R, np.float64, weights)
        self._shrinkage = chosen_shrinkage(self._entries, times)
        span = float(np.ptp(self._entries.values))
        self._unit = 2.0 ** (np.frexp(span)[1] - 1)
        self._spread = self._relative_spread(span)
        self._folds, self._others = _folds(self._entries.nnz, times)
        # A rank that is too large is left as it is, for the first fit to refuse.
        rank = _TRIAL_RANK if _TRIAL_RANK < options["rank"] <= min(R.shape) else options["rank"]
        self._options = {**options, "rank": rank}
        self._known: dict[Place, list[npt.NDArray[np.float64]]] = {}
        self._turns = 1
        self.interrupted = False

    def choose(self) -> Settings:
        """Return the settings with the smallest error: one decay is doubled or halved, then the other."""
        place, limit = _STARTS[0], self._options["max_iter"]
        if self._entries.nnz < _FOLDS:
            return self._settings(place, limit)
        try:
            place = self._best_place()
            trial = self._trial(place)
            helps = trial.gain >= _PLAIN
            if not helps:
                self._turns = len(self._folds)
                trial = self._trial(place)
                helps = trial.gain >= _SURE and self._is_confirmed(place)
        except KeyboardInterrupt:
            self.interrupted = True
            return self._settings(place, limit)
        if not helps:
            return self._settings((_FURTHEST, _FURTHEST), min(_ALONE, limit))
        first, second = (place[axis] + self._offside(place, axis) for axis in (0, 1))
        return self._settings((first, second), trial.iterations)

    def _best_place(self) -> Place:
        first, second = _STARTS
        unclear = max(self._trial(first).gain, self._trial(second).gain) < _PLAIN
        if unclear and self._folds[0].sum() < _FEW:
            self._turns = len(self._folds)
        start = second if self._error(second) < (1 - _LEAST_LEAD) * self._error(first) else first
        place = best_place(self._error, (0,), _FURTHEST, _LEAST_GAIN, start)
        if start == second:
            place = min(place, (place[0], 0), key=self._error)
        if place[1] == _FURTHEST:
            return place
        return best_place(self._error, (1,), _FURTHEST, _LEAST_GAIN, place)

    def _offside(self, place: Place, axis: int) -> float:
        """Return how far from a place the error may be still smaller, by those of its neighbours."""
        before, after = (moved(place, axis, step) for step in (-1, 1))
        if before not in self._known or after not in self._known:
            return 0.0
        curves = [self._known[there] for there in (before, place, after)]
        turns = min(map(len, curves))
        return lowest_between(*(_judged(some[:turns]).error for some in curves))

    def _is_confirmed(self, place: Place) -> bool:
        """Whether ratings that did not choose the decays say, too, that factors help."""
        if not self._others:
            return True
        settings = self._settings(place, self._options["max_iter"])
        return _judged([self._curve(settings, held) for held in self._others]).gain >= _CONFIRMED

    def _error(self, place: Place) -> float:
        return self._trial(place).error

    def _trial(self, place: Place) -> Trial:
        """Return what the fits of as many turns as count tell."""
        settings, curves = self._settings(place, self._options["max_iter"]), self._known.setdefault(place, [])
        curves += [self._curve(settings, held) for held in self._folds[len(curves) : self._turns]]
        return _judged(curves)

    def _curve(self, settings: Settings, held: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
        """Return sums over held-out ratings, at the start and then every few iterations, (looks, 4).

        Of 1, of e², of d and of d², with the error e, in units in which the range of ratings is about 1, and
        d = e₀² − e², where e₀ is that of the start, which is that of the offsets alone.
        """
        from scipy.sparse import csr_array

        fitted, rest = self._entries.split(held)
        rows, columns, pattern = rest.pattern.line_of_each(), rest.pattern.indices, fitted.pattern
        weights = np.ones(rest.nnz) if rest.weights is None else rest.weights / np.mean(rest.weights)
        squares: list[npt.NDArray[np.float64]] = []
        sums: list[list[float]] = []

        def look(iteration: int, state: Any) -> bool:
            if iteration > 1 and iteration % _LOOK_EVERY:
                return False
            found = weights * ((state.result().predict(rows, columns) - rest.values) / self._unit) ** 2
            if not squares:
                squares.append(found)
            gain = squares[0] - found
            sums.append([rest.nnz, float(found.sum()), float(gain.sum()), float(gain @ gain)])
            best = int(np.argmin([line[1] for line in sums]))
            return len(sums) - 1 > best + _PATIENCE // _LOOK_EVERY

        matrix = csr_array((fitted.values, pattern.indices, pattern.indptr), shape=fitted.shape)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EmptyLineWarning)
            options = {**self._options, "weights": fitted.weights, "record": _LOOK_EVERY}
            result = fitted_with(matrix, settings, callback=look, **options)
        if result.stop_reason == "interrupted":
            raise KeyboardInterrupt
        return np.array(sums)

    def _settings(self, place: tuple[float, float], iterations: int) -> Settings:
        decay, mask_decay = (start * 2.0**power for start, power in zip(_DECAYS, place, strict=True))
        return Settings(self._shrinkage, decay, mask_decay, iterations, self._spread)

    def _relative_spread(self, span: float) -> float:
        """Return the standard deviation of what the offsets leave, in units of ``_SPREAD`` of the range."""
        values, weights = self._entries.values, self._entries.weights
        mean, b, c = first_offsets(self._entries, self._shrinkage)
        left = values - mean - b[self._entries.pattern.line_of_each()] - c[self._entries.pattern.indices]
        if span == 0:
            return 1.0
        spread = float(np.sqrt(np.average((left / span) ** 2, weights=weights)))
        return float(np.clip(spread / _SPREAD, 0.1, 10))


def _judged(curves: list[npt.NDArray[np.float64]]) -> Trial:
    """Return what the held-out errors of fits of several turns tell."""
    # A fit that ended before the others stays as bad as it was then.
    length = max(map(len, curves))
    padded = [np.pad(curve, ((0, length - len(curve)), (0, 0)), mode="edge") for curve in curves]
    count, errors, gains, squares = np.sum(padded, axis=0).T
    last = np.flatnonzero(errors <= (1 + 2 * _TOLERANCE) * errors.min())[-1]
    spread = np.sqrt(max(squares[last] - gains[last] ** 2 / count[last], 1e-300))
    error = float(np.sqrt(errors.min() / count[0]))
    return Trial(error, max(1, int(last) * _LOOK_EVERY), float(gains[last] / spread))


def _folds(count: int, times: Any) -> tuple[list[npt.NDArray[np.bool_]], list[npt.NDArray[np.bool_]]]:
    """Return which ratings to hold out in each turn, 5 % to a fifth of them, and others in further turns."""
    share = min(0.2, max(0.05, _HELD_OUT / count))
    if times is not None:
        return [latest(times, share)], []
    wanted = max(1, int(share * count))
    turns = min(_TURNS, -(-_HELD_OUT // wanted))
    places = np.empty(count, np.int64)
    places[np.random.default_rng(0).permutation(count)] = np.arange(count) // wanted
    all_turns = [places == turn for turn in range(min(2 * turns, count // wanted))]
    return all_turns[:turns], all_turns[turns:]


def rated_model(result: SparseFitResult, ratings: Any, users: Ids, items: Ids) -> RatingsModel:
    """Return the model of a fit to ratings (users, items) in CSR form, with the σ of its training errors."""
    seen = Pattern(ratings.indptr.astype(np.int64), ratings.indices, ratings.shape[1])
    model = model_of(RatingsModel, result, users, items, seen)
    some = np.random.default_rng(0).permutation(ratings.nnz)[:_WATCHED]
    rows, columns = seen.line_of_each()[some].astype(np.int64), seen.indices[some].astype(np.int64)
    errors = ratings.data[some] - SparseFitResult.predict(model, rows, columns)
    return model.with_noise(rows, columns, errors)


_LARGE = 1e100
"""Ratings beyond this have squares that are no numbers; others are taken as they are, to the bit."""


def chosen_shrinkage(entries: Entries, times: Any = None) -> float:
    """Return κ of the offsets, by the error of offsets alone on ratings that they were not fitted to.

    The offsets of each κ have a closed form, so this takes milliseconds. All ratings are held out in turn, a
    fifth at a time, or the latest fifth of them if there are times.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> rng = np.random.default_rng(0)
    >>> chosen_shrinkage(read_entries(csr_array(3 + rng.normal(0, 1, (40, 30))))) > 10  # noise alone
    True
    """
    if entries.nnz < _FOLDS:
        return _SHRINKAGE
    if np.abs(entries.values).max() > _LARGE:
        entries = entries.with_values(entries.values / np.abs(entries.values).max())
    if times is not None:
        folds, tested = np.where(latest(times, 1 / _FOLDS), 0, 1), [0]
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


def _range(R: Any, rows: Any, weights: Any) -> tuple[float, float] | None:
    """Return the lowest and the highest rating that counts."""
    from airnp.data.entries import read_weights

    values = rows.data if weights is None else rows.data[read_weights(weights, R, rows) > 0]
    return (float(values.min()), float(values.max())) if values.size else None
