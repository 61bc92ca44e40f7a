"""Regularisers as a result shows them: their graphs and energies at its parameters."""

from __future__ import annotations

from airnp._arrays import Array
from airnp.engines.contract import NO_MEMORY
from airnp.objective import Objective
from airnp.result import FittedRegularizer


def fitted_regularizers(objective: Objective, params: list[Array]) -> list[FittedRegularizer]:
    """Return each regulariser of an objective at some parameters."""
    energies = objective.evaluate(params, memory=NO_MEMORY).energies
    graphs = iter(params[objective.depth :])
    return [
        FittedRegularizer(
            regularizer.name,
            repr(regularizer),
            term.weight,
            energy,
            adjacency,
            next(graphs) if term.parameter_shape is not None else None,
        )
        for regularizer, term, energy, adjacency in zip(
            objective.regularizers, objective.terms, energies, objective.adjacencies(params), strict=True
        )
    ]
