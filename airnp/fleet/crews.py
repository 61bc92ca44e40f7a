"""Who fits the problems of a fleet: worker processes of airnp's own, or an executor that a caller brings.

Both are crews: they take a packed problem, give back a :class:`concurrent.futures.Future` of a
:class:`Report`, and know what it means when a worker is lost. Nothing here knows where problems come from.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

from airnp.engines.threads import available_threads
from airnp.fleet.workers import Arguments, Report, attempt, attempt_packed, begin, packed, pickled

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future


Parcel = tuple[Any, Any]
"""What all problems share, and one problem's own, as a crew sends them."""

_LEAST = 4
"""Problems that an executor has at a time at least, unless it is known how many it works on."""


def processors() -> int:
    """Return how many processors this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_each(workers: int) -> int:
    """Return how many threads a fit may have, if so many run side by side on this machine."""
    return max(1, min(available_threads(), processors() // workers))


class Crew(Protocol):
    """Fits problems side by side."""

    @property
    def capacity(self) -> int:
        """How many problems it should have at a time: those being fitted, and as many ahead."""

    @property
    def threads(self) -> int:
        """Threads of a fit, unless a problem says otherwise."""

    def pack(self, arguments: Arguments) -> Any:
        """Return arguments as this crew sends them, or raise TypeError naming the one that cannot be."""

    def submit(self, parcel: Parcel) -> Future[Report]:
        """Begin to fit a problem; a broken crew answers with a future that says so."""

    def is_lost(self, error: BaseException) -> bool:
        """Whether a future's error means that the worker was lost, and that another can try."""

    def was_at_work(self, future: Future[Report]) -> bool:
        """Whether the problem of this lost future was being fitted, rather than waiting behind another."""

    def explained(self, error: BaseException) -> BaseException:
        """Return a future's error as a caller understands it."""

    def dismiss(self, *, at_once: bool) -> None:
        """End what airnp began; ``at_once`` in the middle of a fit."""


class GivenCrew:
    """An executor that belongs to the caller: threads, processes, a Dask cluster, MPI, or another.

    Parameters
    ----------
    executor : concurrent.futures.Executor
    workers : int, optional
        How many problems it works on at a time. Default: as many as it says.
    threads : int, optional
        Of a fit. Default: the processors divided by the workers, for pools of this machine; else one.
    """

    def __init__(self, executor: Executor, workers: int | None, threads: int | None) -> None:
        from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

        self._executor = executor
        self._workers = workers
        self._is_dask = type(executor).__module__.partition(".")[0] == "distributed"
        self._in_threads = isinstance(executor, ThreadPoolExecutor)
        if threads is None:
            here = self._in_threads or isinstance(executor, ProcessPoolExecutor)
            threads = threads_each(self._size()) if here else 1
        self.threads = threads

    @property
    def capacity(self) -> int:
        """Twice what it works on at a time, which may change while it runs."""
        return 2 * self._size()

    def _size(self) -> int:
        if self._workers is not None:
            return self._workers
        executor: Any = self._executor
        if self._is_dask:  # whose workers may come and go
            return max(_LEAST, int(sum(executor._client.nthreads().values())))
        for name in ("num_workers", "_max_workers"):  # of mpi4py, of the standard library and others
            size = getattr(executor, name, None)
            if isinstance(size, int) and size > 0:
                return size
        return max(_LEAST, processors())

    def pack(self, arguments: Arguments) -> Any:
        """Return arguments as bytes; threads take them as they are."""
        if self._in_threads:
            return arguments
        if self._is_dask:
            from cloudpickle import dumps

            return packed(arguments, dumps)
        return packed(arguments, pickled)

    def submit(self, parcel: Parcel) -> Future[Report]:
        """Submit a problem."""
        from concurrent.futures import BrokenExecutor

        submit: Any = self._executor.submit
        try:
            if self._in_threads:
                future = submit(attempt, *parcel)
            elif self._is_dask:
                future = self._submit_to_dask(parcel)
            else:
                future = submit(attempt_packed, *parcel, self.threads)
        except BrokenExecutor as error:
            return failed(error)
        known: Future[Report] = future
        return known

    def _submit_to_dask(self, parcel: Parcel) -> Any:
        import dask

        submit: Any = self._executor.submit
        # Not pure: an equal problem, or the same one again, is a task of its own. The data goes with the
        # task, so that it is there again after its worker is lost; Dask would warn of that above 10 MB.
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
            return submit(attempt_packed, *parcel, self.threads, pure=False)

    def is_lost(self, error: BaseException) -> bool:
        """Whether Dask gave up a task because its workers died; other executors break for good."""
        return self._is_dask and type(error).__name__ == "KilledWorker"

    def was_at_work(self, future: Future[Report]) -> bool:
        """Dask blames only tasks that were."""
        return True

    def explained(self, error: BaseException) -> BaseException:
        """Return why a broken executor cannot be helped."""
        from concurrent.futures import BrokenExecutor

        if not isinstance(error, BrokenExecutor):
            return error
        return BrokenExecutor(
            f"executor: a worker of the {type(self._executor).__name__} died, which breaks the executor for "
            "good, and this problem was not finished; without executor=, fit_many replaces dead workers "
            f"({error})"
        )

    def dismiss(self, *, at_once: bool) -> None:
        """Leave the executor to its owner."""


