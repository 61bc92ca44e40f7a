"""``airnp.search``: try settings of a fit, and judge all of them by the same held-out entries."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device

from airnp._arrays import from_numpy, to_numpy
from airnp._checks import checked_number, checked_seed
from airnp.choosing import seedstacks
from airnp.choosing.candidates import Candidate, Search
from airnp.choosing.grids import check_shared, expanded
from airnp.choosing.judging import Judges, standard_error
from airnp.fitting import fit
from airnp.fleet.many import fit_many
from airnp.inputs import EmptyLineWarning, Observations, read
from airnp.result import FitResult
from airnp.running.progress import CountBar


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
    """Try settings of :func:`airnp.fit`, and tell which of them predict held-out entries best.

    Parameters
    ----------
    Y : array-like (m, n)
        One matrix, as :func:`airnp.fit` takes it.
    grid : dict of lists, or list of dicts
        Arguments of :func:`airnp.fit`: all combinations of the lists' values, or each dict as it is.
    mask : array-like (m, n), optional
        True where observed. Without it, NaN means missing.
    executor : concurrent.futures.Executor, optional
        Who fits, as in :func:`airnp.fit_many`. Default: this process, one candidate after the other;
        candidates that differ in nothing but their ``seed`` go together, as a stack.
    workers : int, optional
        How many candidates are fitted at a time: by ``executor``, or without one by so many processes.
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
        For a grid or settings that cannot be meant; the message names the key.
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
    check_shared(settings)
    candidates = expanded(grid, settings)
    seed = checked_seed(seed)
    share = checked_number("fraction", fraction)
    if not 0 < share < 1:
        raise ValueError(f"fraction: expected a number between 0 and 1, got {fraction!r}")
    hidden = _Hidden.of(Y, mask, share, seed, settings)
    fits = [{"seed": seed, **settings, **candidate} for candidate in candidates]
    alone = executor is None and workers is None
    runs = _here(hidden, fits) if alone else _elsewhere(hidden, fits, executor, workers)
    found: dict[int, Candidate] = {}
    with CountBar(len(candidates), "candidate", progress) as bar:
        for run in runs:
            found[run.index] = _judged(candidates[run.index], run, hidden.judges)
            bar.advance()
    judged = [found[index] for index in range(len(candidates))]
    failures = [each.error for each in judged if each.error is not None]
    if len(failures) == len(judged):
        raise failures[0]
    return Search(judged, hidden.judges, seed)


@dataclass(frozen=True)
class _Hidden:
    """The data, and which of its entries the candidates may see."""

    Y: Any
    seen: Observations
    kept: Any
    judges: Judges

    @classmethod
    def of(cls, Y: Any, mask: Any, fraction: float, seed: int, settings: Mapping[str, Any]) -> _Hidden:
        place = settings.get
        seen = read(Y, mask, place("weights"), xp=place("xp"), device=place("device"), dtype=place("dtype"))
        if seen.values.ndim != 2:
            raise ValueError(f"Y: expected one matrix, got an array of shape {tuple(seen.values.shape)}")
        values, observed = to_numpy(seen.values), to_numpy(seen.mask)
        judges = Judges.drawn(values, observed, fraction, np.random.default_rng([seed, 21]))
        home = array_namespace(seen.values), device(seen.values)
        return cls(Y, seen, from_numpy(observed & ~judges.held_out, *home, "bool"), judges)


@dataclass(frozen=True)
class _Run:
    """How the fit of one candidate went."""

    index: int
    seconds: float
    result: FitResult | None = None
    member: tuple[int, ...] = ()
    """Which problem of a stack it is."""
    error: BaseException | None = None


def _here(hidden: _Hidden, fits: list[dict[str, Any]]) -> Iterator[_Run]:
    """Fit in this process, one group after the other."""
    groups = seedstacks.groups(fits, hidden.judges.held_out.size)
    if hidden.seen.labels is not None:
        groups = [[index] for index in range(len(fits))]
    for members in groups:
        if len(members) > 1:
            started = time.perf_counter()
            own = [fits[index] for index in members]
            stack = _attempted(partial(seedstacks.fitted_together, hidden.seen, hidden.kept, own))
            if isinstance(stack, FitResult):
                share = (time.perf_counter() - started) / len(members)
                yield from (_Run(index, share, stack, (place,)) for place, index in enumerate(members))
                continue
        # Alone, or where one that diverged took the others along.
        for index in members:
            started = time.perf_counter()
            outcome = _attempted(partial(fit, hidden.Y, hidden.kept, **fits[index]))
            seconds = time.perf_counter() - started
            if isinstance(outcome, FitResult):
                yield _Run(index, seconds, outcome)
            else:
                yield _Run(index, seconds, error=outcome)


def _attempted(work: Callable[[], FitResult]) -> FitResult | Exception:
    """Return the result of a fit, or the error that it ended with."""
    try:
        with warnings.catch_warnings():
            # Of these the caller was told when the data was read.
            warnings.simplefilter("ignore", EmptyLineWarning)
            result = work()
    except Exception as error:
        return error
    if result.stop_reason == "interrupted":
        raise KeyboardInterrupt
    return result


def _elsewhere(hidden: _Hidden, fits: list[dict[str, Any]], executor: Any, workers: Any) -> Iterator[_Run]:
    """Fit side by side, each candidate by itself."""
    problems = [{"Y": hidden.Y, "mask": hidden.kept, **arguments} for arguments in fits]
    for outcome in fit_many(problems, executor=executor, workers=workers):
        yield _Run(outcome.index, outcome.seconds, outcome.result, error=outcome.error)


def _judged(settings: dict[str, Any], run: _Run, judges: Judges) -> Candidate:
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
