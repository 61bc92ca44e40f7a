"""The loop: evaluate, update, and keep a state to return to."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace, is_array_api_obj, is_writeable_array

from airnp._arrays import Array, copied, to_numpy
from airnp.engines.contract import NO_MEMORY, Precision, Run, Update
from airnp.model.objective import Objective

_SAFE_SIZE = 1e12
"""A matrix with entries below this has a finite loss in float32: squares and sums stay far from overflow."""


class Training:
    """Parameters on their way down, with a copy of the last state that is whole and finite.

    Parameters
    ----------
    objective : Objective
    optimizer : Optimizer
    params : list of arrays
        Owned and changed by the training from now on.
    start : int
        How many iterations have led to these parameters already.
    threads : int, optional
        How many the engine may use; default as :func:`airnp.engines.threads.available_threads`.
    precision : {"tf32"}, optional
        What the engine's products may round to.
    memory : optional
        The optimiser's, after these iterations. Default: that before its first step.
    resumable : bool
        Whether to keep a copy of the optimiser's memory, too: all that is needed to go on from there.
    """

    def __init__(
        self,
        objective: Objective,
        optimizer: Any,
        params: list[Array],
        *,
        start: int = 0,
        threads: int | None = None,
        precision: Precision | None = None,
        memory: Any = None,
        resumable: bool = False,
    ) -> None:
        self.params = params
        self.iteration = start
        self._objective = objective
        self._optimizer = optimizer
        graphs = len(params) - objective.depth
        kinds = ["factor"] * objective.depth + ["graph"] * graphs
        self._state = optimizer.init(params, kinds) if memory is None else memory
        self._memory = objective.engine.memory(params[0])
        self._threads, self._precision = threads, precision
        self._run = self._prepared()
        self._kept = [copied(param) for param in params]
        self._kept_state = mapped(copied, self._state) if resumable else None
        self._kept_iteration = start
        self._stepping = False

    def _prepared(self) -> Run:
        objective = self._objective
        return objective.engine.prepare(
            self._begin,
            self._step,
            replayable=objective.is_plain,
            threads=self._threads,
            precision=self._precision,
        )

    def _begin(self) -> Sequence[Update]:
        updates: Sequence[Update] = self._optimizer.updates(self._state)
        return updates

    def _step(self, updates: Sequence[Update]) -> Sequence[Array]:
        """Make one iteration; return fidelity and energies, as they were before it."""
        depth, memory = self._objective.depth, self._memory
        found = self._objective.evaluate(self.params, updates=updates[depth:], memory=memory)
        moved = self._objective.engine.apply_updates(self.params[:depth], found.factor_grads, updates[:depth])
        for grad in found.factor_grads:
            memory.give(grad)
        self.params = [*moved, *found.graphs]
        return [found.fidelity, *found.energies]

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
        return self._run(iterations)

    def settle(self, values: npt.NDArray[np.float64]) -> None:
        """Let the iterations that recorded these values count."""
        self.iteration += len(values)
        self._stepping = False

    def keep(self) -> bool:
        """Keep a copy of this state to return to, if it is finite; return whether it is."""
        if not self.is_finite():
            return False
        self._kept = [_overwritten(old, new) for old, new in zip(self._kept, self.params, strict=True)]
        if self._kept_state is not None:
            self._kept_state = mapped(_overwritten, self._kept_state, self._state)
        self._kept_iteration = self.iteration
        return True

    def _is_moderate(self) -> bool:
        """Whether all parameters are so small that matrix and loss must be finite; far cheaper than to look.

        An entry of a product is at most the product of the factors' largest entries times r for every
        inner dimension.
        """
        sizes = _largest(self.params)
        depth = self._objective.depth
        entry = math.prod(sizes[:depth]) * float(self._objective.rank) ** (depth - 1)
        return entry < _SAFE_SIZE and all(size < 80 for size in sizes[depth:])

    @np.errstate(over="ignore", invalid="ignore", divide="ignore")
    def is_finite(self) -> bool:
        """Whether the matrix and the loss are finite at this very state."""
        if self._is_moderate():
            return True
        found = self._objective.evaluate(self.params, memory=NO_MEMORY)
        arrays = [self._objective.matrix(self.params), found.fidelity, *found.energies]
        return all(bool(np.isfinite(to_numpy(array)).all()) for array in arrays)

    def rewind(self) -> None:
        """Return to a whole state: the kept one if an iteration was cut in half, else this one is whole."""
        if self._stepping:
            self.fall_back()

    def fall_back(self) -> None:
        """Return to the last state that is known to be whole and finite."""
        self.params = [copied(param) for param in self._kept]
        if self._kept_state is not None:
            self._state = mapped(copied, self._kept_state)
        self.iteration = self._kept_iteration
        self._stepping = False
        self._run = self._prepared()  # a record of iterations on the old arrays is void

    def kept(self) -> tuple[int, list[Array], Any]:
        """Return iteration, parameters and optimiser's memory of the kept state, to look at."""
        if self._stepping or self.iteration != self._kept_iteration:
            return self._kept_iteration, self._kept, self._kept_state
        return self.iteration, self.params, self._state  # equal, and the result holds the same arrays

    def release(self) -> None:
        """Give up everything but the parameters: there will be no more iterations."""
        del self._state, self._memory, self._run, self._kept, self._kept_state


def _largest(arrays: Sequence[Array]) -> list[float]:
    """Return the largest magnitude in each array, brought from the device all at once."""
    xp = array_namespace(*arrays)
    found = to_numpy(xp.stack([extreme(array) for array in arrays for extreme in (xp.max, xp.min)]))
    return [float(max(top, -bottom)) for top, bottom in found.reshape(-1, 2)]


def _overwritten(target: Array, source: Array) -> Array:
    """Return ``target`` with the values of ``source``; immutable arrays need no copy."""
    if not is_writeable_array(target):
        return source
    target[...] = source
    return target


def mapped(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """Return a tree with ``function`` applied to the arrays at each place of it and of others like it.

    What is no array comes from the last of the trees.

    Examples
    --------
    >>> import numpy as np
    >>> mapped(np.add, {"a": np.array([1]), "step": 1}, {"a": np.array([2]), "step": 2})
    {'a': array([3]), 'step': 2}
    """
    trees = (tree, *others)
    if is_array_api_obj(tree):
        return function(*trees)
    if isinstance(tree, dict):
        return {key: mapped(function, *(one[key] for one in trees)) for key in tree}
    if isinstance(tree, list):
        return [mapped(function, *parts) for parts in zip(*trees, strict=True)]
    if type(tree) is tuple:
        return tuple(mapped(function, *parts) for parts in zip(*trees, strict=True))
    if is_dataclass(tree) and not isinstance(tree, type):
        names = [field.name for field in fields(tree)]
        parts = {name: mapped(function, *(getattr(one, name) for one in trees)) for name in names}
        return replace(tree, **parts)
    return trees[-1]
