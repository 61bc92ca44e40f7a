"""A picture that Dask has: which of its tiles have gaps, and what lies around holes.

Everything is arranged as (groups…, channels of a group, H, W), as :mod:`airnp.images.picture` has it.
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
from airnp.images.filling import Around, has_empty_lines, region_around
from airnp.images.picture import Group, Layout, Picture, check_gaps_are_told, nothing_observed
from airnp.images.tiles import Bools, Grid, Tile, Values, square_sums

_SIDE = 512
"""Pixels along a side of the blocks that are shrunk at a time, about."""

_ANY_LAYOUT = Layout((0, 1), joint=False, has_channels=False)
"""For pixels that are arranged already."""

Place = tuple[Group, int, int]
"""A group, and the row and column of one of its tiles."""


def all_places(picture: LazyPicture, grid: Grid) -> Iterator[Place]:
    """Yield all tiles of all groups."""
    groups = np.ndindex(picture.values.shape[:-3])
    return product(groups, range(len(grid.rows)), range(len(grid.columns)))


def tile_at(grid: Grid, place: Place) -> Tile:
    """Return the rectangle of a tile."""
    return Tile(grid.rows[place[1]], grid.columns[place[2]])


def whole(values: Values) -> Tile:
    """Return the rectangle of all pixels of an array."""
    return Tile(slice(0, values.shape[-2]), slice(0, values.shape[-1]))


@dataclass(frozen=True, eq=False)
class LazyPicture:
    """An image and its mask, arranged as (groups…, channels of a group, H, W)."""

    values: Any
    mask: Any

    @classmethod
    def of(cls, image: Any, mask: Any, layout: Layout) -> LazyPicture:
        """Return a picture, checked as far as that can be done without looking at it."""
        if mask is not None and not isinstance(mask, da.Array):
            mask = da.from_array(np.asarray(mask), name=False)
        check_gaps_are_told(image.dtype, mask)
        marks = None if mask is None else layout.arranged_mask(mask, image.shape)
        return cls(layout.arranged(image), marks)

    def part(self, group: Group, tile: Tile) -> tuple[Any, Any]:
        """Return pixels and marks (channels of the group, rows, columns), still to be computed."""
        where = (*group, slice(None), tile.rows, tile.columns)
        return self.values[where], None if self.mask is None else self.mask[where]


@dataclass(frozen=True)
class Finding:
    """What a tile has."""

    has_gaps: bool
    is_seen: bool
    has_empty_lines: bool


def survey(picture: LazyPicture, grid: Grid) -> dict[Place, Finding]:
    """Look at the mask, or without one at the image, once."""
    tasks = {}
    for place in all_places(picture, grid):
        values, marks = picture.part(place[0], tile_at(grid, place))
        tasks[place] = dask.delayed(_found)(values if marks is None else None, marks)
    places, found = list(tasks), dask.compute(*tasks.values())
    findings: dict[Place, Finding] = dict(zip(places, found, strict=True))
    seen = {place[0] for place, finding in findings.items() if finding.is_seen}
    for group, _, _ in places:
        if group not in seen:
            raise nothing_observed(group)
    return findings


def _found(values: Values | None, marks: Values | None) -> Finding:
    observed = _observed(values, marks)
    return Finding(not observed.all(), bool(observed.any()), has_empty_lines(observed))


def _observed(values: Values | None, marks: Values | None) -> Bools:
    """Return which pixels are observed; the values matter only without marks."""
    if values is None:
        assert marks is not None
        values = np.broadcast_to(np.uint8(0), marks.shape)
    return arranged(values, marks).part((), whole(values))[1]


def arranged(values: Values, marks: Values | None) -> Picture:
    """Return pixels that are arranged and in memory as a picture of their own."""
    return Picture(values, marks, None, _ANY_LAYOUT)


def surroundings(picture: LazyPicture, grid: Grid, places: list[Place]) -> dict[Place, Around]:
    """Return for each tile what :func:`airnp.images.filling.surroundings` does, still to be computed."""
    found: dict[Place, Around] = {}
    factor = 1
    while places:
        factor *= 2
        tried = [_shrunk(picture, grid, place, factor) for place in places]
        empty = dask.compute(*(dask.delayed(has_empty_lines)(around.seen) for around in tried))
        larger = []
        for place, around, is_empty in zip(places, tried, empty, strict=True):
            if is_empty and around.region != grid.whole:
                larger.append(place)
            else:
                found[place] = around
        places = larger
    return found


def _shrunk(picture: LazyPicture, grid: Grid, place: Place, factor: int) -> Around:
    region = region_around(grid, tile_at(grid, place), factor)
    side = factor * max(1, _SIDE // factor)
    given = [part for part in picture.part(place[0], region) if part is not None]
    blocks = [part.rechunk({0: -1, 1: side, 2: side}) for part in given]
    chunks = blocks[0].chunks
    small = [tuple(-(-length // factor) for length in axis) for axis in chunks[1:]]
    both = da.map_blocks(
        _sums_and_counts, *blocks, side=factor, new_axis=0, chunks=((2,), chunks[0], *small), dtype=np.float64
    )
    means = both[0] / da.maximum(both[1], 1)
    return Around(region, factor, means.astype(natural_float(picture.values.dtype)), both[1] > 0)


def _sums_and_counts(values: Values, marks: Values | None = None, *, side: int) -> Values:
    observed = _observed(values, marks)
    return np.stack([square_sums(np.where(observed, values, 0), side), square_sums(observed, side)])
