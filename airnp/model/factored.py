r"""The objective in the factored form: X is never formed, only its factors, observed entries and edges.

.. math:: X_{ij} = μ + b_i + c_j + u_i·v_j, \qquad
   \tfrac s2 \sum_{(i,j)} w_{ij} (x_{ij} - y_{ij})^2 + \sum_k λ_k R_k

The chain X = W[L-1] ··· W[1] W[0] collapses to two thin matrices: with U = W[L-1] ··· W[1] (m×r) and
V = W[0]ᵀ (n×r), an entry is u_i·v_j. W[0] is kept transposed, so that both sides have contiguous rows. No
array is m×n or k×k: an iteration costs O((nnz + (m + n) k) r).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace

from airnp._arrays import to_numpy
from airnp.data.entries import Batches, Entries
from airnp.engines.buffers import Workspace, placed_apart
from airnp.engines.contract import DecayPart, Edges, Engine, Memory, Offsets, Slopes, Update
from airnp.model.initialization import checked_init, drawn_factors
from airnp.model.offsets import MaskFactor, first_offsets
from airnp.optimizers import Kind
from airnp.regularizers import Regularizer
from airnp.regularizers.base import FactoredProblem, FactoredTerm, GraphWeights
from airnp.regularizers.candidates import Exchange

Floats = npt.NDArray[Any]

_WHOLE_EVERY = 50
_WORK = 5e9
"""Iterations at most between two whole states: so many, or fewer if they multiply more numbers than this."""


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

    def factors(self, params: Sequence[Floats]) -> Sequence[Floats]:
        """Return W[0]ᵀ, W[1] and so on."""
        return params[: self.depth]

    def masks(self, params: Sequence[Floats]) -> tuple[Floats | None, Floats | None]:
        """Return Y and Z; None where there is no mask factor."""
        rest = iter(params[self.depth :])
        return (next(rest) if self.mask_rows else None), (next(rest) if self.mask_columns else None)

    def offsets_of(self, params: Sequence[Floats]) -> Offsets:
        """Return μ as an array with one entry, b and c; zeros if there are none."""
        if not self.offsets:
            zeros, kind = array_namespace(params[0]).zeros, params[0].dtype
            return Offsets(0.0, zeros(self.m, dtype=kind), zeros(self.n, dtype=kind))
        rows, columns, mean = params[self.graphs_from - 3 : self.graphs_from]
        return Offsets(mean, rows[0], columns[0])

    def graphs(self, params: Sequence[Floats]) -> Sequence[Floats]:
        """Return V of each learned graph, (1, edges)."""
        return params[self.graphs_from :]


@dataclass(frozen=True, eq=False)
class Sides:
    """U (m×r) and V (n×r) with all that they are made of, and the offsets."""

    u: Floats
    v: Floats
    offsets: Offsets


@dataclass(frozen=True, eq=False)
class FactoredEvaluation:
    """The objective at one point.

    Attributes
    ----------
    fidelity : array ()
    energies : list of arrays ()
        R of each term, without its λ.
    gradients : list of arrays
        Of each parameter. They belong to the objective, and are valid until it is evaluated again.
    """

    fidelity: Floats
    energies: list[Floats]
    gradients: list[Floats]


class FactoredObjective:
    """The loss of a matrix in two thin factors over its observed entries, and the exact gradient.

    Parameters
    ----------
    entries : Entries
        What is observed, in the units that are fitted. Its pattern is that of the mask factor.
    layout : Layout
    regularizers : sequence of Regularizer
    ops : Engine
    xp : module
        Namespace of the parameters: NumPy or CuPy.
    scale : float
        s.
    shrinkage : float
        κ of the offsets.
    batch_size : int, optional
        Entries in one iteration, an unbiased estimate of all. Default: all of them.
    seed : int
        Of the batches.
    threads : int
        For the search of neighbours.

    Attributes
    ----------
    edges : tuple of Edges
        The candidates of each learned graph, to which its V belongs. Replaced, never changed in place.
    """

    batch: tuple[int, ...] = ()

    def __init__(
        self,
        entries: Entries,
        layout: Layout,
        regularizers: Sequence[Regularizer],
        *,
        ops: Engine,
        xp: Any = np,
        scale: float,
        shrinkage: float = 0.0,
        batch_size: int | None = None,
        seed: int = 0,
        threads: int = 1,
    ) -> None:
        self.entries, self.layout, self.scale, self.engine = entries, layout, scale, ops
        self.regularizers = list(regularizers)
        self._xp = xp
        problem = FactoredProblem(entries, scale, layout.mask_rows or layout.mask_columns, self._xp)
        self.terms: list[FactoredTerm] = [item.bind_factored(problem) for item in self.regularizers]
        self.edges: tuple[Edges, ...] = ()
        self._shrinkage, self._threads = scale * shrinkage, threads
        self._space = Workspace(entries.values.dtype, self._xp)
        self._rows = MaskFactor.of_rows(entries, self._xp) if layout.mask_rows else None
        self._columns = MaskFactor.of_columns(entries, self._xp) if layout.mask_columns else None
        self._batches = Batches(entries, batch_size, seed)
        is_plain = all(term.is_plain for term in self.terms)
        self.is_plain = is_plain and batch_size is None and ops.replays_sparse
        work = entries.nnz * layout.rank
        self.portion = int(np.clip(_WORK / max(work, 1), 1, _WHOLE_EVERY))

    @property
    def energy_names(self) -> list[str]:
        """What each energy belongs to."""
        return [item.name for item in self.regularizers] + ["offsets"] * self.layout.offsets

    @property
    def learned(self) -> list[bool]:
        """For each energy, whether it is that of a graph that is being learned."""
        found = [term.candidates is not None and term.weight > 0 for term in self.terms]
        return found + [False] * self.layout.offsets

    @property
    def rhythms(self) -> list[int]:
        """Iterations after whose multiples :meth:`refresh` has something to do."""
        found = (term.candidates.refresh for term in self.terms if term.candidates is not None)
        return [every for every in found if every is not None]

    @property
    def structure(self) -> dict[str, Any]:
        """What changes during a fit besides the parameters; nothing of it is changed in place."""
        return {"edges": self.edges, "batches": self._batches.state()}

    @structure.setter
    def structure(self, state: dict[str, Any]) -> None:
        self.edges = tuple(state["edges"])
        self._batches.restore(state["batches"])

    @property
    def param_shapes(self) -> list[tuple[int, ...]]:
        """Shapes of all parameters."""
        return [*self.layout.shapes, *((1, edges.count) for edges in self.edges)]

    def adopt(self, params: list[Floats]) -> list[Floats]:
        """Return copies of saved parameters, on the host apart from other arrays, which affects rounding."""
        return [placed_apart(param, self._xp) for param in params]

    def kinds(self, params: Sequence[Floats]) -> list[Kind]:
        """Return what the optimiser calls each parameter."""
        first = self.layout.graphs_from
        return ["factor" if place < first else "graph" for place in range(len(params))]

    def init(self, seed: int | None = None, init: Any = "gaussian") -> list[Floats]:
        """Return the parameters to start from, and find the first candidate edges.

        Factors come from ``init``, drawn as for a whole matrix; the mask factor starts at zero, offsets where
        they fit best without factors, V uniform in ±1/√(candidates of a node).
        """
        layout, kind = self.layout, self.entries.values.dtype
        rng = np.random.default_rng(seed)
        params = drawn_factors(checked_init(init), rng, layout.m, layout.n, layout.depth, layout.rank, kind)
        params += [np.zeros(shape, kind) for shape in layout.shapes[layout.depth :]]
        if layout.offsets:
            mean, rows, columns = first_offsets(self.entries, self._shrinkage / self.scale)
            for param, value in zip(params[-3:], (rows, columns, mean), strict=True):
                param[...] = value
        params = [placed_apart(param, self._xp) for param in params]
        self.edges = tuple(self._found_edges(term, params) for term in self._graph_terms())
        for graph in self.edges:
            spread = 1 / np.sqrt(np.maximum(graph.pattern.counts, 1))
            drawn = rng.uniform(-1, 1, graph.count) * np.repeat(spread, graph.pattern.counts)
            params.append(placed_apart(drawn[None].astype(kind), self._xp))
        return params

    def _graph_terms(self) -> list[Any]:
        return [term for term in self.terms if term.candidates is not None]

    def _found_edges(self, term: Any, params: Sequence[Floats]) -> Edges:
        def points() -> Floats:
            sides = self.sides(params, own=False)
            found: Floats = term.points(self.engine, {"rows": (sides.u, None), "columns": (sides.v, None)})
            return found

        found: Edges = term.candidates.edges(points, self._threads)
        return found

    def refresh(self, iteration: int, params: list[Floats], memory: Any) -> bool:
        """Search for nearest neighbours again where it is time to; return whether that changed arrays.

        V and the optimiser's moments are carried over to edges that stay. A new edge starts at the mean V of
        its node's edges, with moments of zero.
        """
        edges, changed = list(self.edges), False
        for place, term in enumerate(self._graph_terms()):
            every = term.candidates.refresh
            if iteration > 0 and every is not None and iteration % every == 0:
                fresh = self._found_edges(term, params)
                self._exchange(self.layout.graphs_from + place, Exchange(edges[place], fresh), params, memory)
                edges[place], changed = fresh, True
        self.edges = tuple(edges)
        return changed

    def _exchange(self, place: int, exchange: Exchange, params: list[Floats], memory: Any) -> None:
        asarray = self._xp.asarray
        params[place] = asarray(exchange.logits(to_numpy(params[place][0]))[None])
        moments = getattr(memory, "moments", None)
        if moments is not None:
            nothing = np.zeros(params[place].shape[1], params[place].dtype)
            for name in ("first", "second"):
                values = getattr(moments[place], name)
                if values.size > 1:
                    carried = exchange.carried(to_numpy(values[0]), nothing)
                    setattr(moments[place], name, asarray(carried[None]))

    def sides(self, params: Sequence[Floats], *, own: bool = True) -> Sides:
        """Return U and V, in arrays of their own or in the objective's."""
        layout, ops = self.layout, self.engine
        u, v = collapsed(ops, layout.factors(params)), params[0]
        y, z = layout.masks(params)
        if self._rows is not None and y is not None:
            u = self._rows.added(ops, u, y, self._out("u", u, own))
        if self._columns is not None and z is not None:
            v = self._columns.added(ops, v, z, self._out("v", v, own))
        return Sides(u, v, layout.offsets_of(params))

    def _out(self, name: str, like: Floats, own: bool = False) -> Floats:
        return self._xp.empty_like(like) if own else self._space.take(name, like.shape)

    def predict(self, params: Sequence[Floats], rows: npt.NDArray[Any], columns: npt.NDArray[Any]) -> Floats:
        """Return x at pairs, in the units that are fitted."""
        sides = self.sides(params)
        found: Floats = self.engine.entry_values(rows, columns, sides.u, sides.v, sides.offsets)
        return found

    def step(
        self, params: Sequence[Floats], updates: Sequence[Update], memory: Memory
    ) -> tuple[list[Floats], list[Floats]]:
        """Make one iteration; return the parameters, and fidelity and energies as they were before it."""
        found = self.evaluate(params, self._batches.next())
        moved = self.engine.apply_updates(params, found.gradients, updates)
        return moved, [found.fidelity, *found.energies]

    def evaluate(self, params: Sequence[Floats], batch: Entries | None = None) -> FactoredEvaluation:
        """Return loss and gradient; with a batch of entries, an unbiased estimate of both."""
        layout, ops = self.layout, self.engine
        sides = self.sides(params, own=False)
        fidelity, slopes = self._fit(self.entries if batch is None else batch, sides)
        whole = {"rows": (sides.u, slopes.u), "columns": (sides.v, slopes.v)}
        graphs = self._graph_weights(params)
        energies: list[Any] = [None] * len(self.terms)
        for place, term in enumerate(self.terms):
            if term.acts_on == "sides":
                energies[place] = term.accumulate(ops, whole, graphs.get(place), self._space)
        masks = self._mask_sides(params, slopes)
        # Slopes of U and V are those of the chain's part, too, now that the mask's part had its share.
        u0 = sides.u if self._rows is None else collapsed(ops, layout.factors(params))
        chain = {"rows": (u0, slopes.u), "columns": (params[0], slopes.v)}
        for place, term in enumerate(self.terms):
            if term.acts_on != "sides":
                parts = chain if term.acts_on == "factors" else masks
                energies[place] = term.accumulate(ops, parts, None, self._space)
        gradients = [slopes.v, *chain_gradients(ops, layout.factors(params), slopes.u)]
        gradients += [slope for _, slope in masks.values()]
        if layout.offsets:
            mean_slope = self._space.take("gm", (1, 1))
            ops.total(slopes.rows, out=mean_slope)
            offsets = sides.offsets
            pairs = (offsets.rows, slopes.rows), (offsets.columns, slopes.columns)
            shrunk = [DecayPart(values, None, slope) for values, slope in pairs]
            energies.append(ops.decay(shrunk, weight=self._shrinkage))
            gradients += [slopes.rows[None], slopes.columns[None], mean_slope]
        return FactoredEvaluation(
            fidelity, energies, [*gradients, *(graph.slopes for graph in graphs.values())]
        )

    def _fit(self, entries: Entries, sides: Sides) -> tuple[Floats, Slopes]:
        """Return the fidelity of some entries, and its slopes."""
        u, v, (mean, rows, columns) = sides.u, sides.v, sides.offsets
        out = Slopes(self._out("gu", u), self._out("gv", v), self._out("gb", rows), self._out("gc", columns))
        scale, plain, residuals = self.scale / entries.share, not self.layout.offsets, self.engine.residuals
        if entries.share == 1 and entries.shape[1] > entries.shape[0]:
            # The longer side is walked line by line, the shorter one stays in the cache.
            turned = Slopes(out.v, out.u, out.columns, out.rows)
            offsets = Offsets(mean, columns, rows)
            return residuals(entries.turned, v, u, offsets, scale=scale, out=turned, plain=plain), out
        return residuals(entries, u, v, sides.offsets, scale=scale, out=out, plain=plain), out

    def _graph_weights(self, params: Sequence[Floats]) -> dict[int, GraphWeights]:
        """Return the edges, V and ∂V of each learned graph, by the place of its term."""
        places = [place for place, term in enumerate(self.terms) if term.candidates is not None]
        learned = zip(places, self.edges, self.layout.graphs(params), strict=True)
        return {
            place: GraphWeights(edges, logits, self._out(f"graph {place}", logits))
            for place, edges, logits in learned
        }

    def _mask_sides(self, params: Sequence[Floats], slopes: Slopes) -> dict[str, tuple[Floats, Floats]]:
        """Return the matrices of the mask factor and their gradients: Y belongs to columns, Z to rows."""
        y, z = self.layout.masks(params)
        found = {}
        if self._rows is not None and y is not None:
            scratch = self._out("scaled gu", slopes.u)
            found["columns"] = y, self._rows.gradient(self.engine, slopes.u, scratch, self._out("gy", y))
        if self._columns is not None and z is not None:
            scratch = self._out("scaled gv", slopes.v)
            found["rows"] = z, self._columns.gradient(self.engine, slopes.v, scratch, self._out("gz", z))
        return found

    def losses(self, fidelity: Any, energies: Sequence[Any]) -> npt.NDArray[np.float64]:
        """Return F + Σ λ R, from values recorded or evaluated."""
        weights = [term.weight for term in self.terms] + [self._shrinkage] * self.layout.offsets
        penalties = sum(weight * energy for weight, energy in zip(weights, energies, strict=True))
        return np.asarray(fidelity + penalties, np.float64)

    def is_finite(self, params: Sequence[Floats]) -> bool:
        """Whether all parameters are finite."""
        return all(bool(self._xp.isfinite(param).all()) for param in params)

    def matrix(self, params: Sequence[Floats]) -> Floats:
        """Return X in normalised units, which is formed here alone, for callbacks that ask for it."""
        sides = self.sides(params)
        rows, columns, mean = sides.offsets.rows, sides.offsets.columns, sides.offsets.mean
        found: Floats = sides.u @ sides.v.T + rows[:, None] + columns + mean
        return found

    def adjacencies(self, params: Sequence[Floats]) -> list[Any]:
        """Return each regulariser's adjacency at ``params``; None where it has no graph."""
        graphs = self._graph_weights(params)
        nothing = GraphWeights(None, None, None)  # type: ignore[arg-type]
        return [term.adjacency(*graphs.get(place, nothing)[:2]) for place, term in enumerate(self.terms)]


