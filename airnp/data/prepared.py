"""Data as they are fitted: read, normalised, within bounds, with the way back to the data's units."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from airnp._arrays import Array, on_device
from airnp.data import normalization
from airnp.data.bounds import Bounds
from airnp.data.inputs import Observations, read
from airnp.data.linearmaps import Transform, measurement_operator
from airnp.data.normalization import Normalization


@dataclass(frozen=True)
class Operator:
    """A linear operator that does not say which matrices it acts on, and their shape.

    Parameters
    ----------
    operator : LinearOperator or object with ``forward`` and ``adjoint``
        A scipy.sparse.linalg.LinearOperator acts on ``X.ravel()``.
    shape : (m, n)
        Shape of X.
    """

    operator: Any
    shape: tuple[int, int]

    @classmethod
    def parts(cls, operator: Any) -> tuple[Any, tuple[int, int] | None]:
        """Return the operator itself and the shape that the user said, if any."""
        return (operator.operator, operator.shape) if isinstance(operator, cls) else (operator, None)


@dataclass(frozen=True)
class PreparedData:
    """Observations as they are fitted, and the way back to the data's units."""

    observations: Observations
    normalization: Normalization
    operator: Transform | None
    shape: tuple[int, int]
    original: Array | None
    bounds: Bounds | None = None

    def restored(self, X: Array) -> Array:
        """Return what the factors multiply to in the data's own units, within the bounds."""
        matrix = self.normalization.undo(X)
        return matrix if self.bounds is None else self.bounds.put_on(matrix)

    def within(self, bounds: Any) -> PreparedData:
        """Return the same with bounds, which observed entries must keep; see :func:`airnp.fit`."""
        labels = self.observations.labels
        limits = Bounds.of(bounds, None, self.shape[-1], None if labels is None else labels.columns)
        if limits is not None:
            limits.check_type(self.observations.dtype)
        if limits is None or self.original is None:
            return replace(self, bounds=limits)
        limits.check(self.original, self.observations.mask)
        # A float64 that keeps a bound may have left it in float32.
        with on_device(self.observations.xp, self.observations.device):
            xp, seen = self.observations.xp, self.observations.mask
            original = xp.where(seen, limits.put_on(self.original), self.original)
        return replace(self, bounds=limits, original=original)


def prepare(
    Y: Any,
    mask: Any,
    weights: Any,
    xp: Any,
    device: Any,
    dtype: Any,
    operator: Any,
    normalize: bool,
) -> PreparedData:
    """Return the observations as the mathematics sees them; see :func:`airnp.fit` for the arguments."""
    if not isinstance(normalize, bool | np.bool_):
        raise TypeError(f"normalize: expected True or False, got {normalize!r}")
    observations = read(Y, mask, weights, xp=xp, device=device, dtype=dtype, matrices=operator is None)
    with on_device(observations.xp, observations.device):
        return _normalized(observations, operator, normalize)


def _normalized(observations: Observations, operator: Any, normalize: bool) -> PreparedData:
    """Return the observations in the units that are fitted, and the way back."""
    if operator is None:
        batch, size = tuple(observations.values.shape[:-2]), tuple(observations.values.shape[-2:])
        original = observations.place(observations.values, observations.dtype)
        scaled, way_back = (
            normalization.by_range(observations)
            if normalize
            else (observations, normalization.identity(observations, batch))
        )
        return PreparedData(scaled.moved(), way_back, None, size, original)
    observations = observations.moved()
    operator, shape = Operator.parts(operator)
    bound, size = measurement_operator(operator, observations.values, shape, observations.xp)
    scaled, way_back = (
        normalization.by_size(observations, bound, size)
        if normalize
        else (observations, normalization.identity(observations, ()))
    )
    return PreparedData(scaled, way_back, bound, size, None)


def without(observations: Observations, held_out: npt.NDArray[np.bool_] | None) -> Observations:
    """Return the observations less those that are held out."""
    if held_out is None:
        return observations
    kept = observations.place(~held_out, observations.dtype)
    return replace(observations, weights=observations.weights * kept)
