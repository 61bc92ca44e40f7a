"""One phase of a sparse fit: what it fits, who watches it, how far it is, and where it could go on."""

from __future__ import annotations

from typing import Any

import numpy as np

from airnp.running.portions import is_due
from airnp.sparse.batches import Batches
from airnp.sparse.parameters import SparseState
from airnp.sparse.problem import SparseOptions, SparseProblem
from airnp.sparse.saved import SparseRunState
from airnp.sparse.start import first_state
from airnp.sparse.training import SparseTraining
from airnp.sparse.watching import Watch, held_out_entries, watch_of
from airnp.stopping.rules import HeldOut

_KEEP_EVERY = 50
"""Iterations between two copies of a state that is known to be finite."""


class Phase:
    """The first phase of a fit, without the entries that are held out, or the second, with all and unwatched.

    Parameters
    ----------
    problem : SparseProblem
    options : SparseOptions
    before : int, optional
        Iterations of the first phase, for the second. Default: this is the first.

    Attributes
    ----------
    model : SparseModel
    watch : Watch
    held : int
        How many entries are held out.
    stopped : str or None
        Why the watch has ended this phase.
    values : list of float or None
        Fidelity and energies as the last iteration computed them.
    """

    def __init__(self, problem: SparseProblem, options: SparseOptions, before: int | None = None) -> None:
        self._options, self._shrinkage = options, problem.shrinkage
        self._done, rule = before or 0, options.rule
        self._entries, held = problem.entries, None
        if isinstance(rule, HeldOut) and before is None:
            chosen = held_out_entries(problem.entries, rule.fraction, options.seed)
            if chosen.any():
                self._entries, held = problem.entries.split(chosen)
        self.held = 0 if held is None else held.nnz
        self.model = problem.model(self._entries)
        self.watch = watch_of(rule, self.model, held) if before is None else Watch()
        self.stopped: str | None = None
        self.values: list[float] | None = None
        self._before: list[float] | None = None
        self._training: SparseTraining | None = None
        self._finite: tuple[int, SparseState] | None = None
        self._noted: dict[str, Any] = {}

    @property
    def training(self) -> SparseTraining:
        """The iterations, once they have begun."""
        assert self._training is not None
        return self._training

    @property
    def has_begun(self) -> bool:
        """Whether there is a state to go on from."""
        return self._training is not None

    @property
    def total(self) -> int:
        """Iterations so far, those of a first phase included."""
        return self._done + self.training.iteration

    def begin(self) -> None:
        """Start, unless this phase has begun."""
        if not self.has_begun:
            options = self._options
            start = first_state(self.model, options.seed, options.init, self._shrinkage, options.threads)
            self._training = self._trained(start)
            self._note(self.total)

    def take_up(self, state: SparseRunState) -> None:
        """Begin where the same phase of another run was."""
        self.values, self.stopped = state.values, state.stopped
        self.watch.restore(state.watch)
        start = SparseState(list(state.params), tuple(state.edges)).copied()
        self._training = self._trained(start, state.iteration, state.memory)
        self._training.batches.restore(state.batches)
        self._note(state.recorded)

    def _trained(self, start: SparseState, iteration: int = 0, memory: Any = None) -> SparseTraining:
        options = self._options
        self._finite = iteration, start.copied()
        batches = Batches(self._entries, options.batch_size, options.seed)
        given = (self.model, options.optimizer, start, batches, options.threads)
        return SparseTraining(*given, iteration=iteration, memory=memory)

    def went_on(self, values: list[float], limit: int) -> bool:
        """Take in what an iteration computed; return whether all is finite, as far as it was looked at."""
        self.values, self._before = values, self.values
        keep = self.training.iteration % _KEEP_EVERY == 0
        finite = bool(np.isfinite(values).all())
        if finite and (keep or self.training.iteration == limit):
            finite = self.training.is_finite()
        if finite and keep:
            self._finite = self.training.iteration, self.training.state.copied()
        return finite

    def fall_back(self) -> None:
        """Return to the last state that is known to be finite: the result is that, the run cannot go on."""
        assert self._finite is not None
        self.training.iteration, self.training.state = self._finite

    def settled(self, limit: int, *, again: bool = False) -> bool:
        """Look at an iteration where it is time to; return whether it is to be recorded.

        What happens at the limit alone would not be part of a longer run. It comes after the position is
        noted from which the run can go on; ``again`` is for a run that goes on there, with the same limit.
        """
        iteration, last = self.training.iteration, self.training.iteration == limit
        look = is_due(iteration, self.watch.every)
        if look and not again:
            self.stopped = self._checked()
        due = iteration == 1 or is_due(iteration, self._options.record_every) or self.stopped is not None
        if not again:
            self._note(self.total if due else self.total - 1)
        if last and not look and self.stopped is None:
            self.stopped = self._checked()
        return (due and not again) or (last and not due)

    def look_once_more(self) -> None:
        """Let the watch look where the user ends the fit: the last iterate may be the best one."""
        if not is_due(self.training.iteration, self.watch.every):
            self._checked()

    def _checked(self) -> str | None:
        assert self.values is not None
        return self.watch.check(self.training.iteration, self.training.state, self.values, self._before)

    def _note(self, recorded: int) -> None:
        """Note where the run is, but for what the training holds; nothing of it changes later."""
        self._noted = {"watch": self.watch.state(), "stopped": self.stopped, "recorded": recorded}

    def position(self) -> dict[str, Any]:
        """Return where this phase can go on from, as attributes of :class:`SparseRunState`."""
        training = self.training
        return {
            "iteration": training.iteration,
            "params": training.state.params,
            "edges": training.state.edges,
            "memory": training.memory,
            "batches": training.batches.state(),
            "values": self.values,
            "held": self.held,
            "done": self._done,
            **self._noted,
        }
