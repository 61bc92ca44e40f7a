"""The loss of the sparse form and its gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace

from airnp.data.bounds import Bounds
from airnp.data.entries import Entries
from airnp.engines import cpu, sparse_cpu
from airnp.engines.buffers import Workspace, copied_apart
from airnp.engines.contract import Edges, Offsets, Slopes, SparseOperations
from airnp.model.offsets import MaskFactor
from airnp.optimizers import Kind
from airnp.regularizers import AdaptiveLaplacian, FixedLaplacian, Regularizer, WeightDecay
from airnp.regularizers.base import GRAPH_WEIGHT
from airnp.regularizers.factored_terms import Decay, FixedGraph, LearnedGraph, SparseTerm, Turned
from airnp.results.sparse_result import SparseFitResult

Floats = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Evaluated:
    """The loss at one state.

    Attributes
    ----------
    fidelity : float
    energies : list of float
        R of each term, without its λ.
    gradients : list of arrays
        Of each parameter. They belong to the model, and are valid until it is evaluated again.
    """

    fidelity: float
    energies: list[float]
    gradients: list[Floats]


@dataclass(frozen=True, eq=False)
class Sides:
    """U (m×r) and V (n×r) with all that they are made of, and the offsets."""

    u: Floats
    v: Floats
    offsets: Offsets


class SparseModel:
    r"""The loss s/2 Σ (x_ij − y_ij)² + Σ λ R of X_ij = μ + b_i + c_j + u_i·v_j over observed entries.

    Parameters
    ----------
    entries : Entries
        What is observed, in the units that are fitted. Its pattern is that of the mask factor.
    layout : Layout
    regularizers : sequence of Regularizer
    scale : float
        s.
    shrinkage : float
        κ of the offsets.
    ops : module, optional
        Who carries out the operations.
    """

    def __init__(
        self,
        entries: Entries,
        layout: Layout,
        regularizers: Sequence[Regularizer],
        *,
        scale: float,
        shrinkage: float = 0.0,
        ops: SparseOperations = sparse_cpu,
    ) -> None:
        self.entries, self.layout, self.scale, self.ops = entries, layout, scale, ops
        self.terms = bound_terms(ops, regularizers, entries, layout, scale)
        self._shrinkage = scale * shrinkage
        self._space = Workspace(entries.values.dtype, ops.xp)
        self._rows = MaskFactor.of_rows(entries, ops.xp) if layout.mask_rows else None
        self._columns = MaskFactor.of_columns(entries, ops.xp) if layout.mask_columns else None

    @property
    def names(self) -> list[str]:
        """What each energy belongs to."""
        return [term.regularizer.name for term in self.terms] + ["offsets"] * self.layout.offsets

    @property
    def weights(self) -> list[float]:
        """λ of each energy."""
        return [term.weight for term in self.terms] + [self._shrinkage] * self.layout.offsets

    @property
    def learned(self) -> list[LearnedGraph]:
        """The terms that have a graph to learn."""
        return [term for term in self.terms if isinstance(term, LearnedGraph)]

    def loss(self, fidelity: float, energies: Sequence[float]) -> float:
        """Return F + Σ λ R."""
        return fidelity + sum(weight * energy for weight, energy in zip(self.weights, energies, strict=True))

    def sides(self, params: Sequence[Floats], *, own: bool = True) -> Sides:
        """Return U and V, in arrays of their own or in the model's."""
        layout = self.layout
        u, v = collapsed(layout.factors(params), self.ops.dense), params[0]
        y, z = layout.masks(params)
        if self._rows is not None and y is not None:
            u = self._rows.added(self.ops, u, y, self._out("u", u, own))
        if self._columns is not None and z is not None:
            v = self._columns.added(self.ops, v, z, self._out("v", v, own))
        return Sides(u, v, layout.offsets_of(params, self.ops.number))

    def _out(self, name: str, like: Floats, own: bool = False) -> Floats:
        return self.ops.xp.empty_like(like) if own else self._space.take(name, like.shape)

    def predict(self, sides: Sides, rows: npt.NDArray[Any], columns: npt.NDArray[Any]) -> Floats:
        """Return x at pairs, in the units that are fitted."""
        return self.ops.values_at(rows, columns, sides.u, sides.v, sides.offsets)

    def evaluate(self, state: SparseState, batch: Entries | None = None) -> Evaluated:
        """Return loss and gradient; with a batch of entries, an unbiased estimate of both."""
        layout, params = self.layout, state.params
        sides = self.sides(params, own=False)
        fidelity, slopes = self._fit(self.entries if batch is None else batch, sides)
        energies, graph_slopes = self._add_graphs(state, sides, slopes)
        y, z = layout.masks(params)
        masks = {}
        if self._rows is not None and y is not None:
            masks["columns"] = y, self._rows.gradient(self.ops, slopes.u, self._out("gy", y))
        if self._columns is not None and z is not None:
            masks["rows"] = z, self._columns.gradient(self.ops, slopes.v, self._out("gz", z))
        # Slopes of U and V are those of the chain's part, too, now that the mask's part had its share.
        u0 = sides.u if self._rows is None else collapsed(layout.factors(params), self.ops.dense)
        chain = {"rows": (u0, slopes.u), "columns": (params[0], slopes.v)}
        for place, term in enumerate(self.terms):
            if isinstance(term, Decay):
                parts = chain if term.on == "factors" else masks
                energies[place] = sum(term.add(axis, *pair) for axis, pair in parts.items())
        gradients = [slopes.v, *chain_gradients(layout.factors(params), slopes.u, self.ops.dense)]
        gradients += [slope for _, slope in masks.values()]
        if layout.offsets:
            mean_slope = slopes.rows.sum(dtype=np.float64)
            energies.append(self._shrink(sides.offsets, slopes))
            gradients += [
                slopes.rows[None],
                slopes.columns[None],
                mean_slope.reshape(1, 1).astype(slopes.u.dtype),
            ]
        return Evaluated(fidelity, energies, [*gradients, *graph_slopes])

    def _fit(self, entries: Entries, sides: Sides) -> tuple[float, Slopes]:
        """Return the fidelity of some entries, and its slopes."""
        u, v, (mean, rows, columns) = sides.u, sides.v, sides.offsets
        out = Slopes(self._out("gu", u), self._out("gv", v), self._out("gb", rows), self._out("gc", columns))
        scale, plain = self.scale / entries.share, not self.layout.offsets
        if entries.share == 1 and entries.shape[1] > entries.shape[0]:
            # The longer side is walked line by line, the shorter one stays in the cache.
            turned = Slopes(out.v, out.u, out.columns, out.rows)
            offsets = Offsets(mean, columns, rows)
            return self.ops.residuals(
                entries.turned, v, u, offsets, scale=scale, out=turned, plain=plain
            ), out
        return self.ops.residuals(entries, u, v, sides.offsets, scale=scale, out=out, plain=plain), out

    def _add_graphs(
        self, state: SparseState, sides: Sides, slopes: Slopes
    ) -> tuple[list[float], list[Floats]]:
        """Add the graphs' part to the slopes; return all energies so far, and the slopes of the graphs."""
        energies, graph_slopes = [], []
        learned = zip(state.edges, self.layout.graphs(state.params), strict=True)
        for place, term in enumerate(self.terms):
            if isinstance(term, Decay):
                energies.append(0.0)
                continue
            pair = ((sides.u, slopes.u), (sides.v, slopes.v))
            (nodes, slope), (other, other_slope) = pair if term.regularizer.axis == "rows" else pair[::-1]
            if isinstance(term, LearnedGraph):
                edges, logits = next(learned)
                turned = Turned(self.ops, nodes, other, self._space, edges)
                graph_slopes.append(self._out(f"graph {place}", logits))
                energies.append(term.add(self.ops, edges, logits, turned, graph_slopes[-1]))
            else:
                turned = Turned(self.ops, nodes, other, self._space)
                energies.append(term.add(self.ops, turned))
            turned.add_gradients(term.weight, slope, other_slope)
        return energies, graph_slopes

    def _shrink(self, offsets: Offsets, slopes: Slopes) -> float:
        """Add sκ b and sκ c to the slopes; return ½ (‖b‖² + ‖c‖²)."""
        energy = 0.0
        for values, slope in ((offsets.rows, slopes.rows), (offsets.columns, slopes.columns)):
            slope += values.dtype.type(self._shrinkage) * values
            energy += 0.5 * self.ops.number(self.ops.xp.vdot(values, values))
        return energy


