"""The loop: evaluate, update, record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace, is_writeable_array

from airnp._arrays import Array
from airnp.objective import Objective


class Training:
    """Parameters on their way down, with a copy of the last state that was known to be finite.

    Parameters
    ----------
    objective : Objective
    optimizer : Optimizer
    params : list of arrays
        Owned and changed by the training from now on.
    """

    def __init__(self, objective: Objective, optimizer: Any, params: list[Array]) -> None:
        self.params = params
        self.iteration = 0
        self._objective = objective
        self._optimizer = optimizer
        graphs = len(params) - objective.depth
        self._state = optimizer.init(params, ["factor"] * objective.depth + ["graph"] * graphs)
        self._memory = objective.engine.memory(params[0])
        self._run = objective.engine.prepare(self._step)
        self._safe = [_copy(param) for param in params]
        self.kept_iteration = 0

    def _step(self) -> Sequence[Array]:
        """Make one iteration; return fidelity and energies, as they were before it."""
        depth = self._objective.depth
        updates = self._optimizer.updates(self._state)
        found = self._objective.evaluate(self.params, updates=updates[depth:], memory=self._memory)
        moved = self._objective.engine.apply_updates(self.params[:depth], found.factor_grads, updates[:depth])
        self.params = [*moved, *found.graphs]
        return [found.fidelity, *found.energies]

    def advance(self, iterations: int) -> npt.NDArray[np.float64]:
        """Make so many iterations; return fidelity and energies of each, shape (iterations, 1 + terms, …)."""
        values = self._run(iterations)
        self.iteration += iterations
        return values

    def keep(self) -> None:
        """Remember this state as the one to fall back to."""
        self._safe = [_overwritten(old, new) for old, new in zip(self._safe, self.params, strict=True)]
        self.kept_iteration = self.iteration

    def fall_back(self) -> None:
        """Return to the state that was last kept."""
        self.params = [_copy(param) for param in self._safe]
        self.iteration = self.kept_iteration


def _copy(array: Array) -> Array:
    return array_namespace(array).asarray(array, copy=True)


def _overwritten(target: Array, source: Array) -> Array:
    """Return ``target`` with the values of ``source``; immutable arrays need no copy."""
    if not is_writeable_array(target):
        return source
    target[...] = source
    return target
