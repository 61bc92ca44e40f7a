"""``airnp.inpaint``: fill the holes of grey and colour pictures, videos and spectral cubes."""

from __future__ import annotations

import inspect
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from airnp._arrays import dtype_name, from_numpy, to_numpy
from airnp._checks import checked_choice, checked_number, checked_seed
from airnp.data.bounds import Bounds
from airnp.engines.threads import checked_threads, using
from airnp.fitting import fit
from airnp.images.checkpoints import StageFile, fingerprint
from airnp.images.inpainted import Inpainting
from airnp.images.masked_image import Layout, MaskedImage, Place, read_image
from airnp.images.painting import Painter, Plan, State
from airnp.images.surfaces import biharmonic_surface, linear_surface
from airnp.images.trials import Choice, Overrides, candidate, choose, form
from airnp.regularizers import TotalVariation, default_regularizers
from airnp.training.options import Checkpoint
from airnp.training.progress import ShareBar

Values = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]

METHODS = ("auto", "patches", "air", "biharmonic", "linear")

_NOT_FOR_CHANNELS = (
    "Y",
    "mask",
    "operator",
    "weights",
    "record",
    "progress",
    "checkpoint",
    "xp",
    "device",
    "seed",
)
"""Options of :func:`airnp.fit` that several channels cannot share, or that inpaint has itself."""

_FOR_AIR = tuple(name for name in inspect.signature(fit).parameters if name not in _NOT_FOR_CHANNELS)

CHANNELS_TOGETHER = 24
"""Channels that one patch holds; more are filled in portions."""


