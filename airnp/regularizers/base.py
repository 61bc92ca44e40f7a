"""What a regulariser is: what a user says, and the terms that do the arithmetic of one problem.

A :class:`Regularizer` holds what the user said. :meth:`Regularizer.bind` checks it against a matrix that is
formed as a whole and returns a :class:`Term`; :meth:`Regularizer.bind_factored` does so for X = U Vᵀ, which
is never formed, and returns a :class:`FactoredTerm`. One file holds both terms of a regulariser.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from airnp._arrays import Array, Namespace, from_numpy
from airnp.data.entries import Entries
from airnp.data.linearmaps import Blocks, GuardedMap, Transform, bound_transform, check_adjoint
from airnp.engines.buffers import Workspace
from airnp.engines.contract import Edges, Engine, LaplacianTerms, Memory, Update
from airnp.regularizers.candidates import Candidates

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
    spare: Array | None = None
    """Memory to give back once the engine has computed ``terms``."""


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

    is_plain: bool = False
    """Whether the arithmetic consists of the engine's operations alone, so that it may be replayed."""

    links: tuple[str, ...] = ("rows", "columns")
    """Between which lines of X it passes something on: a line without entries is filled through it."""

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


@dataclass(frozen=True, eq=False)
class FactoredProblem:
    """What a regulariser may know about a problem in the factored form, X = U Vᵀ.

    Attributes
    ----------
    entries : Entries
        The observed entries (m, n), in the units that are fitted.
    fidelity_scale : float
        s, the weight of the data term, which default weights follow.
    has_mask_factor : bool
        Whether the model has matrices that follow from which entries are observed.
    xp : module
        Namespace of the parameters.
    """

    entries: Entries
    fidelity_scale: float
    has_mask_factor: bool
    xp: Any

    def nodes(self, axis: str) -> int:
        """Return the number of rows, or of columns."""
        return self.entries.shape[0 if axis == "rows" else 1]


class GraphWeights(NamedTuple):
    """The learned weights of one graph: its candidate edges, V over them, and where ∂V goes."""

    edges: Edges
    logits: Array
    """V, shape (1, edges)."""
    slopes: Array
    """λ ∂R/∂V, to be written to."""


Side: TypeAlias = tuple[Array, Array]
"""A matrix whose rows belong to the rows or columns of X, and its gradient so far."""


class FactoredTerm(ABC):
    """One regulariser of one problem in the factored form."""

    weight: float
    acts_on: Literal["sides", "factors", "mask"] = "sides"
    """U and V as a whole, U and V as the chain of factors gives them, or the matrices of the mask factor."""

    links: tuple[str, ...] = ()
    """Between which lines of X it passes something on."""

    is_plain: bool = False
    """Whether the arithmetic consists of the engine's operations alone, so that it may be replayed."""

    candidates: Candidates | None = None
    """Where the edges of a learned graph come from; None where nothing is learned."""

    @abstractmethod
    def accumulate(
        self, ops: Engine, sides: Mapping[str, Side], graph: GraphWeights | None, space: Workspace
    ) -> Array:
        """Add λ ∂R to the gradients of the sides "rows" and "columns"; return R, an array of shape ()."""

    def adjacency(self, edges: Edges | None, logits: Array | None) -> Any:
        """Return the graph as a scipy.sparse.csr_array on the host, or None for a term without one."""
        return None


class Regularizer(ABC):
    """What a user says; see the module's table.

    Subclass it for a regulariser with an arithmetic of its own; :class:`airnp.Custom` is the short way for
    one that is a function of X alone. The constructor stores its arguments in attributes of the same names,
    from which checkpoints make the object again.
    """

    name: str
    """Its energies are recorded as ``energy_<name>``."""

    @abstractmethod
    def bind(self, problem: Problem) -> Term:
        """Check against a problem and return the term that does the arithmetic."""

    def graph_numbers(self, m: int, n: int) -> int:
        """Return how many numbers a fit of an m×n matrix keeps for a dense graph; 0 without one."""
        return 0

    def bind_factored(self, problem: FactoredProblem) -> FactoredTerm:
        """Check against a problem in the factored form and return its term; raise if there is none."""
        raise ValueError(
            "regularizers: fit_sparse has AdaptiveLaplacian, FixedLaplacian and WeightDecay, which need no "
            f"whole matrix, got {self!r}"
        )


def checked_weight(weight: Any) -> float:
    """Return λ as a float if it is a finite number of at least 0, else raise."""
    if isinstance(weight, bool) or not isinstance(weight, int | float | np.number):
        raise TypeError(f"weight: expected a number, got {type(weight).__name__}")
    if not 0 <= float(weight) < float("inf"):
        raise ValueError(f"weight: expected a finite number of at least 0, got {weight!r}")
    return float(weight)


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


def node_count(axis: Any, m: int, n: int) -> int:
    """Return how many rows T(X) has, without a problem; 0 for a user's own transform, which is not asked."""
    if isinstance(axis, Blocks):
        return (m // axis.height) * (n // axis.width)
    return {"rows": m, "columns": n}.get(axis, 0) if isinstance(axis, str) else 0


def checked_side(axis: Any) -> str:
    """Return "rows" or "columns"; raise for a transform, which needs the whole matrix."""
    if axis not in ("rows", "columns"):
        raise ValueError(f"axis: fit_sparse has graphs over 'rows' and 'columns', got {axis!r}")
    return str(axis)


def linked_lines(terms: Sequence[Term | FactoredTerm]) -> set[str]:
    """Return which lines of X, "rows" or "columns", some term links to each other."""
    return {axis for term in terms if term.weight > 0 for axis in term.links}
