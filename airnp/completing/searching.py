"""``airnp.search``: try settings of a fit, and judge all of them by the same held-out entries."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from inspect import signature
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace, device

from airnp._arrays import from_numpy, on_device, to_numpy
from airnp._checks import checked_number, checked_seed
from airnp.completing.judging import Judges, standard_error
from airnp.data.inputs import EmptyLineWarning, Observations, read
from airnp.fitting import fit
from airnp.fleet.many import fit_many
from airnp.model.objective import Objective
from airnp.results.result import FitResult
from airnp.training.progress import CountBar

Floats = npt.NDArray[np.float64]


def search(
    Y: Any,
    grid: Any,
    mask: Any = None,
    *,
    executor: Any = None,
    workers: int | None = None,
    fraction: float = 0.05,
    seed: int | None = None,
    progress: bool = False,
    **settings: Any,
) -> Search:
    """Try settings of :func:`airnp.fit`, and find out which of them predict held-out entries best.

    Parameters
    ----------
    Y : array-like (m, n)
        One matrix, as :func:`airnp.fit` takes it.
    grid : dict of lists, or list of dicts
        Arguments of :func:`airnp.fit`: all combinations of the lists' values, or each dict as it is.
    mask : array-like (m, n), optional
        True where observed. Without it, NaN means missing.
    executor : concurrent.futures.Executor, optional
        Runs the fits, as in :func:`airnp.fit_many`. Default: this process, one candidate after the other;
        candidates that differ only in their ``seed`` are fitted together, as a stack.
    workers : int, optional
        How many candidates to fit at a time: in ``executor``, or without one in as many processes.
    fraction : float
        Share of the observed entries to hold out, in the shape of the gaps: here and there, or under copies
        of holes (ten copies at least, if they are not more than a fifth of the entries).
    seed : int, optional
        Draws the held-out entries, and is the seed of candidates that name none. Default: a new one.
    progress : bool
        Show a progress bar over the candidates.
    **settings
        Arguments of :func:`airnp.fit` for all candidates.

    Returns
    -------
    Search
        With ``candidates``, a table when printed, and ``best``. One that failed carries its error.

    Raises
    ------
    ValueError, TypeError
        If the grid or the settings are invalid; the message names the key.
    Exception
        The error of the first candidate, if all of them failed.

    Notes
    -----
    The held-out entries are not used for stopping: each fit holds out others for that, by its own ``stop``.

    In a stack all problems share their weights, so candidates with other weights are fitted in turn. Members
    of a stack also share the entries that ``stop="auto"`` holds out, those of the first seed.

    Examples
    --------
    >>> import airnp
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.random((30, 2)) @ rng.random((2, 20))
    >>> observed = rng.random(truth.shape) < 0.7
    >>> found = airnp.search(truth, {"rank": [1, 2]}, observed, regularizers=[], max_iter=1500, seed=0)
    >>> found.best.settings
    {'rank': 2}
    >>> result = airnp.fit(truth, observed, regularizers=[], max_iter=1500, seed=0, **found.best.settings)
    """
    for name in settings:
        _check_name("settings", name, SHARED)
    candidates = expand(grid, settings)
    seed = checked_seed(seed)
    share = checked_number("fraction", fraction)
    if not 0 < share < 1:
        raise ValueError(f"fraction: expected a number between 0 and 1, got {fraction!r}")
    data = _SearchData.read(Y, mask, share, seed, settings)
    fits = [{"seed": seed, **settings, **candidate} for candidate in candidates]
    alone = executor is None and workers is None
    runs = _run_here(data, fits) if alone else _run_in_pool(data, fits, executor, workers)
    found: dict[int, Candidate] = {}
    with CountBar(len(candidates), "candidate", progress) as bar:
        for run in runs:
            found[run.index] = judge(candidates[run.index], run, data.judges)
            bar.advance()
    judged = [found[index] for index in range(len(candidates))]
    failures = [each.error for each in judged if each.error is not None]
    if len(failures) == len(judged):
        raise failures[0]
    return Search(judged, data.judges, seed, data.kept)


@dataclass(frozen=True, eq=False)
class Candidate:
    """Settings that were tried.

    Attributes
    ----------
    settings : dict
        What the grid said, as arguments of :func:`airnp.fit`.
    nmae, standard_error : float
        Mean absolute error on the held-out entries, over the range of the observed ones; NaN if it failed.
        The standard error takes the entries of a hole as one.
    n_iter : int
        Iterations that were run.
    stop_reason : str
    seconds : float
        Time of the fit; a member of a stack counts its share.
    error : Exception or None
        Why it failed.
    """

    settings: dict[str, Any]
    nmae: float = float("nan")
    standard_error: float = float("nan")
    n_iter: int = 0
    stop_reason: str = ""
    seconds: float = 0.0
    error: BaseException | None = None
    errors: Floats = field(default_factory=lambda: np.empty(0), repr=False)


@dataclass(frozen=True, eq=False)
class Search:
    """All candidates of a search, in the order of the grid.

    Attributes
    ----------
    candidates : list of Candidate
    judges : Judges
        The observed entries that judged them, and that none of them saw; see :mod:`airnp.completing.judging`.
    seed : int
        Repeats the search.
    kept : boolean array (m, n)
        True at the observed entries that the candidates saw.
    """

    candidates: list[Candidate]
    judges: Judges = field(repr=False)
    seed: int
    kept: Any = field(repr=False)

    @property
    def held_out(self) -> npt.NDArray[np.bool_]:
        """True at the observed entries that judged, (m, n)."""
        return self.judges.held_out

    @property
    def best(self) -> Candidate:
        """The candidate with the lowest error on held-out entries.

        Its error is the lowest of several, and therefore lower than what to expect: :func:`airnp.complete`
        has an honest one.
        """
        return min(self.finished, key=lambda candidate: candidate.nmae)

    @property
    def finished(self) -> list[Candidate]:
        """The candidates that did not fail."""
        return [candidate for candidate in self.candidates if candidate.error is None]

    def to_dataframe(self) -> Any:
        """Return a pandas DataFrame with a row for each candidate: its settings, its error, how it went."""
        from pandas import DataFrame

        return DataFrame([{**each.settings, **_outcome(each)} for each in self.candidates])

    def __str__(self) -> str:
        lines = [f"{'NMAE':>9} {'± s.e.':>9} {'iterations':>10}  settings"]
        for each in self.candidates:
            said = ", ".join(f"{name}={value!r}" for name, value in each.settings.items()) or "defaults"
            how = "" if each.error is None else f"  failed: {type(each.error).__name__}: {each.error}"
            lines.append(f"{each.nmae:9.5f} {each.standard_error:9.5f} {each.n_iter:10d}  {said}{how}")
        return "\n".join(lines)


def _outcome(candidate: Candidate) -> dict[str, Any]:
    names = ("nmae", "standard_error", "n_iter", "stop_reason", "seconds", "error")
    return {name: getattr(candidate, name) for name in names}


@dataclass(frozen=True)
class _SearchData:
    """The data, and the mask of the entries that the candidates may see."""

    Y: Any
    seen: Observations
    kept: Any
    judges: Judges

    @classmethod
    def read(cls, Y: Any, mask: Any, fraction: float, seed: int, settings: Mapping[str, Any]) -> _SearchData:
        """Read the data and draw the entries to hold out."""
        options: dict[str, Any] = {name: settings.get(name) for name in ("xp", "device", "dtype")}
        seen = read(Y, mask, settings.get("weights"), **options)
        if seen.values.ndim != 2:
            raise ValueError(f"Y: expected one matrix, got an array of shape {tuple(seen.values.shape)}")
        values, observed = to_numpy(seen.values), to_numpy(seen.mask)
        judges = Judges.draw(values, observed, fraction, np.random.default_rng([seed, 21]))
        home = array_namespace(seen.values), device(seen.values)
        return cls(Y, seen, from_numpy(observed & ~judges.held_out, *home, "bool"), judges)


@dataclass(frozen=True)
class Run:
    """The fit of one candidate, or the error that ended it."""

    index: int
    seconds: float
    result: FitResult | None = None
    member: tuple[int, ...] = ()
    """The place of the candidate in a stack."""
    error: BaseException | None = None


def _run_here(data: _SearchData, fits: list[dict[str, Any]]) -> Iterator[Run]:
    """Fit in this process, one group after the other."""
    groups = seed_groups(fits, data.judges.held_out.size)
    if data.seen.labels is not None:
        groups = [[index] for index in range(len(fits))]
    for members in groups:
        if len(members) > 1:
            started = time.perf_counter()
            own = [fits[index] for index in members]
            stack = _attempt(partial(fit_stack, data.seen, data.kept, own))
            if isinstance(stack, FitResult):
                share = (time.perf_counter() - started) / len(members)
                yield from (Run(index, share, stack, (place,)) for place, index in enumerate(members))
                continue
        # A single candidate, or a stack that failed because one of its members did.
        for index in members:
            started = time.perf_counter()
            outcome = _attempt(partial(fit, data.Y, data.kept, **fits[index]))
            seconds = time.perf_counter() - started
            if isinstance(outcome, FitResult):
                yield Run(index, seconds, outcome)
            else:
                yield Run(index, seconds, error=outcome)


def _attempt(work: Callable[[], FitResult]) -> FitResult | Exception:
    """Return the result of a fit, or the error that it ended with."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EmptyLineWarning)  # given when the data was read
            result = work()
    except Exception as error:
        return error
    if result.stop_reason == "interrupted":
        raise KeyboardInterrupt
    return result


