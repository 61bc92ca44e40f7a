r"""Learned graphs of a fit: sparse, without weak edges, ready for graph libraries.

A fit learns an adjacency A over rows or columns with the energy

.. math:: R = tr(Z^T L Z) = \tfrac12 \sum_{ij} A_{ij} \|z_i - z_j\|^2, \qquad L = deg(A) - A

A large weight means that two lines are alike. The weights here are these :math:`A_{ij}`, unscaled. With
``adjacency="row"``, the default, :math:`A = (P + P^T)/2` for a row-wise softmax P, so its rows sum to 1 on
average. The diagonal has no part in R or L and is dropped; the mean degree is then between 0 and 1, and a
line that resembles no other has a small degree.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from airnp._arrays import to_numpy
from airnp._checks import checked_whole
from airnp.regularizers.candidates import rank_in_row

if TYPE_CHECKING:
    from airnp.results.result import FitResult, FittedRegularizer

_SINGULAR = {"rows": "row", "columns": "column"}

_NEGLIGIBLE = 1e-3
"""Without a number of neighbours, weights up to this share of the largest are dropped."""


@dataclass(frozen=True, eq=False)
class Graph:
    """An undirected graph with positive weights, without loops.

    Attributes
    ----------
    adjacency : scipy.sparse.csr_array of float64 (k, k)
        Symmetric, with a zero diagonal; only edges are stored. Any SciPy function for sparse arrays takes it.
    labels : pandas.Index or None
        Names of the nodes, if the data came as a DataFrame.
    name : str
        What the nodes are: ``"rows"``, ``"columns"``.

    Examples
    --------
    >>> graph = reduced(np.array([[9.0, 3.0, 1.0], [3.0, 9.0, 2.0], [1.0, 2.0, 9.0]]), k=1)
    >>> graph
    <Graph of 3 nodes, 2 edges>
    >>> graph.adjacency.toarray()
    array([[0., 3., 0.],
           [3., 0., 2.],
           [0., 2., 0.]])
    """

    adjacency: Any
    labels: Any = None
    name: str = "nodes"

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return int(self.adjacency.shape[0])

    @property
    def n_edges(self) -> int:
        """Number of edges; each counts once."""
        return int(self.adjacency.nnz) // 2

    @property
    def degrees(self) -> npt.NDArray[np.float64]:
        """Sum of the weights at each node, shape (k,)."""
        return np.asarray(self.adjacency.sum(axis=1), dtype=np.float64).reshape(-1)

    def laplacian(self) -> Any:
        """Return L = deg(A) − A as a scipy.sparse.csr_array (k, k).

        Examples
        --------
        >>> reduced(np.array([[0.0, 2.0], [2.0, 0.0]])).laplacian().toarray()
        array([[ 2., -2.],
               [-2.,  2.]])
        """
        from scipy.sparse import csr_array, diags_array

        return csr_array(diags_array(self.degrees) - self.adjacency)

    def to_networkx(self) -> Any:
        """Return a networkx.Graph with an attribute ``weight`` on each edge.

        Its nodes are in the order of the data: the labels if there are any and each occurs once, else 0, 1, …

        Raises
        ------
        ImportError
            Without networkx (``pip install "airnp[graph]"``).

        Examples
        --------
        >>> reduced(np.array([[0.0, 2.0], [2.0, 0.0]])).to_networkx().edges(data="weight")
        EdgeDataView([(0, 1, 2.0)])
        """
        try:
            import networkx
        except ImportError as error:
            raise ImportError('to_networkx needs networkx: pip install "airnp[graph]"') from error
        from scipy.sparse import triu

        use_labels = self.labels is not None and self.labels.is_unique
        nodes = list(self.labels) if use_labels else list(range(self.n_nodes))
        graph = networkx.Graph()
        graph.add_nodes_from(nodes)
        edges = triu(self.adjacency, format="coo")
        starts, ends = ([nodes[node] for node in side.tolist()] for side in (edges.row, edges.col))
        graph.add_weighted_edges_from(zip(starts, ends, edges.data.tolist(), strict=True))
        return graph

    def __repr__(self) -> str:
        return f"<Graph of {self.n_nodes} {self.name}, {self.n_edges} edges>"


def reduced(adjacency: Any, k: int | None = None, *, labels: Any = None, name: str = "nodes") -> Graph:
    """Return the graph of an adjacency without its weak edges.

    Parameters
    ----------
    adjacency : array (nodes, nodes)
        Non-negative, of any namespace: for example ``result.regularizers[0].adjacency``. If it is not
        symmetric, the mean of A and Aᵀ is taken. The diagonal is ignored.
    k : int, optional
        Keep the edge between i and j if j is one of the k strongest neighbours of i, or i one of those of
        j. Each node then has at least k neighbours, if it has that many of positive weight, and may have
        more. Ties are broken arbitrarily. Default: keep edges stronger than a thousandth of the strongest.
    labels : pandas.Index, optional
        Names of the nodes.
    name : str
        What the nodes are.

    Returns
    -------
    Graph
        Weights are those of the adjacency.

    Examples
    --------
    >>> chain = np.array([[0, 1.0, 0.5, 0.1], [1.0, 0, 1.0, 0.5], [0.5, 1.0, 0, 1.0], [0.1, 0.5, 1.0, 0]])
    >>> reduced(chain, k=1).n_edges, reduced(chain, k=2).n_edges, reduced(chain).n_edges
    (3, 5, 6)
    """
    from scipy.sparse import csr_array

    weights = np.asarray(to_numpy(adjacency), dtype=np.float64)
    if weights.ndim != 2 or weights.shape[0] != weights.shape[1]:
        raise ValueError(f"adjacency: expected a square matrix, got shape {weights.shape}")
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise ValueError("adjacency: expected finite numbers of at least 0")
    weights = (weights + weights.T) / 2
    np.fill_diagonal(weights, 0.0)
    if k is None:
        kept = weights > _NEGLIGIBLE * weights.max(initial=0.0)
    else:
        kept = _strongest(weights, checked_whole("k", k))
    return Graph(csr_array(np.where(kept, weights, 0.0)), labels, name)


def _strongest(weights: npt.NDArray[np.float64], k: int) -> npt.NDArray[np.bool_]:
    """Return which edges are among the k strongest of at least one of their ends."""
    k = min(k, len(weights))
    places = np.argpartition(weights, -k, axis=1)[:, -k:]
    kept = np.zeros(weights.shape, dtype=bool)
    np.put_along_axis(kept, places, True, axis=1)
    return kept | kept.T


def learned_graph(result: FitResult, axis: str, k: int | None = None, problem: Any = None) -> Graph:
    """Return the graph that a fit learned over rows or columns, without its weak edges.

    Parameters
    ----------
    result : FitResult
    axis : {"rows", "columns"}
    k : int, optional
        Neighbours to keep of each node; see :func:`reduced`.
    problem : int or tuple of int, optional
        Which problem of a stack.

    Returns
    -------
    Graph
        Of the first ``AdaptiveLaplacian(axis)`` among the regularisers whose weight is not zero.

    Raises
    ------
    ValueError
        When the fit learned no such graph.

    Examples
    --------
    >>> import airnp
    >>> Y = np.random.default_rng(0).random((8, 6))
    >>> learned_graph(airnp.fit(Y, regularizers=None, max_iter=10, stop=None, seed=0), "rows", k=7)
    <Graph of 8 rows, 28 edges>
    """
    if axis not in _SINGULAR:
        raise ValueError(f"axis: expected 'rows' or 'columns', got {axis!r}")
    for item in result.regularizers:
        if item.name == axis and _is_learned(item):
            place = chosen_problem(tuple(item.adjacency.shape[:-2]), problem)
            labels = result.index if axis == "rows" else result.columns
            return reduced(item.adjacency[(*place, ...)], k, labels=labels, name=axis)
    used = ", ".join(item.description for item in result.regularizers) or "none"
    raise ValueError(
        f"{_SINGULAR[axis]}_graph: this fit learned no graph over {axis}, which takes "
        f"AdaptiveLaplacian({axis!r}) among the regularizers; there were: {used}"
    )


def _is_learned(item: FittedRegularizer) -> bool:
    # A graph without weight in the loss has no gradient and keeps its random start.
    return item.parameter is not None and item.weight > 0


def strongest(adjacency: Any, k: int | None = None) -> Any:
    """Return a sparse adjacency in float64 without loops and weak edges, which :func:`reduced` defines.

    Parameters
    ----------
    adjacency : scipy.sparse.csr_array (nodes, nodes)
        Symmetric and not negative.
    k : int, optional

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> strongest(csr_array([[9.0, 3.0, 1.0], [3.0, 9.0, 2.0], [1.0, 2.0, 9.0]]), k=1).toarray()
    array([[0., 3., 0.],
           [3., 0., 2.],
           [0., 2., 0.]])
    """
    from scipy.sparse import coo_array, csr_array

    found = coo_array(adjacency)
    edges = (found.row != found.col) & (found.data > 0)
    rows, columns, weights = found.row[edges], found.col[edges], found.data[edges].astype(np.float64)
    if k is None:
        kept = weights > _NEGLIGIBLE * weights.max(initial=0.0)
    else:
        near = rank_in_row(rows, columns, weights) < checked_whole("k", k)
        pattern = csr_array((near.astype(np.int8), (rows, columns)), shape=found.shape)
        kept = np.asarray((pattern + pattern.T)[rows, columns]).reshape(-1) > 0
    return csr_array((weights[kept], (rows[kept], columns[kept])), shape=found.shape)


def chosen_problem(batch: tuple[int, ...], problem: Any) -> tuple[int, ...]:
    """Return the checked index of one problem of a stack of shape ``batch``; () without a stack.

    Parameters
    ----------
    batch : tuple of int
        Shape of the stack; empty for one matrix.
    problem : int, tuple of int, or None
        As a caller gave it. None means the only problem.

    Examples
    --------
    >>> chosen_problem((4,), 1), chosen_problem((2, 3), (1, -1)), chosen_problem((), None)
    ((1,), (1, -1), ())
    """
    given = () if problem is None else problem if isinstance(problem, tuple) else (problem,)
    try:
        chosen = tuple(map(index, given))
    except TypeError:
        raise TypeError(f"problem: expected a whole number or a tuple of them, got {problem!r}") from None
    if len(chosen) != len(batch):
        if not batch:
            raise ValueError(f"problem: there is one matrix and no stack to choose from, got {problem!r}")
        example = "0" if len(batch) == 1 else repr((0,) * len(batch))
        raise ValueError(f"problem: choose one of a stack of shape {batch}, as problem={example}")
    for place, size in zip(chosen, batch, strict=True):
        if not -size <= place < size:
            raise IndexError(f"problem: {problem!r} is outside a stack of shape {batch}")
    return chosen
