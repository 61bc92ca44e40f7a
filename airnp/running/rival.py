"""The rival of a fit: matrices of low rank, in the problems where they predict held-out entries better."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from airnp.inputs import Observations
from airnp.lowrank import LowRank
from airnp.objective import Objective
from airnp.running.explained import Explained, explained
from airnp.stopping.monitors import Choice, Monitor

Bools = npt.NDArray[np.bool_]


@dataclass
class Rival:
    """What was found, and where it wins.

    Attributes
    ----------
    explained : Explained or None
        None if nobody looked, or nothing was found.
    replaced : ndarray of bool (…)
        The problems whose answers it replaces.
    """

    explained: Explained | None
    replaced: Bools

    @classmethod
    def sought(cls, monitor: Monitor, observations: Observations, objective: Objective) -> Rival:
        """Look for matrices of low rank, if the monitor wants that."""
        found = None
        if monitor.held_out is not None and monitor.looks_for_low_rank:
            found = explained(observations, monitor.held_out, objective.depth, objective.rank)
        return cls(found, np.zeros(objective.batch, dtype=bool) if found is None else found.exact)

    @classmethod
    def taken_up(
        cls,
        found: list[LowRank | None] | None,
        replaced: Bools,
        observations: Observations,
        objective: Objective,
    ) -> Rival:
        """Return the rival that another run of the same fit had."""
        if found is None:
            return cls(None, replaced)
        return cls(Explained(found, observations, objective.depth, objective.rank), replaced)

    @property
    def found(self) -> list[LowRank | None] | None:
        """The matrix of each problem in turn."""
        return None if self.explained is None else self.explained.found

    def exact(self) -> Explained | None:
        """Return what was found if it is almost exact in all problems: the factors are known already."""
        return self.explained if self.explained is not None and self.explained.exact.all() else None

    def compared(self, errors: npt.NDArray[np.float64] | None) -> str | None:
        """Replace what a fit with these errors predicts worse; return why, if that is everything."""
        if self.explained is None or errors is None:
            return None
        self.replaced = self.explained.beats(errors)
        return self.explained.reason if self.replaced.all() else None

    def put_into(self, chosen: Choice) -> Choice:
        """Return a choice of parameters with the rival's factors where it wins."""
        return chosen if self.explained is None else self.explained.put_into(chosen, self.replaced)

    def left_out(self) -> Iterator[tuple[Bools, npt.NDArray[np.float64]]]:
        """Yield entries (…, m, n) where it wins, and what it predicts without them, a few at a time."""
        if self.explained is not None and self.replaced.any():
            yield from self.explained.left_out(self.replaced)
