"""One policy for threads: how many a fit may use, and that no two pools ever work against each other.

Products are cut into bands by the CPU engine itself, each multiplied by single-threaded BLAS, and
everything entrywise runs in the same bands. So there is one pool, numba's, and BLAS's own stays idle for
the time of a run.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from airnp._checks import checked_whole

_VARIABLES = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_current = threading.local()
_forked = False


def _after_fork() -> None:
    # GNU OpenMP cannot be used again in a forked child; such a process works with one thread.
    global _forked
    _forked = True


os.register_at_fork(after_in_child=_after_fork)


def available_threads() -> int:
    """Return how many threads a fit uses unless told otherwise.

    The smallest number that the environment names (``NUMBA_NUM_THREADS``, ``OMP_NUM_THREADS``,
    ``OPENBLAS_NUM_THREADS``, ``MKL_NUM_THREADS``), at most one for each processor that this process may
    run on.
    """
    limits = [len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1]
    for variable in _VARIABLES:
        text = os.environ.get(variable, "").split(",")[0].strip()
        if text.isdigit() and int(text) > 0:
            limits.append(int(text))
    return min(limits)


def checked_threads(threads: Any) -> int:
    """Return the number of threads to use for what a caller said."""
    if threads is None:
        return available_threads()
    return checked_whole("threads", threads)


def current_threads() -> int:
    """Return how many threads the operations of this Python thread may use right now."""
    return getattr(_current, "count", 1)


@cache
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def let_work(threads: int) -> None:
    """Let so many threads of the pool carry out the chunks of the operations that follow."""
    from numba import set_num_threads

    set_num_threads(threads)


@contextmanager
def using(threads: int) -> Iterator[int]:
    """Let the operations of this Python thread use so many threads, and BLAS none of its own.

    Gives the number that there really is: one in a forked process, and never more than numba's pool has.
    """
    from numba import config

    threads = 1 if _forked else min(threads, int(getattr(config, "NUMBA_NUM_THREADS", 1)))
    before = current_threads()
    with _controller().limit(limits=1, user_api="blas"):
        if threads > 1:
            let_work(threads)
        _current.count = threads
        try:
            yield threads
        finally:
            _current.count = before
