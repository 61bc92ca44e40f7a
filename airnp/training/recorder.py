"""A fit at one moment, as stopping rules and callbacks see it; recorders of its history and of its graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from airnp import metrics
from airnp._arrays import Array, to_numpy
from airnp._checks import checked_whole
from airnp.results.history import History, energy_columns
from airnp.training.task import Task, Trainable, Values


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
        Factors W[0] … W[L-1], then V of each learned graph; for a sparse fit W[0] is transposed, and
        what offsets and the mask factor need stands in between.
    learned : tuple of str
        Which of ``energies`` have a graph that is being learned.
    structure : object
        What the parameters belong to besides, such as candidate edges; None for a dense fit.
    result : callable
        ``result()`` is what the fit would return now.
    """

    iteration: int
    loss: Values
    fidelity: Values
    energies: dict[str, Values]
    energy_change: Values | None
    params: list[Array]
    learned: tuple[str, ...]
    structure: Any
    result: Callable[[], Any]
    objective: Trainable
    undo: Callable[[Array], Array]

    @cached_property
    def normalized_matrix(self) -> Array:
        """The matrix at this moment, in normalised units."""
        return self.objective.matrix(self.params)

    @cached_property
    def graphs(self) -> dict[str, Array]:
        """The adjacency of each graph that is being learned, by the names of ``learned``."""
        found = zip(self.energies, self.objective.adjacencies(self.params), strict=False)
        return {name: adjacency for name, adjacency in found if name in self.learned}

    @cached_property
    def X(self) -> Array:  # noqa: N802
        """The matrix at this moment, in the data's units."""
        return self.undo(self.normalized_matrix)


class Recorder:
    """Turns what iterations recorded into states and history.

    Parameters
    ----------
    objective : Trainable
    task : Task
    truth : array-like (…, m, n), optional
        The complete matrix, to record the NMAE on missing entries.
    """

    def __init__(self, objective: Trainable, task: Task, truth: Any) -> None:
        self.objective = objective
        self._task = task
        self._energies = energy_columns(objective.energy_names)
        self._learned = tuple(
            name for name, learned in zip(self._energies, objective.learned, strict=True) if learned
        )
        self._truth = None if truth is None else self._checked_truth(truth)
        measured = ["nmae"] if truth is not None else []
        self.history = History(["loss", "fidelity", *self._energies, *measured])
        self.last_energies: npt.NDArray[np.float64] | None = None

    def _checked_truth(self, truth: Any) -> npt.NDArray[Any]:
        shape, mask = self._task.truth_shape, self._task.observed
        if shape is None:
            raise ValueError("record: truth is for airnp.fit; fit_sparse never forms the whole matrix")
        values = to_numpy(truth)
        if values.shape != shape:
            raise ValueError(f"truth: expected shape {shape}, got {values.shape}")
        if mask is not None and bool(mask.all(axis=(-2, -1)).any()):
            raise ValueError("truth: nothing is missing, so there is no error on missing entries to record")
        metrics.nmae(np.zeros(shape), values, mask)  # raises now what it would raise later
        return values

    def restore(self, history: History, energies: npt.NDArray[np.float64] | None) -> None:
        """Go on with the history and the last energies of another run of the same fit."""
        if list(history) != list(self.history):
            expected, found = (", ".join(one) for one in (history, self.history))
            raise ValueError(f"regularizers: expected those of the run, with columns {expected}; got {found}")
        self.history, self.last_energies = history, energies

    def state(
        self,
        iteration: int,
        params: list[Array],
        values: npt.NDArray[np.float64],
        result: Callable[[], Any],
    ) -> FitState:
        """Return the state after some iterations, from what they recorded, (iterations, 1 + terms, …)."""
        fidelity, energies = values[-1, 0], values[-1, 1:]
        before = values[-2, 1:] if len(values) > 1 else self.last_energies
        self.last_energies = energies
        return FitState(
            iteration=iteration,
            loss=_plain(self.objective.losses(fidelity, list(energies))),
            fidelity=_plain(fidelity),
            energies={name: _plain(energy) for name, energy in zip(self._energies, energies, strict=True)},
            energy_change=None if before is None else np.abs(energies - before),
            params=params,
            learned=self._learned,
            structure=self.objective.structure,
            result=result,
            objective=self.objective,
            undo=self._task.undo,
        )

    def record_values(self, iteration: int, values: npt.NDArray[np.float64]) -> None:
        """Add what an iteration recorded, (1 + terms, …), to the history, where there is no truth."""
        fidelity, energies = values[0], values[1:]
        row = {"loss": _plain(self.objective.losses(fidelity, list(energies))), "fidelity": _plain(fidelity)}
        named = zip(self._energies, energies, strict=True)
        self.history.append(iteration, {**row, **{name: _plain(energy) for name, energy in named}})

    # The matrix may overflow one iteration before the loss, and the fit reports that.
    @np.errstate(over="ignore", invalid="ignore")
    def record(self, state: FitState) -> None:
        """Add a state to the history."""
        row = {"loss": state.loss, "fidelity": state.fidelity, **state.energies}
        if self._truth is not None:
            row["nmae"] = np.asarray(metrics.nmae(state.X, self._truth, self._task.observed))
        self.history.append(state.iteration, row)


