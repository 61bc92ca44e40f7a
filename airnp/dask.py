"""``airnp.dask.inpaint``: fill Dask arrays, pictures and stacks larger than memory, on any Dask cluster.

Tiles overlap and fade into each other, as in :func:`airnp.inpaint`. A tile is a task, and so is a piece of
the answer, which needs one tile and strips of the three before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from airnp._checks import checked_seed
from airnp.engines import Auto
from airnp.images.filling import Surroundings, TileFit, warn_of_holes
from airnp.images.inpainting import PixelLimits, checked_grid, checked_options
from airnp.images.masked_image import Group, Layout, check_kind
from airnp.images.tiles import Bools, Grid, Values, join, piece, split

try:
    import dask
    import dask.array as da
except ImportError as error:
    raise ImportError("airnp.dask needs Dask: pip install 'airnp[dask]'") from error

from airnp.images.lazy_image import LazyImage, Place, find_surroundings, read_tile, survey, tile_at

__all__ = ["inpaint"]


def inpaint(
    image: Any,
    mask: Any = None,
    *,
    channel_axis: int | Literal["auto"] | None = "auto",
    channels: Literal["apart", "together"] = "apart",
    bounds: tuple[float | None, float | None] | None = None,
    tile: int = 700,
    overlap: int | None = None,
    threads: int = 1,
    seed: int | None = None,
    **options: Any,
) -> Any:
    """Fill the missing pixels of a Dask array: a picture, or every picture of a stack.

    Parameters
    ----------
    image : dask.array.Array (H, W), (H, W, C) or (…, H, W, C)
        Integers or floating point, in any chunks.
    mask : dask.array.Array or ndarray of bool, or of 0 and 1, optional
        True or 1 where observed. The shape of the image; or without its channels, which then share it; or
        (H, W), shared by all. Without it, NaN means missing.
    channel_axis, channels, bounds, tile, overlap
        As for :func:`airnp.inpaint`.
    threads : int
        Of the fit of a tile. One, because Dask's workers are many already.
    seed : int, optional
        The same seed gives the same answer, whoever fills a tile and when. Default: a new one.
    **options
        Further options of :func:`airnp.fit`, for every tile.

    Returns
    -------
    dask.array.Array
        Of the image's shape, dtype and chunks. Nothing is filled until it is computed or stored, as by
        ``to_zarr``.

    Raises
    ------
    ValueError, TypeError
        For input that cannot be meant; the message names the argument.

    Warns
    -----
    UserWarning
        When a hole is so large that a tile has rows or columns without any observed pixel, as for
        :func:`airnp.inpaint`.

    Notes
    -----
    The mask, or without one the image, is read once at the call, to learn which tiles have gaps and which
    of them lie within holes; the filled array is what ``airnp.inpaint`` gives for the same tiles and seed.
    Each tile is fitted in units of its own range and brought back to the picture's, so there are no steps
    in brightness between tiles.

    With t for ``tile`` and o for ``overlap``, a tile needs t² pixels of the image. It sends strips of o × t
    pixels to two neighbours and o² to a third, in float64.

    Examples
    --------
    >>> import dask.array as da, numpy as np
    >>> from airnp import masks
    >>> from airnp.commands.demo import scene
    >>> picture = da.from_array(np.rint(255 * scene(48)).astype(np.uint8), chunks=20)
    >>> mask = masks.random((48, 48), missing=0.3, seed=0)
    >>> filled = inpaint(picture, mask, tile=32, overlap=8, max_iter=20, seed=0)
    >>> filled.shape, filled.dtype, filled.chunks == picture.chunks
    ((48, 48), dtype('uint8'), True)
    >>> bool((filled.compute()[mask] == picture.compute()[mask]).all())
    True
    """
    if not isinstance(image, da.Array):
        raise TypeError(f"image: expected a dask.array.Array, got {type(image).__name__}; see airnp.inpaint")
    check_kind(image.dtype)
    if any(np.isnan(length) for length in image.shape):
        raise ValueError(f"image: expected a known shape, got {image.shape}; see compute_chunk_sizes")
    layout = Layout.of(image.shape, channel_axis, channels)
    picture = LazyImage.of(image, mask, layout)
    grid = checked_grid(picture.values.shape[-2], picture.values.shape[-1], tile, overlap)
    settings = {**checked_options({"engine": Auto(threads), **options}), "seed": checked_seed(seed)}
    work = _Work(grid, TileFit(settings, has_neighbours=len(grid) > 1), PixelLimits.of(image.dtype, bounds))

    findings = survey(picture, grid)
    gaps = {place for place, found in findings.items() if found.has_gaps}
    holes = [place for place, found in findings.items() if found.has_empty_lines and len(grid) > 1]
    surroundings = find_surroundings(picture, grid, holes)
    warn_of_holes(len(surroundings))
    filled = {place: _fill_later(picture, work, place, surroundings.get(place)) for place in gaps}
    blocks = {place: _piece_later(picture, work, place, filled) for place in findings}
    answer = da.block(_nest(blocks, picture.values.shape[:-3], grid))
    ordered = answer if layout.joint else answer[..., 0, :, :]
    return da.transpose(ordered, np.argsort(layout.axes).tolist()).rechunk(image.chunks)


@dataclass(frozen=True, eq=False)
class _Work:
    """What all tiles share."""

    grid: Grid
    fit: TileFit
    limits: PixelLimits


def _fill_later(picture: LazyImage, work: _Work, place: Place, surroundings: Surroundings | None) -> Any:
    """Return the four values of `_fill` for a tile, not yet computed."""
    group, row, column = place
    pixels = picture.part(group, tile_at(work.grid, place))
    return dask.delayed(partial(_fill, work, row, column), nout=4, traverse=False)(*pixels, surroundings)


Own = tuple[Values, Bools, Values]
"""The original pixels of a piece, which of them are observed, and the weighted body of its own tile."""


def _fill(
    work: _Work,
    row: int,
    column: int,
    values: Values,
    mask: Values | None,
    surroundings: Surroundings | None,
) -> tuple[Own, Values, Values, Values]:
    """Fill a tile, as :func:`airnp.inpaint` does; return its piece, and strips for three others."""
    values, observed = read_tile(values, mask)
    if not np.isfinite(values[observed]).all():
        raise ValueError("image: observed pixels are NaN or infinite; mark them as missing in mask")
    known = values, observed
    if surroundings is not None:
        known = work.fit.fill_far_pixels(tile_at(work.grid, ((), row, column)), *known, surroundings)
    parts = split(work.grid, row, column, work.fit.complete(*known))
    where = (..., slice(parts.body.shape[-2]), slice(parts.body.shape[-1]))
    own = values[where].copy(), observed[where].copy(), parts.body
    return own, parts.right, parts.below, parts.corner


def _piece_later(picture: LazyImage, work: _Work, place: Place, filled: dict[Place, Any]) -> Any:
    """Return a piece of the answer, not yet computed, with a leading axis for each axis of the groups."""
    group, row, column = place
    where = piece(work.grid, row, column)
    leading = (np.newaxis,) * len(group)
    if place not in filled:
        return picture.part(group, where)[0][leading]
    before = [(group, row, column - 1), (group, row - 1, column), (group, row - 1, column - 1)]
    strips = [filled[other][part] if other in filled else None for part, other in enumerate(before, start=1)]
    pixels = dask.delayed(partial(_finish, work.limits), traverse=False)(filled[place][0], *strips)
    shape = (picture.values.shape[-3], *where.shape)
    return da.from_delayed(pixels, shape, dtype=picture.values.dtype)[leading]


def _finish(limits: PixelLimits, own: Own, *strips: Values | None) -> Values:
    """Blend a piece with the strips from the left, from above and from the corner; keep observed pixels."""
    values, observed, body = own
    return np.where(observed, values, limits.to_pixels(join(body, *strips)))


def _nest(blocks: dict[Place, Any], groups: tuple[int, ...], grid: Grid, group: Group = ()) -> Any:
    """Return the pieces in nested lists, as ``da.block`` takes them: axes of the groups, rows, columns."""
    if len(group) < len(groups):
        return [_nest(blocks, groups, grid, (*group, place)) for place in range(groups[len(group)])]
    rows, columns = range(len(grid.rows)), range(len(grid.columns))
    return [[[blocks[group, row, column] for column in columns] for row in rows]]
