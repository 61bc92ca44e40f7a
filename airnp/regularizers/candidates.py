"""Candidate edges of a learned graph in the factored form: nearest rows, given ones, or all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from airnp._arrays import check_indices
from airnp._checks import checked_whole
from airnp.data.entries import Pattern, is_sparse
from airnp.engines.contract import Edges

Floats = npt.NDArray[Any]
Integers = npt.NDArray[np.integer[Any]]


_MANY_NODES = 10_000
"""Nodes from which on it pays to bring neighbours close to each other: their rows fill the nearer caches."""


class Nearest:
    """The k nearest rows (or columns) of X as candidates for the edges of a learned graph.

    Parameters
    ----------
    k : int
        How many candidates each node has besides itself.
    refresh : int
        Iterations from one search to the next. Edges that stay keep their weights.
    among : scipy.sparse matrix (nodes, nodes), optional
        Take the k largest stored entries of each row of this graph instead; then nothing is searched.

    Examples
    --------
    >>> Nearest(10)
    Nearest(10, refresh=200)
    """

    def __init__(self, k: int = 20, refresh: int = 200, among: Any = None) -> None:
        self.k = checked_whole("k", k)
        self.refresh = checked_whole("refresh", refresh)
        self.among = among

    def __repr__(self) -> str:
        among = "" if self.among is None else f", among=<graph of {self.among.shape[0]} nodes>"
        return f"Nearest({self.k}, refresh={self.refresh}{among})"


def checked_candidates(said: Any) -> Any:
    """Return what a user said of the candidates, if it can be meant: ``Nearest``, a sparse matrix or None."""
    if said is not None and not isinstance(said, Nearest) and not is_sparse(said):
        raise TypeError(f"candidates: expected Nearest(k) or a scipy.sparse matrix, got {said!r}")
    return said


class Candidates:
    """The candidate edges of one graph: given once, all there are, or the nearest, searched now and then.

    Parameters
    ----------
    said : Nearest, scipy.sparse matrix (nodes, nodes), or None
        What the user said; None is ``Nearest()``.
    nodes : int
    """

    def __init__(self, said: Any, nodes: int) -> None:
        nearest = Nearest() if said is None else said
        self._nodes = nodes
        self._given: Edges | None = None
        if not isinstance(nearest, Nearest):
            self._given = given_edges(nearest, nodes, None)
        elif nearest.among is not None:
            self._given = given_edges(nearest.among, nodes, nearest.k)
        elif nearest.k >= nodes - 1:
            self._given = all_edges(nodes)
        else:
            self._k, self._refresh = nearest.k, nearest.refresh

    @property
    def refresh(self) -> int | None:
        """Iterations between two searches; None where nothing is searched."""
        return None if self._given is not None else self._refresh

    def edges(self, points: Callable[[], Floats], threads: int) -> Edges:
        """Return the edges at this moment; ``points`` gives rows whose distances are those of X."""
        found = self._given
        if found is None:
            found = edges_to(nearest_rows(points(), self._k, threads))
        elif found.pattern.lines * found.pattern.width == found.count:
            return found  # all of them: there is no order that brings neighbours closer
        return found if self._nodes < _MANY_NODES else near_each_other(found)


def edges_to(neighbours: npt.NDArray[Any]) -> Edges:
    """Return edges from each node to its neighbours (m, k), which it is not among, and to itself.

    Examples
    --------
    >>> edges_to(np.array([[1], [2], [0]])).pattern.indices
    array([0, 1, 1, 2, 0, 2], dtype=int32)
    """
    m, k = neighbours.shape
    ends = np.concatenate([neighbours, np.arange(m)[:, None]], axis=1).astype(np.int32)
    ends.sort(axis=1)
    return Edges(Pattern(np.arange(m + 1, dtype=np.int64) * (k + 1), ends.reshape(-1), m))


def all_edges(nodes: int) -> Edges:
    """Return the edges between all nodes: V is then the whole matrix, row by row."""
    ends = np.tile(np.arange(nodes, dtype=np.int32), nodes)
    return Edges(Pattern(np.arange(nodes + 1, dtype=np.int64) * nodes, ends, nodes))


def given_edges(graph: Any, nodes: int, k: int | None) -> Edges:
    """Return the edges stored in a given graph, of each row the k largest, and those to itself.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> given_edges(csr_array([[0, 5.0, 1.0], [5.0, 0, 0], [1.0, 0, 0]]), 3, 1).pattern.indices
    array([0, 1, 0, 1, 0, 2], dtype=int32)
    """
    from scipy.sparse import coo_array, csr_array

    if not is_sparse(graph):
        raise TypeError(f"candidates: expected a scipy.sparse matrix, got {type(graph).__name__}")
    if graph.shape != (nodes, nodes):
        raise ValueError(f"candidates: expected shape {(nodes, nodes)}, got {graph.shape}")
    check_indices("candidates", graph)
    found = coo_array(graph)
    others = found.row != found.col
    rows, columns, weights = found.row[others], found.col[others], found.data[others]
    if k is not None:
        near = rank_in_row(rows, columns, weights) < k
        rows, columns = rows[near], columns[near]
    itself = np.arange(nodes)
    rows, columns = np.concatenate([rows, itself]), np.concatenate([columns, itself])
    lines = csr_array((np.ones(len(rows), bool), (rows, columns)), shape=graph.shape)
    lines.sum_duplicates()
    return Edges(Pattern(lines.indptr.astype(np.int64), lines.indices.astype(np.int32), nodes))


def rank_in_row(rows: Integers, columns: Integers, weights: npt.NDArray[Any]) -> Integers:
    """Return, for each edge, how many of its row are stronger, or as strong and further left.

    Examples
    --------
    >>> rank_in_row(np.array([0, 0, 1, 0]), np.array([1, 2, 0, 3]), np.array([1.0, 5.0, 2.0, 1.0]))
    array([1, 0, 0, 2])
    """
    order = np.lexsort((columns, -weights, rows))
    in_order = rows[order]
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order)) - np.searchsorted(in_order, in_order)
    return ranks


def near_each_other(edges: Edges) -> Edges:
    """Return the same edges with nodes renumbered so that neighbours are near each other in memory.

    Examples
    --------
    >>> path = edges_to(np.array([[3], [3], [1], [0]]))  # 2 - 1 - 3 - 0
    >>> found = near_each_other(path)
    >>> found.order.tolist() in ([2, 1, 3, 0], [0, 3, 1, 2])
    True
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    pattern, nodes = edges.pattern, edges.pattern.lines
    arrays = np.ones(edges.count, np.int8), pattern.indices, pattern.indptr
    graph = csr_array(arrays, shape=(nodes, nodes))
    order = reverse_cuthill_mckee(graph, symmetric_mode=False).astype(np.int32)
    places = np.empty(nodes, np.int32)
    places[order] = np.arange(nodes, dtype=np.int32)
    moved = graph[order]
    moved = csr_array((moved.data, places[moved.indices], moved.indptr), shape=(nodes, nodes))
    moved.sort_indices()
    lines = Pattern(moved.indptr.astype(np.int64), moved.indices.astype(np.int32), nodes)
    return Edges(lines, order)


