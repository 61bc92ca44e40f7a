"""``airnp.complete``: fill the gaps of a matrix without any options, and say how good that is."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from os import PathLike, fsdecode
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from airnp._arrays import from_numpy, to_numpy
from airnp._checks import checked_choice, checked_number, checked_seed
from airnp.completing.judging import Judges
from airnp.completing.models import KINDS, MODELS, Answer, Model, Task
from airnp.completing.tournament import Entry, Tournament
from airnp.data.bounds import Bounds
from airnp.data.entries import is_sparse
from airnp.data.inputs import EmptyLineWarning, Labels, read
from airnp.data.normalization import ColumnScaling, Normalization
from airnp.engines.threads import checked_threads
from airnp.images.surfaces import linear_surface
from airnp.results.calibration import Calibration, quantile
from airnp.results.files import index_from_plain, index_to_plain, naming_file, read_archive, write_archive
from airnp.results.history import History
from airnp.results.intervals import check_enough, checked_level, half_widths
from airnp.results.result import FitResult
from airnp.tables.kinds import FrameCode, kinds_of, nullable_type

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

METRICS = ("mae", "rmse", "auc")

_FOLDS = 5

_UNEQUAL = 10.0
"""Columns have units if the spread of one is this multiple of the spread of another."""

_MORE_THAN_ROWS = 1.5
"""... and if logarithms of spreads differ by this multiple of what those of rows do."""

_ENOUGH = 5
"""Entries of a line that tell its spread."""

_JUDGING_KIND, _FAR_OFF = 0.1, 3.0
"""Share of the entries that say whether neighbours are alike; what an error counts at most, in spreads."""

_LEAST = 0.25
"""Share of the mean loss of held-out entries that a correction leaves, at least."""

_LARGEST = 2**24
"""Entries of the largest matrix that is formed."""


@dataclass(frozen=True, eq=False)
class Score:
    """How a model did in the tournament.

    Attributes
    ----------
    model : str
    error, standard_error : float
        On held-out entries; NaN if it was not judged.
    draws : int
        How many times entries were held out from it.
    seconds : float
        Of one fit.
    note : str
        Why it was not judged, or the weight that it has in the answer.
    """

    model: str
    error: float
    standard_error: float
    draws: int
    seconds: float
    note: str


@dataclass(frozen=True, eq=False)
class Completion:
    """A completed matrix, how it was chosen, and how good it is likely to be; a table when printed.

    Attributes
    ----------
    kind : str
        What the data was taken for: ``"picture"``, ``"table"``, ``"matrix"``, ``"binary"`` or ``"ratings"``.
    model : str
        What won, or the models of the blend.
    weights : dict of str to float
        Their weights, which sum to 1.
    metric : str
    expected, standard_error : float
        Error to expect on the missing entries, by the metric: over the range of the observed entries, in a
        table over standard deviations of columns. It is not the lowest error of the scores, which would be
        too good to be true.
    ranking : list of Score
        All models, the best first.
    result : object
        What the best model itself returned, such as a :class:`FitResult` with its graphs; of standardised
        columns if the data is a table. None for models that have nothing else to say.
    stop_reason : {"done", "time limit", "interrupted"}
        Unless ``"done"``, the answer is that of a fit without some of the entries.
    seconds : float
    seed : int
    """

    kind: str
    model: str
    weights: dict[str, float]
    metric: str
    expected: float
    standard_error: float
    ranking: list[Score] = field(repr=False)
    result: Any = field(repr=False)
    stop_reason: str
    seconds: float
    seed: int
    _source: _Source = field(repr=False)
    _matrix: Floats = field(repr=False)
    _std: Floats | None = field(repr=False)
    _calibration: Calibration = field(repr=False)
    _ratios: Floats | None = field(repr=False)

    @property
    def X(self) -> Any:  # noqa: N802
        """The recovered matrix, of the kind of the data; of a table with categories, the completed one."""
        return self._source.put_back(self._matrix)

    def completed(self) -> Any:
        """Return the data with its gaps filled: observed entries as they were."""
        return self._source.put_back(self._matrix, keep_observed=True)

    @property
    def scores(self) -> Any:
        """A pandas DataFrame of all models, the best first: error on held-out entries, seconds."""
        from pandas import DataFrame

        return DataFrame([vars(score) for score in self.ranking]).set_index("model")

    @property
    def std(self) -> Floats:
        """Standard deviations of missing entries (m, n) in units of the data; 0 where observed."""
        widths = self._widths(0.6827) if self._std is None else self._std * self._inflation
        return self._source.scaled(widths)

    @property
    def _inflation(self) -> float:
        assert self._ratios is not None
        return float(np.sqrt(np.mean(self._ratios**2)))

    def interval(self, level: float = 0.9) -> tuple[Any, Any]:
        """Return intervals that contain the missing entries' true values, a share ``level`` of them.

        The model's own standard deviations, if it has any, are rescaled by the errors on held-out entries.
        Otherwise these errors make the widths, larger where entries are harder to predict.

        Parameters
        ----------
        level : float
            Between 0 and 1.

        Returns
        -------
        lower, upper : arrays (m, n)
            Within the bounds; both are the entry itself where it is observed.
        """
        widths = self._widths(checked_level(level))
        return self._source.interval(self._matrix, widths)

    def _widths(self, level: float) -> Floats:
        source = self._source
        if self._std is None or self._ratios is None:
            return half_widths(self._matrix, source.values, source.observed, self._calibration, level)
        check_enough(level, len(self._ratios))
        return np.where(source.observed, 0.0, quantile(self._ratios, level) * self._std)

    def as_fit(self) -> FitResult:
        """Return the matrix as a :class:`FitResult` of NumPy arrays, without factors and graphs."""
        source = self._source
        matrix = source.undone(self._matrix)
        if source.bounds is not None:
            matrix = np.asarray(source.bounds.put_on(matrix))
        known = self._calibration
        scale = 1.0 if source.scaling is None else source.scaling.scale[known.positions[:, 1]]
        center = 0.0 if source.scaling is None else source.scaling.center[known.positions[:, 1]]
        truth, predicted = (part * scale + center for part in (known.values, known.predictions))
        labels = None if source.frame is None else Labels(source.frame.index, source.frame.columns)
        return FitResult(
            matrix=matrix,
            factors=[],
            regularizers=[],
            history=History(["loss", "fidelity"]),
            n_iter=0,
            best_iter=0,
            stop_reason=f"{self.model} predicts held-out entries best",
            seed=self.seed,
            normalization=Normalization(np.zeros((1, 1)), np.ones((1, 1))),
            mask=source.observed,
            observed=source.raw,
            labels=labels if labels is not None and len(labels.columns) == matrix.shape[1] else None,
            calibration=Calibration(known.positions, truth, predicted, known.folds),
            bounds=source.bounds,
        )

    def save(self, path: str | PathLike[str]) -> None:
        """Write all but ``result``, which has a ``save`` of its own, to one ``.npz`` file."""
        source = self._source
        arrays: dict[str, Any] = {"matrix": self._matrix, "values": source.values, "mask": source.observed}
        arrays["raw"] = source.raw
        arrays |= {f"calibration_{name}": array for name, array in vars(self._calibration).items()}
        optional = {"std": self._std, "ratios": self._ratios}
        if source.scaling is not None:
            optional |= {"center": source.scaling.center, "scale": source.scaling.scale}
        if source.bounds is not None:
            arrays |= {f"bounds_{name}": array for name, array in vars(source.bounds).items()}
        arrays |= {name: array for name, array in optional.items() if array is not None}
        names = (
            "kind",
            "model",
            "weights",
            "metric",
            "expected",
            "standard_error",
            "stop_reason",
            "seconds",
            "seed",
        )
        header = {name: getattr(self, name) for name in names}
        header |= {"ranking": [vars(score) for score in self.ranking]}
        header |= {"frame": None if source.frame is None else _frame_to_plain(source.frame)}
        write_archive(Path(fsdecode(path)), {**header, "format": "airnp result", "version": 1}, arrays)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Completion:
        """Read what :meth:`save` wrote; arrays are NumPy's, ``result`` is None."""
        with open(path, "rb") as file, naming_file(path):
            header, arrays = read_archive(file)
            scaling = ColumnScaling(arrays["center"], arrays["scale"]) if "center" in arrays else None
            source = _Source(arrays["values"], arrays["mask"], arrays["raw"], scaling)
            if header["frame"] is not None:
                frame = _frame_from_plain(header["frame"])
                source = replace(source, frame=frame, code=FrameCode(kinds_of(frame)))
            if "bounds_low" in arrays:
                bounds = Bounds(*(arrays[f"bounds_{name}"] for name in ("low", "high", "whole")))
                source = replace(source, bounds=bounds)
            calibration = Calibration(
                *(arrays[f"calibration_{name}"] for name in ("positions", "values", "predictions", "folds"))
            )
            return cls(
                header["kind"], header["model"], header["weights"], header["metric"], header["expected"],
                header["standard_error"], [Score(**score) for score in header["ranking"]], None,
                header["stop_reason"], header["seconds"], header["seed"], source, arrays["matrix"],
                arrays.get("std"), calibration, arrays.get("ratios"),
            )  # fmt: skip

    def __str__(self) -> str:
        unit = "1 − AUC" if self.metric == "auc" else f"{self.metric.upper()} over {_UNITS[self.kind]}"
        lines = [
            f"{self.kind}: {self.model}, {self.seconds:.1f} s",
            f"expected error {self.expected:.4g} ± {self.standard_error:.2g} ({unit})",
            f"{'model':<14} {'error':>9} {'± s.e.':>9} {'seconds':>8}",
        ]
        for score in self.ranking:
            numbers = f"{score.error:9.5f} {score.standard_error:9.5f} {score.seconds:8.2f}"
            lines.append(f"{score.model:<14} {numbers}  {score.note}".rstrip())
        return "\n".join(lines)


