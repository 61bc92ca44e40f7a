"""Sparse adjacencies without their weak edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from airnp._checks import checked_whole

Integers = npt.NDArray[np.integer[Any]]

NEGLIGIBLE = 1e-3
"""Weights up to this share of the largest are dropped where no number of neighbours is given."""


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


def strongest(adjacency: Any, k: int | None = None) -> Any:
    """Return a symmetric adjacency in float64 without loops and weak edges; see :func:`airnp.graphs.reduced`.

    Parameters
    ----------
    adjacency : scipy.sparse.csr_array (nodes, nodes)
        Symmetric and not negative.
    k : int, optional
        Keep an edge that is among the k strongest of one of its ends. Default: keep every edge stronger than
        a thousandth of the strongest.

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
        kept = weights > NEGLIGIBLE * weights.max(initial=0.0)
    else:
        near = rank_in_row(rows, columns, weights) < checked_whole("k", k)
        pattern = csr_array((near.astype(np.int8), (rows, columns)), shape=found.shape)
        kept = np.asarray((pattern + pattern.T)[rows, columns]).reshape(-1) > 0
    return csr_array((weights[kept], (rows[kept], columns[kept])), shape=found.shape)
