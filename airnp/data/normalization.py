"""Data as they are fitted: brought to [0, 1], or columns to one scale, within bounds, and the way back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace

from airnp._arrays import Array, beside, from_numpy, on_device, to_numpy
from airnp.data.bounds import Bounds
from airnp.data.entries import Entries
from airnp.data.inputs import Observations, read
from airnp.data.linearmaps import Operator, Transform, measurement_operator

_FAR = 6.0
"""Entries beyond this many interquartile ranges from the quartiles do not count for center and scale."""


@dataclass(frozen=True)
class Normalization:
    """X = offset + scale · X̂, where X̂ is what the factors multiply to.

    Attributes
    ----------
    offset, scale : arrays (…, 1, 1)
        One pair per problem of a stack.
    """

    offset: Array
    scale: Array

    def undo(self, X: Array) -> Array:
        """Return X in the data's own units."""
        with beside(X):
            return self.offset + self.scale * X


def identity(observations: Observations, batch: tuple[int, ...]) -> Normalization:
    """Return the normalisation that changes nothing."""
    xp, device, dtype = observations.xp, observations.device, observations.dtype
    offset = from_numpy(np.zeros((*batch, 1, 1)), xp, device, dtype)
    return Normalization(offset, from_numpy(np.ones((*batch, 1, 1)), xp, device, dtype))


def by_range(observations: Observations) -> tuple[Observations, Normalization]:
    """Return the observations as (Y − min)/(max − min) of the observed entries, problem by problem.

    Computed in the input's own precision before any cast to a narrower type, so that a large offset does
    not eat the digits. Constant data has no range; its own size takes the place.
    """
    values, mask = observations.values, observations.mask
    xp = array_namespace(values)
    infinite = xp.full_like(values, xp.inf)
    low = xp.min(xp.where(mask, values, infinite), axis=(-2, -1), keepdims=True)
    high = xp.max(xp.where(mask, values, -infinite), axis=(-2, -1), keepdims=True)
    # Halves, because the difference itself may overflow.
    largest = min(float(xp.finfo(values.dtype).max), float(np.finfo(observations.dtype).max))
    if bool(xp.any(high / 2 - low / 2 > largest / 2)):
        raise ValueError(f"Y: the range of observed entries overflows {observations.dtype}; scale it down")
    span = high - low
    size = xp.where(low == 0, xp.ones_like(low), xp.abs(low))
    span = xp.where(span > 0, span, size)
    scaled = xp.where(mask, (values - low) / span, xp.zeros_like(values))
    place = observations.place
    dtype = observations.dtype
    return replace(observations, values=scaled), Normalization(place(low, dtype), place(span, dtype))


def by_size(
    observations: Observations, operator: Transform, shape: tuple[int, int]
) -> tuple[Observations, Normalization]:
    """Return measurements divided by the size that the matrix behind them is likely to have.

    A matrix whose entries are of size c has measurements of size c·rms(A(probe)) for a probe with entries of
    size 1; both a constant probe and one with random signs are tried, because an operator may blur the
    one or remove the other. The offset stays zero: an operator says nothing about it.
    """
    xp, device, dtype = observations.xp, observations.device, observations.dtype
    signs = np.random.default_rng(0).choice([-1.0, 1.0], size=shape)
    probes = [from_numpy(probe, xp, device, dtype) for probe in (np.ones(shape), signs)]
    gain = max(_root_mean_square(to_numpy(operator.forward(probe))) for probe in probes)
    size = _root_mean_square(to_numpy(observations.values)[to_numpy(observations.mask)])
    # The root mean square of data in [0, 1] is about one half.
    span = 2 * size / gain if size > 0 and gain > 0 else 1.0
    offset, scale = np.zeros((1, 1)), np.full((1, 1), span)
    normalization = Normalization(from_numpy(offset, xp, device, dtype), from_numpy(scale, xp, device, dtype))
    return replace(observations, values=observations.values / span), normalization


def _root_mean_square(array: npt.NDArray[Any]) -> float:
    """Return √(mean of squares) of a non-empty array, whose squares may overflow or vanish."""
    sizes = np.abs(array.astype(np.float64))
    largest = float(np.max(sizes))
    return largest * float(np.sqrt(np.mean((sizes / largest) ** 2))) if largest > 0 else 0.0


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
            by_range(observations) if normalize else (observations, identity(observations, batch))
        )
        return PreparedData(scaled.moved(), way_back, None, size, original)
    observations = observations.moved()
    operator, shape = Operator.parts(operator)
    bound, size = measurement_operator(operator, observations.values, shape, observations.xp)
    scaled, way_back = (
        by_size(observations, bound, size) if normalize else (observations, identity(observations, ()))
    )
    return PreparedData(scaled, way_back, bound, size, None)


def without(observations: Observations, held_out: npt.NDArray[np.bool_] | None) -> Observations:
    """Return the observations less those that are held out."""
    if held_out is None:
        return observations
    kept = observations.place(~held_out, observations.dtype)
    return replace(observations, weights=observations.weights * kept)


def entries_by_range(entries: Entries) -> tuple[Entries, float, float]:
    """Return sparse entries as (y − least) / (largest − least), and the least and the range."""
    values = entries.values.astype(np.float64)
    low, high = float(values.min()), float(values.max())
    span = high - low or abs(low) or 1.0
    return entries.with_values(((values - low) / span).astype(entries.values.dtype)), low, span


@dataclass(frozen=True, eq=False)
class ColumnScaling:
    """Center and scale of each column of a table, without the influence of outliers, (d,)."""

    center: npt.NDArray[np.float64]
    scale: npt.NDArray[np.float64]

    @classmethod
    def of(cls, values: npt.NDArray[Any], observed: npt.NDArray[np.bool_]) -> ColumnScaling:
        """Return the scaling of a table (n, d) with gaps; a constant column has 1, or its size if less.

        Examples
        --------
        >>> table = np.array([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0], [1e9, 5.0]])
        >>> ColumnScaling.of(table, np.array([[True] * 2] * 3 + [[False, True]])).scale.round(2)
        array([0.82, 1.  ])
        """
        d = values.shape[1]
        center, scale = np.zeros(d), np.ones(d)
        for j in range(d):
            column = values[observed[:, j], j].astype(np.float64)
            if not len(column):
                continue
            size = float(np.abs(column).max()) or 1.0
            column = column / size  # squares of very large or small numbers are no numbers
            low, high = np.quantile(column, [0.25, 0.75])
            if high > low:
                reach = _FAR * (high - low)
                column = column.clip(low - reach, high + reach)
            spread = float(column.std())
            center[j] = column.mean() * size
            scale[j] = spread * size if spread > 1e-12 else min(size, 1.0)
        return cls(center, scale)

    def standardised(
        self, values: npt.NDArray[Any], observed: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.float64]:
        """Return standardised values, 0 in gaps."""
        return np.asarray((np.where(observed, values, self.center) - self.center) / self.scale)

    def undone(self, inside: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Return values in the units of the table."""
        return np.asarray(inside * self.scale + self.center)
