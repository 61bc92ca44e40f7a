"""Observed entries of a sparse matrix, row by row: read, weighted, split and dealt out in batches."""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from airnp._arrays import natural_float, requested_float, stored_entries, to_numpy
from airnp.data.inputs import EmptyLineWarning, check_exact, check_largest_weights, check_size

Floats = npt.NDArray[Any]
Indices = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Pattern:
    """Which entries there are, line by line: line i has ``indices[indptr[i] : indptr[i + 1]]``.

    Attributes
    ----------
    indptr : int64 array (lines + 1,)
    indices : int32 or int64 array (nnz,)
        Positions across, ascending within a line.
    width : int
        How many positions there are.
    """

    indptr: Indices
    indices: Indices
    width: int

    def check(self) -> None:
        """Raise ValueError unless the arrays describe a pattern; those of a file may not."""
        starts, places = self.indptr, self.indices
        if starts.ndim != 1 or places.ndim != 1 or {starts.dtype.kind, places.dtype.kind} != {"i"}:
            raise ValueError(f"pattern: expected vectors of integers, got {starts.dtype} and {places.dtype}")
        ascends = len(starts) > 0 and starts[0] == 0 and bool((starts[1:] >= starts[:-1]).all())
        if not ascends or starts[-1] != len(places):
            raise ValueError("pattern: its lines do not divide its entries")
        if len(places) and not 0 <= places.min() <= places.max() < self.width:
            raise ValueError(f"pattern: expected positions from 0 to {self.width - 1}")

    @property
    def lines(self) -> int:
        """Number of lines."""
        return len(self.indptr) - 1

    @cached_property
    def counts(self) -> Indices:
        """Entries on each line, shape (lines,)."""
        return np.diff(self.indptr)

    def line_of_each(self) -> Indices:
        """Return the line of each entry, shape (nnz,)."""
        return np.repeat(np.arange(self.lines, dtype=self.indices.dtype), self.counts)

    def transposed(self) -> tuple[Pattern, Indices]:
        """Return the same entries column by column, and where each of them was, shape (nnz,)."""
        order = np.argsort(self.indices, kind="stable")
        indptr = np.zeros(self.width + 1, np.int64)
        np.cumsum(np.bincount(self.indices, minlength=self.width), out=indptr[1:])
        return Pattern(indptr, self.line_of_each()[order], self.lines), order


@dataclass(frozen=True, eq=False)
class Entries:
    """Observed entries y_ij of an m×n matrix.

    Attributes
    ----------
    pattern : Pattern
        Where they are, row by row.
    values : array (nnz,)
        float32 or float64, in the order of the pattern.
    share : float
        Which share of all observed entries these are: 1, or less for a batch.
    weights : array (nnz,) or None
        How much each of them counts in the fidelity, above 0; None where all count alike.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> entries = read_entries(csr_array(np.array([[0.0, 2.0], [3.0, 4.0]])))
    >>> entries.shape, entries.nnz, entries.pattern.indices
    ((2, 2), 3, array([1, 0, 1], dtype=int32))
    """

    pattern: Pattern
    values: Floats
    share: float = 1.0
    weights: Floats | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """(m, n)."""
        return self.pattern.lines, self.pattern.width

    @property
    def nnz(self) -> int:
        """How many there are."""
        return len(self.values)

    @cached_property
    def columns(self) -> Pattern:
        """The same entries column by column."""
        return self.turned.pattern

    @cached_property
    def turned(self) -> Entries:
        """The entries of the transposed matrix."""
        pattern, order = self.pattern.transposed()
        return Entries(pattern, self.values[order], self.share, self._weights_at(order))

    @cached_property
    def column_counts(self) -> Indices:
        """Entries in each column, shape (n,)."""
        return np.bincount(self.pattern.indices, minlength=self.pattern.width)

    def check(self) -> None:
        """Raise ValueError unless there is a number for each place of the pattern."""
        for array in (self.values, self.values if self.weights is None else self.weights):
            if array.shape != self.pattern.indices.shape or array.dtype != self.values.dtype:
                raise ValueError(f"entries: expected {len(self.pattern.indices)} numbers, got {array.shape}")
        if self.values.dtype not in (np.float32, np.float64):
            raise ValueError(f"entries: expected float32 or float64, got {self.values.dtype}")

    def with_values(self, values: Floats) -> Entries:
        """Return other values at the same places."""
        return replace(self, values=values)

    def chosen(self, positions: Indices, share: float = 1.0) -> Entries:
        """Return the entries at some positions of the order of rows, which must ascend."""
        indptr = np.searchsorted(positions, self.pattern.indptr).astype(np.int64)
        pattern = Pattern(indptr, self.pattern.indices[positions], self.pattern.width)
        return Entries(pattern, self.values[positions], share, self._weights_at(positions))

    def _weights_at(self, positions: Indices) -> Floats | None:
        return None if self.weights is None else self.weights[positions]

    def split(self, held_out: npt.NDArray[np.bool_]) -> tuple[Entries, Entries]:
        """Return the entries that are kept and those that are held out."""
        return self.chosen(np.flatnonzero(~held_out)), self.chosen(np.flatnonzero(held_out))