def _frame_to_plain(frame: Any) -> dict[str, Any]:
    """Return a DataFrame as JSON can hold it; categories are stored beside their codes."""
    from pandas import Index

    stored: list[dict[str, Any]] = []
    for place in range(frame.shape[1]):
        column = frame.iloc[:, place]
        plain: dict[str, Any] = {}
        if hasattr(column.dtype, "categories"):
            plain = {"categories": index_to_plain(column.cat.categories), "ordered": column.dtype.ordered}
            column = column.cat.codes
        stored.append({**plain, "values": index_to_plain(Index(column))})
    return {"index": index_to_plain(frame.index), "names": index_to_plain(frame.columns), "columns": stored}


def _frame_from_plain(stored: dict[str, Any]) -> Any:
    """Return the DataFrame that :func:`_frame_to_plain` stored."""
    from pandas import Categorical, DataFrame, Series

    index = index_from_plain(stored["index"])
    columns = []
    for plain in stored["columns"]:
        values = index_from_plain(plain["values"])
        if "categories" in plain:
            categories = index_from_plain(plain["categories"])
            values = Categorical.from_codes(values, categories, plain["ordered"])
        columns.append(Series(values, index=index))
    frame = DataFrame(dict(enumerate(columns)), index=index)
    frame.columns = index_from_plain(stored["names"])
    return frame