def inpaint(
    image: Any,
    mask: Any = None,
    *,
    method: Literal["auto", "patches", "air", "biharmonic", "linear"] = "auto",
    quality: Literal["best", "fast"] = "best",
    patch: int | None = None,
    search: int | None = None,
    neighbours: int | None = None,
    channel_axis: int | Literal["auto"] | None = "auto",
    time_axis: int | None = None,
    bounds: tuple[float | None, float | None] | None = None,
    full: bool = False,
    out: npt.NDArray[Any] | None = None,
    xp: Any = None,
    device: Any = None,
    threads: int | None = None,
    seed: int | None = 0,
    progress: bool = False,
    time_limit: float | None = None,
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
    **options: Any,
) -> Any:
    """Fill the missing pixels of a picture, or of every picture of a stack.

    Parameters
    ----------
    image : array (H, W), (H, W, C) or (…, H, W, C)
        Integers (uint8, uint16, …) or floating point. An array of NumPy, CuPy, PyTorch or another array-API
        namespace, a ``numpy.ma`` array, or nested lists. Never modified.
    mask : array of bool, of 0 and 1, or of 0 and 255, optional
        True, 1 or 255 where observed. The shape of the image; or without its channels, which then share it;
        or (H, W), shared by all. Without it, NaN means missing.
    method : {"auto", "patches", "air", "biharmonic", "linear"}
        ``"auto"``: resembling patches, with settings chosen by trials on held-out pixels in the shape of the
        gaps, and mixed with a smooth surface if that is better. ``"patches"``: the same without trials.
        ``"air"``: the model of :func:`airnp.fit` for each channel, with total variation. ``"biharmonic"``,
        ``"linear"``: a smooth surface, or linear interpolation.
    quality : {"best", "fast"}
        ``"fast"`` compares fewer patches, once or twice.
    patch, search, neighbours : int, optional
        Side of a patch in pixels, how far away similar patches are looked for, and how many of them form a
        group. A patch larger than the picture is reduced. Default: 6 and 8 in turn for grey pictures, 4 for
        colours, larger in deep holes; 10 pixels, in late rounds and in holes up to 20; 64.
    channel_axis : int, None or "auto"
        Axis of ``image`` that holds the channels. None: there are none, and the last two axes are the
        pictures, (…, H, W). ``"auto"``: the last axis, if there are three axes or more and it has at most
        four entries; other arrays of three axes or more need an answer.
    time_axis : int, optional
        Axis of the frames of a video: the frames before and after join the search for similar patches.
        Without it, pictures of a stack are filled one by one.
    bounds : (low, high), optional
        Filled pixels are clipped to these; either may be None. Default: the range of the dtype, and of the
        observed pixels, a little widened. Integers are rounded.
    full : bool
        Return an :class:`Inpainting` with the standard deviation of every filled pixel, intervals, what was
        chosen and the error to expect.
    out : ndarray, optional
        Where to write the answer, such as a ``numpy.memmap``; of the image's shape and dtype, in memory of
        its own.
    xp : module, optional
        Array namespace to compute in: ``cupy`` runs rounds of patches on a GPU, and ``"air"`` runs on any.
        Default: that of the image.
    device : int or device, optional
        Where in that namespace. Default: that of the image.
    threads : int, optional
        CPU threads. Default: all processors. The answer does not depend on it.
    seed : int, optional
        Of the held-out pixels, and of ``"air"``. None draws one.
    progress : bool
        Show a progress bar with the time left.
    time_limit : float, optional
        Seconds after which the picture is returned as it is then, filled at least by a smooth surface.
    checkpoint : path or Checkpoint, optional
        File to save the work in. The same call continues from it; it is removed at the end.
    **options
        Options of :func:`airnp.fit`, for ``method="air"``: ``max_iter``, ``stop``, ``regularizers``, ….

    Returns
    -------
    array or Inpainting
        Of the image's namespace, shape and dtype, or ``out``. Observed pixels are exactly as they were. After
        Ctrl-C, the picture so far.

    Raises
    ------
    ValueError, TypeError
        For input that cannot be meant; the message names the argument.

    Notes
    -----
    Gaps start from a smooth surface; those far from observed pixels from a smaller copy of the picture, which
    was filled before. Then patches are joined with those that resemble them, and the energy of that graph is
    minimised (``airnp.resemblance.patch_graph``). Then groups of resembling patches are modelled by
    Gaussians, a few times (``airnp.resemblance.patches``). Only patches that touch a gap cost time.

    A patch holds all channels, so they share what they know, also where each has gaps of its own.

    The answer does not depend on how the picture is cut: :func:`airnp.dask.inpaint` gives the same bits.

    Examples
    --------
    >>> import numpy as np
    >>> from airnp import masks
    >>> from airnp.commands.demo import scene
    >>> grey = scene(64)
    >>> picture = np.rint(255 * np.stack([grey, grey**2, 1 - grey], axis=-1)).astype(np.uint8)
    >>> mask = masks.random((64, 64), missing=0.3, seed=0)
    >>> found = inpaint(picture, mask, full=True)
    >>> found.image.shape, found.image.dtype, bool((found.image[mask] == picture[mask]).all())
    ((64, 64, 3), dtype('uint8'), True)
    >>> bool(np.abs(found.image - 1.0 * picture)[~mask].mean() < 6)
    True
    """
    began = time.perf_counter()
    checked_choice("method", method, METHODS)
    checked_choice("quality", quality, ("best", "fast"))
    given = Overrides.checked(patch, search, neighbours)
    if method != "air" and options:
        raise TypeError(
            f"{next(iter(options))}: an option of airnp.fit, which needs method='air'; got method={method!r}"
        )
    if time_limit is not None and checked_number("time_limit", time_limit) <= 0:
        raise ValueError(f"time_limit: expected more than 0 seconds, got {time_limit!r}")
    host, unmasked, home = read_image(image)
    layout = Layout.of(host.shape, channel_axis, time_axis)
    picture = MaskedImage.of(host, unmasked, mask, layout)
    limits = PixelLimits.of(host.dtype, bounds)
    answer = np.empty(host.shape, host.dtype) if out is None else _checked_out(out, host, home, mask)
    if xp is None and home is not None:
        xp, device = home[0], home[1] if device is None else device
    work = _Work(
        method, quality, given, xp, device, checked_threads(threads), checked_seed(seed), bool(progress),
        math.inf if time_limit is None else time.monotonic() + time_limit,
        _checked_checkpoint(checkpoint), _checked_options(options) if method == "air" else {},
    )  # fmt: skip

    deviation = np.zeros(host.shape, np.float32) if full else None
    views = layout.arrange(answer)
    spread = None if deviation is None else layout.arrange(deviation)
    reports = []
    places = list(picture.pictures())
    for place in places:
        observed = picture.observed(place)
        picture.check(place, observed)
    for place in places:
        observed = picture.observed(place)
        filled = work.fill(picture.values[place], observed, place)
        reports.append(filled)
        view = views[place]
        # Frame by frame: a video may be large.
        for frame, seen in enumerate(observed):
            content = limits.to_pixels(filled.values[frame], filled.low, filled.high)
            view[frame] = np.where(seen, picture.values[place][frame], content)
            if spread is not None and filled.deviation is not None:
                spread[place][frame] = np.where(seen, 0, filled.deviation[frame])
        if filled.stop_reason == "interrupted" and place != places[-1]:
            raise KeyboardInterrupt
    result = answer if home is None else from_numpy(answer, *home, dtype_name(answer.dtype))
    if not full:
        return result
    return Inpainting.of(result, deviation, reports, layout, method, time.perf_counter() - began)


