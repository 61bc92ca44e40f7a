"""The loop of a sparse fit: through its phases, with what is recorded, told, saved and given back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from airnp._arrays import to_numpy
from airnp.data.entries import Batches
from airnp.engines.threads import Pace, let_work, using
from airnp.model.factored import SparseFitState, SparseModel, SparseOptions, SparseProblem, SparseState
from airnp.model.initialization import candidates, first_state, is_searched
from airnp.regularizers.candidates import Exchange
from airnp.results.history import History, energy_columns
from airnp.results.result import DivergenceError
from airnp.results.sparse_result import SparseFitResult
from airnp.training.checkpoints import Checkpoint
from airnp.training.loop import is_due
from airnp.training.progress import ProgressBar, held_back
from airnp.training.sparse_saved import SparseRunState, SparseTask, fitted_result
from airnp.training.sparse_watch import Watch, held_out_entries, watch_of
from airnp.training.stopping import HeldOut


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
