"""Entries in upright strips, so narrow that their columns' factors stay in the nearer cache."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np

from airnp.sparse.entries import Entries

_CACHE_BYTES = 2**20
"""What V and ∂V of a strip may need."""

_ENTRIES_PER_LINE = 4
"""Entries that a line must have in a strip on average: each costs reading and writing u and ∂u once more."""

_strips: WeakKeyDictionary[Entries, tuple[int, list[Entries]]] = WeakKeyDictionary()


def strips(entries: Entries, row_bytes: int) -> list[Entries]:
    """Return entries strip by strip, or the entries as they are where strips would not pay.

    Parameters
    ----------
    entries : Entries
    row_bytes : int
        Size of a column's row in V.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> from airnp.sparse.entries import read_entries
    >>> wide = read_entries(csr_array(np.ones((2, 4096))))
    >>> [strip.nnz for strip in strips(wide, 512)]
    [2048, 2048, 2048, 2048]
    """
    if entries.share < 1:
        return [entries]
    m, n = entries.shape
    wanted = -(-2 * n * row_bytes // _CACHE_BYTES)
    count = min(wanted, entries.nnz // (_ENTRIES_PER_LINE * m))
    if count <= 1:
        return [entries]
    known = _strips.get(entries)
    if known is None or known[0] != count:
        width = -(-n // count)
        strip = (entries.pattern.indices // width).astype(np.int32)
        known = count, [entries.chosen(np.flatnonzero(strip == place)) for place in range(count)]
        _strips[entries] = known
    return known[1]