_UNITS = dict.fromkeys(KINDS, "the range") | {"table": "standard deviations"}


@dataclass(frozen=True, eq=False)
class _Source:
    """The data as it came, and as models see it.

    Attributes
    ----------
    values : ndarray (m, n)
        Zero in gaps; standardised if ``scaling`` is given.
    observed : bool ndarray (m, n)
    raw : ndarray (m, n)
        In units of the data, zero in gaps.
    """

    values: Floats
    observed: Bools
    raw: Floats
    scaling: ColumnScaling | None = None
    bounds: Bounds | None = None
    frame: Any = None
    code: FrameCode | None = None
    home: tuple[Any, Any, str] | None = None

    @classmethod
    def read(cls, Y: Any, mask: Any, bounds: Any) -> _Source:
        """Read a matrix of any type, or a DataFrame with columns of any kind."""
        if is_sparse(Y) and np.prod(Y.shape) > _LARGEST:
            raise ValueError(
                f"Y: a matrix of {Y.shape[0]}×{Y.shape[1]} is too large to be formed; use airnp.fit_ratings"
            )
        if hasattr(Y, "iloc") and getattr(Y, "ndim", 0) == 2:
            return cls._read_frame(Y, mask, bounds)
        # The mask of a picture may lack its channels; what is wrong then is not the mask.
        seen = read(Y, mask if len(getattr(Y, "shape", (0, 0))) == 2 else None)
        if seen.values.ndim != 2:
            shape = tuple(seen.values.shape)
            raise ValueError(
                f"Y: expected one matrix, got an array of shape {shape}; airnp.inpaint fills pictures with "
                "channels and stacks"
            )
        values, observed = to_numpy(seen.values).astype(np.float64), to_numpy(seen.mask).astype(bool)
        limits = Bounds.of(bounds, None, values.shape[1])
        if limits is not None:
            limits.check(values, observed)
        return cls(values, observed, values, None, limits, home=(seen.xp, seen.device, seen.dtype))

    @classmethod
    def _read_frame(cls, frame: Any, mask: Any, bounds: Any) -> _Source:
        if mask is not None:
            seen = to_numpy(read(np.zeros(frame.shape), mask).mask).astype(bool)
            # NumPy's whole numbers and booleans have no gaps, those of pandas have.
            types = {name: nullable_type(dtype) for name, dtype in frame.dtypes.items()}
            frame = frame.astype({name: found for name, found in types.items() if found}).where(seen)
        code = FrameCode(kinds_of(frame))
        if not len(code.owners):
            raise ValueError("Y: no column is left for a model; all of them only tell rows apart")
        encoded = code.encode(frame)
        observed = ~np.isnan(encoded)
        if not observed.any():
            raise ValueError("Y: no entry is observed")
        for axis, name in ((1, "rows"), (0, "columns")):
            if empty := int((~observed.any(axis=axis)).sum()):
                message = f"{empty} {name} have no observed entry; they are filled with means"
                warnings.warn(message, EmptyLineWarning, stacklevel=4)
        outer = Bounds.of(bounds, None, frame.shape[1], frame.columns)
        limits = None
        if outer is not None:
            number = np.array([code.columns[owner].kind == "number" for owner in code.owners])
            sides = (np.broadcast_to(s, frame.shape[1])[code.owners] for s in (outer.low, outer.high))
            low, high = next(sides), next(sides)
            whole = np.broadcast_to(outer.whole, frame.shape[1])[code.owners] & number
            limits = Bounds(np.where(number, low, -np.inf), np.where(number, high, np.inf), whole)
            limits.check(np.where(observed, encoded, 0.0), observed)
        raw = np.where(observed, encoded, 0.0)
        scaling = ColumnScaling.of(raw, observed)
        return cls(scaling.standardised(raw, observed), observed, raw, scaling, limits, frame, code)

    def standardised(self) -> _Source:
        """Return the same matrix with standardised columns."""
        scaling = ColumnScaling.of(self.values, self.observed)
        return replace(self, values=scaling.standardised(self.values, self.observed), scaling=scaling)

    def undone(self, matrix: Floats) -> Floats:
        """Return a matrix in units of the data."""
        return matrix if self.scaling is None else self.scaling.undone(matrix)

    def scaled(self, widths: Floats) -> Floats:
        """Return widths in units of the data."""
        return widths if self.scaling is None else widths * self.scaling.scale

    def put_back(self, matrix: Floats, keep_observed: bool = False) -> Any:
        """Return a matrix in units of the data, within the bounds, of the type of the data."""
        outside = self.undone(matrix)
        if self.bounds is not None:
            outside = self.bounds.put_on(outside)
        if keep_observed:
            outside = np.where(self.observed, self.raw, outside)
        return self._as_given(outside, keep_observed)

    def _as_given(self, matrix: Floats, keep_observed: bool = False) -> Any:
        if self.code is not None:
            numbers = all(column.kind in ("number", "identifier") for column in self.code.columns)
            if keep_observed or not numbers:
                return self.code.decode(self.frame, matrix)
            changed = self.frame.copy()
            for place, owner in enumerate(self.code.owners):
                changed[self.frame.columns[owner]] = matrix[:, place]
            return changed
        return matrix if self.home is None else from_numpy(matrix, *self.home)

    def interval(self, matrix: Floats, widths: Floats) -> tuple[Any, Any]:
        """Return the ends of intervals of the type of the data."""
        if self.code is not None and any(c.kind not in ("number", "identifier") for c in self.code.columns):
            raise ValueError("interval: expected a table of numbers; categories have none")
        middle = np.where(self.observed, self.raw, self.undone(matrix))
        reach = self.scaled(widths)
        ends = [middle - reach, middle + reach]
        if self.bounds is not None:
            ends = [np.clip(end, self.bounds.low, self.bounds.high) for end in ends]
        lower, upper = (self._as_given(end) for end in ends)
        return lower, upper


