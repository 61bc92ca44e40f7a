"""When to stop, and which iterate to return, from observed data alone.

A rule says what the user wants and can serve many fits; :meth:`StopRule.begin` gives the monitor of one fit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import array_api_compat as compat
import numpy as np
import numpy.typing as npt

from airnp._arrays import Array, from_numpy, to_numpy
from airnp.inputs import Observations
from airnp.state import FitState
from airnp.transforms import Transform

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Choice:
    """The parameters that a monitor wants returned, and the iterations they come from (one per problem)."""

    params: list[Array]
    iteration: npt.NDArray[np.int64]


class Monitor:
    """Watches one fit. This one never stops it, and returns what comes last."""

    held_out: Bools | None = None
    """Observed entries that the fit must not see; None for none."""

    def check(self, state: FitState) -> str | None:
        """Return why to stop now, or None to go on."""
        return None

    def choice(self) -> Choice | None:
        """Return the iterate to give back, or None for the last one."""
        return None


class StopRule(ABC):
    """Decides when a fit ends."""

    @abstractmethod
    def begin(self, observations: Observations, operator: Transform | None, seed: int) -> Monitor:
        """Return the monitor of one fit of the given (normalised) observations."""


class NeverStop(StopRule):
    """Runs to ``max_iter``; what ``stop=None`` means."""

    def begin(self, observations: Observations, operator: Transform | None, seed: int) -> Monitor:
        """Return a monitor that never stops."""
        return Monitor()


class EnergyChange(StopRule):
    """The paper's rule: stop when every energy changes by less than ``delta`` from one iteration to the next.

    Energies are those of the normalised data. The threshold that the paper prints, m·n/1000, is 57.6 for
    a 240×240 image whose energies are 3 to 30: it stops at the second iteration. Choose one that suits
    the energies in ``history``.

    Parameters
    ----------
    delta : float
    """

    def __init__(self, delta: float) -> None:
        if not 0 < delta < float("inf"):
            raise ValueError(f"delta: expected a positive number, got {delta!r}")
        self.delta = float(delta)

    def __repr__(self) -> str:
        return f"EnergyChange({self.delta!r})"

    def begin(self, observations: Observations, operator: Transform | None, seed: int) -> Monitor:
        """Return the monitor of one fit."""
        return _EnergyChangeMonitor(self.delta)


class _EnergyChangeMonitor(Monitor):
    def __init__(self, delta: float) -> None:
        self._delta = delta

    def check(self, state: FitState) -> str | None:
        if not state.energies:
            raise ValueError("stop: EnergyChange needs at least one regularizer with an energy to watch")
        if state.energy_change is None or not np.all(state.energy_change < self._delta):
            return None
        return f"energies changed by less than {self._delta:g}"


class HeldOut(StopRule):
    """Stops when the error on held-out observed entries has stopped falling; returns the best iterate.

    Parameters
    ----------
    fraction : float
        Share of the observed entries to hold out, at random. At least 20 are, or a fifth if there are few.
    patience : int
        Iterations without improvement before the fit ends, at least.
    relative_patience : float
        The same, as a share of the iterations made so far.
    every : int
        Iterations between two looks.

    Notes
    -----
    A learned graph first smooths, and only later lets detail through; in between the held-out error may
    rise for a while. Patience therefore starts to count only when the energies have fallen below half
    their peak. Each problem of a stack is judged by itself.
    """

    def __init__(
        self, fraction: float = 0.05, patience: int = 2000, relative_patience: float = 0.2, every: int = 100
    ) -> None:
        if not 0 < fraction < 1:
            raise ValueError(f"fraction: expected a number between 0 and 1, got {fraction!r}")
        if patience < 1 or every < 1 or relative_patience < 0:
            raise ValueError("patience, every: expected at least 1, and relative_patience at least 0")
        self.fraction = fraction
        self.patience = patience
        self.relative_patience = relative_patience
        self.every = every

    def __repr__(self) -> str:
        return f"HeldOut({self.fraction}, {self.patience}, {self.relative_patience}, {self.every})"

    def begin(self, observations: Observations, operator: Transform | None, seed: int) -> Monitor:
        """Return the monitor of one fit."""
        observed = to_numpy(observations.mask)
        problems = (
            observed.reshape(-1, *observed.shape[-2:]) if operator is None else observed.reshape(1, 1, -1)
        )
        held = np.stack([_draw(problem, self.fraction, seed) for problem in problems])
        return _HeldOutMonitor(self, observations, operator, held.reshape(observed.shape))


def _draw(observed: Bools, fraction: float, seed: int) -> Bools:
    """Return the entries of one problem to hold out; never the last of a row or column of a matrix."""
    rng = np.random.default_rng([seed, 1])
    candidates = observed
    if observed.shape[0] > 1 and observed.shape[1] > 1:
        spare_row = observed.sum(axis=1, keepdims=True) > 1
        spare_column = observed.sum(axis=0, keepdims=True) > 1
        candidates = observed & spare_row & spare_column
    places = np.flatnonzero(candidates)
    total = int(observed.sum())
    count = min(max(round(fraction * total), min(20, total // 5)), len(places))
    held = np.zeros(observed.size, dtype=bool)
    held[rng.choice(places, size=count, replace=False)] = True
    return held.reshape(observed.shape)


class _HeldOutMonitor(Monitor):
    def __init__(
        self, rule: HeldOut, observations: Observations, operator: Transform | None, held: Bools
    ) -> None:
        self._rule = rule
        self._operator = operator
        self._axes = (-2, -1) if operator is None else tuple(range(held.ndim))
        batch = held.shape[:-2] if operator is None else ()
        self.held_out = held
        # With nothing to spare, the entries that are fitted are watched instead: patience then ends a fit
        # that has converged.
        watched = np.where(held.any(axis=self._axes, keepdims=True), held, to_numpy(observations.mask))
        xp, device, dtype = observations.xp, observations.device, observations.dtype
        share = watched / watched.sum(axis=self._axes, keepdims=True)
        self._share = from_numpy(share, xp, device, dtype)
        self._values = observations.values
        self._xp = xp
        self._best_error = np.full(batch, np.inf)
        self._best_iteration = np.zeros(batch, dtype=np.int64)
        self._best_params: list[Array] | None = None
        self._peak_energy = np.zeros(batch)
        self._ended = np.zeros(batch, dtype=bool)
        self._next_look = rule.every

    def check(self, state: FitState) -> str | None:
        energy = (
            np.sum(np.stack([np.asarray(value) for value in state.energies.values()]), axis=0)
            if state.energies
            else 0.0
        )
        self._peak_energy = np.maximum(self._peak_energy, energy)
        if state.iteration < self._next_look:
            return None
        self._next_look = state.iteration + self._rule.every
        self._remember(state)
        waited = state.iteration - self._best_iteration
        patience = max(self._rule.patience, self._rule.relative_patience * state.iteration)
        settled = np.asarray(energy <= 0.5 * self._peak_energy)
        self._ended |= (waited >= patience) & settled
        return "held-out error stopped falling" if self._ended.all() else None

    def _remember(self, state: FitState) -> None:
        """Keep the parameters of every problem whose held-out error is the lowest so far."""
        fitted = state.normalized_matrix
        fitted = (
            fitted
            if self._operator is None
            else self._xp.reshape(self._operator.forward(fitted), self._values.shape)
        )
        error = to_numpy(
            self._xp.sum(self._share * self._xp.abs(fitted - self._values), axis=self._axes)
        ).astype(np.float64)
        better = (error < self._best_error) & ~self._ended
        if not better.any():
            return
        self._best_error = np.where(better, error, self._best_error)
        self._best_iteration = np.where(better, state.iteration, self._best_iteration)
        self._best_params = _merged(self._xp, better, state.params, self._best_params)

    def choice(self) -> Choice | None:
        return None if self._best_params is None else Choice(self._best_params, self._best_iteration)


def _merged(xp: Any, better: Any, params: Sequence[Array], best: Sequence[Array] | None) -> list[Array]:
    """Return copies of ``params`` for the problems where they are better, of ``best`` for the others."""
    if best is None or np.all(better):
        return [xp.asarray(param, copy=True) for param in params]
    chosen = from_numpy(np.asarray(better)[..., None, None], xp, compat.device(params[0]), "bool")
    return [xp.where(chosen, new, old) for new, old in zip(params, best, strict=True)]


def resolve_stop(stop: Any) -> StopRule:
    """Return the rule that ``stop`` names or is."""
    if stop is None:
        return NeverStop()
    if isinstance(stop, str):
        if stop != "auto":
            raise ValueError(f"stop: expected 'auto', None or a rule such as HeldOut(), got {stop!r}")
        return HeldOut()
    if not isinstance(stop, StopRule):
        raise TypeError(f"stop: expected 'auto', None or a rule such as HeldOut(), got {type(stop).__name__}")
    return stop
