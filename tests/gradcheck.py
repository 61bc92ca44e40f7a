"""Gradient checks by fourth-order central differences, and the cases they run over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Arrays = Sequence[np.ndarray]


def directional_derivative(
    value: Callable[[Arrays], float], point: Arrays, direction: Arrays, step: float
) -> float:
    """Return d/dt value(point + t·direction) at t = 0: (8(f₁ − f₋₁) − (f₂ − f₋₂)) / 12h, exact to O(h⁴)."""

    def along(t: float) -> float:
        return value([p + t * d for p, d in zip(point, direction, strict=True)])

    near, far = along(step) - along(-step), along(2 * step) - along(-2 * step)
    return (8 * near - far) / (12 * step)


def check_direction(
    value: Callable[[Arrays], float],
    point: Arrays,
    grads: Arrays,
    rng: Any,
    *,
    step: float = 1e-3,
    tol: float = 1e-6,
) -> None:
    """Assert the gradient along one random direction through all arrays at once.

    No component of the direction is near zero, so that no coordinate's error hides.
    """
    direction = [rng.choice([-1.0, 1.0], p.shape) * rng.uniform(0.5, 1.0, p.shape) for p in point]
    norm = np.sqrt(sum(float(np.sum(d * d)) for d in direction))
    direction = [d / norm for d in direction]
    numeric = directional_derivative(value, point, direction, step)
    analytic = sum(float(np.sum(g * d)) for g, d in zip(grads, direction, strict=True))
    size = np.sqrt(sum(float(np.sum(g * g)) for g in grads))
    # Relative to the gradient's own size: a random direction may be almost orthogonal to it.
    assert abs(numeric - analytic) <= tol * max(size, abs(numeric)) + 1e-12, (
        f"along the direction: numeric {numeric!r}, analytic {analytic!r}, |gradient| {size!r}\n"
        f"point {point!r}\ndirection {direction!r}"
    )


def check_coordinates(
    value: Callable[[Arrays], float], point: Arrays, grads: Arrays, *, step: float = 1e-3, tol: float = 1e-6
) -> None:
    """Assert every entry of the gradient; relative to each array's largest entry."""
    for position, grad in enumerate(grads):
        numeric = np.zeros_like(grad)
        for place in np.ndindex(*grad.shape):
            direction = [np.zeros_like(p) for p in point]
            direction[position][place] = 1.0
            numeric[place] = directional_derivative(value, point, direction, step)
        scale = max(np.abs(numeric).max(initial=0.0), np.abs(grad).max(initial=0.0))
        worst = np.abs(numeric - grad).max(initial=0.0)
        assert worst <= tol * scale + 1e-12, (
            f"array {position}: off by {worst!r} of {scale!r}\nnumeric {numeric!r}\nanalytic {grad!r}"
        )
