"""Which axes of an image are its stack, channels, height and width, and which channels are one problem."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from airnp._checks import checked_whole
from airnp.images.tiles import Values

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
