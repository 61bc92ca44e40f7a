"""The task of a dense fit: matrices that are formed as a whole, alone or in stacks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from array_api_compat import is_cupy_namespace, is_numpy_namespace

from airnp._arrays import Array, dtype_name, from_numpy, to_numpy
from airnp._devices import available_memory, device_memory
from airnp.data.holdout import hold_out
from airnp.data.inputs import Labels, Observations
from airnp.data.linearmaps import Operator, Transform, measurement_operator
from airnp.data.normalization import Normalization, PreparedData
from airnp.engines import EngineChoice
from airnp.engines.contract import NO_MEMORY
from airnp.model.objective import ModelSettings, Objective
from airnp.regularizers.base import linked_lines
from airnp.results.calibration import Calibration, calibration
from airnp.results.files import result_record
from airnp.results.result import FitResult, FittedRegularizer
from airnp.training.recorder import FitState
from airnp.training.task import Bools, Choice, Refit, Values


@dataclass(frozen=True)
class DenseTask:
    """What a dense fit was asked to do; see :class:`airnp.training.task.Task`."""

    data: PreparedData
    settings: ModelSettings
    engine: EngineChoice

    refit: Refit = "continue"

    @property
    def xp(self) -> Any:
        """Namespace of the fit."""
        return self.data.observations.xp

    @property
    def dtype(self) -> str:
        """Type of the fit."""
        return self.data.observations.dtype

    @property
    def truth_shape(self) -> tuple[int, ...]:
        """Shape of the complete matrix, or stack."""
        seen = self.data.observations
        batch = tuple(seen.values.shape[:-2]) if self.data.operator is None else ()
        return (*batch, *self.data.shape)

    @property
    def sizes(self) -> tuple[tuple[int, ...], int, int, int, int | None, str, int, int | None]:
        """What :func:`explained_memory` takes, from the shape of the stack to the bytes that are free."""
        settings, (m, n), xp = self.settings, self.data.shape, self.xp
        graphs = sum(regularizer.graph_numbers(m, n) for regularizer in settings.regularizers)
        rank = settings.rank if isinstance(settings.rank, int) and 0 < settings.rank <= min(m, n) else None
        room = available_memory() if is_numpy_namespace(xp) else None
        if is_cupy_namespace(xp):
            room = device_memory(self.data.observations.device)
        return self.truth_shape[:-2], m, n, settings.depth, rank, self.dtype, graphs, room

    @property
    def observed(self) -> Bools | None:
        """Mask of the observed entries; None after an operator."""
        return None if self.data.original is None else to_numpy(self.data.observations.mask)

    def judge(self, fraction: float | None, seed: int) -> DenseJudge:
        """Hold out entries at random, or under copies of the holes, each problem by itself."""
        observed, operator = to_numpy(self.data.observations.mask), self.data.operator
        problems = (
            observed.reshape(-1, *observed.shape[-2:]) if operator is None else observed.reshape(1, 1, -1)
        )
        held = np.stack([hold_out(problem, fraction, seed) for problem in problems])
        return DenseJudge(self.data.observations, operator, held.reshape(observed.shape))

    def objective(self, held_out: Bools | None) -> Objective:
        """Return the objective of all observed entries but those that are held out."""
        seen = self.data.observations
        if held_out is not None:
            seen = replace(seen, weights=seen.weights * seen.place(~held_out, seen.dtype))
        return Objective.of_data(self.data, seen, self.settings, self.engine)

    def undo(self, matrix: Array) -> Array:
        """Return a matrix in the data's units; bounds are for results alone."""
        return self.data.normalization.undo(matrix)

    def result(
        self,
        objective: Objective,
        chosen: Choice,
        blind: Choice | None,
        held_out: Bools | None,
        **told: Any,
    ) -> FitResult:
        """Return the result at an iterate."""
        data, iteration = self.data, chosen.iteration
        params = self._with_filled_lines(objective, chosen.params)
        return FitResult(
            matrix=data.restored(objective.matrix(params)),
            factors=list(params[: objective.depth]),
            regularizers=_fitted_regularizers(objective, params),
            **told,
            best_iter=int(iteration) if iteration.ndim == 0 else iteration,
            normalization=data.normalization,
            mask=None if data.original is None else data.observations.mask,
            observed=data.original,
            labels=data.observations.labels,
            calibration=self._calibration(objective, blind, held_out),
            bounds=data.bounds,
        )

    def _with_filled_lines(self, objective: Objective, params: list[Array]) -> list[Array]:
        """Return parameters in which lines without entries have the mean factor of the others.

        Only where no regulariser links them to others: their own factors are where they started, and their
        entries would be the least of the data. The row of W[L-1] is that of X, the column of W[0] that of X.
        """
        if self.data.original is None:
            return params
        filled, linked = list(params), linked_lines(objective.terms)
        xp, mask = self.xp, self.data.observations.mask
        for axis, level, across in (("rows", objective.depth - 1, -1), ("columns", 0, -2)):
            seen = xp.any(mask, axis=across, keepdims=True)
            if axis not in linked and not bool(xp.all(seen)):
                factor = filled[level]
                along = -2 if axis == "rows" else -1
                weights = xp.astype(seen, factor.dtype)
                mean = xp.sum(weights * factor, axis=along, keepdims=True)
                mean = mean / xp.sum(weights, axis=along, keepdims=True)
                filled[level] = xp.where(seen, factor, mean)
        return filled

    def _calibration(
        self, objective: Objective, blind: Choice | None, held_out: Bools | None
    ) -> Calibration | None:
        """Return the held-out entries beside what was predicted before anything saw them."""
        data = self.data
        if data.original is None or held_out is None or blind is None:
            return None
        fold = held_out, to_numpy(objective.matrix(blind.params))
        return calibration(data.original, [fold], data.normalization, data.bounds)

    def record(self, result: FitResult) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return a result as a header that JSON can hold, and named arrays of NumPy."""
        return result_record(result.to_numpy())

    def stored(self) -> dict[str, Any]:
        """Return what a file has to hold to make this task again."""
        data, seen, settings = self.data, self.data.observations, self.settings
        return {
            "regularizers": settings.regularizers,
            "operator": data.operator,
            "shape": data.shape,
            "values": seen.values,
            "mask": seen.mask,
            "weights": seen.weights,
            "original": data.original,
            "offset": data.normalization.offset,
            "scale": data.normalization.scale,
            "bounds": data.bounds,
            "depth": settings.depth,
            "rank": settings.rank,
            "fidelity": settings.fidelity,
        }

    @classmethod
    def restore(
        cls, stored: dict[str, Any], place: Observations, engine: EngineChoice, labels: Labels | None
    ) -> DenseTask:
        """Return the task that :meth:`stored` described, with arrays where ``place`` is."""
        seen = Observations(
            stored["values"], stored["mask"], stored["weights"], place.xp, place.device, place.dtype, labels
        )
        _check_stored(stored, place.dtype)
        operator = stored["operator"]
        if operator is not None:
            operator, _ = Operator.parts(operator)
            operator, _ = measurement_operator(operator, seen.values, stored["shape"], place.xp)
        data = PreparedData(
            seen,
            Normalization(stored["offset"], stored["scale"]),
            operator,
            tuple(stored["shape"]),
            stored["original"],
            stored["bounds"],
        )
        settings = ModelSettings(
            list(stored["regularizers"]), stored["depth"], stored["rank"], stored["fidelity"]
        )
        return cls(data, settings, engine)


def _check_stored(stored: dict[str, Any], dtype: str) -> None:
    """Raise ValueError unless the arrays of a file have the shapes and dtypes of one problem."""
    shape = tuple(stored["values"].shape)
    kinds = {"values": dtype, "mask": "bool", "weights": dtype, "original": dtype}
    for name, kind in kinds.items():
        array = stored[name]
        if array is not None and (tuple(array.shape) != shape or dtype_name(array.dtype) != kind):
            raise ValueError(f"{name}: expected {kind} {shape}, the file has {array.dtype} {array.shape}")
    batch = shape[:-2] if stored["operator"] is None else ()
    if stored["operator"] is None and shape[-2:] != tuple(stored["shape"]):
        raise ValueError(f"values: expected {tuple(stored['shape'])}, the file has {shape}")
    for name in ("offset", "scale"):
        if tuple(stored[name].shape) != (*batch, 1, 1) or dtype_name(stored[name].dtype) != dtype:
            raise ValueError(f"{name}: expected {dtype} {(*batch, 1, 1)}, the file has {stored[name].shape}")


def _fitted_regularizers(objective: Objective, params: list[Array]) -> list[FittedRegularizer]:
    """Return each regulariser of an objective, with its graph and energy at some parameters."""
    energies = objective.evaluate(params, memory=NO_MEMORY).energies
    graphs = iter(params[objective.depth :])
    return [
        FittedRegularizer(
            regularizer.name,
            repr(regularizer),
            term.weight,
            energy,
            adjacency,
            next(graphs) if term.parameter_shape is not None else None,
        )
        for regularizer, term, energy, adjacency in zip(
            objective.regularizers, objective.terms, energies, objective.adjacencies(params), strict=True
        )
    ]


class DenseJudge:
    """Judges iterates by the mean absolute error on held-out entries, or measurements.

    Parameters
    ----------
    observations : Observations
        Normalised, all of them.
    operator : Transform or None
    held_out : ndarray of bool
        The shape of the observations.
    """

    def __init__(self, observations: Observations, operator: Transform | None, held_out: Bools) -> None:
        self.held_out = held_out
        self.batch = held_out.shape[:-2] if operator is None else ()
        self._operator, self._xp, self._values = operator, observations.xp, observations.values
        self._axes = (-2, -1) if operator is None else tuple(range(held_out.ndim))
        mask, weights = to_numpy(observations.mask), to_numpy(observations.weights).astype(np.float64)
        watched = np.where(held_out.any(axis=self._axes, keepdims=True), held_out, mask)
        kept = np.where(held_out, 0.0, weights)
        self.weights = kept.sum(axis=self._axes), weights.sum(axis=self._axes)
        self._shares = [self._share(part, observations) for part in (watched, kept)]

    def _share(self, part: npt.NDArray[Any], observations: Observations) -> Array:
        share = part / part.sum(axis=self._axes, keepdims=True)
        return from_numpy(share, observations.xp, observations.device, observations.dtype)

    def errors(self, state: FitState) -> tuple[Values, Values]:
        """Return the mean absolute error on held-out entries and on fitted ones, by problem."""
        fitted = state.normalized_matrix
        if self._operator is not None:
            fitted = self._xp.reshape(self._operator.forward(fitted), self._values.shape)
        size = self._xp.abs(fitted - self._values)
        sums = [self._xp.sum(share * size, axis=self._axes) for share in self._shares]
        watched, kept = to_numpy(self._xp.stack(sums)).astype(np.float64)
        return watched, kept
