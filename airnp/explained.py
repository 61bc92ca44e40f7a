"""Problems that a matrix of low rank explains, as parameters to start from and to give back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from airnp import lowrank
from airnp._arrays import Array, from_numpy, to_numpy
from airnp.initialization import balanced_factors
from airnp.inputs import Observations
from airnp.stopping import Choice, chosen_from

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Explained:
    """Which problems of a stack a matrix of low rank explains, and its factors.

    Attributes
    ----------
    problems : ndarray of bool (…)
    ranks : ndarray of int (…)
        Zero where nothing was found.
    factors : list of arrays
        W[0] … W[L-1] of every problem, of the shapes that a fit has; zeros where nothing was found.
    """

    problems: Bools
    ranks: npt.NDArray[np.int64]
    factors: list[Array]

    def put_into(self, params: Choice) -> Choice:
        """Return a choice of parameters with these factors in the problems that are explained."""
        graphs = params.params[len(self.factors) :]
        return chosen_from(self.problems, Choice([*self.factors, *graphs], params.iteration), params)

    @property
    def reason(self) -> str:
        """What to tell the user."""
        lowest, highest = int(self.ranks.min()), int(self.ranks.max())
        rank = f"rank {lowest}" if lowest == highest else f"ranks {lowest} to {highest}"
        return f"held-out entries are predicted almost exactly by a matrix of {rank}"


def explained(observations: Observations, held_out: Bools, depth: int, rank: int) -> Explained | None:
    """Return what matrices of low rank explain, None for nothing.

    Parameters
    ----------
    observations : Observations
        Of entries, in units of the data's range.
    held_out : ndarray of bool (…, m, n)
    depth, rank : int
        Of the factors to make.
    """
    values, weights = to_numpy(observations.values), to_numpy(observations.weights)
    batch, (m, n) = values.shape[:-2], values.shape[-2:]
    found = [
        lowrank.explanation(*arrays, rank)
        for arrays in zip(
            values.reshape(-1, m, n).astype(np.float64),
            weights.reshape(-1, m, n).astype(np.float64),
            held_out.reshape(-1, m, n),
            strict=True,
        )
    ]
    if not any(found):
        return None
    nothing = np.zeros((m, n))
    factors = [
        balanced_factors(nothing if one is None else one.left @ one.right.T, depth, rank) for one in found
    ]
    stacked = [np.stack(level).reshape(*batch, *level[0].shape) for level in zip(*factors, strict=True)]
    ranks = np.reshape([0 if one is None else one.rank for one in found], batch)
    return Explained(
        ranks > 0,
        ranks,
        [from_numpy(level, observations.xp, observations.device, observations.dtype) for level in stacked],
    )