def chain_shapes(m: int, n: int, depth: int, rank: int) -> list[tuple[int, int]]:
    """Return the shapes of W[0]ᵀ, W[1], …, W[L-1].

    Examples
    --------
    >>> chain_shapes(6, 4, depth=3, rank=2)
    [(4, 2), (2, 2), (6, 2)]
    """
    return [(n, rank), *[(rank, rank)] * (depth - 2), (m, rank)]


def collapsed(ops: Engine, factors: Sequence[Floats]) -> Floats:
    """Return U = W[L-1] ··· W[1], shape (m, r); for two factors W[1] itself."""
    inner = None
    for factor in factors[1:-1]:
        inner = factor if inner is None else ops.product(factor, inner)
    return factors[-1] if inner is None else ops.product(factors[-1], inner)


def chain_gradients(ops: Engine, factors: Sequence[Floats], slope_u: Floats) -> list[Floats]:
    """Return ∂loss/∂W[1], …, ∂loss/∂W[L-1] from ∂loss/∂U.

    With S[l] = W[l] ··· W[1] and H[l] = (W[L-1] ··· W[l+1])ᵀ ∂U:  ∂W[l] = H[l] S[l-1]ᵀ, S[0] = 1. All but
    the outermost are r×r products.
    """
    suffixes = [None, *factors[1:-1]]
    for level in range(2, len(suffixes)):
        suffixes[level] = ops.product(suffixes[level], suffixes[level - 1])
    gradients, carried = [], slope_u
    for level in range(len(factors) - 1, 0, -1):
        below = suffixes[level - 1]
        gradients.append(carried if below is None else ops.product(carried, below, transpose_b=True))
        if level > 1:
            carried = ops.product(factors[level], carried, transpose_a=True)
    return gradients[::-1]
