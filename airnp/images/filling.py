"""Tiles filled by a fit each; those within holes with the help of what lies around them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from airnp._arrays import natural_float, to_numpy
from airnp.data.inputs import EmptyLineWarning
from airnp.fitting import fit
from airnp.images.picture import Group, Picture
from airnp.images.tiles import Bools, Grid, Tile, Values, square_sums, stretched, widened


@dataclass(frozen=True, eq=False)
class TileFit:
    """How each tile is fitted.

    Attributes
    ----------
    options : dict
        Of :func:`airnp.fit`.
    has_neighbours : bool
        Whether the picture has several tiles. A row of a tile may well be empty where the picture's is not.
    """

    options: dict[str, Any]
    has_neighbours: bool

    def completed(self, values: Values, observed: Bools) -> Values:
        """Return a group of channels without gaps, fitted side by side as one matrix."""
        if observed.all():
            return values
        count, height, width = values.shape
        matrix, mask = (np.swapaxes(part, 0, 1).reshape(height, -1) for part in (values, observed))
        with warnings.catch_warnings():
            if self.has_neighbours:
                warnings.simplefilter("ignore", EmptyLineWarning)
            result = fit(matrix, mask, **self.options)
        if result.stop_reason == "interrupted":
            raise KeyboardInterrupt
        return np.swapaxes(to_numpy(result.matrix).reshape(height, count, width), 0, 1)

    def with_surroundings(
        self, tile: Tile, values: Values, observed: Bools, around: Around
    ) -> tuple[Values, Bools]:
        """Return a tile's pixels, and which are known once those far from any observed one are filled."""
        far = around.far(tile, observed)
        if not far.any():
            return values, observed
        filled = np.where(around.seen, around.shrunk, self.completed(around.shrunk, around.seen))
        known = np.where(far, around.stretched(filled, tile), values)
        return known.astype(around.shrunk.dtype), observed | far


class Filler:
    """Fills the tiles of a picture, one after another."""

    def __init__(self, picture: Picture, grid: Grid, options: dict[str, Any]) -> None:
        self._picture, self._grid = picture, grid
        self._fit = TileFit(options, has_neighbours=len(grid) > 1)
        self.in_holes = 0
        """Tiles so far that were filled with the help of what lies around them."""

    def contents(self, group: Group, tile: Tile) -> Values | None:
        """Return pixels (channels of the group, rows, columns) to fill in, None where nothing is missing."""
        values, observed = self._picture.part(group, tile)
        if observed.all():
            return None
        known = values, observed
        if self._fit.has_neighbours and has_empty_lines(observed):
            around = surroundings(self._picture, self._grid, group, tile)
            known = self._fit.with_surroundings(tile, values, observed, around)
            self.in_holes += not np.array_equal(known[1], observed)
        return self._fit.completed(*known)


def warn_of_holes(count: int) -> None:
    """Tell the caller of the caller how many tiles have holes that no observed pixel is near."""
    if count:
        warnings.warn(
            f"tiles with rows or columns without any observed pixel: {count}; what is far from "
            "observed pixels there is filled from a larger region, at a lower resolution",
            UserWarning,
            stacklevel=3,
        )


@dataclass(frozen=True, eq=False)
class Around:
    """A region around a tile, shrunk.

    Attributes
    ----------
    region : Tile
    factor : int
        Pixels along the side of the squares that became one.
    shrunk : array (channels of the group, rows, columns)
        The means of the observed pixels in each square.
    seen : array of bool, of the same shape
        Where there are any.
    """

    region: Tile
    factor: int
    shrunk: Any
    seen: Any

    def far(self, tile: Tile, observed: Bools) -> Bools:
        """Return which missing pixels of a tile have no observed one in their square."""
        if not observed.any():
            return ~observed  # what is near lies in other tiles
        rows, columns = (
            (np.arange(part.start, part.stop) - whole.start) // self.factor
            for part, whole in ((tile.rows, self.region.rows), (tile.columns, self.region.columns))
        )
        return np.asarray(~observed & ~self.seen[:, rows[:, np.newaxis], columns])

    def stretched(self, filled: Values, tile: Tile) -> Values:
        """Return a tile's part of the region, from values of the shape of ``shrunk``, at full size."""
        high = stretched(filled, self.region.rows, tile.rows, self.factor, axis=-2)
        return stretched(high, self.region.columns, tile.columns, self.factor, axis=-1)


def has_empty_lines(observed: Bools) -> bool:
    """Whether the matrix that is fitted has a row or column without any observed entry."""
    rows, columns = observed.any(axis=(0, 2)), observed.any(axis=1)
    return not (rows.all() and columns.all())


def region_around(grid: Grid, tile: Tile, factor: int) -> Tile:
    """Return so many times as many rows and columns around a tile, as far as the picture reaches."""
    return Tile(widened(tile.rows, factor, grid.height), widened(tile.columns, factor, grid.width))


def surroundings(picture: Picture, grid: Grid, group: Group, tile: Tile) -> Around:
    """Return the smallest region around a tile that has no empty row or column, or the whole picture.

    It is shrunk to about the tile's size: so far from what is observed there is no detail to find, and memory
    stays what it is for a tile.
    """
    factor = 1
    while True:
        factor *= 2
        region = region_around(grid, tile, factor)
        around = Around(region, factor, *_shrunk(picture, group, region, factor))
        if region == grid.whole or not has_empty_lines(around.seen):
            return around


def _shrunk(picture: Picture, group: Group, region: Tile, factor: int) -> tuple[Values, Bools]:
    """Return the means of the observed pixels in squares of a region, and where there are any."""
    sums, counts = [], []
    # Row by row of squares, because the region may be as large as the picture.
    for top in range(region.rows.start, region.rows.stop, factor):
        rows = slice(top, min(top + factor, region.rows.stop))
        values, observed = picture.part(group, Tile(rows, region.columns))
        sums.append(square_sums(np.where(observed, values, 0), factor))
        counts.append(square_sums(observed, factor))
    count = np.concatenate(counts, axis=-2)
    means = np.concatenate(sums, axis=-2) / np.maximum(count, 1)
    return means.astype(natural_float(picture.values.dtype)), count > 0
