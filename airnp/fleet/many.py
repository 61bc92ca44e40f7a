"""``airnp.fit_many``: many problems, side by side, on one machine or on a cluster."""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from airnp._checks import checked_seed, checked_whole
from airnp.fitting import fit
from airnp.fleet.crews import Crew, GivenCrew, OwnCrew
from airnp.results.result import FitResult
from airnp.training.progress import CountBar

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

    from airnp.fleet.crews import Parcel
    from airnp.fleet.workers import Report

_OF_A_PROBLEM = tuple(name for name in inspect.signature(fit).parameters if name != "progress")
_OF_ALL = tuple(name for name in _OF_A_PROBLEM if name not in ("Y", "mask", "checkpoint"))


@dataclass(frozen=True, eq=False)
class Outcome:
    """How one problem of a fleet went.

    Attributes
    ----------
    index : int or key
        Which problem: its place in the order given, or its key in a mapping.
    result : FitResult or None
        None if it failed.
    error : BaseException or None
        Why it failed.
    attempts : int
        How often it was begun: more than once if workers were lost; 0 if it could not be sent at all.
    seconds : float
        That the last fit took in its worker.
    """

    index: Any
    result: FitResult | None
    error: BaseException | None
    attempts: int
    seconds: float

    def unwrap(self) -> FitResult:
        """Return the result, or raise the error."""
        if self.result is not None:
            return self.result
        assert self.error is not None
        raise self.error


def fit_many(
    problems: Iterable[Any] | Mapping[Any, Any],
    *,
    executor: Executor | None = None,
    workers: int | None = None,
    threads: int | None = None,
    progress: bool = False,
    retries: int = 2,
    **settings: Any,
) -> Iterator[Outcome]:
    """Complete many matrices side by side, and yield each as it is finished.

    Parameters
    ----------
    problems : iterable, or mapping of key to problem
        A problem is Y; a tuple (Y, mask); or a mapping of arguments of :func:`airnp.fit`, which go before
        ``settings``. A generator is read only a little ahead of the work.
    executor : concurrent.futures.Executor, optional
        Who does the work: a ``ThreadPoolExecutor``, a ``ProcessPoolExecutor``, ``Client(...).get_executor()``
        of ``dask.distributed``, an ``MPIPoolExecutor`` of ``mpi4py.futures``, or another. It is left
        running. Default: processes that live as long as the iterator.
    workers : int, optional
        How many problems are worked on at a time. Default: one for each processor, or what ``executor``
        says. Twice as many are in flight, so that no worker waits for the next.
    threads : int, optional
        Threads of a fit. Default: the processors divided by the workers; one on clusters, whose processors
        are not known here.
    progress : bool
        Show a progress bar over the problems.
    retries : int
        How often a problem is begun again when its worker was lost: killed, or out of memory. Errors of the
        fit itself are not tried again.
    **settings
        Options of :func:`airnp.fit` for all problems, such as ``max_iter`` or ``seed``. The same seed serves
        every problem; without one, each draws its own, kept in ``result.seed``.

    Yields
    ------
    Outcome
        In the order in which they finish. One that failed carries its own error and stops nobody. Closing
        the iterator cancels what has not begun; processes of airnp's own end at once.

    Raises
    ------
    ValueError, TypeError
        Before any work, for settings that cannot be meant or sent; the message names the argument.
    Exception
        What ``problems`` raises while it is read, or ``executor`` when given work, after the outcomes of
        everything in flight.

    Notes
    -----
    A result is bit for bit what ``airnp.fit`` gives alone with the same arguments, seed and ``threads`` on
    the same kind of machine, whoever did the work and in whatever order.

    Programs that use processes need the usual ``if __name__ == "__main__":`` around what starts them.

    A worker that dies takes only its own problem along: another process takes its place. Dask begins such
    tasks again by itself, and those that it gives up are given to it again. Another executor whose process
    died is broken for good, and the outcomes say so.

    Examples
    --------
    >>> import numpy as np
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> rng = np.random.default_rng(0)
    >>> tables = {name: np.outer(rng.random(8), rng.random(6)) for name in ("a", "b")}
    >>> for table in tables.values():
    ...     table[2, 3] = np.nan
    >>> with ThreadPoolExecutor(2) as executor:
    ...     outcomes = list(fit_many(tables, executor=executor, max_iter=50, seed=0))
    >>> sorted(outcome.index for outcome in outcomes), outcomes[0].unwrap().X.shape
    (['a', 'b'], (8, 6))
    """
    source, total = _numbered(problems)
    workers = None if workers is None else checked_whole("workers", workers)
    threads = None if threads is None else checked_whole("threads", threads)
    retries = checked_whole("retries", retries, least=0)
    for name in settings:
        if name not in _OF_ALL:
            raise TypeError(f"{name}: not an option for all problems; there are {', '.join(_OF_ALL)}")
    if executor is None:
        crew: Crew = OwnCrew(workers, threads)
    elif callable(getattr(executor, "submit", None)):
        crew = GivenCrew(executor, workers, threads)
    else:
        raise TypeError(f"executor: expected a concurrent.futures.Executor, got {type(executor).__name__}")
    shared = crew.pack({"threads": crew.threads, **settings})
    drawn = settings.get("seed") is None
    return _outcomes(_Reader(source, crew, shared, drawn), crew, retries, total, progress)


