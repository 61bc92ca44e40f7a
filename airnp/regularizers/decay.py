"""Weight decay: factors that are no larger than they need to be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import numpy as np

from airnp._arrays import Array
from airnp._checks import checked_choice
from airnp.engines.buffers import Workspace
from airnp.engines.contract import DecayPart, Engine
from airnp.regularizers.base import (
    FactoredProblem,
    FactoredTerm,
    GraphWeights,
    Problem,
    Regularizer,
    Side,
    Term,
    checked_weight,
)

DecayTarget: TypeAlias = Literal["factors", "mask"]
DecayGrowth: TypeAlias = Literal["sqrt"]


class WeightDecay(Regularizer):
    r"""Squared length of the factors of :func:`airnp.fit_sparse`, row by row.

    .. math:: R = \tfrac12 \sum_i g(n_i) \|u_i\|^2 + \tfrac12 \sum_j g(n_j) \|v_j\|^2, \qquad
       ∂R/∂u_i = g(n_i) u_i

    where :math:`n_i` is the number of observed entries of a row, :math:`n_j` that of a column.

    Parameters
    ----------
    weight : float
        λ, in the units of the loss: with ``Squared("sum")``, so many squared errors.
    growth : None or "sqrt"
        g: 1, or √n. Rows with many entries can afford longer factors, but not in proportion to them.
    on : {"factors", "mask"}
        What is to be short: U and V as the chain gives them, or the free matrices of the mask factor.

    Examples
    --------
    >>> WeightDecay(1.7, growth="sqrt")
    WeightDecay(1.7, growth='sqrt', on='factors')
    """

    def __init__(self, weight: float, growth: DecayGrowth | None = None, on: DecayTarget = "factors") -> None:
        self.weight = checked_weight(weight)
        self.growth: DecayGrowth | None = (
            None if growth is None else checked_choice("growth", growth, ("sqrt",))
        )
        self.on: DecayTarget = checked_choice("on", on, ("factors", "mask"))
        self.name = "decay" if on == "factors" else "mask_decay"

    def __repr__(self) -> str:
        return f"WeightDecay({self.weight!r}, growth={self.growth!r}, on={self.on!r})"

    def bind(self, problem: Problem) -> Term:
        """Refuse: a matrix that is formed as a whole has no rows of factors."""
        raise ValueError("regularizers: WeightDecay is for airnp.fit_sparse")

    def bind_factored(self, problem: FactoredProblem) -> FactoredTerm:
        """Return the term for a problem in the factored form."""
        if self.on == "mask" and not problem.has_mask_factor:
            raise ValueError("regularizers: WeightDecay(on='mask') needs a mask_factor")
        entries, xp = problem.entries, problem.xp
        counts = {"rows": entries.pattern.counts, "columns": entries.column_counts}
        growth = {
            axis: xp.asarray(growth_of(each, self.growth, entries.values.dtype))
            for axis, each in counts.items()
        }
        return DecayTerm(self.weight, self.on, growth)


class DecayTerm(FactoredTerm):
    """λ/2 Σ g(n) ‖row‖² of matrices whose rows belong to the rows or columns of X."""

    is_plain = True

    def __init__(self, weight: float, on: DecayTarget, growth: dict[str, Array]) -> None:
        self.weight, self.acts_on, self._growth = weight, on, growth

    def accumulate(
        self, ops: Engine, sides: Mapping[str, Side], graph: GraphWeights | None, space: Workspace
    ) -> Array:
        """Add λ g(n) ⊙ matrix to the gradient of each side; return R."""
        parts = [DecayPart(matrix, self._growth[axis], slope) for axis, (matrix, slope) in sides.items()]
        return ops.decay(parts, weight=self.weight)


def growth_of(counts: Any, growth: DecayGrowth | None, dtype: Any) -> Any:
    """Return g(n) for each line, as a column (lines, 1).

    Examples
    --------
    >>> growth_of(np.array([4, 9]), "sqrt", "float32").ravel().tolist()
    [2.0, 3.0]
    """
    scale = np.ones(len(counts)) if growth is None else np.sqrt(np.maximum(counts, 1))
    return scale.astype(dtype)[:, None]
