"""The loop of a sparse fit: when to look, what to record, where to stop, what to give back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from airnp._arrays import to_numpy
from airnp.bounds import Bounds
from airnp.engines.pace import Pace
from airnp.engines.threads import let_work, using
from airnp.history import History, energy_columns
from airnp.optimizers import delayed
from airnp.regularizers import Regularizer
from airnp.result import DivergenceError
from airnp.running.interrupts import held_back
from airnp.running.portions import is_due
from airnp.running.progress import ProgressBar
from airnp.sparse.batches import Batches
from airnp.sparse.contract import Offsets, SparseOperations
from airnp.sparse.entries import Entries
from airnp.sparse.fitted import fitted_graphs
from airnp.sparse.model import SparseModel
from airnp.sparse.parameters import Layout, SparseState
from airnp.sparse.result import SparseFitResult
from airnp.sparse.start import first_state
from airnp.sparse.training import SparseTraining
from airnp.sparse.watching import EnergyWatch, HeldOutWatch, Watch, held_out_entries
from airnp.stopping.rules import EnergyChange, HeldOut

_KEEP_EVERY = 50
"""Iterations between two copies of a state that is known to be finite."""


@dataclass(frozen=True)
class SparseProblem:
    """What is fitted, and the way back to the data's units: X = base + span · X̂."""

    entries: Entries
    base: float
    span: float
    layout: Layout
    regularizers: Sequence[Regularizer]
    scale: float
    shrinkage: float | None
    bounds: Bounds | None
    ops: SparseOperations

    def model(self, entries: Entries) -> SparseModel:
        """Return the loss of some of the entries."""
        return SparseModel(
            entries,
            self.layout,
            self.regularizers,
            scale=self.scale,
            shrinkage=self.shrinkage or 0.0,
            ops=self.ops,
        )


@dataclass(frozen=True)
class SparseOptions:
    """How to go about it, checked."""

    max_iter: int
    record_every: int
    seed: int
    init: Any
    optimizer: Any
    threads: int
    batch_size: int | None
    callback: Callable[[int, Any], Any] | None
    progress: bool
    rule: Any


@dataclass(frozen=True, eq=False)
class SparseFitState:
    """A sparse fit at one moment, as a callback sees it. Its arrays belong to the fit: look, do not touch.

    Attributes
    ----------
    iteration : int
    loss, fidelity : float
        As the last iteration computed them, in normalised units.
    energies : dict of str to float
        Each regulariser's R, without its λ.
    result : callable
        ``result()`` is what the fit would give back now, as a :class:`SparseFitResult`.
    """

    iteration: int
    loss: float
    fidelity: float
    energies: dict[str, float]
    result: Callable[[], SparseFitResult]


