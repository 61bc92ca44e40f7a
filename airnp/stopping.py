"""When to stop, and which iterate to return, from observed data alone.

A rule says what the user wants and can serve many fits; :meth:`StopRule.begin` gives the monitor of one fit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import array_api_compat as compat
import numpy as np
import numpy.typing as npt

from airnp._arrays import Array, copied, from_numpy, to_numpy
from airnp._checks import checked_number, checked_whole
from airnp.holdout import like_the_gaps
from airnp.inputs import Observations
from airnp.state import FitState
from airnp.transforms import Transform

Bools = npt.NDArray[np.bool_]

_MOST_APART = 15.0
"""How many times that of fitted entries the error of held-out ones may be for a second phase.

Pictures with holes have up to 10, drug-target tables, which are fitted almost exactly, more than 20.
"""

_NEAR = 3.0
"""How many times that of the others the error of held-out entries may be to count as fitted about as well."""

_STANDSTILL = 1e-5
"""Share of the fidelity that one iteration takes away, below which nothing moves."""


@dataclass(frozen=True)
class Choice:
    """Parameters to return, and the iterations they come from (one per problem of a stack)."""

    params: list[Array]
    iteration: npt.NDArray[np.int64]


class Monitor:
    """Watches one fit. This one never stops it, and returns what comes last."""

    held_out: Bools | None = None
    """Observed entries that the fit must not see; None for none."""

    every: int | None = None
    """Iterations between two looks, at 1·every, 2·every, … and at the end; None for no need to look.

    A rhythm of its own: how often a fit records must not change its answer.
    """

    looks_for_low_rank: bool = False
    """Whether the fit may end before it begins, if a matrix of low rank predicts the held-out entries."""

    wants_follow_up: bool = False
    """Whether the fit may go on from the chosen iterate, with all observations, under another monitor."""

    def check(self, state: FitState) -> str | None:
        """Return why to stop now, or None to go on."""
        return None

    def lowest_error(self) -> npt.NDArray[np.float64] | None:
        """Return the lowest error on held-out entries so far, for each problem; None if none are held out."""
        return None

    def choice(self, last: Choice) -> Choice:
        """Return the iterate to give back, problem by problem; ``last`` is where the fit ended."""
        return last

    def follow_up(self, observations: Observations, chosen: Choice) -> Monitor | None:
        """Return the monitor of a second phase from the chosen iterate, or None for no such phase."""
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
    the energies in ``history``. Each problem of a stack is judged by itself.

    Parameters
    ----------
    delta : float
    """

    def __init__(self, delta: float) -> None:
        self.delta = checked_number("delta", delta)
        if self.delta <= 0:
            raise ValueError(f"delta: expected a positive number, got {delta!r}")

    def __repr__(self) -> str:
        return f"EnergyChange({self.delta!r})"

    def begin(self, observations: Observations, operator: Transform | None, seed: int) -> Monitor:
        """Return the monitor of one fit."""
        return _EnergyChangeMonitor(self.delta)


class _EnergyChangeMonitor(Monitor):
    every = 1

    def __init__(self, delta: float) -> None:
        self._delta = delta
        self._ended: Choice | None = None

    def check(self, state: FitState) -> str | None:
        if not state.energies:
            raise ValueError("stop: EnergyChange needs at least one regularizer with an energy to watch")
        if state.energy_change is None:
            return None
        still = np.all(state.energy_change < self._delta, axis=0)
        before = np.zeros_like(still) if self._ended is None else self._ended.iteration > 0
        if np.any(still & ~before):
            self._ended = _merged(still & ~before, state, self._ended)
        return f"energies changed by less than {self._delta:g}" if np.all(still | before) else None

    def choice(self, last: Choice) -> Choice:
        if self._ended is None:
            return last
        return chosen_from(self._ended.iteration > 0, self._ended, last)


