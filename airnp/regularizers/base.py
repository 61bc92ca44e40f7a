"""The two halves of a regulariser: what a user says, and the term that does one problem's arithmetic."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from airnp._arrays import Array, Namespace, from_numpy
from airnp.data.linearmaps import Blocks, GuardedMap, Transform, bound_transform, check_adjoint
from airnp.engines.contract import Engine, LaplacianTerms, Memory, Update

GRAPH_WEIGHT = 1.44
"""Default λ of a graph of mean degree 1, as a multiple of the fidelity scale s.

With the mean fidelity this is 2.88/(m·n): 5e-5 for 240×240. The pull of the graph on an entry is then as
strong, against the pull of the entry's own observation, at every size.
"""


@dataclass(frozen=True)
class Problem:
    """What a regulariser may know about the problem it is bound to.

    Attributes
    ----------
    batch : tuple of int
        Shape of the stack; empty for one matrix.
    m, n : int
    fidelity_scale : float
        s, the weight of the data term, which default weights follow.
    values, weights : arrays or None
        The observed entries; None when an operator made the measurements.
    """

    batch: tuple[int, ...]
    m: int
    n: int
    fidelity_scale: float
    xp: Namespace
    device: Any
    dtype: str
    values: Array | None
    weights: Array | None


class Contribution(NamedTuple):
    """What a term knows before the gradient of the data term is there."""

    row_scale: Array | None = None
    column_scale: Array | None = None
    terms: LaplacianTerms | None = None


class Term(ABC):
    """One regulariser of one problem, in two phases around the residual pass.

    ``prepare`` gives what scales whole rows or columns of X, so that the residual pass can fold it in;
    ``accumulate`` adds the rest to the gradient and tells the energy.
    """

    weight: float
    parameter_shape: tuple[int, ...] | None = None
    """Shape of V, or None where nothing is learned."""

    scaled_lines: Literal["rows", "columns"] | None = None
    """Which lines of X its :class:`Contribution` scales."""

    is_plain: bool = True
    """Whether the arithmetic consists of the engine's operations alone."""

    def prepare(
        self, ops: Engine, x: Array, v: Array | None, update: Update | None, memory: Memory
    ) -> Contribution:
        """Return the parts that must be known before the residual pass."""
        return Contribution()

    @abstractmethod
    def accumulate(self, ops: Engine, x: Array, g: Array, contribution: Contribution) -> tuple[Array, Array]:
        """Return the energy R and g + λ ∇_X R, less what the residual pass has already added."""

    def adjacency(self, ops: Engine, v: Array | None) -> Array | None:
        """Return the graph's adjacency matrix, or None for a term without a graph."""
        return None


class Regularizer(ABC):
    """What a user says; see the module's table."""

    name: str

    @abstractmethod
    def bind(self, problem: Problem) -> Term:
        """Check against a problem and return the term that does the arithmetic."""


def checked_weight(weight: Any) -> float:
    """Return λ as a float if it is a finite number of at least 0, else raise."""
    if isinstance(weight, bool) or not isinstance(weight, int | float | np.number):
        raise TypeError(f"weight: expected a number, got {type(weight).__name__}")
    if not 0 <= float(weight) < float("inf"):
        raise ValueError(f"weight: expected a finite number of at least 0, got {weight!r}")
    return float(weight)


def checked_choice(name: str, value: Any, choices: tuple[str, ...]) -> Any:
    """Return ``value`` if it is one of ``choices``, else raise an error that lists them."""
    if not (isinstance(value, str) and value in choices):
        raise ValueError(f"{name}: expected one of {', '.join(map(repr, choices))}, got {value!r}")
    return value


def bound_nodes(axis: Any, problem: Problem) -> tuple[Transform, int]:
    """Return the transform that ``axis`` means for a problem and how many rows T(X) has.

    A user's own transform is tested first, and its results are held to the type of what it is given.
    """
    transform = bound_transform(axis, problem.m, problem.n)
    if isinstance(axis, str):
        return transform, problem.m if axis == "rows" else problem.n
    if not isinstance(axis, Blocks):
        transform = GuardedMap("axis", transform)
    shape = (*problem.batch, problem.m, problem.n)
    probe = from_numpy(np.zeros(shape), problem.xp, problem.device, problem.dtype)
    image = check_adjoint("axis", transform, probe, problem.xp, problem.device, problem.dtype)
    if image.ndim != len(shape):
        raise ValueError(
            f"axis: forward must return a matrix (..., k, d) for each matrix, got shape {tuple(image.shape)} "
            f"for {shape}"
        )
    return transform, int(image.shape[-2])
