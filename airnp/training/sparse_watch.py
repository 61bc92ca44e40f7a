"""When to stop a sparse fit by the rules of :mod:`airnp.training.stopping`, and which iterate to return."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from airnp._arrays import to_numpy
from airnp.data.entries import Entries
from airnp.data.holdout import how_many
from airnp.engines.contract import Edges
from airnp.model.factored import SparseModel, SparseState
from airnp.training.monitors import counted_iterations
from airnp.training.stopping import EnergyChange, HeldOut, LastOfTheBest, NeverStop


def watch_of(rule: Any, model: SparseModel, held: Entries | None) -> Watch:
    """Return who watches a fit under a rule; ``held`` are the entries that are held out, if there are any."""
    if isinstance(rule, HeldOut) and held is not None:
        return HeldOutWatch(rule, model, held)
    if isinstance(rule, EnergyChange):
        return EnergyWatch(rule, len(model.terms))
    return Watch()


def held_out_entries(entries: Entries, fraction: float, seed: int) -> npt.NDArray[np.bool_]:
    """Return which entries to hold out: at random, as far as every row and column keeps one.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> from airnp.data.entries import read_entries
    >>> int(held_out_entries(read_entries(csr_array(np.ones((20, 30)))), 0.1, seed=0).sum())
    60
    """
    total = entries.nnz
    wanted = how_many(total, fraction)
    order = np.random.default_rng([seed, 1]).permutation(total)
    free = np.ones(total, bool)
    for line in (entries.pattern.line_of_each()[order], entries.pattern.indices[order]):
        free[np.unique(line, return_index=True)[1]] = False
    held = np.zeros(total, bool)
    held[order[np.flatnonzero(free)[:wanted]]] = True
    return held


class Watch:
    """Looks at a fit now and then. This one never stops it, and gives back what comes last."""

    every: int | None = None

    remembered: tuple[str, ...] = ()
    """Names of the attributes that change during a fit. Their values are replaced, never changed in place."""

    def state(self) -> dict[str, Any]:
        """Return all that is remembered: numbers, and the best iterate as (iteration, parameters, edges)."""
        return {name: getattr(self, name) for name in self.remembered}

    def restore(self, state: dict[str, Any]) -> None:
        """Remember what another watch of the same fit did when :meth:`state` was asked."""
        for name in self.remembered:
            setattr(self, name, state[name])

    def check(
        self, iteration: int, state: SparseState, values: Sequence[float], before: Sequence[float] | None
    ) -> str | None:
        """Return why to stop, from the parameters, fidelity and energies now and one iteration before."""
        return None

    @property
    def best(self) -> tuple[int, SparseState] | None:
        """The iterate to give back; None for the last."""
        return None


class EnergyWatch(Watch):
    """Stops when all energies stand still."""

    every = 1

    def __init__(self, rule: EnergyChange, energies: int) -> None:
        if energies == 0:
            raise ValueError("stop: EnergyChange needs at least one regularizer with an energy to watch")
        self._delta, self._energies = rule.delta, energies

    def check(
        self, iteration: int, state: SparseState, values: Sequence[float], before: Sequence[float] | None
    ) -> str | None:
        """Return why to stop."""
        if before is None:
            return None
        change = np.abs(np.subtract(values, before))[1 : 1 + self._energies]
        return f"energies changed by less than {self._delta:g}" if (change < self._delta).all() else None


class HeldOutWatch(Watch):
    """Stops when entries that the fit does not see are no longer predicted better.

    The rule's own words apply: patience counts when learned graphs have settled, and iterations that move
    nothing count a third. The error is the root mean square.
    """

    remembered = ("lowest", "_peak", "_waited", "_looked", "_fidelity", "_best")

    def __init__(self, rule: HeldOut, model: SparseModel, held: Entries) -> None:
        self.every = rule.every
        self._rule, self._model, self._held = rule, model, held
        self._tolerance = rule.tolerance if isinstance(rule, LastOfTheBest) else 0.0
        self._rows = held.pattern.line_of_each()
        graphs = [term.regularizer.name for term in model.learned if term.weight > 0]
        self._learned = [place for place, name in enumerate(model.names) if name in graphs]
        self._best: tuple[int, list[Any], tuple[Edges, ...]] | None = None
        self.lowest = np.inf
        self._peak, self._waited, self._looked, self._fidelity = 0.0, 0.0, 0, np.inf

    @property
    def best(self) -> tuple[int, SparseState] | None:
        """The iterate with the lowest error."""
        if self._best is None:
            return None
        iteration, params, edges = self._best
        return iteration, SparseState(params, edges)

    def error(self, state: SparseState) -> float:
        """Return the root mean square error on the held-out entries."""
        found = self._model.predict(self._model.sides(state.params), self._rows, self._held.pattern.indices)
        return float(np.sqrt(np.mean((to_numpy(found) - self._held.values).astype(np.float64) ** 2)))

    def check(
        self, iteration: int, state: SparseState, values: Sequence[float], before: Sequence[float] | None
    ) -> str | None:
        """Return why to stop."""
        energy = sum(values[1 + place] for place in self._learned)
        self._peak = max(self._peak, energy)
        counted = float(counted_iterations(iteration - self._looked, self._fidelity, values[0]))
        self._looked, self._fidelity = iteration, values[0]
        error = self.error(state)
        if error <= self.lowest * (1 + self._tolerance):
            kept = state.copied()
            self._best = iteration, kept.params, kept.edges
        if error < self.lowest:
            self.lowest, self._waited = error, 0.0
        else:
            self._waited += counted
        patience = max(self._rule.patience, self._rule.relative_patience * iteration)
        settled = energy <= 0.5 * self._peak or not self._learned
        return "held-out error stopped falling" if self._waited >= patience and settled else None


def check_rule(rule: Any) -> None:
    """Refuse a rule that only knows the dense form."""
    if not isinstance(rule, NeverStop | EnergyChange | HeldOut):
        raise ValueError(f"stop: form='sparse' has 'auto', None, HeldOut and EnergyChange, got {rule!r}")
