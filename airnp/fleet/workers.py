"""The code that runs in a worker, and the pickling that sends problems there."""

from __future__ import annotations

import importlib
import io
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

from airnp.fitting import fit

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from airnp.results.result import FitResult

_POOLS = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

Arguments = Mapping[str, Any]

# --- in the worker ---


@dataclass(frozen=True, eq=False)
class Report:
    """The outcome of one fit; exactly one of ``result`` and ``error`` is not None."""

    result: FitResult | None
    error: Exception | None
    trace: str
    seconds: float


def attempt(shared: Arguments, own: Arguments) -> Report:
    """Fit one problem; return an exception as part of the report."""
    start = time.perf_counter()
    try:
        result = fit(**{**shared, **own})
    except Exception as error:
        return Report(None, error, traceback.format_exc(), time.perf_counter() - start)
    return Report(result, None, "", time.perf_counter() - start)


def attempt_packed(shared: bytes, own: bytes, threads: int | None) -> Report:
    """Fit one pickled problem, with ``threads`` for BLAS, or with those of the process if None."""
    from threadpoolctl import threadpool_limits

    with nullcontext() if threads is None else threadpool_limits(threads, user_api="blas"):
        report = attempt(pickle.loads(shared), pickle.loads(own))
    if report.error is None or _can_be_sent(report.error):
        return report
    error = RuntimeError(f"{type(report.error).__name__}: {report.error}")
    return replace(report, error=error)


def _can_be_sent(error: Exception) -> bool:
    """Whether an exception can be pickled and back; many with a constructor of their own cannot."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return False
    return True


def start_worker(lifeline: Connection, threads: int) -> None:
    """Initialise a worker process: limit its threads, and make it exit when its parent does."""
    # Ctrl-C reaches all processes of the group, and an interrupted fit would return an unfinished result.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, args=(lifeline,), daemon=True).start()
    os.environ.update(dict.fromkeys(_POOLS, str(threads)))
    if "numba" in sys.modules:
        config: Any = importlib.import_module("numba.core.config")
        config.reload_config()
    from threadpoolctl import threadpool_limits

    threadpool_limits(threads)


def _exit_with_parent(lifeline: Connection) -> None:
    """Exit, even in the middle of a fit, when the parent closes the pipe."""
    try:
        lifeline.recv_bytes()
    except (EOFError, OSError):
        os._exit(1)


# --- sending ---


class _ModulePickler(pickle.Pickler):
    """Pickles modules, such as ``xp=cupy``, by name."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, ModuleType):
            return importlib.import_module, (value.__name__,)
        return NotImplemented


def pickle_plain(value: Any) -> bytes:
    """Return a value as bytes, by the standard pickle, which must find functions by name; modules as well."""
    buffer = io.BytesIO()
    _ModulePickler(buffer, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    return buffer.getvalue()


def pack(arguments: Arguments, dumps: Callable[[Any], bytes]) -> bytes:
    """Return arguments as bytes; raise TypeError naming one that cannot be sent."""
    try:
        return dumps(dict(arguments))
    except Exception as error:
        for name, value in arguments.items():
            try:
                dumps(value)
            except Exception as reason:
                raise TypeError(
                    f"{name}: expected what can be sent to another process, such as a function at the top "
                    f"level of a module, got {value!r:.200} ({reason})"
                ) from error
        raise
