"""Run the stages of filling a picture: from small copies to the picture itself, tile by tile."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from airnp.images.checkpoints import Saved, StageFile
from airnp.resemblance.stages import CELL, Harmonic, Smooth, Stage, Window, far_gaps

Values = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]

_SMALLEST_SIDE = 16
"""Copies are not made smaller than this."""

_FEW = 0.01
"""Share of the gaps that may be far from observed pixels without a smaller copy."""

_ROUNDING = 2.0**-20
"""Pixels are rounded to multiples of this for the mean of a channel."""

_TAPS = np.array([-0.0703125, 0.8671875, 0.2265625, -0.0234375], np.float32)
"""Cubic interpolation (Keys, a = −1/2) a quarter of a pixel after the second of four."""


@dataclass(frozen=True)
class Plan:
    """What is done to a picture, and to each of its smaller copies.

    Attributes
    ----------
    stages : tuple of Stage
        After the smooth start.
    levels : bool
        Whether gaps far from observed pixels start from smaller copies.
    """

    stages: tuple[Stage, ...]
    levels: bool = True

    def without_levels(self) -> Plan:
        """Return the same plan without smaller copies."""
        return Plan(self.stages, False)


@dataclass(frozen=True, eq=False)
class State:
    """A picture on its way: pixels with their gaps filled, and the variances of filled ones.

    Attributes
    ----------
    values, variances : ndarray of float32 (T, C, H, W)
    """

    values: Values
    variances: Values

    def mixed(self, other: State, share: float) -> State:
        """Return a mean of two states, with a share of the other one."""
        first, second = np.float32(1 - share), np.float32(share)
        return State(
            first * self.values + second * other.values, first * self.variances + second * other.variances
        )


def count_levels(observed: Bools) -> int:
    """Return how many smaller copies a picture (T, C, H, W) needs, so that few gaps are far from pixels."""
    count = 0
    while min(observed.shape[-2:]) >= 2 * _SMALLEST_SIDE:
        far = sum(int(far_gaps(frame).sum()) for frame in observed)
        if far <= _FEW * int((~observed).sum()):
            break
        observed = shrink(np.zeros(observed.shape, np.float32), observed)[1]
        count += 1
    return count


def channel_sums(values: Any, observed: Any) -> tuple[Any, Any]:
    """Return the sum and the number of the observed pixels of each channel of a picture (T, C, H, W).

    Pixels are rounded to multiples of 2⁻²⁰ and their sums are exact, so the order of summation does not
    matter.
    The arrays may be Dask's.
    """
    known = np.rint(np.where(observed, values, np.float32(0)) * np.float32(1 / _ROUNDING))
    return known.sum((0, 2, 3), dtype=np.float64) * _ROUNDING, observed.sum((0, 2, 3))


def channel_means(sums: Any, counts: Any) -> Values:
    """Return the mean of each channel (C, 1, 1), by its sum and number of observed pixels."""
    means: Values = (sums / np.maximum(counts, 1)).astype(np.float32)[:, np.newaxis, np.newaxis]
    return means


class Painter:
    """Runs stages on pictures, tile by tile; stops in time, and continues where an earlier run stopped.

    Parameters
    ----------
    threads : int
    tile : int
        Side of the tiles in pixels; a multiple of :data:`~airnp.resemblance.stages.CELL`. It changes memory,
        not the answer.
    neighbours : int
        Frames of a video before and after a frame that join its search.
    deadline : float
        On the clock of :func:`time.monotonic`; stages that have not begun by then are left out.

    Attributes
    ----------
    stop_reason : str
        ``"time limit"`` or ``"interrupted"`` if stages were left out, else empty.
    on_progress : callable
        Called with a stage's label and the cost of what was just done, in the units of :meth:`cost`.
    file : StageFile or None
        Where finished stages are saved, and where an earlier run saved them.
    """

    def __init__(
        self,
        threads: int = 1,
        tile: int = 4 * CELL,
        neighbours: int = 0,
        deadline: float = math.inf,
    ) -> None:
        self.threads = threads
        self.tile = tile
        self.neighbours = neighbours
        self.deadline = deadline
        self.stop_reason = ""
        self.on_progress: Callable[[str, float], object] = lambda label, cost: None
        self.file: StageFile | None = None
        self._position = 0
        self._start: Values | None = None

    def fill(self, values: Values, observed: Bools, plan: Plan) -> tuple[State, Values]:
        """Fill a picture.

        Parameters
        ----------
        values : ndarray of float32 (T, C, H, W)
            Roughly within [0, 1].
        observed : ndarray of bool (T, C, H, W)
        plan : Plan

        Returns
        -------
        State
        start : ndarray of float32 (T, C, H, W)
            The smooth surface that it started from.
        """
        self._position, self._start = 0, None
        begun = self.begin(values, observed, plan)
        self._start = start = begun.values
        saved = None if self.file is None else self.file.saved
        if saved is not None and saved.start.size:
            start[~observed] = saved.start
        return self.advance(begun, observed, plan.stages), start

    def begin(self, values: Values, observed: Bools, plan: Plan) -> State:
        """Return a picture before the stages of a plan: its gaps smooth, or from smaller copies."""
        return self._begin(values, observed, plan, count_levels(observed) if plan.levels else 0)

    def _begin(self, values: Values, observed: Bools, plan: Plan, levels: int) -> State:
        if levels:
            small, seen = shrink(values, observed)
            coarse = self.advance(self._begin(small, seen, plan, levels - 1), seen, plan.stages)
            height, width = values.shape[-2:]
            X = np.where(observed, values, enlarge(coarse.values, (height, width)))
        else:
            X = np.where(observed, values, channel_means(*channel_sums(values, observed)))
        surface: tuple[Stage, ...] = (Smooth(),) if levels else (Harmonic(), Smooth())
        return self.advance(State(X, np.zeros_like(X)), observed, surface)

    def advance(self, state: State, observed: Bools, stages: tuple[Stage, ...]) -> State:
        """Run stages on a picture."""
        for stage in stages:
            state = self._run(stage, state, observed)
        return state

    def _run(self, stage: Stage, state: State, observed: Bools) -> State:
        """Run a stage on all tiles with gaps; return the state before it if it is stopped."""
        if not isinstance(stage, Harmonic | Smooth) and (
            self.stop_reason or time.monotonic() > self.deadline
        ):
            self.stop_reason = self.stop_reason or "time limit"
            return state
        self._position += 1
        saved = None if self.file is None else self.file.saved
        if saved is not None and self._position <= saved.position:
            return self._continued(saved, state, observed) if self._position == saved.position else state
        values, variances = state.values.copy(), state.variances.copy()
        try:
            for frame, rows, columns in self._tiles(observed):
                window = cut(state, observed, frame, rows, columns, stage.halo, self.neighbours)
                place = (frame, slice(None), rows, columns)
                values[place], variances[place] = stage.run(window, self.threads)
                self.on_progress(stage.label, stage.cost * int((~observed[place]).sum()))
                if time.monotonic() > self.deadline and not isinstance(stage, Harmonic | Smooth):
                    self.stop_reason = "time limit"
                    return state
        except KeyboardInterrupt:
            if self.stop_reason:
                raise
            self.stop_reason = "interrupted"
            return state
        if self.file is not None:
            self.file.save(self._position, values, variances, ~observed, self._start)
        return State(values, variances)

    def _continued(self, saved: Saved, state: State, observed: Bools) -> State:
        """Return a saved state."""
        values, variances = state.values.copy(), state.variances.copy()
        if saved.values.shape != values[~observed].shape:
            raise ValueError("checkpoint: the saved state does not fit the picture")
        values[~observed], variances[~observed] = saved.values, saved.variances
        return State(values, variances)

    def cost(self, observed: Bools, plan: Plan) -> float:
        """Return the cost of a plan for a picture (T, C, H, W)."""
        total = sum(stage.cost for stage in (Smooth(), *plan.stages)) * int((~observed).sum())
        for _ in range(count_levels(observed) if plan.levels else 0):
            observed = shrink(np.zeros(observed.shape, np.float32), observed)[1]
            total += sum(stage.cost for stage in (Smooth(), *plan.stages)) * int((~observed).sum())
        return total

    def _tiles(self, observed: Bools) -> Iterator[tuple[int, slice, slice]]:
        """Yield frames, rows and columns of the tiles that have gaps."""
        frames, _, height, width = observed.shape
        side = self.tile
        for frame in range(frames):
            for top in range(0, height, side):
                for left in range(0, width, side):
                    rows = slice(top, min(top + side, height))
                    columns = slice(left, min(left + side, width))
                    if not observed[frame, :, rows, columns].all():
                        yield frame, rows, columns


def cut(
    state: State, observed: Bools, frame: int, rows: slice, columns: slice, halo: int, neighbours: int
) -> Window:
    """Cut a tile of a frame out of a picture (T, C, H, W), with a halo and the frames beside it."""
    frames, _, height, width = state.values.shape
    first, last = max(frame - neighbours, 0), min(frame + neighbours + 1, frames)
    top, left = max(rows.start - halo, 0), max(columns.start - halo, 0)
    down, across = slice(top, min(rows.stop + halo, height)), slice(left, min(columns.stop + halo, width))
    parts = (state.values, state.variances, observed)
    values, variances, seen = (np.ascontiguousarray(part[first:last, :, down, across]) for part in parts)
    return Window(values, variances, seen, frame - first, top, left, (height, width), rows, columns)


# --- smaller copies: what is far from observed pixels starts from one in which it is near ---


def shrink(values: Values, observed: Bools) -> tuple[Values, Bools]:
    """Return the means of the observed pixels in squares of 2×2, and which squares have at least two of them.

    Parameters
    ----------
    values : ndarray of float32 (…, H, W)
    observed : ndarray of bool (…, H, W)

    Returns
    -------
    ndarray of float32, ndarray of bool (…, ⌈H/2⌉, ⌈W/2⌉)
        Squares with fewer observed pixels have the value 0. If H or W is odd, the last squares are smaller;
        there one observed pixel is enough.

    Examples
    --------
    >>> means, seen = shrink(np.array([[1, 3, 5], [9, 9, 7]], "f"), np.array([[1, 1, 1], [0, 0, 1]], bool))
    >>> means, seen
    (array([[2., 6.]], dtype=float32), array([[ True,  True]]))
    """
    height, width = values.shape[-2:]
    known = np.where(observed, values, np.float32(0))
    sums, counts = _pair_sums(known), _pair_sums(observed.astype(np.float32))
    areas = _pair_sums(np.ones((height, width), np.float32))
    seen = counts >= np.minimum(2, areas)
    means = np.where(seen, sums / np.maximum(counts, 1), 0).astype(np.float32)
    return means, seen


def _pair_sums(values: Values) -> Values:
    height, width = values.shape[-2:]
    odd = [(0, 0)] * (values.ndim - 2) + [(0, height % 2), (0, width % 2)]
    even = np.pad(values, odd)
    rows = even[..., ::2, :] + even[..., 1::2, :]
    sums: Values = rows[..., ::2] + rows[..., 1::2]
    return sums


def enlarge(values: Values, shape: tuple[int, int]) -> Values:
    """Return a picture (…, h, w) at twice the size, cut to ``shape``, by cubic interpolation.

    Examples
    --------
    >>> enlarge(np.full((1, 2), 3, "f"), (2, 3))
    array([[3., 3., 3.],
           [3., 3., 3.]], dtype=float32)
    """
    return _doubled(_doubled(values, -2), -1)[..., : shape[0], : shape[1]]


def _doubled(values: Any, axis: int) -> Values:
    """Return values at twice the length along an axis; each becomes two, a quarter before and after it."""
    ends = [(0, 0)] * values.ndim
    ends[axis] = (2, 2)
    padded = np.moveaxis(np.pad(values, ends, mode="edge"), axis, -1)
    n = padded.shape[-1] - 4
    before = sum(tap * padded[..., 3 - k : 3 - k + n] for k, tap in enumerate(_TAPS))
    after = sum(tap * padded[..., 1 + k : 1 + k + n] for k, tap in enumerate(_TAPS))
    out = np.stack([before, after], axis=-1).reshape(*padded.shape[:-1], 2 * n)
    return np.ascontiguousarray(np.moveaxis(out, -1, axis), dtype=np.float32)
