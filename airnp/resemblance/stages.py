"""Stages of filling a picture: each computes new values of a window's core from the window, and nothing else.

A stage says how far it looks (``halo``). A picture can be cut into any tiles whose corners are multiples of
:data:`CELL`: cut each with its halo, run the stage, keep the cores. The result is the same, to the bit, as
for the whole picture in one piece, because every pixel is computed from the same numbers in the same order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from airnp.resemblance.patch_graph import GraphSettings, PatchGraph, PixelLaplacian, near_gaps, run_parts
from airnp.resemblance.patches import Round, Sums, apply, collect, reference_places

Values = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]

CELL = 128
"""Side, in pixels, of the squares that linear systems are solved on; tiles consist of whole ones."""

MARGIN = 16
"""Pixels around a cell that its linear system includes."""

_TOLERANCE = 3e-5
"""Residual of the linear systems of smooth surfaces."""

_FAR = 2.5
"""Pixels farther than this from any observed one start from a smaller copy of the picture."""


@dataclass(frozen=True, eq=False)
class Window:
    """A rectangle of a picture.

    Attributes
    ----------
    values, variances : ndarray of float32 (F, C, h, w)
        Pixels with their gaps filled, and the variances of filled ones. Frames beside ``frame`` are its
        neighbours in time.
    observed : ndarray of bool (F, C, h, w)
    frame : int
    top, left : int
        Where the window begins in the picture.
    shape : (H, W)
        Of the picture.
    rows, columns : slice
        The core, in the picture.
    """

    values: Any
    variances: Any
    observed: Any
    frame: int
    top: int
    left: int
    shape: tuple[int, int]
    rows: slice
    columns: slice

    def place(self, rows: slice, columns: slice) -> tuple[slice, slice, slice]:
        """Return the index, in a frame (C, h, w) of the window, of rows and columns of the picture."""
        return (
            slice(None),
            slice(rows.start - self.top, rows.stop - self.top),
            slice(columns.start - self.left, columns.stop - self.left),
        )

    @property
    def core(self) -> tuple[slice, slice, slice]:
        """Index of the core in a frame of the window."""
        return self.place(self.rows, self.columns)


class Stage(Protocol):
    """One step of filling a picture.

    Attributes
    ----------
    halo : int
        Pixels around the core that a window must have, unless the picture ends there.
    cost : float
        Time for a missing pixel, in units of a round of patches.
    label : str
        What the stage does, for progress.
    """

    @property
    def halo(self) -> int:
        """Pixels around the core."""
        ...

    @property
    def cost(self) -> float:
        """Time for a missing pixel."""
        ...

    @property
    def label(self) -> str:
        """What the stage does."""
        ...

    def run(self, window: Window, threads: int) -> tuple[Values, Values]:
        """Return values and variances of the core, (C, rows, columns)."""
        ...


@dataclass(frozen=True)
class Harmonic:
    """Fill all gaps with a harmonic surface: rough at its edges, but it does not overshoot."""

    halo: int = field(default=MARGIN, init=False)
    cost: float = field(default=0.1, init=False)
    label: str = field(default="smooth surface", init=False)

    def run(self, window: Window, threads: int) -> tuple[Values, Values]:
        """Solve the cells of the core."""
        values, observed = window.values[window.frame], window.observed[window.frame]
        filled = _solve_cells(window, values, observed, _grid, None, _TOLERANCE, threads)
        return filled[window.core], window.variances[window.frame][window.core]


@dataclass(frozen=True)
class Smooth:
    """Fill gaps near observed pixels with a biharmonic surface; gaps far from them keep what they have.

    Parameters
    ----------
    variance : float
        Of what is filled.
    """

    variance: float = 5e-4
    halo: int = field(default=MARGIN + 3, init=False)
    cost: float = field(default=0.2, init=False)
    label: str = field(default="smooth surface", init=False)

    def run(self, window: Window, threads: int) -> tuple[Values, Values]:
        """Solve the cells of the core."""
        values, observed = window.values[window.frame], window.observed[window.frame]
        filled = _solve_cells(window, values, observed | far_gaps(observed), _grid, 0.0, _TOLERANCE, threads)
        variances = np.where(observed[window.core], np.float32(0), np.float32(self.variance))
        return filled[window.core], variances


@dataclass(frozen=True)
class Graph:
    """Minimise the energy of the graph of patches over the gaps; see :mod:`airnp.resemblance.patch_graph`."""

    how: GraphSettings = field(default_factory=GraphSettings)
    label: str = field(default="graph of patches", init=False)

    @property
    def halo(self) -> int:
        """The margin of a cell, what its edges depend on, and the patches that they compare."""
        return MARGIN + self.how.coupled + self.how.search + self.how.patch

    @property
    def cost(self) -> float:
        """Matching dominates."""
        return 0.8

    def run(self, window: Window, threads: int) -> tuple[Values, Values]:
        """Match the patches near gaps, then solve the cells of the core."""
        values, observed = window.values[window.frame], window.observed[window.frame]
        wanted = near_gaps(~observed.all(axis=0), self.how.coupled // 2)
        reach = MARGIN + self.how.coupled
        zone = np.zeros_like(wanted)
        rows, columns = (
            slice(max(part.start - reach - first, 0), part.stop + reach - first)
            for part, first in ((window.rows, window.top), (window.columns, window.left))
        )
        zone[rows, columns] = True
        graph = PatchGraph.of(values, observed, wanted & zone, self.how, threads)

        def laplacian(rows: slice, columns: slice) -> PixelLaplacian:
            _, down, across = window.place(rows, columns)
            return graph.laplacian(down, across)

        how = self.how
        filled = _solve_cells(window, values, observed, laplacian, how.first_order, how.tolerance, threads)
        return filled[window.core], window.variances[window.frame][window.core]


@dataclass(frozen=True)
class Patches:
    """One round of Gaussians of resembling patches; see :mod:`airnp.resemblance.patches`."""

    how: Round = field(default_factory=Round)
    xp: Any = None
    label: str = field(default="resembling patches", init=False)

    @property
    def halo(self) -> int:
        """As far as a pixel's new value depends on others."""
        return self.how.reach

    @property
    def cost(self) -> float:
        """In units of the default round."""
        return (self.how.patch / 6) ** 2 * (3 / self.how.stride) ** 2

    def run(self, window: Window, threads: int) -> tuple[Values, Values]:
        """Fill the patches whose answers reach the core."""
        how = self.how.within(window.shape)
        reach = how.search + how.patch
        places = []
        for length, part, first in zip(
            window.shape, (window.rows, window.columns), (window.top, window.left), strict=True
        ):
            all_places = reference_places(length, how.patch, how.stride)
            near = (all_places > part.start - reach) & (all_places < part.stop + how.search)
            places.append(all_places[near] - first)
        rows, columns = places
        X, U, M = window.values, window.variances, window.observed
        if self.xp is not None:
            X, U, M = (self.xp.asarray(array) for array in (X, U, M))
        sums = collect(X, U, M, window.frame, rows, columns, how, threads)
        values, variances, observed = (array[window.frame][window.core] for array in (X, U, M))
        inside = Sums(*(total[window.core] for total in (sums.values, sums.weights, sums.counts)))
        if self.xp is not None:
            new, unsure = apply(inside, values, variances, ~observed, how)
            return self.xp.asnumpy(new), self.xp.asnumpy(unsure)
        new, unsure, gaps = values.copy(), variances.copy(), ~observed
        some = Sums(inside.values[gaps], inside.weights[gaps], inside.counts[gaps])
        new[gaps], unsure[gaps] = apply(some, values[gaps], variances[gaps], True, how)
        return new, unsure


