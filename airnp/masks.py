"""Masks that say which entries are observed: NumPy bool arrays, True = observed.

The patterns of the paper's experiments (:func:`random`, :func:`patch` and, through :func:`from_image`,
texture) and others that occur in practice. A shape ``(m, n)`` gives one mask, ``(..., m, n)`` a stack of
them: the random patterns are drawn independently for each problem, the others repeated.
"""

from __future__ import annotations

import itertools
import math
import operator
import os
from collections.abc import Iterator, Sequence
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airnp._arrays import to_numpy

__all__ = ["columns", "from_image", "patch", "random", "rows", "scratches", "text"]

Mask = NDArray[np.bool_]
Box = tuple[int, int, int, int]
Seed = int | np.random.SeedSequence | np.random.Generator | None

_PAPER_SIDE = 240
_PAPER_BOXES: tuple[Box, ...] = ((70, 100, 150, 190), (200, 230, 200, 230))
_FOUR_BOUNDS = "boxes: expected four int each, (row_start, row_stop, col_start, col_stop)"

# ITU-R 601 luma in 16-bit fixed point, as Pillow's convert("L") has it. The weights sum to exactly 1, so
# white stays exactly 255; 0.299, 0.587, 0.114 would leave that to rounding.
_LUMA = np.array([19595, 38470, 7471]) / 65536


def random(shape: Sequence[int], missing: float = 0.3, *, seed: Seed = None) -> Mask:
    """Drop every entry independently with the same probability.

    Parameters
    ----------
    shape : sequence of int
        ``(m, n)`` or ``(..., m, n)``.
    missing : float, default 0.3
        Probability of dropping an entry, in [0, 1). The share actually dropped fluctuates around it.
    seed : int, SeedSequence, Generator or None
        Passed to :func:`numpy.random.default_rng`.

    Returns
    -------
    ndarray of bool, shape (..., m, n)
        True = observed.

    Examples
    --------
    >>> from airnp import masks
    >>> mask = masks.random((240, 240), 0.3, seed=0)
    >>> round(1 - float(mask.mean()), 2)
    0.3
    """
    return np.random.default_rng(seed).random(_checked_shape(shape)) >= _checked_share(missing)


def rows(shape: Sequence[int], missing: float = 0.1, *, seed: Seed = None) -> Mask:
    """Drop whole rows, chosen at random.

    Parameters
    ----------
    shape : sequence of int
        ``(m, n)`` or ``(..., m, n)``.
    missing : float, default 0.1
        Share of the rows to drop, in [0, 1): exactly ``round(missing * m)`` of them, but never all.
    seed : int, SeedSequence, Generator or None
        Passed to :func:`numpy.random.default_rng`.

    Returns
    -------
    ndarray of bool, shape (..., m, n)
        True = observed.

    Examples
    --------
    >>> from airnp import masks
    >>> mask = masks.rows((4, 3), 0.25, seed=0)
    >>> int((~mask).all(axis=1).sum())
    1
    """
    shape = _checked_shape(shape)
    kept = _kept_lines(shape[:-1], _checked_share(missing), seed)
    return np.repeat(kept[..., :, np.newaxis], shape[-1], axis=-1)


def columns(shape: Sequence[int], missing: float = 0.1, *, seed: Seed = None) -> Mask:
    """Drop whole columns, chosen at random.

    Parameters
    ----------
    shape : sequence of int
        ``(m, n)`` or ``(..., m, n)``.
    missing : float, default 0.1
        Share of the columns to drop, in [0, 1): exactly ``round(missing * n)`` of them, but never all.
    seed : int, SeedSequence, Generator or None
        Passed to :func:`numpy.random.default_rng`.

    Returns
    -------
    ndarray of bool, shape (..., m, n)
        True = observed.

    Examples
    --------
    >>> from airnp import masks
    >>> mask = masks.columns((3, 4), 0.25, seed=0)
    >>> int((~mask).all(axis=0).sum())
    1
    """
    *batch, m, n = _checked_shape(shape)
    kept = _kept_lines((*batch, n), _checked_share(missing), seed)
    return np.repeat(kept[..., np.newaxis, :], m, axis=-2)


