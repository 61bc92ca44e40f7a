"""The same blend as :func:`airnp.images.tiles.blended`, piece by piece, for tiles filled in different places.

A tile is cut where the tiles to its right and below begin. Its body stays; what it shares with the next
tiles, three narrow parts, goes to them. So a piece of the picture needs one tile and strips of three others.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from airnp.images.tiles import Grid, Tile, Values, Weights, ramps


@dataclass(frozen=True, eq=False)
class Parts:
    """A tile's content times its weights, cut into what it shares with nobody later and with whom.

    Attributes
    ----------
    body : ndarray of float64 (…, h, w)
        The piece of the picture from this tile's corner to where the next tiles begin.
    right, below, corner : ndarray of float64
        What the next tile in the row, the one below, and the one below and to the right begin with.
    """

    body: Values
    right: Values
    below: Values
    corner: Values


def piece(grid: Grid, row: int, column: int) -> Tile:
    """Return the part of the picture that a tile is the last to reach; all of them together cover it once.

    Examples
    --------
    >>> piece(Grid(100, 50, size=60, overlap=10), 0, 0)
    Tile(rows=slice(0, 45, None), columns=slice(0, 50, None))
    """
    return Tile(_own(grid.rows, row), _own(grid.columns, column))


def cut(grid: Grid, row: int, column: int, content: Values) -> Parts:
    """Return the parts of a tile, whose content is (…, rows of the tile, columns of the tile)."""
    down, across = _weights(grid)
    weighted = content * (down[row][:, np.newaxis] * across[column])
    own = piece(grid, row, column)
    height, width = own.rows.stop - own.rows.start, own.columns.stop - own.columns.start
    quarters = [np.split(half, [width], axis=-1) for half in np.split(weighted, [height], axis=-2)]
    (body, right), (below, corner) = quarters
    # Copies: a strip should not keep its whole tile in memory.
    return Parts(body.copy(), right.copy(), below.copy(), corner.copy())


def joined(
    body: Values, from_left: Values | None, from_above: Values | None, from_corner: Values | None
) -> Values:
    """Return the blend of a piece: a tile's body and what the tiles before it share with it.

    None is for tiles that are not there, or that nobody will look at. The sums are in the order of
    :func:`airnp.images.tiles.blended`, so that the answer is the same to the last bit.

    Examples
    --------
    >>> joined(np.ones((1, 3)), 2 * np.ones((1, 1)), None, None)
    array([[3., 1., 1.]])
    """
    blend = body.copy()
    if from_left is not None:
        blend[..., : from_left.shape[-1]] += from_left
    strip = np.zeros(blend.shape)
    if from_above is not None:
        strip[..., : from_above.shape[-2], :] += from_above
    if from_corner is not None:
        strip[..., : from_corner.shape[-2], : from_corner.shape[-1]] += from_corner
    return blend + strip


def _own(slices: list[slice], place: int) -> slice:
    last = place == len(slices) - 1
    return slice(slices[place].start, slices[place].stop if last else slices[place + 1].start)


@lru_cache(maxsize=8)
def _weights(grid: Grid) -> tuple[list[Weights], list[Weights]]:
    return ramps(grid.rows), ramps(grid.columns)
