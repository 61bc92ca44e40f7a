"""How a fit goes about its work: settings that belong together, and what the caller said, checked."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from airnp._arrays import to_numpy
from airnp._checks import checked_number, checked_seed, checked_whole
from airnp.engines import EngineChoice
from airnp.optimizers import resolve_optimizer

Callback = Callable[[int, Any], Any]


@dataclass(frozen=True)
class Record:
    """What a fit records in its history.

    Parameters
    ----------
    every : int
        Iterations between two records: the first is recorded, every multiple of this, and the last.
    truth : array-like (…, m, n), optional
        The complete matrix, to record the NMAE on missing entries.

    Notes
    -----
    Nothing is decided by what is recorded: the answer does not depend on it.
    """

    every: int = 10
    truth: Any = None

    def __post_init__(self) -> None:
        checked_whole("every", self.every)


@dataclass(frozen=True)
class Checkpoint:
    """Where a run is saved, and how often.

    Parameters
    ----------
    path : path
        An ordinary file in a directory that exists.
    every : float
        Seconds between two writes, at least. They do not change the answer.
    """

    path: str | PathLike[str]
    every: float = 30.0

    def __post_init__(self) -> None:
        if checked_number("every", self.every) < 0:
            raise ValueError(f"every: expected at least 0 seconds, got {self.every!r}")
        # Better to hear now that there is no such directory than after an hour.
        if not isinstance(self.path, str | PathLike):
            raise TypeError(f"checkpoint: expected a path, got {type(self.path).__name__}")
        file = self.file
        if not file.parent.is_dir():
            raise FileNotFoundError(
                f"checkpoint: expected a file in a directory that exists, got {str(file)!r}"
            )
        if file.is_dir():
            raise IsADirectoryError(f"checkpoint: expected a file, got the directory {str(file)!r}")
        if file.exists() and not file.is_file():
            raise ValueError(
                f"checkpoint: expected an ordinary file, which can be replaced, got {str(file)!r}"
            )

    @property
    def file(self) -> Path:
        """The path as an object."""
        return Path(os.fsdecode(self.path))


@dataclass(frozen=True)
class Options:
    """The options of a run, checked; see :func:`airnp.fit` for what they mean."""

    max_iter: int
    seed: int
    init: Any
    optimizer: Any
    engine: EngineChoice
    record: Record
    callback: Callback | None
    progress: bool
    checkpoint: Checkpoint | None

    @classmethod
    def checked(
        cls,
        *,
        max_iter: Any,
        seed: Any,
        init: Any,
        optimizer: Any,
        learning_rate: Any,
        engine: EngineChoice,
        record: Any,
        callback: Any,
        progress: Any,
        checkpoint: Any,
    ) -> Options:
        """Return the options that a caller of ``fit`` or ``fit_sparse`` gave."""
        return cls(
            max_iter=checked_whole("max_iter", max_iter),
            seed=checked_seed(seed),
            init=init,
            optimizer=resolve_optimizer(optimizer, learning_rate),
            engine=engine,
            record=checked_record(record),
            callback=checked_callback(callback),
            progress=bool(progress),
            checkpoint=checked_checkpoint(checkpoint),
        )

    def stored(self) -> dict[str, Any]:
        """Return what a checkpoint holds of these options, as plain values and arrays.

        ``init``, ``optimizer`` and ``callback`` may be a user's own: the checkpoint sees to them by itself.
        """
        truth = self.record.truth
        return {
            "seed": self.seed,
            "engine": self.engine.settings,
            "record": Record(self.record.every, None if truth is None else to_numpy(truth)),
            "every": None if self.checkpoint is None else self.checkpoint.every,
        }

    @classmethod
    def restore(
        cls, stored: dict[str, Any], file: str, checkpoint: Checkpoint | bool | None, **given: Any
    ) -> Options:
        """Return the options of a resumed run: what :meth:`stored` returned, and what is given again."""
        if checkpoint is True:
            checkpoint = Checkpoint(file, stored["every"])
        return cls(seed=stored["seed"], record=stored["record"], checkpoint=checkpoint or None, **given)


def checked_record(record: Any) -> Record:
    """Return what ``record`` of :func:`airnp.fit` says: a number is ``Record(every=number)``."""
    if record is None:
        return Record()
    return record if isinstance(record, Record) else Record(checked_whole("record", record))


def checked_checkpoint(checkpoint: Any) -> Checkpoint | None:
    """Return what ``checkpoint`` of :func:`airnp.fit` says: a path is ``Checkpoint(path)``."""
    return checkpoint if checkpoint is None or isinstance(checkpoint, Checkpoint) else Checkpoint(checkpoint)


def checked_callback(callback: Any) -> Callback | None:
    """Return ``callback`` if it can be called, or None."""
    if callback is not None and not callable(callback):
        raise TypeError(f"callback: expected a function of (iteration, state), got {type(callback).__name__}")
    found: Callback | None = callback
    return found