def _run_in_pool(data: _SearchData, fits: list[dict[str, Any]], executor: Any, workers: Any) -> Iterator[Run]:
    """Fit side by side, each candidate by itself."""
    problems = [{"Y": data.Y, "mask": data.kept, **arguments} for arguments in fits]
    for outcome in fit_many(problems, executor=executor, workers=workers):
        yield Run(outcome.index, outcome.seconds, outcome.result, error=outcome.error)


def judge(settings: dict[str, Any], run: Run, judges: Judges) -> Candidate:
    """Measure the error of a fit on the held-out entries."""
    if run.result is None:
        return Candidate(settings, seconds=run.seconds, error=run.error)
    errors = judges.errors(to_numpy(run.result.matrix)[run.member])
    return Candidate(
        settings,
        float(errors.mean()),
        standard_error(errors),
        run.result.n_iter,
        run.result.stop_reason,
        run.seconds,
        errors=errors,
    )


_PROBLEM = ("Y", "mask", "weights", "operator", "xp", "device", "dtype")
_OBSERVERS = ("record", "callback", "progress", "checkpoint")
_ALL = tuple(signature(fit).parameters)

CHOOSABLE = tuple(name for name in _ALL if name not in (*_PROBLEM, *_OBSERVERS))
"""Arguments of :func:`airnp.fit` that a grid may hold."""

