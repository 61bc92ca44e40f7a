"""Graphs that are learned while the matrix is completed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airnp._arrays import Array
from airnp._checks import checked_choice
from airnp.data.linearmaps import Columns, Rows, Transform, axis_name, checked_axis
from airnp.engines.buffers import Workspace
from airnp.engines.contract import AdjacencyKind, Edges, Engine, Memory, Update
from airnp.regularizers.base import (
    GRAPH_WEIGHT,
    Contribution,
    FactoredProblem,
    FactoredTerm,
    GraphWeights,
    Problem,
    Regularizer,
    Side,
    Term,
    bound_nodes,
    checked_side,
    checked_weight,
    node_count,
)
from airnp.regularizers.candidates import Candidates, Nearest, checked_candidates
from airnp.regularizers.factored_graphs import TurnedNodes, points_of, sides_of, softmax_adjacency

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
    candidates : Nearest, or scipy.sparse matrix (k, k), optional
        For :func:`airnp.fit_sparse`: between which nodes there may be an edge, ``Nearest(20)`` by default.
        Candidate j of node i is stored at (i, j) of a matrix.

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
        candidates: Any = None,
    ) -> None:
        self.axis = checked_axis(axis)
        self.weight = None if weight is None else checked_weight(weight)
        self.adjacency: AdjacencyKind = checked_choice("adjacency", adjacency, _ADJACENCIES)
        self.candidates = checked_candidates(candidates)
        self.name = axis_name(axis)

    def __repr__(self) -> str:
        said = f"{self.axis!r}, weight={self.weight!r}, adjacency={self.adjacency!r}"
        if self.candidates is None:
            return f"AdaptiveLaplacian({said})"
        shown = self.candidates
        if not isinstance(shown, Nearest):
            shown = f"<graph of {self.candidates.shape[0]} nodes>"
        return f"AdaptiveLaplacian({said}, candidates={shown})"

    def bind(self, problem: Problem) -> Term:
        """Return the term for a problem."""
        if self.candidates is not None:
            raise ValueError("candidates: are for airnp.fit_sparse; airnp.fit learns all edges")
        transform, nodes = bound_nodes(self.axis, problem)
        weight = self._weight_beside(problem.fidelity_scale)
        return LearnedGraphTerm(weight, transform, self.adjacency, (*problem.batch, nodes, nodes))

    def graph_numbers(self, m: int, n: int) -> int:
        """Return the numbers of V, its two moments, a copy, the adjacency and the Gram matrix."""
        return 6 * node_count(self.axis, m, n) ** 2

    def bind_factored(self, problem: FactoredProblem) -> FactoredTerm:
        """Return the term for a problem in the factored form."""
        axis = checked_side(self.axis)
        if self.adjacency != "row":
            raise ValueError(f"adjacency: fit_sparse has 'row', got {self.adjacency!r}")
        candidates = Candidates(self.candidates, problem.nodes(axis))
        return FactoredLearnedGraphTerm(self._weight_beside(problem.fidelity_scale), axis, candidates)

    def _weight_beside(self, fidelity_scale: float) -> float:
        return GRAPH_WEIGHT * fidelity_scale if self.weight is None else self.weight


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
            self.links = (self.scaled_lines,)
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
        if isinstance(transform, Rows):
            return Contribution(row_scale=terms.pull, terms=terms, spare=gram)
        if columns:
            return Contribution(column_scale=terms.pull, terms=terms, spare=gram)
        return Contribution(terms=terms, spare=gram)

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


class FactoredLearnedGraphTerm(FactoredTerm):
    """λ tr(Zᵀ L Z) of X = U Vᵀ with V over candidate edges; see :mod:`airnp.regularizers.factored_graphs`."""

    is_plain = True

    def __init__(self, weight: float, axis: str, candidates: Candidates) -> None:
        self.weight, self.candidates, self._axis, self.links = weight, candidates, axis, (axis,)

    def accumulate(
        self, ops: Engine, sides: Mapping[str, Side], graph: GraphWeights | None, space: Workspace
    ) -> Array:
        """Write λ ∂R/∂V, add λ ∂R to the gradients of both sides; return R."""
        assert graph is not None
        edges, logits, slopes = graph
        nodes = TurnedNodes(ops, *sides_of(self._axis, sides), space, edges)
        energy = ops.edge_terms(
            edges,
            logits[0],
            nodes.t,
            nodes.metric,
            weights=space.take("weights", (edges.count,)),
            slopes=slopes[0],
            pull=nodes.pull,
        )
        ops.multiply(slopes, self.weight, out=slopes)
        nodes.add_gradients(self.weight)
        return energy

    def points(self, ops: Engine, sides: Mapping[str, Side]) -> Any:
        """Return rows on the host whose distances are those of the nodes in X."""
        (nodes, _), (other, _) = sides_of(self._axis, sides)
        return points_of(ops, nodes, other)

    def adjacency(self, edges: Edges | None, logits: Array | None) -> Any:
        """Return A at V."""
        assert edges is not None
        return softmax_adjacency(edges, logits)
