"""Where the sparse form starts."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from airnp._arrays import to_numpy
from airnp.engines.apart import copied_apart
from airnp.initialization import Balanced, Initializer, checked_init
from airnp.sparse.contract import Edges
from airnp.sparse.edges import all_edges, edges_to, given_edges, near_each_other
from airnp.sparse.model import SparseModel
from airnp.sparse.neighbours import nearest
from airnp.sparse.offsets import first_offsets
from airnp.sparse.parameters import SparseState
from airnp.sparse.terms import LearnedGraph, eigenbasis

_DEFAULT_NEIGHBOURS = 20

_MANY_NODES = 10_000
"""Nodes from which on it pays to bring neighbours close to each other: their rows fill the nearer caches."""


def first_state(
    model: SparseModel, seed: int, init: Any, shrinkage: float | None, threads: int
) -> SparseState:
    """Return the first parameters and edges.

    Factors come from ``init``, drawn as in the dense form; the mask factor starts at zero, offsets where they
    fit best without factors, V uniform in ±1/√(candidates of a row), which is the dense form's ±1/√k for
    all candidates.
    """
    layout, kind = model.layout, model.entries.values.dtype
    rng = np.random.default_rng(seed)
    params = _first_factors(model, rng, init)
    params += [np.zeros(shape, kind) for shape in layout.shapes[layout.depth :]]
    if shrinkage is not None:
        mean, rows, columns = first_offsets(model.entries, shrinkage)
        for param, value in zip(params[-3:], (rows, columns, mean), strict=True):
            param[...] = value
    place = copied_apart if model.ops.xp is np else model.ops.xp.asarray
    params = [place(param) for param in params]
    edges = tuple(candidates(model, term, params, threads) for term in model.learned)
    for graph in edges:
        spread = 1 / np.sqrt(np.maximum(graph.pattern.counts, 1))
        drawn = rng.uniform(-1, 1, graph.count) * np.repeat(spread, graph.pattern.counts)
        params.append(place(drawn[None].astype(kind)))
    return SparseState(params, edges)


def _first_factors(model: SparseModel, rng: np.random.Generator, init: Any) -> list[npt.NDArray[Any]]:
    layout, kind = model.layout, model.entries.values.dtype
    start = checked_init(init)
    shape = (layout.m, layout.n, layout.depth, layout.rank)
    if isinstance(start, Balanced):
        raise ValueError(
            "init: 'balanced' forms the whole matrix, which form='sparse' does not; use Gaussian"
        )
    given = start.draw(rng, *shape) if isinstance(start, Initializer) else [np.asarray(a) for a in start]
    shapes = layout.shapes[: layout.depth]
    turned = [array.T if level == 0 else array for level, array in enumerate(given)]
    if [array.shape for array in turned] != shapes:
        expected = [shapes[0][::-1], *shapes[1:]]
        raise ValueError(f"init: expected factors of shapes {expected}, got {[a.shape for a in given]}")
    factors = [np.ascontiguousarray(array, kind) for array in turned]
    if not all(np.isfinite(factor).all() for factor in factors):
        raise ValueError("init: expected finite factors")
    return [factor.copy() for factor in factors]


def candidates(model: SparseModel, term: LearnedGraph, params: list[npt.NDArray[Any]], threads: int) -> Edges:
    """Return the candidate edges of a graph at this moment: given, all, or to the nearest in X."""
    said, layout = term.regularizer, model.layout
    nodes = layout.m if said.axis == "rows" else layout.n
    if said.candidates is not None:
        return _ordered(given_edges(said.candidates, nodes, said.neighbors))
    k = _DEFAULT_NEIGHBOURS if said.neighbors is None else said.neighbors
    if k >= nodes - 1:
        return all_edges(nodes)
    sides = model.sides(params, own=False)
    here, other = (sides.u, sides.v) if said.axis == "rows" else (sides.v, sides.u)
    basis, metric = eigenbasis(model.ops, other)
    return _ordered(edges_to(nearest(to_numpy(here @ (basis * np.sqrt(metric))), k, threads)))


def _ordered(edges: Edges) -> Edges:
    return edges if edges.pattern.lines < _MANY_NODES else near_each_other(edges)


def is_searched(model: SparseModel, term: LearnedGraph) -> bool:
    """Whether a graph's candidates follow the factors."""
    said = term.regularizer
    nodes = model.layout.m if said.axis == "rows" else model.layout.n
    k = _DEFAULT_NEIGHBOURS if said.neighbors is None else said.neighbors
    return said.candidates is None and k < nodes - 1
