"""The file that a run writes every now and then: its result so far, and all that it needs to go on.

To :func:`airnp.load` such a file is a result like any other. What :func:`airnp.resume` needs besides stands
in the header under ``"run"``, and in arrays called ``run_0``, ``run_1``, … that it refers to; an array that
is part of the result already is not stored again.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import fields
from typing import Any

from array_api_compat import is_numpy_namespace

from airnp._arrays import namespace_name
from airnp.results.files import write_archive
from airnp.training.options import Options
from airnp.training.records import Packer, UnstorableError
from airnp.training.run import RunState
from airnp.training.stopping import StopRule
from airnp.training.task import Task


class CheckpointFile:
    """The file of one run.

    Parameters
    ----------
    task : Task
    rule : StopRule
    options : Options
        With a checkpoint.
    """

    def __init__(self, task: Task, rule: StopRule, options: Options) -> None:
        assert options.checkpoint is not None
        self._path, self._every = options.checkpoint.file, options.checkpoint.every
        self._task, self._rule, self._options = task, rule, options
        self._started = time.monotonic()

    @property
    def is_due(self) -> bool:
        """Whether the file is old enough to be replaced."""
        return time.monotonic() - self._started >= self._every

    def write(self, result: Any, state: RunState | str | None, *, finished: bool, used_up: bool) -> None:
        """Replace the file; warn if it cannot be written, since a full disk must not cost the fit itself.

        Parameters
        ----------
        result : FitResult or SparseFitResult
            So far, or in the end.
        state : RunState, str or None
            Where to go on from; or why that cannot be; None where there is no need to.
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
            "max_iter": self._options.max_iter,
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
                run["task"] = self._packed_task(packer, run["given"])
                run["state"] = packer.packed({each.name: getattr(state, each.name) for each in fields(state)})
        except UnstorableError as error:
            run |= {"task": None, "state": None, "obstacle": str(error)}
            packer = Packer()
        try:
            write_archive(self._path, {**header, "run": run}, arrays | packer.arrays)
        except OSError as error:
            warnings.warn(f"checkpoint: could not write {self._path}: {error}", RuntimeWarning, stacklevel=3)

    def _packed_task(self, packer: Packer, given: dict[str, str]) -> dict[str, Any]:
        """Return data and settings as JSON can hold them; name in ``given`` what must be given again."""
        options, stored = self._options, self._task.stored()
        asked = {
            "regularizers": stored.pop("regularizers"),
            "stop": self._rule,
            "optimizer": options.optimizer,
            "init": options.init if self._task.refit == "restart" else None,
        }
        if stored.pop("operator", None) is not None:
            given["operator"] = "an operator"
        if options.callback is not None:
            given["callback"] = "a callback"
        if not is_numpy_namespace(self._task.xp):
            given["xp"] = f"arrays of {namespace_name(self._task.xp)}"
        packed: dict[str, Any] = {}
        for name, value in asked.items():
            try:
                packed[name] = packer.packed(value)
            except UnstorableError as error:
                given[name] = str(error)
        return {
            "namespace": namespace_name(self._task.xp),
            "dtype": self._task.dtype,
            "asked": packed,
            "stored": packer.packed(stored),
            "options": packer.packed(options.stored()),
        }