def complete(
    Y: Any,
    mask: Any = None,
    *,
    kind: str | None = None,
    metric: str | None = None,
    bounds: Any = None,
    time_limit: float | None = None,
    models: list[Model] | None = None,
    fraction: float = 0.05,
    executor: Executor | None = None,
    threads: int | None = None,
    seed: int | None = 0,
    progress: bool = False,
) -> Completion:
    """Complete a matrix by the model that predicts held-out entries best, and say how good that is.

    Parameters
    ----------
    Y : array-like (m, n)
        A matrix with gaps, as :func:`airnp.fit` takes it: an array of any namespace, a sparse matrix, lists;
        or a DataFrame with columns of any kind. Columns that only tell rows apart are passed through.
    mask : array-like (m, n), optional
        True where observed. Without it, NaN means missing.
    kind : {"picture", "table", "matrix", "binary", "ratings"}, optional
        What the data is. A picture: an entry resembles the ones beside it. A table: columns have units, and
        are standardised. Binary: entries have two values. Ratings: a sparse matrix. Default: what it looks
        like; see Notes.
    metric : {"mae", "rmse", "auc"}, optional
        What best means: a low absolute or squared error, or for binary data a good order (the area under the
        ROC curve). Default: ``"rmse"`` for tables, else ``"mae"``.
    bounds : optional
        What filled entries may be, as in :func:`airnp.fit`.
    time_limit : float, optional
        Seconds. Default: about as much for judging as the slowest model that was begun takes for two fits,
        and at least three seconds; models that take longer are not begun.
    models : list of Model, optional
        Which models compete. Default: all of :mod:`airnp.completing.models`.
    fraction : float
        Share of the observed entries to hold out at a time, in the shape of the gaps.
    executor : concurrent.futures.Executor, optional
        Runs models side by side; also that of Dask (``Client(...).get_executor()``).
    threads : int, optional
        CPU threads of a fit. Default: all processors.
    seed : int, optional
        The same seed gives the same answer, unless time decides. None draws one.
    progress : bool
        Show an estimate of the time, and a bar that names the model at work.

    Returns
    -------
    Completion
        After Ctrl-C, with the best model so far.

    Warns
    -----
    UserWarning
        If the gaps are holes of which no copies can be held out, so that ``expected`` is that of scattered
        entries, and too low.

    Notes
    -----
    A DataFrame is a table, and so is an array if the spread of some column is more than ten times that of
    another, spreads of rows are less unequal, and held-out entries do not resemble the ones beside them more
    than the rest of their column. Entries with two different values are binary. A sparse matrix holds
    ratings. Whether another array is a picture is decided by held-out entries: see
    :mod:`airnp.completing.tournament`.

    With ``metric="mae"``, a gap in binary data is filled with the more likely of the two values, because that
    has the least absolute error; where ones are rare, that is 0 almost everywhere. ``metric="rmse"`` fills in
    a number between them, and ``metric="auc"`` chooses what orders gaps best; compare such answers by
    :func:`airnp.metrics.rmse` and :func:`airnp.metrics.average_precision`.

    ``expected`` is honest about the choice: the held-out entries are divided into five parts, the choice is
    made by four of them, and the error is taken from the fifth, for each in turn. It says nothing about
    entries that are missing *because* they are unlike the observed ones.

    Examples
    --------
    >>> import airnp
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.random((30, 2)) @ rng.random((2, 20))
    >>> observed = rng.random(truth.shape) < 0.7
    >>> completion = airnp.complete(truth, observed)
    >>> completion.model, completion.completed().shape, bool(completion.expected < 0.01)
    ('low rank', (30, 20), True)
    """
    began = time.perf_counter()
    share = checked_number("fraction", fraction)
    if not 0 < share < 1:
        raise ValueError(f"fraction: expected a number between 0 and 1, got {fraction!r}")
    limit = float("inf") if time_limit is None else checked_number("time_limit", time_limit)
    if limit <= 0:
        raise ValueError(f"time_limit: expected more than 0 seconds, got {time_limit!r}")
    if executor is not None and not hasattr(executor, "submit"):
        raise TypeError(f"executor: expected a concurrent.futures.Executor, got {executor!r}")
    checked_threads(threads)
    source = _Source.read(Y, mask, bounds)
    found_kind = kind_of(Y, source) if kind is None else checked_choice("kind", kind, KINDS)
    if found_kind == "table" and source.scaling is None:
        source = source.standardised()
    if found_kind == "binary":
        ends = np.unique(source.values[source.observed])
        if len(ends) != 2:
            raise ValueError("kind: expected two different values in binary data")
        if source.bounds is None:
            source = replace(source, bounds=Bounds.of(tuple(ends), None, source.values.shape[1]))
    metric = _checked_metric(metric, found_kind)
    owners = None if source.code is None else source.code.owners
    task = Task(source.values, source.observed, found_kind, checked_seed(seed), threads, owners=owners)
    tournament = Tournament.of(
        task,
        MODELS if models is None else models,
        metric,
        fraction=share,
        time_limit=limit,
        progress=progress,
        executor=executor,
    )
    if not tournament.entries:
        raise ValueError(f"models: expected one at least that is meant for a {found_kind}")
    if tournament.draws[0].unlike_the_gaps:
        warnings.warn(
            "the gaps are holes, but no copies of them can be held out; expected is that of entries here "
            "and there, and too low",
            UserWarning,
            stacklevel=2,
        )
    if progress:
        sys.stderr.write(f"{len(tournament.entries)} models, about {tournament.estimate:.0f} s\n")
    tournament.run()
    return _finish(tournament, source, began)


