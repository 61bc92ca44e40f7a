"""What a sparse fit gives back at a state: factors and offsets in the data's units, and graphs."""

from __future__ import annotations

from typing import Any

import numpy as np

from airnp._arrays import to_numpy
from airnp.sparse.contract import Offsets
from airnp.sparse.model import SparseModel
from airnp.sparse.parameters import SparseState
from airnp.sparse.problem import SparseProblem
from airnp.sparse.result import SparseFitResult, SparseGraph
from airnp.sparse.terms import Decay, LearnedGraph


def fitted_result(
    problem: SparseProblem, model: SparseModel, state: SparseState, **told: Any
) -> SparseFitResult:
    """Return a state in the data's units; ``told`` is what the result says of how it came about."""
    sides = model.sides(state.params)
    root = np.sqrt(problem.span)
    offsets = None
    if problem.layout.offsets:
        mean = problem.base + problem.span * float(sides.offsets.mean)
        rows, columns = (_scaled(side, problem.span) for side in (sides.offsets.rows, sides.offsets.columns))
        offsets = Offsets(mean, rows, columns)
    return SparseFitResult(
        row_factors=_scaled(sides.u, root),
        column_factors=_scaled(sides.v, root),
        offsets=offsets,
        base=problem.base,
        graphs=fitted_graphs(model, state),
        bounds=problem.bounds,
        **told,
    )


def _scaled(array: Any, factor: Any) -> Any:
    return to_numpy(array * array.dtype.type(factor))


def fitted_graphs(model: SparseModel, state: SparseState) -> list[SparseGraph]:
    """Return the graphs of a model at a state."""
    if all(isinstance(term, Decay) for term in model.terms):
        return []
    energies = model.ops.numbers(model.evaluate(state).energies)
    learned = zip(state.edges, model.layout.graphs(state.params), strict=True)
    found = []
    for term, energy in zip(model.terms, energies, strict=False):
        if isinstance(term, Decay):
            continue
        said = term.regularizer
        is_learned = isinstance(term, LearnedGraph)
        adjacency = _adjacency(*next(learned)) if isinstance(term, LearnedGraph) else term.adjacency
        found.append(SparseGraph(said.name, repr(said), term.weight, energy, adjacency, is_learned))
    return found


def _adjacency(edges: Any, logits: Any) -> Any:
    """Return A = (P + Pᵀ)/2 as a scipy.sparse.csr_array."""
    from scipy.sparse import csr_array

    pattern, values = edges.pattern, to_numpy(logits[0]).astype(np.float64)
    first, line = pattern.indptr[:-1], pattern.line_of_each()
    weights = np.exp(values - np.maximum.reduceat(values, first)[line])
    weights /= np.add.reduceat(weights, first)[line]
    ends = pattern.indices
    if edges.order is not None:
        line, ends = edges.order[line], edges.order[ends]
    p = csr_array((weights, (line, ends)), shape=(pattern.lines, pattern.width))
    return csr_array((p + p.T) / 2)