@dataclass(frozen=True, eq=False)
class Filled:
    """One filled picture.

    Attributes
    ----------
    values : ndarray (T, C, H, W)
        In units of the image.
    deviation : ndarray of float32 (T, C, H, W) or None
        Claimed standard deviations, before calibration.
    choice : Choice or None
        What the trials found.
    low, high : float
        Range of the observed pixels, a little widened.
    unit : float
        What 1 is in units of the image, for numbers of the choice.
    stop_reason : str
    """

    values: Any
    deviation: Any
    choice: Choice | None
    low: float
    high: float
    unit: float
    stop_reason: str


@dataclass
class _Work:
    """The options of a call, checked."""

    method: str
    quality: Any
    given: Overrides
    xp: Any
    device: Any
    threads: int
    seed: int
    progress: bool
    deadline: float
    checkpoint: Checkpoint | None
    options: dict[str, Any]

    def fill(self, image: Values, observed: Bools, place: Place) -> Filled:
        """Fill one picture or video (T, C, H, W)."""
        low, high = observed_range(image, observed)
        margin = 0.05 * (high - low)
        if self.method in ("biharmonic", "linear"):
            surface = biharmonic_surface if self.method == "biharmonic" else linear_surface
            values = _each_channel(image, observed, lambda one, seen: surface(one.astype(np.float64), seen))
            return Filled(values, None, None, low, high, 1.0, "done")
        if self.method == "air":
            return Filled(self._air(image, observed), None, None, -math.inf, math.inf, 1.0, "done")
        unit = high - low if high > low else 1.0
        scaled = np.empty(image.shape, np.float32)
        for one, frame, seen in zip(scaled, image, observed, strict=True):
            one[...] = to_unit(frame, seen, low, unit)
        with using(self.threads) as threads:
            starts = range(0, image.shape[1], CHANNELS_TOGETHER)
            portions = [slice(first, first + CHANNELS_TOGETHER) for first in starts]
            parts: list[tuple[Values, Values, Choice, str]] = []
            for some in portions:
                if parts and parts[-1][3] == "interrupted":
                    self.deadline = -math.inf
                parts.append(self._patches(scaled[:, some], observed[:, some], threads, (*place, some.start)))
        values, spread = (np.concatenate(each, axis=1) for each in list(zip(*parts, strict=True))[:2])
        values, spread = from_unit(values, low, unit, image.dtype), from_unit(spread, 0, unit, image.dtype)
        reason = next((part[3] for part in parts if part[3] != "done"), "done")
        return Filled(values, spread, parts[0][2], low - margin, high + margin, unit, reason)

    def _patches(
        self, values: Values, observed: Bools, threads: int, place: Place
    ) -> tuple[Values, Values, Choice, str]:
        """Fill by resembling patches; return values, claimed deviations, the choice, and why it ended."""
        device = self.xp if _is_cupy(self.xp) else None
        neighbours = 1 if values.shape[0] > 1 else 0
        painter = Painter(threads, neighbours=neighbours, deadline=self.deadline)
        if observed.all():
            choice = Choice(candidate(values.shape[1], self.quality, "scattered", self.given))
            return values, np.zeros_like(values), choice, "done"
        if self.method == "auto":
            choice = choose(values, observed, self.quality, self.given, painter, self.seed, device)
        else:
            choice = Choice(candidate(values.shape[1], self.quality, form(observed), self.given))
        plan = choice.candidate.plan(device)
        with ShareBar(painter.cost(observed, plan) * (2 if choice.flat else 1), self.progress) as bar:
            painter.on_progress = bar.advance
            files = []

            def fill(plan: Plan, place: tuple[Any, ...]) -> tuple[State, Values]:
                # Trials that were stopped have not chosen what an undisturbed call will choose.
                if not painter.stop_reason:
                    painter.file = self._stage_file(
                        values, observed, f"{choice.candidate} {plan.levels}", place
                    )
                    files.append(painter.file)
                return painter.fill(values, observed, plan)

            state, start = fill(plan, place)
            if choice.flat and not painter.stop_reason:
                other, _ = fill(plan.without_levels(), (*place, "flat"))
                state = state.mixed(other, choice.flat)
        for file in files:
            if file is not None and not painter.stop_reason:
                file.remove()
        if choice.smooth:
            state = state.mixed(State(start, state.variances), choice.smooth)
        return (
            state.values,
            choice.calibration.deviation(state.variances),
            choice,
            painter.stop_reason or "done",
        )

    def _stage_file(
        self, values: Values, observed: Bools, settings: str, place: tuple[Any, ...]
    ) -> StageFile | None:
        if self.checkpoint is None:
            return None
        path = self.checkpoint.file
        if any(place):
            path = path.with_name(f"{path.stem}-{'-'.join(map(str, place))}{path.suffix}")
        return StageFile(path, self.checkpoint.every, fingerprint(values, observed, settings))

    def _air(self, image: Values, observed: Bools) -> Values:
        """Fit each channel by itself."""
        place = {"xp": self.xp, "device": self.device, "seed": self.seed, "progress": self.progress}

        def complete(one: Values, seen: Bools) -> Values:
            result = fit(one, seen, **self.options, **place)
            if result.stop_reason == "interrupted":
                raise KeyboardInterrupt
            return np.asarray(to_numpy(result.matrix))

        return _each_channel(image, observed, complete)


