"""Sparse adjacencies without their weak edges."""

from __future__ import annotations

from typing import Any

import numpy as np

from airnp._checks import checked_whole

_NEGLIGIBLE = 1e-3
"""Weights up to this share of the largest are dropped where no number of neighbours is given."""


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
        kept = weights > _NEGLIGIBLE * weights.max(initial=0.0)
    else:
        order = np.lexsort((columns, -weights, rows))
        sorted_rows = rows[order]
        place = np.arange(len(order)) - np.searchsorted(sorted_rows, sorted_rows)
        near = np.zeros(len(order), bool)
        near[order] = place < checked_whole("k", k)
        pattern = csr_array((near.astype(np.int8), (rows, columns)), shape=found.shape)
        kept = np.asarray((pattern + pattern.T)[rows, columns]).reshape(-1) > 0
    return csr_array((weights[kept], (rows[kept], columns[kept])), shape=found.shape)
