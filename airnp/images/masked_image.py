"""An image with its mask: which axes are channels, height and width, and how tiles of it are read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import array_api_compat as compat
import numpy as np

from airnp._arrays import dtype_name, to_numpy
from airnp._checks import checked_whole
from airnp.images.tiles import Bools, Grid, Tile, Values

Group = tuple[int, ...]
"""The index of what is filled as one problem: a picture of the stack, or one channel of it."""

_KINDS = frozenset(
    [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
    + [f"float{bits}" for bits in (16, 32, 64)]
)
"""The dtypes that an image may have."""

_MOST_CHANNELS = 4
"""Longest last axis that is taken for channels: three colours and alpha."""


def read_image(image: Any) -> tuple[Values, Bools | None, tuple[Any, Any] | None]:
    """Return an image as a NumPy array, where ``numpy.ma`` does not mask it, and its namespace and device.

    The second is None unless the image is a masked array, the third unless it is of another library.
    """
    home = unmasked = None
    if isinstance(image, np.ma.MaskedArray):
        unmasked, image = ~np.ma.getmaskarray(image), image.data
    elif compat.is_array_api_obj(image) and not compat.is_numpy_array(image):
        home = compat.array_namespace(image), compat.device(image)
    else:
        try:
            image = np.asarray(image)
        except ValueError as error:
            raise ValueError(f"image: expected nested lists of equal lengths ({error})") from None
    check_kind(image.dtype)
    return to_numpy(image), unmasked, home


@dataclass(frozen=True)
class MaskedImage:
    """An image and its mask, both arranged as (groups…, channels of a group, H, W)."""

    values: Values
    mask: Values | None
    unmasked: Bools | None
    layout: Layout

    @classmethod
    def of(cls, host: Values, unmasked: Bools | None, mask: Any, layout: Layout) -> MaskedImage:
        """Arrange an image and its mask; ``unmasked`` is where a masked array is not masked."""
        mask = None if mask is None else to_numpy(mask)
        check_mask(host.dtype, unmasked if mask is None else mask)
        mask = None if mask is None else layout.arrange_mask(mask, host.shape)
        return cls(layout.arrange(host), mask, None if unmasked is None else layout.arrange(unmasked), layout)

    def groups(self) -> Iterator[Group]:
        """Yield the indices of the groups, each of which is filled as one problem."""
        return iter(np.ndindex(self.values.shape[:-3]))

    def part(self, group: Group, tile: Tile) -> tuple[Values, Bools]:
        """Return pixels (channels of the group, rows, columns), and which of them are observed."""
        where: Any = (*group, slice(None), tile.rows, tile.columns)
        values = np.asarray(self.values[where])
        if self.mask is None:
            return values, ~np.isnan(values) if self.unmasked is None else np.asarray(self.unmasked[where])
        marks = np.asarray(self.mask[where])
        observed = marks == 1
        if marks.dtype.kind != "b" and not bool((observed | (marks == 0)).all()):
            odd = marks[~observed & (marks != 0)][0]
            raise ValueError(f"mask: expected True/False or 1/0 (1 = observed), found {odd}")
        return values, observed if self.unmasked is None else observed & self.unmasked[where]

    def survey(self, grid: Grid) -> int:
        """Check every pixel once; return how many tiles have missing ones."""
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
                raise nothing_observed_error(group)
        return count


@dataclass(frozen=True)
class Layout:
    """Which axes of an image are its channels, height and width, and whether channels are filled together.

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

    def arrange(self, array: Values) -> Values:
        """Return an array of the image's shape as a view (groups…, channels of a group, H, W)."""
        ordered = np.transpose(array, self.axes)
        return ordered if self.joint else ordered[..., np.newaxis, :, :]

    def arrange_mask(self, mask: Values, shape: tuple[int, ...]) -> Values:
        """Return a mask of any allowed shape as a view of the shape of the arranged image."""
        ordered = tuple(shape[axis] for axis in self.axes)
        own = [tuple(shape), ordered[-2:]]
        if self.has_channels:
            own.append((*ordered[:-3], *ordered[-2:]))
        if mask.shape not in own:
            allowed = " or ".join(map(str, dict.fromkeys(own)))
            raise ValueError(f"mask: expected shape {allowed}, got {mask.shape}")
        if mask.shape == tuple(shape):
            return self.arrange(mask)
        if mask.ndim > 2:
            mask = mask[..., np.newaxis, :, :]
        whole = np.broadcast_to(mask, ordered)
        return whole if self.joint else whole[..., np.newaxis, :, :]

    def place(self, group: Group, inside: tuple[int, ...]) -> tuple[int, ...]:
        """Return the index, in the original image, of a pixel (channel, row, column) of a group."""
        ordered = (*group, *(inside if self.joint else inside[1:]))
        return tuple(int(ordered[self.axes.index(axis)]) for axis in range(len(self.axes)))


def _checked_channel_axis(shape: tuple[int, ...], channel_axis: Any) -> int | None:
    """Return the axis of the channels as a number of at least 0, or None."""
    if channel_axis is None:
        return None
    if isinstance(channel_axis, str):
        if channel_axis != "auto":
            raise ValueError(f"channel_axis: expected a whole number, None or 'auto', got {channel_axis!r}")
        if len(shape) <= 2:
            return None
        # (3, H, 4) may be three pictures of width 4, or pixels of three colours and alpha: ask.
        if shape[-1] <= _MOST_CHANNELS < min(shape[-3:-1]):
            return len(shape) - 1
        raise ValueError(
            f"channel_axis: cannot tell from the shape {shape} which axis holds channels; expected its "
            "number, or None for a stack (…, H, W) without channels"
        )
    axis = checked_whole("channel_axis", channel_axis, least=-len(shape))
    if axis >= len(shape):
        raise ValueError(f"channel_axis: expected an axis of an image of shape {shape}, got {axis}")
    return axis % len(shape)


def check_kind(dtype: Any) -> None:
    """Raise TypeError unless an image may have this dtype, of any library."""
    name = dtype_name(dtype)
    if name not in _KINDS:
        raise TypeError(f"image: expected integers, float16, float32 or float64, got dtype {name}")


def check_mask(dtype: np.dtype[Any], mask: Any) -> None:
    """Raise if there is no mask and the dtype has no NaN, or if the mask's dtype is no mask's."""
    if mask is None and dtype.kind != "f":
        raise ValueError(f"mask: expected one, because an image of {dtype} has no NaN to mark missing pixels")
    if mask is not None and mask.dtype.kind not in "biuf":
        raise TypeError(f"mask: expected booleans or 0 and 1, got dtype {mask.dtype}")


def nothing_observed_error(group: Group) -> ValueError:
    """Return the error for a picture or channel without any observed pixel."""
    where = f" in picture or channel {group} of the stack" if group else ""
    return ValueError(f"mask: no pixel is observed{where}")
