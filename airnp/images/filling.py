"""Fill tiles with a fit each. Large holes are filled from a larger region around the tile, at less detail."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from airnp._arrays import natural_float, to_numpy
from airnp.data.inputs import EmptyLineWarning
from airnp.fitting import fit
from airnp.images.masked_image import Group, MaskedImage
from airnp.images.tiles import Bools, Grid, Tile, Values, square_sums, stretch, widen


class Filler:
    """Fills the tiles of an image, one after another."""

    def __init__(self, image: MaskedImage, grid: Grid, options: dict[str, Any]) -> None:
        self._image, self._grid = image, grid
        self._fit = TileFit(options, has_neighbours=len(grid) > 1)
        self.hole_count = 0
        """Tiles so far that were filled with the help of their surroundings."""

    def fill(self, group: Group, tile: Tile) -> Values | None:
        """Return pixels (channels of the group, rows, columns) to fill in, None if nothing is missing."""
        values, observed = self._image.part(group, tile)
        if observed.all():
            return None
        known = values, observed
        if self._fit.has_neighbours and has_empty_lines(observed):
            surroundings = find_surroundings(self._image, self._grid, group, tile)
            known = self._fit.fill_far_pixels(tile, values, observed, surroundings)
            self.hole_count += not np.array_equal(known[1], observed)
        return self._fit.complete(*known)


@dataclass(frozen=True, eq=False)
class TileFit:
    """How each tile is fitted.

    Attributes
    ----------
    options : dict
        Options of :func:`airnp.fit`.
    has_neighbours : bool
        Whether the picture has several tiles. Then an empty row of a tile is no reason for a warning.
    """

    options: dict[str, Any]
    has_neighbours: bool

    def complete(self, values: Values, observed: Bools) -> Values:
        """Fit the channels of a group side by side as one matrix, and return it without gaps."""
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

    def fill_far_pixels(
        self, tile: Tile, values: Values, observed: Bools, surroundings: Surroundings
    ) -> tuple[Values, Bools]:
        """Fill the pixels of a tile that are far from any observed one; return pixels and known ones."""
        far = surroundings.far_pixels(tile, observed)
        if not far.any():
            return values, observed
        means, seen = surroundings.means, surroundings.seen
        filled = np.where(seen, means, self.complete(means, seen))
        known = np.where(far, surroundings.enlarge(filled, tile), values)
        return known.astype(means.dtype), observed | far


@dataclass(frozen=True, eq=False)
class Surroundings:
    """A region around a tile, shrunk.

    Attributes
    ----------
    region : Tile
    factor : int
        Side, in pixels, of the squares that were shrunk to one.
    means : array (channels of the group, rows, columns)
        The means of the observed pixels in each square.
    seen : array of bool, of the same shape
        Which squares have any observed pixel.
    """

    region: Tile
    factor: int
    means: Any
    seen: Any

    def far_pixels(self, tile: Tile, observed: Bools) -> Bools:
        """Return which missing pixels of a tile have no observed one in their square."""
        if not observed.any():
            return ~observed  # the nearest observed pixels are in other tiles
        rows, columns = (
            (np.arange(part.start, part.stop) - whole.start) // self.factor
            for part, whole in ((tile.rows, self.region.rows), (tile.columns, self.region.columns))
        )
        return np.asarray(~observed & ~self.seen[:, rows[:, np.newaxis], columns])

    def enlarge(self, filled: Values, tile: Tile) -> Values:
        """Return a tile's part of values of the shape of ``means``, at full size."""
        high = stretch(filled, self.region.rows, tile.rows, self.factor, axis=-2)
        return stretch(high, self.region.columns, tile.columns, self.factor, axis=-1)


def find_surroundings(image: MaskedImage, grid: Grid, group: Group, tile: Tile) -> Surroundings:
    """Return the smallest region around a tile that has no empty row or column, or the whole picture.

    It is shrunk to about the tile's size: so far from observed pixels there is no detail to find, and memory
    stays that of a tile.
    """
    factor = 1
    while True:
        factor *= 2
        region = region_around(grid, tile, factor)
        found = Surroundings(region, factor, *_shrink(image, group, region, factor))
        if region == grid.whole or not has_empty_lines(found.seen):
            return found


def region_around(grid: Grid, tile: Tile, factor: int) -> Tile:
    """Return ``factor`` times as many rows and columns around a tile, clipped to the picture."""
    return Tile(widen(tile.rows, factor, grid.height), widen(tile.columns, factor, grid.width))


def has_empty_lines(observed: Bools) -> bool:
    """Whether the matrix that is fitted has a row or column without any observed entry."""
    rows, columns = observed.any(axis=(0, 2)), observed.any(axis=1)
    return not (rows.all() and columns.all())


def warn_of_holes(count: int) -> None:
    """Tell the caller's caller how many tiles have holes that no observed pixel is near."""
    if count:
        warnings.warn(
            f"tiles with rows or columns without any observed pixel: {count}; what is far from "
            "observed pixels there is filled from a larger region, at a lower resolution",
            UserWarning,
            stacklevel=3,
        )


def _shrink(image: MaskedImage, group: Group, region: Tile, factor: int) -> tuple[Values, Bools]:
    """Return the means of the observed pixels in squares of a region, and which squares have any."""
    sums, counts = [], []
    # One row of squares at a time, because the region may be as large as the picture.
    for top in range(region.rows.start, region.rows.stop, factor):
        rows = slice(top, min(top + factor, region.rows.stop))
        values, observed = image.part(group, Tile(rows, region.columns))
        sums.append(square_sums(np.where(observed, values, 0), factor))
        counts.append(square_sums(observed, factor))
    count = np.concatenate(counts, axis=-2)
    means = np.concatenate(sums, axis=-2) / np.maximum(count, 1)
    return means.astype(natural_float(image.values.dtype)), count > 0
