"""``airnp.inpaint``: fill the holes of grey and colour pictures, videos and spectral cubes."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from airnp._arrays import dtype_name, from_numpy
from airnp._checks import checked_seed, checked_whole
from airnp.data.bounds import Bounds
from airnp.fitting import fit
from airnp.images.filling import Filler, warn_of_holes
from airnp.images.masked_image import Group, Layout, MaskedImage, read_image
from airnp.images.tiles import Grid, Tile, Values, blend
from airnp.regularizers import TotalVariation, default_regularizers
from airnp.training.progress import CountBar

_WIDEST_OVERLAP = 64
_SMALLEST_TILE = 16

_NOT_FOR_TILES = ("Y", "mask", "operator", "weights", "record", "progress", "checkpoint")
"""Options of :func:`airnp.fit` for one matrix, which several tiles cannot share."""

_FOR_TILES = tuple(name for name in inspect.signature(fit).parameters if name not in _NOT_FOR_TILES)


def inpaint(
    image: Any,
    mask: Any = None,
    *,
    channel_axis: int | Literal["auto"] | None = "auto",
    channels: Literal["apart", "together"] = "apart",
    bounds: tuple[float | None, float | None] | None = None,
    tile: int = 700,
    overlap: int | None = None,
    out: npt.NDArray[Any] | None = None,
    xp: Any = None,
    device: Any = None,
    seed: int | None = None,
    progress: bool = False,
    **options: Any,
) -> Any:
    """Fill the missing pixels of a picture, or of every picture of a stack.

    Parameters
    ----------
    image : array (H, W), (H, W, C) or (…, H, W, C)
        Integers (uint8, uint16, …) or floating point. An array of NumPy, CuPy, PyTorch or another array-API
        namespace, a ``numpy.ma`` array, or nested lists. Never modified. A ``numpy.memmap`` is read tile by
        tile.
    mask : array of bool, or of 0 and 1, optional
        True or 1 where observed. The shape of the image; or without its channels, which then share it; or
        (H, W), shared by all. Without it, NaN means missing.
    channel_axis : int, None or "auto"
        Axis of ``image`` that holds the channels. None: there are none, and the last two axes are the
        pictures, (…, H, W). ``"auto"``: the last axis, if there are three axes or more and it has at most
        four entries; other arrays of three axes or more need an answer.
    channels : {"apart", "together"}
        Whether each channel is a matrix of its own, or all of them, side by side, are one matrix H × (C·W);
        see the notes.
    bounds : (low, high), optional
        Filled pixels are clipped to these; either may be None. Default: the range of the dtype. Integers
        are rounded.
    tile : int
        Pictures with more pixels than this along a side are done in tiles of at most so many, at least 16.
    overlap : int, optional
        Pixels that neighbouring tiles share at least, at most a third of ``tile``. They fade into each
        other. Default: a quarter of ``tile``, but no more than 64.
    out : ndarray, optional
        Where to write the answer, such as a ``numpy.memmap``; of the image's shape and dtype, in memory of
        its own.
    xp : module, optional
        Array namespace to compute in, such as ``cupy``. Default: that of the image.
    device : int or device, optional
        Where in that namespace. Default: that of the image.
    seed : int, optional
        The same seed gives the same answer on the same machine. Every tile is fitted with it, so no tile
        depends on another. Default: a new one.
    progress : bool
        Show a progress bar over the tiles.
    **options
        Further options of :func:`airnp.fit`, for every tile: ``max_iter``, ``stop``, ``regularizers``,
        ``engine``, ….

    Returns
    -------
    array
        Of the image's namespace, shape and dtype, or ``out``. Observed pixels are exactly as they were.

    Raises
    ------
    ValueError, TypeError
        For input that cannot be meant; the message names the argument.
    KeyboardInterrupt
        When interrupted; what is finished is in ``out``.

    Warns
    -----
    UserWarning
        When a hole is so large that a tile has rows or columns without any observed pixel. The pixels of the
        hole that are far from observed ones are then filled with less detail: from a larger region around
        the tile, at a lower resolution.
    EmptyLineWarning
        When a picture that is done in one piece has a row or column without any observed pixel.

    Notes
    -----
    Channels apart are the default because a fit then has the memory of one channel, however many there are,
    and because they are mostly a little better where all channels share their gaps. Together pays where
    every channel has gaps of its own, because what is missing in one is there in another. Both take about
    the same time.

    For a video, ``channel_axis`` may name the axis of time.

    Besides the image and the answer, memory is needed for the fit of one tile (28 matrices of its size) and
    for the ``overlap`` rows between two rows of tiles. Arrays of other libraries than NumPy are copied to
    the host as a whole. Tiles without a missing pixel are not fitted.

    Examples
    --------
    >>> import numpy as np
    >>> from airnp import masks
    >>> from airnp.commands.demo import scene
    >>> grey = scene(32)
    >>> picture = np.rint(255 * np.stack([grey, grey**2, 1 - grey], axis=-1)).astype(np.uint8)
    >>> mask = masks.random((32, 32), missing=0.3, seed=0)
    >>> filled = inpaint(picture, mask, max_iter=6000, seed=0)
    >>> filled.shape, filled.dtype, bool((filled[mask] == picture[mask]).all())
    ((32, 32, 3), dtype('uint8'), True)
    >>> bool(np.abs(filled - 1.0 * picture)[~mask].mean() < 20)
    True
    """
    host, unmasked, home = read_image(image)
    layout = Layout.of(host.shape, channel_axis, channels)
    picture = MaskedImage.of(host, unmasked, mask, layout)
    grid = checked_grid(picture.values.shape[-2], picture.values.shape[-1], tile, overlap)
    limits = PixelLimits.of(host.dtype, bounds)
    answer = np.empty(host.shape, host.dtype) if out is None else _checked_out(out, host, home)
    if xp is None and home is not None:
        xp, device = home[0], home[1] if device is None else device
    place = {"xp": xp, "device": device, "seed": checked_seed(seed)}
    filler = Filler(picture, grid, {**checked_options(options), **place})

    views = layout.arrange(answer)
    with CountBar(picture.survey(grid), "tile", progress) as bar:
        for group in picture.groups():

            def fill(tile: Tile, group: Group = group) -> Values | None:
                filled = filler.fill(group, tile)
                if filled is not None:
                    bar.advance()
                return filled

            for piece, content in blend(grid, fill, leading=picture.values.shape[-3:-2]):
                values, observed = picture.part(group, piece)
                view = views[group][..., piece.rows, piece.columns]
                view[...] = np.where(observed, values, limits.to_pixels(content))
    warn_of_holes(filler.hole_count)
    if home is None:
        return answer
    return from_numpy(answer, *home, dtype_name(answer.dtype))


def _checked_out(out: Any, host: Values, home: Any) -> Values:
    if not isinstance(out, np.ndarray) or home is not None:
        raise TypeError(
            "out: expected a NumPy array, for an image that is one, "
            f"got {type(out).__name__} for {'a NumPy image' if home is None else home[0].__name__}"
        )
    if out.shape != host.shape or out.dtype != host.dtype:
        raise ValueError(
            f"out: expected shape {host.shape} and dtype {host.dtype}, got {out.shape} and {out.dtype}"
        )
    if not out.flags.writeable:
        raise ValueError("out: expected an array that may be written to")
    if np.may_share_memory(out, host):
        raise ValueError("out: expected memory of its own, got that of image")
    return out


def checked_grid(height: int, width: int, tile: Any, overlap: Any) -> Grid:
    """Return the tiles that ``tile`` and ``overlap`` ask for; raise if they cannot be."""
    size = checked_whole("tile", tile, least=_SMALLEST_TILE)
    if overlap is None:
        overlap = min(size // 4, _WIDEST_OVERLAP)
    return Grid(height, width, size, checked_whole("overlap", overlap, least=0))


def checked_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return options of :func:`airnp.fit`, by default with total variation; raise for others.

    Neighbouring pixels of a picture resemble each other, so total variation stands beside AIR's graphs.
    """
    for name in options:
        if name not in _FOR_TILES:
            raise TypeError(
                f"{name}: not an option of inpaint; of airnp.fit's it has {', '.join(_FOR_TILES)}"
            )
    return {"regularizers": [*default_regularizers(), TotalVariation()], **options}


