"""Iterations of the sparse form: evaluate, update, and now and then look for neighbours again."""

from __future__ import annotations

from typing import Any

import numpy as np

from airnp._arrays import to_numpy
from airnp.sparse.batches import Batches
from airnp.sparse.edges import Exchange
from airnp.sparse.model import SparseModel
from airnp.sparse.parameters import SparseState
from airnp.sparse.start import candidates, is_searched


class SparseTraining:
    """Parameters on their way down.

    Parameters
    ----------
    model : SparseModel
    optimizer : Optimizer
    state : SparseState
        Where to start; changed from now on.
    batches : Batches
    threads : int
        For the search of neighbours; iterations use what is current.
    iteration : int
        How many have led to this state already.
    memory : optional
        The optimiser's, after these iterations. Default: that before its first step.
    """

    def __init__(
        self,
        model: SparseModel,
        optimizer: Any,
        state: SparseState,
        batches: Batches,
        threads: int,
        *,
        iteration: int = 0,
        memory: Any = None,
    ) -> None:
        self.model, self.state, self.iteration, self.batches = model, state, iteration, batches
        self._optimizer, self._threads = optimizer, threads
        kinds = model.layout.kinds(state.params)
        self.memory = optimizer.init(state.params, kinds) if memory is None else memory

    # A loss that overflows is reported by whoever reads it; NumPy's warnings would say it again.
    @np.errstate(over="ignore", invalid="ignore", divide="ignore")
    def step(self) -> list[float]:
        """Make one iteration; return fidelity and energies as they were before it."""
        self._refresh()
        found = self.model.evaluate(self.state, self.batches.next())
        updates = self._optimizer.updates(self.memory)
        self.state.params[:] = self.model.ops.dense.apply_updates(self.state.params, found.gradients, updates)
        self.iteration += 1
        return self.model.ops.numbers([found.fidelity, *found.energies])

    def is_finite(self) -> bool:
        """Whether all parameters are finite."""
        return all(bool(np.isfinite(param).all()) for param in self.state.params)

    def _refresh(self) -> None:
        """Look for nearest neighbours again where it is time to."""
        model, edges = self.model, list(self.state.edges)
        for place, term in enumerate(model.learned):
            due = self.iteration > 0 and self.iteration % term.regularizer.refresh == 0
            if due and is_searched(model, term):
                fresh = candidates(model, term, self.state.params, self._threads)
                self._exchange(model.layout.graphs_from + place, Exchange(edges[place], fresh))
                edges[place] = fresh
        self.state = SparseState(self.state.params, tuple(edges))

    def _exchange(self, place: int, exchange: Exchange) -> None:
        """Carry V and the optimiser's memory of it over to other edges; what is new has no memory."""
        params, asarray = self.state.params, self.model.ops.xp.asarray
        params[place] = asarray(exchange.logits(to_numpy(params[place][0]))[None])
        moments = getattr(self.memory, "moments", None)
        if moments is not None:
            nothing = np.zeros(params[place].shape[1], params[place].dtype)
            for name in ("first", "second"):
                values = getattr(moments[place], name)
                if values.size > 1:
                    carried = exchange.carried(to_numpy(values[0]), nothing)
                    setattr(moments[place], name, asarray(carried[None]))