def kind_of(Y: Any, source: _Source) -> str:
    """Return the kind that data looks like; ``"matrix"`` may turn out to be a picture."""
    if source.code is not None:
        return "table"
    known = source.values[source.observed]
    if len(np.unique(known)) == 2:
        return "binary"
    if is_sparse(Y):
        return "ratings"
    of_columns = _log_spreads(source.values, source.observed)
    of_rows = _log_spreads(source.values.T, source.observed.T)
    unequal = np.ptp(of_columns) > np.log(_UNEQUAL) and of_columns.std() > _MORE_THAN_ROWS * of_rows.std()
    return "table" if unequal and not _is_smooth(source) else "matrix"


def _log_spreads(values: Floats, observed: Bools) -> Floats:
    """Return the logarithms of the spreads of columns that vary, or 0 if there are none."""
    scale = ColumnScaling.of(values, observed).scale
    columns = zip(values.T, observed.T, strict=True)
    varied = [bool(seen.sum() >= _ENOUGH and np.ptp(column[seen]) > 0) for column, seen in columns]
    return np.asarray(np.log(scale[varied])) if any(varied) else np.zeros(1)


def _is_smooth(source: _Source) -> bool:
    """Return whether an entry resembles the ones beside it more than the rest of its column.

    Surfaces through the other entries predict held-out ones better than the means of columns do. In units of
    a column's spread, columns beside it are far off in a table, even if its rows are smooth in time.
    """
    if min(source.values.shape) < 3:
        return False
    scale = ColumnScaling.of(source.values, source.observed).scale
    judges = Judges.draw(source.values, source.observed, _JUDGING_KIND, np.random.default_rng(24))
    seen, columns = source.observed & ~judges.held_out, np.nonzero(judges.held_out)[1]
    means = (source.values * seen).sum(axis=0) / np.maximum(seen.sum(axis=0), 1)
    surface = linear_surface(np.where(seen, source.values, 0.0), seen)[judges.held_out]
    beside, of_column = (
        np.minimum(np.abs(predicted - judges.truth) / scale[columns], _FAR_OFF)
        for predicted in (surface, means[columns])
    )
    gain = of_column - beside
    return bool(gain.mean() > 0)


