r"""Graph regularisers of the sparse form: energies and gradients from factors and r×r matrices alone.

With X = U Vᵀ, :math:`\|x_i - x_j\|^2 = (u_i - u_j)^T G (u_i - u_j)`, G = VᵀV (r×r). G = E diag(γ) Eᵀ turns
the rows once, T = U E, after which a distance is a weighted sum of squares, whatever the rank of G:

.. math:: D_{ij} = \sum_k γ_k (t_{ik} - t_{jk})^2, \qquad B = 2 L T, \qquad R = tr(X^T L X) = \tfrac12 ⟨A, D⟩

.. math:: ∂R/∂U = 2 L U G = B\,diag(γ)\,E^T, \qquad ∂R/∂V = 2 V (U^T L U) = V E (T^T B) E^T

For the columns of X, U and V change places. Offsets are no part of this geometry.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from airnp._arrays import to_numpy
from airnp.data.entries import Entries, Pattern
from airnp.engines.buffers import Workspace
from airnp.engines.contract import Edges, SparseOperations
from airnp.regularizers import AdaptiveLaplacian, FixedLaplacian, WeightDecay
from airnp.regularizers.decay import growth_of

Floats = npt.NDArray[Any]


def eigenbasis(ops: SparseOperations, factor: Floats) -> tuple[Floats, Floats]:
    """Return E (r×r) and γ (r,) of the Gram matrix factorᵀ factor, γ not negative; found on the host."""
    gram = to_numpy(ops.dense.product(factor, factor, transpose_a=True))
    values, basis = np.linalg.eigh(gram.astype(np.float64))
    metric = np.maximum(values, 0).astype(factor.dtype)
    return ops.xp.asarray(np.ascontiguousarray(basis, factor.dtype)), ops.xp.asarray(metric)


class Turned:
    """Nodes of a graph in the eigenbasis of the other factor's Gram matrix, and the way back.

    ``edges`` says in which order, if they have one of their own.
    """

    def __init__(
        self,
        ops: SparseOperations,
        nodes: Floats,
        other: Floats,
        space: Workspace,
        edges: Edges | None = None,
    ) -> None:
        self.basis, self.metric = eigenbasis(ops, other)
        self.pull = space.take("pull", nodes.shape)
        self.space = space
        self._ops, self._other = ops, other
        self._edges = None if edges is None or edges.order is None else edges
        if self._edges is not None:
            ops.line_sums(self._edges.gathered, nodes, self.pull)
            nodes = self.pull
        self.t = ops.dense.product(nodes, self.basis, out=space.take("t", nodes.shape))

    def add_gradients(self, weight: float, slope_nodes: Floats, slope_other: Floats) -> None:
        """Add λ ∂R/∂nodes and λ ∂R/∂other, with ``pull`` = 2 L T given."""
        dense, xp = self._ops.dense, self._ops.xp
        inner = dense.product(self.t, self.pull, transpose_a=True)
        middle = xp.ascontiguousarray(self.basis @ inner @ self.basis.T)
        dense.add_product(slope_other, self._other, middle, alpha=weight)
        back = xp.ascontiguousarray(self.metric[:, None] * self.basis.T)
        if self._edges is None:
            dense.add_product(slope_nodes, self.pull, back, alpha=weight)
            return
        back *= back.dtype.type(weight)
        slopes = dense.product(self.pull, back, out=self.t)
        self._ops.line_sums(self._edges.returned, slopes, self.pull)
        slope_nodes += self.pull


class LearnedGraph:
    """λ tr(Zᵀ L Z) of a graph whose weights over candidate edges are learned."""

    def __init__(self, regularizer: AdaptiveLaplacian, weight: float) -> None:
        self.regularizer, self.weight = regularizer, weight

    def add(
        self, ops: SparseOperations, edges: Edges, logits: Floats, turned: Turned, slopes: Floats
    ) -> float:
        """Write λ ∂R/∂V, and 2 L T to ``turned.pull``; return R."""
        weights = turned.space.take("weights", (edges.count,))
        energy = ops.edge_terms(
            edges, logits[0], turned.t, turned.metric, weights=weights, slopes=slopes[0], pull=turned.pull
        )
        slopes *= slopes.dtype.type(self.weight)
        return energy


class FixedGraph:
    """λ tr(Zᵀ L Z) of a graph that is given."""

    def __init__(
        self, regularizer: FixedLaplacian, weight: float, adjacency: Any, dtype: Any, xp: Any = np
    ) -> None:
        self.regularizer, self.weight, self.adjacency = regularizer, weight, adjacency
        self._pattern = Pattern(
            adjacency.indptr.astype(np.int64), adjacency.indices.astype(np.int32), adjacency.shape[1]
        )
        self._weights = xp.asarray(adjacency.data.astype(dtype))

    def add(self, ops: SparseOperations, turned: Turned) -> float:
        """Write 2 L T to ``turned.pull``; return R."""
        return ops.laplacian(self._pattern, self._weights, turned.t, turned.metric, pull=turned.pull)


class Decay:
    """λ/2 Σ g(n) ‖row‖² of matrices whose rows belong to rows or columns of X."""

    def __init__(self, ops: SparseOperations, regularizer: WeightDecay, entries: Entries) -> None:
        self._ops = ops
        self.regularizer, self.weight, self.on = regularizer, regularizer.weight, regularizer.on
        kind = entries.values.dtype
        self._rows, self._columns = (
            ops.xp.asarray(growth_of(counts, regularizer.growth, kind))
            for counts in (entries.pattern.counts, entries.column_counts)
        )

    def add(self, axis: str, matrix: Floats, slope: Floats) -> float:
        """Add λ g(n) ⊙ matrix to the slope; return ½ Σ g(n) ‖row‖²."""
        scaled = (self._rows if axis == "rows" else self._columns) * matrix
        energy: float = 0.5 * self._ops.number(self._ops.xp.vdot(scaled, matrix))
        scaled *= matrix.dtype.type(self.weight)
        slope += scaled
        return energy


SparseTerm: TypeAlias = LearnedGraph | FixedGraph | Decay
