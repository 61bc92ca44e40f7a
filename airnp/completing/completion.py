"""``airnp.complete``: fill the gaps of a matrix without any options, and say how good that is."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace, device

from airnp._arrays import from_numpy, to_numpy
from airnp.completing.judging import standard_error
from airnp.completing.lowrank import fit_low_rank
from airnp.completing.searching import Candidate, Search, search
from airnp.data.inputs import EmptyLineWarning, Observations, read
from airnp.fitting import fit
from airnp.model.fidelity import checked_fidelity
from airnp.regularizers import AdaptiveLaplacian, TotalVariation
from airnp.regularizers.base import GRAPH_WEIGHT
from airnp.regularizers.variation import VARIATION_WEIGHT
from airnp.results.result import FitResult

Floats = npt.NDArray[np.float64]

_WEIGHTS = ((1.0, 1.0), (1.0, 3.0), (0.25, 0.0), (4.0, 0.0), (0.0, 0.0))
"""What is tried besides AIR: multiples of the default weights of graphs, and of total variation."""

_FOLDS = 5

_OF_LOW_RANK = ("weights", "xp", "device", "dtype", "bounds")
"""Settings that the matrix of low rank shares with fits."""


@dataclass(frozen=True, eq=False)
class Completion:
    """A completed matrix, how it was chosen, and how good it is likely to be.

    Attributes
    ----------
    result : FitResult
        Of the chosen settings on all observed entries.
    choice : dict
        The settings: ``airnp.fit(Y, mask, **choice)`` repeats the fit. ``{"model": "low rank"}`` if the
        matrix of low rank won.
    candidates : Search
        All settings that were tried, with their errors on held-out entries; a table when printed.
    expected_nmae : float
        What the mean absolute error on the missing entries, over the range of the observed ones, is likely
        to be. It is not the lowest error of the candidates, which would be too good to be true.
    standard_error : float
        How far off that may be, because some entries were held out and not others, and some are missing and
        not others. Holes count as one each.
    """

    result: FitResult
    choice: dict[str, Any] = field(repr=False)
    candidates: Search = field(repr=False)
    expected_nmae: float
    standard_error: float

    @property
    def X(self) -> Any:  # noqa: N802
        """The recovered matrix; see :class:`FitResult`."""
        return self.result.X

    def completed(self) -> Any:
        """Return the data with its gaps filled; see :meth:`FitResult.completed`."""
        return self.result.completed()


def complete(
    Y: Any,
    mask: Any = None,
    *,
    grid: Any = None,
    executor: Any = None,
    workers: int | None = None,
    fraction: float = 0.05,
    seed: int | None = None,
    progress: bool = False,
    **settings: Any,
) -> Completion:
    """Complete a matrix: choose the settings by held-out entries, and fit all of them with the best.

    Parameters
    ----------
    Y : array-like (m, n)
        One matrix with gaps, as :func:`airnp.fit` takes it.
    mask : array-like (m, n), optional
        True where observed. Without it, NaN means missing.
    grid : dict of lists, or list of dicts, optional
        What to try, as for :func:`airnp.search`, the first candidate being the one to keep in doubt. Default:
        AIR; AIR with total variation, of its default weight and of three times that; a quarter and four times
        the weight of the graphs, and none; and the matrix of low rank that
        :func:`airnp.completing.lowrank.fit_low_rank` finds.
    executor, workers, fraction, progress
        See :func:`airnp.search`.
    seed : int, optional
        The same seed gives the same answer. Default: a new one, kept in ``choice``.
    **settings
        Arguments of :func:`airnp.fit` for all candidates, such as ``bounds`` or ``threads``.

    Returns
    -------
    Completion

    Warns
    -----
    UserWarning
        When the gaps are holes of which no copies can be held out, so that ``expected_nmae`` is that of
        entries here and there, and too low.

    Notes
    -----
    A candidate replaces the first one if it predicts the held-out entries better by more than a standard
    error of the difference.

    ``expected_nmae`` is honest about this choice: the held-out entries are divided into five parts, the
    choice is made by four of them, and the error is taken from the fifth, for each in turn. The candidates
    have seen a little less than the final fit will, which is another fit besides. It says nothing
    about entries that are missing *because* they are unlike the observed ones.

    It takes the time of the candidates and of one more fit.

    Examples
    --------
    >>> import airnp
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.random((30, 2)) @ rng.random((2, 20))
    >>> observed = rng.random(truth.shape) < 0.7
    >>> completion = airnp.complete(truth, observed, seed=0)
    >>> completion.completed().shape, bool(completion.expected_nmae < 0.01)
    ((30, 20), True)
    """
    if "regularizers" in settings:
        raise TypeError("regularizers: are what is chosen; to choose among others, give a grid")
    tried = search(
        Y,
        _usual(Y, mask, settings) if grid is None else grid,
        mask,
        executor=executor,
        workers=workers,
        fraction=fraction,
        seed=seed,
        progress=progress,
        **settings,
    )
    if tried.judges.unlike_the_gaps:
        warnings.warn(
            "the gaps are holes, but no copies of them can be held out; expected_nmae is that of entries "
            "here and there, and too low",
            UserWarning,
            stacklevel=2,
        )
    rival = _low_rank(Y, mask, tried, settings) if grid is None else None
    finished = tried.finished + ([rival] if rival is not None else [])
    errors = np.stack([each.errors for each in finished])
    chosen: Candidate = finished[_chosen(errors)]
    honest = cross_fitted(errors, np.random.default_rng([tried.seed, 22]))
    if rival is not None:
        tried = replace(tried, candidates=[*tried.candidates, rival])
    expected = float(honest.mean()), tried.judges.forecast_error(honest)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EmptyLineWarning)  # said when the data was read
        if chosen is rival:
            shared = {name: settings[name] for name in _OF_LOW_RANK if name in settings}
            return Completion(
                fit_low_rank(Y, mask, seed=tried.seed, **shared), chosen.settings, tried, *expected
            )
        choice = {"seed": tried.seed, **settings, **chosen.settings}
        return Completion(fit(Y, mask, progress=progress, **choice), choice, tried, *expected)


def _low_rank(Y: Any, mask: Any, tried: Search, settings: dict[str, Any]) -> Candidate:
    """Return how well a matrix of low rank predicts the entries that judge, which it does not see."""
    seen = read_quietly(Y, mask, settings)
    shared = {name: settings[name] for name in _OF_LOW_RANK if name in settings}
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EmptyLineWarning)
        home = (array_namespace(seen.values), device(seen.values), "bool")
        kept = from_numpy(to_numpy(seen.mask) & ~tried.judges.held_out, *home)
        result = fit_low_rank(Y, kept, seed=tried.seed, **shared)
    errors = tried.judges.errors(to_numpy(result.matrix))
    return Candidate(
        {"model": "low rank"},
        float(errors.mean()),
        standard_error(errors),
        0,
        result.stop_reason,
        time.perf_counter() - started,
        errors=errors,
    )


def _usual(Y: Any, mask: Any, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the settings of AIR that are tried, the defaults first."""
    m, n = read_quietly(Y, mask, settings).values.shape[-2:]
    scale = checked_fidelity(settings.get("fidelity")).factor(m, n)
    return [{}, *({"regularizers": _model(*weights, scale)} for weights in _WEIGHTS)]