def to_unit(image: Values, observed: Bools, low: float, unit: float) -> Values:
    """Return pixels scaled to [0, 1] as float32, 0 where missing."""
    scaled = (np.where(observed, image, 0).astype(np.float64) - low) / unit
    return np.where(observed, scaled, 0).astype(np.float32)


def from_unit(values: Values, low: float, unit: float, dtype: Any) -> Values:
    """Return scaled pixels in units of the image, as precise as it is: large numbers need float64."""
    kind = np.result_type(dtype, np.float32, np.min_scalar_type(unit))
    return np.asarray(values.astype(kind) * unit + low)


def observed_range(image: Values, observed: Bools) -> tuple[float, float]:
    """Return the smallest and the largest observed value of a picture (T, C, H, W)."""
    low, high = math.inf, -math.inf
    for frame, seen in zip(image, observed, strict=True):
        known = frame[seen]
        if known.size:
            low, high = min(low, float(known.min())), max(high, float(known.max()))
    return low, high


def _each_channel(image: Values, observed: Bools, complete: Callable[[Values, Bools], Values]) -> Values:
    """Fill channels (T, C, H, W) one by one; one without any observed pixel gets the mean of the others."""
    filled = np.empty(image.shape, np.result_type(image.dtype, np.float32))
    for place in np.ndindex(image.shape[:2]):
        one, seen = image[place], observed[place]
        if seen.all():
            filled[place] = one
        elif seen.any():
            filled[place] = complete(np.where(seen, one, 0), seen)
        else:
            filled[place] = image[observed].mean()
    return filled


