"""``airnp.fit_many``: fit many problems side by side, on one machine or on a cluster."""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterable, Iterator, Mapping, Sized
from concurrent.futures import CancelledError, Executor, Future
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from airnp._checks import checked_seed, checked_whole
from airnp.engines import Auto
from airnp.fitting import fit
from airnp.fleet.pools import ExecutorPool, Parcel, Pool, ProcessPool
from airnp.fleet.workers import Report
from airnp.results.result import FitResult
from airnp.training.progress import CountBar

_PROBLEM_ARGUMENTS = tuple(name for name in inspect.signature(fit).parameters if name != "progress")
_SHARED_ARGUMENTS = tuple(name for name in _PROBLEM_ARGUMENTS if name not in ("Y", "mask", "checkpoint"))


@dataclass(frozen=True, eq=False)
class Outcome:
    """The outcome of one problem of :func:`fit_many`.

    Attributes
    ----------
    index : int or key
        Which problem: its number in the order given, or its key in a mapping.
    result : FitResult or None
        None if it failed.
    error : BaseException or None
        Why it failed.
    attempts : int
        How often it was begun: more than once if workers were lost, 0 if it could not be sent.
    seconds : float
        Duration of the last fit in its worker.
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
    """Complete many matrices side by side, and yield each when it is finished.

    Parameters
    ----------
    problems : iterable, or mapping of key to problem
        A problem is Y; a tuple (Y, mask); or a mapping of arguments of :func:`airnp.fit`, which override
        ``settings``. A generator is read only a little ahead of the work.
    executor : concurrent.futures.Executor, optional
        What does the work: a ``ThreadPoolExecutor``, ``ProcessPoolExecutor``, ``Client(...).get_executor()``
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
        In the order in which they finish. One that failed has an error and does not stop the others. Closing
        the iterator cancels problems that have not begun; airnp's own processes end at once.

    Raises
    ------
    ValueError, TypeError
        Before any work, for settings that are wrong or cannot be sent; the message names the argument.
    Exception
        An error of ``problems`` while it is read, or of ``executor`` when given work; after the outcomes of
        all problems in flight.

    Notes
    -----
    A result is bit for bit that of ``airnp.fit`` with the same arguments, seed and ``threads`` on the same
    kind of machine, on any worker and in any order.

    Programs that use processes need the usual ``if __name__ == "__main__":`` around what starts them.

    A worker that dies loses only its own problem, and another process replaces it. Dask repeats such tasks by
    itself, and those that it gives up are submitted again. Any other executor whose process died is broken
    for good, and the outcomes say so.

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
    source, total = _enumerate(problems)
    workers = None if workers is None else checked_whole("workers", workers)
    threads = None if threads is None else checked_whole("threads", threads)
    retries = checked_whole("retries", retries, least=0)
    for name in settings:
        if name not in _SHARED_ARGUMENTS:
            raise TypeError(
                f"{name}: not an option for all problems; there are {', '.join(_SHARED_ARGUMENTS)}"
            )
    if executor is None:
        pool: Pool = ProcessPool(workers, threads)
    elif callable(getattr(executor, "submit", None)):
        pool = ExecutorPool(executor, workers, threads)
    else:
        raise TypeError(f"executor: expected a concurrent.futures.Executor, got {type(executor).__name__}")
    shared = pool.pack({"engine": Auto(pool.threads), **settings})
    needs_seed = settings.get("seed") is None
    return _outcomes(_Reader(source, pool, shared, needs_seed), pool, retries, total, progress)


def _enumerate(problems: Any) -> tuple[Iterator[tuple[Any, Any]], int | None]:
    """Return pairs of index and problem, and how many there are, or None if that is unknown."""
    if isinstance(problems, Mapping):
        if "Y" in problems and set(problems) <= set(_PROBLEM_ARGUMENTS):
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
    """A problem in flight."""

    index: Any
    parcel: Parcel
    attempts: int = 0
    began: float = 0.0


class _Reader:
    """Reads and packs one problem after another."""

    def __init__(self, source: Iterator[tuple[Any, Any]], pool: Pool, shared: Any, needs_seed: bool) -> None:
        self._source, self._pool, self._shared, self._needs_seed = source, pool, shared, needs_seed
        self.is_at_end = False
        self.error: Exception | None = None

    def stop(self, error: Exception) -> None:
        """Read no further; the error is raised in the end."""
        self.is_at_end, self.error = True, error

    def next(self) -> _Task | Outcome | None:
        """Return the next problem, packed; an outcome if it cannot be packed; None at the end."""
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
            if self._needs_seed and own.get("seed") is None:
                # Drawn here, so that a second attempt is the same fit.
                own["seed"] = checked_seed(None)
            return _Task(index, (self._shared, self._pool.pack(own)))
        except (TypeError, ValueError) as error:
            return Outcome(index, None, error, 0, 0.0)


def _arguments(problem: Any) -> dict[str, Any]:
    """Return a problem as arguments of :func:`airnp.fit`."""
    if isinstance(problem, tuple):
        if len(problem) != 2:
            raise TypeError(f"problem: expected a tuple (Y, mask), got {len(problem)} things")
        return {"Y": problem[0], "mask": problem[1]}
    if not isinstance(problem, Mapping):
        return {"Y": problem}
    for name in problem:
        if name not in _PROBLEM_ARGUMENTS:
            raise TypeError(
                f"{name}: not an argument of a problem; there are {', '.join(_PROBLEM_ARGUMENTS)}"
            )
    if "Y" not in problem:
        raise TypeError("Y: expected among the arguments of a problem")
    return dict(problem)


def _outcomes(
    reader: _Reader, pool: Pool, retries: int, total: int | None, progress: bool
) -> Iterator[Outcome]:
    """Keep the pool busy, and yield the outcomes."""
    pending: dict[Future[Report], _Task] = {}
    # Not concurrent.futures.wait, which does not notice futures that an executor cancels at its shutdown.
    done: SimpleQueue[Future[Report]] = SimpleQueue()

    def submit(task: _Task) -> None:
        task.attempts += 1
        task.began = time.perf_counter()
        try:
            future = pool.submit(task.parcel)
        except Exception as error:  # such as an executor that was shut down; problems in flight go on
            reader.stop(error)
        else:
            pending[future] = task
            future.add_done_callback(done.put)

    failed = 0
    try:
        with CountBar(total, "fit", progress) as bar:
            while True:
                found = None
                while found is None and not reader.is_at_end and len(pending) < pool.capacity:
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
                    found = _settle(task, future, pool, retries)
                    if found is None:
                        submit(task)
                        continue
                failed += found.error is not None
                bar.advance(**({"failed": failed} if failed else {}))
                yield found
    finally:
        for future in pending:
            future.cancel()
        pool.close(at_once=bool(pending))
    if reader.error is not None:
        raise reader.error


def _settle(task: _Task, future: Future[Report], pool: Pool, retries: int) -> Outcome | None:
    """Return the outcome of a problem; None if it should be submitted again."""
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
    if pool.is_lost(error):
        if not pool.was_running(future):
            task.attempts -= 1
            return None
        if task.attempts <= retries:
            return None
    return Outcome(task.index, None, pool.explain(error), task.attempts, waited)
