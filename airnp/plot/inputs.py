"""One problem's arrays, ready to draw."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from airnp._arrays import Array, to_numpy
from airnp.result import FitResult
from airnp.stacks import chosen_problem


def one_matrix(array: Array, result: FitResult, problem: Any) -> npt.NDArray[Any]:
    """Return the matrix (m, n) of one problem, of an array that has the shape of the result."""
    place: Any = chosen_problem(tuple(result.matrix.shape[:-2]), problem)
    return np.asarray(to_numpy(array)[place])


def one_truth(truth: Any, result: FitResult, problem: Any) -> npt.NDArray[np.float64]:
    """Return the matrix (m, n) of one problem, of a truth that a caller gave, after checking its shape."""
    values = np.asarray(to_numpy(truth), dtype=np.float64)
    if values.shape != tuple(result.matrix.shape):
        raise ValueError(f"truth: expected shape {tuple(result.matrix.shape)}, got {values.shape}")
    return one_matrix(values, result, problem)
