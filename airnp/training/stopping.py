"""When to stop, and which iterate to return, from observed data alone.

A rule says what the user wants and can serve many fits; :meth:`StopRule.begin` gives the monitor of one fit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from airnp._arrays import to_numpy
from airnp._checks import checked_number, checked_whole
from airnp.data.holdout import how_many, like_the_gaps
from airnp.data.inputs import Observations
from airnp.data.linearmaps import Transform
from airnp.training.monitors import Bools, Choice, HeldOutMonitor, Monitor, chosen_from, merged
from airnp.training.recorder import FitState


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
    remembered = ("_ended",)

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
            self._ended = merged(still & ~before, state, self._ended)
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
        First look for a matrix of low rank that predicts the held-out entries (see
        :mod:`airnp.completing.lowrank`). If it does so almost exactly, to 5 % of their spread, it is the
        answer, and only the graphs are learned, over its rows and columns, for at most 2000 iterations.
        Otherwise it is the answer if the fit ends with an error on the held-out entries that is more than
        a tenth larger. ``stop="auto"`` does so unless regularizers are given. Not for measurements by an
        operator.

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
        return HeldOutMonitor(self, observations, operator, held.reshape(observed.shape))


def _draw(observed: Bools, fraction: float, seed: int) -> Bools:
    """Return the entries of one problem to hold out."""
    wanted = how_many(int(observed.sum()), fraction)
    return like_the_gaps(observed, wanted, np.random.default_rng([seed, 1]))


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


class LastOfTheBest(HeldOut):
    """As :class:`airnp.HeldOut`, but among iterates with almost the lowest error the last is taken.

    For a rate that falls: its error ends on a plateau, where the lowest point is a matter of chance and the
    last one has settled most.

    Parameters
    ----------
    tolerance : float
        Share of the lowest error that counts as no difference.
    fraction, patience, relative_patience, every
        As of :class:`airnp.HeldOut`.
    """

    def __init__(
        self, tolerance: float, fraction: float, patience: int, relative_patience: float, every: int
    ) -> None:
        super().__init__(fraction, patience, relative_patience, every)
        self.tolerance = tolerance
