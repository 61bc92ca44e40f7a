"""Images as Dask arrays: find the tiles with gaps, and the surroundings of large holes.

Everything is arranged as (groups…, channels of a group, H, W), as in :mod:`airnp.images.masked_image`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import dask
import dask.array as da
import numpy as np

from airnp._arrays import natural_float
from airnp.images.filling import Surroundings, has_empty_lines, region_around
from airnp.images.masked_image import Group, Layout, MaskedImage, check_mask, nothing_observed_error
from airnp.images.tiles import Bools, Grid, Tile, Values, square_sums

_SIDE = 512
"""Approximate side, in pixels, of the blocks that are shrunk at a time."""

_ANY_LAYOUT = Layout((0, 1), joint=False, has_channels=False)
"""For pixels that are arranged already, whatever their axes were."""

Place = tuple[Group, int, int]
"""A group, and the row and column of one of its tiles."""


def tile_at(grid: Grid, place: Place) -> Tile:
    """Return the rectangle of a tile."""
    return Tile(grid.rows[place[1]], grid.columns[place[2]])


@dataclass(frozen=True, eq=False)
class LazyImage:
    """An image and its mask, arranged as (groups…, channels of a group, H, W)."""

    values: Any
    mask: Any

    @classmethod
    def of(cls, image: Any, mask: Any, layout: Layout) -> LazyImage:
        """Arrange an image and its mask; check what can be checked without computing them."""
        if mask is not None and not isinstance(mask, da.Array):
            mask = da.from_array(np.asarray(mask), name=False)
        check_mask(image.dtype, mask)
        arranged = None if mask is None else layout.arrange_mask(mask, image.shape)
        return cls(layout.arrange(image), arranged)

    def part(self, group: Group, tile: Tile) -> tuple[Any, Any]:
        """Return pixels and mask (channels of the group, rows, columns), not yet computed."""
        where = (*group, slice(None), tile.rows, tile.columns)
        return self.values[where], None if self.mask is None else self.mask[where]


@dataclass(frozen=True)
class Finding:
    """What is observed of a tile."""

    has_gaps: bool
    has_pixels: bool
    has_empty_lines: bool


def survey(image: LazyImage, grid: Grid) -> dict[Place, Finding]:
    """Read the mask, or without one the image, once; raise if a group has no observed pixel."""
    tasks = {}
    for place in _all_places(image, grid):
        values, mask = image.part(place[0], tile_at(grid, place))
        tasks[place] = dask.delayed(_inspect)(values if mask is None else None, mask)
    places, found = list(tasks), dask.compute(*tasks.values())
    findings: dict[Place, Finding] = dict(zip(places, found, strict=True))
    seen = {place[0] for place, finding in findings.items() if finding.has_pixels}
    for group, _, _ in places:
        if group not in seen:
            raise nothing_observed_error(group)
    return findings


def find_surroundings(image: LazyImage, grid: Grid, places: list[Place]) -> dict[Place, Surroundings]:
    """Return for each tile what :func:`airnp.images.filling.find_surroundings` does, not yet computed."""
    found: dict[Place, Surroundings] = {}
    factor = 1
    while places:
        factor *= 2
        tried = [_shrink(image, grid, place, factor) for place in places]
        empty = dask.compute(*(dask.delayed(has_empty_lines)(around.seen) for around in tried))
        larger = []
        for place, around, is_empty in zip(places, tried, empty, strict=True):
            if is_empty and around.region != grid.whole:
                larger.append(place)
            else:
                found[place] = around
        places = larger
    return found


def read_tile(values: Values, mask: Values | None) -> tuple[Values, Bools]:
    """Return the pixels of a tile in memory, already arranged, and which of them are observed."""
    whole = Tile(slice(0, values.shape[-2]), slice(0, values.shape[-1]))
    return MaskedImage(values, mask, None, _ANY_LAYOUT).part((), whole)


def _all_places(image: LazyImage, grid: Grid) -> Iterator[Place]:
    """Yield all tiles of all groups."""
    groups = np.ndindex(image.values.shape[:-3])
    return product(groups, range(len(grid.rows)), range(len(grid.columns)))


def _inspect(values: Values | None, mask: Values | None) -> Finding:
    observed = _observed(values, mask)
    return Finding(not observed.all(), bool(observed.any()), has_empty_lines(observed))


def _observed(values: Values | None, mask: Values | None) -> Bools:
    """Return which pixels are observed; the values matter only without a mask."""
    if values is None:
        assert mask is not None
        values = np.broadcast_to(np.uint8(0), mask.shape)
    return read_tile(values, mask)[1]


def _shrink(image: LazyImage, grid: Grid, place: Place, factor: int) -> Surroundings:
    region = region_around(grid, tile_at(grid, place), factor)
    side = factor * max(1, _SIDE // factor)
    given = [part for part in image.part(place[0], region) if part is not None]
    blocks = [part.rechunk({0: -1, 1: side, 2: side}) for part in given]
    chunks = blocks[0].chunks
    small = [tuple(-(-length // factor) for length in axis) for axis in chunks[1:]]
    both = da.map_blocks(
        _sums_and_counts, *blocks, side=factor, new_axis=0, chunks=((2,), chunks[0], *small), dtype=np.float64
    )
    means = both[0] / da.maximum(both[1], 1)
    return Surroundings(region, factor, means.astype(natural_float(image.values.dtype)), both[1] > 0)


def _sums_and_counts(values: Values, mask: Values | None = None, *, side: int) -> Values:
    observed = _observed(values, mask)
    return np.stack([square_sums(np.where(observed, values, 0), side), square_sums(observed, side)])
