"""Total variation: neighbours should be alike."""

from __future__ import annotations

from airnp._arrays import Array
from airnp._checks import checked_choice
from airnp.engines.contract import Engine, VariationKind
from airnp.regularizers.base import Contribution, Problem, Regularizer, Term, checked_weight

VARIATION_WEIGHT = 0.005
"""Default λ, as a multiple of the fidelity scale s.

Of 0.005 and 0.015 the first was the better one on Barbara, the second by little on Baboon.
"""

_VARIATIONS = ("l1", "quadratic")


class TotalVariation(Regularizer):
    """Differences between neighbouring entries, along rows and along columns.

    Parameters
    ----------
    weight : float, optional
        λ. Default 0.005·s for the fidelity scale s, which is 0.01/(m·n) with the mean fidelity.
    kind : {"l1", "quadratic"}
        Σ (√(d² + ε²) − ε), the anisotropic ℓ1 form, or Σ d².
    epsilon : float
        ε, the size of a difference below which the ℓ1 form is rounded off so that it has a gradient.

    Examples
    --------
    >>> TotalVariation()
    TotalVariation(None, kind='l1', epsilon=0.001)
    >>> TotalVariation(1e-4)
    TotalVariation(0.0001, kind='l1', epsilon=0.001)
    """

    name = "total_variation"

    def __init__(
        self, weight: float | None = None, kind: VariationKind = "l1", epsilon: float = 1e-3
    ) -> None:
        self.weight = None if weight is None else checked_weight(weight)
        self.kind: VariationKind = checked_choice("kind", kind, _VARIATIONS)
        if not 0 < epsilon < float("inf"):
            raise ValueError(f"epsilon: expected a positive number, got {epsilon!r}")
        self.epsilon = float(epsilon)

    def __repr__(self) -> str:
        return f"TotalVariation({self.weight!r}, kind={self.kind!r}, epsilon={self.epsilon!r})"

    def bind(self, problem: Problem) -> Term:
        """Return the term for a problem."""
        weight = VARIATION_WEIGHT * problem.fidelity_scale if self.weight is None else self.weight
        return VariationTerm(weight, self.kind, self.epsilon)


class VariationTerm(Term):
    """λ TV(X); value and gradient come out of one pass."""

    is_plain = True

    def __init__(self, weight: float, kind: VariationKind, epsilon: float) -> None:
        self.weight = weight
        self._kind = kind
        self._epsilon = epsilon

    def accumulate(self, ops: Engine, x: Array, g: Array, contribution: Contribution) -> tuple[Array, Array]:
        """Add λ ∇TV to the gradient."""
        return ops.total_variation(g, x, kind=self._kind, epsilon=self._epsilon, weight=self.weight)
