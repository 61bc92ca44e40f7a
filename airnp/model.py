"""What is fitted to the data: the model's settings, from which every phase of a fit makes its objective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airnp.fidelity import FidelityScale, Loss
from airnp.inputs import Observations
from airnp.objective import Objective
from airnp.prepared import PreparedData
from airnp.regularizers import Regularizer


@dataclass(frozen=True)
class Model:
    """The settings of an objective, as :func:`airnp.fit` has them; see there."""

    regularizers: Sequence[Regularizer] | None
    depth: int
    rank: int | None
    fidelity: FidelityScale
    loss: Loss
    huber_delta: float
    engine: str

    def objective(self, data: PreparedData, observations: Observations) -> Objective:
        """Return the objective of some of the observations."""
        return Objective.from_observations(
            observations,
            regularizers=self.regularizers,
            depth=self.depth,
            rank=self.rank,
            operator=data.operator,
            shape=data.shape,
            fidelity=self.fidelity,
            loss=self.loss,
            huber_delta=self.huber_delta,
            engine=self.engine,
        )