def _checked_metric(metric: Any, kind: str) -> str:
    if metric is None:
        return "rmse" if kind == "table" else "mae"
    checked_choice("metric", metric, METRICS)
    if metric == "auc" and kind != "binary":
        raise ValueError(f"metric: 'auc' is for binary data, got a {kind}")
    return str(metric)


def _finish(tournament: Tournament, source: _Source, began: float) -> Completion:
    """Fit the winner to all entries, and put together what was found."""
    if not tournament.judged:
        raise RuntimeError(f"no model could be fitted; {tournament.entries[0].note}")
    members, weights = tournament.blend()
    answers, reason = _refit(tournament, members)
    task, metric = tournament.task, tournament.metric
    count = tournament.rounds
    matrix = sum((w * a.matrix for w, a in zip(weights, answers, strict=True)), np.zeros(()))
    if task.kind == "binary":
        matrix = tournament.decided(np.asarray(matrix))
    predictions = [
        sum((w * e.predictions[k] for w, e in zip(weights, members, strict=True)), np.zeros(()))
        for k in range(count)
    ]
    if task.kind == "binary":
        predictions = [tournament.decided(np.asarray(part)) for part in predictions]
    draws = tournament.draws[:count]
    calibration = Calibration(
        np.concatenate([np.argwhere(judges.held_out) for judges in draws]),
        np.concatenate([judges.truth for judges in draws]),
        np.concatenate(predictions),
        np.repeat(np.arange(count), [judges.held_out.sum() for judges in draws]),
    )
    std = ratios = None
    spreads = [part for part in members[0].deviations[:count] if part is not None]
    if len(members) == 1 and answers[0].std is not None and len(spreads) == count:
        floor = 1e-9 * draws[0].scale  # above 0 for constant data, too
        std = np.where(task.observed, 0.0, answers[0].std + floor)
        ratios = calibration.errors / (np.concatenate(spreads) + floor)
    expected, unsure = _expected(tournament)
    names = {entry.model.name: float(weight) for entry, weight in zip(members, weights, strict=True)}
    return Completion(
        "picture" if task.kind == "matrix" and members[0].model.uses_neighbours else task.kind,
        " + ".join(f"{weight:.0%} {name}" if len(names) > 1 else name for name, weight in names.items()),
        names,
        metric,
        expected,
        unsure,
        _scores(tournament, names),
        answers[0].result,
        reason,
        time.perf_counter() - began,
        task.seed,
        source,
        np.asarray(matrix),
        std,
        calibration,
        ratios,
    )  # fmt: skip


