"""``airnp.inpaint``: fill the holes of pictures, in colour or grey, of videos and of spectral cubes."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import array_api_compat as compat
import numpy as np
import numpy.typing as npt

from airnp._arrays import dtype_name, from_numpy, natural_float, to_numpy
from airnp._checks import checked_whole
from airnp.bounds import Bounds
from airnp.fitting import fit
from airnp.images.tiles import Grid, Tile, blended, square_sums, stretched, widened
from airnp.inputs import EmptyLineWarning
from airnp.running.progress import CountBar

Bools = npt.NDArray[np.bool_]
Values = npt.NDArray[Any]
Group = tuple[int, ...]

_MOST_CHANNELS = 4
"""Entries of a last axis that is taken for channels, at most: three colours and alpha."""

KINDS = frozenset(
    [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
    + [f"float{bits}" for bits in (16, 32, 64)]
)

_WIDEST_OVERLAP = 64
_SMALLEST_TILE = 16

_NOT_FOR_TILES = (
    *("Y", "mask", "operator", "shape", "weights", "truth", "integers"),
    *("progress", "checkpoint", "checkpoint_every"),
    *("form", "offsets", "mask_factor", "batch_size"),
)
"""What :func:`airnp.fit` has for one matrix, and several tiles cannot share, or for sparse matrices alone."""

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
        ``threads``, ``engine``, ….

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
        When holes cut through tiles. What is far from observed pixels there is filled from a larger region
        around the tile, at a lower resolution.
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
    >>> from airnp.demo import scene
    >>> grey = scene(32)
    >>> picture = np.rint(255 * np.stack([grey, grey**2, 1 - grey], axis=-1)).astype(np.uint8)
    >>> mask = masks.random((32, 32), missing=0.3, seed=0)
    >>> filled = inpaint(picture, mask, max_iter=6000, seed=0)
    >>> filled.shape, filled.dtype, bool((filled[mask] == picture[mask]).all())
    ((32, 32, 3), dtype('uint8'), True)
    >>> bool(np.abs(filled - 1.0 * picture)[~mask].mean() < 20)
    True
    """
    host, shown, home = _read_image(image)
    layout = Layout.of(host.shape, channel_axis, channels)
    picture = Picture.of(host, shown, mask, layout)
    grid = checked_grid(picture.values.shape[-2], picture.values.shape[-1], tile, overlap)
    kind = PixelKind.of(host.dtype, bounds)
    answer = np.empty(host.shape, host.dtype) if out is None else _checked_out(out, host, home)
    if xp is None and home is not None:
        xp, device = home[0], home[1] if device is None else device
    if seed is None:
        seed = int(np.random.SeedSequence().generate_state(1)[0])
    filler = Filler(picture, grid, {**checked_options(options), "xp": xp, "device": device, "seed": seed})

    views = layout.arranged(answer)
    with CountBar(picture.survey(grid), "tile", progress) as bar:
        for group in picture.groups():

            def contents(tile: Tile, group: Group = group) -> Values | None:
                found = filler.contents(group, tile)
                if found is not None:
                    bar.advance()
                return found

            for piece, content in blended(grid, contents, leading=picture.values.shape[-3:-2]):
                values, observed = picture.part(group, piece)
                view = views[group][..., piece.rows, piece.columns]
                view[...] = np.where(observed, values, kind.of_pixels(content))
    filler.warn()
    if home is None:
        return answer
    return from_numpy(answer, *home, dtype_name(answer.dtype))


# --- what lies where ---


