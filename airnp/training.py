"""The loop: evaluate, update, and keep a state to return to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace

from airnp._arrays import Array, to_numpy
from airnp.objective import Objective


@dataclass(frozen=True)
class _Snapshot:
    """A copy of all parameters after some iterations."""

    iteration: int
    params: list[Array]


class Training:
    """Parameters on their way down, with copies of the last whole state and of the last finite one.

    A snapshot is taken in a single assignment, so that an interrupt finds the old one or the new one, never
    a mixture.

    Parameters
    ----------
    objective : Objective
    optimizer : Optimizer
    params : list of arrays
        Owned and changed by the training from now on.
    threads : int, optional
        How many the engine may use; default as :func:`airnp.engines.threads.available_threads`.
    """

    def __init__(
        self, objective: Objective, optimizer: Any, params: list[Array], *, threads: int | None = None
    ) -> None:
        self.params = params
        self.iteration = 0
        self._objective = objective
        self._optimizer = optimizer
        graphs = len(params) - objective.depth
        self._state = optimizer.init(params, ["factor"] * objective.depth + ["graph"] * graphs)
        self._memory = objective.engine.memory(params[0])
        self._run = objective.engine.prepare(self._step, threads=threads)
        self._whole = self._finite = self._snapshot()

    def _step(self) -> Sequence[Array]:
        """Make one iteration; return fidelity and energies, as they were before it."""
        depth = self._objective.depth
        updates = self._optimizer.updates(self._state)
        found = self._objective.evaluate(self.params, updates=updates[depth:], memory=self._memory)
        moved = self._objective.engine.apply_updates(self.params[:depth], found.factor_grads, updates[:depth])
        self.params = [*moved, *found.graphs]
        return [found.fidelity, *found.energies]

    # A loss that overflows is reported by whoever reads the values; NumPy's warnings would say it again.
    @np.errstate(over="ignore", invalid="ignore", divide="ignore")
    def advance(self, iterations: int) -> npt.NDArray[np.float64]:
        """Make so many iterations; return fidelity and energies of each, shape (iterations, 1 + terms, …)."""
        values = self._run(iterations)
        if np.isfinite(values[0]).all():
            # The first of these iterations evaluated the objective right where the last ones had ended.
            self._finite = self._whole
        self.iteration += iterations
        self._whole = self._snapshot()
        return values

    @np.errstate(over="ignore", invalid="ignore", divide="ignore")
    def is_finite(self) -> bool:
        """Whether the matrix and the loss are finite at this very state."""
        found = self._objective.evaluate(self.params, memory=lambda name, shape: None)
        arrays = [self._objective.matrix(self.params), found.fidelity, *found.energies]
        return all(bool(np.isfinite(to_numpy(array)).all()) for array in arrays)

    def rewind(self) -> None:
        """Return to the end of the last :meth:`advance` that was not interrupted."""
        self._return_to(self._whole)

    def fall_back(self) -> None:
        """Return to the last state whose loss is known to be finite."""
        self._return_to(self._finite)

    def _snapshot(self) -> _Snapshot:
        return _Snapshot(self.iteration, [_copy(param) for param in self.params])

    def _return_to(self, snapshot: _Snapshot) -> None:
        self.params = [_copy(param) for param in snapshot.params]
        self.iteration = snapshot.iteration


def _copy(array: Array) -> Array:
    return array_namespace(array).asarray(array, copy=True)
