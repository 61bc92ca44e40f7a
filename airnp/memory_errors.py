"""A message that helps where memory ran out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from airnp.factorization import factor_shapes


def needed_bytes(batch: Sequence[int], m: int, n: int, depth: int, rank: int | None, dtype: str) -> int:
    """Return about how much a fit with learned graphs over rows and columns keeps at once.

    Each parameter has two moments and a copy to fall back to; a factor has a gradient, a graph an adjacency
    and a Gram matrix; besides there are the data and the products of the factors.
    """
    factors = sum(rows * columns for rows, columns in factor_shapes(m, n, depth, rank or min(m, n)))
    graphs = m * m + n * n
    numbers = 5 * factors + 6 * graphs + (6 + depth) * m * n
    return math.prod(batch) * numbers * (4 if dtype == "float32" else 8)


@contextmanager
def explained_memory(
    batch: Sequence[int], m: int, n: int, depth: int, rank: int | None, dtype: str
) -> Iterator[None]:
    """Turn an array library's error about memory into one that says how much is needed and what helps."""
    try:
        yield
    except MemoryError as error:
        needed = needed_bytes(batch, m, n, depth, rank, dtype) / 2**30
        advice = ["a smaller rank= makes the factors thin", "a large picture can be done in tiles"]
        if dtype == "float64":
            advice.insert(0, "dtype='float32' halves that")
        raise MemoryError(
            f"{error}; with learned graphs, a fit of {math.prod(batch)} x {m}x{n} in {dtype} "
            f"needs about {needed:.2g} GiB: {', '.join(advice)}"
        ) from error
