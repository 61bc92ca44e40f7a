"""Tiles filled by a fit each; those within holes with the help of what lies around them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from airnp._arrays import to_numpy
from airnp.fitting import fit
from airnp.images.layout import Group
from airnp.images.picture import Picture
from airnp.images.surroundings import Around, has_empty_lines, surroundings
from airnp.images.tiles import Bools, Grid, Tile, Values
from airnp.inputs import EmptyLineWarning


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