def is_sparse(value: Any) -> bool:
    """Whether a value is a sparse matrix or array of SciPy.

    Examples
    --------
    >>> is_sparse([[1.0]])
    False
    """
    found = sys.modules.get("scipy.sparse")
    return found is not None and bool(found.issparse(value))


def read_entries(matrix: Any, dtype: Any = None, weights: Any = None) -> Entries:
    """Return the stored entries of a scipy.sparse matrix, explicit zeros included, checked.

    Parameters
    ----------
    matrix : scipy.sparse matrix or array (m, n)
        Each place is stored at most once.
    dtype : dtype, optional
        float32 or float64. Default: that of the matrix, as in :func:`airnp.fit`.
    weights : optional
        One for each stored entry, see :func:`airnp.data.entries.read_weights`; entries of weight
        zero are missing.
    """
    if not is_sparse(matrix):
        raise TypeError(
            f"S: expected a sparse matrix of SciPy, got {type(matrix).__name__}; "
            "scipy.sparse.coo_array((values, (rows, columns)), shape) makes one"
        )
    if matrix.ndim != 2:
        raise ValueError(f"S: expected a sparse matrix (m, n), got shape {matrix.shape}")
    if matrix.dtype.kind not in "biuf":
        raise TypeError(f"S: expected real numbers, got dtype {matrix.dtype}")
    kind = natural_float(matrix.dtype) if dtype is None else requested_float(dtype)
    rows = stored_entries("S", matrix)
    if rows.nnz == 0:
        raise ValueError(f"S: expected at least one stored entry, got none in {matrix.shape}")
    finite = rows.data[np.isfinite(rows.data)]
    if len(finite):
        check_size("S", float(np.abs(finite.astype(np.float64)).max()), kind)
    if rows.data.dtype.kind in "iu":
        check_exact("S", rows.data)
    values = rows.data.astype(kind)
    indices = rows.indices.astype(np.int32 if matrix.shape[1] < 2**31 else np.int64)
    found = Entries(Pattern(rows.indptr.astype(np.int64), indices, matrix.shape[1]), values)
    if weights is not None:
        found = _weighted(found, read_weights(weights, matrix, rows))
    if not np.isfinite(found.values).all():
        count = int((~np.isfinite(found.values)).sum())
        raise ValueError(f"S: {count} stored entries are not finite in {kind}")
    _warn_of_empty_lines(found)
    return found


def _weighted(entries: Entries, weights: Floats) -> Entries:
    """Return the entries with their weights, without those of weight zero."""
    if not weights.any():
        raise ValueError("weights: expected at least one above 0, all entries are missing")
    check_largest_weights(weights.max())
    kind = entries.values.dtype
    # What is observed stays so in the type of the fit, which may be narrower.
    narrow = np.maximum(weights, np.where(weights > 0, np.finfo(kind).tiny, 0)).astype(kind)
    found = replace(entries, weights=narrow)
    return found if weights.all() else found.chosen(np.flatnonzero(weights))


def _warn_of_empty_lines(entries: Entries) -> None:
    empty = int((entries.pattern.counts == 0).sum()), int((entries.column_counts == 0).sum())
    if any(empty):
        warnings.warn(
            f"{empty[0]} rows and {empty[1]} columns have no observed entry; what is predicted for them "
            "comes from offsets and regularizers alone",
            EmptyLineWarning,
            stacklevel=5,
        )


_VECTOR_FORMATS = ("csr", "csc", "coo")
"""Formats that have one number in ``data`` for each entry, in an order that a caller knows."""