@dataclass(frozen=True)
class Layout:
    """Where an image has its channels, and whether they are filled together.

    Attributes
    ----------
    axes : tuple of int
        The image's axes in the order stack, channels, height, width.
    joint : bool
        Whether all channels of a picture are one problem.
    has_channels : bool
    """

    axes: tuple[int, ...]
    joint: bool
    has_channels: bool

    @classmethod
    def of(cls, shape: tuple[int, ...], channel_axis: Any, channels: Any) -> Layout:
        """Return the layout of an image of this shape."""
        if channels not in ("apart", "together"):
            raise ValueError(f"channels: expected 'apart' or 'together', got {channels!r}")
        axis = _checked_channel_axis(shape, channel_axis)
        others = [place for place in range(len(shape)) if place != axis]
        if len(others) < 2:
            raise ValueError(f"image: expected two axes or more beside channels, got shape {shape}")
        if 0 in shape:
            raise ValueError(f"image: expected at least one pixel, got shape {shape}")
        if axis is None:
            if channels == "together":
                raise ValueError("channels: 'together' needs channels, but channel_axis is None")
            return cls(tuple(others), False, False)
        return cls((*others[:-2], axis, *others[-2:]), channels == "together", True)

    def arranged(self, array: Values) -> Values:
        """Return a view of an array of the image's shape: (groups…, channels of a group, H, W)."""
        ordered = np.transpose(array, self.axes)
        return ordered if self.joint else ordered[..., np.newaxis, :, :]

    def arranged_mask(self, mask: Values, shape: tuple[int, ...]) -> Values:
        """Return a view of a mask of any of the shapes that it may have, as large as an arranged image."""
        ordered = tuple(shape[axis] for axis in self.axes)
        own = [tuple(shape), ordered[-2:]]
        if self.has_channels:
            own.append((*ordered[:-3], *ordered[-2:]))
        if mask.shape not in own:
            allowed = " or ".join(map(str, dict.fromkeys(own)))
            raise ValueError(f"mask: expected shape {allowed}, got {mask.shape}")
        if mask.shape == tuple(shape):
            return self.arranged(mask)
        if mask.ndim > 2:
            mask = mask[..., np.newaxis, :, :]
        whole = np.broadcast_to(mask, ordered)
        return whole if self.joint else whole[..., np.newaxis, :, :]

    def place(self, group: Group, inside: tuple[int, ...]) -> tuple[int, ...]:
        """Return the image's own index of a pixel (channel of the group, row, column) of a group."""
        ordered = (*group, *(inside if self.joint else inside[1:]))
        return tuple(int(ordered[self.axes.index(axis)]) for axis in range(len(self.axes)))


def _checked_channel_axis(shape: tuple[int, ...], channel_axis: Any) -> int | None:
    """Return which axis holds the channels, as a number from 0, or None."""
    if channel_axis is None:
        return None
    if isinstance(channel_axis, str):
        if channel_axis != "auto":
            raise ValueError(f"channel_axis: expected a whole number, None or 'auto', got {channel_axis!r}")
        return _guessed_channel_axis(shape)
    axis = checked_whole("channel_axis", channel_axis, least=-len(shape))
    if axis >= len(shape):
        raise ValueError(f"channel_axis: expected an axis of an image of shape {shape}, got {axis}")
    return axis % len(shape)


def _guessed_channel_axis(shape: tuple[int, ...]) -> int | None:
    if len(shape) <= 2:
        return None
    # (3, H, 4) may be three pictures four pixels wide, or two colours and alpha: better ask.
    if shape[-1] <= _MOST_CHANNELS < min(shape[-3:-1]):
        return len(shape) - 1
    raise ValueError(
        f"channel_axis: cannot tell from the shape {shape} which axis holds channels; expected its number, "
        "or None for a stack (…, H, W) without channels"
    )


# --- what came in ---


def _read_image(image: Any) -> tuple[Values, Bools | None, tuple[Any, Any] | None]:
    """Return an image as NumPy has it, what ``numpy.ma`` shows of it, and another library's place for it."""
    home = shown = None
    if isinstance(image, np.ma.MaskedArray):
        shown, image = ~np.ma.getmaskarray(image), image.data
    elif compat.is_array_api_obj(image) and not compat.is_numpy_array(image):
        home = compat.array_namespace(image), compat.device(image)
    else:
        try:
            image = np.asarray(image)
        except ValueError as error:
            raise ValueError(f"image: expected nested lists of equal lengths ({error})") from None
    kind = dtype_name(image.dtype)
    if kind not in KINDS:
        raise TypeError(f"image: expected integers, float16, float32 or float64, got dtype {kind}")
    return to_numpy(image), shown, home


