"""Who watches a fit: what every monitor offers, and iterates chosen problem by problem."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import array_api_compat as compat
import numpy as np
import numpy.typing as npt

from airnp._arrays import Array, copied, from_numpy, to_numpy
from airnp.data.inputs import Observations
from airnp.data.linearmaps import Transform
from airnp.training.recorder import FitState

if TYPE_CHECKING:
    from airnp.training.stopping import HeldOut


Bools = npt.NDArray[np.bool_]


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

    remembered: tuple[str, ...] | None = None
    """Names of the attributes that change during a fit, so that it can be resumed; None if nobody said.

    Their values are replaced, never changed in place: who holds one, holds what was remembered then.
    """

    def state(self) -> dict[str, Any]:
        """Return all that is remembered: numbers, text, arrays and choices."""
        return {name: getattr(self, name) for name in self.remembered or ()}

    def restore(self, state: dict[str, Any]) -> None:
        """Remember what another monitor of the same fit did when :meth:`state` was asked."""
        for name in self.remembered or ():
            setattr(self, name, state[name])

    def check(self, state: FitState) -> str | None:
        """Return why to stop now, or None to go on."""
        return None

    def lowest_error(self) -> npt.NDArray[np.float64] | None:
        """Return the lowest error on held-out entries so far, for each problem; None if none are held out."""
        return None

    def choice(self, last: Choice) -> Choice:
        """Return the iterate to give back, problem by problem; ``last`` is where the fit ended."""
        return last

    def unseeing(self) -> Choice | None:
        """Return the best iterate so far that has not seen the held-out entries; None if none are."""
        return None

    def follow_up(self, observations: Observations, chosen: Choice) -> Monitor | None:
        """Return the monitor of a second phase from the chosen iterate, or None for no such phase."""
        return None


def merged(chosen: Bools, state: FitState, others: Choice | None) -> Choice:
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


_MOST_APART = 15.0
"""How many times that of fitted entries the error of held-out ones may be for a second phase.