def _is_cupy(xp: Any) -> bool:
    return xp is not None and "cupy" in getattr(xp, "__name__", "")


def _checked_checkpoint(checkpoint: Any) -> Checkpoint | None:
    if checkpoint is None or isinstance(checkpoint, Checkpoint):
        return checkpoint
    return Checkpoint(checkpoint)


def _checked_out(out: Any, host: Values, home: Any, mask: Any) -> Values:
    if not isinstance(out, np.ndarray) or home is not None:
        raise TypeError(
            "out: expected a NumPy array, for an image that is one, "
            f"got {type(out).__name__} for {'a NumPy image' if home is None else home[0].__name__}"
        )
    if out.shape != host.shape or out.dtype != host.dtype:
        raise ValueError(
            f"out: expected shape {host.shape} and dtype {host.dtype}, got {out.shape} and {out.dtype}"
        )
    if not out.flags.writeable:
        raise ValueError("out: expected an array that may be written to")
    if np.may_share_memory(out, host):
        raise ValueError("out: expected memory of its own, got that of image")
    if isinstance(mask, np.ndarray) and np.may_share_memory(out, mask):
        raise ValueError("out: expected memory of its own, got that of mask")
    return out


def _checked_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return options of :func:`airnp.fit`, by default with total variation; raise for others.

    Neighbouring pixels of a picture resemble each other, so total variation stands beside AIR's graphs.
    """
    for name in options:
        if name not in _FOR_AIR:
            raise TypeError(f"{name}: not an option of inpaint; of airnp.fit's it has {', '.join(_FOR_AIR)}")
    return {"regularizers": [*default_regularizers(), TotalVariation()], **options}


@dataclass(frozen=True)
class PixelLimits:
    """The dtype of filled pixels, and bounds within its range."""

    dtype: np.dtype[Any]
    limits: Bounds

    @classmethod
    def of(cls, dtype: np.dtype[Any], bounds: Any) -> PixelLimits:
        """Return the limits of an image's dtype: ``bounds``, or the range of the dtype."""
        whole = dtype.kind != "f"
        own: Any = np.iinfo(dtype) if whole else np.finfo(dtype)
        # The largest int64 is no float64, and the next larger float64 would overflow.
        least, most = float(own.min), float(own.max)
        most = most if most <= own.max else float(np.nextafter(most, 0))
        given = Bounds.of(bounds, whole)
        low, high = (-np.inf, np.inf) if given is None else (float(given.low), float(given.high))
        if (np.isfinite(low) and low < least) or (np.isfinite(high) and high > most):
            raise ValueError(f"bounds: expected numbers within the range of {dtype}, got {bounds!r}")
        limits = Bounds.of((max(low, least), min(high, most)), whole)
        assert limits is not None
        return cls(dtype, limits)

    def to_pixels(self, content: Values, low: float, high: float) -> Values:
        """Round and clip floating-point numbers to pixels, within [low, high] as well."""
        content = np.clip(content, low, high)
        if self.dtype.kind != "f":
            return np.asarray(self.limits.put_on(content)).astype(self.dtype)
        with np.errstate(over="ignore"):  # too large for the dtype is above the bounds, too
            return np.asarray(self.limits.put_on(content.astype(self.dtype)))
