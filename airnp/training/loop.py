"""The loop around the iterations: when to look, what to record, where to stop, what to save."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from airnp.data.prepared import PreparedData
from airnp.model.objective import Model
from airnp.results.history import History
from airnp.results.result import DivergenceError, FitResult
from airnp.training.checkpoints import Checkpoint, RunState, Task
from airnp.training.options import Options
from airnp.training.progress import ProgressBar, held_back
from airnp.training.recorder import FitState
from airnp.training.run import Underway
from airnp.training.steps import Training
from airnp.training.stopping import StopRule


class Loop:
    """One fit, in one phase or two.

    Parameters
    ----------
    data, model, rule, options, resumed
        As :class:`airnp.training.run.Underway` takes them.
    """

    def __init__(
        self,
        data: PreparedData,
        model: Model,
        rule: StopRule,
        options: Options,
        resumed: tuple[RunState, History] | None = None,
    ) -> None:
        self._fit = Underway(data, model, rule, options, resumed)
        self._checkpoint: Checkpoint | None = None
        if options.file is not None:
            objective = self._fit.objective
            found = replace(model, regularizers=objective.regularizers, engine=objective.engine_name)
            self._checkpoint = Checkpoint(options.file, options.file_every, Task(data, found, rule, options))

    def run(self) -> FitResult:
        """Make iterations until a rule, the callback, the user or ``max_iter`` ends them."""
        fit = self._fit
        try:
            with ProgressBar(fit.options.max_iter, fit.options.progress) as bar:
                reason, by_user = self._all_phases(bar)
            if not fit.training.is_finite():
                raise self._diverged(fit.training.iteration)
        except KeyboardInterrupt:
            # An iteration may have been cut in half.
            fit.training.rewind()
            if not fit.training.is_finite():
                fit.training.fall_back()
            reason, by_user = "interrupted", True
        # More iterations than max_iter may be wanted later; a phase that ended for another reason is over.
        goes_on = by_user or (fit.phases.used_up and fit.phases.chosen is None)
        state = fit.state() if goes_on and self._checkpoint is not None else None
        fit.training.release()
        result = fit.result(reason)
        if self._checkpoint is not None:
            self._checkpoint.write(result, state, finished=not by_user, used_up=fit.phases.used_up)
        return result

    def _all_phases(self, bar: ProgressBar) -> tuple[str, bool]:
        """Go through one phase or two; return why the first ended, and whether the user ended the fit."""
        fit = self._fit
        if fit.phases.chosen is None:
            reason, by_user = self._phase(bar)
            if by_user:
                return reason, True
            fit.phases.end_first(reason)
            beaten = fit.rival.compared(fit.monitor.lowest_error())
            if beaten is not None or fit.limit == fit.options.max_iter or not fit.begin_second_phase():
                return beaten or reason, False
        assert fit.phases.ended is not None
        return fit.phases.ended, self._phase(bar)[1]

    def _phase(self, bar: ProgressBar) -> tuple[str, bool]:
        """Iterate to the limit or until something stops it; return why, and whether the user did."""
        options, phases, limit = self._fit.options, self._fit.phases, self._fit.limit
        training, monitor = self._fit.training, self._fit.monitor
        for iterations in portions(training.iteration, limit, options.record_every, monitor.every):
            if phases.stopped is not None:
                break
            values = training.attempt(iterations)
            with held_back():
                state, look, recorded = self._settled(values, limit)
            if recorded:
                bar.show(state)
                callback = options.callback
                if callback is not None and callback(training.iteration, state) and phases.stopped is None:
                    if not look:
                        monitor.check(state)  # the last iterate may be the best one
                    return "stopped by callback", True
            if self._checkpoint is not None and self._checkpoint.is_due:
                self._save(self._checkpoint)
        return phases.stopped or self._fit.at_limit, False

    def _settled(self, values: npt.NDArray[np.float64], limit: int) -> tuple[FitState, bool, bool]:
        """Look at a portion of iterations; return the state, and whether it was looked at and recorded."""
        fit, training, monitor, phases = self._fit, self._fit.training, self._fit.monitor, self._fit.phases
        training.settle(values)
        if not np.isfinite(values).all():
            raise self._diverged(_finite_iterations(training, values))
        state, iteration = fit.watcher.state(training, values), training.iteration
        look = is_due(iteration, monitor.every)
        record = iteration == 1 or is_due(iteration, fit.options.record_every)
        last = iteration == limit
        phases.stopped = monitor.check(state) if look or last else None
        recorded = record or last or phases.stopped is not None
        if recorded:
            fit.watcher.record(state)
        # What happens at the limit alone would not be part of a longer run: one can go on from before it.
        regular = (look or monitor.every is None) and (record or phases.stopped is not None)
        if (regular or not last) and training.keep() and self._checkpoint is not None:
            fit.note()
        return state, look or last, recorded

    def _diverged(self, iterations: int) -> DivergenceError:
        """Return the error to raise, with the last finite state in it."""
        training = self._fit.training
        training.fall_back()
        return DivergenceError.after(iterations, training.iteration, self._fit.result("diverged"))

    def _save(self, file: Checkpoint) -> None:
        """Save the run, unless that would replace a good file by one that is not finite."""
        fit = self._fit
        if fit.training.is_finite():
            file.write(fit.result("checkpoint"), fit.state(), finished=False, used_up=fit.phases.used_up)


def _finite_iterations(training: Training, values: npt.NDArray[np.float64]) -> int:
    """Return how many iterations were made when the loss was first found not to be finite."""
    finite = np.isfinite(values.reshape(len(values), -1)).all(axis=1)
    return training.iteration - len(values) + int(np.argmin(finite))


_WHOLE_EVERY = 50
"""Iterations at most that run in one go; what an interrupt or a divergence may cost."""


def is_due(iteration: int, every: int | None) -> bool:
    """Whether something that comes at every multiple of ``every`` comes at this iteration."""
    return every is not None and iteration % every == 0


def portions(start: int, limit: int, record_every: int, look_every: int | None) -> Iterator[int]:
    """Yield numbers of iterations that end wherever something is due, and at the first and the last.

    Ends are counted from the first iteration of all: who starts again at one of them has the same others.

    Examples
    --------
    >>> list(portions(0, 35, 10, None)), list(portions(20, 35, 10, None))
    ([1, 9, 10, 10, 5], [10, 5])
    """
    rhythms = [every for every in (record_every, look_every, _WHOLE_EVERY) if every is not None]
    done = start
    while done < limit:
        goal = 1 if done == 0 else min(limit, *((done // every + 1) * every for every in rhythms))
        yield goal - done
        done = goal
