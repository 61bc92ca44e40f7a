"""airnp itself, one iteration at a time as ``airnp.fit`` makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import airnp
from airnp.engines import select_engine
from airnp.training.steps import Steps
from bench.peers.problem import LEARNING_RATE, Problem, regularizers


def runner(problem: Problem, engine: Any = "auto", xp: Any = np) -> Callable[[int], float]:
    """Return a function that runs iterations and returns the last loss, summed over a stack.

    Parameters
    ----------
    problem : Problem
    engine : {"auto", "reference"}, CPU or CUDA
        As :func:`airnp.fit` takes it.
    xp : module
        NumPy or CuPy.
    """
    objective = airnp.Objective(
        problem.values,
        problem.mask,
        regularizers=regularizers(problem.method, *problem.values.shape[-2:]),
        depth=problem.depth,
        xp=xp,
        engine=engine,
    )
    params = objective.init(init=problem.params)
    steps = Steps(objective, airnp.Adam(LEARNING_RATE), params, engine=select_engine(engine, xp))

    def run(iterations: int) -> float:
        recorded = steps.advance(iterations)[-1]
        return float(np.sum(objective.losses(recorded[0], list(recorded[1:]))))

    return run