def read_quietly(Y: Any, mask: Any, settings: dict[str, Any]) -> Observations:
    """Read the data without the warnings that the search gives when it reads them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EmptyLineWarning)
        return read(Y, mask, settings.get("weights"))


def _model(graphs: float, variation: float, scale: float) -> Sequence[Any]:
    """Return regularisers with multiples of their default weights."""
    weight = graphs * GRAPH_WEIGHT * scale
    learned = [AdaptiveLaplacian(axis, weight) for axis in ("rows", "columns")] if graphs else []
    return learned + ([TotalVariation(variation * VARIATION_WEIGHT * scale)] if variation else [])


def _chosen(errors: Floats) -> int:
    """Return the candidate with the lowest mean error, or the first if the difference may be chance.

    Parameters
    ----------
    errors : ndarray (candidates, clusters)
    """
    best = int(errors.mean(axis=1).argmin())
    gain = errors[0] - errors[best]
    doubt = standard_error(gain) if len(gain) > 1 else 0.0
    return best if gain.mean() > doubt else 0


def cross_fitted(errors: Floats, rng: np.random.Generator) -> Floats:
    """Return the error in each cluster of the candidate that all other parts of the clusters choose.

    Parameters
    ----------
    errors : ndarray (candidates, clusters)
    rng : Generator
        Divides the clusters into five parts, or as many as there are if fewer.

    Returns
    -------
    ndarray (clusters,)

    Examples
    --------
    Each of two candidates is lucky once, and neither choice comes true:

    >>> cross_fitted(np.array([[0.1, 0.3], [0.3, 0.1]]), np.random.default_rng(0))
    array([0.3, 0.3])
    """
    clusters = errors.shape[1]
    honest = np.empty(clusters)
    for part in np.array_split(rng.permutation(clusters), min(_FOLDS, clusters)):
        others = np.delete(errors, part, axis=1)
        honest[part] = errors[_chosen(others), part]
    return honest
