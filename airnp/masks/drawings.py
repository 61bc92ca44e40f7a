"""Masks from pictures and from text."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airnp._arrays import to_numpy
from airnp.images.formats import PILLOW_FORMATS, load_pillow
from airnp.masks.sampling import Mask, checked_between, checked_shape

_NEEDS_PILLOW = '{} needs Pillow: pip install "airnp[images]"'

# ITU-R 601 luma in 16-bit fixed point, as Pillow's convert("L") has it. The weights sum to exactly 1, so
# white stays exactly 255; 0.299, 0.587, 0.114 would leave that to rounding.
_LUMA = np.array([19595, 38470, 7471]) / 65536


def from_image(image: Any, shape: Sequence[int] | None = None, *, observed: float = 255) -> Mask:
    """Read a mask from a picture: texture, scratches, anything drawn dark on white.

    Parameters
    ----------
    image : str, path, PIL image or array
        A file, a Pillow image, or an array ``(h, w)`` of grey values or ``(h, w, 3 or 4)`` of colours, which
        become grey as Pillow does it (ITU-R 601; an alpha channel is ignored). A bool array or a one-bit
        image counts True as white, 255. Pillow is needed only for files.
    shape : sequence of int, optional
        ``(m, n)`` or ``(..., m, n)``: resize to m×n, each entry taking the value of the nearest pixel, and
        repeat over a stack. The picture's own size if left out.
    observed : float, default 255
        Threshold: an entry is observed if its grey value is at least this. The default asks for pure white,
        as the paper's texture mask does.

    Returns
    -------
    ndarray of bool, shape (..., m, n)
        True = observed.

    Raises
    ------
    ImportError
        If `image` is a file and Pillow is not installed (``pip install "airnp[images]"``).
    ValueError
        If the array is no image, or if no pixel is observed: usually a threshold on another scale.

    Examples
    --------
    >>> import numpy as np
    >>> from airnp import masks
    >>> picture = np.array([[255, 10], [254, 255]], dtype=np.uint8)
    >>> masks.from_image(picture).astype(int)
    array([[1, 0],
           [0, 1]])
    >>> masks.from_image(picture, (2, 4), observed=128).astype(int)
    array([[1, 1, 0, 0],
           [1, 1, 1, 1]])
    """
    grey = _grey_values(image)
    mask: Mask = grey >= checked_between("observed", observed, "a grey value")
    if not mask.any():
        raise ValueError(
            f"observed: expected a grey value that the image reaches, got {observed!r}; "
            f"the image lies between {grey.min()} and {grey.max()}"
        )
    if shape is None:
        return mask
    shape = checked_shape(shape)
    nearest_rows, nearest_columns = (
        _nearest(size, length) for size, length in zip(shape[-2:], grey.shape, strict=True)
    )
    return np.broadcast_to(mask[np.ix_(nearest_rows, nearest_columns)], shape).copy()


def _nearest(size: int, length: int) -> NDArray[np.intp]:
    """Return for each of `size` entries the pixel, of `length`, under its centre."""
    return (2 * np.arange(size) + 1) * length // (2 * size)


def text(shape: Sequence[int], message: str, *, size: float | None = None) -> Mask:
    """Write a text over the matrix: entries under letters are missing.

    The message is repeated, in lines from the top left, until the matrix is full. A word longer than a line
    is cut off at the edge. Needs Pillow (``pip install "airnp[images]"``).

    Parameters
    ----------
    shape : sequence of int
        ``(m, n)`` or ``(..., m, n)``.
    message : str
        The words, separated by white space.
    size : float, optional
        Height of the letters in entries, at least 1. A tenth of the shorter side if left out, but at least 8,
        the smallest legible size.

    Returns
    -------
    ndarray of bool, shape (..., m, n)
        True = observed; every matrix of a stack has the same mask.

    Examples
    --------
    >>> from airnp import masks
    >>> mask = masks.text((240, 240), "matrix completion")
    >>> bool(0.05 < 1 - mask.mean() < 0.4)
    True
    """
    shape = checked_shape(shape)
    m, n = shape[-2:]
    if not isinstance(message, str):
        raise TypeError(f"message: expected a str, got {message!r}")
    words = message.split()
    if not words:
        raise ValueError(f"message: expected at least one word, got {message!r}")
    if size is None:
        size = max(8, min(m, n) / 10)
    size = checked_between("size", size, "a finite number of at least 1", low=1)

    pillow = load_pillow(_NEEDS_PILLOW.format("text"))
    font = pillow.ImageFont.load_default(size)
    canvas = pillow.Image.new("1", (n, m))  # one bit per entry: no half-covered entries from smoothing
    draw = pillow.ImageDraw.Draw(canvas)
    lines = _endless_lines([(word, font.getlength(f" {word}")) for word in words], n)
    for top in range(0, m, math.ceil(1.2 * size)):
        draw.text((0, top), next(lines), fill=1, font=font)
    return np.broadcast_to(~np.asarray(canvas), shape).copy()


def _endless_lines(words: Sequence[tuple[str, float]], width: int) -> Iterator[str]:
    """Yield lines no wider than `width` of repeated (word, length) pairs."""
    cycle = itertools.cycle(words)
    word, length = next(cycle)
    while True:
        line, used = [word], length
        for word, length in cycle:
            if used + length > width:
                break  # this word begins the next line
            line.append(word)
            used += length
        yield " ".join(line)


def _grey_values(image: Any) -> NDArray[Any]:
    """Read a file, a Pillow image or an array as grey values, shape (h, w)."""
    if isinstance(image, str | os.PathLike):
        with load_pillow(_NEEDS_PILLOW.format("from_image with a file")).Image.open(
            image, formats=PILLOW_FORMATS
        ) as opened:
            return _grey_of_pillow(opened)
    # Recognised by its methods, so that arrays need no Pillow.
    if hasattr(image, "convert") and hasattr(image, "getbands"):
        return _grey_of_pillow(image)
    return _grey_of_array(to_numpy(image))


def _grey_of_pillow(image: Any) -> NDArray[Any]:
    # I, I;16 and F are grey already; a conversion to bytes would clip their larger scales.
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
    # Whole numbers stay whole, as in Pillow.
    return grey if pixels.dtype.kind == "f" else np.floor(grey + 0.5)