class Exchange:
    """From old edges to new ones: which stay, and where they were.

    Examples
    --------
    >>> old, new = edges_to(np.array([[1], [2], [0]])), edges_to(np.array([[1], [0], [1]]))
    >>> exchange = Exchange(old, new)
    >>> exchange.carried(np.arange(6.0), np.full(6, -1.0)).tolist()
    [0.0, 1.0, -1.0, 2.0, -1.0, 5.0]
    """

    def __init__(self, old: Edges, new: Edges) -> None:
        before, after = _keys(old), _keys(new)
        ascending = None if old.order is None else np.argsort(before)
        places = np.minimum(np.searchsorted(before, after, sorter=ascending), len(before) - 1)
        if ascending is not None:
            places = ascending[places]
        self.stays = before[places] == after
        self._places = places
        self._new = new

    def carried(self, values: Floats, otherwise: Floats) -> Floats:
        """Return a value for each new edge: that of the old one, or another where there was none."""
        return np.where(self.stays, values[self._places], otherwise).astype(values.dtype)

    def logits(self, values: Floats) -> Floats:
        """Return V on the new edges: an edge that was not there starts at the mean of its row's that stay.

        So a new neighbour is as strong as the others at first.
        """
        first, kept = self._new.pattern.indptr[:-1], self.stays.astype(np.float64)
        totals = np.add.reduceat(np.where(self.stays, values[self._places], 0.0), first)
        means = totals / np.maximum(np.add.reduceat(kept, first), 1)
        return self.carried(values, means[self._new.pattern.line_of_each()])


