"""Monitors watch one fit: they say when to stop it, and which iterate to return."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from airnp.training.recorder import FitState
from airnp.training.task import Bools, Choice, Judge, Refit, Values, choose, merge

if TYPE_CHECKING:
    from airnp.training.stopping import HeldOut

_MOST_APART = 15.0
"""How many times that of fitted entries the error of held-out ones may be for a second phase.

Pictures with holes have up to 10, drug-target tables, which are fitted almost exactly, more than 20.
"""

_NEAR = 3.0
"""How many times that of the others the error of held-out entries may be to count as fitted about as well."""

_STANDSTILL = 1e-5
"""Share of the fidelity that one iteration takes away, below which nothing moves."""


class Monitor:
    """Watches one fit. This one never stops it, and returns what comes last."""

    held_out: Bools | None = None
    """Observed entries that the fit must not see; None for none."""

    every: int | None = None
    """Iterations between two looks, at 1·every, 2·every, … and at the end; None for no need to look.

    A rhythm of its own: how often a fit records must not change its answer.
    """

    wants_follow_up: bool = False
    """Whether the fit may have a second phase, with all observations, under another monitor."""

    remembered: tuple[str, ...] | None = None
    """Names of the attributes that change during a fit, so that it can be resumed; None if not declared.

    Values are replaced, not mutated, so saved references remain snapshots.
    """

    def state(self) -> dict[str, Any]:
        """Return all that is remembered: numbers, text, arrays and choices."""
        return {name: getattr(self, name) for name in self.remembered or ()}

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what another monitor of the same fit returned as its :meth:`state`."""
        if set(state) != set(self.remembered or ()):
            raise ValueError("stop: the run was saved by another version of airnp; start it again")
        for name in self.remembered or ():
            setattr(self, name, state[name])

    def check(self, state: FitState) -> str | None:
        """Return why to stop now, or None to go on."""
        return None

    def choice(self, last: Choice) -> Choice:
        """Return the iterate to return, problem by problem; ``last`` is where the fit ended."""
        return last

    def blind_choice(self) -> Choice | None:
        """Return the best iterate so far that has not seen the held-out entries; None if none are."""
        return None

    def follow_up(self, chosen: Choice, refit: Refit) -> Monitor | None:
        """Return the monitor of a second phase, or None for no such phase."""
        return None


class EnergyChangeMonitor(Monitor):
    """Ends each problem when all its energies stand still."""

    every = 1
    remembered = ("_ended",)

    def __init__(self, delta: float) -> None:
        self._delta = delta
        self._ended: Choice | None = None

    def check(self, state: FitState) -> str | None:
        """Say whether all energies of all problems changed by less than δ in one iteration."""
        if not state.energies:
            raise ValueError("stop: EnergyChange needs at least one regularizer with an energy to watch")
        if state.energy_change is None:
            return None
        still = np.all(state.energy_change < self._delta, axis=0)
        before = np.zeros_like(still) if self._ended is None else self._ended.iteration > 0
        if np.any(still & ~before):
            self._ended = merge(still & ~before, state, self._ended)
        return f"energies changed by less than {self._delta:g}" if np.all(still | before) else None

    def choice(self, last: Choice) -> Choice:
        """Return each problem where it ended."""
        if self._ended is None:
            return last
        return choose(self._ended.iteration > 0, self._ended, last)


