"""The matrix as a product of factors, X = W[L-1] … W[1] W[0], and the chain rule through it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from airnp._arrays import Array
from airnp.engines.contract import Engine, Memory


def factor_shapes(m: int, n: int, depth: int, rank: int) -> list[tuple[int, int]]:
    """Return the shapes of W[0] … W[L-1] whose product is m×n.

    Examples
    --------
    >>> factor_shapes(6, 4, depth=3, rank=2)
    [(2, 4), (2, 2), (6, 2)]
    """
    widths = [n] + [rank] * (depth - 1) + [m]
    return [(widths[level + 1], widths[level]) for level in range(depth)]


def suffix_products(ops: Engine, factors: Sequence[Array], memory: Memory) -> list[Array]:
    """Return S[l] = W[l] … W[0] for every level l; the last one is X.

    Parameters
    ----------
    ops : Engine
    factors : sequence of arrays
        W[0] (…, r, n), …, W[L-1] (…, m, r).
    memory : Memory
        Where the products may be kept.
    """
    products = [factors[0]]
    for factor in factors[1:]:
        shape = (*factor.shape[:-1], factors[0].shape[-1])
        products.append(ops.product(factor, products[-1], out=memory.take(shape)))
    return products


def factor_gradients(
    ops: Engine, factors: Sequence[Array], products: Sequence[Array], gradient: Array, memory: Memory
) -> list[Array]:
    r"""Return ∂loss/∂W[l] for every level, from G = ∂loss/∂X and the suffix products.

    A change dW[l] changes X by W[L-1] … W[l+1] · dW[l] · S[l-1]; hence, with
    H[l] = (W[L-1] … W[l+1])ᵀ G,  ∂loss/∂W[l] = H[l] S[l-1]ᵀ  and  H[l-1] = W[l]ᵀ H[l].
    Two products a level, none repeated. Every suffix product and every H goes back to ``memory`` after
    its last use.
    """
    grads: list[Array] = [None] * len(factors)
    carried = gradient
    for level in range(len(factors) - 1, 0, -1):
        factor, below = factors[level], products[level - 1]
        grads[level] = ops.product(carried, below, transpose_b=True, out=memory.take(tuple(factor.shape)))
        if level > 1:
            memory.give(below)
        shape = (*factor.shape[:-2], factor.shape[-1], carried.shape[-1])
        beyond, carried = carried, ops.product(factor, carried, transpose_a=True, out=memory.take(shape))
        memory.give(beyond)
    grads[0] = carried
    return grads


def needed_bytes(
    batch: Sequence[int], m: int, n: int, depth: int, rank: int | None, dtype: str, graphs: int
) -> int:
    """Return about how much a fit keeps at once, or a little less.

    Each factor has two moments, a copy to fall back to and a gradient; besides there are the data, the
    products of the factors, and the numbers of all dense graphs.
    """
    factors = sum(rows * columns for rows, columns in factor_shapes(m, n, depth, rank or min(m, n)))
    numbers = 5 * factors + graphs + (6 + depth) * m * n
    return math.prod(batch) * numbers * (4 if dtype == "float32" else 8)


@contextmanager
def explained_memory(
    batch: Sequence[int],
    m: int,
    n: int,
    depth: int,
    rank: int | None,
    dtype: str,
    graphs: int,
    room: int | None,
) -> Iterator[None]:
    """Raise a MemoryError that says how much a fit needs and what helps, before it begins or in its place.

    Parameters
    ----------
    batch, m, n, depth, rank, dtype
        The fit.
    graphs : int
        Numbers that its dense graphs consist of.
    room : int or None
        Bytes that are free; None where nobody knows.
    """
    needed = needed_bytes(batch, m, n, depth, rank, dtype, graphs)
    advice = ["a smaller rank= makes the factors thin", "a large picture can be done in tiles"]
    if graphs > m * n:
        advice.insert(0, "regularizers=[] learns no graphs, airnp.fit_sparse those of near rows alone")
    if dtype == "float64":
        advice.insert(0, "dtype='float32' halves that")
    size = f"{math.prod(batch)} x {m}x{n}" if batch else f"{m}x{n}"
    what = f"a fit of {size} in {dtype} needs about {needed / 2**30:.2g} GiB ({needed} bytes)"
    if room is not None and needed > room:
        raise MemoryError(f"{what}, there are {room / 2**30:.2g}: {', '.join(advice)}")
    try:
        yield
    except MemoryError as error:
        raise MemoryError(f"{error}; {what}: {', '.join(advice)}") from error
