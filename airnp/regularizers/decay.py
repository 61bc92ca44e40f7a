"""Weight decay: factors that are no larger than they need to be."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np

from airnp.regularizers.base import Problem, Regularizer, Term, checked_choice, checked_weight

DecayTarget: TypeAlias = Literal["factors", "mask"]
DecayGrowth: TypeAlias = Literal["sqrt"]


class WeightDecay(Regularizer):
    r"""Squared length of the factors of ``form="sparse"``, row by row.

    .. math:: R = \tfrac12 \sum_i g(n_i) \|u_i\|^2 + \tfrac12 \sum_j g(n_j) \|v_j\|^2, \qquad
       ∂R/∂u_i = g(n_i) u_i

    where :math:`n_i` is the number of observed entries of a row, :math:`n_j` that of a column.

    Parameters
    ----------
    weight : float
        λ, in the units of the loss: with ``fidelity="sum"``, so many squared errors.
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
        """Refuse: only the sparse form works on rows of factors."""
        raise ValueError("regularizers: WeightDecay is for a sparse Y and form='sparse'")


def growth_of(counts: Any, growth: DecayGrowth | None, dtype: Any) -> Any:
    """Return g(n) for each line, as a column (lines, 1).

    Examples
    --------
    >>> growth_of(np.array([4, 9]), "sqrt", "float32").ravel().tolist()
    [2.0, 3.0]
    """
    scale = np.ones(len(counts)) if growth is None else np.sqrt(np.maximum(counts, 1))
    return scale.astype(dtype)[:, None]
