"""The loop around the iterations of a fit, dense or sparse: when to look, record, stop and save."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from airnp.results.result import DivergenceError
from airnp.training.checkpoints import CheckpointFile
from airnp.training.options import Options
from airnp.training.progress import ProgressBar, held_back
from airnp.training.recorder import FitState
from airnp.training.run import Run, RunState
from airnp.training.steps import Steps
from airnp.training.stopping import StopRule
from airnp.training.task import Task


class Loop:
    """One fit, in one phase or two.

    Parameters
    ----------
    task, rule, options, resumed
        As :class:`airnp.training.run.Run` takes them.
    """

    def __init__(
        self, task: Task, rule: StopRule, options: Options, resumed: tuple[RunState, Any] | None = None
    ) -> None:
        self._run = Run(task, rule, options, resumed)
        self._file = None if options.checkpoint is None else CheckpointFile(task, rule, options)

    def run(self) -> Any:
        """Iterate until a rule, the callback, the user or ``max_iter`` ends the fit; return the result.

        Raise KeyboardInterrupt if the user ends it before the first iteration: there is no result then, but
        a checkpoint to go on from.
        """
        run = self._run
        try:
            with ProgressBar(run.options.max_iter, run.options.progress) as bar:
                reason, by_user = self._all_phases(bar)
            if not run.steps.is_finite():
                raise self._diverged(run.steps.iteration)
        except KeyboardInterrupt:
            # An iteration may have been cut in half.
            run.steps.rewind()
            if not run.steps.is_finite():
                run.steps.fall_back()
            reason, by_user = "interrupted", True
        # With more iterations a first phase that used its own up goes on, and a second one may find room.
        goes_on = by_user or (run.phases.chosen is None and (run.phases.used_up or run.lacks_second_phase))
        state = run.state() if goes_on and self._file is not None else None
        run.steps.release()
        result = run.result(reason)
        if self._file is not None:
            self._file.write(result, state, finished=not by_user, used_up=run.phases.used_up)
        if by_user and result.n_iter == 0:
            raise KeyboardInterrupt
        return result

    def _all_phases(self, bar: ProgressBar) -> tuple[str, bool]:
        """Go through one phase or two; return why the first ended, and whether the user ended the fit."""
        run = self._run
        if run.phases.chosen is None:
            reason, by_user = self._phase(bar)
            if by_user:
                return reason, True
            run.phases.end_first(reason)
            if run.limit == run.options.max_iter or not run.begin_second_phase():
                return reason, False
        assert run.phases.ended is not None
        return run.phases.ended, self._phase(bar)[1]

    def _phase(self, bar: ProgressBar) -> tuple[str, bool]:
        """Iterate to the limit or until something stops it; return why, and whether the user did."""
        run = self._run
        options, phases, limit = run.options, run.phases, run.limit
        steps, monitor = run.steps, run.monitor
        rhythms = [run.objective.portion, *run.objective.rhythms]
        if self._shows_records:
            rhythms.append(options.record.every)
        if monitor.every is not None:
            rhythms.append(monitor.every)
        for iterations in portions(steps.iteration - run.origin, limit - run.origin, rhythms):
            if phases.stopped is not None:
                break
            values = steps.attempt(iterations)
            with held_back():
                state, look, recorded = self._settle(values, limit)
            if recorded:
                bar.show(state)
                callback = options.callback
                if callback is not None and callback(steps.iteration, state) and phases.stopped is None:
                    if not look:
                        monitor.check(state)  # the last iterate may be the best one
                    return "stopped by callback", True
            if self._file is not None and self._file.is_due:
                self._save(self._file)
        return phases.stopped or f"max_iter ({options.max_iter}) reached", False

    def _settle(self, values: npt.NDArray[np.float64], limit: int) -> tuple[FitState, bool, bool]:
        """Take a portion of iterations in; return the state, and whether it was looked at and recorded."""
        run, steps, monitor, phases = self._run, self._run.steps, self._run.monitor, self._run.phases
        steps.settle(values)
        if not np.isfinite(values).all():
            raise self._diverged(_finite_iterations(steps, values))
        self._record_between(values)
        state = run.recorder.state(steps.iteration, steps.params, values, partial(run.result, "so far"))
        made, last = steps.iteration - run.origin, steps.iteration == limit
        look = monitor.every is not None and made % monitor.every == 0
        record = made == 1 or made % run.options.record.every == 0
        phases.stopped = monitor.check(state) if look or last else None
        recorded = record or last or phases.stopped is not None
        if recorded:
            run.recorder.record(state)
        # What happens at the limit alone would not be part of a longer run: one can go on from before it.
        regular = (look or monitor.every is None) and (record or phases.stopped is not None)
        if (regular or not last) and steps.keep() and self._file is not None:
            run.note()
        return state, look or last, recorded

    @property
    def _shows_records(self) -> bool:
        """Whether each record ends a portion. Where looking is slow and nobody sees the state, none does."""
        options = self._run.options
        shown = options.callback is not None or options.progress or options.record.truth is not None
        return shown or self._file is not None or not self._run.objective.engine.looks_seldom

    def _record_between(self, values: npt.NDArray[np.float64]) -> None:
        """Record the iterations before the last one of a portion whose turn it is."""
        run = self._run
        first, every = run.steps.iteration - len(values) + 1, run.options.record.every
        for iteration, row in zip(range(first, run.steps.iteration), values[:-1], strict=True):
            made = iteration - run.origin
            if made == 1 or made % every == 0:
                run.recorder.record_values(iteration, row)

    def _diverged(self, iterations: int) -> DivergenceError:
        """Return the error to raise, with the last finite state in it."""
        steps = self._run.steps
        steps.fall_back()
        return DivergenceError.after(iterations, steps.iteration, self._run.result("diverged"))

    def _save(self, file: CheckpointFile) -> None:
        """Save the run, unless that would replace a good file by one that is not finite."""
        run = self._run
        if run.steps.is_finite():
            file.write(run.result("checkpoint"), run.state(), finished=False, used_up=run.phases.used_up)


def portions(start: int, limit: int, rhythms: Sequence[int]) -> Iterator[int]:
    """Yield numbers of iterations that end wherever something is due, and at the first and the last.

    Boundaries count from iteration 0, so a resumed run splits identically.

    Examples
    --------
    >>> list(portions(0, 35, [10, 50])), list(portions(20, 35, [10, 50]))
    ([1, 9, 10, 10, 5], [10, 5])
    """
    done = start
    while done < limit:
        goal = 1 if done == 0 else min(limit, *((done // every + 1) * every for every in rhythms))
        yield goal - done
        done = goal


def _finite_iterations(steps: Steps, values: npt.NDArray[np.float64]) -> int:
    """Return how many iterations were made when the loss was first found not to be finite."""
    finite = np.isfinite(values.reshape(len(values), -1)).all(axis=1)
    return steps.iteration - len(values) + int(np.argmin(finite))