Pictures with holes have up to 10, drug-target tables, which are fitted almost exactly, more than 20.
"""

_NEAR = 3.0
"""How many times that of the others the error of held-out entries may be to count as fitted about as well."""

_STANDSTILL = 1e-5
"""Share of the fidelity that one iteration takes away, below which nothing moves."""


def counted_iterations(passed: int, before: Any, now: Any) -> npt.NDArray[np.float64]:
    """Return how many of the iterations since the last look count against the patience.

    All of them while the fidelity goes on falling, a third where it stands still.
    """
    falling = now < before * (1 - _STANDSTILL * passed)
    return np.where(falling, passed, passed / 3)


class HeldOutMonitor(Monitor):
    """Ends each problem when the error on held-out entries has stopped falling, at its best iterate.

    Parameters
    ----------
    rule : HeldOut
    observations : Observations
        Normalised, all of them.
    operator : Transform or None
    held : ndarray of bool
        Which are held out; the shape of the observations.
    """

    remembered = (
        *("_best", "_best_error", "_best_fidelity", "_best_fit"),
        *("_peak_energy", "_waited", "_looked", "_fidelity", "_ended"),
    )

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
        """Look at the held-out entries, and say whether patience is at its end in all problems."""
        energy = sum((np.asarray(state.energies[name]) for name in state.learned), start=np.zeros(()))
        self._peak_energy = np.maximum(self._peak_energy, energy)
        settled = energy <= 0.5 * self._peak_energy
        self._waited = np.where(self._remember(state), 0, self._waited + self._counted(state))
        patience = max(self._rule.patience, self._rule.relative_patience * state.iteration)
        self._ended = self._ended | ((self._waited >= patience) & settled)
        return "held-out error stopped falling" if self._ended.all() else None

    def _counted(self, state: FitState) -> npt.NDArray[np.float64]:
        """Return how many iterations since the last look count against the patience."""
        counted = counted_iterations(state.iteration - self._looked, self._fidelity, state.fidelity)
        self._looked, self._fidelity = state.iteration, np.asarray(state.fidelity)
        return counted

    def _remember(self, state: FitState) -> Bools:
        """Keep the parameters of every problem whose held-out error is the lowest so far; return which."""
        error, fit = self._errors(state.normalized_matrix)
        better = (error < self._best_error) & ~self._ended
        if better.any():
            # One assignment holds parameters and iterations: an interrupt cannot part them.
            self._best = merged(better, state, self._best)
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
        """Return the lowest error on the watched entries so far."""
        return self._best_error

    def choice(self, last: Choice) -> Choice:
        """Return the best iterates."""
        return last if self._best is None else self._best

    def unseeing(self) -> Choice | None:
        """Return the best iterates: this phase does not see the held-out entries."""
        return self._best

    def follow_up(self, observations: Observations, chosen: Choice) -> Monitor | None:
        """Return a monitor under which the held-out entries are fitted, too, where that makes sense."""
        # Entries that are reproduced almost exactly, while others are not predicted at all, have no level
        # that the others could be fitted to without harm.
        sensible = self._best_error <= _MOST_APART * self._best_fit
        if not sensible.any():
            return None
        fitted, all_of_them = self._weights
        level = np.where(sensible, self._best_fidelity * all_of_them / fitted, -np.inf)
        falling = sensible & ~self._ended & (chosen.iteration == self._looked)
        return LevelMonitor(level, falling, chosen, self)

    def judged(self, state: FitState) -> tuple[Bools, Bools]:
        """Return whether the watched entries are closer than at the best iterate, and whether they are near.

        Near is about as close as the others were at the best iterate. One answer of each kind for each
        problem.
        """
        watched, _ = self._errors(state.normalized_matrix)
        return watched < self._best_error, watched <= _NEAR * self._best_fit


class LevelMonitor(Monitor):
    """Ends each problem as soon as its fidelity is down to a level.

    One that does not get there goes back: to the first iterate at which the entries that had been held out
    were fitted about as well as the others, or else to where it started. One whose held-out error was still
    falling when its iterations were used up goes on to the end.

    The entries that were held out are fitted now, so their error must be lower than it was when it was only
    predicted. Where it is not, the fit was more exact than a new start of the optimiser, and is better left
    as it was.
    """

    every = 10
    remembered = ("_better", "_was_near", "_fallback", "_ended")

    def __init__(
        self, level: npt.NDArray[np.float64], falling: Bools, chosen: Choice, before: HeldOutMonitor
    ) -> None:
        self._level = level
        self._falling = falling
        self._better = np.zeros(level.shape, dtype=bool)
        self._was_near = np.zeros(level.shape, dtype=bool)
        self._fallback = chosen
        self._before = before
        self._ended: Choice | None = None

    def check(self, state: FitState) -> str | None:
        """Say whether all problems are at their level."""
        self._better, near = self._before.judged(state)
        near &= self._better & ~self._was_near & ~np.isneginf(self._level)
        if near.any():
            self._fallback = merged(near, state, self._fallback)
            self._was_near = self._was_near | near
        reached = (state.fidelity <= self._level) & self._better & ~self._has_ended() & ~self._falling
        if reached.any():
            self._ended = merged(reached, state, self._ended)
        done = self._has_ended() | np.isneginf(self._level)
        return "all observed entries are fitted as well" if done.all() else None

    def _has_ended(self) -> Bools:
        if self._ended is None:
            return np.zeros(self._level.shape, dtype=bool)
        return self._ended.iteration > 0

    def choice(self, last: Choice) -> Choice:
        """Return where each problem reached its level, or went back to."""
        kept = chosen_from(self._has_ended(), self._ended or self._fallback, self._fallback)
        return chosen_from(self._falling & self._better, last, kept)

    def unseeing(self) -> Choice | None:
        """Return the best iterates of the phase before."""
        return self._before.unseeing()
