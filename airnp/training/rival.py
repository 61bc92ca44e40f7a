"""The rival of a fit: matrices of low rank, in the problems where they predict held-out entries better."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from airnp._arrays import Array, from_numpy, to_numpy
from airnp.completing import lowrank
from airnp.completing.lowrank import LowRank
from airnp.data.holdout import like_the_gaps
from airnp.data.inputs import Observations
from airnp.model.initialization import balanced_factors
from airnp.model.objective import Objective
from airnp.training.monitors import Choice, Monitor, chosen_from

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


_TURNS, _AT_A_TURN = 10, 0.02
"""How often entries are left out to see how well the rest predict them, and what share of them at a time."""

_MARGIN = 0.9
"""A matrix of low rank replaces a fit if its error on held-out entries is below this share of the fit's."""


@dataclass(frozen=True)
class Explained:
    """The matrix of low rank that predicts held-out entries best, for each problem of a stack.

    Attributes
    ----------
    found : list of LowRank or None
        For every problem in turn.
    observations : Observations
    depth, rank : int
        Of the factors to make.
    """

    found: list[lowrank.LowRank | None]
    observations: Observations
    depth: int
    rank: int

    @property
    def exact(self) -> Bools:
        """Whether it predicts them almost exactly, shape (…): then there is nothing left to fit."""
        return self._by_problem([one is not None and one.is_exact for one in self.found])

    @property
    def errors(self) -> npt.NDArray[np.float64]:
        """Mean absolute error on held-out entries, in units of the data's range; infinite for none."""
        return self._by_problem([np.inf if one is None else one.error for one in self.found])

    @property
    def ranks(self) -> npt.NDArray[np.int64]:
        """Zero where none was found."""
        return self._by_problem([0 if one is None else one.rank for one in self.found])

    def _by_problem(self, answers: list[Any]) -> npt.NDArray[Any]:
        return np.reshape(answers, self.observations.values.shape[:-2])

    def factors(self) -> list[Array]:
        """Return W[0] … W[L-1] of every problem, of the shapes that a fit has; zeros where none was found."""
        seen = self.observations
        batch, (m, n) = seen.values.shape[:-2], seen.values.shape[-2:]
        products = [np.zeros((m, n)) if one is None else one.left @ one.right.T for one in self.found]
        levels = zip(*(balanced_factors(each, self.depth, self.rank) for each in products), strict=True)
        stacked = [np.stack(level).reshape(*batch, *level[0].shape) for level in levels]
        return [from_numpy(level, seen.xp, seen.device, seen.dtype) for level in stacked]

    def left_out(self, problems: Bools) -> Iterator[tuple[Bools, npt.NDArray[np.float64]]]:
        """Yield entries (…, m, n) of some problems and what these predict without them, a few at a time.

        They are drawn in the shape of the gaps. So few at a time hardly make a prediction worse.
        """
        seen = self.observations
        values, weights = (to_numpy(each).astype(np.float64) for each in (seen.values, seen.weights))
        used = np.zeros(values.shape, dtype=bool)
        replaced = {
            place: (found, drawn_in_turns(weights[place] > 0))
            for place, found in zip(np.ndindex(problems.shape), self.found, strict=True)
            if problems[place] and found is not None
        }
        for _ in range(_TURNS):
            entries, predicted = np.zeros(values.shape, dtype=bool), np.zeros(values.shape)
            for place, (found, turns) in replaced.items():
                drawn = next(turns)
                entries[place] = drawn & ~used[place]
                predicted[place] = lowrank.predicted_without(values[place], weights[place], drawn, found)
            used |= entries
            yield entries, predicted

    def beats(self, errors: npt.NDArray[np.float64]) -> Bools:
        """Return in which problems it predicts held-out entries exactly, or clearly better than a fit."""
        return self.exact | (self.errors < _MARGIN * errors)

    def put_into(self, params: Choice, problems: Bools) -> Choice:
        """Return a choice of parameters with these factors in some of the problems."""
        if not problems.any():
            return params
        replaced = [*self.factors(), *params.params[self.depth :]]
        return chosen_from(problems, Choice(replaced, params.iteration), params)

    @property
    def reason(self) -> str:
        """What to tell the user when it is the answer to all problems."""
        lowest, highest = int(self.ranks.min()), int(self.ranks.max())
        rank = f"rank {lowest}" if lowest == highest else f"ranks {lowest} to {highest}"
        well = "almost exactly" if self.exact.all() else "better"
        return f"held-out entries are predicted {well} by a matrix of {rank}"


def drawn_in_turns(observed: Bools) -> Iterator[Bools]:
    """Yield which entries (m, n) of one problem are left out together, turn by turn; some more than once."""
    wanted = max(1, round(_AT_A_TURN * int(observed.sum())))
    for turn in range(_TURNS):
        yield like_the_gaps(observed, wanted, np.random.default_rng([turn, 2]))


def explained(observations: Observations, held_out: Bools, depth: int, rank: int) -> Explained | None:
    """Return the matrices of low rank that predict held-out entries best, None if there is none at all.

    Parameters
    ----------
    observations : Observations
        Of entries, in units of the data's range.
    held_out : ndarray of bool (…, m, n)
    depth, rank : int
        Of the factors to make.
    """
    values, weights = to_numpy(observations.values), to_numpy(observations.weights)
    m, n = values.shape[-2:]
    found = [
        lowrank.explanation(*arrays, rank)
        for arrays in zip(
            values.reshape(-1, m, n).astype(np.float64),
            weights.reshape(-1, m, n).astype(np.float64),
            held_out.reshape(-1, m, n),
            strict=True,
        )
    ]
    return Explained(found, observations, depth, rank) if any(found) else None
