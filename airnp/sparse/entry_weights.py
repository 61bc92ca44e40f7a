"""Weights of observed entries, as a caller has them: a sparse matrix like Y, or one number for each entry."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from airnp._arrays import to_numpy
from airnp.sparse.entries import by_rows, is_sparse

_VECTOR_FORMATS = ("csr", "csc", "coo")
"""Formats that have one number in ``data`` for each entry, in an order that a caller knows."""


def read_weights(weights: Any, matrix: Any, rows: Any) -> npt.NDArray[np.float64]:
    """Return one weight for each entry of Y, row by row, checked, shape (nnz,).

    Parameters
    ----------
    weights : sparse matrix (m, n) of SciPy or CuPy, array (nnz,) or array (m, n)
        A sparse one stores an entry exactly where Y does. A vector is in the order of ``Y.data``.
    matrix : scipy.sparse matrix (m, n)
        Y as it was given.
    rows : scipy.sparse.csr_array
        Y with sorted rows and without duplicates.

    Examples
    --------
    >>> from scipy.sparse import coo_array
    >>> Y = coo_array(([5.0, 4.0], ([1, 0], [0, 1])), shape=(2, 2))
    >>> read_weights([1.0, 3.0], Y, by_rows(Y))
    array([3., 1.])
    """
    on_device = sys.modules.get("cupyx.scipy.sparse")
    if on_device is not None and on_device.issparse(weights):
        weights = weights.get()
    found = _of_sparse(weights, rows) if is_sparse(weights) else _of_array(to_numpy(weights), matrix, rows)
    if found.dtype.kind not in "biuf":
        raise TypeError(f"weights: expected real numbers, got dtype {found.dtype}")
    # The sum of squared errors is in the dtype of the fit, which may be float32.
    if not ((found >= 0) & (found <= np.finfo(np.float32).max)).all():
        raise ValueError("weights: expected finite numbers of at least 0")
    return found.astype(np.float64)


def _of_sparse(weights: Any, rows: Any) -> npt.NDArray[Any]:
    if weights.shape != rows.shape:
        raise ValueError(f"weights: expected the shape of Y, {rows.shape}, got {weights.shape}")
    own = by_rows(weights)
    if not (np.array_equal(own.indptr, rows.indptr) and np.array_equal(own.indices, rows.indices)):
        raise ValueError(
            f"weights: expected an entry wherever Y stores one and nowhere else ({rows.nnz} of them), "
            f"got {own.nnz} at other places"
        )
    return np.asarray(own.data)


def _of_array(weights: npt.NDArray[Any], matrix: Any, rows: Any) -> npt.NDArray[Any]:
    if weights.shape == rows.shape:
        at = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr)), rows.indices
        return np.asarray(weights[at])
    if weights.shape != (matrix.nnz,):
        raise ValueError(
            f"weights: expected a sparse matrix like Y, or one number for each of its {matrix.nnz} entries, "
            f"got shape {weights.shape}"
        )
    if matrix.format not in _VECTOR_FORMATS or rows.nnz != matrix.nnz:
        raise ValueError(
            "weights: a vector is in the order of Y.data, for a Y in csr, csc or coo format that stores no "
            f"entry twice; got one in {matrix.format} format with {matrix.nnz} entries at {rows.nnz} places"
        )
    ordered = matrix.copy()
    ordered.data = weights
    return np.asarray(by_rows(ordered).data)
