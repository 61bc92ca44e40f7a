"""``airnp.dask.inpaint``: fill Dask arrays, pictures and stacks larger than memory, on any Dask cluster.

Every stage of :func:`airnp.inpaint` is one map over tiles, which exchange their halos before it. A pixel is
computed from the same numbers in the same order as in one piece, so there are no seams, and the answer has
the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from airnp._arrays import to_numpy
from airnp._checks import checked_choice, checked_seed, checked_whole
from airnp.engines.threads import checked_threads, using
from airnp.images.inpainting import CHANNELS_TOGETHER, PixelLimits, from_unit, to_unit
from airnp.images.masked_image import Layout, check_kind, check_mask, nothing_observed_error, read_marks
from airnp.images.painting import (
    Painter,
    Plan,
    State,
    channel_means,
    channel_sums,
    count_levels,
    enlarge,
    shrink,
)
from airnp.images.trials import Overrides, choose
from airnp.resemblance.stages import CELL, Harmonic, Smooth, Stage, Window

try:
    import dask
    import dask.array as da
except ImportError as error:
    raise ImportError("airnp.dask needs Dask: pip install 'airnp[dask]'") from error

__all__ = ["inpaint"]

_ENLARGING = 2
"""Pixels around a tile of a small copy that its enlargement depends on."""


def inpaint(
    image: Any,
    mask: Any = None,
    *,
    quality: Literal["best", "fast"] = "best",
    patch: int | None = None,
    search: int | None = None,
    neighbours: int | None = None,
    channel_axis: int | Literal["auto"] | None = "auto",
    time_axis: int | None = None,
    bounds: tuple[float | None, float | None] | None = None,
    threads: int = 1,
    seed: int | None = 0,
    tile: int = 512,
) -> Any:
    """Fill the missing pixels of a Dask array: a picture, or every picture of a stack.

    Parameters
    ----------
    image : dask.array.Array (H, W), (H, W, C) or (…, H, W, C)
        Integers or floating point, in any chunks.
    mask : dask.array.Array or ndarray of bool, of 0 and 1, or of 0 and 255, optional
        True, 1 or 255 where observed. The shape of the image; or without its channels, which then share it;
        or (H, W), shared by all. Without it, NaN means missing.
    quality, patch, search, neighbours, channel_axis, time_axis, bounds
        As for :func:`airnp.inpaint`.
    threads : int
        Of a tile. One, because Dask's workers are many already.
    seed : int, optional
        Of the held-out pixels. None draws one.
    tile : int
        Side of the tiles in pixels, a multiple of 128. It changes memory and time, not the answer.

    Returns
    -------
    dask.array.Array
        Of the image's shape, dtype and chunks. Nothing is filled until it is computed or stored, as by
        ``to_zarr``.

    Raises
    ------
    ValueError, TypeError
        For input that cannot be meant; the message names the argument.

    Notes
    -----
    The answer is that of :func:`airnp.inpaint` with the same options, bit for bit.

    The call reads the mask and the image: the mask for the shape of the gaps, the image for the range and the
    means of its observed pixels. It tries settings on small parts of the picture, in this process. It holds
    the mask of one picture in memory, not the image.

    Examples
    --------
    >>> import dask.array as da, numpy as np
    >>> from airnp import masks
    >>> from airnp.commands.demo import scene
    >>> picture = da.from_array(np.rint(255 * scene(48)).astype(np.uint8), chunks=20)
    >>> mask = masks.random((48, 48), missing=0.3, seed=0)
    >>> filled = inpaint(picture, mask, quality="fast")
    >>> filled.shape, filled.dtype, filled.chunks == picture.chunks
    ((48, 48), dtype('uint8'), True)
    >>> bool((filled.compute()[mask] == picture.compute()[mask]).all())
    True
    """
    if not isinstance(image, da.Array):
        raise TypeError(f"image: expected a dask.array.Array, got {type(image).__name__}; see airnp.inpaint")
    check_kind(image.dtype)
    if any(np.isnan(length) for length in image.shape):
        raise ValueError(f"image: expected a known shape, got {image.shape}; see compute_chunk_sizes")
    checked_choice("quality", quality, ("best", "fast"))
    given = Overrides.checked(patch, search, neighbours)
    if checked_whole("tile", tile, least=CELL) % CELL:
        raise ValueError(f"tile: expected a multiple of {CELL}, got {tile}")
    layout = Layout.of(image.shape, channel_axis, time_axis)
    if mask is not None and not isinstance(mask, da.Array):
        mask = da.from_array(to_numpy(mask))
    check_mask(image.dtype, mask)
    limits = PixelLimits.of(image.dtype, bounds)
    work = _Work(quality, given, limits, checked_threads(threads), checked_seed(seed), tile)
    values = layout.arrange(image)
    marks = None if mask is None else layout.arrange_mask(mask, image.shape)
    stack = values.shape[:-4]
    answers = [
        work.fill(values[place], None if marks is None else marks[place], place)
        for place in np.ndindex(stack)
    ]
    for length in reversed(stack):
        answers = [da.stack(answers[first : first + length]) for first in range(0, len(answers), length)]
    answer = answers[0]
    if not layout.has_time:
        answer = answer[..., 0, :, :, :]
    if not layout.has_channels:
        answer = answer[..., 0, :, :]
    return da.transpose(answer, np.argsort(layout.axes).tolist()).rechunk(image.chunks)


@dataclass(frozen=True)
class _Work:
    """The options of a call, checked."""

    quality: Literal["best", "fast"]
    given: Overrides
    limits: PixelLimits
    threads: int
    seed: int
    tile: int

    def fill(self, image: Any, marks: Any, place: tuple[int, ...]) -> Any:
        """Fill one picture or video (T, C, H, W) later."""
        lazily = ~da.isnan(image) if marks is None else marks.map_blocks(read_marks, dtype=bool)
        low, high, known = dask.compute(
            da.where(lazily, image, np.inf).min(),
            da.where(lazily, image, -np.inf).max(),
            lazily if marks is None else marks,
        )
        observed = known if marks is None else read_marks(known)
        if not observed.any():
            raise nothing_observed_error(place)
        low, high = float(low), float(high)
        if not (math.isfinite(low) and math.isfinite(high)):
            raise ValueError("image: observed pixels are NaN or infinite; mark them as missing in mask")
        parts = []
        for first in range(0, image.shape[1], CHANNELS_TOGETHER):
            some = (slice(None), slice(first, first + CHANNELS_TOGETHER))
            parts.append(self._fill_channels(image[some], lazily[some], observed[some], low, high))
        return da.concatenate(parts, axis=1)

    def _fill_channels(self, image: Any, lazily: Any, observed: Any, low: float, high: float) -> Any:
        """Fill channels that share what they know; ``lazily`` is ``observed``, not yet computed."""
        if observed.all():
            return image
        unit = high - low if high > low else 1.0
        frames, channels = image.shape[:2]
        image = image.rechunk(((1,) * frames, (channels,), *_sides(image.shape, self.tile, 0)))
        lazily = lazily.rechunk(image.chunks)
        values = da.map_blocks(partial(_scaled, low, unit), image, lazily, dtype=np.float32)
        painter = Painter(self.threads)
        with using(self.threads) as painter.threads:
            choice = choose(values, observed, self.quality, self.given, painter, self.seed)
        plan = choice.candidate.plan()
        stages: list[Stage] = [Harmonic(), Smooth(), *plan.stages]
        halo = max(stage.halo for stage in stages)
        lazy = _LazyPainter(self.threads, max(self.tile, -(-halo // CELL) * CELL), halo)
        levels = count_levels(observed) if plan.levels else 0
        start = lazy.begin(values, lazily, plan, levels)
        state = lazy.advance(start, lazily, plan.stages)
        if choice.flat:
            other = lazy.advance(lazy.begin(values, lazily, plan, 0), lazily, plan.stages)
            state = da.map_blocks(partial(_mixed, choice.flat), state, other, dtype=np.float32)
        if choice.smooth:
            state = da.map_blocks(partial(_mixed, choice.smooth), state, start, dtype=np.float32)
        margin = 0.05 * (high - low)
        finish = partial(_finish, self.limits, low, high, unit, margin)
        filled = state[0]
        return da.map_blocks(
            finish, filled, image.rechunk(filled.chunks), lazily.rechunk(filled.chunks), dtype=image.dtype
        )


@dataclass(frozen=True)
class _LazyPainter:
    """Does later, tile by tile, what :class:`~airnp.images.painting.Painter` does.

    A state is an array (2, T, C, H, W): values and variances. Its chunks are tiles of single frames.

    Attributes
    ----------
    threads : int
    tile : int
        Side of the tiles.
    halo : int
        The largest halo of all stages; no tile is smaller, unless it is the whole picture.
    """

    threads: int
    tile: int
    halo: int

    def begin(self, values: Any, observed: Any, plan: Plan, levels: int) -> Any:
        """Return a picture before the stages of a plan, as ``Painter.begin`` does."""
        chunks = (*values.chunks[:2], *_sides(values.shape, self.tile, self.halo))
        values, observed = values.rechunk(chunks), observed.rechunk(chunks)
        if levels:
            halves = (*chunks[:2], *(tuple(-(-side // 2) for side in sides) for sides in chunks[2:]))
            small, seen = (
                da.map_blocks(partial(_shrunk, which), values, observed, dtype=dtype, chunks=halves)
                for which, dtype in enumerate((np.float32, np.bool_))
            )
            coarse = self.advance(self.begin(small, seen, plan, levels - 1), seen, plan.stages)
            near = _with_halo(coarse[0].rechunk(halves), (0, 0, _ENLARGING, _ENLARGING))
            X = da.map_blocks(_enlarged, near, values, observed, dtype=np.float32, chunks=chunks)
        else:
            means = channel_means(*dask.compute(*channel_sums(values, observed)))
            X = da.map_blocks(partial(_with_means, means), values, observed, dtype=np.float32)
        state = da.stack([X, da.zeros_like(X)]).rechunk({0: 2})
        return self.advance(state, observed, (Smooth(),) if levels else (Harmonic(), Smooth()))

    def advance(self, state: Any, observed: Any, stages: Sequence[Stage]) -> Any:
        """Run stages, each as one map over tiles with their halos."""
        observed = observed.rechunk(state.chunks[1:])
        corners = [np.cumsum([0, *sides]).tolist() for sides in state.chunks[3:]]
        for stage in stages:
            depth = (1, 0, stage.halo, stage.halo)
            run = partial(_run, stage, corners, self.threads)
            state = da.map_blocks(
                run, _with_halo(state, (0, *depth)), _with_halo(observed, depth),
                dtype=np.float32, chunks=state.chunks, meta=np.empty((0,) * 5, np.float32),
            )  # fmt: skip
        return state


def _sides(shape: tuple[int, ...], tile: int, least: int) -> list[tuple[int, ...]]:
    """Return the heights and the widths of tiles; a last one below ``least`` joins the one before it."""
    found = []
    for length in shape[-2:]:
        sides = [tile] * (length // tile) + [length % tile] * (length % tile > 0)
        if len(sides) > 1 and sides[-1] < least:
            sides[-2:] = [sides[-2] + sides[-1]]
        found.append(tuple(sides))
    return found


def _with_halo(array: Any, depth: tuple[int, ...]) -> Any:
    """Return an array whose chunks have their neighbours' pixels around them."""
    depths = {axis: each if array.numblocks[axis] > 1 else 0 for axis, each in enumerate(depth)}
    return da.overlap.overlap(array, depths, "none", allow_rechunk=False)


