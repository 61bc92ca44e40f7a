"""The floor of an iteration: its necessary matrix products by NumPy's BLAS, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from airnp.model.factorization import factor_shapes


def product_shapes(m: int, n: int, depth: int, rank: int) -> list[tuple[int, int, int]]:
    """Return (rows, inner, columns) of the products forward and backward through the factors."""
    shapes = factor_shapes(m, n, depth, rank)
    products = []
    for rows, inner in shapes[1:]:
        products.append((rows, inner, n))  # forward: W[l] S[l-1]
        products.append((rows, n, inner))  # backward: H S[l-1]ᵀ
        products.append((inner, rows, n))  # backward: W[l]ᵀ H
    return products


def floor(
    m: int,
    n: int,
    depth: int,
    dtype: str,
    *,
    graphs: tuple[int, ...] = (),
    batch: int = 1,
    rank: int | None = None,
) -> Callable[[int], None]:
    """Return a runner of the products of one iteration.

    Parameters
    ----------
    graphs : tuple of int
        The nodes of each dense learned graph: m for rows, n for columns. Each costs one product with X and
        half a product for its Gram matrix, which is symmetric.
    """
    rng = np.random.default_rng(0)
    shapes = product_shapes(m, n, depth, min(m, n) if rank is None else rank)
    for nodes in graphs:
        shapes.append((nodes, nodes, m * n // nodes))
    halves = [(nodes, m * n // nodes, nodes) for nodes in graphs]
    # Every product has its own operands, as in an iteration; a single pair would stay in the cache.
    products = [_operands(rng, shape, dtype) for shape in shapes]
    half_products = [_operands(rng, shape, dtype) for shape in halves]

    def run(iterations: int) -> None:
        for iteration in range(iterations * batch):
            for a, b, out in products:
                np.matmul(a, b, out=out)
            # Half a product: every other time.
            for position, (a, b, out) in enumerate(half_products):
                if (iteration + position) % 2 == 0:
                    np.matmul(a, b, out=out)

    return run


def _operands(rng: np.random.Generator, shape: tuple[int, int, int], dtype: str) -> tuple[np.ndarray, ...]:
    rows, inner, columns = shape
    return (
        rng.standard_normal((rows, inner)).astype(dtype),
        rng.standard_normal((inner, columns)).astype(dtype),
        np.empty((rows, columns), dtype),
    )
