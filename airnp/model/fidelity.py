"""The data term F(X): how far X is from what was observed, and its gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from array_api_compat import array_namespace

from airnp._arrays import Array
from airnp._checks import checked_choice, checked_number
from airnp.data.linearmaps import Transform
from airnp.engines.contract import Engine, Memory

Scale: TypeAlias = Literal["mean", "sum"]

_SCALES = ("mean", "sum")


@dataclass(frozen=True)
class Squared:
    """s/2 Σ w (x − y)²: the squared errors of the observed entries.

    Parameters
    ----------
    scale : {"mean", "sum"}
        s = 2/(m·n), or s = 1.
    """

    scale: Scale = "mean"

    def __post_init__(self) -> None:
        checked_choice("scale", self.scale, _SCALES)

    @property
    def threshold(self) -> float | None:
        """The error from which on the loss grows linearly; None for never."""
        return None

    def factor(self, m: int, n: int) -> float:
        """Return s for an m×n matrix."""
        return 2.0 / (m * n) if self.scale == "mean" else 1.0


@dataclass(frozen=True)
class Huber(Squared):
    """Squared errors up to δ, beyond that linear: outliers pull no harder than an error of δ.

    Parameters
    ----------
    delta : float
        δ, in the units that are fitted: with ``normalize=True`` a share of the data's range.
    scale : {"mean", "sum"}
        s = 2/(m·n), or s = 1.

    Examples
    --------
    >>> Huber(0.05)
    Huber(delta=0.05, scale='mean')
    """

    delta: float = 0.1

    def __init__(self, delta: float = 0.1, scale: Scale = "mean") -> None:
        if checked_number("delta", delta) <= 0:
            raise ValueError(f"delta: expected a positive number, got {delta!r}")
        object.__setattr__(self, "delta", float(delta))
        object.__setattr__(self, "scale", checked_choice("scale", scale, _SCALES))

    def __repr__(self) -> str:
        return f"Huber(delta={self.delta!r}, scale={self.scale!r})"

    @property
    def threshold(self) -> float | None:
        """δ."""
        return self.delta


def checked_fidelity(fidelity: Any) -> Squared:
    """Return what ``fidelity`` of :func:`airnp.fit` says; None is ``Squared()``."""
    if fidelity is None:
        return Squared()
    if not isinstance(fidelity, Squared):
        raise TypeError(f"fidelity: expected Squared() or Huber(delta), got {fidelity!r}")
    return fidelity


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
