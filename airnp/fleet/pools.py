"""Pools that fit problems side by side: worker processes of airnp's own, or an executor of the caller.

A pool takes a packed problem, returns a :class:`concurrent.futures.Future` of a
:class:`~airnp.fleet.workers.Report`, and knows what it means when a worker is lost.
"""

from __future__ import annotations

import os
from concurrent.futures import BrokenExecutor, Executor, Future
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from airnp.engines.threads import available_threads
from airnp.fleet.workers import Arguments, Report, attempt, attempt_packed, pack, pickle_plain, start_worker

Parcel = tuple[Any, Any]
"""The settings that all problems share, and one problem, as a pool sends them."""

_LEAST_CAPACITY = 4
"""Problems that an executor of unknown size has at a time, at least."""


def processors() -> int:
    """Return how many processors this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_each(workers: int) -> int:
    """Return how many threads each of several fits, side by side on this machine, may use."""
    return max(1, min(available_threads(), processors() // workers))


class Pool(Protocol):
    """Fits problems side by side."""

    @property
    def capacity(self) -> int:
        """How many problems it should have at a time: those being fitted, and as many waiting."""

    @property
    def threads(self) -> int:
        """Threads of a fit, unless a problem says otherwise."""

    def pack(self, arguments: Arguments) -> Any:
        """Return arguments as this pool sends them; raise TypeError naming one that cannot be sent."""

    def submit(self, parcel: Parcel) -> Future[Report]:
        """Begin to fit a problem; the future of a broken pool has the error."""

    def is_lost(self, error: BaseException) -> bool:
        """Whether a future's error means that the worker was lost and that another can try."""

    def was_running(self, future: Future[Report]) -> bool:
        """Whether the problem of this lost future was being fitted, not waiting behind another."""

    def explain(self, error: BaseException) -> BaseException:
        """Return a future's error with a message for the caller."""

    def close(self, *, at_once: bool) -> None:
        """End the processes that airnp started; ``at_once`` in the middle of a fit."""


class ExecutorPool:
    """An executor that belongs to the caller: threads, processes, a Dask cluster, MPI, or another.

    Parameters
    ----------
    executor : concurrent.futures.Executor
    workers : int, optional
        How many problems it works on at a time. Default: as many as it says.
    threads : int, optional
        Of a fit. Default: the processors divided by the workers for pools of this machine, else one.
    """

    def __init__(self, executor: Executor, workers: int | None, threads: int | None) -> None:
        from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

        self._executor = executor
        self._workers = workers
        self._is_dask = type(executor).__module__.partition(".")[0] == "distributed"
        self._in_threads = isinstance(executor, ThreadPoolExecutor)
        if threads is None:
            is_local = self._in_threads or isinstance(executor, ProcessPoolExecutor)
            threads = threads_each(self._size()) if is_local else 1
        self.threads = threads

    @property
    def capacity(self) -> int:
        """Twice the number of problems that it works on at a time, which may change while it runs."""
        return 2 * self._size()

    def _size(self) -> int:
        if self._workers is not None:
            return self._workers
        executor: Any = self._executor
        if self._is_dask:  # whose workers may come and go
            return max(_LEAST_CAPACITY, int(sum(executor._client.nthreads().values())))
        for name in ("num_workers", "_max_workers"):  # of mpi4py, of the standard library and others
            size = getattr(executor, name, None)
            if isinstance(size, int) and size > 0:
                return size
        return max(_LEAST_CAPACITY, processors())

    def pack(self, arguments: Arguments) -> Any:
        """Return arguments as bytes; for threads, return them as they are."""
        if self._in_threads:
            return arguments
        if self._is_dask:
            from cloudpickle import dumps

            return pack(arguments, dumps)
        return pack(arguments, pickle_plain)

    def submit(self, parcel: Parcel) -> Future[Report]:
        """Submit a problem to the executor."""
        submit: Any = self._executor.submit
        try:
            if self._in_threads:
                future: Future[Report] = submit(attempt, *parcel)
            elif self._is_dask:
                future = self._submit_to_dask(parcel)
            else:
                future = submit(attempt_packed, *parcel, self.threads)
        except BrokenExecutor as error:
            return failed_future(error)
        return future

    def _submit_to_dask(self, parcel: Parcel) -> Any:
        import dask

        submit: Any = self._executor.submit
        # Not pure: an equal problem, or a second attempt, is a task of its own. The data is part of the task,
        # so that it survives the loss of a worker; above 10 MB Dask would warn of that.
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
            return submit(attempt_packed, *parcel, self.threads, pure=False)

    def is_lost(self, error: BaseException) -> bool:
        """Whether Dask gave up a task because its workers died; other executors break for good."""
        return self._is_dask and type(error).__name__ == "KilledWorker"

    def was_running(self, future: Future[Report]) -> bool:
        """Return True: Dask gives up only tasks that were running."""
        return True

    def explain(self, error: BaseException) -> BaseException:
        """Return an error that says why a broken executor cannot be repaired."""
        if not isinstance(error, BrokenExecutor):
            return error
        return BrokenExecutor(
            f"executor: a worker of the {type(self._executor).__name__} died, which breaks the executor for "
            "good, and this problem was not finished; without executor=, fit_many replaces dead workers "
            f"({error})"
        )

    def close(self, *, at_once: bool) -> None:
        """Do nothing: the executor belongs to the caller."""


