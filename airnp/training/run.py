"""A fit under way: what is minimised, who watches, and in which phase it is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from airnp._arrays import Array, copied, to_numpy
from airnp.data.prepared import PreparedData, without
from airnp.model.objective import Model, Objective, fitted_regularizers
from airnp.optimizers import FrozenFactors, delayed
from airnp.results.calibration import Calibration, calibration
from airnp.results.history import History
from airnp.results.result import FitResult
from airnp.training.checkpoints import RunState
from airnp.training.monitors import Choice, Monitor
from airnp.training.options import Options
from airnp.training.progress import held_back
from airnp.training.recorder import Watcher
from airnp.training.rival import Explained, Rival
from airnp.training.steps import Training
from airnp.training.stopping import StopRule

Bools = npt.NDArray[np.bool_]

_GRAPH_ITERATIONS = 2000
"""Iterations at most in which only the graphs are learned, over a matrix that is known already."""


class Underway:
    """A fit between two of its iterations, from its beginning or from where another run was.

    Parameters
    ----------
    data : PreparedData
    model : Model
    rule : StopRule
        Its monitor watches the first phase, and may ask for a second with all observations.
    options : Options
    resumed : (RunState, History), optional
        Where another run of the same fit was, and what it had recorded. Default: start from the beginning.

    Attributes
    ----------
    options : Options
    objective : Objective
        Of this phase.
    training : Training
        Of this phase.
    watcher : Watcher
    phases : Phases
    rival : Rival
    at_limit : str
        What to tell the user when the iterations are used up.
    """

    def __init__(
        self,
        data: PreparedData,
        model: Model,
        rule: StopRule,
        options: Options,
        resumed: tuple[RunState, History] | None,
    ) -> None:
        self._data, self._model, self.options = data, model, options
        self._monitors = [rule.begin(data.observations, data.operator, options.seed)]
        self._held_out = self.monitor.held_out
        self.at_limit = f"max_iter ({options.max_iter}) reached"
        self.objective = model.objective(data, without(data.observations, self._held_out))
        self._check_precision()
        self.watcher = Watcher(self.objective, data, options.truth)
        self.phases = Phases()
        self.training = self._begun() if resumed is None else self._taken_up(*resumed)
        self.note()

    @property
    def monitor(self) -> Monitor:
        """The one of this phase."""
        return self._monitors[-1]

    @property
    def limit(self) -> int:
        """The iteration at which this phase ends at the latest."""
        return self.phases.limit(self.options.max_iter, self.monitor.wants_follow_up)

    def begin_second_phase(self) -> bool:
        """Go on from the chosen iterate with all observations; return whether there is a need."""
        chosen = self.monitor.choice(self._last())
        monitor = self.monitor.follow_up(self._data.observations, chosen)
        if monitor is not None:
            objective = self._model.objective(self._data, self._data.observations)
            with held_back():
                self._monitors.append(monitor)
                self.objective = objective
                self.phases.begin_second(self.training.iteration, chosen)
                # Iterations change arrays in place, and the fit may have to go back to the chosen ones.
                start = [copied(param) for param in chosen.params]
                self.training = self._trained(start, self.phases.start)
                self.note()
        return monitor is not None

    def note(self) -> None:
        """Note where the fit is, but for what the training itself keeps; nothing of it changes later."""
        self._noted: dict[str, Any] = {
            "energies": self.watcher.remembered(),
            "monitors": [monitor.state() for monitor in self._monitors],
            "limit": self.limit,
            "held_out": self._held_out,
            "explained": self.rival.found,
            "replaced": self.rival.replaced,
            **vars(self.phases),
        }

    def state(self) -> RunState | str:
        """Return where the fit can go on from, or why it cannot."""
        for monitor in self._monitors:
            if monitor.remembered is None and type(monitor).check is not Monitor.check:
                return f"stop: {type(monitor).__name__} does not say what is remembered"
        iteration, params, memory = self.training.kept()
        return RunState(iteration=iteration, params=params, memory=memory, **self._noted)

    def result(self, reason: str) -> FitResult:
        """Return what the fit has found so far, and why it ended."""
        history, n_iter = self.watcher.history, self.training.iteration
        history.truncate(n_iter)
        return answer(
            self._data,
            self.objective,
            self.monitor,
            self.rival,
            self._last(),
            history,
            held_out=self._held_out,
            n_iter=n_iter,
            reason=reason,
            seed=self.options.seed,
        )

    def _last(self) -> Choice:
        training = self.training
        return Choice(training.params, np.full(self.objective.batch, training.iteration, dtype=np.int64))

    # --- beginning ---

    def _begun(self) -> Training:
        """Return the training before its first iteration."""
        options, objective = self.options, self.objective
        self.rival = Rival.sought(self.monitor, self._data.observations, objective)
        start = objective.init(options.seed, options.init)
        known = self.rival.exact()
        if known is not None:
            start[: objective.depth] = known.factors()
            self._learn_graphs_only(known)
        return self._trained(start)

    def _taken_up(self, state: RunState, history: History) -> Training:
        """Return the training where another run left it."""
        seen = self._data.observations
        _check_same_entries(state.held_out, self._held_out)
        self.rival = Rival.taken_up(state.explained, state.replaced, seen, self.objective)
        known = self.rival.exact()
        if known is not None:
            self._learn_graphs_only(known)
        self.phases = Phases(state.start, state.chosen, state.stopped, state.ended, state.used_up)
        self.monitor.restore(state.monitors[0])
        if state.chosen is not None:
            monitor = self.monitor.follow_up(seen, state.chosen)
            if monitor is None:
                raise ValueError("stop: asks for no second phase, which the run had begun")
            monitor.restore(state.monitors[1])
            self._monitors.append(monitor)
            self.objective = self._model.objective(self._data, seen)
        elif state.iteration >= self.limit < state.limit:
            raise ValueError(
                f"max_iter: the run has made {state.iteration} iterations before its second phase, and would "
                f"have made {self.limit} with max_iter={self.options.max_iter}; give more"
            )
        _check_same_shapes(state.params, self.objective.param_shapes)
        history.truncate(state.iteration)
        self.watcher.restore(history, state.energies)
        return self._trained(state.params, state.iteration, state.memory)

    def _learn_graphs_only(self, known: Explained) -> None:
        """Prepare a fit whose factors are known: nothing need be held out, and nobody need watch."""
        self.at_limit = known.reason
        self._monitors = [Monitor()]
        self.objective = self._model.objective(self._data, self._data.observations)
        limit = _GRAPH_ITERATIONS if len(self.objective.param_shapes) > self.objective.depth else 1
        self.options = replace(
            self.options,
            max_iter=min(self.options.max_iter, limit),
            optimizer=FrozenFactors(self.options.optimizer),
        )

    def _check_precision(self) -> None:
        """Refuse what would be ignored in silence."""
        engine = self.objective.engine_name
        if self.options.precision is not None and engine != "cuda":
            raise ValueError(f"precision: 'tf32' is for the CUDA engine, this fit uses {engine!r}")

    def _trained(self, params: list[Array], iteration: int = 0, memory: Any = None) -> Training:
        options = self.options
        return Training(
            self.objective,
            delayed(options.optimizer, self.phases.start),
            params,
            start=iteration,
            threads=options.threads,
            precision=options.precision,
            memory=memory,
            resumable=options.file is not None,
        )


def _check_same_entries(before: Bools | None, now: Bools | None) -> None:
    """Raise unless a run that is taken up holds out the same entries."""
    none: Bools = np.zeros(0, dtype=bool)
    if not np.array_equal(none if before is None else before, none if now is None else now):
        raise ValueError("stop: holds out other entries than the run did")


def _check_same_shapes(params: list[Array], expected: list[tuple[int, ...]]) -> None:
    """Raise unless a run that is taken up has parameters of these shapes."""
    shapes = [tuple(param.shape) for param in params]
    if shapes != expected:
        raise ValueError(
            f"regularizers: expected those of the run, whose factors and graphs have shapes {shapes}; "
            f"these need {expected}"
        )


def answer(
    data: PreparedData,
    objective: Objective,
    monitor: Monitor,
    rival: Rival,
    last: Choice,
    history: History,
    *,
    held_out: npt.NDArray[np.bool_] | None,
    n_iter: int,
    reason: str,
    seed: int,
) -> FitResult:
    """Return the result of a fit.

    Parameters
    ----------
    data : PreparedData
    objective : Objective
        Of this phase.
    monitor : Monitor
        Of this phase; it chooses the iterate.
    rival : Rival
    last : Choice
        Where the fit is.
    history : History
        Up to there.
    held_out : ndarray of bool (…, m, n), optional
        Entries that the first phase did not see.
    n_iter : int
    reason : str
        Why the fit ended.
    seed : int
    """
    chosen = rival.put_into(monitor.choice(last))
    params = chosen.params
    return FitResult(
        matrix=data.restored(objective.matrix(params)),
        factors=list(params[: objective.depth]),
        regularizers=fitted_regularizers(objective, params),
        history=history,
        n_iter=n_iter,
        best_iter=_whole(chosen.iteration),
        stop_reason=reason,
        seed=seed,
        normalization=data.normalization,
        mask=None if data.original is None else data.observations.mask,
        observed=data.original,
        labels=data.observations.labels,
        calibration=_calibration(data, objective, monitor, rival, held_out),
        bounds=data.bounds,
    )


def _calibration(
    data: PreparedData,
    objective: Objective,
    monitor: Monitor,
    rival: Rival,
    held_out: npt.NDArray[np.bool_] | None,
) -> Calibration | None:
    """Return the held-out entries beside what was predicted before anything saw them."""
    if data.original is None or held_out is None:
        return None
    folds = []
    unseeing = monitor.unseeing()
    if unseeing is not None:
        predicted = to_numpy(objective.matrix(unseeing.params))
        folds.append((held_out & ~rival.replaced[..., None, None], predicted))
    folds += rival.left_out()
    return calibration(data.original, folds, data.normalization, data.bounds)


def _whole(iteration: npt.NDArray[np.int64]) -> Any:
    return int(iteration) if iteration.ndim == 0 else iteration


_SPARE_SHARE, _SPARE_LEAST, _SPARE_MOST = 0.05, 10, 500
"""How much of ``max_iter`` is kept for a second phase, and how many iterations at least and at most."""


@dataclass
class Phases:
    """How far a fit has come.

    Attributes
    ----------
    start : int
        The iteration at which this phase began.
    chosen : Choice or None
        The iterate that the second phase began with; None in the first.
    stopped : str or None
        Why a monitor has just ended this phase.
    ended : str or None
        Why the first phase ended, once it has.
    used_up : bool
        Whether it ended because its iterations were used up.
    """

    start: int = 0
    chosen: Choice | None = None
    stopped: str | None = None
    ended: str | None = None
    used_up: bool = False

    def limit(self, max_iter: int, wants_follow_up: bool) -> int:
        """Return the iteration at which this phase ends at the latest.

        Examples
        --------
        >>> Phases().limit(1000, wants_follow_up=True), Phases().limit(1000, wants_follow_up=False)
        (950, 1000)
        """
        if self.chosen is not None:
            return min(max_iter, self.start + _SPARE_MOST)
        spare = min(_SPARE_MOST, int(_SPARE_SHARE * max_iter))
        return max_iter if spare < _SPARE_LEAST or not wants_follow_up else max_iter - spare

    def end_first(self, reason: str) -> None:
        """Note why the first phase ended."""
        self.ended, self.used_up = reason, self.stopped is None

    def begin_second(self, start: int, chosen: Choice) -> None:
        """Note where the second phase begins."""
        self.start, self.chosen, self.stopped = start, chosen, None
