"""The loop around the iterations: when to look, what to record, where to stop, what to give back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from airnp._arrays import Array, copied, to_numpy
from airnp.confidence.calibration import Calibration, calibration
from airnp.history import History
from airnp.model import Model
from airnp.optimizers import FrozenFactors, delayed
from airnp.prepared import PreparedData, without
from airnp.result import DivergenceError, FitResult
from airnp.running.explained import Explained, explained
from airnp.running.fitted import fitted_regularizers
from airnp.running.interrupts import held_back
from airnp.running.options import Options
from airnp.running.portions import is_due, portions
from airnp.running.progress import ProgressBar
from airnp.running.state import FitState
from airnp.running.training import Training
from airnp.running.watcher import Watcher
from airnp.saving.checkpoints import Checkpoint, Task
from airnp.saving.runstate import RunState
from airnp.stopping.monitors import Choice, Monitor
from airnp.stopping.rules import StopRule

_FOLLOW_UP_SHARE, _FOLLOW_UP_LEAST, _FOLLOW_UP_MOST = 0.05, 10, 500
"""How much of ``max_iter`` is kept for a second phase, and how many iterations at least and at most."""

_GRAPH_ITERATIONS = 2000
"""Iterations at most in which only the graphs are learned, over a matrix that is known already."""


class Loop:
    """One fit, in one phase or two.

    Parameters
    ----------
    data : PreparedData
    model : Model
    rule : StopRule
        Its monitor watches the first phase, and may ask for a second with all observations.
    options : Options
    resumed : (RunState, History), optional
        Where another run of the same fit was, and what it had recorded. Default: start from the beginning.
    """

    def __init__(
        self,
        data: PreparedData,
        model: Model,
        rule: StopRule,
        options: Options,
        resumed: tuple[RunState, History] | None = None,
    ) -> None:
        self._data, self._model, self._options = data, model, options
        self._monitors = [rule.begin(data.observations, data.operator, options.seed)]
        self._held_out = self._monitor.held_out
        self._at_limit = f"max_iter ({options.max_iter}) reached"
        self._objective = model.objective(data, without(data.observations, self._held_out))
        self._check_precision()
        self._watcher = Watcher(self._objective, data, options.truth)
        self._stopped: str | None = None
        self._start, self._used_up = 0, False
        self._chosen: Choice | None = None
        self._ended: str | None = None
        self._training = self._begun() if resumed is None else self._taken_up(*resumed)
        self._checkpoint: Checkpoint | None = None
        if options.file is not None:
            found = replace(
                model, regularizers=self._objective.regularizers, engine=self._objective.engine_name
            )
            self._checkpoint = Checkpoint(options.file, options.file_every, Task(data, found, rule, options))
        self._noted = self._position()

    @property
    def _monitor(self) -> Monitor:
        """The one of this phase."""
        return self._monitors[-1]

    def _begun(self) -> Training:
        """Return the training before its first iteration."""
        options, objective = self._options, self._objective
        self._explained = self._low_rank()
        self._replaced = np.zeros(objective.batch, dtype=bool)
        start = objective.init(options.seed, options.init)
        if self._explained is not None:
            self._replaced = self._explained.exact
            if self._replaced.all():
                start[: objective.depth] = self._explained.factors()
                self._learn_graphs_only(self._explained.reason)
        return self._trained(start)

    def _taken_up(self, state: RunState, history: History) -> Training:
        """Return the training where another run left it."""
        objective, seen = self._objective, self._data.observations
        none: npt.NDArray[np.bool_] = np.zeros(0, dtype=bool)
        before, now = (none if held is None else held for held in (state.held_out, self._held_out))
        if not np.array_equal(before, now):
            raise ValueError("stop: holds out other entries than the run did")
        self._explained = None
        if state.explained is not None:
            self._explained = Explained(state.explained, seen, objective.depth, objective.rank)
            if self._explained.exact.all():
                self._learn_graphs_only(self._explained.reason)
        self._replaced, self._stopped = state.replaced, state.stopped
        self._start, self._chosen = state.start, state.chosen
        self._ended, self._used_up = state.ended, state.used_up
        self._monitor.restore(state.monitors[0])
        if state.chosen is not None:
            monitor = self._monitor.follow_up(seen, state.chosen)
            if monitor is None:
                raise ValueError("stop: asks for no second phase, which the run had begun")
            monitor.restore(state.monitors[1])
            self._monitors.append(monitor)
            self._objective = self._model.objective(self._data, seen)
        elif state.iteration >= self._limit < state.limit:
            raise ValueError(
                f"max_iter: the run has made {state.iteration} iterations before its second phase, and would "
                f"have made {self._limit} with max_iter={self._options.max_iter}; give more"
            )
        shapes = [tuple(param.shape) for param in state.params]
        if shapes != self._objective.param_shapes:
            raise ValueError(
                f"regularizers: expected those of the run, whose factors and graphs have shapes {shapes}; "
                f"these need {self._objective.param_shapes}"
            )
        history.truncate(state.iteration)
        self._watcher.restore(history, state.energies)
        return self._trained(state.params, state.iteration, state.memory)

    def _low_rank(self) -> Explained | None:
        """Look for matrices of low rank, if the monitor wants that."""
        monitor, objective = self._monitor, self._objective
        if monitor.held_out is None or not monitor.looks_for_low_rank:
            return None
        return explained(self._data.observations, monitor.held_out, objective.depth, objective.rank)

    def _learn_graphs_only(self, reason: str) -> None:
        """Prepare a fit whose factors are known: nothing need be held out, and nobody need watch."""
        self._at_limit = reason
        self._monitors = [Monitor()]
        self._objective = self._model.objective(self._data, self._data.observations)
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

    def _trained(self, params: list[Array], iteration: int = 0, memory: Any = None) -> Training:
        options = self._options
        return Training(
            self._objective,
            delayed(options.optimizer, self._start),
            params,
            start=iteration,
            threads=options.threads,
            precision=options.precision,
            memory=memory,
            resumable=options.file is not None,
        )

    @property
    def _limit(self) -> int:
        """The iteration at which this phase ends at the latest."""
        most = self._options.max_iter
        if self._chosen is not None:
            return min(most, self._start + _FOLLOW_UP_MOST)
        spare = min(_FOLLOW_UP_MOST, int(_FOLLOW_UP_SHARE * most))
        return most if spare < _FOLLOW_UP_LEAST or not self._monitor.wants_follow_up else most - spare

    def run(self) -> FitResult:
        """Make iterations until a rule, the callback, the user or ``max_iter`` ends them."""
        options = self._options
        try:
            with ProgressBar(options.max_iter, options.progress) as bar:
                reason, by_user = self._phases(bar)
            if not self._training.is_finite():
                raise self._diverged(self._training.iteration)
        except KeyboardInterrupt:
            # An iteration may have been cut in half.
            self._training.rewind()
            if not self._training.is_finite():
                self._training.fall_back()
            reason, by_user = "interrupted", True
        # More iterations than max_iter may be wanted later; a phase that ended for another reason is over.
        goes_on = by_user or (self._used_up and self._chosen is None)
        state = self._state() if goes_on and self._checkpoint is not None else None
        self._training.release()
        result = self._result(reason)
        if self._checkpoint is not None:
            self._checkpoint.write(result, state, finished=not by_user, used_up=self._used_up)
        return result

    def _phases(self, bar: ProgressBar) -> tuple[str, bool]:
        """Go through one phase or two; return why the first ended, and whether the user ended the fit."""
        if self._chosen is None:
            reason, by_user = self._phase(bar)
            if by_user:
                return reason, True
            self._ended, self._used_up = reason, self._stopped is None
            beaten = self._beaten()
            if beaten is not None or self._limit == self._options.max_iter or not self._follow_up():
                return beaten or reason, False
        assert self._ended is not None
        return self._ended, self._phase(bar)[1]

    def _phase(self, bar: ProgressBar) -> tuple[str, bool]:
        """Iterate to the limit or until something stops it; return why, and whether the user did."""
        options, training, monitor, limit = self._options, self._training, self._monitor, self._limit
        for iterations in portions(training.iteration, limit, options.record_every, monitor.every):
            if self._stopped is not None:
                break
            values = training.attempt(iterations)
            with held_back():
                state, look, recorded = self._settled(values, limit)
            if recorded:
                bar.show(state)
                callback = options.callback
                if callback is not None and callback(training.iteration, state) and self._stopped is None:
                    if not look:
                        monitor.check(state)  # the last iterate may be the best one
                    return "stopped by callback", True
            if self._checkpoint is not None and self._checkpoint.is_due:
                self._save(self._checkpoint)
        return self._stopped or self._at_limit, False

    def _settled(self, values: npt.NDArray[np.float64], limit: int) -> tuple[FitState, bool, bool]:
        """Look at a portion of iterations; return the state, and whether it was looked at and recorded."""
        training, monitor = self._training, self._monitor
        training.settle(values)
        if not np.isfinite(values).all():
            raise self._diverged(_finite_iterations(training, values))
        state, iteration = self._watcher.state(training, values), training.iteration
        look = is_due(iteration, monitor.every)
        record = iteration == 1 or is_due(iteration, self._options.record_every)
        last = iteration == limit
        self._stopped = monitor.check(state) if look or last else None
        if record or last or self._stopped is not None:
            self._watcher.record(state)
        # What happens at the limit alone would not be part of a longer run: one can go on from before it.
        regular = (look or monitor.every is None) and (record or self._stopped is not None)
        if (regular or not last) and training.keep() and self._checkpoint is not None:
            self._noted = self._position()
        return state, look or last, record or last or self._stopped is not None

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
            objective = self._model.objective(self._data, self._data.observations)
            with held_back():
                self._monitors.append(monitor)
                self._objective, self._stopped = objective, None
                self._start, self._chosen = self._training.iteration, chosen
                # Iterations change arrays in place, and the fit may have to go back to the chosen ones.
                start = [copied(param) for param in chosen.params]
                self._training = self._trained(start, self._start)
                self._noted = self._position()
        return monitor is not None

    def _last(self) -> Choice:
        training = self._training
        return Choice(training.params, np.full(self._objective.batch, training.iteration, dtype=np.int64))

    def _diverged(self, iterations: int) -> DivergenceError:
        """Return the error to raise, with the last finite state in it."""
        self._training.fall_back()
        return DivergenceError.after(iterations, self._training.iteration, self._result("diverged"))

    def _save(self, file: Checkpoint) -> None:
        """Save the run, unless that would replace a good file by one that is not finite."""
        if self._training.is_finite():
            file.write(self._result("checkpoint"), self._state(), finished=False, used_up=self._used_up)

    def _position(self) -> dict[str, Any]:
        """Return where the run is, but for what the training itself keeps; nothing of it changes later."""
        return {
            "energies": self._watcher.remembered(),
            "monitors": [monitor.state() for monitor in self._monitors],
            "stopped": self._stopped,
            "start": self._start,
            "limit": self._limit,
            "chosen": self._chosen,
            "ended": self._ended,
            "used_up": self._used_up,
            "held_out": self._held_out,
            "explained": None if self._explained is None else self._explained.found,
            "replaced": self._replaced,
        }

    def _state(self) -> RunState | str:
        """Return where the run can go on from, or why it cannot."""
        for monitor in self._monitors:
            if monitor.remembered is None and type(monitor).check is not Monitor.check:
                return f"stop: {type(monitor).__name__} does not say what is remembered"
        iteration, params, memory = self._training.kept()
        return RunState(iteration=iteration, params=params, memory=memory, **self._noted)

    def _result(self, reason: str) -> FitResult:
        objective, data, history = self._objective, self._data, self._watcher.history
        history.truncate(self._training.iteration)
        chosen = self._monitor.choice(self._last())
        if self._explained is not None:
            chosen = self._explained.put_into(chosen, self._replaced)
        params = chosen.params
        return FitResult(
            matrix=data.restored(objective.matrix(params)),
            factors=list(params[: objective.depth]),
            regularizers=fitted_regularizers(objective, params),
            history=history,
            n_iter=self._training.iteration,
            best_iter=_whole(chosen.iteration),
            stop_reason=reason,
            seed=self._options.seed,
            normalization=data.normalization,
            mask=None if data.original is None else data.observations.mask,
            observed=data.original,
            labels=data.observations.labels,
            calibration=self._calibration(),
            bounds=data.bounds,
        )

    def _calibration(self) -> Calibration | None:
        """Return the held-out entries beside what was predicted before anything saw them."""
        data, unseeing, held_out = self._data, self._monitor.unseeing(), self._held_out
        if data.original is None or held_out is None:
            return None
        folds = []
        if unseeing is not None:
            predicted = to_numpy(self._objective.matrix(unseeing.params))
            folds.append((held_out & ~self._replaced[..., None, None], predicted))
        if self._explained is not None and self._replaced.any():
            folds += self._explained.left_out(self._replaced)
        return calibration(data.original, folds, data.normalization, data.bounds)


def _finite_iterations(training: Training, values: npt.NDArray[np.float64]) -> int:
    """Return how many iterations were made when the loss was first found not to be finite."""
    finite = np.isfinite(values.reshape(len(values), -1)).all(axis=1)
    return training.iteration - len(values) + int(np.argmin(finite))


def _whole(iteration: npt.NDArray[np.int64]) -> Any:
    return int(iteration) if iteration.ndim == 0 else iteration
