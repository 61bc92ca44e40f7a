"""What happens in a worker of a fleet, and how a problem gets there."""

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
from dataclasses import dataclass
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
    """How one fit went; exactly one of ``result`` and ``error`` is there."""

    result: FitResult | None
    error: Exception | None
    trace: str
    seconds: float


def attempt(shared: Arguments, own: Arguments) -> Report:
    """Fit one problem, and report an error as an error of this problem alone."""
    start = time.perf_counter()
    try:
        result = fit(**{**shared, **own})
    except Exception as error:
        return Report(None, error, traceback.format_exc(), time.perf_counter() - start)
    return Report(result, None, "", time.perf_counter() - start)


def attempt_packed(shared: bytes, own: bytes, threads: int | None) -> Report:
    """Fit one problem that came as bytes, with so many threads for BLAS; None: this is settled already."""
    from threadpoolctl import threadpool_limits

    with nullcontext() if threads is None else threadpool_limits(threads, user_api="blas"):
        report = attempt(pickle.loads(shared), pickle.loads(own))
    if report.error is None or _survives(report.error):
        return report
    told = RuntimeError(f"{type(report.error).__name__}: {report.error}")
    return Report(None, told, report.trace, report.seconds)


def _survives(error: Exception) -> bool:
    """Whether an exception can be sent to another process; many with a constructor of their own cannot."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return False
    return True


def begin(lifeline: Connection, threads: int) -> None:
    """Make ready a worker process of airnp's own: few threads, and an end when its owner ends."""
    # An interrupt goes to the whole group of processes, and a fit would answer it with an unfinished result.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()
    os.environ.update(dict.fromkeys(_POOLS, str(threads)))
    if "numba" in sys.modules:
        config: Any = importlib.import_module("numba.core.config")
        config.reload_config()
    from threadpoolctl import threadpool_limits

    threadpool_limits(threads)


def _end_with(lifeline: Connection) -> None:
    """End this process, in the middle of a fit if it must be, when nobody holds the line's other end."""
    try:
        lifeline.recv_bytes()
    except (EOFError, OSError):
        os._exit(1)


# --- sending ---


class _Pickler(pickle.Pickler):
    """Pickles modules, such as ``xp=cupy``, by their names."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, ModuleType):
            return importlib.import_module, (value.__name__,)
        return NotImplemented


def pickled(value: Any) -> bytes:
    """Return the bytes of what plain pickle knows, and of modules."""
    buffer = io.BytesIO()
    _Pickler(buffer, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    return buffer.getvalue()


def packed(arguments: Arguments, dumps: Callable[[Any], bytes]) -> bytes:
    """Return arguments as bytes; one that cannot be sent is named."""
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
