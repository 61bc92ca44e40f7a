"""The operations of the sparse form, for engines to carry out.

An engine is a module with the functions of :class:`SparseOperations`. ``reference.py`` is the specification
in plain NumPy and SciPy; ``cpu.py`` gives the same answers to rounding. Arrays are C-contiguous, of one
floating-point type; results go into ``out`` arrays that the caller owns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from airnp.sparse.entries import Entries, Pattern

Floats = npt.NDArray[Any]


class Offsets(NamedTuple):
    """μ, b (m,) and c (n,) of X_ij = μ + b_i + c_j + u_i·v_j."""

    mean: float
    rows: Floats
    columns: Floats


class Slopes(NamedTuple):
    """∂F/∂U (m×r), ∂F/∂V (n×r), ∂F/∂b (m,) and ∂F/∂c (n,), to be written to."""

    u: Floats
    v: Floats
    rows: Floats
    columns: Floats


@dataclass(frozen=True, eq=False)
class Edges:
    """Candidate edges of a graph: node i may be connected to line i of ``pattern``, itself included.

    Attributes
    ----------
    pattern : Pattern
    order : int32 array (nodes,) or None
        Which row (or column) of X each node is, where neighbours have been brought close to each other;
        None where node i is row i.
    """

    pattern: Pattern
    order: npt.NDArray[Any] | None = None

    @cached_property
    def gathered(self) -> Pattern:
        """The row of each node, as a pattern of one entry a line."""
        assert self.order is not None
        return _of_one_each(self.order)

    @cached_property
    def returned(self) -> Pattern:
        """The node of each row, as a pattern of one entry a line."""
        assert self.order is not None
        places = np.empty_like(self.order)
        places[self.order] = np.arange(len(places), dtype=places.dtype)
        return _of_one_each(places)

    @cached_property
    def incoming(self) -> tuple[Pattern, npt.NDArray[Any]]:
        """The edges that end at each node, and their places in ``pattern``."""
        return self.pattern.transposed()

    @property
    def count(self) -> int:
        """Number of edges."""
        return len(self.pattern.indices)


def _of_one_each(places: npt.NDArray[Any]) -> Pattern:
    return Pattern(np.arange(len(places) + 1, dtype=np.int64), places, len(places))


class SparseOperations(Protocol):
    """What an engine offers.

    Patterns, entries and edges are on the host, whatever the engine; it keeps copies of its own where it
    computes elsewhere. All other arrays are those of ``xp``. So are the scalars that operations return, where
    bringing them over would mean to wait.

    Attributes
    ----------
    xp : module
        ``numpy`` or ``cupy``.
    dense : module
        The engine of :mod:`airnp.engines` for products and updates.
    """

    xp: Any
    dense: Any

    def number(self, value: Any) -> Any:
        """Return a scalar array as a number, or as it is where that would mean to wait for it."""

    def numbers(self, values: Sequence[Any]) -> list[float]:
        """Return scalars that operations gave, brought over together."""

    def residuals(
        self,
        entries: Entries,
        u: Floats,
        v: Floats,
        offsets: Offsets,
        *,
        scale: float,
        out: Slopes,
        plain: bool = False,
    ) -> float:
        """Write the gradient of F = scale/2 · Σ w_ij (x_ij − y_ij)² over the entries; return F.

        Entries without weights count alike, w = 1. ``plain`` says that all offsets are zero and their slopes
        are not needed.
        """

    def values_at(
        self, rows: npt.NDArray[Any], columns: npt.NDArray[Any], u: Floats, v: Floats, offsets: Offsets
    ) -> Floats:
        """Return x_ij at pairs (rows[k], columns[k])."""

    def line_sums(self, pattern: Pattern, x: Floats, out: Floats) -> None:
        """Write, for each line, the sum of the rows of x at its entries: Ω x."""

    def edge_terms(
        self,
        edges: Edges,
        logits: Floats,
        t: Floats,
        metric: Floats,
        *,
        weights: Floats,
        slopes: Floats,
        pull: Floats,
    ) -> float:
        """Write a learned graph's P, ∂R/∂logits and 2 L t; return R = ½ Σ P_ij D_ij.

        D_ij = Σ_k metric_k (t_ik − t_jk)²; P is the softmax of ``logits`` over each node's edges.
        """

    def laplacian(
        self, pattern: Pattern, weights: Floats, t: Floats, metric: Floats, *, pull: Floats
    ) -> float:
        """Write 2 L t for a symmetric adjacency; return R = ½ Σ A_ij D_ij."""
