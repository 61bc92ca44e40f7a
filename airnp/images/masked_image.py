"""An image with its mask: which axes are time, channels, height and width, and what is observed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import array_api_compat as compat
import numpy as np
import numpy.typing as npt

from airnp._arrays import dtype_name, to_numpy
from airnp._checks import checked_whole

Values = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]

Place = tuple[int, ...]
"""The index of a picture or video in a stack."""

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
    if compat.is_dask_array(image):
        raise TypeError("image: expected an array in memory, got one of Dask; airnp.dask.inpaint takes it")
    if isinstance(image, np.ma.MaskedArray):
        check_kind(image.dtype)
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
    """An image and its mask, both arranged as (stack…, frames, channels, H, W)."""

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

    def pictures(self) -> Iterator[Place]:
        """Yield the indices of the pictures or videos of the stack, each of which is filled by itself."""
        return iter(np.ndindex(self.values.shape[:-4]))

    def observed(self, place: Place) -> Bools:
        """Return which pixels (frames, channels, H, W) are observed; raise for a mask with other values."""
        if self.mask is None:
            if self.unmasked is not None:
                return np.ascontiguousarray(self.unmasked[place])
            return np.asarray(~np.isnan(self.values[place]))
        marks = np.asarray(self.mask[place])
        observed = read_marks(marks)
        return np.ascontiguousarray(observed if self.unmasked is None else observed & self.unmasked[place])

    def check(self, place: Place, observed: Bools) -> None:
        """Raise if an observed pixel is NaN or infinite, or if a channel has none at all."""
        values = self.values[place]
        if values.dtype.kind == "f":
            for frame in range(values.shape[0]):
                bad = observed[frame] & ~np.isfinite(values[frame])
                if bad.any():
                    inside = frame, *np.argwhere(bad)[0].tolist()
                    raise ValueError(
                        "image: observed pixels are NaN or infinite, first at "
                        f"{self.layout.place(place, inside)}; mark them as missing in mask"
                    )
        if not observed.any():
            raise nothing_observed_error(place)


def read_marks(marks: Values) -> Bools:
    """Return where a mask of booleans, of 0 and 1, or of 0 and 255 says that a pixel is observed."""
    if marks.dtype.kind == "b":
        return marks
    observed: Bools = (marks == 1) | (marks == 255)
    odd = ~observed & (marks != 0)
    if odd.any():
        raise ValueError(f"mask: expected True/False, 1/0 or 255/0 (0 = missing), found {marks[odd].flat[0]}")
    if (marks == 1).any() and (marks == 255).any():
        raise ValueError("mask: expected either 1 or 255 for observed pixels, found both")
    return observed


@dataclass(frozen=True)
class Layout:
    """Which axes of an image are time, channels, height and width.

    Attributes
    ----------
    axes : tuple of int
        The image's axes in the order stack, time, channels, height, width.
    has_time, has_channels : bool
        Whether the image has these axes.
    """

    axes: tuple[int, ...]
    has_time: bool
    has_channels: bool

    @classmethod
    def of(cls, shape: tuple[int, ...], channel_axis: Any, time_axis: Any = None) -> Layout:
        """Return the layout of an image of this shape."""
        channel = _checked_channel_axis(shape, channel_axis)
        time = _checked_axis("time_axis", shape, time_axis)
        if time is not None and time == channel:
            raise ValueError(f"time_axis: expected another axis than channel_axis, got {time} for both")
        others = [place for place in range(len(shape)) if place not in (channel, time)]
        if len(others) < 2:
            raise ValueError(f"image: expected two axes or more beside channels and time, got shape {shape}")
        if 0 in shape:
            raise ValueError(f"image: expected at least one pixel, got shape {shape}")
        named = [axis for axis in (time, channel) if axis is not None]
        return cls((*others[:-2], *named, *others[-2:]), time is not None, channel is not None)

    def arrange(self, array: Values) -> Values:
        """Return an array of the image's shape as a view (stack…, frames, channels, H, W)."""
        return self._with_all_axes(np.transpose(array, self.axes))

    def _with_all_axes(self, ordered: Values) -> Values:
        if not self.has_channels:
            ordered = ordered[..., np.newaxis, :, :]
        return ordered if self.has_time else ordered[..., np.newaxis, :, :, :]

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
        return self._with_all_axes(np.broadcast_to(mask, ordered))

    def place(self, picture: Place, inside: tuple[int, ...]) -> tuple[int, ...]:
        """Return the index, in the original image, of a pixel (frame, channel, row, column) of a picture."""
        frame, channel, *pixel = inside
        named = ([frame] if self.has_time else []) + ([channel] if self.has_channels else [])
        ordered = (*picture, *named, *pixel)
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
    return _checked_axis("channel_axis", shape, channel_axis)


def _checked_axis(name: str, shape: tuple[int, ...], axis: Any) -> int | None:
    """Return an axis as a number of at least 0, or None."""
    if axis is None:
        return None
    axis = checked_whole(name, axis, least=-len(shape))
    if axis >= len(shape):
        raise ValueError(f"{name}: expected an axis of an image of shape {shape}, got {axis}")
    return int(axis % len(shape))


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
        raise TypeError(f"mask: expected booleans, 0 and 1, or 0 and 255, got dtype {mask.dtype}")


def nothing_observed_error(place: Place) -> ValueError:
    """Return the error for a picture without any observed pixel."""
    where = f" in picture {place} of the stack" if place else ""
    return ValueError(f"mask: no pixel is observed{where}")
