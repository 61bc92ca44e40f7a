"""What lies around a tile within a hole: a larger region at a lower resolution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from airnp._arrays import natural_float
from airnp.images.layout import Group
from airnp.images.picture import Picture
from airnp.images.tiles import Bools, Grid, Tile, Values, square_sums, stretched, widened


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