def _refit(tournament: Tournament, members: list[Entry]) -> tuple[list[Answer], str]:
    """Fit the winners to all entries; return those without the held-out ones if there is no time."""
    early = [entry.answer for entry in members if entry.answer is not None]
    if tournament.interrupted:
        return early, "interrupted"
    found = []
    task = replace(tournament.task, deadline=tournament.ends)
    for entry in members:
        if time.monotonic() + entry.seconds > tournament.ends:
            return early, "time limit"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found.append(entry.model.fit(task))
        except KeyboardInterrupt:
            return early, "interrupted"
    return found, "done"


def _expected(tournament: Tournament) -> tuple[float, float]:
    """Return the error to expect on missing entries, and its standard error."""
    judged, count = tournament.finalists, tournament.rounds
    errors = np.stack([tournament.losses(entry, count) for entry in judged])
    rng = np.random.default_rng([tournament.task.seed, 22])
    losses = cross_fit(errors, rng, tournament.choice(judged)) - tournament.gains
    known = _Sizes.of(tournament, count)
    if known is not None:
        losses, unsure = known.corrected(losses, tournament.draws[0])
    else:
        unsure = tournament.draws[0].forecast_error(losses)
    mean = max(float(losses.mean()), 0.0)
    if tournament.metric == "rmse":
        return mean**0.5, unsure / (2 * max(mean**0.5, 1e-300))
    return mean, unsure