class HeldOut(StopRule):
    """Stops when the error on held-out observed entries has stopped falling; returns the best iterate.

    Parameters
    ----------
    fraction : float
        Share of the observed entries to hold out: at random, or where missing entries lie together in holes,
        under copies of these holes. At least 20 are, or a fifth if there are few, as far as every row and
        column keeps an entry.
    patience : int
        Iterations without improvement before the fit ends, at least; see the notes.
    relative_patience : float
        The same, as a share of the iterations made so far.
    every : int
        Iterations between two looks; there is one more at the end of the fit.
    refit : bool
        Go on from the best iterate with the held-out entries, too, for at most 500 iterations: until all
        observed entries are fitted as well, on average, as those that were not held out were then.
    low_rank : bool
        First look for a matrix of low rank that predicts the held-out entries (see :mod:`airnp.lowrank`). If
        it does so almost exactly, to 5 % of their spread, it is the answer, and only the graphs are learned,
        over its rows and columns, for at most 2000 iterations. Otherwise it is the answer if the fit ends
        with an error on the held-out entries that is more than a tenth larger. ``stop="auto"`` does so
        unless regularizers are given. Not for measurements by an operator.

    Notes
    -----
    A learned graph first smooths, and only later lets detail through; in between the held-out error may
    rise for a while. Patience therefore starts to count only when the energies of learned graphs have
    fallen below half their peak.

    A product of factors finds one component after the other, and between two of them nothing moves for
    thousands of iterations. Over-fitting looks different: the fidelity goes on falling. Iterations that
    leave the fidelity where it was therefore count a third (and with a relative patience of a third or more
    such a fit goes on to its last iteration).

    Each problem of a stack is judged by itself.
    """

    def __init__(
        self,
        fraction: float = 0.05,
        patience: int = 2000,
        relative_patience: float = 0.2,
        every: int = 100,
        refit: bool = True,
        low_rank: bool = False,
    ) -> None:
        self.fraction = checked_number("fraction", fraction)
        if not 0 < self.fraction < 1:
            raise ValueError(f"fraction: expected a number between 0 and 1, got {fraction!r}")
        self.patience = checked_whole("patience", patience)
        self.relative_patience = checked_number("relative_patience", relative_patience)
        if self.relative_patience < 0:
            raise ValueError(f"relative_patience: expected at least 0, got {relative_patience!r}")
        self.every = checked_whole("every", every)
        self.refit = bool(refit)
        self.low_rank = bool(low_rank)

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"HeldOut({settings})"

    def begin(self, observations: Observations, operator: Transform | None, seed: int) -> Monitor:
        """Return the monitor of one fit."""
        observed = to_numpy(observations.mask)
        problems = (
            observed.reshape(-1, *observed.shape[-2:]) if operator is None else observed.reshape(1, 1, -1)
        )
        held = np.stack([_draw(problem, self.fraction, seed) for problem in problems])
        return _HeldOutMonitor(self, observations, operator, held.reshape(observed.shape))


