"""Nearest rows: exactly for a few thousand of them, through an approximate index for more."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[Any]

_EXACT_ROWS = 10_000
"""Rows up to which all distances are computed."""

_BLOCK_BYTES = 64 * 2**20
"""Memory for a block of distances."""

_LISTS_PER_ROOT, _PROBES = 4, 12
"""The index has 4 √m lists, and looks into 12 of them."""


def nearest(points: Floats, k: int, threads: int = 1) -> npt.NDArray[np.int64]:
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
    >>> np.sort(nearest(np.array([[0.0], [1.0], [3.0], [7.0]]), 2), axis=1)
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
