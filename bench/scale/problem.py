"""The problem that all programs solve: a synthetic table, airnp's start of the sparse form, and PyTorch's."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

import airnp
from airnp.data.entries import read_entries
from airnp.engines import EngineChoice, select_engine
from airnp.engines.contract import Edges
from airnp.model.factored import FactoredObjective, Layout
from airnp.training.steps import Steps

RATE = 1e-2
SPREAD = 0.1
GRAPH_WEIGHT = 1e-2


@dataclass(frozen=True)
class Prepared:
    """An objective and where it starts; ``search`` is the seconds for neighbours and everything else."""

    objective: FactoredObjective
    params: list[np.ndarray]
    engine: EngineChoice
    search: float


def regularizers(neighbors: int, weight: float) -> list[airnp.AdaptiveLaplacian]:
    """Return learned graphs over rows and columns; candidates are searched once."""
    nearest = airnp.Nearest(neighbors, refresh=10**6)
    return [airnp.AdaptiveLaplacian(axis, weight, candidates=nearest) for axis in ("rows", "columns")]


def prepare(matrix: csr_array, rank: int, neighbors: int, threads: int) -> Prepared:
    """Return the objective of a table, with s = 1/entries, and its first parameters."""
    start = time.perf_counter()
    entries = read_entries(matrix, np.float32)
    layout = Layout(*matrix.shape, depth=2, rank=rank)
    scale, engine = 1.0 / entries.nnz, select_engine(airnp.CPU(threads), np)
    graphs = regularizers(neighbors, GRAPH_WEIGHT * scale)
    objective = FactoredObjective(entries, layout, graphs, ops=engine.ops, scale=scale, threads=threads)
    params = objective.init(0, airnp.Gaussian(0.0, SPREAD))
    return Prepared(objective, params, engine, time.perf_counter() - start)


def engine(prepared: Prepared) -> tuple[Callable[[int], float], Steps]:
    """Return a function that runs iterations and returns the last loss, and the steps themselves."""
    objective = prepared.objective
    params = objective.adopt(prepared.params)
    steps = Steps(objective, airnp.Adam(RATE), params, engine=prepared.engine)

    def run(iterations: int) -> float:
        values = steps.attempt(iterations)
        steps.settle(values)  # without the copy that a fit keeps after every portion of iterations
        return float(objective.losses(values[-1, 0], values[-1, 1:]))

    return run, steps


def for_torch(prepared: Prepared):
    """Return the same start as arrays for PyTorch."""
    from bench.peers.torch_sparse import SparseStart

    objective, params = prepared.objective, prepared.params
    pattern, graphs = objective.entries.pattern, objective.layout.graphs(params)
    lines = [_in_row_order(edges, graph) for edges, graph in zip(objective.edges, graphs, strict=True)]
    return SparseStart(
        indptr=pattern.indptr,
        indices=pattern.indices,
        values=objective.entries.values,
        u=params[1],
        v=params[0],
        candidates=tuple(candidates for candidates, _ in lines),
        logits=tuple(logits for _, logits in lines),
        scale=objective.scale,
        weight=objective.terms[0].weight,
        rate=RATE,
    )


def _in_row_order(edges: Edges, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return candidates and logits, shape (nodes, k + 1), with node i in row i whatever airnp's order is."""
    nodes = edges.pattern.lines
    candidates, logits = edges.pattern.indices.reshape(nodes, -1), logits.reshape(nodes, -1)
    if edges.order is None:
        return candidates, logits
    back = edges.returned.indices
    candidates, logits = edges.order[candidates][back], logits[back]
    ascending = np.argsort(candidates, axis=1)  # as PyTorch's sparse matrices need them
    return np.take_along_axis(candidates, ascending, 1), np.take_along_axis(logits, ascending, 1)


# --- synthetic tables ---

NOISE = 0.1


@dataclass(frozen=True)
class Planted:
    """A sparse table, held-out entries, and the standard deviation of their noise."""

    matrix: csr_array
    rows: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    noise: float = NOISE


def planted(m: int, n: int, per_row: int, *, rank: int = 4, held_out: int = 20_000, seed: int = 0) -> Planted:
    """Return a table of m×n with about ``per_row`` entries in each row.

    Row i of community g has u_i = centre_g + 0.3 · noise, columns alike; an entry is u_i·v_j scaled to unit
    variance, plus noise of 0.1. There are √m / 2 communities of rows and √n / 2 of columns.

    Examples
    --------
    >>> table = planted(200, 40, 10, held_out=50)
    >>> table.matrix.shape, len(table.values)
    ((200, 40), 50)
    """
    rng = np.random.default_rng(seed)
    u, v = (_members(rng, size, rank) for size in (m, n))
    where = np.unique(_draw_places(rng, m, n, per_row))
    rows, columns = where // n, where % n
    values = np.empty(len(where), np.float32)
    for first in range(0, len(where), 4_000_000):  # all rows at once would need much more memory
        part = slice(first, first + 4_000_000)
        values[part] = np.einsum("er,er->e", u[rows[part]], v[columns[part]])
    values += rng.standard_normal(len(values), dtype=np.float32) * NOISE
    held = np.zeros(len(where), bool)
    held[rng.choice(len(where), min(held_out, len(where) // 10), replace=False)] = True
    kept = ~held
    indptr = np.searchsorted(rows[kept], np.arange(m + 1))
    matrix = csr_array((values[kept], columns[kept].astype(np.int32), indptr), shape=(m, n))
    return Planted(matrix, rows[held], columns[held], values[held])


def _members(rng: np.random.Generator, size: int, rank: int) -> np.ndarray:
    """Return a vector for each node, near the centre of its community; products have unit variance."""
    groups = max(2, int(np.sqrt(size) / 2))
    centres = rng.standard_normal((groups, rank), dtype=np.float32)
    found = centres[rng.integers(groups, size=size)]
    found += 0.3 * rng.standard_normal((size, rank), dtype=np.float32)
    return found / np.float32(rank**0.25 * np.sqrt(1.09))


def _draw_places(rng: np.random.Generator, m: int, n: int, per_row: int) -> np.ndarray:
    """Return random places row · n + column; some occur twice."""
    if per_row > n:
        raise ValueError(f"per_row: expected at most n = {n}, got {per_row}")
    columns = rng.integers(n, size=(m, per_row), dtype=np.int64)
    columns += np.arange(m, dtype=np.int64)[:, None] * n
    return columns.reshape(-1)
