"""``airnp.complete``: fill the gaps of a matrix without any options, and say how good that is."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from airnp._arrays import to_numpy
from airnp.completing.judging import standard_error
from airnp.completing.lowrank import fit_low_rank
from airnp.completing.searching import Run, Search, judge, search
from airnp.data.bounds import Bounds
from airnp.data.inputs import EmptyLineWarning, read
from airnp.data.normalization import ColumnScaling
from airnp.fitting import fit
from airnp.model.fidelity import checked_fidelity
from airnp.regularizers import AdaptiveLaplacian, TotalVariation
from airnp.regularizers.base import GRAPH_WEIGHT
from airnp.regularizers.variation import VARIATION_WEIGHT
from airnp.results.result import FitResult

Floats = npt.NDArray[np.float64]

_WEIGHTS = ((1.0, 1.0), (1.0, 3.0), (0.25, 0.0), (4.0, 0.0), (0.0, 0.0))
"""Models to try besides AIR: multiples of the default weights of the graphs, and of total variation."""

_FOLDS = 5

_LOW_RANK = {"model": "low rank"}

_LOW_RANK_SETTINGS = ("weights", "xp", "device", "dtype", "bounds")
"""Arguments that :func:`fit_low_rank` shares with :func:`airnp.fit`."""


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
        Estimated mean absolute error on the missing entries, over the range of the observed ones. It is not
        the lowest error of the candidates, which would be too good to be true.
    standard_error : float
        Of this estimate, because both the held-out and the missing entries are samples. Each hole counts
        as one.
    """

    result: FitResult
    choice: dict[str, Any] = field(repr=False)
    candidates: Search = field(repr=False)
    expected_nmae: float
    standard_error: float
    table: StandardisedTable | None = field(repr=False, default=None)

    @property
    def X(self) -> Any:  # noqa: N802
        """The recovered matrix; see :class:`FitResult`."""
        return self.result.X if self.table is None else self.table.undone(self.result.X)

    def completed(self) -> Any:
        """Return the data with its gaps filled; see :meth:`FitResult.completed`."""
        return self.result.completed() if self.table is None else self.table.completed(self.X)