def _keys(edges: Edges) -> npt.NDArray[np.int64]:
    """Return a number for each edge that tells which rows of X it connects; ascending if nodes are rows."""
    pattern, order = edges.pattern, edges.order
    lines, ends = pattern.line_of_each(), pattern.indices
    if order is not None:
        lines, ends = order[lines], order[ends]
    return lines.astype(np.int64) * pattern.width + ends


_EXACT_ROWS = 10_000
"""Rows up to which all distances are computed."""

_BLOCK_BYTES = 64 * 2**20
"""Memory for a block of distances."""

_LISTS_PER_ROOT, _PROBES = 4, 12
"""The index has 4 √m lists, and looks into 12 of them."""


def nearest_rows(points: Floats, k: int, threads: int = 1) -> npt.NDArray[np.int64]:
    """Return the k nearest other rows of each row, shape (m, k), in no particular order.

    Exact up to 10 000 rows; beyond that by an inverted-file index of faiss, which finds most of them.

    Parameters
    ----------
    points : array (m, r)
    k : int
        Less than m.
    threads : int

    Examples
    --------
    >>> np.sort(nearest_rows(np.array([[0.0], [1.0], [3.0], [7.0]]), 2), axis=1)
    array([[1, 2],
           [0, 2],
           [0, 1],
           [1, 2]])
    """
    if len(points) <= _EXACT_ROWS:
        return exact(points, np.arange(len(points)), k)
    return _approximate(points, k, threads)


def exact(points: Floats, rows: npt.NDArray[Any], k: int) -> npt.NDArray[np.int64]:
    """Return the k nearest other rows of some rows, by all distances, a block at a time."""
    squares = np.einsum("ij,ij->i", points, points)
    height = max(1, _BLOCK_BYTES // (points.itemsize * len(points)))
    found = np.empty((len(rows), k), np.int64)
    for top in range(0, len(rows), height):
        own = rows[top : top + height]
        # ‖p‖² of the row itself is the same throughout and changes no order.
        distances = squares - 2 * (points[own] @ points.T)
        distances[np.arange(len(own)), own] = np.inf
        found[top : top + height] = np.argpartition(distances, k - 1, axis=1)[:, :k]
    return found


def _approximate(points: Floats, k: int, threads: int) -> npt.NDArray[np.int64]:
    try:
        import faiss
    except ImportError as error:
        raise ImportError(
            f'nearest neighbours of {len(points)} rows need faiss: pip install "airnp[neighbors]"; '
            "or give AdaptiveLaplacian its candidates"
        ) from error
    m, width = points.shape
    flat = np.ascontiguousarray(points, np.float32)
    lists = int(_LISTS_PER_ROOT * np.sqrt(m))
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(threads)
    try:
        index = faiss.IndexIVFFlat(faiss.IndexFlatL2(width), width, lists)
        index.cp.seed, index.cp.niter, index.cp.max_points_per_centroid = 1, 6, 64
        # Fewer points than it would like make it print a warning, not worse lists.
        index.cp.min_points_per_centroid = 1
        index.train(flat)
        index.add(flat)
        index.nprobe = _PROBES
        found = index.search(flat, k + 1)[1]
    finally:
        faiss.omp_set_num_threads(before)
    return _without_self(points, found, k)


def _without_self(points: Floats, found: npt.NDArray[Any], k: int) -> npt.NDArray[np.int64]:
    """Return k neighbours of each row: not itself, and where the index found too few, exactly."""
    own = found == np.arange(len(found))[:, None]
    # A row that did not find itself among equal ones drops the farthest.
    own[~own.any(axis=1), -1] = True
    kept: npt.NDArray[np.int64] = found[~own].reshape(len(found), k).astype(np.int64)
    short = np.flatnonzero((kept < 0).any(axis=1))
    if len(short):
        kept[short] = exact(points, short, k)
    return kept