# --- what is done to a tile ---


def _scaled(low: float, unit: float, image: Any, observed: Any) -> Any:
    return to_unit(image, observed, low, unit)


def _shrunk(which: int, values: Any, observed: Any) -> Any:
    return shrink(values, observed)[which]


def _enlarged(near: Any, values: Any, observed: Any, block_id: tuple[int, ...] = ()) -> Any:
    """Return a tile whose gaps are filled from that of the smaller copy, which has a halo."""
    height, width = near.shape[-2:]
    down, across = (2 * _ENLARGING if place else 0 for place in block_id[2:])
    large = enlarge(near, (2 * height, 2 * width))[..., down:, across:]
    return np.where(observed, values, large[..., : values.shape[-2], : values.shape[-1]])


def _with_means(means: Any, values: Any, observed: Any) -> Any:
    return np.where(observed, values, means)


def _run(
    stage: Stage,
    corners: list[list[int]],
    threads: int,
    state: Any,
    observed: Any,
    block_id: tuple[int, ...] = (),
) -> Any:
    """Run a stage on a tile of a frame, if it has gaps."""
    frame = min(block_id[1], 1)
    rows, columns = (
        slice(*ends[place : place + 2]) for ends, place in zip(corners, block_id[3:], strict=True)
    )
    top, left = max(rows.start - stage.halo, 0), max(columns.start - stage.halo, 0)
    shape = corners[0][-1], corners[1][-1]
    values, variances = map(np.ascontiguousarray, state)
    window = Window(values, variances, np.ascontiguousarray(observed), frame, top, left, shape, rows, columns)
    if observed[frame][window.core].all():
        return state[:, frame : frame + 1, *window.core].copy()
    with using(threads) as actual:
        return np.stack(stage.run(window, actual))[:, np.newaxis]


def _mixed(share: float, state: Any, other: Any) -> Any:
    mixed = State(*state).mixed(State(*other), share)
    return np.stack([mixed.values, mixed.variances])


def _finish(
    limits: PixelLimits,
    low: float,
    high: float,
    unit: float,
    margin: float,
    filled: Any,
    image: Any,
    observed: Any,
) -> Any:
    """Return pixels in units of the image; observed ones as they were."""
    content = limits.to_pixels(from_unit(filled, low, unit, image.dtype), low - margin, high + margin)
    return np.where(observed, image, content)
