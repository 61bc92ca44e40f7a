"""A run between two of its iterations: all that it needs to go on as if nothing had happened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from airnp._arrays import Array
from airnp.lowrank import LowRank
from airnp.stopping.monitors import Choice


@dataclass(frozen=True)
class RunState:
    """What changes during a fit, without its history; what does not is in the caller's arguments.

    Attributes
    ----------
    iteration : int
        How many were made.
    params : list of arrays
        Factors W[0] … W[L-1], then V of each learned graph.
    memory : object
        The optimiser's.
    energies : ndarray or None
        Of the last iteration.
    monitors : list of dict
        What the monitor remembers, and that of the second phase once it has begun.
    stopped : str or None
        Why a monitor has just ended its phase.
    start, limit : int
        The iterations at which this phase began, and will end at the latest.
    chosen : Choice or None
        The iterate that the second phase began with; None in the first.
    ended : str or None
        Why the first phase ended, once it has.
    used_up : bool
        Whether it ended because its iterations were used up.
    held_out : ndarray of bool or None
        Entries that the first phase must not see.
    explained : list of LowRank or None
        The rival of low rank of each problem.
    replaced : ndarray of bool
        Which problems' answers the rivals replace.
    """

    iteration: int
    params: list[Array]
    memory: Any
    energies: npt.NDArray[np.float64] | None
    monitors: list[dict[str, Any]]
    stopped: str | None
    start: int
    limit: int
    chosen: Choice | None
    ended: str | None
    used_up: bool
    held_out: npt.NDArray[np.bool_] | None
    explained: list[LowRank | None] | None
    replaced: npt.NDArray[np.bool_]