class HeldOutMonitor(Monitor):
    """Ends each problem when the error on held-out entries has stopped falling, at its best iterate.

    Parameters
    ----------
    rule : HeldOut
    judge : Judge
        Holds entries out, and measures the error on them.
    """

    remembered = (
        *("_best", "_best_error", "_best_fidelity", "_best_fit", "_lowest"),
        *("_highest", "_gained", "_crest", "_trough"),
        *("_peak_energy", "_waited", "_looked", "_fidelity", "_ended"),
    )

    def __init__(self, rule: HeldOut, judge: Judge) -> None:
        self.held_out = judge.held_out
        self.every = rule.every
        self.wants_follow_up = rule.refit and bool(judge.held_out.any())
        self._rule, self._judge = rule, judge
        batch = judge.batch
        self._lowest = np.full(batch, np.inf)
        self._highest = np.zeros(batch)
        self._gained = np.full(batch, np.inf)
        self._crest = np.zeros(batch)
        self._trough = np.zeros(batch)
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
        """Look at the held-out entries, and say whether patience is at its end in all problems."""
        energy = sum((np.asarray(state.energies[name]) for name in state.learned), start=np.zeros(()))
        self._peak_energy = np.maximum(self._peak_energy, energy)
        settled = energy <= 0.5 * self._peak_energy
        watched, fit = self._judge.errors(state)
        # Entries that a fit does not see are not predicted better than those it sees, but by chance.
        error = np.fmax(watched, fit)
        counted = self._counted(state, self._returns(error))
        self._keep_best(state, error, watched, fit)
        self._waited = np.where(self._gains(error), 0, self._waited + counted)
        patience = max(self._rule.patience, self._rule.relative_patience * state.iteration)
        self._ended = self._ended | ((self._waited >= patience) & settled)
        return "held-out error stopped falling" if self._ended.all() else None

    def _returns(self, error: Values) -> Bools:
        """Return where an error that rose after the last gain is on its way down again.

        That is, where it is the lowest since it was the highest. Mere noise seldom is.
        """
        rises = error > self._crest
        returns = ~rises & (error < self._trough) & (error > self._lowest)
        self._trough = np.where(rises, error, np.fmin(self._trough, error))
        self._crest = np.where(rises, error, self._crest)
        return returns

    def _counted(self, state: FitState, returns: Bools) -> Values:
        """Return how many iterations since the last look count against the patience.

        None where the error returns, a third where the fidelity stands still, else all of them.
        """
        passed, before = state.iteration - self._looked, self._fidelity
        moves = np.asarray(state.fidelity) < before * (1 - _STANDSTILL * passed)
        self._looked, self._fidelity = state.iteration, np.asarray(state.fidelity)
        return np.where(returns, 0, np.where(moves, passed, passed / 3))

    def _gains(self, error: Values) -> Bools:
        """Return where the error is clearly lower than at the last gain."""
        self._highest = np.fmax(self._highest, error)
        least = self._rule.gain * np.minimum(error, self._highest - error)
        gains = (error < self._gained - least) & ~self._ended
        self._gained = np.where(gains, error, self._gained)
        self._crest = np.where(gains, error, self._crest)
        self._trough = np.where(gains, error, self._trough)
        return gains

    def _keep_best(self, state: FitState, error: Values, watched: Values, fit: Values) -> None:
        """Keep every problem whose error is the lowest so far, or almost."""
        tolerance = self._rule.tolerance
        almost = (error < self._lowest) & ~self._ended
        if tolerance > 0:
            almost |= (error <= self._lowest * (1 + tolerance)) & ~self._ended
        if almost.any():
            # One assignment holds parameters and iterations: an interrupt cannot part them.
            self._best = merge(almost, state, self._best)
            self._best_fit = np.where(almost, fit, self._best_fit)
            self._best_fidelity = np.where(almost, np.asarray(state.fidelity), self._best_fidelity)
            self._best_error = np.where(almost, watched, self._best_error)
            self._lowest = np.where(almost, np.fmin(error, self._lowest), self._lowest)

    def choice(self, last: Choice) -> Choice:
        """Return the best iterates."""
        return last if self._best is None else self._best

    def blind_choice(self) -> Choice | None:
        """Return the best iterates: this phase does not see the held-out entries."""
        return self._best

    def follow_up(self, chosen: Choice, refit: Refit) -> Monitor | None:
        """Return a monitor under which the held-out entries are fitted, too, where that makes sense.

        A fit that starts again needs no monitor: it makes as many iterations as were best.
        """
        if refit == "restart":
            return None if self._best is None else Monitor()
        # Entries that are reproduced almost exactly, while others are not predicted at all, have no level
        # that the others could be fitted to without harm.
        sensible = self._best_error <= _MOST_APART * self._best_fit
        if not sensible.any():
            return None
        fitted, all_of_them = self._judge.weights
        level = np.where(sensible, self._best_fidelity * all_of_them / fitted, -np.inf)
        falling = sensible & ~self._ended & (chosen.iteration == self._looked)
        return LevelMonitor(level, falling, chosen, self)

    def compare(self, state: FitState) -> tuple[Bools, Bools]:
        """Return whether the held-out entries are closer than at the best iterate, and whether they are near.

        Near is about as close as the others were at the best iterate. One answer of each kind for each
        problem.
        """
        watched, _ = self._judge.errors(state)
        return watched < self._best_error, watched <= _NEAR * self._best_fit


class LevelMonitor(Monitor):
    """Ends each problem as soon as its fidelity is down to a level.

    One that does not get there goes back: to the iterate closest to the level, of those at which the entries
    that had been held out were fitted about as well as the others, or else to where it started. One whose
    held-out error was still falling when its iterations were used up goes on to the end.

    The entries that were held out are fitted now, so their error must be lower than it was when it was only
    predicted. Where it is not, the fit was more exact than a new start of the optimiser, and is better left
    as it was.
    """

    every = 10
    remembered = ("_better", "_closest", "_fallback", "_ended")

    def __init__(
        self, level: npt.NDArray[np.float64], falling: Bools, chosen: Choice, before: HeldOutMonitor
    ) -> None:
        self._level = level
        self._falling = falling
        self._better = np.zeros(level.shape, dtype=bool)
        self._closest = np.full(level.shape, np.inf)
        self._fallback = chosen
        self._before = before
        self._ended: Choice | None = None

    def check(self, state: FitState) -> str | None:
        """Say whether all problems are at their level."""
        self._better, near = self._before.compare(state)
        near &= self._better & (state.fidelity < self._closest) & ~np.isneginf(self._level)
        if near.any():
            self._fallback = merge(near, state, self._fallback)
            self._closest = np.where(near, state.fidelity, self._closest)
        reached = (state.fidelity <= self._level) & self._better & ~self._has_ended() & ~self._falling
        if reached.any():
            self._ended = merge(reached, state, self._ended)
        done = self._has_ended() | np.isneginf(self._level)
        return "all observed entries are fitted as well" if done.all() else None

    def _has_ended(self) -> Bools:
        if self._ended is None:
            return np.zeros(self._level.shape, dtype=bool)
        return self._ended.iteration > 0

    def choice(self, last: Choice) -> Choice:
        """Return where each problem reached its level, or went back to."""
        kept = choose(self._has_ended(), self._ended or self._fallback, self._fallback)
        return choose(self._falling & self._better, last, kept)

    def blind_choice(self) -> Choice | None:
        """Return the best iterates of the phase before."""
        return self._before.blind_choice()
