"""Matrices and their gaps, by name: ``"Barbara 30%"``, ``"Baboon texture"``, ``"Rank-5 80%"``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.figures.scale import FULL, Scale
from bench.paper_rows import LOADERS, draw_mask

LOW_RANK = "Rank-5"


@dataclass(frozen=True)
class Problem:
    """A complete matrix, which of its entries are observed, and its graphs where the data has them."""

    truth: np.ndarray
    mask: np.ndarray
    row_graph: np.ndarray | None = None
    column_graph: np.ndarray | None = None
    normalize: bool = True


def load(name: str, scale: Scale = FULL, seed: int = 0) -> Problem:
    """Load the matrix that the first word names and draw or load the gaps that the second names."""
    data, _, gaps = name.partition(" ")
    if data == LOW_RANK:
        truth = _low_rank(scale.length(100), rank=5)
        # Bringing it to [0, 1] would add a constant, and with it one to the rank.
        return Problem(truth, draw_mask(gaps, truth.shape, seed), normalize=False)
    loaded = LOADERS[data]()
    mask = draw_mask(gaps, loaded.matrix.shape, seed)
    step = slice(None, None, scale.size)
    return Problem(
        loaded.matrix[step, step].astype(np.float32),
        mask[step, step],
        _thinned(loaded.row_graph, step),
        _thinned(loaded.column_graph, step),
    )


def _low_rank(size: int, rank: int) -> np.ndarray:
    """Return a random matrix of the given rank whose entries have variance 1."""
    rng = np.random.default_rng(5)
    left, right = rng.standard_normal((size, rank)), rng.standard_normal((rank, size))
    return (left @ right / np.sqrt(rank)).astype(np.float32)


def _thinned(graph: Any, step: slice) -> np.ndarray | None:
    if graph is None:
        return None
    dense = graph.toarray() if hasattr(graph, "toarray") else np.asarray(graph)
    return dense[step, step]
