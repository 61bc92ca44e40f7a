"""A fit between two of its iterations: its phases, what it keeps to go on from, and its result so far."""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from airnp._arrays import Array, copied, dtype_name
from airnp.optimizers import delayed
from airnp.training.monitors import Monitor
from airnp.training.options import Options
from airnp.training.progress import held_back
from airnp.training.recorder import Recorder
from airnp.training.steps import Steps
from airnp.training.stopping import StopRule
from airnp.training.task import Bools, Choice, Refit, Task, Trainable

_SPARE_SHARE, _SPARE_LEAST, _SPARE_MOST = 0.05, 10, 500
"""How much of ``max_iter`` is kept for a second phase that continues, at least and at most."""


@dataclass
class Phases:
    """How far a fit has come: a first phase without the held-out entries, perhaps a second with all of them.

    Attributes
    ----------
    start : int
        The iteration at which this phase began.
    chosen : Choice or None
        The iterate that the second phase follows; None in the first. Without parameters if it starts again.
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

    def limit(self, max_iter: int, wants_follow_up: bool, refit: Refit) -> int:
        """Return the iteration at which this phase ends at the latest.

        Examples
        --------
        >>> Phases().limit(1000, True, "continue"), Phases().limit(1000, True, "restart")
        (950, 500)
        >>> Phases().limit(1000, False, "continue")
        1000
        """
        if self.chosen is not None:
            most = _SPARE_MOST if refit == "continue" else int(self.chosen.iteration)
            return min(max_iter, self.start + most)
        if not wants_follow_up:
            return max_iter
        if refit == "restart":
            return max(1, max_iter // 2)
        spare = min(_SPARE_MOST, int(_SPARE_SHARE * max_iter))
        return max_iter if spare < _SPARE_LEAST else max_iter - spare

    def end_first(self, reason: str) -> None:
        """Note why the first phase ended."""
        self.ended, self.used_up = reason, self.stopped is None

    def begin_second(self, start: int, chosen: Choice) -> None:
        """Note where the second phase begins."""
        self.start, self.chosen, self.stopped = start, chosen, None


@dataclass(frozen=True)
class RunState:
    """What changes during a fit, without its history; what does not is in the caller's arguments.

    Attributes
    ----------
    iteration : int
        How many were made.
    params : list of arrays
    memory : object
        The optimiser's.
    structure : object
        What the parameters belong to, such as candidate edges.
    energies : ndarray or None
        Of the last iteration.
    monitors : list of dict
        What the monitor remembers, and that of the second phase once it has begun.
    limit : int
        The iteration at which this phase ends at the latest.
    held_out : str
        A hash of the entries that the first phase must not see.
    start, chosen, stopped, ended, used_up
        As of :class:`Phases`.
    """

    iteration: int
    params: list[Array]
    memory: Any
    structure: Any
    energies: npt.NDArray[np.float64] | None
    monitors: list[dict[str, Any]]
    limit: int
    held_out: str
    start: int
    chosen: Choice | None
    stopped: str | None
    ended: str | None
    used_up: bool


class Run:
    """A fit between two of its iterations, from its beginning or from where another run was.

    Parameters
    ----------
    task : Task
    rule : StopRule
        Its monitor watches the first phase, and may ask for a second with all observations.
    options : Options
    resumed : (RunState, result), optional
        Where another run of the same fit was, and its result so far. Default: start from the beginning.

    Attributes
    ----------
    objective : Trainable
        Of this phase.
    steps : Steps
        Of this phase.
    recorder : Recorder
    phases : Phases
    """

    objective: Trainable
    steps: Steps

    def __init__(
        self, task: Task, rule: StopRule, options: Options, resumed: tuple[RunState, Any] | None = None
    ) -> None:
        self._task, self.options = task, options
        self._monitors = [rule.begin(task, options.seed)]
        self._held_out = self.monitor.held_out
        self._first: Any = None
        self.phases = Phases()
        self.objective = task.objective(self._held_out)
        self.recorder = Recorder(self.objective, task, options.record.truth)
        if resumed is None:
            self.steps = self._made_steps(self.objective.init(options.seed, options.init))
        else:
            self._resume(*resumed)
        self.note()

    @property
    def monitor(self) -> Monitor:
        """The one of this phase."""
        return self._monitors[-1]

    @property
    def limit(self) -> int:
        """The iteration at which this phase ends at the latest."""
        return self.phases.limit(self.options.max_iter, self.monitor.wants_follow_up, self._task.refit)

    @property
    def lacks_second_phase(self) -> bool:
        """Whether ``max_iter`` leaves no iterations for a second phase that the monitor would like."""
        return self.monitor.wants_follow_up and self.limit == self.options.max_iter

    @property
    def origin(self) -> int:
        """The iteration from which rhythms count: the start of a phase that starts again, else 0."""
        return self.phases.start if self._task.refit == "restart" else 0

    def begin_second_phase(self) -> bool:
        """Go on with all observations; return whether there is a need."""
        chosen = self.monitor.choice(self._last())
        monitor = self.monitor.follow_up(chosen, self._task.refit)
        if monitor is None:
            return False
        with held_back():
            done = self.steps.iteration
            if self._task.refit == "restart":
                self._first = self.result("")
                chosen = Choice([], chosen.iteration)
                del self.steps, self.objective  # they go before others take their place
            self.objective = self.recorder.objective = self._task.objective(None)
            self._monitors.append(monitor)
            self.phases.begin_second(done, chosen)
            # Iterations change arrays in place, and the fit may have to go back to the chosen ones.
            start = [copied(param) for param in chosen.params] or self.objective.init(
                self.options.seed, self.options.init
            )
            self.steps = self._made_steps(start, done)
            self.note()
        return True

    def note(self) -> None:
        """Note where the fit is, but for what the steps themselves keep; nothing of it changes later."""
        self._noted: dict[str, Any] = {
            "energies": self.recorder.last_energies,
            "monitors": [monitor.state() for monitor in self._monitors],
            "limit": self.limit,
            "held_out": _hash(self._held_out),
            **vars(self.phases),
        }

    def state(self) -> RunState | str:
        """Return where the fit can go on from, or why it cannot."""
        for monitor in self._monitors:
            if monitor.remembered is None and type(monitor).check is not Monitor.check:
                return f"stop: {type(monitor).__name__} does not say what is remembered"
        iteration, params, memory, structure = self.steps.kept()
        return RunState(iteration=iteration, params=params, memory=memory, structure=structure, **self._noted)

    def result(self, reason: str) -> Any:
        """Return what the fit has found so far, and why it ended.

        Until a second phase that starts again has come to its end, what the first one found is better.
        """
        history, n_iter = self.recorder.history, self.steps.iteration
        history.truncate(n_iter)
        if self._first is not None and n_iter != self.limit:
            return replace(self._first, history=history, n_iter=n_iter, stop_reason=reason)
        return self._task.result(
            self.objective,
            self.monitor.choice(self._last()),
            self.monitor.blind_choice(),
            self._held_out,
            history=history,
            n_iter=n_iter,
            stop_reason=reason,
            seed=self.options.seed,
        )

    def _last(self) -> Choice:
        made = self.steps.iteration - self.origin
        iteration = np.full(self.objective.batch, made, dtype=np.int64)
        return Choice(self.steps.params, iteration, self.objective.structure)

    def _made_steps(self, params: list[Array], iteration: int = 0, memory: Any = None) -> Steps:
        options = self.options
        delay = 0 if self._task.refit == "restart" else self.phases.start
        return Steps(
            self.objective,
            delayed(options.optimizer, delay),
            params,
            engine=options.engine,
            start=iteration,
            origin=self.origin,
            memory=memory,
            resumable=options.checkpoint is not None,
        )

    def _check_dtypes(self, params: list[Array]) -> None:
        """Raise unless stored parameters have the dtype of the fit, and as many axes as its own."""
        wanted = [len(shape) for shape in self.objective.param_shapes]
        if [param.ndim for param in params] != wanted:
            raise ValueError(f"params: expected {len(wanted)} arrays like those of the run")
        for param in params:
            if dtype_name(param.dtype) != self._task.dtype:
                raise ValueError(f"params: expected {self._task.dtype}, the file has {param.dtype}")

    def _resume(self, state: RunState, result: Any) -> None:
        """Take over where another run was."""
        if state.held_out != _hash(self._held_out):
            raise ValueError("stop: holds out other entries than the run did")
        self.phases = Phases(state.start, state.chosen, state.stopped, state.ended, state.used_up)
        self.monitor.restore(state.monitors[0])
        if state.chosen is not None:
            monitor = self.monitor.follow_up(state.chosen, self._task.refit)
            if monitor is None:
                raise ValueError("stop: asks for no second phase, which the run had begun")
            monitor.restore(state.monitors[1])
            self._monitors.append(monitor)
            self.objective = self.recorder.objective = self._task.objective(None)
            self._first = result if self._task.refit == "restart" else None
        elif state.iteration >= self.limit < state.limit:
            raise ValueError(
                f"max_iter: the run has made {state.iteration} iterations before its second phase, and would "
                f"have made {self.limit} with max_iter={self.options.max_iter}; give more"
            )
        if state.structure is not None:
            _check_nodes(self.objective.structure, state.structure)
            self.objective.structure = state.structure
        shapes = [tuple(param.shape) for param in state.params]
        if shapes != self.objective.param_shapes:
            raise ValueError(
                f"regularizers: expected those of the run, whose factors and graphs have shapes {shapes}; "
                f"these need {self.objective.param_shapes}"
            )
        for params in (state.params, *_chosen_params([state.chosen, state.monitors])):
            self._check_dtypes(params)
        history = result.history
        history.truncate(state.iteration)
        self.recorder.restore(history, state.energies)
        self.steps = self._made_steps(self.objective.adopt(state.params), state.iteration, state.memory)


def _chosen_params(tree: Any) -> list[list[Array]]:
    """Return the parameters of all choices in lists and dicts."""
    if isinstance(tree, Choice):
        return [tree.params] if tree.params else []
    parts = list(tree.values()) if isinstance(tree, dict) else tree if isinstance(tree, list | tuple) else []
    return [params for part in parts for params in _chosen_params(part)]


def _check_nodes(own: Any, stored: Any) -> None:
    """Raise unless stored graphs have the nodes of the objective's own."""
    pairs = zip(own, stored, strict=True) if isinstance(own, list | tuple) else [(own, stored)]
    for mine, other in pairs:
        pattern, found = getattr(mine, "pattern", None), getattr(other, "pattern", None)
        if pattern is not None and (found is None or found.lines != pattern.lines):
            raise ValueError(f"regularizers: expected a graph of {pattern.lines} nodes in the file")


def _hash(held_out: Bools | None) -> str:
    """Return a hash of which entries are held out, to detect a resume under another rule."""
    if held_out is None:
        return "none"
    return blake2b(f"{held_out.shape}".encode() + np.packbits(held_out).tobytes(), digest_size=16).hexdigest()
