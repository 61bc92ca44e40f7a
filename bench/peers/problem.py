"""The problem that all programs solve: masked mean fidelity with learned graphs, with TV, or alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

LEARNING_RATE = 1e-3
EPSILON = 1e-3  # smoothing of the total variation


@dataclass(frozen=True)
class Problem:
    """One matrix to complete, its start, and the method's weights."""

    method: str
    values: np.ndarray
    mask: np.ndarray
    params: list[np.ndarray]
    weight: float
    depth: int

    @property
    def scale(self) -> float:
        """1/(m·n): the fidelity is the mean over all entries."""
        return 1.0 / self.values.size


def make_problem(method: str, m: int, depth: int, dtype: str, n: int | None = None) -> Problem:
    """Return a smooth random picture of m×n with 30 % of its entries missing, and airnp's own start."""
    import airnp

    n = m if n is None else n
    rng = np.random.default_rng(0)
    rows, columns = np.linspace(0, 9, m)[:, None], np.linspace(0, 7, n)
    picture = 0.5 + 0.25 * np.sin(rows + np.cos(columns)) + 0.2 * np.cos(2 * columns - rows) * np.sin(rows)
    values = (picture + 0.02 * rng.standard_normal((m, n))).astype(dtype)
    mask = rng.random((m, n)) >= 0.3
    values = np.where(mask, values, 0).astype(dtype)
    objective = airnp.Objective(values, mask, regularizers=regularizers(method, m, n), depth=depth)
    weight = objective.terms[0].weight if objective.terms else 0.0
    return Problem(method, values, mask, objective.init(seed=0), weight, depth)


def regularizers(method: str, m: int, n: int) -> list:
    """Return airnp's regularisers for a method of the paper."""
    import airnp

    if method == "AIR":
        return [airnp.AdaptiveLaplacian("rows"), airnp.AdaptiveLaplacian("columns")]
    return [airnp.TotalVariation(0.1 / (m * n), epsilon=EPSILON)] if method == "RDMF" else []