def read_weights(weights: Any, matrix: Any, rows: Any) -> npt.NDArray[np.float64]:
    """Return one weight for each entry of Y, row by row, checked, shape (nnz,).

    Parameters
    ----------
    weights : sparse matrix (m, n) of SciPy or CuPy, array (nnz,) or array (m, n)
        A sparse one stores an entry exactly where Y does. A vector is in the order of ``Y.data``.
    matrix : scipy.sparse matrix (m, n)
        Y as it was given.
    rows : scipy.sparse.csr_array
        Y with sorted rows and without duplicates.

    Examples
    --------
    >>> from scipy.sparse import coo_array
    >>> Y = coo_array(([5.0, 4.0], ([1, 0], [0, 1])), shape=(2, 2))
    >>> read_weights([1.0, 3.0], Y, stored_entries("Y", Y))
    array([3., 1.])
    """
    on_device = sys.modules.get("cupyx.scipy.sparse")
    if on_device is not None and on_device.issparse(weights):
        weights = weights.get()
    found = _of_sparse(weights, rows) if is_sparse(weights) else _of_array(to_numpy(weights), matrix, rows)
    if found.dtype.kind not in "biuf":
        raise TypeError(f"weights: expected real numbers, got dtype {found.dtype}")
    if not ((found >= 0) & np.isfinite(found)).all():
        raise ValueError("weights: expected finite numbers of at least 0")
    return found.astype(np.float64)


def _of_sparse(weights: Any, rows: Any) -> npt.NDArray[Any]:
    if weights.shape != rows.shape:
        raise ValueError(f"weights: expected the shape of Y, {rows.shape}, got {weights.shape}")
    own = stored_entries("weights", weights)
    if not (np.array_equal(own.indptr, rows.indptr) and np.array_equal(own.indices, rows.indices)):
        raise ValueError(
            f"weights: expected an entry wherever Y stores one and nowhere else ({rows.nnz} of them), "
            f"got {own.nnz} at other places"
        )
    return np.asarray(own.data)


def _of_array(weights: npt.NDArray[Any], matrix: Any, rows: Any) -> npt.NDArray[Any]:
    if weights.shape == rows.shape:
        at = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr)), rows.indices
        return np.asarray(weights[at])
    if weights.shape != (matrix.nnz,):
        raise ValueError(
            f"weights: expected a sparse matrix like Y, or one number for each of its {matrix.nnz} entries, "
            f"got shape {weights.shape}"
        )
    if matrix.format not in _VECTOR_FORMATS:
        raise ValueError(
            "weights: a vector is in the order of Y.data, for a Y in csr, csc or coo format; "
            f"got one in {matrix.format} format"
        )
    ordered = matrix.copy()
    ordered.data = weights
    return np.asarray(stored_entries("Y", ordered).data)


class Batches:
    """Deals out the entries in batches of about equal size.

    Parameters
    ----------
    entries : Entries
    size : int or None
        How many at a time; None for all, always.
    seed : int

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> from airnp.data.entries import read_entries
    >>> batches = Batches(read_entries(csr_array(np.ones((2, 3)))), size=3, seed=0)
    >>> first, second = batches.next(), batches.next()
    >>> first.nnz, second.nnz, first.share, first.shape
    (3, 3, 0.5, (2, 3))

    Batches of the same entries that take up the state go on with the same ones:

    >>> again = Batches(read_entries(csr_array(np.ones((2, 3)))), size=3, seed=1)
    >>> again.restore(batches.state())
    >>> bool((again.next().pattern.indices == batches.next().pattern.indices).all())
    True
    """

    def __init__(self, entries: Entries, size: int | None, seed: int) -> None:
        self._entries = entries
        self._count = 1 if size is None else -(-entries.nnz // size)
        self._rng = np.random.default_rng([seed, 2])
        self._start = dict(self._rng.bit_generator.state)
        self._drawn: dict[str, Any] = {}
        self._place = 0
        self._order = np.empty(0, np.int64)

    def next(self) -> Entries:
        """Return the next batch; its ``share`` says by how much to scale it up."""
        if self._count == 1:
            return self._entries
        if self._place == 0:
            self._draw()
        cuts = len(self._order) * np.arange(self._count + 1) // self._count
        chosen = np.sort(self._order[cuts[self._place] : cuts[self._place + 1]])
        self._place = (self._place + 1) % self._count
        return self._entries.chosen(chosen, share=len(chosen) / self._entries.nnz)

    def _draw(self) -> None:
        # What the generator was before is all that it takes to draw the same order again.
        self._drawn = dict(self._rng.bit_generator.state)
        self._order = self._rng.permutation(self._entries.nnz)

    def state(self) -> dict[str, Any]:
        """Return how to go on: the random state that this pass was drawn from, and the place within it."""
        return {"random": self._drawn, "place": self._place}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on where other batches of the same entries were when :meth:`state` was asked."""
        self._place, self._drawn = state["place"], {}
        self._rng.bit_generator.state = state["random"] or self._start
        if state["random"]:
            self._draw()
