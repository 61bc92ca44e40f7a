"""What a filled pixel may be: whole numbers or not, and within which bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from airnp.bounds import Bounds
from airnp.images.tiles import Values


@dataclass(frozen=True)
class PixelKind:
    """What a filled pixel may be: a dtype and bounds within its range."""

    dtype: np.dtype[Any]
    limits: Bounds

    @classmethod
    def of(cls, dtype: np.dtype[Any], bounds: Any) -> PixelKind:
        """Return the kind of an image's dtype, within ``bounds`` or else its own range."""
        whole = dtype.kind != "f"
        own: Any = np.iinfo(dtype) if whole else np.finfo(dtype)
        # The largest int64 is no float64; the next one up would overflow.
        least, most = float(own.min), float(own.max)
        most = most if most <= own.max else float(np.nextafter(most, 0))
        given = Bounds.of(bounds, whole)
        low, high = (-np.inf, np.inf) if given is None else (float(given.low), float(given.high))
        if (np.isfinite(low) and low < least) or (np.isfinite(high) and high > most):
            raise ValueError(f"bounds: expected numbers within the range of {dtype}, got {bounds!r}")
        limits = Bounds.of((max(low, least), min(high, most)), whole)
        assert limits is not None
        return cls(dtype, limits)

    def of_pixels(self, content: Values) -> Values:
        """Return floating-point numbers as pixels."""
        if self.dtype.kind != "f":
            return np.asarray(self.limits.put_on(content)).astype(self.dtype)
        with np.errstate(over="ignore"):  # what is too large for the dtype is above the bounds
            return np.asarray(self.limits.put_on(content.astype(self.dtype)))