class ProcessPool:
    """Worker processes, each an executor of its own, so that one that dies loses only its own problem.

    Parameters
    ----------
    workers : int, optional
        Processes. Default: one for each processor.
    threads : int, optional
        Of a fit. Default: the processors divided by the workers.
    """

    def __init__(self, workers: int | None, threads: int | None) -> None:
        count = processors() if workers is None else workers
        self.threads = threads_each(count) if threads is None else threads
        self.capacity = 2 * count
        self._processes: list[_Process | None] = [None] * count
        self._owners: WeakKeyDictionary[Future[Report], _Process] = WeakKeyDictionary()

    def pack(self, arguments: Arguments) -> bytes:
        """Return arguments as bytes."""
        return pack(arguments, pickle_plain)

    def submit(self, parcel: Parcel) -> Future[Report]:
        """Give a problem to the process that has the fewest; start one, or replace a dead one, if need be."""
        loads = [0 if process is None else process.load() for process in self._processes]
        place = loads.index(min(loads))
        process = self._processes[place]
        if process is not None and process.first_lost() is not None:
            process.end(at_once=True)
            process = None
        if process is None:
            process = self._processes[place] = _Process(self.threads)
        future = process.submit(parcel)
        self._owners[future] = process
        return future

    def is_lost(self, error: BaseException) -> bool:
        """Whether a worker died."""
        return isinstance(error, BrokenExecutor)

    def was_running(self, future: Future[Report]) -> bool:
        """Whether no other problem was before this one when the worker died."""
        return self._owners[future].first_lost() is future

    def explain(self, error: BaseException) -> BaseException:
        """Return an error that says what may have killed a worker at every attempt."""
        if not isinstance(error, BrokenExecutor):
            return error
        return BrokenExecutor(
            "the worker process died at every attempt: killed, out of memory, or the program has no "
            "'if __name__ == \"__main__\":' around what starts it"
        )

    def close(self, *, at_once: bool) -> None:
        """End all processes."""
        for process in self._processes:
            if process is not None:
                process.end(at_once=at_once)


class _Process:
    """An executor of one process, from its start to its end; it fits its problems in turn."""

    def __init__(self, threads: int) -> None:
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context

        # A new interpreter: thread pools that libraries created when they were loaded do not survive a fork.
        context = get_context("spawn")
        reader, self._lifeline = context.Pipe(duplex=False)
        self._executor = ProcessPoolExecutor(1, context, initializer=start_worker, initargs=(reader, threads))
        self._futures: list[Future[Report]] = []

    def submit(self, parcel: Parcel) -> Future[Report]:
        try:
            future = self._executor.submit(attempt_packed, *parcel, None)
        except BrokenExecutor as error:  # it died while it was idle
            future = failed_future(error)
        self._futures = [*self._unfinished(), future]
        return future

    def load(self) -> int:
        """Return how many problems it has."""
        return sum(not future.done() for future in self._futures)

    def first_lost(self) -> Future[Report] | None:
        """Return the first problem that it did not finish before it died; None while it lives."""
        return next((future for future in self._unfinished() if future.done()), None)

    def end(self, *, at_once: bool) -> None:
        if at_once:
            self._lifeline.close()
        self._executor.shutdown(wait=True, cancel_futures=True)
        self._lifeline.close()

    def _unfinished(self) -> list[Future[Report]]:
        """Return, in their order, the problems that are waiting, being fitted or lost."""
        return [future for future in self._futures if not future.done() or _is_broken(future)]


def _is_broken(future: Future[Report]) -> bool:
    return not future.cancelled() and isinstance(future.exception(), BrokenExecutor)


def failed_future(error: BaseException) -> Future[Report]:
    """Return a future of work that could not be submitted."""
    future: Future[Report] = Future()
    future.set_exception(error)
    return future