@dataclass(frozen=True)
class Picture:
    """An image and its mask, arranged as (groups…, channels of a group, H, W); read part by part."""

    values: Values
    mask: Values | None
    shown: Bools | None
    layout: Layout

    @classmethod
    def of(cls, host: Values, shown: Bools | None, mask: Any, layout: Layout) -> Picture:
        """Return a picture with its axes in order; ``shown`` is where a masked array is not masked."""
        if mask is None and shown is None and host.dtype.kind != "f":
            raise ValueError(
                f"mask: expected one, because an image of {host.dtype} has no NaN to mark missing pixels"
            )
        if mask is not None:
            mask = to_numpy(mask)
            if mask.dtype.kind not in "biuf":
                raise TypeError(f"mask: expected booleans or 0 and 1, got dtype {mask.dtype}")
            mask = layout.arranged_mask(mask, host.shape)
        return cls(layout.arranged(host), mask, None if shown is None else layout.arranged(shown), layout)

    def groups(self) -> Iterator[Group]:
        """Yield the indices of what is filled as one problem: a picture, or one channel of it."""
        return iter(np.ndindex(self.values.shape[:-3]))

    def part(self, group: Group, tile: Tile) -> tuple[Values, Bools]:
        """Return pixels (channels of the group, rows, columns), and which of them are observed."""
        where: Any = (*group, slice(None), tile.rows, tile.columns)
        values = np.asarray(self.values[where])
        if self.mask is None:
            return values, ~np.isnan(values) if self.shown is None else np.asarray(self.shown[where])
        marks = np.asarray(self.mask[where])
        observed = marks == 1
        if marks.dtype.kind != "b" and not bool((observed | (marks == 0)).all()):
            odd = marks[~observed & (marks != 0)][0]
            raise ValueError(f"mask: expected True/False or 1/0 (1 = observed), found {odd}")
        return values, observed if self.shown is None else observed & self.shown[where]

    def survey(self, grid: Grid) -> int:
        """Look at everything once; return how many tiles have missing pixels."""
        count = 0
        for group in self.groups():
            seen = False
            for tile in grid:
                values, observed = self.part(group, tile)
                bad = observed & ~np.isfinite(values)
                if bad.any():
                    channel, row, column = np.argwhere(bad)[0].tolist()
                    inside = channel, tile.rows.start + row, tile.columns.start + column
                    raise ValueError(
                        "image: observed pixels are NaN or infinite, first at "
                        f"{self.layout.place(group, inside)}; mark them as missing in mask"
                    )
                seen = seen or bool(observed.any())
                count += not observed.all()
            if not seen:
                where = f" in picture or channel {group} of the stack" if group else ""
                raise ValueError(f"mask: no pixel is observed{where}")
        return count


# --- options ---


