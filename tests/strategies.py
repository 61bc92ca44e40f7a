"""Hypothesis strategies for problems: shapes, masks, regularisers, operators, whole objectives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from scipy.sparse.linalg import LinearOperator, aslinearoperator

import airnp
from airnp import (
    AdaptiveLaplacian,
    Blocks,
    DirichletEnergy,
    FixedLaplacian,
    Huber,
    Operator,
    Squared,
    TotalVariation,
)

ADJACENCIES = ("row", "global", "product")
SCALES = ("mean", "sum")
seeds = st.integers(0, 2**32 - 1)


class RowMixing:
    """A user's own transform: Z = B X for a fixed matrix B, with its adjoint Bᵀ Z."""

    def __init__(self, mixing: Any) -> None:
        self.mixing = mixing

    def forward(self, X: Any) -> Any:
        return self.mixing @ X

    def adjoint(self, Z: Any) -> Any:
        return self.mixing.T @ Z


class Blur:
    """A user's own operator: the mean of every 2×2 neighbourhood, of shape (m−1, n−1)."""

    def forward(self, X: Any) -> Any:
        return (X[1:, 1:] + X[1:, :-1] + X[:-1, 1:] + X[:-1, :-1]) / 4

    def adjoint(self, y: Any) -> Any:
        back = np.zeros((y.shape[0] + 1, y.shape[1] + 1))
        for rows in (slice(1, None), slice(None, -1)):
            for columns in (slice(1, None), slice(None, -1)):
                back[rows, columns] += y / 4
        return back


def symmetric_graph(rng: np.random.Generator, nodes: int) -> np.ndarray:
    """Return a random adjacency."""
    upper = np.triu(rng.random((nodes, nodes)) * (rng.random((nodes, nodes)) < 0.6), 1)
    return upper + upper.T


def divisors(number: int) -> list[int]:
    return [size for size in range(1, number + 1) if number % size == 0]


@st.composite
def regularizers(draw: st.DrawFn, m: int, n: int, *, with_entries: bool = True) -> Any:
    """Any one regulariser that fits a matrix of m×n."""
    rng = np.random.default_rng(draw(seeds))
    weight = draw(st.floats(0.05, 2.0))
    axis = draw(st.sampled_from(["rows", "columns"]))
    nodes = m if axis == "rows" else n
    kinds = ["adaptive", "blocks", "own", "fixed", "laplacian", "sparse", "l1", "quadratic"]
    kind = draw(st.sampled_from(kinds + (["covariance"] if with_entries else [])))
    adjacency = draw(st.sampled_from(ADJACENCIES))
    if kind == "adaptive":
        return AdaptiveLaplacian(axis, weight, adjacency)
    if kind == "blocks":
        blocks = Blocks(draw(st.sampled_from(divisors(m))), draw(st.sampled_from(divisors(n))))
        return AdaptiveLaplacian(blocks, weight, adjacency)
    if kind == "own":
        return AdaptiveLaplacian(RowMixing(rng.standard_normal((3, m))), weight, adjacency)
    if kind in ("fixed", "laplacian", "sparse"):
        graph = symmetric_graph(rng, nodes)
        if kind == "laplacian":
            return FixedLaplacian(np.diag(graph.sum(axis=1)) - graph, axis, weight, kind="laplacian")
        if kind == "sparse":
            from scipy.sparse import csr_array

            return FixedLaplacian(csr_array(graph), axis, weight)
        return FixedLaplacian(graph, axis, weight)
    if kind == "covariance":
        return DirichletEnergy(axis, weight)
    return TotalVariation(weight, kind, epsilon=draw(st.sampled_from([0.05, 0.3])))


@dataclass(frozen=True)
class Case:
    """An objective, a point, and the settings that made them (for the failure message and the oracle)."""

    objective: airnp.Objective
    point: list[np.ndarray]
    settings: dict[str, Any]

    def __repr__(self) -> str:
        return f"Case({self.settings})"


@st.composite
def cases(draw: st.DrawFn, *, low: int = 1, high: int = 6, operators: bool = True) -> Case:
    """An objective of random shape (seldom square), depth, rank, regularisers, mask and fidelity."""
    m, n = draw(st.integers(low, high)), draw(st.integers(low, high))
    depth = draw(st.integers(1, 4))
    rank = min(m, n) if depth == 1 else draw(st.integers(1, min(m, n)))
    rng = np.random.default_rng(draw(seeds))
    truth = rng.standard_normal((m, n))
    settings: dict[str, Any] = {
        "depth": depth,
        "rank": rank,
        "fidelity": draw(st.sampled_from([*(Squared(s) for s in SCALES), *(Huber(0.7, s) for s in SCALES)])),
    }
    kinds = ["mask", "weights"] + (["object", "linear operator"] if operators and m > 1 and n > 1 else [])
    kind = draw(st.sampled_from(kinds))
    settings["regularizers"] = draw(
        st.lists(regularizers(m, n, with_entries=kind in ("mask", "weights")), max_size=3)
    )
    data: dict[str, Any] = {"Y": truth}
    if kind in ("mask", "weights"):
        mask = rng.random((m, n)) < 0.6
        mask[rng.integers(m), rng.integers(n)] = True
        data["mask"] = mask
        if kind == "weights":
            settings["weights"] = rng.uniform(0.1, 2.0, (m, n))
    elif kind == "object":
        settings["operator"] = Blur()
        data["Y"] = Blur().forward(truth)
    else:
        matrix: LinearOperator = aslinearoperator(rng.standard_normal((m + n, m * n)))
        settings["operator"] = Operator(matrix, (m, n))
        data["Y"] = matrix.matvec(truth.ravel())
    objective = airnp.Objective(**data, **settings)
    # Entries of size ~1 make every term and every factor matter.
    scale = (1 / rank) ** ((depth - 1) / (2 * depth))
    point = [rng.standard_normal(shape) * scale for shape in objective.param_shapes]
    return Case(objective, point, {**data, **settings})
