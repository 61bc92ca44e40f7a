"""The contract between the mathematics and the engines that carry it out.

An engine is a module that offers the functions of :class:`Engine`. ``reference.py`` is the specification;
every other engine gives the same answers to rounding, faster. The mathematics above never asks which
engine it has.

Three conventions hold for every operation:

* Arrays may be stacks ``(…, m, n)`` of independent problems; scalars that depend on the data
  (energies, fidelities) then have the stack's shape ``(…)``.
* ``out`` is memory the engine *may* write the result into. Callers always use the returned array.
* An array that an operation updates (a parameter, a gradient being accumulated) may be changed in place.
  Callers always go on with the returned one, so that namespaces with immutable arrays work too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from airnp._arrays import Array
from airnp.data.entries import Entries, Pattern

AdjacencyKind: TypeAlias = Literal["row", "global", "product"]
VariationKind: TypeAlias = Literal["l1", "quadratic"]
Precision: TypeAlias = Literal["tf32", "tf32x3", "bf16x9"]
SecondMoment: TypeAlias = Literal["entry", "matrix"]
Schedule: TypeAlias = Callable[[int], float]
Begin: TypeAlias = "Callable[[], Sequence[Update]]"
"""Starts an iteration: says what to do with each parameter at its end."""

Step: TypeAlias = "Callable[[Sequence[Update]], Sequence[Array]]"
"""Carries one iteration out; returns the scalars to record, each of the stack's shape."""

Run: TypeAlias = Callable[[int], npt.NDArray[np.float64]]
"""Runs a number of iterations; returns what they recorded, shape (iterations, scalars, …)."""


@dataclass
class Moments:
    """The running averages that Adam keeps for one parameter."""

    first: Array
    """Of the gradient: the parameter's shape."""
    second: Array
    """Of its squares: the same shape, or (…, 1, 1) where a matrix has one for all its entries."""


@dataclass(frozen=True)
class AdamUpdate:
    """Everything one Adam step of one parameter needs, as data, so that a kernel can carry it out.

    ``step`` counts from 1; the learning rate of this step is ``rate * schedule(step)``. With a
    ``second_moment`` of "matrix", ``moments.second`` has one number for each matrix.
    """

    moments: Moments
    rate: float
    step: int
    beta1: float
    beta2: float
    epsilon: float
    schedule: Schedule | None = None
    second_moment: SecondMoment = "entry"

    @property
    def current_rate(self) -> float:
        """The learning rate of this very step."""
        return self.rate if self.schedule is None else self.rate * self.schedule(self.step)


@dataclass(frozen=True)
class DescentUpdate:
    """One step of plain gradient descent of one parameter."""

    rate: float
    step: int
    schedule: Schedule | None = None

    @property
    def current_rate(self) -> float:
        """The learning rate of this very step."""
        return self.rate if self.schedule is None else self.rate * self.schedule(self.step)


Update: TypeAlias = AdamUpdate | DescentUpdate


class Memory(Protocol):
    """Lends arrays for intermediates, and lends them again once they were given back."""

    def take(self, shape: tuple[int, ...]) -> Array | None:
        """Return an array of this shape with any content, or None where the engine wants none."""

    def give(self, array: Array) -> None:
        """Take back an array that is not needed any more."""


class _NoMemory:
    """Lends nothing: every operation makes its own result, which is the caller's to keep."""

    def take(self, shape: tuple[int, ...]) -> None:
        """Return None."""

    def give(self, array: Array) -> None:
        """Leave the array to its owner."""


NO_MEMORY: Memory = _NoMemory()


class LaplacianTerms(NamedTuple):
    """What a learned graph contributes at one point."""

    energy: Array
    """R = ½⟨A, D⟩, shape (…)."""
    adjacency: Array
    """A, shape (…, k, k), symmetric."""
    pull: Array
    """2 · weight · deg, shape (…, k): the degree part of the gradient scales node i by it."""
    gradient: Array | None
    """weight · ∇_V R, shape (…, k, k); None when the update was carried out instead."""
    parameter: Array
    """V: after the update if there was one, else as given."""


Floats = npt.NDArray[Any]


class Offsets(NamedTuple):
    """μ, b (m,) and c (n,) of X_ij = μ + b_i + c_j + u_i·v_j."""

    mean: Any
    """A number, or an array with one entry, which is read when an operation is carried out."""
    rows: Floats
    columns: Floats


class DecayPart(NamedTuple):
    """A matrix whose rows are kept short, how much each row counts, and where its gradient goes."""

    matrix: Array
    growth: Array | None
    """g, shape (rows, 1); None for ones."""
    slope: Array


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


def numbers(update: Update) -> tuple[float, ...]:
    """Return 1 − β1, β2, 1 − β2, rate / (1 − β1ᵗ), 1 / √(1 − β2ᵗ) and ε for Adam, the rate for descent."""
    if not isinstance(update, AdamUpdate):
        return (update.current_rate,)
    beta1, beta2, step = update.beta1, update.beta2, update.step
    rate = update.current_rate / (1 - beta1**step)
    return 1 - beta1, beta2, 1 - beta2, rate, 1 / math.sqrt(1 - beta2**step), update.epsilon


