"""A fit at one moment, as stopping rules and callbacks see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from airnp._arrays import Array

Values = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class FitState:
    """The state after some iterations. Its arrays belong to the fit: look, do not touch.

    The parameters change with the next iteration; ``X``, once asked for, stays as it is.

    Attributes
    ----------
    iteration : int
        How many iterations were made.
    loss, fidelity : float or array (…)
        As the last iteration computed them, in normalised units.
    energies : dict of str to float or array (…)
        Each regulariser's R, without its λ.
    energy_change : array or None
        How much each energy changed from the iteration before, absolute; None at the first.
    params : list of arrays
        Factors W[0] … W[L-1], then V of each learned graph.
    learned : tuple of str
        Which of ``energies`` have a graph that is being learned.
    """

    iteration: int
    loss: Values
    fidelity: Values
    energies: dict[str, Values]
    energy_change: Values | None
    params: list[Array]
    learned: tuple[str, ...]
    multiply: Callable[[list[Array]], Array]
    undo: Callable[[Array], Array]
    adjacencies: Callable[[list[Array]], list[Any]]

    @cached_property
    def normalized_matrix(self) -> Array:
        """The product of the factors, in normalised units."""
        return self.multiply(self.params)

    @cached_property
    def graphs(self) -> dict[str, Array]:
        """The adjacency of each graph that is being learned, by the names of ``learned``."""
        found = zip(self.energies, self.adjacencies(self.params), strict=True)
        return {name: adjacency for name, adjacency in found if name in self.learned}

    @cached_property
    def X(self) -> Array:  # noqa: N802
        """The matrix at this moment, in the data's units."""
        return self.undo(self.normalized_matrix)
