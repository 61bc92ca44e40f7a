"""An image with its mask: which axes are which, checked, and read part by part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import array_api_compat as compat
import numpy as np

from airnp._arrays import dtype_name, to_numpy
from airnp._checks import checked_whole
from airnp.images.tiles import Bools, Grid, Tile, Values

_KINDS = frozenset(
    [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
    + [f"float{bits}" for bits in (16, 32, 64)]
)
"""The dtypes of images."""


def check_kind(dtype: Any) -> None:
    """Raise unless an image may have this dtype, of any library."""
    name = dtype_name(dtype)
    if name not in _KINDS:
        raise TypeError(f"image: expected integers, float16, float32 or float64, got dtype {name}")


def check_gaps_are_told(dtype: np.dtype[Any], mask: Any) -> None:
    """Raise unless a mask, or NaN in an image of this dtype, can say what is missing."""
    if mask is None and dtype.kind != "f":
        raise ValueError(f"mask: expected one, because an image of {dtype} has no NaN to mark missing pixels")
    if mask is not None and mask.dtype.kind not in "biuf":
        raise TypeError(f"mask: expected booleans or 0 and 1, got dtype {mask.dtype}")


def nothing_observed(group: Group) -> ValueError:
    """Return the error for a picture or channel that is all gap."""
    where = f" in picture or channel {group} of the stack" if group else ""
    return ValueError(f"mask: no pixel is observed{where}")


def read_image(image: Any) -> tuple[Values, Bools | None, tuple[Any, Any] | None]:
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
    check_kind(image.dtype)
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
        mask = None if mask is None else to_numpy(mask)
        check_gaps_are_told(host.dtype, shown if mask is None else mask)
        mask = None if mask is None else layout.arranged_mask(mask, host.shape)
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
                raise nothing_observed(group)
        return count


Group = tuple[int, ...]
"""The index of what is filled as one problem: a picture of the stack, or one channel of it."""

_MOST_CHANNELS = 4
"""Entries of a last axis that is taken for channels, at most: three colours and alpha."""


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
