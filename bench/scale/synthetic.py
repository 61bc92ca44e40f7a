"""Made-up tables of any size: communities of rows and of columns, a planted rank, noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

NOISE = 0.1


@dataclass(frozen=True)
class Planted:
    """A sparse table, entries that are held out of it, and how well they can be known."""

    matrix: csr_array
    rows: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    noise: float = NOISE


def planted(m: int, n: int, per_row: int, *, rank: int = 4, held_out: int = 20_000, seed: int = 0) -> Planted:
    """Return a table of m×n with about ``per_row`` entries in each row.

    Row i of community g has u_i = centre_g + 0.3 · noise, columns alike; an entry is u_i·v_j scaled to unit
    variance, plus noise of 0.1. There are √m / 2 communities of rows and √n / 2 of columns.

    Examples
    --------
    >>> table = planted(200, 40, 10, held_out=50)
    >>> table.matrix.shape, len(table.values)
    ((200, 40), 50)
    """
    rng = np.random.default_rng(seed)
    u, v = (_members(rng, size, rank) for size in (m, n))
    where = np.unique(_drawn(rng, m, n, per_row))
    rows, columns = where // n, where % n
    values = np.empty(len(where), np.float32)
    for first in range(0, len(where), 4_000_000):  # gathered rows would need many times the memory
        part = slice(first, first + 4_000_000)
        values[part] = np.einsum("er,er->e", u[rows[part]], v[columns[part]])
    values += rng.standard_normal(len(values), dtype=np.float32) * NOISE
    held = np.zeros(len(where), bool)
    held[rng.choice(len(where), min(held_out, len(where) // 10), replace=False)] = True
    kept = ~held
    indptr = np.searchsorted(rows[kept], np.arange(m + 1))
    matrix = csr_array((values[kept], columns[kept].astype(np.int32), indptr), shape=(m, n))
    return Planted(matrix, rows[held], columns[held], values[held])


def _members(rng: np.random.Generator, size: int, rank: int) -> np.ndarray:
    """Return one vector for each node, near the centre of its community; products have unit variance."""
    groups = max(2, int(np.sqrt(size) / 2))
    centres = rng.standard_normal((groups, rank), dtype=np.float32)
    found = centres[rng.integers(groups, size=size)]
    found += 0.3 * rng.standard_normal((size, rank), dtype=np.float32)
    return found / np.float32(rank**0.25 * np.sqrt(1.09))


def _drawn(rng: np.random.Generator, m: int, n: int, per_row: int) -> np.ndarray:
    """Return places row · n + column, some of them twice."""
    if per_row > n:
        raise ValueError(f"per_row: expected at most n = {n}, got {per_row}")
    columns = rng.integers(n, size=(m, per_row), dtype=np.int64)
    columns += np.arange(m, dtype=np.int64)[:, None] * n
    return columns.reshape(-1)
