"""airnp itself, one iteration at a time as ``airnp.fit`` makes them."""

from __future__ import annotations

from collections.abc import Callable

import airnp
from airnp.training.steps import Training
from bench.peers.problem import LEARNING_RATE, Problem, regularizers


def engine(problem: Problem, name: str, threads: int | None = None) -> Callable[[int], float]:
    """Return a function that runs iterations and returns the last loss."""
    m, n = problem.values.shape[-2:]
    objective = airnp.Objective(
        problem.values,
        problem.mask,
        regularizers=regularizers(problem.method, m, n),
        depth=problem.depth,
        engine=name,
    )
    params = [param.copy() for param in problem.params]
    training = Training(objective, airnp.Adam(LEARNING_RATE), params, threads=threads)

    def run(iterations: int) -> float:
        recorded = training.advance(iterations)[-1]
        return float(objective.losses(recorded[0], list(recorded[1:])))

    return run
