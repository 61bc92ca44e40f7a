"""Turning what an engine records into states and history."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from airnp import metrics
from airnp._arrays import Array, to_numpy
from airnp.data.prepared import PreparedData
from airnp.model.objective import Objective
from airnp.results.history import History, energy_columns
from airnp.training.steps import Training


class Watcher:
    """Turns what the engine recorded into states and history."""

    def __init__(self, objective: Objective, data: PreparedData, truth: Any) -> None:
        self._objective = objective
        self._data = data
        self._energies = energy_columns([regularizer.name for regularizer in objective.regularizers])
        self._learned = tuple(
            name
            for name, term in zip(self._energies, objective.terms, strict=True)
            if term.parameter_shape is not None and term.weight > 0
        )
        self._missing_from = None if data.original is None else to_numpy(data.observations.mask)
        self._truth = None if truth is None else self._checked_truth(truth)
        self.history = History(
            ["loss", "fidelity", *self._energies, *(["nmae"] if truth is not None else [])]
        )
        self._last: npt.NDArray[np.float64] | None = None

    def _checked_truth(self, truth: Any) -> npt.NDArray[Any]:
        values = to_numpy(truth)
        shape = (*self._objective.batch, *self._objective.shape)
        if values.shape != shape:
            raise ValueError(f"truth: expected shape {shape}, got {values.shape}")
        if self._missing_from is not None and bool(self._missing_from.all(axis=(-2, -1)).any()):
            raise ValueError("truth: nothing is missing, so there is no error on missing entries to record")
        metrics.nmae(np.zeros(shape), values, self._missing_from)  # raises now what it would raise later
        return values

    def remembered(self) -> npt.NDArray[np.float64] | None:
        """Return the energies of the last iteration, None before the first."""
        return self._last

    def restore(self, history: History, energies: npt.NDArray[np.float64] | None) -> None:
        """Go on with what another watcher of the same fit had recorded and remembered."""
        if list(history) != list(self.history):
            expected, found = (", ".join(one) for one in (history, self.history))
            raise ValueError(f"regularizers: expected those of the run, with columns {expected}; got {found}")
        self.history, self._last = history, energies

    def state(self, training: Training, values: npt.NDArray[np.float64]) -> FitState:
        """Return the state after some iterations, from what they recorded."""
        fidelity, energies = values[-1, 0], values[-1, 1:]
        before = values[-2, 1:] if len(values) > 1 else self._last
        self._last = energies
        return FitState(
            iteration=training.iteration,
            loss=_plain(self._objective.losses(fidelity, list(energies))),
            fidelity=_plain(fidelity),
            energies={name: _plain(energy) for name, energy in zip(self._energies, energies, strict=True)},
            energy_change=None if before is None else np.abs(energies - before),
            params=training.params,
            learned=self._learned,
            multiply=self._objective.matrix,
            undo=self._data.normalization.undo,
            adjacencies=self._objective.adjacencies,
        )

    # The matrix may overflow one iteration before the loss, and the fit reports that.
    @np.errstate(over="ignore", invalid="ignore")
    def record(self, state: FitState) -> None:
        """Add a state to the history."""
        row = {"loss": state.loss, "fidelity": state.fidelity, **state.energies}
        if self._truth is not None:
            row["nmae"] = np.asarray(metrics.nmae(state.X, self._truth, self._missing_from))
        self.history.append(state.iteration, row)


def _plain(value: npt.NDArray[np.float64]) -> Any:
    """Return a Python float for one problem, an array for a stack."""
    return float(value) if np.ndim(value) == 0 else value


Values = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class FitState:
    """The state after some iterations. Its arrays belong to the fit: look, do not touch.

    The parameters change with the next iteration; ``X``, once asked for, stays as it is.

    Attributes
    ----------
    iteration : int
        How many iterations were made.
    loss, fidelity : float or array (…)
        As the last iteration computed them, in normalised units.
    energies : dict of str to float or array (…)
        Each regulariser's R, without its λ.
    energy_change : array or None
        How much each energy changed from the iteration before, absolute; None at the first.
    params : list of arrays
        Factors W[0] … W[L-1], then V of each learned graph.
    learned : tuple of str
        Which of ``energies`` have a graph that is being learned.
    """

    iteration: int
    loss: Values
    fidelity: Values
    energies: dict[str, Values]
    energy_change: Values | None
    params: list[Array]
    learned: tuple[str, ...]
    multiply: Callable[[list[Array]], Array]
    undo: Callable[[Array], Array]
    adjacencies: Callable[[list[Array]], list[Any]]

    @cached_property
    def normalized_matrix(self) -> Array:
        """The product of the factors, in normalised units."""
        return self.multiply(self.params)

    @cached_property
    def graphs(self) -> dict[str, Array]:
        """The adjacency of each graph that is being learned, by the names of ``learned``."""
        found = zip(self.energies, self.adjacencies(self.params), strict=True)
        return {name: adjacency for name, adjacency in found if name in self.learned}

    @cached_property
    def X(self) -> Array:  # noqa: N802
        """The matrix at this moment, in the data's units."""
        return self.undo(self.normalized_matrix)
