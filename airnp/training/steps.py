"""Optimiser steps on the parameters of an objective, with a copy of the last whole and finite state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from array_api_compat import is_array_api_obj, is_writeable_array

from airnp._arrays import Array, copied
from airnp.engines import EngineChoice
from airnp.engines.contract import Run, Update
from airnp.training.task import Trainable


class Steps:
    """Run optimiser steps and keep the last finite state.

    Parameters
    ----------
    objective : Trainable
    optimizer : Optimizer
    params : list of arrays
        Owned and changed by the steps from now on.
    engine : EngineChoice
        Its threads and precision.
    start : int
        How many iterations have led to these parameters already.
    origin : int
        The iteration from which the objective counts: where a fit that starts again did so.
    memory : optional
        The optimiser's, after these iterations. Default: that before its first step.
    resumable : bool
        Whether to keep a copy of the optimiser's memory, too: all that is needed to go on from there.

    Attributes
    ----------
    params : list of arrays
    iteration : int
    """

    def __init__(
        self,
        objective: Trainable,
        optimizer: Any,
        params: list[Array],
        *,
        engine: EngineChoice,
        start: int = 0,
        origin: int = 0,
        memory: Any = None,
        resumable: bool = False,
    ) -> None:
        self.params = params
        self.iteration = start
        self._objective, self._optimizer, self._engine, self._origin = objective, optimizer, engine, origin
        fresh = optimizer.init(params, objective.kinds(params))
        # What comes from a file must have the shapes and dtypes that the optimiser would have made.
        if memory is not None:
            map_arrays(_checked_like, memory, fresh)
        self._state = fresh if memory is None else memory
        self._memory = objective.engine.memory(params[0])
        self._run = self._prepared()
        self._kept = [copied(param) for param in params]
        self._kept_state = map_arrays(copied, self._state) if resumable else None
        self._kept_structure = objective.structure
        self._kept_iteration = start
        self._stepping = False

    def _prepared(self) -> Run:
        return self._objective.engine.prepare(
            self._begin,
            self._step,
            replayable=self._objective.is_plain,
            threads=self._engine.threads,
            precision=self._engine.precision,
        )

    def _begin(self) -> Sequence[Update]:
        updates: Sequence[Update] = self._optimizer.updates(self._state)
        return updates

    def _step(self, updates: Sequence[Update]) -> Sequence[Array]:
        self.params, values = self._objective.step(self.params, updates, self._memory)
        return values

    def advance(self, iterations: int) -> npt.NDArray[np.float64]:
        """Make so many iterations; return fidelity and energies of each, shape (iterations, 1 + terms, …)."""
        values = self.attempt(iterations)
        self.settle(values)
        if np.isfinite(values).all():
            self.keep()
        return values

    # A loss that overflows is reported by whoever reads the values; NumPy's warnings would say it again.
    @np.errstate(over="ignore", invalid="ignore", divide="ignore")
    def attempt(self, iterations: int) -> npt.NDArray[np.float64]:
        """Make so many iterations, as :meth:`advance`; until they are settled, they do not count."""
        self._stepping = True
        if self._objective.refresh(self.iteration - self._origin, self.params, self._state):
            self._run = self._prepared()  # a record of iterations on the old arrays is void
        return self._run(iterations)

    def settle(self, values: npt.NDArray[np.float64]) -> None:
        """Let the iterations that recorded these values count."""
        self.iteration += len(values)
        self._stepping = False

    def keep(self) -> bool:
        """Keep a copy of this state to return to, if it is finite; return whether it is."""
        if not self.is_finite():
            return False
        self._kept = [_overwrite(old, new) for old, new in zip(self._kept, self.params, strict=True)]
        if self._kept_state is not None:
            self._kept_state = map_arrays(_overwrite, self._kept_state, self._state)
        self._kept_structure = self._objective.structure
        self._kept_iteration = self.iteration
        return True

    def is_finite(self) -> bool:
        """Whether the objective is finite at this very state."""
        return self._objective.is_finite(self.params)

    def rewind(self) -> None:
        """Return to a whole state: the kept one if an iteration was cut in half, else this one is whole."""
        if self._stepping:
            self.fall_back()

    def fall_back(self) -> None:
        """Return to the last state that is known to be whole and finite."""
        self.params = [copied(param) for param in self._kept]
        if self._kept_state is not None:
            self._state = map_arrays(copied, self._kept_state)
        self._objective.structure = self._kept_structure
        self.iteration = self._kept_iteration
        self._stepping = False
        self._run = self._prepared()

    def kept(self) -> tuple[int, list[Array], Any, Any]:
        """Return iteration, parameters, optimiser's memory and structure of the kept state, to look at."""
        if self._stepping or self.iteration != self._kept_iteration:
            return self._kept_iteration, self._kept, self._kept_state, self._kept_structure
        # Equal, and the result holds the same arrays.
        return self.iteration, self.params, self._state, self._objective.structure

    def release(self) -> None:
        """Give up everything but the parameters: there will be no more iterations."""
        del self._state, self._memory, self._run, self._kept, self._kept_state


def _overwrite(target: Array, source: Array) -> Array:
    """Return ``target`` with the values of ``source``; immutable arrays need no copy."""
    if not is_writeable_array(target):
        return source
    if target.shape != source.shape:
        return copied(source)
    target[...] = source
    return target


def _checked_like(stored: Array, own: Array) -> Array:
    if tuple(stored.shape) != tuple(own.shape) or stored.dtype != own.dtype:
        raise ValueError(f"optimizer: expected {own.dtype} {own.shape}, got {stored.dtype} {stored.shape}")
    return stored


def map_arrays(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """Return a tree with ``function`` applied to the arrays at each place of it and of others like it.

    A tree is made of lists, tuples, dicts and dataclasses, such as an optimiser's memory. What is no array
    comes from the last of the trees.

    Examples
    --------
    >>> map_arrays(np.add, {"a": np.array([1]), "step": 1}, {"a": np.array([2]), "step": 2})
    {'a': array([3]), 'step': 2}
    """
    trees = (tree, *others)
    if is_array_api_obj(tree):
        return function(*trees)
    if isinstance(tree, dict):
        return {key: map_arrays(function, *(one[key] for one in trees)) for key in tree}
    if isinstance(tree, list):
        return [map_arrays(function, *parts) for parts in zip(*trees, strict=True)]
    if type(tree) is tuple:
        return tuple(map_arrays(function, *parts) for parts in zip(*trees, strict=True))
    if is_dataclass(tree) and not isinstance(tree, type):
        names = [field.name for field in fields(tree)]
        parts = {name: map_arrays(function, *(getattr(one, name) for one in trees)) for name in names}
        return replace(tree, **parts)
    return trees[-1]