def _numbered(problems: Any) -> tuple[Iterator[tuple[Any, Any]], int | None]:
    """Return pairs of index and problem, and how many there are, if that is known."""
    if isinstance(problems, Mapping):
        if "Y" in problems and set(problems) <= set(_OF_A_PROBLEM):
            raise TypeError("problems: expected several problems, got the arguments of one; put it in a list")
        return iter(problems.items()), len(problems)
    if getattr(problems, "ndim", 3) < 3:
        raise TypeError("problems: expected several matrices, got one; put it in a list")
    try:
        numbered = enumerate(problems)
    except TypeError:
        raise TypeError(f"problems: expected an iterable, got {type(problems).__name__}") from None
    return numbered, len(problems) if isinstance(problems, Sized) else None


@dataclass(eq=False)
class _Task:
    """A problem on its way."""

    index: Any
    parcel: Parcel
    attempts: int = 0
    began: float = 0.0


class _Reader:
    """Reads problems one by one, and packs them."""

    def __init__(self, source: Iterator[tuple[Any, Any]], crew: Crew, shared: Any, drawn: bool) -> None:
        self._source, self._crew, self._shared, self._drawn = source, crew, shared, drawn
        self.is_at_end = False
        self.error: Exception | None = None

    def stop(self, error: Exception) -> None:
        """Read no further, because of this."""
        self.is_at_end, self.error = True, error

    def next(self) -> _Task | Outcome | None:
        """Return the next problem, packed; a failure, if it cannot be; None at the end."""
        try:
            index, problem = next(self._source)
        except StopIteration:
            self.is_at_end = True
            return None
        except Exception as error:
            self.stop(error)
            return None
        try:
            own = _arguments(problem)
            if self._drawn and own.get("seed") is None:
                # Here, so that another attempt is the same fit.
                own["seed"] = checked_seed(None)
            return _Task(index, (self._shared, self._crew.pack(own)))
        except (TypeError, ValueError) as error:
            return Outcome(index, None, error, 0, 0.0)


def _arguments(problem: Any) -> dict[str, Any]:
    """Return the arguments of fit that a problem stands for."""
    if isinstance(problem, tuple):
        if len(problem) != 2:
            raise TypeError(f"problem: expected a tuple (Y, mask), got {len(problem)} things")
        return {"Y": problem[0], "mask": problem[1]}
    if not isinstance(problem, Mapping):
        return {"Y": problem}
    for name in problem:
        if name not in _OF_A_PROBLEM:
            raise TypeError(f"{name}: not an argument of a problem; there are {', '.join(_OF_A_PROBLEM)}")
    if "Y" not in problem:
        raise TypeError("Y: expected among the arguments of a problem")
    return dict(problem)


def _outcomes(
    reader: _Reader, crew: Crew, retries: int, total: int | None, progress: bool
) -> Iterator[Outcome]:
    """Keep the crew busy, and yield what is finished."""
    pending: dict[Future[Report], _Task] = {}
    # Not concurrent.futures.wait, which never hears of futures that an executor cancels when it shuts down.
    done: SimpleQueue[Future[Report]] = SimpleQueue()

    def submit(task: _Task) -> None:
        task.attempts += 1
        task.began = time.perf_counter()
        try:
            future = crew.submit(task.parcel)
        except Exception as error:  # an executor that was shut down, say: what is in flight goes on
            reader.stop(error)
        else:
            pending[future] = task
            future.add_done_callback(done.put)

    failed = 0
    try:
        with CountBar(total, "fit", progress) as bar:
            while True:
                found = None
                while found is None and not reader.is_at_end and len(pending) < crew.capacity:
                    read = reader.next()
                    if isinstance(read, _Task):
                        submit(read)
                    else:
                        found = read
                if found is None:
                    if not pending:
                        break
                    future = done.get()
                    task = pending.pop(future)
                    found = _settled(task, future, crew, retries)
                    if found is None:
                        submit(task)
                        continue
                failed += found.error is not None
                bar.advance(**({"failed": failed} if failed else {}))
                yield found
    finally:
        for future in pending:
            future.cancel()
        crew.dismiss(at_once=bool(pending))
    if reader.error is not None:
        raise reader.error


def _settled(task: _Task, future: Future[Report], crew: Crew, retries: int) -> Outcome | None:
    """Return how a problem went; None if it should be begun again."""
    from concurrent.futures import CancelledError

    waited = time.perf_counter() - task.began
    if future.cancelled():
        error: BaseException | None = CancelledError("executor: somebody cancelled this problem")
        return Outcome(task.index, None, error, task.attempts, waited)
    error = future.exception()
    if error is None:
        report = future.result()
        if report.error is not None and report.error.__traceback__ is None:
            report.error.add_note(f"In the worker:\n{report.trace}")
        return Outcome(task.index, report.result, report.error, task.attempts, report.seconds)
    if crew.is_lost(error):
        if not crew.was_at_work(future):
            task.attempts -= 1
            return None
        if task.attempts <= retries:
            return None
    return Outcome(task.index, None, crew.explained(error), task.attempts, waited)
