"""Who watches a fit: what every monitor offers, and iterates chosen problem by problem."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import array_api_compat as compat
import numpy as np
import numpy.typing as npt

from airnp._arrays import Array, copied, from_numpy
from airnp.inputs import Observations
from airnp.running.state import FitState

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
