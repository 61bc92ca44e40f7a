"""The file that a run leaves behind every now and then: its result so far, and all that it needs to go on.

To :func:`airnp.load` such a file is a result like any other. What :func:`airnp.resume` needs besides stands
in the header under ``"run"``, and in arrays called ``run_0``, ``run_1``, … that it refers to; an array that
is part of the result already is not stored again.

A run of the dense form and one of the sparse form differ in what they were asked to do, a :class:`RunTask`,
and in where they are, a dataclass; the file is the same.
"""

from __future__ import annotations

import os
import time
import warnings
from dataclasses import dataclass, fields
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from array_api_compat import is_numpy_namespace

from airnp._arrays import Array, namespace_name, to_numpy
from airnp.completing.lowrank import LowRank
from airnp.data.prepared import PreparedData
from airnp.model.objective import Model
from airnp.results.files import result_record, write_archive
from airnp.results.result import FitResult
from airnp.training.monitors import Choice
from airnp.training.options import Options
from airnp.training.records import Packer, UnstorableError
from airnp.training.stopping import StopRule

_STORED_OPTIONS = ("max_iter", "record_every", "seed", "threads", "precision", "file_every")


class RunTask(Protocol):
    """What a run was asked to do, as its file wants to know it."""

    @property
    def max_iter(self) -> int:
        """Iterations at most."""

    def record(self, result: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return a result as a header that JSON can hold, and named arrays of NumPy."""

    def packed(self, packer: Packer, given: dict[str, str]) -> Any:
        """Return the task as JSON can hold it; ``given`` gets what must be given again, and why."""


@dataclass(frozen=True)
class Task:
    """What a run of the dense form was asked to do; none of it changes on the way.

    ``model`` names the regularisers and the engine that were chosen in the end.
    """

    data: PreparedData
    model: Model
    rule: StopRule
    options: Options

    @property
    def max_iter(self) -> int:
        """Iterations at most."""
        return self.options.max_iter

    def record(self, result: FitResult) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return a result as a header that JSON can hold, and named arrays of NumPy."""
        return result_record(result.to_numpy())

    def packed(self, packer: Packer, given: dict[str, str]) -> Any:
        """Return the task as JSON can hold it; ``given`` gets what must be given again, and why."""
        data, model, options = self.data, self.model, self.options
        seen = data.observations
        asked = {
            "regularizers": list(model.regularizers or ()),
            "stop": self.rule,
            "optimizer": options.optimizer,
        }
        stored = packed_if_possible(packer, asked, given)
        if data.operator is not None:
            given["operator"] = "an operator"
        note_code(given, options.callback, seen.xp)
        plain = {
            "shape": data.shape,
            "values": seen.values,
            "mask": seen.mask,
            "weights": seen.weights,
            "original": data.original,
            "offset": data.normalization.offset,
            "scale": data.normalization.scale,
            "bounds": data.bounds,
            "truth": None if options.truth is None else to_numpy(options.truth),
            "model": {each.name: getattr(model, each.name) for each in fields(model)[1:]},
            "options": {name: getattr(options, name) for name in _STORED_OPTIONS},
        }
        kind = {"namespace": namespace_name(seen.xp), "dtype": seen.dtype}
        return {**kind, "asked": stored, "plain": packer.packed(plain)}


def packed_if_possible(packer: Packer, asked: dict[str, Any], given: dict[str, str]) -> dict[str, Any]:
    """Return what the user asked for as JSON can hold it; ``given`` gets the names of what it cannot."""
    stored: dict[str, Any] = {}
    for name, value in asked.items():
        try:
            stored[name] = packer.packed(value)
        except UnstorableError as error:
            given[name] = str(error)
    return stored


def note_code(given: dict[str, str], callback: Any, xp: Any) -> None:
    """Note in ``given`` a callback, and a namespace other than NumPy."""
    if callback is not None:
        given["callback"] = "a callback"
    if not is_numpy_namespace(xp):
        given["xp"] = f"arrays of {namespace_name(xp)}"


class Checkpoint:
    """The file of one run.

    Parameters
    ----------
    path : Path
    every : float
        Seconds from the start of one write to that of the next, at least.
    task : RunTask
    """

    def __init__(self, path: Path, every: float, task: RunTask) -> None:
        self._path, self._every, self._task = path, every, task
        self._started = time.monotonic()

    @property
    def is_due(self) -> bool:
        """Whether the file is old enough to be replaced."""
        return time.monotonic() - self._started >= self._every

    def write(self, result: Any, state: Any, *, finished: bool, used_up: bool) -> None:
        """Replace the file; a full disk must not cost the fit itself.

        Parameters
        ----------
        result : FitResult or SparseFitResult
            So far, or in the end.
        state : dataclass, str or None
            Where to go on from (:class:`RunState`, or that of the sparse form); or why that cannot be;
            None where there is no need to.
        finished : bool
            Whether the run has come to its end.
        used_up : bool
            Whether its first phase ended because its iterations were used up.
        """
        self._started = time.monotonic()
        header, arrays = self._task.record(result)
        packer = Packer(arrays)
        run: dict[str, Any] = {
            "saved_at": time.time(),
            "max_iter": self._task.max_iter,
            "finished": finished,
            "used_up": used_up,
            "given": {},
            "task": None,
            "state": None,
            "obstacle": None,
        }
        try:
            if isinstance(state, str):
                raise UnstorableError(state)
            if state is not None:
                run["task"] = self._task.packed(packer, run["given"])
                run["state"] = packer.packed({each.name: getattr(state, each.name) for each in fields(state)})
        except UnstorableError as error:
            run |= {"task": None, "state": None, "obstacle": str(error)}
            packer = Packer()
        try:
            write_archive(self._path, {**header, "run": run}, arrays | packer.arrays)
        except OSError as error:
            warnings.warn(f"checkpoint: could not write {self._path}: {error}", RuntimeWarning, stacklevel=3)


def checked_file(path: Any) -> Path:
    """Return where to save checkpoints; better to hear now that there is no such directory than later."""
    if not isinstance(path, str | PathLike):
        raise TypeError(f"checkpoint: expected a path, got {type(path).__name__}")
    file = Path(os.fsdecode(path))
    if not file.parent.is_dir():
        raise FileNotFoundError(f"checkpoint: expected a file in a directory that exists, got {str(file)!r}")
    if file.is_dir():
        raise IsADirectoryError(f"checkpoint: expected a file, got the directory {str(file)!r}")
    if file.exists() and not file.is_file():
        raise ValueError(f"checkpoint: expected an ordinary file, which can be replaced, got {str(file)!r}")
    return file


@dataclass(frozen=True)
class RunState:
    """What changes during a fit, without its history; what does not is in the caller's arguments.

    Attributes
    ----------
    iteration : int
        How many were made.
    params : list of arrays
        Factors W[0] … W[L-1], then V of each learned graph.
    memory : object
        The optimiser's.
    energies : ndarray or None
        Of the last iteration.
    monitors : list of dict
        What the monitor remembers, and that of the second phase once it has begun.
    stopped : str or None
        Why a monitor has just ended its phase.
    start, limit : int
        The iterations at which this phase began, and will end at the latest.
    chosen : Choice or None
        The iterate that the second phase began with; None in the first.
    ended : str or None
        Why the first phase ended, once it has.
    used_up : bool
        Whether it ended because its iterations were used up.
    held_out : ndarray of bool or None
        Entries that the first phase must not see.
    explained : list of LowRank or None
        The rival of low rank of each problem.
    replaced : ndarray of bool
        Which problems' answers the rivals replace.
    """

    iteration: int
    params: list[Array]
    memory: Any
    energies: npt.NDArray[np.float64] | None
    monitors: list[dict[str, Any]]
    stopped: str | None
    start: int
    limit: int
    chosen: Choice | None
    ended: str | None
    used_up: bool
    held_out: npt.NDArray[np.bool_] | None
    explained: list[LowRank | None] | None
    replaced: npt.NDArray[np.bool_]