def _draw(observed: Bools, fraction: float, seed: int) -> Bools:
    """Return the entries of one problem to hold out."""
    total = int(observed.sum())
    wanted = min(max(round(fraction * total), min(20, total // 5)), total - 1)
    return like_the_gaps(observed, wanted, np.random.default_rng([seed, 1]))


class _HeldOutMonitor(Monitor):
    def __init__(
        self, rule: HeldOut, observations: Observations, operator: Transform | None, held: Bools
    ) -> None:
        self.held_out = held
        self.every = rule.every
        self.wants_follow_up = rule.refit and bool(held.any())
        self.looks_for_low_rank = rule.low_rank and operator is None
        self._rule = rule
        self._operator = operator
        self._axes = (-2, -1) if operator is None else tuple(range(held.ndim))
        batch = held.shape[:-2] if operator is None else ()
        # With nothing to spare, the entries that are fitted are watched instead: patience then ends a fit
        # that has converged.
        watched = np.where(held.any(axis=self._axes, keepdims=True), held, to_numpy(observations.mask))
        xp, device, dtype = observations.xp, observations.device, observations.dtype
        share = watched / watched.sum(axis=self._axes, keepdims=True)
        self._share = from_numpy(share, xp, device, dtype)
        weights = to_numpy(observations.weights).astype(np.float64)
        self._weights = np.where(held, 0.0, weights).sum(axis=self._axes), weights.sum(axis=self._axes)
        kept = np.where(held, 0.0, weights)
        self._kept = from_numpy(kept / kept.sum(axis=self._axes, keepdims=True), xp, device, dtype)
        self._values = observations.values
        self._xp = xp
        self._best_error = np.full(batch, np.inf)
        self._best_fidelity = np.full(batch, np.inf)
        self._best_fit = np.zeros(batch)
        self._best: Choice | None = None
        self._peak_energy = np.zeros(batch)
        self._waited = np.zeros(batch)
        self._looked = 0
        self._fidelity = np.full(batch, np.inf)
        self._ended = np.zeros(batch, dtype=bool)

    # A matrix that overflows has no error to compare; the fit itself reports it.
    @np.errstate(over="ignore", invalid="ignore")
    def check(self, state: FitState) -> str | None:
        energy = sum((np.asarray(state.energies[name]) for name in state.learned), start=np.zeros(()))
        self._peak_energy = np.maximum(self._peak_energy, energy)
        settled = energy <= 0.5 * self._peak_energy
        self._waited = np.where(self._remember(state), 0, self._waited + self._counted(state))
        patience = max(self._rule.patience, self._rule.relative_patience * state.iteration)
        self._ended = self._ended | ((self._waited >= patience) & settled)
        return "held-out error stopped falling" if self._ended.all() else None

    def _counted(self, state: FitState) -> npt.NDArray[np.float64]:
        """Return how many iterations since the last look count against the patience."""
        passed = state.iteration - self._looked
        falling = state.fidelity < self._fidelity * (1 - _STANDSTILL * passed)
        self._looked, self._fidelity = state.iteration, np.asarray(state.fidelity)
        return np.where(falling, passed, passed / 3)

    def _remember(self, state: FitState) -> Bools:
        """Keep the parameters of every problem whose held-out error is the lowest so far; return which."""
        error, fit = self._errors(state.normalized_matrix)
        better = (error < self._best_error) & ~self._ended
        if better.any():
            # One assignment holds parameters and iterations: an interrupt cannot part them.
            self._best = _merged(better, state, self._best)
            self._best_error = np.where(better, error, self._best_error)
            self._best_fit = np.where(better, fit, self._best_fit)
            self._best_fidelity = np.where(better, np.asarray(state.fidelity), self._best_fidelity)
        return better

    def _errors(self, fitted: Array) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return the mean absolute error on the watched entries and on the fitted ones, by problem."""
        if self._operator is not None:
            fitted = self._xp.reshape(self._operator.forward(fitted), self._values.shape)
        size = self._xp.abs(fitted - self._values)
        sums = [self._xp.sum(share * size, axis=self._axes) for share in (self._share, self._kept)]
        watched, kept = to_numpy(self._xp.stack(sums)).astype(np.float64)
        return watched, kept

    def lowest_error(self) -> npt.NDArray[np.float64]:
        return self._best_error

    def choice(self, last: Choice) -> Choice:
        return last if self._best is None else self._best

    def follow_up(self, observations: Observations, chosen: Choice) -> Monitor | None:
        # Entries that are reproduced almost exactly, while others are not predicted at all, have no level
        # that the others could be fitted to without harm.
        sensible = self._best_error <= _MOST_APART * self._best_fit
        if not sensible.any():
            return None
        fitted, all_of_them = self._weights
        level = np.where(sensible, self._best_fidelity * all_of_them / fitted, -np.inf)
        falling = sensible & ~self._ended & (chosen.iteration == self._looked)
        return _LevelMonitor(level, falling, chosen, self)

    def judged(self, state: FitState) -> tuple[Bools, Bools]:
        """Return whether the watched entries are closer than at the best iterate, and whether they are near.

        Near is about as close as the others were at the best iterate. One answer of each kind for each
        problem.
        """
        watched, _ = self._errors(state.normalized_matrix)
        return watched < self._best_error, watched <= _NEAR * self._best_fit


class _LevelMonitor(Monitor):
    """Ends each problem as soon as its fidelity is down to a level.

    One that does not get there goes back: to the first iterate at which the entries that had been held out
    were fitted about as well as the others, or else to where it started. One whose held-out error was still
    falling when its iterations were used up goes on to the end.

    The entries that were held out are fitted now, so their error must be lower than it was when it was only
    predicted. Where it is not, the fit was more exact than a new start of the optimiser, and is better left
    as it was.
    """

    every = 10

    def __init__(
        self, level: npt.NDArray[np.float64], falling: Bools, chosen: Choice, before: _HeldOutMonitor
    ) -> None:
        self._level = level
        self._falling = falling
        self._better = np.zeros(level.shape, dtype=bool)
        self._was_near = np.zeros(level.shape, dtype=bool)
        self._fallback = chosen
        self._before = before
        self._ended: Choice | None = None

    def check(self, state: FitState) -> str | None:
        self._better, near = self._before.judged(state)
        near &= self._better & ~self._was_near & ~np.isneginf(self._level)
        if near.any():
            self._fallback = _merged(near, state, self._fallback)
            self._was_near = self._was_near | near
        reached = (state.fidelity <= self._level) & self._better & ~self._has_ended() & ~self._falling
        if reached.any():
            self._ended = _merged(reached, state, self._ended)
        done = self._has_ended() | np.isneginf(self._level)
        return "all observed entries are fitted as well" if done.all() else None

    def _has_ended(self) -> Bools:
        if self._ended is None:
            return np.zeros(self._level.shape, dtype=bool)
        return self._ended.iteration > 0

    def choice(self, last: Choice) -> Choice:
        kept = chosen_from(self._has_ended(), self._ended or self._fallback, self._fallback)
        return chosen_from(self._falling & self._better, last, kept)


def _merged(chosen: Bools, state: FitState, others: Choice | None) -> Choice:
    """Return a copy of ``state`` for the chosen problems, ``others`` (iteration 0 if None) for the rest."""
    copies = [copied(param) for param in state.params]
    now = Choice(copies, np.full(chosen.shape, state.iteration, dtype=np.int64))
    return chosen_from(chosen, now, others or Choice(copies, np.zeros(chosen.shape, dtype=np.int64)))


def chosen_from(chosen: Bools, first: Choice, second: Choice) -> Choice:
    """Return the chosen problems of the first, all others of the second."""
    if np.all(chosen):
        return first
    like = first.params[0]
    xp = compat.array_namespace(like)
    flags = from_numpy(chosen[..., None, None], xp, compat.device(like), "bool")
    params = [xp.where(flags, a, b) for a, b in zip(first.params, second.params, strict=True)]
    return Choice(params, np.where(chosen, first.iteration, second.iteration))


def resolve_stop(stop: Any, *, regularized: bool = False) -> StopRule:
    """Return the rule that ``stop`` names or is.

    A user who chose regularizers wants that model, not another one that predicts as well: then "auto" does
    not look for a matrix of low rank.
    """
    if stop is None:
        return NeverStop()
    if isinstance(stop, StopRule):
        return stop
    if isinstance(stop, str) and stop == "auto":
        return HeldOut(low_rank=not regularized)
    problem = f"stop: expected 'auto', None or a rule such as HeldOut() or EnergyChange(delta), got {stop!r}"
    raise ValueError(problem) if isinstance(stop, str) else TypeError(problem)
