"""What a sparse fit is about and how it goes about it, checked; and what a callback sees of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airnp.bounds import Bounds
from airnp.regularizers import Regularizer
from airnp.sparse.contract import SparseOperations
from airnp.sparse.entries import Entries
from airnp.sparse.model import SparseModel
from airnp.sparse.parameters import Layout
from airnp.sparse.result import SparseFitResult


@dataclass(frozen=True)
class SparseProblem:
    """What is fitted, and the way back to the data's units: X = base + span · X̂.

    Attributes
    ----------
    entries : Entries
        In the units that are fitted.
    engine : str
        The name by which ``ops`` was asked for.
    """

    entries: Entries
    base: float
    span: float
    layout: Layout
    regularizers: Sequence[Regularizer]
    scale: float
    shrinkage: float | None
    bounds: Bounds | None
    engine: str
    ops: SparseOperations

    def model(self, entries: Entries) -> SparseModel:
        """Return the loss of some of the entries."""
        return SparseModel(
            entries,
            self.layout,
            self.regularizers,
            scale=self.scale,
            shrinkage=self.shrinkage or 0.0,
            ops=self.ops,
        )


@dataclass(frozen=True)
class SparseOptions:
    """See :func:`airnp.fit`; ``file`` is its ``checkpoint``, ``file_every`` its ``checkpoint_every``."""

    max_iter: int
    record_every: int
    seed: int
    init: Any
    optimizer: Any
    threads: int
    batch_size: int | None
    callback: Callable[[int, Any], Any] | None
    progress: bool
    rule: Any
    file: Path | None
    file_every: float


@dataclass(frozen=True, eq=False)
class SparseFitState:
    """A sparse fit at one moment, as a callback sees it. Its arrays belong to the fit: look, do not touch.

    Attributes
    ----------
    iteration : int
    loss, fidelity : float
        As the last iteration computed them, in normalised units.
    energies : dict of str to float
        Each regulariser's R, without its λ.
    result : callable
        ``result()`` is what the fit would give back now, as a :class:`SparseFitResult`.
    """

    iteration: int
    loss: float
    fidelity: float
    energies: dict[str, float]
    result: Callable[[], SparseFitResult]
