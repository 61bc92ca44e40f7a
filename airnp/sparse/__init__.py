"""Factored and sparse AIR: X as two thin factors, residuals at observed entries, graphs over candidate edges.

``airnp.fit(S, rank=r, form="sparse")`` and :func:`airnp.fit_ratings` lead here. No array of this package is
m×n or k×k: an iteration costs O((nnz + (m + n) k) r).
"""

from __future__ import annotations

from airnp.sparse.ratings import fit_ratings
from airnp.sparse.result import SparseFitResult, SparseGraph

__all__ = ["SparseFitResult", "SparseGraph", "fit_ratings"]