class Engine(Protocol):
    """The operations that an engine offers."""

    replays_sparse: bool
    """Whether an iteration of the factored form can be recorded and replayed."""

    looks_seldom: bool
    """Whether looking at a state makes the host wait for a device, so that a fit should do it seldom."""

    @property
    def __name__(self) -> str:
        """The module's name."""

    def product(
        self,
        a: Array,
        b: Array,
        *,
        transpose_a: bool = False,
        transpose_b: bool = False,
        out: Array | None = None,
    ) -> Array:
        """Return ``a @ b``, either of them transposed on request."""

    def add_product(self, c: Array, a: Array, b: Array, *, alpha: float) -> Array:
        """Return ``c + alpha · a @ b``; may overwrite ``c``."""

    def gram(self, x: Array, *, columns: bool = False, out: Array | None = None) -> Array:
        """Return ``x xᵀ``, or ``xᵀ x`` of the columns."""

    def together(self) -> AbstractContextManager[None]:
        """Return a context at whose end the Gram matrices and graphs asked for within it are computed."""

    def adjacency(self, kind: AdjacencyKind, v: Array) -> Array:
        """Return the adjacency A of the free matrix V."""

    def laplacian_terms(
        self,
        kind: AdjacencyKind,
        v: Array,
        gram: Array,
        *,
        weight: float,
        update: Update | None = None,
        out: Array | None = None,
    ) -> LaplacianTerms:
        """Return energy, adjacency, pull and the gradient of V (or update V by it)."""

    def residual(
        self,
        x: Array,
        y: Array,
        weights: Array,
        *,
        scale: float,
        huber_delta: float | None = None,
        row_scale: Array | None = None,
        column_scale: Array | None = None,
        out: Array | None = None,
    ) -> tuple[Array, Array]:
        """Return the fidelity and its gradient, plus ``row_scale ⊙ x + x ⊙ column_scale``."""

    def scale_lines(self, g: Array, x: Array, row_scale: Array | None, column_scale: Array | None) -> Array:
        """Return ``g + row_scale ⊙ x + x ⊙ column_scale``; may overwrite ``g``."""

    def fixed_laplacian(
        self, g: Array, z: Array, adjacency: Any, degree: Array, *, weight: float
    ) -> tuple[Array, Array]:
        """Return the energy ``tr(zᵀ L z)`` and ``g + 2 weight · L z``; may overwrite ``g``."""

    def total_variation(
        self, g: Array, x: Array, *, kind: VariationKind, epsilon: float, weight: float
    ) -> tuple[Array, Array]:
        """Return the variation of ``x`` and ``g + weight · its gradient``; may overwrite ``g``."""

    def apply_updates(
        self, params: Sequence[Array], grads: Sequence[Array], updates: Sequence[Update]
    ) -> list[Array]:
        """Carry out one update per parameter; return the parameters."""

    def memory(self, like: Array) -> Memory:
        """Return memory for the intermediates of many iterations."""

    def prepare(
        self,
        begin: Begin,
        step: Step,
        *,
        replayable: bool = False,
        threads: int | None = None,
        precision: Precision | None = None,
    ) -> Run:
        """Return a function that makes a number of iterations and brings back what they recorded.

        A replayable step consists of the engine's operations alone, on arrays that stay where they are.
        ``threads`` is for engines of the CPU; ``precision`` lets products round more where a device is faster
        then.
        """

    # --- the factored form: X = U Vᵀ and offsets, entries and edges in lists ---
    #
    # Patterns, entries and edges are NumPy's, whatever the engine; an engine that computes elsewhere keeps
    # copies of its own. All other arrays are C-contiguous and the engine's. Results are written into ``out``
    # arrays that the caller owns; scalars come back as arrays of shape () in float64.

    def residuals(
        self,
        entries: Entries,
        u: Array,
        v: Array,
        offsets: Offsets,
        *,
        scale: float,
        out: Slopes,
        plain: bool = False,
    ) -> Array:
        """Write the gradient of F = scale/2 · Σ w_ij (x_ij − y_ij)² over the entries; return F.

        Entries without weights count alike, w = 1. ``plain`` says that all offsets are zero and their slopes
        are not needed.
        """

    def entry_values(self, rows: Any, columns: Any, u: Array, v: Array, offsets: Offsets) -> Array:
        """Return x_ij at pairs (rows[k], columns[k]), shape (pairs,)."""

    def line_sums(self, pattern: Pattern, x: Array, *, out: Array) -> None:
        """Write, for each line, the sum of the rows of x at its entries: Ω x."""

    def edge_terms(
        self,
        edges: Edges,
        logits: Array,
        t: Array,
        metric: Array,
        *,
        weights: Array,
        slopes: Array,
        pull: Array,
    ) -> Array:
        """Write a learned graph's P, ∂R/∂logits and 2 L t; return R = ½ Σ P_ij D_ij.

        D_ij = Σ_k metric_k (t_ik − t_jk)²; P is the softmax of ``logits`` over each node's edges.
        """

    def edge_laplacian(
        self, pattern: Pattern, weights: Array, t: Array, metric: Array, *, pull: Array
    ) -> Array:
        """Write 2 L t for a symmetric adjacency; return R = ½ Σ A_ij D_ij."""

    def gram_factors(self, gram: Array) -> tuple[Array, Array, Array]:
        """Return E (r, r), γ (r,) ≥ 0 and E⁻¹ of a Gram matrix G = E diag(γ) Eᵀ; E may be any such matrix."""

    def multiply(self, x: Array, factor: Any, *, out: Array) -> None:
        """Write x · factor, entry by entry; ``factor`` is a number or an array that broadcasts to x."""

    def add(self, target: Array, x: Array) -> None:
        """Add x to ``target``."""

    def decay(self, parts: Sequence[DecayPart], *, weight: float) -> Array:
        """Add weight · g ⊙ matrix to the slope of each part; return ½ Σ g ‖row‖² over all parts."""

    def total(self, x: Array, *, out: Array) -> None:
        """Write the sum of all entries of x, taken in float64, to the only entry of ``out``."""
