"""What ``airnp.inpaint`` returns with ``full=True``: the picture, how sure it is, and what was chosen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from airnp._arrays import dtype_name, to_numpy
from airnp._checks import checked_number
from airnp.images.masked_image import Layout
from airnp.images.trials import Calibration


@dataclass(frozen=True, eq=False, repr=False)
class Inpainting:
    """A filled picture.

    Attributes
    ----------
    image : array
        The picture without gaps, of the shape and dtype that it came in.
    std : ndarray of float32 or None
        Standard deviation of every filled pixel, in units of the image; 0 where observed. None for methods
        that have none (``"air"``, ``"biharmonic"``, ``"linear"``).
    method : str
    chosen : dict
        What the trials chose: ``patch``, ``search`` and ``neighbours`` of the last round, the number of
        ``rounds`` and ``graphs``, and the shares ``smooth`` (of the smooth surface) and ``flat`` (without
        smaller copies); ``tried``: the error of all that was tried.
    expected : float
        Mean absolute error to expect on the missing pixels, in units of the image; NaN if there were no
        trials.
    expected_error : float
        Standard error of that.
    stop_reason : {"done", "time limit", "interrupted"}
    seconds : float
    """

    image: Any
    std: Any
    method: str
    chosen: dict[str, Any]
    expected: float
    expected_error: float
    stop_reason: str
    seconds: float
    _spread: Any = None
    _layout: Layout | None = None
    _calibrations: tuple[Calibration, ...] = ()

    @classmethod
    def of(
        cls, image: Any, deviation: Any, reports: Any, layout: Layout, method: str, seconds: float
    ) -> Inpainting:
        """Put together what was found for the pictures of a stack, in its order."""
        if any(report.choice is None for report in reports):
            return cls(image, None, method, {}, float("nan"), float("nan"), reports[0].stop_reason, seconds)
        calibrations = tuple(report.choice.calibration for report in reports)
        pictures = layout.arrange(deviation)
        claims = [_mean_claim(pictures[place]) for place in np.ndindex(pictures.shape[:-4])]
        tried = [
            (report.choice, claim, report.unit)
            for report, claim in zip(reports, claims, strict=True)
            if np.isfinite(report.choice.ratio)  # complete pictures had no trials
        ]
        errors = [choice.ratio * claim for choice, claim, _ in tried] or [float("nan")]
        unsure = [choice.ratio_error * claim for choice, claim, _ in tried] or [float("nan")]
        first, _, unit = tried[0] if tried else (reports[0].choice, 0.0, reports[0].unit)
        last = first.candidate.rounds[-1] if first.candidate.rounds else None
        chosen = {
            "patch": None if last is None else last.patch,
            "search": first.candidate.graph.search if last is None else last.search,
            "neighbours": None if last is None else last.neighbours,
            "graphs": first.candidate.graphs,
            "rounds": len(first.candidate.rounds),
            "smooth": first.smooth,
            "flat": first.flat,
            "tried": {name: error * unit for name, error in first.errors.items()},
        }
        reason = next((report.stop_reason for report in reports if report.stop_reason != "done"), "done")
        count = len(errors)
        return cls(
            image,
            _widened(deviation, layout, calibrations, 0.9) / np.float32(1.645),
            method,
            chosen,
            float(np.mean(errors)),
            float(np.sqrt(np.sum(np.square(unsure)))) / count,
            reason,
            seconds,
            deviation,
            layout,
            calibrations,
        )

    def __repr__(self) -> str:
        """Return a summary, without the pixels."""
        size = "×".join(map(str, self.image.shape))
        parts = [f"{size} {dtype_name(self.image.dtype)}", describe_choice(self.method, self.chosen)]
        if np.isfinite(self.expected):
            parts.append(f"expected error {self.expected:.3g} ± {self.expected_error:.2g}")
        parts.append(f"{self.stop_reason} after {self.seconds:.1f} s")
        return f"Inpainting({'; '.join(parts)})"

    def interval(self, level: float = 0.9) -> tuple[Any, Any]:
        """Return the ends of intervals that cover the true pixels with a probability of about ``level``.

        Parameters
        ----------
        level : float
            Between 0 and 1.

        Returns
        -------
        low, high : ndarray of float64
            Of the image's shape; both are the pixel itself where it is observed.
        """
        if not 0 < checked_number("level", level) < 1:
            raise ValueError(f"level: expected a number between 0 and 1, got {level!r}")
        if self._spread is None or self._layout is None:
            raise ValueError(f"interval: method {self.method!r} has no variances; use 'auto' or 'patches'")
        width = _widened(self._spread.astype(np.float64), self._layout, self._calibrations, level)
        centre = to_numpy(self.image).astype(np.float64)
        return centre - width, centre + width


def _mean_claim(deviation: Any) -> float:
    """Return the mean of the claimed deviations (T, C, H, W) of missing pixels, which are above 0."""
    missing = np.count_nonzero(deviation)
    return float(deviation.sum(dtype=np.float64)) / missing if missing else 0.0


def _widened(
    deviation: Any, layout: Layout, calibrations: tuple[Calibration, ...], level: float
) -> npt.NDArray[Any]:
    """Return how far intervals reach: claimed deviations times the width of each picture's calibration."""
    wide: npt.NDArray[Any] = np.empty_like(deviation)
    pictures, target = layout.arrange(deviation), layout.arrange(wide)
    for place, calibration in zip(np.ndindex(pictures.shape[:-4]), calibrations, strict=True):
        target[place] = calibration.width(level) * pictures[place]
    return wide


def describe_choice(method: str, settings: dict[str, Any]) -> str:
    """Return a method of :func:`airnp.inpaint` and the settings that it chose, in words.

    Examples
    --------
    >>> describe_choice("linear", {})
    'linear'
    >>> found = {"patch": 5, "search": 10, "neighbours": 80, "rounds": 3, "smooth": 0.25, "flat": 0.0}
    >>> describe_choice("auto", found)
    'auto: patch 5, search 10, neighbours 80, rounds 3, 25% of the smooth surface'
    """
    names = ("patch", "search", "neighbours", "rounds")
    parts = [f"{name} {settings[name]}" for name in names if settings.get(name) is not None]
    if settings.get("smooth"):
        parts.append(f"{settings['smooth']:.0%} of the smooth surface")
    return f"{method}: {', '.join(parts)}" if parts else method
