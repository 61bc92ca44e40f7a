"""Worker processes of airnp's own, which may die one by one without harm to the others."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from airnp.fleet.crews import Parcel, failed, processors, threads_each
from airnp.fleet.workers import Arguments, Report, attempt_packed, begin, packed, pickled

if TYPE_CHECKING:
    from concurrent.futures import Future


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