def failed(error: BaseException) -> Future[Report]:
    """Return a future of work that could not even be submitted."""
    from concurrent.futures import Future

    future: Future[Report] = Future()
    future.set_exception(error)
    return future


class OwnCrew:
    """Worker processes, each a pool of its own, so that one that dies takes nothing but its problem along.

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
        self._workers = [_Worker(self.threads) for _ in range(count)]
        self._lives: WeakKeyDictionary[Future[Report], _Life] = WeakKeyDictionary()

    def pack(self, arguments: Arguments) -> bytes:
        """Return arguments as bytes."""
        return packed(arguments, pickled)

    def submit(self, parcel: Parcel) -> Future[Report]:
        """Give a problem to the worker that has the fewest."""
        life = min(self._workers, key=_Worker.load).alive()
        future = life.submit(parcel)
        self._lives[future] = life
        return future

    def is_lost(self, error: BaseException) -> bool:
        """Whether a worker died."""
        from concurrent.futures import BrokenExecutor

        return isinstance(error, BrokenExecutor)

    def was_at_work(self, future: Future[Report]) -> bool:
        """Whether no problem was before this one when the worker died."""
        return self._lives[future].first_lost() is future

    def explained(self, error: BaseException) -> BaseException:
        """Return what may have killed a worker again and again."""
        from concurrent.futures import BrokenExecutor

        if not isinstance(error, BrokenExecutor):
            return error
        return BrokenExecutor(
            "the worker process died at every attempt: killed, out of memory, or the program has no "
            "'if __name__ == \"__main__\":' around what starts it"
        )

    def dismiss(self, *, at_once: bool) -> None:
        """End all workers."""
        for worker in self._workers:
            worker.end(at_once=at_once)


class _Worker:
    """A place for a process; when one has died, the next takes it."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._life: _Life | None = None

    def load(self) -> int:
        """How many problems it has."""
        return 0 if self._life is None else self._life.load()

    def alive(self) -> _Life:
        """Return its process, a new one if there is none."""
        if self._life is not None and self._life.first_lost() is not None:
            self.end(at_once=True)
        if self._life is None:
            self._life = _Life(self._threads)
        return self._life

    def end(self, *, at_once: bool) -> None:
        """End its process."""
        if self._life is not None:
            self._life.end(at_once=at_once)
            self._life = None


class _Life:
    """A pool of one process, from its start to its end; it takes its problems in turn."""

    def __init__(self, threads: int) -> None:
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context

        # A new interpreter: the pools of threads that libraries made when they loaded do not survive a fork.
        context = get_context("spawn")
        reader, self._lifeline = context.Pipe(duplex=False)
        self._pool = ProcessPoolExecutor(1, context, initializer=begin, initargs=(reader, threads))
        self._futures: list[Future[Report]] = []

    def submit(self, parcel: Parcel) -> Future[Report]:
        from concurrent.futures import BrokenExecutor

        try:
            future = self._pool.submit(attempt_packed, *parcel, None)
        except BrokenExecutor as error:  # died just now, while it was idle
            future = failed(error)
        self._futures = [*self._unfinished(), future]
        return future

    def load(self) -> int:
        return sum(not future.done() for future in self._futures)

    def first_lost(self) -> Future[Report] | None:
        """Return the first of its problems that it died over, or waited behind one that it died over."""
        return next((future for future in self._unfinished() if future.done()), None)

    def end(self, *, at_once: bool) -> None:
        if at_once:
            self._lifeline.close()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._lifeline.close()

    def _unfinished(self) -> list[Future[Report]]:
        """Return, in their order, the problems that are waiting, being fitted or lost."""
        return [future for future in self._futures if not future.done() or _is_broken(future)]


def _is_broken(future: Future[Report]) -> bool:
    from concurrent.futures import BrokenExecutor

    return not future.cancelled() and isinstance(future.exception(), BrokenExecutor)