SHARED = (*CHOOSABLE, "weights", "xp", "device", "dtype")
"""Arguments of :func:`airnp.fit` that may be given for all candidates."""


def expand(grid: Any, shared: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the candidates that a grid stands for, in order, checked by their names.

    Parameters
    ----------
    grid : mapping of str to list, or list of mappings
        All combinations of the lists' values, the last varying fastest; or each mapping as it is.
    shared : mapping
        Settings of all candidates, which a grid must not repeat.

    Examples
    --------
    >>> expand({"depth": [2, 3], "rank": [5, None]}, {})
    [{'depth': 2, 'rank': 5}, {'depth': 2, 'rank': None}, {'depth': 3, 'rank': 5}, {'depth': 3, 'rank': None}]
    >>> expand([{"depth": 2}, {}], {})
    [{'depth': 2}, {}]
    """
    if isinstance(grid, Mapping):
        for name, values in grid.items():
            if isinstance(values, str) or not isinstance(values, Sequence):
                raise TypeError(f"grid: expected a list of values to try for {name!r}, got {values!r}")
            if not values:
                raise ValueError(f"grid: expected at least one value to try for {name!r}")
        candidates = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
    elif isinstance(grid, Sequence) and all(isinstance(each, Mapping) for each in grid):
        candidates = [dict(each) for each in grid]
    else:
        raise TypeError(f"grid: expected a dict of lists, or a list of dicts, got {grid!r}")
    if not candidates:
        raise ValueError("grid: expected at least one candidate")
    for name in dict.fromkeys(name for candidate in candidates for name in candidate):
        _check_name("grid", name, CHOOSABLE)
        if name in shared:
            raise TypeError(f"grid: {name!r} is given for all candidates already")
    return candidates


def _check_name(argument: str, name: Any, known: tuple[str, ...]) -> None:
    if name in known:
        return
    if name in _ALL:
        raise TypeError(f"{argument}: {name!r} is nothing that fits can be searched for with")
    raise TypeError(f"{argument}: {name!r} is no argument of airnp.fit; there are {', '.join(known)}")


_MOST_ENTRIES = 2**20
"""Entries of a stack at most; a fit needs memory for about thirty times as many."""

_MODEL = ("regularizers", "depth", "rank", "fidelity", "weights", "dtype", "xp", "engine")
"""Arguments that :func:`airnp.fit` and :class:`airnp.Objective` share, with the same defaults."""


def seed_groups(fits: Sequence[Mapping[str, Any]], entries: int) -> list[list[int]]:
    """Group the fits that can run as one stack: equal but for their seeds, and not too many.

    Parameters
    ----------
    fits : sequence of mappings
        Arguments of :func:`airnp.fit`, each with a seed.
    entries : int
        Of one matrix.

    Examples
    --------
    >>> seed_groups([{"depth": 2, "seed": 0}, {"depth": 3, "seed": 0}, {"depth": 2, "seed": 1}], entries=12)
    [[0, 2], [1]]
    """
    alike: dict[Any, list[int]] = {}
    for index, arguments in enumerate(fits):
        kind = frozenset((name, _key(value)) for name, value in arguments.items() if name != "seed")
        alike.setdefault(kind, []).append(index)
    most = max(1, _MOST_ENTRIES // entries)
    return [members[i : i + most] for members in alike.values() for i in range(0, len(members), most)]


def _key(value: Any) -> Any:
    """Return a hashable key: plain values compare by value, other objects by identity."""
    return value if value is None or isinstance(value, bool | int | float | str) else ("id", id(value))


def fit_stack(seen: Observations, kept: Any, fits: Sequence[Mapping[str, Any]]) -> FitResult:
    """Fit a stack of copies of one matrix, each starting from the parameters that its own seed draws.

    Parameters
    ----------
    seen : Observations
        Of one matrix (m, n).
    kept : boolean array (m, n)
        Which entries the fits may see.
    fits : sequence of mappings
        Arguments of :func:`airnp.fit`, equal but for ``seed``.
    """
    shared = {name: value for name, value in fits[0].items() if name != "seed"}
    starts = [_start(seen, kept, shared, arguments["seed"]) for arguments in fits]
    xp = array_namespace(seen.values)
    with on_device(xp, seen.device):
        stack = xp.stack([seen.values] * len(fits))
    init = [np.stack(level) for level in zip(*starts, strict=True)]
    return fit(stack, kept, **{**shared, "init": init, "seed": fits[0]["seed"]})


def _start(seen: Observations, kept: Any, shared: Mapping[str, Any], seed: int) -> list[Any]:
    """Return the parameters that a fit with this seed starts from, as NumPy arrays."""
    objective = Objective(seen.values, kept, **{name: shared[name] for name in _MODEL if name in shared})
    return [to_numpy(array) for array in objective.init(seed, shared.get("init", "gaussian"))]