def patch(shape: Sequence[int] = (240, 240), boxes: Sequence[Sequence[int]] | None = None) -> Mask:
    """Drop rectangles.

    Parameters
    ----------
    shape : sequence of int, default (240, 240)
        ``(m, n)`` or ``(..., m, n)``.
    boxes : sequence of (row_start, row_stop, col_start, col_stop), optional
        The rectangles, half open like slices. If left out, the paper's two, ``[70:100, 150:190]`` and
        ``[200:230, 200:230]`` of 240×240, scaled to `shape` and rounded outwards, so that neither vanishes.

    Returns
    -------
    ndarray of bool, shape (..., m, n)
        True = observed; every matrix of a stack has the same mask.

    Examples
    --------
    >>> from airnp import masks
    >>> int((~masks.patch()).sum())
    2100
    >>> masks.patch((2, 3), [(0, 1, 1, 3)]).astype(int)
    array([[1, 0, 0],
           [1, 1, 1]])
    """
    shape = _checked_shape(shape)
    m, n = shape[-2:]
    if boxes is None:
        checked = [(*_scaled(box[:2], m), *_scaled(box[2:], n)) for box in _PAPER_BOXES]
    else:
        checked = [_checked_box(box, m, n) for box in boxes]
    mask = np.ones(shape, dtype=bool)
    for row_start, row_stop, col_start, col_stop in checked:
        mask[..., row_start:row_stop, col_start:col_stop] = False
    return mask


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
    grey = _grey(image)
    mask: Mask = grey >= _checked_number("observed", observed, "a grey value")
    if not mask.any():
        raise ValueError(
            f"observed: expected a grey value that the image reaches, got {observed!r}; "
            f"the image lies between {grey.min()} and {grey.max()}"
        )
    if shape is None:
        return mask
    shape = _checked_shape(shape)
    nearest_rows, nearest_columns = (
        _nearest(size, length) for size, length in zip(shape[-2:], grey.shape, strict=True)
    )
    return _repeated(mask[np.ix_(nearest_rows, nearest_columns)], shape)


def scratches(shape: Sequence[int], count: int = 20, width: float = 3, *, seed: Seed = None) -> Mask:
    """Drop thin straight scratches between random points.

    An entry is missing if its centre is within ``width / 2`` of one of the segments, whose ends are uniform
    over the matrix.

    Parameters
    ----------
    shape : sequence of int
        ``(m, n)`` or ``(..., m, n)``.
    count : int, default 20
        Number of scratches in each matrix.
    width : float, default 3
        Their width in entries, at least 1: a thinner line could pass between the centres of the entries.
    seed : int, SeedSequence, Generator or None
        Passed to :func:`numpy.random.default_rng`.

    Returns
    -------
    ndarray of bool, shape (..., m, n)
        True = observed.

    Examples
    --------
    >>> from airnp import masks
    >>> mask = masks.scratches((240, 240), seed=0)
    >>> bool(0.05 < 1 - mask.mean() < 0.2)
    True
    """
    *batch, m, n = _checked_shape(shape)
    count = _checked_count(count)
    radius = _checked_number("width", width, "a finite number of at least 1", low=1) / 2

    # Entry (i, j) has its centre at (i, j), so the matrix reaches from -1/2 to m - 1/2 and n - 1/2.
    ends = np.random.default_rng(seed).uniform(-0.5, [m - 0.5, n - 0.5], size=(*batch, count, 2, 2))
    mask = np.ones((*batch, m, n), dtype=bool)
    for index in np.ndindex(*batch):
        for start, stop in ends[index]:
            _scratch(mask[index], start, stop, radius)
    return mask


def text(shape: Sequence[int], message: str, *, size: float | None = None) -> Mask:
    """Write a text over the matrix: what the letters cover is missing.

    The words are set in lines from the top left, starting again when the message is over, until the matrix is
    full. A word longer than a line is cut off at the edge.

    Parameters
    ----------
    shape : sequence of int
        ``(m, n)`` or ``(..., m, n)``.
    message : str
        The words, separated by white space.
    size : float, optional
        Height of the letters in entries, at least 1. A tenth of the shorter side if left out, but at least 8,
        the smallest size at which letters can be told apart.

    Returns
    -------
    ndarray of bool, shape (..., m, n)
        True = observed; every matrix of a stack has the same mask.

    Raises
    ------
    ImportError
        If Pillow is not installed (``pip install "airnp[images]"``).

    Examples
    --------
    >>> from airnp import masks
    >>> mask = masks.text((240, 240), "matrix completion")
    >>> bool(0.05 < 1 - mask.mean() < 0.4)
    True
    """
    shape = _checked_shape(shape)
    m, n = shape[-2:]
    if not isinstance(message, str):
        raise TypeError(f"message: expected a str, got {message!r}")
    words = message.split()
    if not words:
        raise ValueError(f"message: expected at least one word, got {message!r}")
    if size is None:
        size = max(8, min(m, n) / 10)
    size = _checked_number("size", size, "a finite number of at least 1", low=1)

    pillow = _pillow("text")
    font = pillow.ImageFont.load_default(size)
    canvas = pillow.Image.new("1", (n, m))  # one bit per entry: no half-covered entries from smoothing
    draw = pillow.ImageDraw.Draw(canvas)
    lines = _endless_lines([(word, font.getlength(f" {word}")) for word in words], n)
    for top in range(0, m, math.ceil(1.2 * size)):
        draw.text((0, top), next(lines), fill=1, font=font)
    return _repeated(~np.asarray(canvas), shape)


