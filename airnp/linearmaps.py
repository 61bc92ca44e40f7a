"""Linear maps that users bring: how they are called, and whether their adjoint is one."""

from __future__ import annotations

from typing import Any

import numpy as np

from airnp._arrays import Array, Namespace, from_numpy, namespace_name, to_numpy
from airnp.transforms import Transform


class FlatOperator:
    """A ``scipy.sparse.linalg.LinearOperator`` on X.ravel(), as a map on matrices.

    Parameters
    ----------
    operator : object with ``matvec``, ``rmatvec`` and ``shape`` (o, m·n)
    shape : (m, n)
        Shape of the matrices it acts on.
    """

    def __init__(self, operator: Any, shape: tuple[int, int]) -> None:
        self._operator = operator
        self._shape = shape

    def forward(self, X: Array) -> Array:
        """Return the o measurements of X, shape (o,)."""
        return self._operator.matvec(X.reshape(-1))

    def adjoint(self, Z: Array) -> Array:
        """Return the adjoint of the operator applied to measurements, shape (m, n)."""
        return self._operator.rmatvec(Z.reshape(-1)).reshape(self._shape)


def is_flat_operator(operator: Any) -> bool:
    """Whether ``operator`` is called as SciPy's linear operators are."""
    return all(hasattr(operator, name) for name in ("matvec", "rmatvec", "shape"))


def measurement_operator(
    operator: Any, measurements: Array, shape: Any, xp: Namespace
) -> tuple[Any, tuple[int, int]]:
    """Return an operator with ``forward`` and ``adjoint``, and the shape of the matrices it acts on.

    Parameters
    ----------
    operator : object with forward and adjoint, or SciPy linear operator
    measurements : array
        What was measured; its shape is that of ``forward``'s result.
    shape : (m, n) or None
        As the caller gave it. Without it, SciPy's operators act on matrices of the measurements' own shape if
        their size fits, and other operators are asked through their adjoint.
    xp : module
    """
    if shape is not None:
        shape = _checked_shape(shape)
    if is_flat_operator(operator):
        if namespace_name(xp) not in ("numpy", "cupy"):
            raise TypeError(
                "operator: a SciPy linear operator works on NumPy arrays, the problem is in "
                f"{namespace_name(xp)}; give an object with forward and adjoint instead"
            )
        outputs, inputs = operator.shape
        if shape is None and len(measurements.shape) == 2 and measurements.size == inputs:
            shape = tuple(measurements.shape)
        if shape is None:
            raise ValueError(
                f"shape: expected (m, n) with m·n = {inputs}, the shape of the matrix that operator acts on; "
                "got None"
            )
        if shape[0] * shape[1] != inputs or measurements.size != outputs:
            raise ValueError(
                f"operator: its shape {tuple(operator.shape)} does not fit {measurements.size} measurements "
                f"of a matrix of {shape[0]}x{shape[1]}"
            )
        return FlatOperator(operator, shape), shape
    if not isinstance(operator, Transform):
        raise TypeError(
            "operator: expected a scipy.sparse.linalg.LinearOperator or an object with forward and adjoint, "
            f"got {type(operator).__name__}"
        )
    if shape is None:
        shape = _checked_shape(tuple(operator.adjoint(measurements).shape))
    return operator, shape


def _checked_shape(shape: Any) -> tuple[int, int]:
    try:
        m, n = (int(size) for size in shape)
    except (TypeError, ValueError):
        raise ValueError(f"shape: expected two whole numbers (m, n), got {shape!r}") from None
    if m < 1 or n < 1:
        raise ValueError(f"shape: expected at least one row and one column, got {shape!r}")
    return m, n


def check_adjoint(
    name: str, transform: Transform, like: Array, xp: Namespace, device: Any, dtype: str
) -> Array:
    """Raise unless ``transform`` is linear and its adjoint passes the dot test; return T of a random X.

    The test is ⟨T(x), z⟩ = ⟨x, T*(z)⟩ on one random pair, and T(0) = 0, T(−2x) = −2 T(x). A map that
    fails it would silently optimise something else than its user believes.

    Parameters
    ----------
    name : str
        The argument's name, for the error.
    transform : Transform
    like : array
        Its shape is that of X.
    """
    rng = np.random.default_rng(0)
    x = from_numpy(rng.standard_normal(tuple(like.shape)), xp, device, dtype)
    image = transform.forward(x)
    z = from_numpy(rng.standard_normal(tuple(image.shape)), xp, device, dtype)
    back = transform.adjoint(z)
    if tuple(back.shape) != tuple(x.shape):
        raise ValueError(
            f"{name}: adjoint must return the shape that forward takes, {tuple(x.shape)}, "
            f"got {tuple(back.shape)}"
        )
    left, right = _inner(image, z), _inner(x, back)
    size = np.linalg.norm(to_numpy(image)) * np.linalg.norm(to_numpy(z))
    tolerance = 1e-3 if dtype == "float32" else 1e-8
    if not abs(left - right) <= tolerance * max(size, np.finfo(dtype).tiny):
        raise ValueError(
            f"{name}: adjoint is not the adjoint of forward: <forward(x), z> = {left:.6g}, "
            f"<x, adjoint(z)> = {right:.6g}"
        )
    scaled = to_numpy(transform.forward(-2 * x)) + 2 * to_numpy(image)
    if not np.linalg.norm(scaled) <= tolerance * max(np.linalg.norm(to_numpy(image)), np.finfo(dtype).tiny):
        raise ValueError(f"{name}: forward is not linear: forward(-2 x) differs from -2 forward(x)")
    return image


def _inner(a: Array, b: Array) -> float:
    return float(np.sum(to_numpy(a).astype(np.float64) * to_numpy(b).astype(np.float64)))
