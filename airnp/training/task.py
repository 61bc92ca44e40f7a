"""What the loop needs from a model, whichever form it has: protocols, and the iterates that are chosen.

:mod:`airnp.training.dense` and :mod:`airnp.training.sparse` implement them. What truly differs between the
two forms is declared there as data: how a refit goes on, by which measure held-out entries judge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

import array_api_compat as compat
import numpy as np
import numpy.typing as npt

from airnp._arrays import Array, copied, from_numpy
from airnp.engines.contract import Engine, Memory, Update
from airnp.optimizers import Kind

Bools = npt.NDArray[np.bool_]
Values = npt.NDArray[np.float64]
Refit: TypeAlias = Literal["continue", "restart"]


@dataclass(frozen=True)
class Choice:
    """Parameters to return, and the iterations they come from (one per problem of a stack).

    ``structure`` is that of the objective they belong to; see :class:`Trainable`.
    """

    params: list[Array]
    iteration: npt.NDArray[np.int64]
    structure: Any = None


def merge(chosen: Bools, state: Any, others: Choice | None) -> Choice:
    """Return a copy of ``state`` for the chosen problems, ``others`` (iteration 0 if None) for the rest."""
    copies = [copied(param) for param in state.params]
    now = Choice(copies, np.full(chosen.shape, state.iteration, dtype=np.int64), state.structure)
    return choose(chosen, now, others or Choice(copies, np.zeros(chosen.shape, dtype=np.int64)))


def choose(chosen: Bools, first: Choice, second: Choice) -> Choice:
    """Return the chosen problems of the first, all others of the second."""
    if np.all(chosen):
        return first
    like = first.params[0]
    xp = compat.array_namespace(like)
    flags = from_numpy(chosen[..., None, None], xp, compat.device(like), "bool")
    params = [xp.where(flags, a, b) for a, b in zip(first.params, second.params, strict=True)]
    return Choice(params, np.where(chosen, first.iteration, second.iteration), first.structure)


class Trainable(Protocol):
    """An objective, as the iterations see it."""

    @property
    def engine(self) -> Engine:
        """The engine that carries out the operations."""

    @property
    def batch(self) -> tuple[int, ...]:
        """Shape of the stack; empty for one matrix."""

    @property
    def energy_names(self) -> list[str]:
        """What each energy belongs to."""

    @property
    def learned(self) -> list[bool]:
        """For each energy, whether it is that of a graph that is being learned."""

    @property
    def is_plain(self) -> bool:
        """Whether a step consists of the engine's operations on the same arrays each time, to be replayed."""

    @property
    def portion(self) -> int:
        """Iterations at most between two whole states: what an interrupt or a divergence may cost."""

    @property
    def rhythms(self) -> Sequence[int]:
        """Iterations after whose multiples :meth:`refresh` has something to do."""

    @property
    def param_shapes(self) -> list[tuple[int, ...]]:
        """Shapes of all parameters."""

    structure: Any
    """What changes during a fit besides the parameters, such as edges. Replaced, never changed in place."""

    def init(self, seed: int | None, init: Any) -> list[Array]:
        """Return the parameters to start from."""

    def adopt(self, params: list[Array]) -> list[Array]:
        """Return parameters that were saved, in memory from which iterations go on bit for bit."""

    def kinds(self, params: Sequence[Array]) -> list[Kind]:
        """Return what the optimiser calls each parameter."""

    def step(
        self, params: Sequence[Array], updates: Sequence[Update], memory: Memory
    ) -> tuple[list[Array], list[Array]]:
        """Make one iteration; return the parameters, and fidelity and energies as they were before it."""

    def refresh(self, iteration: int, params: list[Array], memory: Any) -> bool:
        """Bring the structure up to date; return whether parameters or moments became other arrays."""

    def losses(self, fidelity: Any, energies: Sequence[Any]) -> Values:
        """Return F + Σ λ R, per problem."""

    def is_finite(self, params: Sequence[Array]) -> bool:
        """Whether the model is finite at these parameters."""

    def matrix(self, params: Sequence[Array]) -> Array:
        """Return X in normalised units."""

    def adjacencies(self, params: Sequence[Array]) -> list[Any]:
        """Return each regulariser's adjacency; None where it has no graph."""


class Judge(Protocol):
    """Judges iterates by the observed entries that the fit does not see."""

    @property
    def held_out(self) -> Bools:
        """Which observed entries are held out, in the shape that the form has them."""

    @property
    def batch(self) -> tuple[int, ...]:
        """Shape of the stack; empty for one matrix."""

    @property
    def weights(self) -> tuple[Values, Values]:
        """Total weight of the entries that are fitted, and of all, by problem."""

    def errors(self, state: Any) -> tuple[Values, Values]:
        """Return the error on held-out entries and on fitted ones, by problem.

        Without any held-out entry, the fitted ones are watched: patience then ends a fit that has converged.
        """


class Task(Protocol):
    """What a run was asked to do; none of it changes on the way."""

    @property
    def refit(self) -> Refit:
        """How a fit goes on with the held-out entries: from the best iterate, or again from the start."""

    @property
    def truth_shape(self) -> tuple[int, ...] | None:
        """Shape of the complete matrix, to compare with; None if it is never formed."""

    @property
    def observed(self) -> Bools | None:
        """Mask of the observed entries, in the shape of the matrix; None where there is no such mask."""

    def judge(self, fraction: float | None, seed: int) -> Judge:
        """Hold out a share of the observed entries, in the shape of the gaps."""

    def objective(self, held_out: Bools | None) -> Trainable:
        """Return the objective of all observed entries but those that are held out."""

    def undo(self, matrix: Array) -> Array:
        """Return a matrix in the data's units."""

    def result(
        self,
        objective: Any,
        chosen: Choice,
        blind: Choice | None,
        held_out: Bools | None,
        **told: Any,
    ) -> Any:
        """Return the result at an iterate; ``blind`` is the best one that has not seen held-out entries.

        ``told`` are the result's history, n_iter, stop_reason and seed.
        """

    def record(self, result: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return a result as a header that JSON can hold, and named arrays of NumPy."""

    def stored(self) -> dict[str, Any]:
        """Return what a file has to hold to make this task again, as plain values and arrays.

        ``"regularizers"`` and ``"operator"`` are what users may have to give again.
        """

    @property
    def xp(self) -> Any:
        """Namespace of the fit."""

    @property
    def dtype(self) -> str:
        """Type of the fit."""
