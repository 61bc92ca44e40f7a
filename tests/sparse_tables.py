"""Random sparse matrices for tests."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import coo_array


def weighted_table(
    rng: np.random.Generator, m: int, n: int, share: float = 0.5, zeros: bool = False
) -> tuple[Any, Any]:
    """Return a matrix with entries in any order, and weights of the same pattern, some of them zero.

    The first row and column are full and have weights above zero, unless less than half of the entries are
    wanted: then lines may be empty.
    """
    mask = rng.random((m, n)) < share
    if share < 0.5:
        mask[rng.integers(m), rng.integers(n)] = True
    else:
        mask[0] = mask[:, 0] = True
    rows, columns = np.nonzero(mask)
    order = rng.permutation(len(rows))
    places = rows[order], columns[order]
    weights = rng.uniform(0.1, 3.0, len(rows))
    if zeros:
        weights[(rng.random(len(rows)) < 0.2) & (places[0] > 0) & (places[1] > 0)] = 0
        weights[0] = max(weights[0], 0.1)
    values = 3 + rng.standard_normal(len(rows))
    return coo_array((values, places), shape=(m, n)), coo_array((weights, places), shape=(m, n))
