"""The loop around the iterations: when to look, what to record, where to stop, what to give back."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from airnp._arrays import Array, copied
from airnp.engines.contract import NO_MEMORY, Precision
from airnp.explained import Explained, explained
from airnp.inputs import Observations
from airnp.objective import Objective
from airnp.optimizers import FrozenFactors, delayed
from airnp.prepared import PreparedData, without
from airnp.progress import ProgressBar
from airnp.result import DivergenceError, FitResult, FittedRegularizer
from airnp.state import FitState
from airnp.stopping import Choice, Monitor
from airnp.training import Training
from airnp.watcher import Watcher

Callback = Callable[[int, FitState], Any]

_WHOLE_EVERY = 50
"""Iterations at most that run in one go; what an interrupt or a divergence may cost."""

_CHECKPOINT_SECONDS = 30.0

_FOLLOW_UP_SHARE, _FOLLOW_UP_LEAST, _FOLLOW_UP_MOST = 0.05, 10, 500
"""How much of ``max_iter`` is kept for a second phase, and how many iterations at least and at most."""

_GRAPH_ITERATIONS = 2000
"""Iterations at most in which only the graphs are learned, over a matrix that is known already."""


@dataclass(frozen=True)
class Options:
    """How to go about it, checked."""

    max_iter: int
    record_every: int
    seed: int
    init: Any
    optimizer: Any
    threads: int
    precision: Precision | None
    truth: Any
    callback: Callback | None
    progress: bool
    file: Path | None


class Loop:
    """One fit, in one phase or two.

    Parameters
    ----------
    data : PreparedData
    objective_of : callable
        Makes the objective of some of the observations.
    monitor : Monitor
        Watches the first phase, and may ask for a second with all observations.
    options : Options
    """

    def __init__(
        self,
        data: PreparedData,
        objective_of: Callable[[Observations], Objective],
        monitor: Monitor,
        options: Options,
    ) -> None:
        self._data, self._objective_of, self._options = data, objective_of, options
        self._monitor = monitor
        self._at_limit = f"max_iter ({options.max_iter}) reached"
        self._objective = objective_of(without(data.observations, monitor.held_out))
        self._check_precision()
        self._watcher = Watcher(self._objective, data, options.truth)
        self._explained = self._low_rank()
        self._replaced = np.zeros(self._objective.batch, dtype=bool)
        start = self._objective.init(options.seed, options.init)
        if self._explained is not None:
            self._replaced = self._explained.exact
            if self._replaced.all():
                start[: self._objective.depth] = self._explained.factors()
                self._at_limit = self._explained.reason
                self._learn_graphs_only()
        self._training = self._trained(start)
        self._saved = time.monotonic()

    def _low_rank(self) -> Explained | None:
        """Look for matrices of low rank, if the monitor wants that."""
        monitor, objective = self._monitor, self._objective
        if monitor.held_out is None or not monitor.looks_for_low_rank:
            return None
        return explained(self._data.observations, monitor.held_out, objective.depth, objective.rank)

    def _learn_graphs_only(self) -> None:
        """Prepare a fit whose factors are known: nothing need be held out, and nobody need watch."""
        self._monitor = Monitor()
        self._objective = self._objective_of(self._data.observations)
        limit = _GRAPH_ITERATIONS if len(self._objective.param_shapes) > self._objective.depth else 1
        self._options = replace(
            self._options,
            max_iter=min(self._options.max_iter, limit),
            optimizer=FrozenFactors(self._options.optimizer),
        )

    def _check_precision(self) -> None:
        """Refuse what would be ignored in silence."""
        engine = self._objective.engine_name
        if self._options.precision is not None and engine != "cuda":
            raise ValueError(f"precision: 'tf32' is for the CUDA engine, this fit uses {engine!r}")

    def _trained(self, params: list[Array], start: int = 0) -> Training:
        options = self._options
        return Training(
            self._objective,
            delayed(options.optimizer, start),
            params,
            start=start,
            threads=options.threads,
            precision=options.precision,
        )

    def run(self) -> FitResult:
        """Make iterations until a rule, the callback, the user or ``max_iter`` ends them."""
        options = self._options
        spare = min(_FOLLOW_UP_MOST, int(_FOLLOW_UP_SHARE * options.max_iter))
        if spare < _FOLLOW_UP_LEAST or not self._monitor.wants_follow_up:
            spare = 0
        try:
            with ProgressBar(options.max_iter, options.progress) as bar:
                reason, by_user = self._phase(bar, options.max_iter - spare)
                beaten = None if by_user else self._beaten()
                if beaten is not None:
                    reason = beaten
                elif spare and not by_user and self._follow_up():
                    self._phase(bar, min(options.max_iter, self._training.iteration + _FOLLOW_UP_MOST))
            if not self._training.is_finite():
                raise self._diverged(self._training.iteration)
        except KeyboardInterrupt:
            # An iteration may have been cut in half.
            self._training.rewind()
            if not self._training.is_finite():
                self._training.fall_back()
            reason = "interrupted"
        self._training.release()
        result = self._result(reason)
        if options.file is not None:
            _save(result, options.file)
        return result

    def _phase(self, bar: ProgressBar, limit: int) -> tuple[str, bool]:
        """Iterate to a limit or until something stops it; return why, and whether the user did."""
        options, training, monitor = self._options, self._training, self._monitor
        for iterations in _portions(training.iteration, limit, options.record_every, monitor.every):
            values = training.advance(iterations)
            if not np.isfinite(values).all():
                raise self._diverged(_finite_iterations(training, values))
            state = self._watcher.state(training, values)
            last = training.iteration == limit
            look = last or _due(training.iteration, monitor.every)
            stopped = monitor.check(state) if look else None
            if last or stopped or training.iteration == 1 or _due(training.iteration, options.record_every):
                self._watcher.record(state)
                bar.show(state)
                callback = options.callback
                if callback is not None and callback(training.iteration, state) and stopped is None:
                    if not look:
                        monitor.check(state)  # the last iterate may be the best one
                    return "stopped by callback", True
            if stopped is not None:
                return stopped, False
            self._save_now_and_then()
        return self._at_limit, False

    def _beaten(self) -> str | None:
        """Let matrices of low rank replace what they predict better; return why, if that is everything."""
        errors = self._monitor.lowest_error()
        if self._explained is None or errors is None:
            return None
        self._replaced = self._explained.beats(errors)
        return self._explained.reason if self._replaced.all() else None

    def _follow_up(self) -> bool:
        """Prepare to go on from the chosen iterate with all observations; return whether there is a need."""
        chosen = self._monitor.choice(self._last())
        monitor = self._monitor.follow_up(self._data.observations, chosen)
        if monitor is not None:
            self._monitor = monitor
            self._objective = self._objective_of(self._data.observations)
            # Iterations change arrays in place, and the fit may have to go back to the chosen ones.
            start = [copied(param) for param in chosen.params]
            self._training = self._trained(start, self._training.iteration)
        return monitor is not None

    def _last(self) -> Choice:
        training = self._training
        return Choice(training.params, np.full(self._objective.batch, training.iteration, dtype=np.int64))

    def _diverged(self, iterations: int) -> DivergenceError:
        """Return the error to raise, with the last finite state in it."""
        self._training.fall_back()
        return DivergenceError(
            f"the loss became infinite or not a number after {iterations} iterations; the state after "
            f"{self._training.iteration} is in the error's .result. A smaller learning_rate or smaller "
            "weights help.",
            self._result("diverged"),
        )

    def _save_now_and_then(self) -> None:
        """Save the result so far, unless that would replace a good file by one that is not finite."""
        file = self._options.file
        if file is not None and time.monotonic() - self._saved > _CHECKPOINT_SECONDS:
            if self._training.is_finite():
                _save(self._result("checkpoint"), file)
            self._saved = time.monotonic()

    def _result(self, reason: str) -> FitResult:
        objective, data, history = self._objective, self._data, self._watcher.history
        history.truncate(self._training.iteration)
        chosen = self._monitor.choice(self._last())
        if self._explained is not None:
            chosen = self._explained.put_into(chosen, self._replaced)
        params = chosen.params
        return FitResult(
            matrix=data.normalization.undo(objective.matrix(params)),
            factors=list(params[: objective.depth]),
            regularizers=_fitted(objective, params),
            history=history,
            n_iter=self._training.iteration,
            best_iter=_whole(chosen.iteration),
            stop_reason=reason,
            seed=self._options.seed,
            normalization=data.normalization,
            mask=None if data.original is None else data.observations.mask,
            observed=data.original,
            labels=data.observations.labels,
        )


def _fitted(objective: Objective, params: list[Array]) -> list[FittedRegularizer]:
    energies = objective.evaluate(params, memory=NO_MEMORY).energies
    graphs = iter(params[objective.depth :])
    return [
        FittedRegularizer(
            regularizer.name,
            repr(regularizer),
            term.weight,
            energy,
            adjacency,
            next(graphs) if term.parameter_shape is not None else None,
        )
        for regularizer, term, energy, adjacency in zip(
            objective.regularizers, objective.terms, energies, objective.adjacencies(params), strict=True
        )
    ]


def _due(iteration: int, every: int | None) -> bool:
    return every is not None and iteration % every == 0


def _portions(start: int, limit: int, record_every: int, look_every: int | None) -> Iterator[int]:
    """Yield numbers of iterations that end wherever something is due, and at the first and the last."""
    rhythms = [every for every in (record_every, look_every, _WHOLE_EVERY) if every is not None]
    done = start
    while done < limit:
        goal = 1 if done == 0 else min(limit, *((done // every + 1) * every for every in rhythms))
        yield goal - done
        done = goal


def _finite_iterations(training: Training, values: npt.NDArray[np.float64]) -> int:
    """Return how many iterations were made when the loss was first found not to be finite."""
    finite = np.isfinite(values.reshape(len(values), -1)).all(axis=1)
    return training.iteration - len(values) + int(np.argmin(finite))


def _save(result: FitResult, path: Path) -> None:
    """Save a result; a full disk must not cost the fit itself."""
    try:
        result.save(path)
    except OSError as error:
        warnings.warn(f"checkpoint: could not write {path}: {error}", RuntimeWarning, stacklevel=3)


def _whole(iteration: npt.NDArray[np.int64]) -> Any:
    return int(iteration) if iteration.ndim == 0 else iteration
