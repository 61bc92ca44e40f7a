"""How many threads a fit may use, and the choice between several threads and one while it runs.

The CPU engine splits products into bands, each multiplied by single-threaded BLAS, and runs everything
entrywise in the same bands. So numba's pool is the only one at work; BLAS's own pool is idle during a run.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

from airnp._checks import checked_whole

_VARIABLES = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_current = threading.local()
_forked = False


def _after_fork() -> None:
    # GNU OpenMP cannot be used again in a forked child, which therefore works with one thread.
    global _forked
    _forked = True


os.register_at_fork(after_in_child=_after_fork)


def available_threads() -> int:
    """Return the default number of threads of a fit.

    It is the smallest of the environment variables ``NUMBA_NUM_THREADS``, ``OMP_NUM_THREADS``,
    ``OPENBLAS_NUM_THREADS`` and ``MKL_NUM_THREADS``, and at most the number of processors that this process
    may run on.
    """
    limits = [len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1]
    for variable in _VARIABLES:
        text = os.environ.get(variable, "").split(",")[0].strip()
        if text.isdigit() and int(text) > 0:
            limits.append(int(text))
    return min(limits)


def checked_threads(threads: Any) -> int:
    """Return the number of threads for a caller's argument; None means :func:`available_threads`."""
    if threads is None:
        return available_threads()
    return checked_whole("threads", threads)


def current_threads() -> int:
    """Return how many threads the operations of this Python thread may use now."""
    return getattr(_current, "count", 1)


@cache
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def let_work(threads: int) -> None:
    """Set how many threads of numba's pool work on the chunks of the following operations."""
    _launch()
    from numba import set_num_threads

    set_num_threads(threads)


@cache
def _launch() -> None:
    """Start numba's pool, which would set the threads of everything that uses OpenMP, such as PyTorch."""
    from numba import get_num_threads, set_num_threads
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=None, user_api="openmp"):
        set_num_threads(get_num_threads())


@contextmanager
def using(threads: int) -> Iterator[int]:
    """Let the operations of this Python thread use ``threads`` threads, and BLAS one.

    Yields the actual number: one in a forked process, and never more than numba's pool has.
    """
    from numba import config, get_num_threads, set_num_threads

    threads = 1 if _forked else min(threads, int(getattr(config, "NUMBA_NUM_THREADS", 1)))
    before = current_threads()
    with _controller().limit(limits=1, user_api="blas"):
        if threads > 1:
            _launch()
            of_numba = get_num_threads()
            set_num_threads(threads)
        _current.count = threads
        try:
            yield threads
        finally:
            _current.count = before
            if threads > 1:
                set_num_threads(of_numba)


Result = TypeVar("Result")

_MEMORY = 1 / 8
"""Weight of the last iteration in the running mean."""

_TRIAL_ITERATIONS, _TRIAL_SECONDS = 3, 0.02
"""A trial ends after both; its first iteration is not counted."""

_TRIAL_SHARE = 0.02
"""The largest share of the time that trials may take."""

_SHORTEST, _LONGEST = 0.1, 2.0
"""Seconds between trials; they double whenever a trial changed nothing."""

_SUSPICIOUS = 1.4
"""Start a trial at once if the running mean has grown by this factor since the last one."""

_BETTER = 0.95
"""The other choice must take less than this share of the time to be chosen."""


class Pace:
    """Runs iterations with several threads or with one, whichever is currently faster.

    Parameters
    ----------
    threads : int
        The most threads, at least 2.
    set_threads : callable
        Sets the number of threads of the following iterations.
    clock : callable
        Returns seconds, from any origin.

    Attributes
    ----------
    threads : int
        Threads of the next iteration.
    """

    def __init__(
        self,
        threads: int,
        set_threads: Callable[[int], object],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.threads = threads
        self._several = threads
        self._set_threads = set_threads
        self._clock = clock
        self._mean = 0.0  # seconds of an iteration with the present choice; 0 before the first one
        self._usual = 0.0  # that mean when the last trial ended
        self._pause = _SHORTEST
        self._next_trial = clock() + self._pause
        self._trial: list[float] | None = None

    def run(self, iteration: Callable[[], Result]) -> Result:
        """Run and time one iteration, and choose the threads of the next one."""
        start = self._clock()
        result = iteration()
        now = self._clock()
        if self._trial is None:
            self._note(now - start, now)
        else:
            self._trial.append(now - start)
            if len(self._trial) >= _TRIAL_ITERATIONS and sum(self._trial) >= _TRIAL_SECONDS:
                self._conclude(self._trial, now)
        return result

    def resume(self) -> None:
        """Set the number of threads again, after other code may have changed it."""
        self._set_threads(self.threads)

    def _note(self, seconds: float, now: float) -> None:
        self._mean += (seconds - self._mean) * (_MEMORY if self._mean else 1.0)
        if self._usual and self._mean > _SUSPICIOUS * self._usual:
            self._next_trial = min(self._next_trial, now)
            self._usual = self._mean  # only one trial per rise
        if now >= self._next_trial:
            self._trial = []
            self._use(1 if self.threads > 1 else self._several)

    def _conclude(self, trial: list[float], now: float) -> None:
        counted = trial[1:]
        mean = sum(counted) / len(counted)
        if mean < _BETTER * self._mean:
            self._mean, self._pause = mean, _SHORTEST
        else:
            self._use(1 if self.threads > 1 else self._several)
            self._pause = min(2 * self._pause, _LONGEST)
        self._usual = self._mean
        self._next_trial = now + max(self._pause, sum(trial) / _TRIAL_SHARE)
        self._trial = None

    def _use(self, threads: int) -> None:
        self.threads = threads
        self._set_threads(threads)