def far_gaps(observed: Bools) -> Bools:
    """Return which gaps (C, h, w) have no observed pixel of their channel within 2.5 pixels."""
    from scipy.ndimage import binary_dilation

    reach = int(_FAR)
    steps = np.arange(-reach, reach + 1)
    disc = steps[:, None] ** 2 + steps**2 <= _FAR**2
    return ~np.stack([binary_dilation(channel, disc) for channel in observed])


def _solve_cells(
    window: Window,
    values: Values,
    known: Bools,
    laplacian: Any,
    share: float | None,
    tolerance: float,
    threads: int,
) -> Values:
    """Minimise an energy over the unknown pixels of each cell of the core, with a margin around it."""
    filled = values.copy()
    work = []
    for top in range(window.rows.start, window.rows.stop, CELL):
        for left in range(window.columns.start, window.columns.stop, CELL):
            rows = slice(top, min(top + CELL, window.rows.stop))
            columns = slice(left, min(left + CELL, window.columns.stop))
            if not known[window.place(rows, columns)].all():
                work.append((rows, columns))

    def solve(part: int) -> None:
        for rows, columns in work[part::threads]:
            wide = [
                slice(max(each.start - MARGIN, 0), min(each.stop + MARGIN, length))
                for each, length in zip((rows, columns), window.shape, strict=True)
            ]
            place = window.place(*wide)
            system = laplacian(*wide)
            answer = system.minimise(values[place], known[place], share, tolerance=tolerance)
            inner = (
                slice(None),
                *(
                    slice(each.start - whole.start, each.stop - whole.start)
                    for each, whole in zip((rows, columns), wide, strict=True)
                ),
            )
            filled[window.place(rows, columns)] = answer[inner]

    run_parts(min(threads, max(len(work), 1)), solve)
    return filled


def _grid(rows: slice, columns: slice) -> PixelLaplacian:
    return grid_laplacian(rows.stop - rows.start, columns.stop - columns.start)


@lru_cache(maxsize=16)
def grid_laplacian(height: int, width: int) -> PixelLaplacian:
    """Return the Laplacian of the graph that joins each pixel with the four next to it."""
    pixel = np.arange(height * width).reshape(height, width)
    one = np.concatenate([pixel[:-1].ravel(), pixel[:, :-1].ravel()])
    other = np.concatenate([pixel[1:].ravel(), pixel[:, 1:].ravel()])
    ends, others = np.concatenate([one, other]), np.concatenate([other, one])
    order = np.argsort(ends, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(ends, minlength=height * width))])
    return PixelLaplacian(
        starts, others[order].astype(np.int32), np.ones(ends.size, np.float32), (height, width)
    )