@dataclass(frozen=True, eq=False)
class StandardisedTable:
    """A DataFrame whose columns have units, as the candidates see it.

    Attributes
    ----------
    given : DataFrame (m, n)
        The table as it came.
    observed : bool ndarray (m, n)
    scaling : ColumnScaling
    bounds : Bounds or None
        In the units of the table.
    """

    given: Any
    observed: npt.NDArray[np.bool_]
    scaling: ColumnScaling
    bounds: Bounds | None

    @classmethod
    def of(cls, frame: Any, mask: Any, bounds: Any) -> StandardisedTable:
        """Read a DataFrame of numbers; ``mask`` and ``bounds`` as in :func:`airnp.fit`."""
        read_frame = read(frame, mask)
        values, observed = to_numpy(read_frame.values), to_numpy(read_frame.mask).astype(bool)
        limits = Bounds.of(bounds, None, frame.shape[1], frame.columns)
        if limits is not None:
            limits.check(values, observed)
        return cls(frame, observed, ColumnScaling.of(values, observed), limits)

    def inside(self) -> Any:
        """Return the standardised DataFrame, NaN in gaps."""
        values = np.where(self.observed, self.given.to_numpy(dtype=np.float64, na_value=np.nan), np.nan)
        changed = self.given.astype(np.float64)
        changed[:] = (values - self.scaling.center) / self.scaling.scale
        return changed

    def inner_bounds(self) -> dict[str, Any]:
        """Return the bounds of the standardised columns, as an argument of :func:`airnp.fit`."""
        if self.bounds is None:
            return {}
        sides = (self.bounds.low, self.bounds.high)
        low, high = ((side - self.scaling.center) / self.scaling.scale for side in sides)
        return {"bounds": (low, high)}

    def undone(self, inside: Any) -> Any:
        """Return a standardised matrix as a DataFrame in the units of the table, within its bounds."""
        values = self.scaling.undone(np.asarray(inside, dtype=np.float64))
        changed = self.given.astype(np.float64)
        changed[:] = values if self.bounds is None else self.bounds.put_on(values)
        return changed

    def completed(self, recovered: Any) -> Any:
        """Return the table with its gaps filled."""
        return recovered.where(~self.observed, self.given)


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
        One matrix with gaps, as :func:`airnp.fit` takes it. The columns of a DataFrame may have different
        units: they are standardised first. ``result`` and ``choice`` then belong to standardised columns;
        ``X`` and ``completed()`` are in the units of the table.
    mask : array-like (m, n), optional
        True where observed. Without it, NaN means missing.
    grid : dict of lists, or list of dicts, optional
        Candidates, as for :func:`airnp.search`; in doubt the first one is kept. Default: AIR; AIR with total
        variation, of its default weight and of three times that; a quarter and four times the weight of the
        graphs; no regularisers; and the matrix of low rank that
        :func:`airnp.completing.lowrank.fit_low_rank` finds.
    executor, workers, fraction, progress
        See :func:`airnp.search`.
    seed : int, optional
        The same seed gives the same answer. Default: a new one, kept in ``choice``.
    **settings
        Arguments of :func:`airnp.fit` for all candidates, such as ``bounds`` or ``engine``.

    Returns
    -------
    Completion

    Warns
    -----
    UserWarning
        If the gaps are holes of which no copies can be held out, so that ``expected_nmae`` is that of
        scattered entries, and too low.

    Notes
    -----
    A candidate replaces the first one if it predicts the held-out entries better by more than a standard
    error of the difference.

    ``expected_nmae`` is honest about this choice: the held-out entries are divided into five parts, the
    choice is made by four of them, and the error is taken from the fifth, for each in turn. The candidates
    see a little less data than the final fit. It says nothing about entries that are missing *because* they
    are unlike the observed ones.

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
    table = None
    if hasattr(Y, "iloc") and getattr(Y, "ndim", 0) == 2:
        table = StandardisedTable.of(Y, mask, settings.pop("bounds", None))
        Y, mask, settings = table.inside(), table.observed, {**settings, **table.inner_bounds()}
    tried = search(
        Y,
        _default_grid(Y, mask, settings) if grid is None else grid,
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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EmptyLineWarning)  # given when the data was read
        if grid is None:
            started = time.perf_counter()
            result = _fit_low_rank(Y, tried.kept, tried.seed, settings)
            run = Run(len(tried.candidates), time.perf_counter() - started, result)
            rival = judge(dict(_LOW_RANK), run, tried.judges)
            tried = replace(tried, candidates=[*tried.candidates, rival])
        errors = np.stack([each.errors for each in tried.finished])
        best = tried.finished[_choose(errors)].settings
        if best == _LOW_RANK:
            choice, result = best, _fit_low_rank(Y, mask, tried.seed, settings)
        else:
            choice = {"seed": tried.seed, **settings, **best}
            result = fit(Y, mask, progress=progress, **choice)
    expected = cross_fit(errors, np.random.default_rng([tried.seed, 22]))
    error = tried.judges.forecast_error(expected)
    return Completion(result, choice, tried, float(expected.mean()), error, table)


def _fit_low_rank(Y: Any, mask: Any, seed: int, settings: dict[str, Any]) -> FitResult:
    shared = {name: settings[name] for name in _LOW_RANK_SETTINGS if name in settings}
    return fit_low_rank(Y, mask, seed=seed, **shared)


def _default_grid(Y: Any, mask: Any, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the candidates: AIR first, then other weights of its regularisers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EmptyLineWarning)  # the search gives it
        m, n = read(Y, mask, settings.get("weights")).values.shape[-2:]
    scale = checked_fidelity(settings.get("fidelity")).factor(m, n)
    return [{}, *({"regularizers": _regularizers(*weights, scale)} for weights in _WEIGHTS)]


def _regularizers(graphs: float, variation: float, scale: float) -> list[Any]:
    """Return regularisers with multiples of their default weights."""
    weight = graphs * GRAPH_WEIGHT * scale
    learned = [AdaptiveLaplacian(axis, weight) for axis in ("rows", "columns")] if graphs else []
    return learned + ([TotalVariation(variation * VARIATION_WEIGHT * scale)] if variation else [])


def _choose(errors: Floats) -> int:
    """Return the candidate with the lowest mean error, or the first if the difference may be chance.

    Parameters
    ----------
    errors : ndarray (candidates, clusters)
    """
    best = int(errors.mean(axis=1).argmin())
    gain = errors[0] - errors[best]
    doubt = standard_error(gain) if len(gain) > 1 else 0.0
    return best if gain.mean() > doubt else 0


def cross_fit(errors: Floats, rng: np.random.Generator) -> Floats:
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
    Each of two candidates is better in one cluster, so the other cluster always chooses the wrong one:

    >>> cross_fit(np.array([[0.1, 0.3], [0.3, 0.1]]), np.random.default_rng(0))
    array([0.3, 0.3])
    """
    clusters = errors.shape[1]
    expected = np.empty(clusters)
    for part in np.array_split(rng.permutation(clusters), min(_FOLDS, clusters)):
        others = np.delete(errors, part, axis=1)
        expected[part] = errors[_choose(others), part]
    return expected
