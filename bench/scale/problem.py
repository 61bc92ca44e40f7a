"""One problem for all programs: airnp's own start of the sparse form, and what PyTorch needs of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

import airnp
from airnp.data.entries import Batches, read_entries
from airnp.engines.contract import Edges
from airnp.engines.threads import using
from airnp.model.factored import Layout, SparseModel, SparseState
from airnp.model.initialization import first_state
from airnp.training.sparse_loop import SparseTraining

RATE = 1e-2
SPREAD = 0.1
GRAPH_WEIGHT = 1e-2


@dataclass(frozen=True)
class Prepared:
    """A model with its first state; ``search`` is how long neighbours and all else took."""

    model: SparseModel
    state: SparseState
    threads: int
    search: float


def regularizers(neighbors: int, weight: float) -> list[airnp.AdaptiveLaplacian]:
    """Return learned graphs over rows and columns, whose candidates are searched once."""
    common = {"weight": weight, "neighbors": neighbors, "refresh": 10**6}
    return [airnp.AdaptiveLaplacian(axis, **common) for axis in ("rows", "columns")]


def prepare(matrix: csr_array, rank: int, neighbors: int, threads: int) -> Prepared:
    """Return the loss of a table, s = 1/entries, and where iterations begin."""
    start = time.perf_counter()
    entries = read_entries(matrix, np.float32)
    layout = Layout(*matrix.shape, depth=2, rank=rank)
    scale = 1.0 / entries.nnz
    terms = regularizers(neighbors, GRAPH_WEIGHT * scale)
    model = SparseModel(entries, layout, terms, scale=scale)
    with using(threads):
        state = first_state(model, 0, airnp.Gaussian(0.0, SPREAD), None, threads)
    return Prepared(model, state, threads, time.perf_counter() - start)


def engine(prepared: Prepared) -> tuple[Callable[[int], float], SparseTraining]:
    """Return a function that makes so many iterations and gives the last loss, and the training itself."""
    model, state = prepared.model, prepared.state.copied()
    batches = Batches(model.entries, None, 0)
    training = SparseTraining(model, airnp.Adam(RATE), state, batches, prepared.threads)

    def run(iterations: int) -> float:
        with using(prepared.threads):
            for _ in range(iterations):
                fidelity, *energies = training.step()
        return model.loss(fidelity, energies)

    return run, training


def for_torch(prepared: Prepared):
    """Return the same start as arrays."""
    from bench.peers.torch_sparse import SparseStart

    model, state = prepared.model, prepared.state
    pattern, graphs = model.entries.pattern, model.layout.graphs(state.params)
    lines = [_by_rows(edges, graph) for edges, graph in zip(state.edges, graphs, strict=True)]
    return SparseStart(
        indptr=pattern.indptr,
        indices=pattern.indices,
        values=model.entries.values,
        u=state.params[1],
        v=state.params[0],
        candidates=tuple(candidates for candidates, _ in lines),
        logits=tuple(logits for _, logits in lines),
        scale=model.scale,
        weight=model.terms[0].weight,
        rate=RATE,
    )


def _by_rows(edges: Edges, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return candidates and logits (nodes, k + 1), node i being row i whatever order airnp has them in."""
    nodes = edges.pattern.lines
    candidates, logits = edges.pattern.indices.reshape(nodes, -1), logits.reshape(nodes, -1)
    if edges.order is None:
        return candidates, logits
    back = edges.returned.indices
    candidates, logits = edges.order[candidates][back], logits[back]
    ascending = np.argsort(candidates, axis=1)  # as sparse matrices of PyTorch want them
    return np.take_along_axis(candidates, ascending, 1), np.take_along_axis(logits, ascending, 1)
