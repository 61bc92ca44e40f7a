"""Overlapping tiles of a picture, and the blend of their contents, without a seam.

:class:`Grid` says where the tiles lie, :func:`ramps` how much each counts at every pixel, and :func:`blend`
puts their contents together.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]
Weights = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Tile:
    """A rectangle of pixels.

    Attributes
    ----------
    rows, columns : slice
        With a start and a stop.
    """

    rows: slice
    columns: slice

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width."""
        return self.rows.stop - self.rows.start, self.columns.stop - self.columns.start


def spans(length: int, size: int, overlap: int) -> list[slice]:
    """Cover an axis with as few overlapping slices as possible, all of the same length.

    Parameters
    ----------
    length : int
        Of the axis.
    size : int
        Largest length of a slice; they are shorter if as many shorter ones suffice.
    overlap : int
        Least number of entries that neighbours share; at most a third of ``size``, so that no entry is in
        more than two slices.

    Returns
    -------
    list of slice

    Examples
    --------
    >>> spans(100, 60, 10)
    [slice(0, 55, None), slice(45, 100, None)]
    >>> spans(50, 60, 10)
    [slice(0, 50, None)]
    """
    if not 0 <= overlap <= size // 3:
        raise ValueError(f"overlap: expected 0 to a third of the tiles' size, {size // 3}, got {overlap}")
    if length <= size:
        return [slice(0, length)]
    count = math.ceil((length - overlap) / (size - overlap))
    even = math.ceil((length + (count - 1) * overlap) / count)
    starts = [place * (length - even) // (count - 1) for place in range(count)]
    return [slice(start, start + even) for start in starts]


def ramps(slices: list[slice]) -> list[Weights]:
    """Return the weight of each slice at each of its entries; at every entry of the axis they sum to one.

    Where two slices overlap, one fades out as the other fades in, along half a period of a sine: a tile
    counts least at its ends, where it knows least of its surroundings.

    Examples
    --------
    >>> first, second = ramps([slice(0, 6), slice(3, 9)])
    >>> first.round(2)
    array([1.  , 1.  , 1.  , 0.93, 0.5 , 0.07])
    >>> second.round(2)
    array([0.07, 0.5 , 0.93, 1.  , 1.  , 1.  ])
    """
    weights = [np.ones(span.stop - span.start) for span in slices]
    for (one, fading), (other, rising) in itertools.pairwise(zip(slices, weights, strict=True)):
        shared = one.stop - other.start
        if shared > 0:
            share = np.sin(np.pi / 2 * (np.arange(shared) + 0.5) / shared) ** 2
            rising[:shared] = share
            fading[-shared:] = 1 - share
    return weights


@dataclass(frozen=True)
class Grid:
    """The tiles of a picture, row by row.

    Parameters
    ----------
    height, width : int
        Of the picture.
    size : int
        Largest height and width of a tile.
    overlap : int
        Least number of pixels that neighbouring tiles share; at most a third of ``size``.

    Examples
    --------
    >>> grid = Grid(100, 50, size=60, overlap=10)
    >>> len(grid)
    2
    >>> next(iter(grid))
    Tile(rows=slice(0, 55, None), columns=slice(0, 50, None))
    """

    height: int
    width: int
    size: int
    overlap: int

    @cached_property
    def rows(self) -> list[slice]:
        """Rows of the tiles."""
        return spans(self.height, self.size, self.overlap)

    @cached_property
    def columns(self) -> list[slice]:
        """Columns of the tiles."""
        return spans(self.width, self.size, self.overlap)

    @property
    def whole(self) -> Tile:
        """The whole picture."""
        return Tile(slice(0, self.height), slice(0, self.width))

    def __len__(self) -> int:
        return len(self.rows) * len(self.columns)

    def __iter__(self) -> Iterator[Tile]:
        return (Tile(rows, columns) for rows in self.rows for columns in self.columns)


def blend(
    grid: Grid, contents: Callable[[Tile], Values | None], leading: tuple[int, ...] = ()
) -> Iterator[tuple[Tile, npt.NDArray[np.float64]]]:
    """Put the contents of tiles together.

    A piece is yielded as soon as no later tile reaches it. Memory is needed for one tile, and for the rows
    that two rows of tiles share.

    Parameters
    ----------
    grid : Grid
    contents : callable
        From a tile to an array (…, rows of the tile, columns of the tile); None counts as zeros, for tiles
        whose blend is not used. Called once for each tile, row by row.
    leading : tuple of int
        The axes before the last two of such an array.

    Yields
    ------
    Tile, ndarray of float64 (…, rows, columns)
        A piece of the picture, and the weighted mean of all tiles there. The pieces do not overlap and cover
        the picture.

    Examples
    --------
    >>> picture = np.random.default_rng(0).random((30, 50))
    >>> again = np.zeros_like(picture)
    >>> for piece, content in blend(Grid(30, 50, 16, 4), lambda tile: picture[tile.rows, tile.columns]):
    ...     again[piece.rows, piece.columns] = content
    >>> np.allclose(again, picture)
    True
    """
    above: dict[int, Values] = {}  # by column: the overlap with the tiles of the row above
    for row, rows in enumerate(grid.rows):
        right = corner = None
        for column, columns in enumerate(grid.columns):
            tile = Tile(rows, columns)
            content = contents(tile)
            parts = split(
                grid, row, column, np.zeros((*leading, *tile.shape)) if content is None else content
            )
            yield piece(grid, row, column), join(parts.body, right, above.pop(column, None), None)
            above[column] = join(parts.below, corner, None, None)
            right, corner = parts.right, parts.corner
            del content, parts  # the next tile needs the memory


@dataclass(frozen=True, eq=False)
class TileParts:
    """A weighted tile, split into its exclusive part and its overlaps.

    Attributes
    ----------
    body : ndarray of float64 (…, h, w)
        From the tile's corner to where the next tiles begin.
    right, below, corner : ndarray of float64
        The overlaps with the next tile in the row, the one below, and the one below and to the right.
    """

    body: Values
    right: Values
    below: Values
    corner: Values


def piece(grid: Grid, row: int, column: int) -> Tile:
    """Return the part of the picture that a tile is the last to reach. All pieces cover the picture once.

    Examples
    --------
    >>> piece(Grid(100, 50, size=60, overlap=10), 0, 0)
    Tile(rows=slice(0, 45, None), columns=slice(0, 50, None))
    """

    def until_next(slices: list[slice], place: int) -> slice:
        last = place == len(slices) - 1
        return slice(slices[place].start, slices[place].stop if last else slices[place + 1].start)

    return Tile(until_next(grid.rows, row), until_next(grid.columns, column))


def split(grid: Grid, row: int, column: int, content: Values) -> TileParts:
    """Weight the content of a tile, (…, rows of the tile, columns of the tile), and return its parts."""
    down, across = _weights(grid)
    weighted = content * (down[row][:, np.newaxis] * across[column])
    height, width = piece(grid, row, column).shape
    quarters = [np.split(half, [width], axis=-1) for half in np.split(weighted, [height], axis=-2)]
    (body, right), (below, corner) = quarters
    # Copies: a strip should not keep its whole tile in memory.
    return TileParts(body.copy(), right.copy(), below.copy(), corner.copy())


def join(
    body: Values, from_left: Values | None, from_above: Values | None, from_corner: Values | None
) -> Values:
    """Return the blend of a piece: a tile's body plus the overlaps of the tiles before it.

    None is for tiles that do not exist, or that count as zeros.

    Examples
    --------
    >>> join(np.ones((1, 3)), 2 * np.ones((1, 1)), None, None)
    array([[3., 1., 1.]])
    """
    total = body.copy()
    if from_left is not None:
        total[..., : from_left.shape[-1]] += from_left
    strip = np.zeros(total.shape)
    if from_above is not None:
        strip[..., : from_above.shape[-2], :] += from_above
    if from_corner is not None:
        strip[..., : from_corner.shape[-2], : from_corner.shape[-1]] += from_corner
    return total + strip


@lru_cache(maxsize=8)
def _weights(grid: Grid) -> tuple[list[Weights], list[Weights]]:
    return ramps(grid.rows), ramps(grid.columns)


def widen(span: slice, factor: int, length: int) -> slice:
    """Return a slice ``factor`` times as long around the same centre, clipped to an axis of some length.

    Examples
    --------
    >>> widen(slice(40, 60), 3, 100), widen(slice(10, 30), 3, 100)
    (slice(20, 80, None), slice(0, 50, None))
    """
    more = (factor - 1) * (span.stop - span.start) // 2
    return slice(max(0, span.start - more), min(length, span.stop + more))


def square_sums(values: Values, side: int) -> npt.NDArray[np.float64]:
    """Return the sums over squares of the last two axes; squares at the far ends may be smaller.

    Examples
    --------
    >>> square_sums(np.ones((3, 5)), 2)
    array([[4., 4., 2.],
           [2., 2., 1.]])
    """
    starts = [np.arange(0, length, side) for length in values.shape[-2:]]
    rows = np.add.reduceat(values, starts[0], axis=-2, dtype=np.float64)
    sums: npt.NDArray[np.float64] = np.add.reduceat(rows, starts[1], axis=-1)
    return sums


def stretch(values: Values, region: slice, part: slice, factor: int, axis: int) -> Values:
    """Enlarge part of a region that was shrunk by ``factor`` along an axis, by linear interpolation.

    Parameters
    ----------
    values : ndarray
        One entry for every ``factor`` of ``region`` along ``axis``.
    region, part : slice
        On the axis at full length; ``part`` lies within ``region``.
    factor : int
    axis : {-2, -1}

    Returns
    -------
    ndarray
        As long as ``part`` along ``axis``; interpolated between the centres of the shrunk entries.

    Examples
    --------
    >>> stretch(np.array([[1.0, 3.0, 5.0]]), slice(10, 16), slice(11, 15), 2, axis=-1)
    array([[1.5, 2.5, 3.5, 4.5]])
    """
    last = values.shape[axis] - 1
    places = (np.arange(part.start, part.stop) - region.start + 0.5) / factor - 0.5
    places = np.clip(places, 0, last)
    before = np.floor(places).astype(int)
    shares = (places - before)[:, np.newaxis] if axis == -2 else places - before
    near, far = (np.take(values, index, axis=axis) for index in (before, np.minimum(before + 1, last)))
    interpolated: Values = near + shares * (far - near)
    return interpolated
