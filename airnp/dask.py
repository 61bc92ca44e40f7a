"""``airnp.dask.inpaint``: fill Dask arrays, pictures and stacks larger than memory, on any Dask cluster.

Tiles overlap and fade into each other, as in :func:`airnp.inpaint`: a tile is a task, and so is a piece of
the answer, which needs one tile and strips of the three before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from airnp._checks import checked_seed
from airnp.images.filling import Around, TileFit, warn_of_holes
from airnp.images.inpainting import PixelKind, checked_grid, checked_options
from airnp.images.picture import Group, Layout, check_kind
from airnp.images.tiles import Bools, Grid, Values, cut, joined, piece

try:
    import dask
    import dask.array as da
except ImportError as error:
    raise ImportError("airnp.dask needs Dask: pip install 'airnp[dask]'") from error

from airnp.images.lazy import LazyPicture, Place, arranged, surroundings, survey, tile_at, whole

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
    picture = LazyPicture.of(image, mask, layout)
    grid = checked_grid(picture.values.shape[-2], picture.values.shape[-1], tile, overlap)
    settings = {**checked_options({**options, "threads": threads}), "seed": checked_seed(seed)}
    work = _Work(grid, TileFit(settings, has_neighbours=len(grid) > 1), PixelKind.of(image.dtype, bounds))

    findings = survey(picture, grid)
    gaps = {place for place, found in findings.items() if found.has_gaps}
    holes = [place for place, found in findings.items() if found.has_empty_lines and len(grid) > 1]
    around = surroundings(picture, grid, holes)
    warn_of_holes(len(around))
    filled = {place: _lazily_filled(picture, work, place, around.get(place)) for place in gaps}
    blocks = {place: _lazy_piece(picture, work, place, filled) for place in findings}
    answer = da.block(_nested(blocks, picture.values.shape[:-3], grid))
    ordered = answer if layout.joint else answer[..., 0, :, :]
    return da.transpose(ordered, np.argsort(layout.axes).tolist()).rechunk(image.chunks)


# --- filling ---


@dataclass(frozen=True, eq=False)
class _Work:
    """What all tiles share."""

    grid: Grid
    fit: TileFit
    kind: PixelKind


def _lazily_filled(picture: LazyPicture, work: _Work, place: Place, around: Around | None) -> Any:
    group, row, column = place
    pixels = picture.part(group, tile_at(work.grid, place))
    return dask.delayed(partial(_fill, work, row, column), nout=4, traverse=False)(*pixels, around)


Own = tuple[Values, Bools, Values]
"""The pixels of a piece as they were, which of them are observed, and what its own tile fills in."""


def _fill(
    work: _Work, row: int, column: int, values: Values, marks: Values | None, around: Around | None
) -> tuple[Own, Values, Values, Values]:
    """Fill a tile, as :func:`airnp.inpaint` does; return its piece, and strips for three others."""
    values, observed = arranged(values, marks).part((), whole(values))
    if not np.isfinite(values[observed]).all():
        raise ValueError("image: observed pixels are NaN or infinite; mark them as missing in mask")
    known = values, observed
    if around is not None:
        known = work.fit.with_surroundings(tile_at(work.grid, ((), row, column)), *known, around)
    parts = cut(work.grid, row, column, work.fit.completed(*known))
    where = (..., slice(parts.body.shape[-2]), slice(parts.body.shape[-1]))
    own = values[where].copy(), observed[where].copy(), parts.body
    return own, parts.right, parts.below, parts.corner


def _lazy_piece(picture: LazyPicture, work: _Work, place: Place, filled: dict[Place, Any]) -> Any:
    """Return the part of the answer that a tile is the last to reach, with an axis for each of the groups."""
    group, row, column = place
    where = piece(work.grid, row, column)
    leading = (np.newaxis,) * len(group)
    if place not in filled:
        return picture.part(group, where)[0][leading]
    before = [(group, row, column - 1), (group, row - 1, column), (group, row - 1, column - 1)]
    strips = [filled[other][part] if other in filled else None for part, other in enumerate(before, start=1)]
    made = dask.delayed(partial(_made, work.kind), traverse=False)(filled[place][0], *strips)
    shape = (picture.values.shape[-3], *(span.stop - span.start for span in (where.rows, where.columns)))
    return da.from_delayed(made, shape, dtype=picture.values.dtype)[leading]


def _made(
    kind: PixelKind, own: Own, from_left: Values | None, from_above: Values | None, from_corner: Values | None
) -> Values:
    values, observed, body = own
    blend = joined(body, from_left, from_above, from_corner)
    return np.where(observed, values, kind.of_pixels(blend))


def _nested(blocks: dict[Place, Any], groups: tuple[int, ...], grid: Grid, group: Group = ()) -> Any:
    """Return pieces in nested lists: axis by axis of the groups, then rows of rows of tiles."""
    if len(group) < len(groups):
        return [_nested(blocks, groups, grid, (*group, place)) for place in range(groups[len(group)])]
    rows, columns = range(len(grid.rows)), range(len(grid.columns))
    return [[[blocks[group, row, column] for column in columns] for row in rows]]
