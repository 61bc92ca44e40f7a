"""The task of a sparse fit: thin factors, observed entries, candidate edges; nothing of the matrix's size."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np

from airnp._arrays import Array, own_module, to_numpy
from airnp.data.bounds import Bounds
from airnp.data.entries import Entries, read_entries
from airnp.data.holdout import random_entries
from airnp.data.normalization import entries_by_range
from airnp.engines import EngineChoice
from airnp.engines.contract import Offsets
from airnp.model.factored import FactoredObjective, Layout
from airnp.regularizers import Regularizer, WeightDecay
from airnp.regularizers.base import linked_lines
from airnp.results.files import sparse_record
from airnp.results.sparse_result import SparseFitResult, SparseGraph
from airnp.training.recorder import FitState
from airnp.training.task import Bools, Choice, Refit, Values

_STORED = ("entries", "base", "span", "regularizers", "scale", "shrinkage", "bounds", "batch_size", "seed")


@dataclass(frozen=True)
class SparseTask:
    """What a sparse fit was asked to do; see :class:`airnp.training.task.Task`.

    Attributes
    ----------
    entries : Entries
        In the units that are fitted.
    base, span : float
        The way back to the data's units: X = base + span · X̂.
    layout : Layout
    regularizers : list of Regularizer
    scale : float
        s of the fidelity.
    shrinkage : float or None
        κ of the offsets; None for none.
    bounds : Bounds or None
    batch_size : int or None
    seed : int
        Of the batches.
    engine : EngineChoice
    xp : module
    """

    entries: Entries
    base: float
    span: float
    layout: Layout
    regularizers: list[Regularizer]
    scale: float
    shrinkage: float | None
    bounds: Bounds | None
    batch_size: int | None
    seed: int
    engine: EngineChoice
    xp: Any

    refit: Refit = "restart"
    truth_shape: None = None
    observed: None = None

    @property
    def dtype(self) -> str:
        """Type of the fit."""
        return self.entries.values.dtype.name

    def judge(self, fraction: float | None, seed: int) -> SparseJudge:
        """Hold out entries at random."""
        return SparseJudge(self.entries, random_entries(self.entries, fraction, seed))

    def objective(self, held_out: Bools | None) -> FactoredObjective:
        """Return the objective of all entries but those that are held out."""
        entries = self.entries
        if held_out is not None and held_out.any():
            entries = entries.chosen(np.flatnonzero(~held_out))
        return FactoredObjective(
            entries,
            self.layout,
            self.regularizers,
            ops=self.engine.ops,
            xp=own_module(self.xp),
            scale=self.scale,
            shrinkage=self.shrinkage or 0.0,
            batch_size=self.batch_size,
            seed=self.seed,
            threads=self.engine.threads,
        )

    def undo(self, matrix: Array) -> Array:
        """Return a matrix in the data's units."""
        return self.base + self.span * matrix

    def result(
        self,
        objective: FactoredObjective,
        chosen: Choice,
        blind: Choice | None,
        held_out: Bools | None,
        **told: Any,
    ) -> SparseFitResult:
        """Return the result at an iterate, in the data's units."""
        sides = objective.sides(chosen.params)
        offsets = None
        if self.layout.offsets:
            mean = self.base + self.span * float(sides.offsets.mean[0, 0])
            rows, columns = (_scaled(side, self.span) for side in (sides.offsets.rows, sides.offsets.columns))
            offsets = Offsets(mean, rows, columns)
        factors = [_scaled(side, np.sqrt(self.span)) for side in (sides.u, sides.v)]
        if offsets is None:
            self._fill_empty_lines(objective, factors)
        return SparseFitResult(
            row_factors=factors[0],
            column_factors=factors[1],
            offsets=offsets,
            base=self.base,
            graphs=_fitted_graphs(objective, chosen),
            **told,
            best_iter=int(chosen.iteration),
            bounds=self.bounds,
            mask_factors=self._mask_factors(chosen),
            penalties=self._penalties(),
        )

    def _mask_factors(self, chosen: Choice) -> tuple[Any, Any]:
        """Return Y and Z in the units of the factors."""
        y, z = self.layout.masks(chosen.params)
        scale = np.sqrt(self.span)
        return (None if y is None else _scaled(y, scale)), (None if z is None else _scaled(z, scale))

    def _penalties(self) -> tuple[float, float, float]:
        """Return κ and both decays beside ½ Σ (x − y)² in the data's units.

        With x = base + span · x̂ and u = √span · û, s/2 Σ (x̂ − ŷ)² + λ/2 √n ‖û‖² is s/span² times
        ½ Σ (x − y)² + λ span/(2 s) √n ‖u‖²; κ, which s multiplies, stays as it is.
        """
        decays = {"factors": 0.0, "mask": 0.0}
        for item in self.regularizers:
            if isinstance(item, WeightDecay) and item.growth == "sqrt":
                decays[item.on] += float(item.weight) * self.span / self.scale
        return self.shrinkage or 0.0, decays["factors"], decays["mask"]

    def _fill_empty_lines(self, objective: FactoredObjective, factors: list[Any]) -> None:
        """Give lines without entries, which no graph links to others, the mean factor of the others.

        Their own factors are where they started: their entries would be the least of the data.
        """
        counts = {"rows": self.entries.pattern.counts, "columns": self.entries.column_counts}
        linked = linked_lines(objective.terms)
        for factor, (axis, count) in zip(factors, counts.items(), strict=True):
            if axis not in linked and (count == 0).any():
                factor[count == 0] = factor[count > 0].mean(axis=0)

    def record(self, result: SparseFitResult) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return a result as a header that JSON can hold, and named arrays of NumPy."""
        header, arrays = sparse_record(result)
        return {**header, "data": self._fingerprint}, arrays

    @cached_property
    def _fingerprint(self) -> str:
        return fingerprint(self.entries, self.base, self.span)

    def stored(self) -> dict[str, Any]:
        """Return what a file has to hold to make this task again."""
        return {"layout": asdict(self.layout), **{name: getattr(self, name) for name in _STORED}}

    @classmethod
    def restore(cls, stored: dict[str, Any], engine: EngineChoice, xp: Any) -> SparseTask:
        """Return the task that :meth:`stored` described."""
        parts = {name: stored[name] for name in _STORED}
        return cls(**parts, layout=Layout(**stored["layout"]), engine=engine, xp=xp)


def fingerprint(entries: Entries, base: float, span: float) -> str:
    """Return a hash of the entries, to detect a resume with different data.

    Examples
    --------
    >>> from airnp.data.entries import Pattern
    >>> some = Entries(Pattern(np.array([0, 1]), np.array([0]), 1), np.array([0.5]))
    >>> fingerprint(some, 0.0, 1.0) == fingerprint(some, 1.0, 1.0)
    False
    """
    found = blake2b(repr((entries.shape, base, span)).encode(), digest_size=16)
    for part in (entries.pattern.indptr, entries.pattern.indices, entries.values, entries.weights):
        found.update(b"" if part is None else np.ascontiguousarray(part).data)
    return found.hexdigest()


def check_same_data(header: dict[str, Any], S: Any, dtype: Any) -> None:
    """Raise unless the run in a file, of which this is the header, fits these very entries."""
    if header.get("data") != fingerprint(*entries_by_range(read_entries(S, dtype))):
        raise ValueError("Y: expected the entries that the run in the file fits, got others")


def _scaled(array: Any, factor: Any) -> Any:
    return to_numpy(array * array.dtype.type(factor))


def _fitted_graphs(objective: FactoredObjective, chosen: Choice) -> list[SparseGraph]:
    """Return each graph of an objective, with its energy, at an iterate."""
    now = objective.structure
    objective.structure = chosen.structure  # the iterate's edges, to which its V belongs
    try:
        adjacencies = objective.adjacencies(chosen.params)
        if all(adjacency is None for adjacency in adjacencies):
            return []
        energies = objective.evaluate(chosen.params).energies
        found = zip(objective.regularizers, objective.terms, energies, adjacencies, strict=False)
        return [
            SparseGraph(
                regularizer.name,
                repr(regularizer),
                term.weight,
                float(energy),
                adjacency,
                term.candidates is not None,
            )
            for regularizer, term, energy, adjacency in found
            if adjacency is not None
        ]
    finally:
        objective.structure = now


class SparseJudge:
    """Judges iterates by the root mean square error on held-out entries.

    Parameters
    ----------
    entries : Entries
    held_out : ndarray of bool (nnz,)
    """

    batch: tuple[int, ...] = ()

    def __init__(self, entries: Entries, held_out: Bools) -> None:
        self.held_out = held_out
        watched = entries.chosen(np.flatnonzero(held_out)) if held_out.any() else entries
        self._rows, self._columns = watched.pattern.line_of_each(), watched.pattern.indices
        self._values = watched.values

    @property
    def weights(self) -> tuple[Values, Values]:
        """Not needed: a sparse fit that goes on with the held-out entries starts again."""
        raise NotImplementedError("a sparse fit has no level to go on to")

    def errors(self, state: FitState) -> tuple[Values, Values]:
        """Return the root mean square error on held-out entries; that of fitted ones is not measured."""
        objective: Any = state.objective
        found = to_numpy(objective.predict(state.params, self._rows, self._columns))
        error = np.sqrt(np.mean((found - self._values).astype(np.float64) ** 2))
        return np.asarray(error), np.asarray(np.nan)