def _kept_lines(shape: tuple[int, ...], missing: float, seed: Seed) -> Mask:
    """Which rows (or columns) stay, drawn anew for each problem; the last axis counts the lines."""
    lines = shape[-1]
    dropped = min(round(missing * lines), lines - 1)
    return np.random.default_rng(seed).permuted(np.broadcast_to(np.arange(lines) >= dropped, shape), axis=-1)


def _scaled(interval: tuple[int, int], length: int) -> tuple[int, int]:
    """Carry an interval of the paper's 240 entries over to `length`, rounded outwards in exact integers."""
    start, stop = interval
    return start * length // _PAPER_SIDE, -(-stop * length // _PAPER_SIDE)


def _scratch(mask: Mask, start: NDArray[np.float64], stop: NDArray[np.float64], radius: float) -> None:
    """Clear, in place, the entries of `mask` within `radius` of the segment from `start` to `stop`."""
    # Nothing outside the padded bounding box can be near: most segments see a small part of the matrix.
    low = np.maximum(np.ceil(np.minimum(start, stop) - radius), 0).astype(int)
    high = np.floor(np.maximum(start, stop) + radius).astype(int) + 1
    window = mask[low[0] : high[0], low[1] : high[1]]
    i = np.arange(low[0], low[0] + window.shape[0])[:, np.newaxis]
    j = np.arange(low[1], low[1] + window.shape[1])

    along = stop - start
    # The foot of the perpendicular, held between the ends; `or 1` for a segment that is a single point.
    length_squared = along @ along or 1.0
    foot = np.clip(((i - start[0]) * along[0] + (j - start[1]) * along[1]) / length_squared, 0, 1)
    distance = np.hypot(i - start[0] - foot * along[0], j - start[1] - foot * along[1])
    window[distance <= radius] = False


def _endless_lines(words: Sequence[tuple[str, float]], width: int) -> Iterator[str]:
    """Set (word, length) pairs in lines no wider than `width`, over and over."""
    endless = itertools.cycle(words)
    word, length = next(endless)
    while True:
        line, used = [word], length
        for word, length in endless:
            if used + length > width:
                break  # this word begins the next line
            line.append(word)
            used += length
        yield " ".join(line)


def _grey(image: Any) -> NDArray[Any]:
    """Read a file, a Pillow image or an array as grey values, shape (h, w)."""
    if isinstance(image, str | os.PathLike):
        with _pillow("from_image with a file").Image.open(image) as opened:
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


def _nearest(size: int, length: int) -> NDArray[np.intp]:
    """For each of `size` entries, the pixel of `length` under its centre."""
    return (2 * np.arange(size) + 1) * length // (2 * size)


def _repeated(mask: Mask, shape: tuple[int, ...]) -> Mask:
    """Repeat a mask for each problem of a stack, as an array of its own."""
    return np.broadcast_to(mask, shape).copy()


def _pillow(what: str) -> Any:
    try:
        import PIL
        import PIL.Image
        import PIL.ImageDraw
        import PIL.ImageFont
    except ImportError as error:
        raise ImportError(f'{what} needs Pillow: pip install "airnp[images]"') from error
    return PIL


def _checked_shape(shape: Any) -> tuple[int, ...]:
    expected = "shape: expected positive int (m, n) or (..., m, n)"
    try:
        checked = tuple(operator.index(length) for length in shape)
    except TypeError as error:
        raise TypeError(f"{expected}, got {shape!r}") from error
    if len(checked) < 2 or min(checked) < 1:
        raise ValueError(f"{expected}, got {shape!r}")
    return checked


def _checked_box(box: Any, m: int, n: int) -> Box:
    try:
        bounds = tuple(operator.index(bound) for bound in box)
    except TypeError as error:
        raise TypeError(f"{_FOUR_BOUNDS}, got {box!r}") from error
    if len(bounds) != 4:
        raise ValueError(f"{_FOUR_BOUNDS}, got {box!r}")
    row_start, row_stop, col_start, col_stop = bounds
    if not (0 <= row_start < row_stop <= m and 0 <= col_start < col_stop <= n):
        raise ValueError(f"boxes: expected non-empty boxes inside the {m}×{n} matrix, got {box!r}")
    return row_start, row_stop, col_start, col_stop


def _checked_count(count: Any) -> int:
    try:
        checked = operator.index(count)
    except TypeError as error:
        raise TypeError(f"count: expected an int of at least 0, got {count!r}") from error
    if checked < 0:
        raise ValueError(f"count: expected an int of at least 0, got {count!r}")
    return checked


def _checked_share(missing: Any) -> float:
    return _checked_number("missing", missing, "a number in [0, 1)", low=0, high=1)


def _checked_number(
    name: str, value: Any, expected: str, *, low: float = -math.inf, high: float = math.inf
) -> float:
    """Return `value` as a float if it is a number with ``low <= value < high``; True and False are not."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name}: expected {expected}, got {value!r}")
    number = float(value)
    if not low <= number < high:
        raise ValueError(f"{name}: expected {expected}, got {value!r}")
    return number
