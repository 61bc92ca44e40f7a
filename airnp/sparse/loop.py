"""The loop of a sparse fit: through its phases, with what is recorded, told, saved and given back."""

from __future__ import annotations

from dataclasses import replace

from airnp.engines.pace import Pace
from airnp.engines.threads import let_work, using
from airnp.history import History, energy_columns
from airnp.result import DivergenceError
from airnp.running.interrupts import held_back
from airnp.running.progress import ProgressBar
from airnp.saving.checkpoints import Checkpoint
from airnp.sparse.fitted import fitted_result
from airnp.sparse.phase import Phase
from airnp.sparse.problem import SparseFitState, SparseOptions, SparseProblem
from airnp.sparse.result import SparseFitResult
from airnp.sparse.saved import SparseRunState, SparseTask
from airnp.sparse.training import SparseTraining
from airnp.stopping.rules import HeldOut


class SparseLoop:
    """One sparse fit: with held-out entries, and then again with all of them, if the rule says so.

    Parameters
    ----------
    problem : SparseProblem
    options : SparseOptions
    resumed : (SparseRunState, SparseFitResult), optional
        Where another run of the same fit was, and its result so far. Default: start from the beginning.
    """

    def __init__(
        self,
        problem: SparseProblem,
        options: SparseOptions,
        resumed: tuple[SparseRunState, SparseFitResult] | None = None,
    ) -> None:
        self._problem, self._options = problem, options
        second = resumed is not None and resumed[0].chosen is not None
        self._now = Phase(problem, options, resumed[0].done if resumed is not None and second else None)
        self._columns = energy_columns(self._now.model.names)
        self._history = History(["loss", "fidelity", *self._columns])
        self._chosen: int | None = None
        self._ended: str | None = None
        self._used_up = False
        self._first: SparseFitResult | None = None
        if resumed is not None:
            self._take_up(*resumed)
        self._pace: Pace | None = None
        self._checkpoint: Checkpoint | None = None
        if options.file is not None:
            self._checkpoint = Checkpoint(options.file, options.file_every, SparseTask(problem, options))

    def _take_up(self, state: SparseRunState, result: SparseFitResult) -> None:
        """Go on where another run was."""
        if state.chosen is None and state.held != self._now.held:
            raise ValueError("stop: holds out other entries than the run did")
        if list(result.history) != list(self._history) or len(state.edges) != len(self._now.model.learned):
            expected, found = (", ".join(one) for one in (result.history, self._history))
            raise ValueError(f"regularizers: expected those of the run, with columns {expected}; got {found}")
        self._history = result.history
        self._history.truncate(state.recorded)
        self._chosen, self._ended, self._used_up = state.chosen, state.ended, state.used_up
        self._first = None if state.chosen is None else result
        self._now.take_up(state)

    def run(self) -> SparseFitResult:
        """Make iterations until a rule, the callback, the user or ``max_iter`` ends them."""
        options = self._options
        with using(options.threads) as several, ProgressBar(options.max_iter, options.progress) as bar:
            self._pace = Pace(several, let_work) if several > 1 else None
            try:
                reason, by_user = self._phases(bar)
            except KeyboardInterrupt:
                if not self._now.has_begun:
                    raise
                reason, by_user = "interrupted", True
            return self._concluded(reason, by_user)

    def _phases(self, bar: ProgressBar) -> tuple[str, bool]:
        """Go through one phase or two; return why the first ended, and whether the user ended the fit."""
        if self._chosen is None:
            reason, by_user = self._phase(bar, self._options.max_iter)
            if by_user:
                return reason, True
            self._ended, self._used_up = reason, self._now.stopped is None
            if not self._starts_again():
                return reason, False
            with held_back():
                self._begin_again()
        assert self._ended is not None
        assert self._chosen is not None
        return self._ended, self._phase(bar, self._chosen)[1]

    def _starts_again(self) -> bool:
        """Whether the rule wants a second phase, and the first has found how long it should be."""
        rule = self._options.rule
        return isinstance(rule, HeldOut) and rule.refit and self._now.watch.best is not None

    def _begin_again(self) -> None:
        """Begin a second phase: as many iterations as were best, from the same start, with all entries."""
        self._first, done = self._result(""), self._now.total
        del self._now  # its entries and arrays go before others take their place
        self._now, self._chosen = Phase(self._problem, self._options, done), self._first.best_iter
        self._now.begin()

    def _phase(self, bar: ProgressBar, limit: int) -> tuple[str, bool]:
        """Iterate to a limit or until something stops it; return why, and whether the user did."""
        now = self._now
        with held_back():
            now.begin()
            at_limit = 0 < now.training.iteration == limit  # and has yet to do what is done there alone
            state = self._recorded() if at_limit and now.settled(limit, again=True) else None
        if state is not None and self._tell(bar, state):
            return "stopped by callback", True
        while now.stopped is None and now.training.iteration < limit:
            with held_back():
                if not now.went_on(self._step(now.training), limit):
                    raise self._diverged()
                state = self._recorded() if now.settled(limit) else None
            if state is not None and self._tell(bar, state):
                return "stopped by callback", True
            if self._checkpoint is not None and self._checkpoint.is_due:
                self._save(self._checkpoint)
        return now.stopped or f"max_iter ({self._options.max_iter}) reached", False

    def _step(self, training: SparseTraining) -> list[float]:
        """Make an iteration with as many threads as are quickest now; how work is cut does not change."""
        # The first may compile: its time says nothing.
        if self._pace is None or training.iteration == 0:
            return training.step()
        return self._pace.run(training.step)

    def _recorded(self) -> SparseFitState:
        """Add this iteration to the history."""
        now = self._now
        assert now.values is not None
        fidelity, energies = now.values[0], now.values[1:]
        loss, named = now.model.loss(fidelity, energies), dict(zip(self._columns, energies, strict=True))
        self._history.append(now.total, {"loss": loss, "fidelity": fidelity, **named})  # type: ignore[dict-item]
        return SparseFitState(now.total, loss, fidelity, named, lambda: self._result("so far"))

    def _tell(self, bar: ProgressBar, state: SparseFitState) -> bool:
        """Show what was recorded; return whether the callback ends a phase that would not end here anyway."""
        bar.show(state)  # type: ignore[arg-type]
        callback = self._options.callback
        if callback is None or not callback(state.iteration, state) or self._now.stopped is not None:
            return False
        self._now.look_once_more()
        return True

    def _diverged(self) -> DivergenceError:
        """Return the error to raise, with the last finite state in it."""
        iterations = self._now.total - 1
        self._fall_back()
        result = self._result("diverged")
        return DivergenceError.after(iterations, result.best_iter, result)

    def _fall_back(self) -> None:
        self._now.fall_back()
        self._history.truncate(self._now.total)

    def _concluded(self, reason: str, by_user: bool) -> SparseFitResult:
        """Return the result, and save it with all that a longer run would need."""
        checkpoint = self._checkpoint
        if by_user and not self._now.training.is_finite():
            self._fall_back()
            checkpoint = None  # what is in the file is finite
        # More iterations than max_iter may be wanted later; a phase that ended for another reason is over.
        goes_on = by_user or (self._used_up and self._chosen is None)
        result = self._result(reason)
        if checkpoint is not None:
            state = self._state() if goes_on else None
            checkpoint.write(result, state, finished=not by_user, used_up=self._used_up)
        return result

    def _save(self, file: Checkpoint) -> None:
        """Save the run, unless that would replace a good file by one that is not finite."""
        if self._now.training.is_finite():
            file.write(self._result("checkpoint"), self._state(), finished=False, used_up=self._used_up)

    def _state(self) -> SparseRunState:
        """Return where the run can go on from."""
        return SparseRunState(
            **self._now.position(), chosen=self._chosen, ended=self._ended, used_up=self._used_up
        )

    def _result(self, reason: str) -> SparseFitResult:
        """Return the best iterate, or the last, in the data's units.

        A second phase starts anew: until it has come to its end, what the first one found is better.
        """
        now, history = self._now, self._history
        if self._first is not None and now.training.iteration != self._chosen:
            return replace(self._first, history=history, n_iter=now.total, stop_reason=reason)
        iteration, state = now.watch.best or (now.training.iteration, now.training.state)
        return fitted_result(
            *(self._problem, now.model, state),
            history=history,
            n_iter=now.total,
            best_iter=iteration,
            stop_reason=reason,
            seed=self._options.seed,
        )
