"""The factor chain of the sparse form, collapsed to two thin matrices.

X = W[L-1] ··· W[1] W[0] is never formed: with U = W[L-1] ··· W[1] (m×r) and V = W[0]ᵀ (n×r), an entry is
x_ij = u_i·v_j. W[0] is kept transposed, so that both sides have contiguous rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from airnp.engines import cpu

Floats = npt.NDArray[Any]


def chain_shapes(m: int, n: int, depth: int, rank: int) -> list[tuple[int, int]]:
    """Return the shapes of W[0]ᵀ, W[1], …, W[L-1].

    Examples
    --------
    >>> chain_shapes(6, 4, depth=3, rank=2)
    [(4, 2), (2, 2), (6, 2)]
    """
    return [(n, rank), *[(rank, rank)] * (depth - 2), (m, rank)]


def collapsed(factors: Sequence[Floats], dense: Any = cpu) -> Floats:
    """Return U = W[L-1] ··· W[1], shape (m, r); for two factors W[1] itself."""
    inner = None
    for factor in factors[1:-1]:
        inner = factor if inner is None else dense.product(factor, inner)
    return factors[-1] if inner is None else dense.product(factors[-1], inner)


def chain_gradients(factors: Sequence[Floats], slope_u: Floats, dense: Any = cpu) -> list[Floats]:
    """Return ∂loss/∂W[1], …, ∂loss/∂W[L-1] from ∂loss/∂U.

    With S[l] = W[l] ··· W[1] and H[l] = (W[L-1] ··· W[l+1])ᵀ ∂U:  ∂W[l] = H[l] S[l-1]ᵀ, S[0] = 1. All but
    the outermost are r×r products.
    """
    suffixes = [None, *factors[1:-1]]
    for level in range(2, len(suffixes)):
        suffixes[level] = dense.product(suffixes[level], suffixes[level - 1])
    gradients, carried = [], slope_u
    for level in range(len(factors) - 1, 0, -1):
        below = suffixes[level - 1]
        gradients.append(carried if below is None else dense.product(carried, below, transpose_b=True))
        if level > 1:
            carried = dense.product(factors[level], carried, transpose_a=True)
    return gradients[::-1]