def chain_shapes(m: int, n: int, depth: int, rank: int) -> list[tuple[int, int]]:
    """Return the shapes of W[0]ᵀ, W[1], …, W[L-1].

    Examples
    --------
    >>> chain_shapes(6, 4, depth=3, rank=2)
    [(4, 2), (2, 2), (6, 2)]
    """
    return [(n, rank), *[(rank, rank)] * (depth - 2), (m, rank)]


def collapsed(factors: Sequence[Floats], dense: Any = cpu) -> Floats:
    """Return U = W[L-1] ··· W[1], shape (m, r); for two factors W[1] itself."""
    inner = None
    for factor in factors[1:-1]:
        inner = factor if inner is None else dense.product(factor, inner)
    return factors[-1] if inner is None else dense.product(factors[-1], inner)


def chain_gradients(factors: Sequence[Floats], slope_u: Floats, dense: Any = cpu) -> list[Floats]:
    """Return ∂loss/∂W[1], …, ∂loss/∂W[L-1] from ∂loss/∂U.

    With S[l] = W[l] ··· W[1] and H[l] = (W[L-1] ··· W[l+1])ᵀ ∂U:  ∂W[l] = H[l] S[l-1]ᵀ, S[0] = 1. All but
    the outermost are r×r products.
    """
    suffixes = [None, *factors[1:-1]]
    for level in range(2, len(suffixes)):
        suffixes[level] = dense.product(suffixes[level], suffixes[level - 1])
    gradients, carried = [], slope_u
    for level in range(len(factors) - 1, 0, -1):
        below = suffixes[level - 1]
        gradients.append(carried if below is None else dense.product(carried, below, transpose_b=True))
        if level > 1:
            carried = dense.product(factors[level], carried, transpose_a=True)
    return gradients[::-1]


