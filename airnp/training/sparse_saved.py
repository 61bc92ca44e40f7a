"""A sparse run in a file: what it was asked to do, and where it is between two of its iterations."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np

from airnp._arrays import namespace_name, to_numpy
from airnp.data.entries import Entries
from airnp.engines.contract import Edges, Offsets
from airnp.model.factored import SparseModel, SparseOptions, SparseProblem, SparseState
from airnp.regularizers.factored_terms import Decay, LearnedGraph
from airnp.results.files import sparse_record
from airnp.results.sparse_result import SparseFitResult, SparseGraph
from airnp.training.checkpoints import note_code, packed_if_possible
from airnp.training.records import Packer
from airnp.training.stopping import HeldOut

STORED_OPTIONS = ("max_iter", "record_every", "seed", "threads", "batch_size", "file_every")
STORED_PROBLEM = ("entries", "base", "span", "scale", "shrinkage", "bounds", "engine")


@dataclass(frozen=True)
class SparseTask:
    """What a run of the sparse form was asked to do; none of it changes on the way."""

    problem: SparseProblem
    options: SparseOptions

    @cached_property
    def _data(self) -> str:
        return fingerprint(self.problem.entries, self.problem.base, self.problem.span)

    @property
    def max_iter(self) -> int:
        """Iterations at most, of either phase."""
        return self.options.max_iter

    def record(self, result: SparseFitResult) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return a result as a header that JSON can hold, and named arrays of NumPy."""
        header, arrays = sparse_record(result)
        return {**header, "data": self._data}, arrays

    def packed(self, packer: Packer, given: dict[str, str]) -> Any:
        """Return the task as JSON can hold it; ``given`` gets what must be given again, and why."""
        problem, options = self.problem, self.options
        xp = problem.ops.xp
        asked = {
            "regularizers": list(problem.regularizers),
            "stop": options.rule,
            "optimizer": options.optimizer,
            "init": options.init if _starts_twice(options.rule) else None,
        }
        stored = packed_if_possible(packer, asked, given)
        note_code(given, options.callback, xp)
        plain = {
            **{name: getattr(problem, name) for name in STORED_PROBLEM},
            "layout": asdict(problem.layout),
            "options": {name: getattr(options, name) for name in STORED_OPTIONS},
        }
        kind = {"namespace": namespace_name(xp), "dtype": problem.entries.values.dtype.name}
        return {**kind, "asked": stored, "plain": packer.packed(plain)}


def fingerprint(entries: Entries, base: float, span: float) -> str:
    """Return a few letters that are others for other data; ``entries`` are in the units that are fitted.

    Examples
    --------
    >>> from airnp.data.entries import Pattern
    >>> some = Entries(Pattern(np.array([0, 1]), np.array([0]), 1), np.array([0.5]))
    >>> fingerprint(some, 0.0, 1.0) == fingerprint(some, 1.0, 1.0)
    False
    """
    found = blake2b(repr((entries.shape, base, span)).encode(), digest_size=16)
    parts = (entries.pattern.indptr, entries.pattern.indices, entries.values, entries.weights)
    for part in parts:
        found.update(b"" if part is None else np.ascontiguousarray(part).data)
    return found.hexdigest()


def _starts_twice(rule: Any) -> bool:
    """Whether there may be a second phase, which begins where the first one did."""
    return isinstance(rule, HeldOut) and rule.refit


@dataclass(frozen=True)
class SparseRunState:
    """What changes during a sparse fit, without its history.

    Attributes
    ----------
    iteration : int
        How many were made in this phase.
    params : list of arrays
        In the order of :class:`airnp.model.factored.Layout`.
    edges : tuple of Edges
        The candidates of each learned graph. When they are searched again follows from ``iteration``.
    memory : object
        The optimiser's.
    batches : dict
        Where the batches are, and the random state that they come from.
    values : list of float or None
        Fidelity and energies of the last iteration.
    watch : dict
        What the watch remembers, the best iterate included.
    stopped : str or None
        Why the watch has just ended its phase.
    recorded : int
        The history beyond this iteration is not that of a longer run.
    held : int
        How many entries the first phase must not see.
    done : int
        Iterations of the first phase, once the second has begun.
    chosen : int or None
        Iterations of the second phase; None in the first.
    ended : str or None
        Why the first phase ended, once it has.
    used_up : bool
        Whether it ended because its iterations were used up.
    """

    iteration: int
    params: list[Any]
    edges: tuple[Edges, ...]
    memory: Any
    batches: dict[str, Any]
    values: list[float] | None
    watch: dict[str, Any]
    stopped: str | None
    recorded: int
    held: int
    done: int
    chosen: int | None
    ended: str | None
    used_up: bool


def fitted_result(
    problem: SparseProblem, model: SparseModel, state: SparseState, **told: Any
) -> SparseFitResult:
    """Return a state in the data's units; ``told`` is what the result says of how it came about."""
    sides = model.sides(state.params)
    root = np.sqrt(problem.span)
    offsets = None
    if problem.layout.offsets:
        mean = problem.base + problem.span * float(sides.offsets.mean)
        rows, columns = (_scaled(side, problem.span) for side in (sides.offsets.rows, sides.offsets.columns))
        offsets = Offsets(mean, rows, columns)
    return SparseFitResult(
        row_factors=_scaled(sides.u, root),
        column_factors=_scaled(sides.v, root),
        offsets=offsets,
        base=problem.base,
        graphs=fitted_graphs(model, state),
        bounds=problem.bounds,
        **told,
    )


def _scaled(array: Any, factor: Any) -> Any:
    return to_numpy(array * array.dtype.type(factor))


def fitted_graphs(model: SparseModel, state: SparseState) -> list[SparseGraph]:
    """Return the graphs of a model at a state."""
    if all(isinstance(term, Decay) for term in model.terms):
        return []
    energies = model.ops.numbers(model.evaluate(state).energies)
    learned = zip(state.edges, model.layout.graphs(state.params), strict=True)
    found = []
    for term, energy in zip(model.terms, energies, strict=False):
        if isinstance(term, Decay):
            continue
        said = term.regularizer
        is_learned = isinstance(term, LearnedGraph)
        adjacency = _adjacency(*next(learned)) if isinstance(term, LearnedGraph) else term.adjacency
        found.append(SparseGraph(said.name, repr(said), term.weight, energy, adjacency, is_learned))
    return found


def _adjacency(edges: Any, logits: Any) -> Any:
    """Return A = (P + Pᵀ)/2 as a scipy.sparse.csr_array."""
    from scipy.sparse import csr_array

    pattern, values = edges.pattern, to_numpy(logits[0]).astype(np.float64)
    first, line = pattern.indptr[:-1], pattern.line_of_each()
    weights = np.exp(values - np.maximum.reduceat(values, first)[line])
    weights /= np.add.reduceat(weights, first)[line]
    ends = pattern.indices
    if edges.order is not None:
        line, ends = edges.order[line], edges.order[ends]
    p = csr_array((weights, (line, ends)), shape=(pattern.lines, pattern.width))
    return csr_array((p + p.T) / 2)
