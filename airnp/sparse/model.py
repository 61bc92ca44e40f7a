"""The loss of the sparse form and its gradient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from airnp.regularizers import Regularizer
from airnp.sparse import cpu
from airnp.sparse.bound import bound_terms
from airnp.sparse.chain import chain_gradients, collapsed
from airnp.sparse.contract import Offsets, Slopes, SparseOperations
from airnp.sparse.entries import Entries
from airnp.sparse.mask_factor import MaskFactor
from airnp.sparse.parameters import Layout, SparseState
from airnp.sparse.terms import Decay, LearnedGraph, Turned
from airnp.sparse.workspace import Workspace

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
        ops: SparseOperations = cpu,
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
