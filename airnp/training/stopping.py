"""When to stop, and which iterate to return, from observed data alone.

A rule says what the user wants and serves many fits; :meth:`StopRule.begin` returns the monitor of one fit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from airnp._checks import checked_number, checked_whole
from airnp.data.holdout import hold_out
from airnp.results.intervals import check_enough, checked_level
from airnp.training.monitors import EnergyChangeMonitor, HeldOutMonitor, Monitor
from airnp.training.task import Bools, Task


class StopRule(ABC):
    """Decides when a fit ends."""

    @abstractmethod
    def begin(self, task: Task, seed: int) -> Monitor:
        """Return the monitor of one fit, dense or sparse."""


class NeverStop(StopRule):
    """Runs to ``max_iter``; what ``stop=None`` means."""

    def begin(self, task: Task, seed: int) -> Monitor:
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

    def begin(self, task: Task, seed: int) -> Monitor:
        """Return the monitor of one fit."""
        return EnergyChangeMonitor(self.delta)


class HeldOut(StopRule):
    """Stops when the error on held-out observed entries has stopped falling; returns the best iterate.

    Parameters
    ----------
    fraction : float, optional
        Share of the observed entries to hold out: at random, or where missing entries of a dense matrix lie
        together in holes, under copies of these holes. At least 20 are, or a fifth if there are few, as far
        as every row and column keeps an entry. Default: 5 %, and 10 % where gaps are few holes.
    patience : int
        Iterations without a gain before the fit ends, at least; see the notes.
    relative_patience : float
        The same, as a share of the iterations made so far.
    every : int
        Iterations between two looks; there is one more at the end of the fit.
    refit : bool
        Fit the held-out entries, too, in a second phase. A dense fit goes on from the best iterate, for at
        most 500 iterations: until all observed entries are fitted as well, on average, as those that were
        not held out were then. A sparse fit starts again and makes as many iterations as were best; its first
        phase has half of ``max_iter``, so that both have room.
    tolerance : float
        Share of the lowest error that counts as no difference: of iterates that are almost as good as the
        best one, the last is returned. For a learning rate that falls, whose error ends on a plateau.
    gain : float
        By how much the error has to fall since the last gain to be worth waiting for, as a share of itself,
        or of how far it has fallen from its highest if that is less. The best iterate is returned even if it
        was not worth waiting for; 0 waits for every improvement.

    Notes
    -----
    Few held-out entries, such as two or three copies of a hole, may happen to be easy: the beginning of a
    fit, which is little more than a mean, predicts them better than the entries that it fits. The error of
    an iterate is therefore that on held-out entries or on fitted ones, whichever is larger.

    A learned graph first smooths, and only later lets detail through; in between the held-out error may
    rise for a while. A fit therefore ends only when the energies of learned graphs have fallen below half
    their peak, and iterations in which an error that has risen is on its way down again do not count.

    A product of factors finds one component after the other, and between two of them nothing moves for
    thousands of iterations. Over-fitting looks different: the fidelity goes on falling. Iterations that
    leave the fidelity where it was therefore count a third (and with a relative patience of a third or more
    such a fit goes on to its last iteration).

    Each problem of a stack is judged by itself. The error is the mean absolute one of a dense fit, the root
    mean square of a sparse one.
    """

    def __init__(
        self,
        fraction: float | None = None,
        patience: int = 2000,
        relative_patience: float = 0.2,
        every: int = 100,
        refit: bool = True,
        tolerance: float = 0.0,
        gain: float = 0.02,
    ) -> None:
        self.fraction = None if fraction is None else checked_number("fraction", fraction)
        if self.fraction is not None and not 0 < self.fraction < 1:
            raise ValueError(f"fraction: expected a number between 0 and 1, got {fraction!r}")
        self.patience = checked_whole("patience", patience)
        self.relative_patience = checked_number("relative_patience", relative_patience)
        self.tolerance = checked_number("tolerance", tolerance)
        self.gain = checked_number("gain", gain)
        for name in ("relative_patience", "tolerance", "gain"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}: expected at least 0, got {getattr(self, name)!r}")
        self.every = checked_whole("every", every)
        self.refit = bool(refit)

    def __repr__(self) -> str:
        names = ("fraction", "patience", "relative_patience", "every", "refit", "tolerance", "gain")
        return f"HeldOut({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    def begin(self, task: Task, seed: int) -> Monitor:
        """Return the monitor of one fit."""
        return HeldOutMonitor(self, task.judge(self.fraction, seed))


def resolve_stop(stop: Any) -> StopRule:
    """Return the rule that ``stop`` names or is."""
    if stop is None:
        return NeverStop()
    if isinstance(stop, StopRule):
        return stop
    if isinstance(stop, str) and stop == "auto":
        return HeldOut()
    problem = f"stop: expected 'auto', None or a rule such as HeldOut() or EnergyChange(delta), got {stop!r}"
    raise ValueError(problem) if isinstance(stop, str) else TypeError(problem)


def check_interval_level(level: float, observed: Bools, rule: StopRule, seed: int) -> None:
    """Raise, before a fit begins, if it will hold out too few entries for intervals of a level.

    Parameters
    ----------
    level : float
    observed : ndarray of bool (m, n)
    rule : StopRule
        Of the fit.
    seed : int
        Of the fit.

    Examples
    --------
    >>> import numpy as np
    >>> observed = np.random.default_rng(0).random((20, 10)) < 0.8
    >>> check_interval_level(0.9, observed, HeldOut(), seed=0)
    >>> check_interval_level(0.99, observed, HeldOut(), seed=0)
    Traceback (most recent call last):
    ValueError: level: 0.99 needs at least 99 held-out entries, there are 20; ask for a lower level, or hold
    out more with stop=airnp.HeldOut(fraction=...)
    """
    level = checked_level(level)
    if not isinstance(rule, HeldOut):
        raise ValueError("interval: a fit that holds out no entries has none to calibrate on")
    check_enough(level, int(hold_out(observed, rule.fraction, seed).sum()))