class SparseLoop:
    """One sparse fit: with held-out entries, and then again with all of them, if the rule says so."""

    def __init__(self, problem: SparseProblem, options: SparseOptions) -> None:
        self._problem, self._options = problem, options
        rule = options.rule
        self._entries, held = problem.entries, None
        if isinstance(rule, HeldOut):
            self._entries, held = problem.entries.split(
                held_out_entries(problem.entries, rule.fraction, options.seed)
            )
        self._model = problem.model(self._entries)
        self._watch = Watch()
        if isinstance(rule, HeldOut) and held is not None and held.nnz:
            self._watch = HeldOutWatch(rule, self._model, held)
        elif isinstance(rule, EnergyChange):
            self._watch = EnergyWatch(rule, len(self._model.terms))
        self._columns = energy_columns(self._model.names)
        self._history = History(["loss", "fidelity", *self._columns])
        self._done = 0
        self._pace: Pace | None = None
        self._training: SparseTraining | None = None
        self._finite: tuple[int, SparseState] | None = None

    def run(self) -> SparseFitResult:
        """Make iterations until a rule, the callback, the user or ``max_iter`` ends them."""
        options = self._options
        with using(options.threads) as several, ProgressBar(options.max_iter, options.progress) as bar:
            self._pace = Pace(several, let_work) if several > 1 else None
            try:
                reason, by_user = self._phase(bar, options.max_iter)
                best, rule = self._watch.best, options.rule
                if isinstance(rule, HeldOut) and rule.refit and best is not None and not by_user:
                    self._begin_again()
                    self._phase(bar, best[0])
            except KeyboardInterrupt:
                reason = "interrupted"
            return self._result(reason)

    def _phase(self, bar: ProgressBar, limit: int) -> tuple[str, bool]:
        """Iterate to a limit or until something stops it; return why, and whether the user did."""
        options, watch = self._options, self._watch
        with held_back():
            training = self._training = self._started()
        before: list[float] | None = None
        while training.iteration < limit:
            with held_back():
                values = self._step(training)
                self._check_finite(training, values)
            iteration, last = training.iteration, training.iteration == limit
            look = last or is_due(iteration, watch.every)
            stopped = watch.check(iteration, training.state, values, before) if look else None
            before = values
            if last or stopped or iteration == 1 or is_due(iteration, options.record_every):
                state = self._recorded(values)
                bar.show(state)  # type: ignore[arg-type]
                if options.callback is not None and options.callback(state.iteration, state):
                    if not look:
                        watch.check(iteration, training.state, values, before)
                    return "stopped by callback", True
            if stopped is not None:
                return stopped, False
        return f"max_iter ({options.max_iter}) reached", False

    def _step(self, training: SparseTraining) -> list[float]:
        """Make an iteration with as many threads as are quickest now; how work is cut does not change."""
        # The first may compile: its time says nothing.
        if self._pace is None or training.iteration == 0:
            return training.step()
        return self._pace.run(training.step)

    def _started(self) -> SparseTraining:
        options = self._options
        start = first_state(self._model, options.seed, options.init, self._problem.shrinkage, options.threads)
        batches = Batches(self._entries, options.batch_size, options.seed)
        self._finite = 0, start.copied()
        return SparseTraining(self._model, delayed(options.optimizer, 0), start, batches, options.threads)

    def _begin_again(self) -> None:
        """Prepare a second phase: all entries, nobody watching."""
        with held_back():
            assert self._training is not None
            self._done += self._training.iteration
            self._entries = self._problem.entries
            self._model, self._watch = self._problem.model(self._entries), Watch()

    def _check_finite(self, training: SparseTraining, values: Sequence[float]) -> None:
        """Raise when the loss is not finite; else keep a copy of the state now and then."""
        finite = bool(np.isfinite(values).all())
        look = training.iteration % _KEEP_EVERY == 0
        if finite and look:
            finite = all(bool(np.isfinite(param).all()) for param in training.state.params)
        if finite:
            if look:
                self._finite = training.iteration, training.state.copied()
            return
        assert self._finite is not None
        iterations = self._done + training.iteration - 1
        training.iteration, training.state = self._finite
        kept = self._done + training.iteration
        self._history.truncate(kept)
        raise DivergenceError.after(iterations, kept, self._result("diverged"))

    def _recorded(self, values: Sequence[float]) -> SparseFitState:
        assert self._training is not None
        fidelity, energies = values[0], values[1:]
        iteration, loss = self._done + self._training.iteration, self._model.loss(fidelity, energies)
        named = dict(zip(self._columns, energies, strict=True))
        self._history.append(iteration, {"loss": loss, "fidelity": fidelity, **named})  # type: ignore[dict-item]
        return SparseFitState(iteration, loss, fidelity, named, lambda: self._result("so far"))

    def _result(self, reason: str) -> SparseFitResult:
        """Return the best iterate, or the last, in the data's units."""
        training, problem, model = self._training, self._problem, self._model
        assert training is not None
        iteration, state = self._watch.best or (training.iteration, training.state)
        sides = model.sides(state.params)
        root = sides.u.dtype.type(np.sqrt(problem.span))
        mean = problem.base + problem.span * float(sides.offsets.mean)
        offsets = None
        if problem.layout.offsets:
            rows, columns = (
                _scaled(side, problem.span) for side in (sides.offsets.rows, sides.offsets.columns)
            )
            offsets = Offsets(mean, rows, columns)
        return SparseFitResult(
            row_factors=_scaled(sides.u, root),
            column_factors=_scaled(sides.v, root),
            offsets=offsets,
            base=problem.base,
            graphs=fitted_graphs(model, state),
            history=self._history,
            n_iter=self._done + training.iteration,
            best_iter=iteration,
            stop_reason=reason,
            seed=self._options.seed,
            bounds=problem.bounds,
        )


def _scaled(array: npt.NDArray[Any], factor: Any) -> npt.NDArray[Any]:
    return to_numpy(array * array.dtype.type(factor))
