r"""The geometry of graph regularisers where X = U Vᵀ is never formed: factors and r×r matrices alone.

With X = U Vᵀ, :math:`\|x_i - x_j\|^2 = (u_i - u_j)^T G (u_i - u_j)`, G = VᵀV (r×r). Any G = E diag(γ) Eᵀ with
γ ≥ 0 and an invertible E turns the rows once, T = U E, after which a distance is a weighted sum of squares,
whatever the rank of G. E may have the eigenvectors of G, or be the factor L of an L D Lᵀ:

.. math:: D_{ij} = \sum_k γ_k (t_{ik} - t_{jk})^2, \qquad B = 2 L T, \qquad R = tr(X^T L X) = \tfrac12 ⟨A, D⟩

.. math:: ∂R/∂U = 2 L U G = B\,diag(γ)\,E^T, \qquad ∂R/∂V = 2 V (U^T L U) = V E^{-T} (T^T B) E^{-1}

For the columns of X, U and V change places. Offsets are no part of this geometry.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace

from airnp._arrays import Array, to_numpy
from airnp.engines.buffers import Workspace
from airnp.engines.contract import Edges, Engine
from airnp.regularizers.base import Side


class TurnedNodes:
    """The nodes of a graph where distances are weighted sums of squares, and the way back.

    Parameters
    ----------
    ops : Engine
    nodes, other : (matrix, gradient)
        The side whose rows are the nodes, and the other one.
    space : Workspace
    edges : Edges, optional
        Says in which order the nodes are, if they have one of their own.

    Attributes
    ----------
    t : array (nodes, r)
        T.
    metric : array (r,)
        γ.
    pull : array (nodes, r)
        B, to be written to.
    """

    def __init__(
        self, ops: Engine, nodes: Side, other: Side, space: Workspace, edges: Edges | None = None
    ) -> None:
        self._ops, self._nodes, self._other = ops, nodes, other
        self.basis, self.metric, self._inverse = gram_factors(ops, other[0])
        matrix = nodes[0]
        self.pull = space.take("pull", matrix.shape)
        self._edges = None if edges is None or edges.order is None else edges
        if self._edges is not None:
            ops.line_sums(self._edges.gathered, matrix, out=self.pull)
            matrix = self.pull
        self.t = ops.product(matrix, self.basis, out=space.take("t", matrix.shape))
        self._back = space.take("back", self.basis.shape)

    def add_gradients(self, weight: float) -> None:
        """Add λ ∂R/∂nodes and λ ∂R/∂other, once ``pull`` is 2 L T."""
        ops, back = self._ops, self._back
        inner = ops.product(self.t, self.pull, transpose_a=True)
        middle = ops.product(ops.product(self._inverse, inner, transpose_a=True), self._inverse)
        self._add_product(self._other[1], self._other[0], middle, weight)
        ops.multiply(self.basis.T, self.metric[:, None], out=back)
        if self._edges is None:
            self._add_product(self._nodes[1], self.pull, back, weight)
            return
        ops.multiply(back, weight, out=back)
        slopes = ops.product(self.pull, back, out=self.t)
        ops.line_sums(self._edges.returned, slopes, out=self.pull)
        ops.add(self._nodes[1], self.pull)

    def _add_product(self, slope: Array, a: Array, b: Array, weight: float) -> None:
        """Add λ a b to a gradient in its place, also where the engine returns a new array."""
        found = self._ops.add_product(slope, a, b, alpha=weight)
        if found is not slope:
            slope[...] = found


def gram_factors(ops: Engine, factor: Array) -> tuple[Array, Array, Array]:
    """Return E (r, r), γ (r,) and E⁻¹ of the Gram matrix factorᵀ factor."""
    return ops.gram_factors(ops.product(factor, factor, transpose_a=True))


def points_of(ops: Engine, nodes: Array, other: Array) -> Any:
    """Return rows (nodes, r) on the host whose distances are those of the rows of nodes · otherᵀ."""
    basis, metric, _ = gram_factors(ops, other)
    return to_numpy(nodes @ (basis * array_namespace(metric).sqrt(metric)))


def softmax_adjacency(edges: Edges, logits: Array) -> Any:
    """Return A = (P + Pᵀ)/2 of V over candidate edges, as a scipy.sparse.csr_array in float64."""
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


def sides_of(axis: str, sides: Any) -> tuple[Side, Side]:
    """Return the side whose rows are the nodes of a graph over ``axis``, and the other one."""
    return (sides["rows"], sides["columns"]) if axis == "rows" else (sides["columns"], sides["rows"])
