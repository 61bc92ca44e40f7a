"""How a fit goes about its work: what the caller said, checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airnp._checks import checked_number
from airnp.engines.contract import Precision
from airnp.training.recorder import FitState

Callback = Callable[[int, FitState], Any]


@dataclass(frozen=True)
class Options:
    """See :func:`airnp.fit`; ``file`` is its ``checkpoint``, ``file_every`` its ``checkpoint_every``."""

    max_iter: int
    record_every: int
    seed: int
    init: Any
    optimizer: Any
    threads: int
    precision: Precision | None
    truth: Any
    callback: Callback | None
    progress: bool
    file: Path | None
    file_every: float


def checked_callback(callback: Any) -> Callback | None:
    """Return ``callback`` if it can be called, or None."""
    if callback is not None and not callable(callback):
        raise TypeError(f"callback: expected a function of (iteration, state), got {type(callback).__name__}")
    found: Callback | None = callback
    return found


def checked_seconds(seconds: Any) -> float:
    """Return the time between two checkpoints as a float if it is a number of at least 0, else raise."""
    found = checked_number("checkpoint_every", seconds)
    if found < 0:
        raise ValueError(f"checkpoint_every: expected at least 0 seconds, got {seconds!r}")
    return found
