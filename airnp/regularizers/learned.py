"""Graphs that are learned while the matrix is completed."""

from __future__ import annotations

from typing import Any

from airnp._arrays import Array
from airnp._checks import checked_whole
from airnp.data.linearmaps import Columns, Rows, Transform, axis_name, checked_axis
from airnp.engines.contract import AdjacencyKind, Engine, Memory, Update
from airnp.regularizers.base import (
    GRAPH_WEIGHT,
    Contribution,
    Problem,
    Regularizer,
    Term,
    bound_nodes,
    checked_choice,
    checked_weight,
)

_ADJACENCIES = ("row", "global", "product")


class AdaptiveLaplacian(Regularizer):
    """Dirichlet energy tr(Zᵀ L Z), Z = T(X), of a graph that is learned while the matrix is completed.

    Parameters
    ----------
    axis : {"rows", "columns"}, Blocks, or object with ``forward`` and ``adjoint``
        T: whose similarity the graph describes.
    weight : float, optional
        λ. Default 1.44·s for the fidelity scale s, which is 2.88/(m·n) with the mean fidelity: 5e-5 for
        240×240.
    adjacency : {"row", "global", "product"}
        How the adjacency A follows from the free matrix V; see :func:`airnp.engines.reference.adjacency`.
    neighbors : int, optional
        For ``form="sparse"``: how many candidate neighbours each row (or column) has besides itself. Default:
        all entries of ``candidates``, or 20.
    candidates : scipy.sparse matrix (k, k), optional
        For ``form="sparse"``: candidate j of node i is stored at (i, j); the largest ``neighbors`` of a row
        are taken. Default: those that are nearest in X, found anew now and then.
    refresh : int
        For ``form="sparse"``: iterations from one search for nearest neighbours to the next. Edges that stay
        keep their weight.

    Examples
    --------
    >>> AdaptiveLaplacian("columns", weight=1e-4)
    AdaptiveLaplacian('columns', weight=0.0001, adjacency='row')
    """

    def __init__(
        self,
        axis: Any = "rows",
        weight: float | None = None,
        adjacency: AdjacencyKind = "row",
        neighbors: int | None = None,
        candidates: Any = None,
        refresh: int = 200,
    ) -> None:
        self.axis = checked_axis(axis)
        self.weight = None if weight is None else checked_weight(weight)
        self.adjacency: AdjacencyKind = checked_choice("adjacency", adjacency, _ADJACENCIES)
        self.neighbors = None if neighbors is None else checked_whole("neighbors", neighbors)
        self.candidates = candidates
        self.refresh = checked_whole("refresh", refresh)
        self.name = axis_name(axis)

    def __repr__(self) -> str:
        sparse = "" if self.neighbors is None else f", neighbors={self.neighbors}"
        if self.candidates is not None:
            sparse += f", candidates=<graph of {self.candidates.shape[0]} nodes>"
        return (
            f"AdaptiveLaplacian({self.axis!r}, weight={self.weight!r}, adjacency={self.adjacency!r}{sparse})"
        )

    def bind(self, problem: Problem) -> Term:
        """Return the term for a problem."""
        if self.neighbors is not None or self.candidates is not None:
            raise ValueError("neighbors, candidates: are for a sparse Y and form='sparse'")
        weight = GRAPH_WEIGHT * problem.fidelity_scale if self.weight is None else self.weight
        transform, nodes = bound_nodes(self.axis, problem)
        return LearnedGraphTerm(weight, transform, self.adjacency, (*problem.batch, nodes, nodes))


class LearnedGraphTerm(Term):
    """λ tr(Zᵀ L Z) with L from V: ∇_X = T*(2 λ (deg ⊙ Z − A Z)), ∇_V in closed form."""

    def __init__(
        self, weight: float, transform: Transform, kind: AdjacencyKind, parameter_shape: tuple[int, ...]
    ) -> None:
        self.weight = weight
        self.parameter_shape = parameter_shape
        self._transform = transform
        self._kind = kind
        if isinstance(transform, Rows | Columns):
            self.scaled_lines = "rows" if isinstance(transform, Rows) else "columns"
        self.is_plain = self.scaled_lines is not None

    def prepare(
        self, ops: Engine, x: Array, v: Array | None, update: Update | None, memory: Memory
    ) -> Contribution:
        """Return the graph's terms at V; on rows and columns the degrees scale lines of X."""
        shape = self.parameter_shape
        assert v is not None
        assert shape is not None
        transform = self._transform
        columns = isinstance(transform, Columns)
        nodes = x if columns else transform.forward(x)
        gram = ops.gram(nodes, columns=columns, out=memory.take(shape))
        terms = ops.laplacian_terms(
            self._kind, v, gram, weight=self.weight, update=update, out=memory.take(shape)
        )
        memory.give(gram)
        if isinstance(transform, Rows):
            return Contribution(row_scale=terms.pull, terms=terms)
        if columns:
            return Contribution(column_scale=terms.pull, terms=terms)
        return Contribution(terms=terms)

    def accumulate(self, ops: Engine, x: Array, g: Array, contribution: Contribution) -> tuple[Array, Array]:
        """Add −2 λ A Z to the gradient (with the degree part where the residual pass did not)."""
        terms = contribution.terms
        assert terms is not None
        alpha = -2 * self.weight
        if isinstance(self._transform, Rows):
            return terms.energy, ops.add_product(g, terms.adjacency, x, alpha=alpha)
        if isinstance(self._transform, Columns):
            # (A Xᵀ)ᵀ = X A, since A is symmetric.
            return terms.energy, ops.add_product(g, x, terms.adjacency, alpha=alpha)
        z = self._transform.forward(x)
        pull = ops.add_product(terms.pull[..., :, None] * z, terms.adjacency, z, alpha=alpha)
        return terms.energy, g + self._transform.adjoint(pull)

    def adjacency(self, ops: Engine, v: Array | None) -> Array:
        """Return A at V."""
        return ops.adjacency(self._kind, v)