@dataclass(frozen=True, eq=False)
class SparseState:
    """Parameters, and the edges that those of the graphs belong to.

    Attributes
    ----------
    params : list of arrays (2-D)
        In the order of :class:`Layout`.
    edges : tuple of Edges
        Of each learned graph.
    """

    params: list[Floats]
    edges: tuple[Edges, ...]

    def copied(self) -> SparseState:
        """Return a copy that iterations do not change; edges are never changed in place."""
        return SparseState([_copied(param) for param in self.params], self.edges)


def _copied(array: Any) -> Any:
    """Return a copy, on the host apart from all other arrays: how loops round may depend on their places."""
    return copied_apart(array) if isinstance(array, np.ndarray) else array.copy()


@dataclass(frozen=True)
class Layout:
    """Which arrays there are: W[0]ᵀ, W[1] …, Y and Z of the mask factor, b, c and μ, V of each graph.

    Examples
    --------
    >>> layout = Layout(m=5, n=4, depth=2, rank=2, mask_rows=True, mask_columns=False, offsets=True)
    >>> layout.shapes
    [(4, 2), (5, 2), (4, 2), (1, 5), (1, 4), (1, 1)]
    """

    m: int
    n: int
    depth: int
    rank: int
    mask_rows: bool = False
    mask_columns: bool = False
    offsets: bool = False

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Shapes of all but the graphs."""
        found = chain_shapes(self.m, self.n, self.depth, self.rank)
        if self.mask_rows:
            found.append((self.n, self.rank))
        if self.mask_columns:
            found.append((self.m, self.rank))
        if self.offsets:
            found += [(1, self.m), (1, self.n), (1, 1)]
        return found

    @property
    def graphs_from(self) -> int:
        """Where the graphs begin in the list."""
        return len(self.shapes)

    def kinds(self, params: Sequence[Floats]) -> list[Kind]:
        """Return what the optimiser calls each of them."""
        first = self.graphs_from
        return ["factor" if place < first else "graph" for place in range(len(params))]

    def factors(self, params: Sequence[Floats]) -> Sequence[Floats]:
        """Return W[0]ᵀ, W[1] and so on."""
        return params[: self.depth]

    def masks(self, params: Sequence[Floats]) -> tuple[Floats | None, Floats | None]:
        """Return Y and Z; None where there is no mask factor."""
        rest = iter(params[self.depth :])
        return (next(rest) if self.mask_rows else None), (next(rest) if self.mask_columns else None)

    def offsets_of(self, params: Sequence[Floats], number: Callable[[Any], Any] = float) -> Offsets:
        """Return μ, b and c; zeros if there are none. ``number`` is what μ becomes, a float by default."""
        if not self.offsets:
            zeros, kind = array_namespace(params[0]).zeros, params[0].dtype
            return Offsets(0.0, zeros(self.m, dtype=kind), zeros(self.n, dtype=kind))
        rows, columns, mean = params[self.graphs_from - 3 : self.graphs_from]
        return Offsets(number(mean[0, 0]), rows[0], columns[0])

    def graphs(self, params: Sequence[Floats]) -> Sequence[Floats]:
        """Return V of each learned graph, (1, edges)."""
        return params[self.graphs_from :]


def bound_terms(
    ops: SparseOperations,
    regularizers: Sequence[Regularizer],
    entries: Entries,
    layout: Layout,
    scale: float,
) -> list[SparseTerm]:
    """Return one term for each regulariser, or say which of them the sparse form does not have."""
    return [_bound(ops, item, entries, layout, scale) for item in regularizers]


def _bound(
    ops: SparseOperations, item: Regularizer, entries: Entries, layout: Layout, scale: float
) -> SparseTerm:
    if isinstance(item, WeightDecay):
        if item.on == "mask" and not (layout.mask_rows or layout.mask_columns):
            raise ValueError("regularizers: WeightDecay(on='mask') needs a mask_factor")
        return Decay(ops, item, entries)
    if not isinstance(item, AdaptiveLaplacian | FixedLaplacian):
        raise ValueError(
            f"regularizers: form='sparse' has AdaptiveLaplacian, FixedLaplacian and WeightDecay, got {item!r}"
        )
    if item.axis not in ("rows", "columns"):
        raise ValueError(f"axis: form='sparse' has graphs over 'rows' and 'columns', got {item.axis!r}")
    if isinstance(item, FixedLaplacian):
        return _fixed(item, layout, scale, entries.values.dtype, ops.xp)
    if item.adjacency != "row":
        raise ValueError(f"adjacency: form='sparse' has 'row', got {item.adjacency!r}")
    return LearnedGraph(item, GRAPH_WEIGHT * scale if item.weight is None else item.weight)


def _fixed(item: FixedLaplacian, layout: Layout, scale: float, dtype: Any, xp: Any) -> FixedGraph:
    from scipy.sparse import csr_array

    adjacency, nodes = csr_array(item.host_adjacency()), layout.m if item.axis == "rows" else layout.n
    if adjacency.shape[0] != nodes:
        raise ValueError(
            f"graph: expected {nodes} nodes, one for each of the {item.name}, got {adjacency.shape[0]}"
        )
    return FixedGraph(item, item.weight_for(scale), adjacency, dtype, xp)


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