def _plain(value: npt.NDArray[np.float64]) -> Any:
    """Return a Python float for one problem, an array for a stack."""
    return float(value) if np.ndim(value) == 0 else value


_USUAL = (1, 100, 1000, 3000, 10_000, 30_000)
"""Iterations at which graphs are kept by default."""


class GraphRecorder:
    """A callback of :func:`airnp.fit` that keeps the learned graphs of some moments.

    Parameters
    ----------
    at : sequence of int
        Iterations at which to keep them. A fit calls back at its first iteration, at its last, and at every
        multiple of ``record``; each moment is taken at the first call that is not before it.

    Attributes
    ----------
    moments : list of int
        Iterations whose graphs were kept. A new fit starts with an empty list.

    Notes
    -----
    The last graphs here are those of the last moment, not those of the result, which may come from another
    iterate.

    Examples
    --------
    >>> import airnp
    >>> recorder = GraphRecorder(at=[1, 15, 30])
    >>> Y = np.random.default_rng(0).random((8, 6))
    >>> result = airnp.fit(Y, regularizers=None, max_iter=40, stop=None, callback=recorder)
    >>> recorder
    <GraphRecorder of rows, columns at 1, 20, 30>
    >>> recorder.adjacencies("rows").shape
    (3, 8, 8)
    """

    def __init__(self, at: Sequence[int] = _USUAL) -> None:
        self.at = sorted({checked_whole("at", moment) for moment in at})
        self.moments: list[int] = []
        self._graphs: list[dict[str, npt.NDArray[Any]]] = []

    def __call__(self, iteration: int, state: FitState) -> None:
        """Keep the graphs of this iteration if a moment has come since the last call."""
        if self.moments and iteration <= self.moments[-1]:
            self.moments, self._graphs = [], []
        last = self.moments[-1] if self.moments else 0
        if any(last < moment <= iteration for moment in self.at):
            self._graphs.append(
                {
                    name.removeprefix("energy_"): np.array(to_numpy(adjacency))
                    for name, adjacency in state.graphs.items()
                }
            )
            self.moments.append(iteration)

    @property
    def names(self) -> list[str]:
        """The graphs that were learned: ``"rows"``, ``"columns"``, with a number where a name comes again."""
        return list(self._graphs[0]) if self._graphs else []

    def adjacencies(self, name: str) -> npt.NDArray[Any]:
        """Return A of one graph at all moments, shape (moments, …, k, k).

        Raises
        ------
        KeyError
            When no such graph was recorded.
        """
        if not self.moments:
            raise KeyError("nothing was recorded yet: give the recorder to airnp.fit as callback=")
        if name not in self.names:
            there = ", ".join(map(repr, self.names)) or "none: the fit learned no graphs"
            raise KeyError(f"no graph {name!r} was recorded; there are {there}")
        return np.stack([graphs[name] for graphs in self._graphs])

    def laplacians(self, name: str) -> npt.NDArray[Any]:
        """Return L = deg(A) − A of one graph at all moments, shape (moments, …, k, k)."""
        adjacencies = self.adjacencies(name)
        identity = np.eye(adjacencies.shape[-1], dtype=adjacencies.dtype)
        return np.asarray(adjacencies.sum(axis=-1)[..., None] * identity - adjacencies)

    def __repr__(self) -> str:
        moments = ", ".join(map(str, self.moments)) or "no moment yet"
        return f"<GraphRecorder of {', '.join(self.names) or 'nothing'} at {moments}>"
