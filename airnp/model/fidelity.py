"""The data term F(X): how far X is from what was observed, and its gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from array_api_compat import array_namespace

from airnp._arrays import Array
from airnp._checks import checked_number
from airnp.data.linearmaps import Transform
from airnp.engines.contract import Engine, Memory

FidelityScale: TypeAlias = Literal["mean", "sum"]
Loss: TypeAlias = Literal["squared", "huber"]

_SCALES = ("mean", "sum")
_LOSSES = ("squared", "huber")


def fidelity_scale(fidelity: str, m: int, n: int) -> float:
    """Return s: 2/(m·n) for ``"mean"``, 1 for ``"sum"``."""
    if not (isinstance(fidelity, str) and fidelity in _SCALES):
        raise ValueError(f"fidelity: expected one of {', '.join(map(repr, _SCALES))}, got {fidelity!r}")
    return 2.0 / (m * n) if fidelity == "mean" else 1.0


def huber_threshold(loss: str, delta: Any) -> float | None:
    """Return δ of the Huber loss, or None for the squared loss."""
    if not (isinstance(loss, str) and loss in _LOSSES):
        raise ValueError(f"loss: expected one of {', '.join(map(repr, _LOSSES))}, got {loss!r}")
    if loss == "squared":
        return None
    threshold = checked_number("huber_delta", delta)
    if threshold <= 0:
        raise ValueError(f"huber_delta: expected a positive number, got {delta!r}")
    return threshold


@dataclass(frozen=True)
class Fidelity:
    """F(X) = s/2 Σ w (X − y)² over observed entries, or its Huber form; the operator form applies it to A(X).

    Attributes
    ----------
    values, weights : arrays (…, m, n), or (…) measurements when there is an operator
    scale : float
        s.
    huber_delta : float or None
        δ of the Huber loss; None is the squared loss.
    operator : Transform or None
        A, with its adjoint.
    """

    values: Array
    weights: Array
    scale: float
    huber_delta: float | None = None
    operator: Transform | None = None

    def value_and_gradient(
        self, ops: Engine, x: Array, row_scale: Array | None, column_scale: Array | None, memory: Memory
    ) -> tuple[Array, Array]:
        """Return F and ∇F + row_scale ⊙ x + x ⊙ column_scale.

        With an operator, F(X) = f(A(X)) and ∇F = A*(∇f(A(X))).
        """
        if self.operator is None:
            return ops.residual(
                x,
                self.values,
                self.weights,
                scale=self.scale,
                huber_delta=self.huber_delta,
                row_scale=row_scale,
                column_scale=column_scale,
                out=memory.take(tuple(x.shape)),
            )
        xp = array_namespace(x)
        shape = tuple(self.values.shape)
        as_row = (1, -1)  # the residual works on matrices; measurements become one row
        value, slope = ops.residual(
            xp.reshape(self.operator.forward(x), as_row),
            xp.reshape(self.values, as_row),
            xp.reshape(self.weights, as_row),
            scale=self.scale,
            huber_delta=self.huber_delta,
        )
        gradient = self.operator.adjoint(xp.reshape(slope, shape))
        return value, ops.scale_lines(gradient, x, row_scale, column_scale)
