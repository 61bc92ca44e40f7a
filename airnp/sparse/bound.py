"""From what a user says to terms of one problem: which regularisers the sparse form takes, and their λ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airnp.regularizers import AdaptiveLaplacian, FixedLaplacian, Regularizer, WeightDecay
from airnp.regularizers.base import GRAPH_WEIGHT
from airnp.sparse.contract import SparseOperations
from airnp.sparse.entries import Entries
from airnp.sparse.parameters import Layout
from airnp.sparse.terms import Decay, FixedGraph, LearnedGraph, SparseTerm


def bound_terms(
    ops: SparseOperations,
    regularizers: Sequence[Regularizer],
    entries: Entries,
    layout: Layout,
    scale: float,
) -> list[SparseTerm]:
    """Return one term for each regulariser, or say which of them the sparse form does not have."""
    return [_bound(ops, item, entries, layout, scale) for item in regularizers]


def _bound(
    ops: SparseOperations, item: Regularizer, entries: Entries, layout: Layout, scale: float
) -> SparseTerm:
    if isinstance(item, WeightDecay):
        if item.on == "mask" and not (layout.mask_rows or layout.mask_columns):
            raise ValueError("regularizers: WeightDecay(on='mask') needs a mask_factor")
        return Decay(ops, item, entries)
    if not isinstance(item, AdaptiveLaplacian | FixedLaplacian):
        raise ValueError(
            f"regularizers: form='sparse' has AdaptiveLaplacian, FixedLaplacian and WeightDecay, got {item!r}"
        )
    if item.axis not in ("rows", "columns"):
        raise ValueError(f"axis: form='sparse' has graphs over 'rows' and 'columns', got {item.axis!r}")
    if isinstance(item, FixedLaplacian):
        return _fixed(item, layout, scale, entries.values.dtype, ops.xp)
    if item.adjacency != "row":
        raise ValueError(f"adjacency: form='sparse' has 'row', got {item.adjacency!r}")
    return LearnedGraph(item, GRAPH_WEIGHT * scale if item.weight is None else item.weight)


def _fixed(item: FixedLaplacian, layout: Layout, scale: float, dtype: Any, xp: Any) -> FixedGraph:
    from scipy.sparse import csr_array

    adjacency, nodes = csr_array(item.host_adjacency()), layout.m if item.axis == "rows" else layout.n
    if adjacency.shape[0] != nodes:
        raise ValueError(
            f"graph: expected {nodes} nodes, one for each of the {item.name}, got {adjacency.shape[0]}"
        )
    return FixedGraph(item, item.weight_for(scale), adjacency, dtype, xp)
