"""Graphs that are given, or estimated once from the data."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_array_api_obj

from airnp._arrays import Array, check_indices, from_numpy, own_module, place_sparse, to_numpy
from airnp._checks import checked_choice
from airnp.data.entries import Pattern
from airnp.data.linearmaps import Columns, Rows, Transform, axis_name, checked_axis
from airnp.engines.buffers import Workspace
from airnp.engines.contract import Edges, Engine
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
)
from airnp.regularizers.factored_graphs import TurnedNodes, sides_of


class FixedGraphTerm(Term):
    """λ tr(Zᵀ L Z) with L given: ∇_X = T*(2 λ L Z)."""

    def __init__(
        self, weight: float, transform: Transform, adjacency: Any, degree: Array, shown: Any
    ) -> None:
        self.weight = weight
        self._transform = transform
        self._adjacency = adjacency
        self._shown = shown
        self._degree = degree
        self.is_plain = isinstance(transform, Rows | Columns)
        if self.is_plain:
            self.links = ("rows" if isinstance(transform, Rows) else "columns",)

    def accumulate(self, ops: Engine, x: Array, g: Array, contribution: Contribution) -> tuple[Array, Array]:
        """Add 2 λ T*(L Z) to the gradient."""
        z = self._transform.forward(x)
        if isinstance(self._transform, Rows | Columns):
            # These only turn a matrix, so the gradient can be turned too and be added to in place.
            turned = self._transform.forward(g)
            energy, turned = ops.fixed_laplacian(turned, z, self._adjacency, self._degree, weight=self.weight)
            return energy, self._transform.adjoint(turned)
        zero = array_namespace(z).zeros_like(z)
        energy, pull = ops.fixed_laplacian(zero, z, self._adjacency, self._degree, weight=self.weight)
        return energy, g + self._transform.adjoint(pull)

    def adjacency(self, ops: Engine, v: Array | None) -> Any:
        """Return the given adjacency; a sparse one on the host, where all can read it."""
        return self._shown


class FixedLaplacian(Regularizer):
    """Dirichlet energy tr(Zᵀ L Z), Z = T(X), of a graph that is given.

    Parameters
    ----------
    graph : array (k, k), or sparse matrix of SciPy or CuPy
        An adjacency (symmetric, non-negative) or, with ``kind="laplacian"``, a Laplacian (symmetric, rows
        that sum to zero, no positive entry off the diagonal).
    axis : {"rows", "columns"}, Blocks, or object with ``forward`` and ``adjoint``
        T: whose similarity the graph describes.
    weight : float, optional
        λ. Default: as strong as an :class:`AdaptiveLaplacian`, 1.44·s divided by the graph's mean degree.
    kind : {"auto", "adjacency", "laplacian"}
        What ``graph`` is. ``"auto"`` takes it for a Laplacian if it has a negative entry.

    Notes
    -----
    A sparse graph stays sparse beside one matrix of NumPy or CuPy; elsewhere it is made dense.

    Examples
    --------
    >>> import numpy as np
    >>> path = np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]])
    >>> FixedLaplacian(path, axis="rows", weight=0.1)
    FixedLaplacian(<graph of 3 nodes>, axis='rows', weight=0.1)
    """

    def __init__(
        self, graph: Any, axis: Any = "rows", weight: float | None = None, kind: str = "auto"
    ) -> None:
        self.graph = graph
        self.weight = None if weight is None else checked_weight(weight)
        self.axis = checked_axis(axis)
        self.kind = checked_choice("kind", kind, ("auto", "adjacency", "laplacian"))
        self.name = axis_name(axis)
        self._adjacency = _checked_graph(graph, self.kind)

    def __repr__(self) -> str:
        size = self._adjacency.shape[0]
        return f"FixedLaplacian(<graph of {size} nodes>, axis={self.axis!r}, weight={self.weight!r})"

    def bind(self, problem: Problem) -> Term:
        """Return the term for a problem."""
        transform, nodes = bound_nodes(self.axis, problem)
        self._check_nodes(nodes)
        has_sparse = own_module(problem.xp) is not None
        keep_sparse = _is_sparse(self._adjacency) and has_sparse and not problem.batch
        adjacency, degree = _placed_graph(self._adjacency, problem, keep_sparse)
        shown = self._adjacency.astype(problem.dtype) if keep_sparse else adjacency
        weight = self._weight_beside(problem.fidelity_scale)
        return FixedGraphTerm(weight, transform, adjacency, degree, shown)

    def bind_factored(self, problem: FactoredProblem) -> FactoredTerm:
        """Return the term for a problem in the factored form."""
        from scipy.sparse import csr_array

        axis, adjacency = checked_side(self.axis), csr_array(self._adjacency)
        self._check_nodes(problem.nodes(axis))
        weight, dtype = self._weight_beside(problem.fidelity_scale), problem.entries.values.dtype
        return FactoredFixedGraphTerm(weight, axis, adjacency, dtype, problem.xp)

    def _check_nodes(self, nodes: int) -> None:
        found = self._adjacency.shape[0]
        if found != nodes:
            raise ValueError(f"graph: expected {nodes} nodes, one for each of the {self.name}, got {found}")

    def _weight_beside(self, fidelity_scale: float) -> float:
        """Return λ beside a data term of scale s."""
        if self.weight is not None:
            return self.weight
        mean_degree = float(self._adjacency.sum()) / self._adjacency.shape[0]
        return GRAPH_WEIGHT * fidelity_scale / mean_degree if mean_degree > 0 else 0.0


class FactoredFixedGraphTerm(FactoredTerm):
    """λ tr(Zᵀ L Z) of X = U Vᵀ with L given and sparse; see :mod:`airnp.regularizers.factored_graphs`."""

    is_plain = True

    def __init__(self, weight: float, axis: str, adjacency: Any, dtype: Any, xp: Any) -> None:
        self.weight, self._axis, self._adjacency, self.links = weight, axis, adjacency, (axis,)
        indptr, indices = adjacency.indptr.astype(np.int64), adjacency.indices.astype(np.int32)
        self._pattern = Pattern(indptr, indices, adjacency.shape[1])
        self._weights = xp.asarray(adjacency.data.astype(dtype))

    def accumulate(
        self, ops: Engine, sides: Mapping[str, Side], graph: GraphWeights | None, space: Workspace
    ) -> Array:
        """Add λ ∂R to the gradients of both sides; return R."""
        nodes = TurnedNodes(ops, *sides_of(self._axis, sides), space)
        energy = ops.edge_laplacian(self._pattern, self._weights, nodes.t, nodes.metric, pull=nodes.pull)
        nodes.add_gradients(self.weight)
        return energy

    def adjacency(self, edges: Edges | None, logits: Array | None) -> Any:
        """Return the given adjacency."""
        return self._adjacency


def _is_sparse(graph: Any) -> bool:
    sparse = sys.modules.get("scipy.sparse")
    return sparse is not None and bool(sparse.issparse(graph))


def _checked_graph(graph: Any, kind: str) -> Any:
    """Return the adjacency of a given graph as float64 on the host, dense or CSR, after checking it."""
    on_device = sys.modules.get("cupyx.scipy.sparse")
    if on_device is not None and on_device.issparse(graph):
        graph = graph.get()
    if not (_is_sparse(graph) or is_array_api_obj(graph) or isinstance(graph, list | tuple)):
        raise TypeError(f"graph: expected an array or a scipy.sparse matrix, got {type(graph).__name__}")
    if _is_sparse(graph):
        check_indices("graph", graph)
    try:
        matrix = sys.modules["scipy.sparse"].csr_array(graph) if _is_sparse(graph) else to_numpy(graph)
    except ValueError as error:
        raise ValueError(f"graph: expected rows of equal lengths ({error})") from None
    if matrix.dtype.kind not in "biuf":
        raise TypeError(f"graph: expected real numbers, got dtype {matrix.dtype}")
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.shape[0] == 0:
        raise ValueError(f"graph: expected a square matrix, got shape {tuple(matrix.shape)}")
    matrix = matrix.astype(np.float64)
    entries: Any = matrix.data if _is_sparse(matrix) else matrix
    if not np.all(np.isfinite(entries)):
        raise ValueError("graph: expected finite numbers")
    largest = float(np.max(np.abs(entries), initial=0.0))
    if abs(matrix - matrix.T).max() > 1e-6 * largest:
        raise ValueError(
            f"graph: expected a symmetric {'matrix' if kind == 'auto' else kind}, got an asymmetric one"
        )
    if kind == "laplacian" or (kind == "auto" and np.any(entries < 0)):
        return _adjacency_of_laplacian(matrix, largest)
    if np.any(entries < 0):
        raise ValueError("graph: an adjacency has no negative entries; for a Laplacian say kind='laplacian'")
    return matrix


def _adjacency_of_laplacian(laplacian: Any, largest: float) -> Any:
    if _is_sparse(laplacian):
        adjacency = -laplacian
        adjacency.setdiag(0)
        lowest = adjacency.min()
    else:
        adjacency = -laplacian + np.diag(np.diagonal(laplacian))
        lowest = adjacency.min(initial=0.0)
    if lowest < -1e-6 * largest:
        raise ValueError("graph: a Laplacian has no positive entries off its diagonal")
    if np.max(np.abs(laplacian.sum(axis=1)), initial=0.0) > 1e-5 * largest:
        raise ValueError("graph: the rows of a Laplacian sum to zero, these do not")
    return adjacency


def _placed_graph(adjacency: Any, problem: Problem, keep_sparse: bool) -> tuple[Any, Array]:
    """Return adjacency and degrees where the problem lives."""
    xp, device, dtype = problem.xp, problem.device, problem.dtype
    degree = from_numpy(np.asarray(adjacency.sum(axis=1)).reshape(-1), xp, device, dtype)
    if keep_sparse:
        return place_sparse(adjacency, xp, dtype), degree
    dense = adjacency.toarray() if _is_sparse(adjacency) else adjacency
    return from_numpy(dense, xp, device, dtype), degree


class DirichletEnergy(Regularizer):
    """Dirichlet energy of the covariance graph of the observed data.

    Lines are centred on the mean of their observed entries; two lines are connected by their covariance
    over the entries that both have, where it is positive, and the graph is scaled to a mean degree of 1,
    as that of :class:`AdaptiveLaplacian` with ``adjacency="row"``. It is computed once, from the data.

    Parameters
    ----------
    axis : {"rows", "columns"}
    weight : float, optional
        λ. Default 1.44·s, as that of :class:`AdaptiveLaplacian`.

    Examples
    --------
    >>> DirichletEnergy("columns", weight=1e-4)
    DirichletEnergy('columns', weight=0.0001)
    """

    def __init__(self, axis: str = "rows", weight: float | None = None) -> None:
        self.weight = None if weight is None else checked_weight(weight)
        self.axis = checked_choice("axis", axis, ("rows", "columns"))
        self.name = axis

    def __repr__(self) -> str:
        return f"DirichletEnergy({self.axis!r}, weight={self.weight!r})"

    def bind(self, problem: Problem) -> Term:
        """Return the term for a problem."""
        if problem.values is None or problem.weights is None:
            raise ValueError(
                "regularizers: DirichletEnergy takes its graph from observed entries, an operator has none; "
                "use FixedLaplacian with a graph of your own"
            )
        transform, _ = bound_nodes(self.axis, problem)
        values = to_numpy(transform.forward(problem.values)).astype(np.float64)
        observed = to_numpy(transform.forward(problem.weights)) > 0
        adjacency = _covariance_graph(values, observed)
        xp, device, dtype = problem.xp, problem.device, problem.dtype
        degree = from_numpy(adjacency.sum(axis=-1), xp, device, dtype)
        weight = GRAPH_WEIGHT * problem.fidelity_scale if self.weight is None else self.weight
        placed = from_numpy(adjacency, xp, device, dtype)
        return FixedGraphTerm(weight, transform, placed, degree, placed)


def _covariance_graph(values: Any, observed: Any) -> Any:
    """Return the positive part of the pairwise covariance of rows (…, k, d), with a mean degree of 1."""
    present = observed.astype(np.float64)
    count = present.sum(axis=-1, keepdims=True)
    mean = (values * present).sum(axis=-1, keepdims=True) / np.maximum(count, 1)
    centred = (values - mean) * present
    shared = present @ np.swapaxes(present, -1, -2)
    covariance = centred @ np.swapaxes(centred, -1, -2) / np.maximum(shared, 1)
    diagonal = np.eye(values.shape[-2], dtype=bool)
    adjacency = np.where(diagonal, 0.0, np.maximum(covariance, 0.0))
    mean_degree = adjacency.sum(axis=-1).mean(axis=-1)[..., None, None]
    return adjacency / np.where(mean_degree > 0, mean_degree, 1.0)