def checked_grid(height: int, width: int, tile: Any, overlap: Any) -> Grid:
    """Return the tiles that ``tile`` and ``overlap`` ask for, or raise."""
    size = checked_whole("tile", tile, least=_SMALLEST_TILE)
    if overlap is None:
        overlap = min(size // 4, _WIDEST_OVERLAP)
    return Grid(height, width, size, checked_whole("overlap", overlap, least=0))


def checked_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return options of :func:`airnp.fit` that tiles can share, or raise for others."""
    for name in options:
        if name not in _FOR_TILES:
            raise TypeError(
                f"{name}: not an option of inpaint; of airnp.fit's it has {', '.join(_FOR_TILES)}"
            )
    return options


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


@dataclass(frozen=True)
class PixelKind:
    """What a filled pixel may be: a dtype and bounds within its range."""

    dtype: np.dtype[Any]
    limits: Bounds

    @classmethod
    def of(cls, dtype: np.dtype[Any], bounds: Any) -> PixelKind:
        """Return the kind of an image's dtype, within ``bounds`` or else its own range."""
        whole = dtype.kind != "f"
        own: Any = np.iinfo(dtype) if whole else np.finfo(dtype)
        # The largest int64 is no float64; the next one up would overflow.
        least, most = float(own.min), float(own.max)
        most = most if most <= own.max else float(np.nextafter(most, 0))
        given = Bounds.of(bounds, whole)
        low, high = (-np.inf, np.inf) if given is None else (float(given.low), float(given.high))
        if (np.isfinite(low) and low < least) or (np.isfinite(high) and high > most):
            raise ValueError(f"bounds: expected numbers within the range of {dtype}, got {bounds!r}")
        limits = Bounds.of((max(low, least), min(high, most)), whole)
        assert limits is not None
        return cls(dtype, limits)

    def of_pixels(self, content: Values) -> Values:
        """Return floating-point numbers as pixels."""
        if self.dtype.kind != "f":
            return np.asarray(self.limits.put_on(content)).astype(self.dtype)
        with np.errstate(over="ignore"):  # what is too large for the dtype is above the bounds
            return np.asarray(self.limits.put_on(content.astype(self.dtype)))


# --- filling ---


class Filler:
    """Fills tiles, by a fit each."""

    def __init__(self, picture: Picture, grid: Grid, options: dict[str, Any]) -> None:
        self._picture, self._grid, self._options = picture, grid, options
        self._in_holes = 0

    def contents(self, group: Group, tile: Tile) -> Values | None:
        """Return pixels (channels of the group, rows, columns) to fill in, None where nothing is missing."""
        values, observed = self._picture.part(group, tile)
        if observed.all():
            return None
        if len(self._grid) > 1 and has_empty_lines(observed):
            values, observed = self.with_surroundings(group, tile, values, observed)
        return self.completed(values, observed)

    def warn(self) -> None:
        """Say how many tiles have holes that no observed pixel is near."""
        if self._in_holes:
            warnings.warn(
                f"tiles with rows or columns without any observed pixel: {self._in_holes}; what is far from "
                "observed pixels there is filled from a larger region, at a lower resolution",
                UserWarning,
                stacklevel=3,
            )

    def completed(self, values: Values, observed: Bools) -> Values:
        """Return a group of channels without gaps, fitted side by side as one matrix."""
        if observed.all():
            return values
        count, height, width = values.shape
        matrix, mask = (np.swapaxes(part, 0, 1).reshape(height, -1) for part in (values, observed))
        with warnings.catch_warnings():
            if len(self._grid) > 1:
                # A row of a tile may well be empty where the picture's is not.
                warnings.simplefilter("ignore", EmptyLineWarning)
            result = fit(matrix, mask, **self._options)
        if result.stop_reason == "interrupted":
            raise KeyboardInterrupt
        return np.swapaxes(to_numpy(result.matrix).reshape(height, count, width), 0, 1)

    def with_surroundings(
        self, group: Group, tile: Tile, values: Values, observed: Bools
    ) -> tuple[Values, Bools]:
        """Return the pixels of a tile, and which are known once those far from any observed one are filled.

        They come from the smallest region around the tile that has no empty row or column, shrunk to about
        the tile's size: so far from what is observed there is no detail to find, and memory stays what it is
        for a tile.
        """
        region, factor, shrunk, seen = self.surroundings(group, tile)
        squares = [
            (np.arange(part.start, part.stop) - whole.start) // factor
            for part, whole in ((tile.rows, region.rows), (tile.columns, region.columns))
        ]
        far = ~observed & ~seen[:, squares[0][:, np.newaxis], squares[1]]
        if not observed.any():
            far = ~observed  # what is near lies in other tiles
        if not far.any():
            return values, observed
        self._in_holes += 1
        filled = np.where(seen, shrunk, self.completed(shrunk, seen))
        filled = stretched(filled, region.rows, tile.rows, factor, axis=-2)
        filled = stretched(filled, region.columns, tile.columns, factor, axis=-1)
        return np.where(far, filled, values).astype(shrunk.dtype), observed | far

    def surroundings(self, group: Group, tile: Tile) -> tuple[Tile, int, Values, Bools]:
        """Return a region around a tile, how much it is shrunk, and its observed pixels at that size."""
        factor = 1
        while True:
            factor *= 2
            region = Tile(
                widened(tile.rows, factor, self._grid.height),
                widened(tile.columns, factor, self._grid.width),
            )
            shrunk, seen = self._shrunk(group, region, factor)
            is_all = region == Tile(slice(0, self._grid.height), slice(0, self._grid.width))
            if is_all or not has_empty_lines(seen):
                return region, factor, shrunk, seen

    def _shrunk(self, group: Group, region: Tile, factor: int) -> tuple[Values, Bools]:
        """Return the means of the observed pixels in squares of a region, and where there are any."""
        sums, counts = [], []
        # Row by row of squares, because the region may be as large as the picture.
        for top in range(region.rows.start, region.rows.stop, factor):
            rows = slice(top, min(top + factor, region.rows.stop))
            values, observed = self._picture.part(group, Tile(rows, region.columns))
            sums.append(square_sums(np.where(observed, values, 0), factor))
            counts.append(square_sums(observed, factor))
        count = np.concatenate(counts, axis=-2)
        means = np.concatenate(sums, axis=-2) / np.maximum(count, 1)
        return means.astype(natural_float(self._picture.values.dtype)), count > 0


def has_empty_lines(observed: Bools) -> bool:
    """Whether the matrix that is fitted has a row or column without any observed entry."""
    rows, columns = observed.any(axis=(0, 2)), observed.any(axis=1)
    return not (rows.all() and columns.all())
