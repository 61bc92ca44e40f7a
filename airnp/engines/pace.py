"""Several threads or one? Decided again and again by what iterations lately took.

Threads that wait for each other many times an iteration suffer out of proportion when another process
takes one of their processors: all of them wait for the one that does not run. One thread is then quicker.
Nobody can know beforehand, so the other choice is tried now and then, and the quicker one goes on. The
answer does not depend on it: the work is cut in the same way, only who does it changes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")

_MEMORY = 1 / 8
"""Weight of the last iteration in the running mean."""

_TRIAL_ITERATIONS, _TRIAL_SECONDS = 3, 0.02
"""A trial ends when it had so many iterations and lasted so long. Its first iteration does not count."""

_TRIAL_SHARE = 0.02
"""How much of the time trials may take."""

_SHORTEST, _LONGEST = 0.1, 2.0
"""Seconds from one trial to the next, twice as many whenever a trial changed nothing."""

_SUSPICIOUS = 1.4
"""A running mean so many times that of the last trial calls for another one at once."""

_BETTER = 0.95
"""The other choice must take less than so much of the time."""


class Pace:
    """Runs iterations with several threads or with one, whichever is quicker at the time.

    Parameters
    ----------
    threads : int
        How many there may be, at least 2.
    set_threads : callable
        Makes the following iterations use so many.
    clock : callable
        Seconds, from any origin.

    Attributes
    ----------
    threads : int
        How many the next iteration uses.
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
        self._mean = 0.0  # of the present choice; 0 before its first iteration
        self._usual = 0.0  # the mean when the last trial ended
        self._pause = _SHORTEST
        self._next_trial = clock() + self._pause
        self._trial: list[float] | None = None

    def run(self, iteration: Callable[[], Result]) -> Result:
        """Make one iteration, time it, and choose the threads of the next."""
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
        """Go on after a while in which others may have set the number of threads."""
        self._set_threads(self.threads)

    def _note(self, seconds: float, now: float) -> None:
        self._mean += (seconds - self._mean) * (_MEMORY if self._mean else 1.0)
        if self._usual and self._mean > _SUSPICIOUS * self._usual:
            self._next_trial = min(self._next_trial, now)
            self._usual = self._mean  # one trial for each rise
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