@dataclass(frozen=True)
class PixelLimits:
    """The dtype of filled pixels, and bounds within its range."""

    dtype: np.dtype[Any]
    limits: Bounds

    @classmethod
    def of(cls, dtype: np.dtype[Any], bounds: Any) -> PixelLimits:
        """Return the limits of an image's dtype: ``bounds``, or the range of the dtype."""
        whole = dtype.kind != "f"
        own: Any = np.iinfo(dtype) if whole else np.finfo(dtype)
        # The largest int64 is no float64, and the next larger float64 would overflow.
        least, most = float(own.min), float(own.max)
        most = most if most <= own.max else float(np.nextafter(most, 0))
        given = Bounds.of(bounds, whole)
        low, high = (-np.inf, np.inf) if given is None else (float(given.low), float(given.high))
        if (np.isfinite(low) and low < least) or (np.isfinite(high) and high > most):
            raise ValueError(f"bounds: expected numbers within the range of {dtype}, got {bounds!r}")
        limits = Bounds.of((max(low, least), min(high, most)), whole)
        assert limits is not None
        return cls(dtype, limits)

    def to_pixels(self, content: Values) -> Values:
        """Round and clip floating-point numbers to pixels."""
        if self.dtype.kind != "f":
            return np.asarray(self.limits.put_on(content)).astype(self.dtype)
        with np.errstate(over="ignore"):  # too large for the dtype is above the bounds, too
            return np.asarray(self.limits.put_on(content.astype(self.dtype)))
