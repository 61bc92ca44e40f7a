"""Pictures of any kind as grey values."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airnp._arrays import to_numpy
from airnp.masks._pillow import load_pillow

# ITU-R 601 luma in 16-bit fixed point, as Pillow's convert("L") has it. The weights sum to exactly 1, so
# white stays exactly 255; 0.299, 0.587, 0.114 would leave that to rounding.
_LUMA = np.array([19595, 38470, 7471]) / 65536


def grey_values(image: Any) -> NDArray[Any]:
    """Read a file, a Pillow image or an array as grey values, shape (h, w)."""
    if isinstance(image, str | os.PathLike):
        with load_pillow("from_image with a file").Image.open(image) as opened:
            return _grey_of_pillow(opened)
    # Told by its methods, so that arrays need no Pillow.
    if hasattr(image, "convert") and hasattr(image, "getbands"):
        return _grey_of_pillow(image)
    return _grey_of_array(to_numpy(image))


def _grey_of_pillow(image: Any) -> NDArray[Any]:
    # I, I;16 and F are grey already, on scales of their own that a conversion to bytes would clip.
    is_grey = image.mode == "F" or image.mode.startswith("I")
    return np.array(image if is_grey else image.convert("L"))


def _grey_of_array(pixels: NDArray[Any]) -> NDArray[Any]:
    if pixels.dtype.kind not in "buif":
        raise TypeError(
            f"image: expected a path, a PIL image or an array of real numbers, got dtype {pixels.dtype}"
        )
    is_colour = pixels.ndim == 3 and pixels.shape[-1] in (3, 4)
    if pixels.size == 0 or not (pixels.ndim == 2 or is_colour):
        raise ValueError(f"image: expected shape (h, w), (h, w, 3) or (h, w, 4), got {pixels.shape}")
    if pixels.dtype.kind == "b":
        pixels = pixels * np.uint8(255)
    if not is_colour:
        return pixels
    grey: NDArray[Any] = pixels[..., :3] @ _LUMA
    return (
        grey if pixels.dtype.kind == "f" else np.floor(grey + 0.5)
    )  # whole numbers stay whole, as in Pillow