@dataclass(frozen=True, eq=False)
class _Sizes:
    r"""Sizes of a table's entries, which tell what held-out errors cannot: how rare extremes are.

    An extreme entry has a large error. Few are held out, but all observed ones say how often they occur. With
    the loss :math:`\ell \approx a + b\,q` of an entry of size q = \|y\| or y², 0 ≤ b ≤ 1, the mean over gaps
    is :math:`\bar\ell + b(\bar q_{all} - \bar q_{held})`, where the mean over all observed entries weighs
    columns by their gaps; :math:`b^2 \mathrm{var}(q)(1/n_{observed} + 1/n_{gaps})` is added to its variance.

    Attributes
    ----------
    held : ndarray (clusters,)
        Mean q of each cluster.
    mean, variance : float
        Of q over all observed entries.
    counts : (int, int)
        Entries that are observed, and that are not.
    """

    held: Floats
    mean: float
    variance: float
    counts: tuple[int, int]

    @classmethod
    def of(cls, tournament: Tournament, count: int) -> _Sizes | None:
        """Return the sizes of the entries of a table; None for other data."""
        task = tournament.task
        if task.kind != "table":
            return None
        nothing = [np.zeros(judges.truth.shape) for judges in tournament.draws[:count]]
        sizes = np.abs(task.values) if tournament.metric == "mae" else task.values**2
        observed = task.observed
        gaps = np.broadcast_to((~observed).sum(axis=0) / np.maximum(observed.sum(axis=0), 1), sizes.shape)
        weights = gaps[observed] if observed.size > observed.sum() else None
        mean = float(np.average(sizes[observed], weights=weights))
        variance = float(np.average((sizes[observed] - mean) ** 2, weights=weights))
        counts = int(observed.sum()), max(int((~observed).sum()), 1)
        return cls(tournament.losses_of(nothing), mean, variance, counts)

    def corrected(self, losses: Floats, judges: Judges) -> tuple[Floats, float]:
        """Return losses whose mean is that over gaps, and its standard error."""
        apart = self.held - self.held.mean()
        slope = float(np.clip((apart @ losses) / max(float(apart @ apart), 1e-300), 0.0, 1.0))
        found = losses + slope * (self.mean - self.held)
        found += max(0.0, _LEAST * losses.mean() - found.mean())
        tail = slope**2 * self.variance * sum(1 / count for count in self.counts)
        return found, float(np.hypot(judges.forecast_error(losses), tail**0.5))


def _scores(tournament: Tournament, weights: dict[str, float]) -> list[Score]:
    found = []
    for entry in tournament.entries:
        name, count = entry.model.name, len(entry.predictions)
        error = unsure = float("nan")
        if count:
            losses = tournament.losses(entry, count)
            error, unsure = float(losses.mean()), float(losses.std(ddof=1) / np.sqrt(len(losses)))
            if tournament.metric == "rmse":
                error, unsure = error**0.5, unsure / (2 * max(error**0.5, 1e-300))
        note = f"{weights[name]:.0%} of the answer" if name in weights else entry.note
        found.append(Score(name, error, unsure, count, entry.seconds, note))
    return sorted(
        found, key=lambda score: (-weights.get(score.model, 0.0), np.nan_to_num(score.error, nan=np.inf))
    )


def _lowest(errors: Floats) -> int:
    return int(errors.mean(axis=1).argmin())


def cross_fit(errors: Floats, rng: np.random.Generator, choose: Callable[[Floats], int] = _lowest) -> Floats:
    """Return the error in each cluster of the model that all other parts of the clusters choose.

    Parameters
    ----------
    errors : ndarray (models, clusters)
    rng : Generator
        Divides the clusters into five parts, or as many as there are if fewer.
    choose : callable
        Returns the place of a model, given the errors in some clusters; by default of the lowest mean.

    Returns
    -------
    ndarray (clusters,)

    Examples
    --------
    Each of two models is better in one cluster, so the other cluster always chooses the wrong one:

    >>> cross_fit(np.array([[0.1, 0.3], [0.3, 0.1]]), np.random.default_rng(0))
    array([0.3, 0.3])
    """
    clusters = errors.shape[1]
    expected = np.empty(clusters)
    for part in np.array_split(rng.permutation(clusters), min(_FOLDS, clusters)):
        others = np.delete(errors, part, axis=1)
        expected[part] = errors[choose(others), part]
    return expected
