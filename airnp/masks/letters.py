"""Text that covers entries."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from airnp.masks._arguments import Mask, checked_between, checked_shape, repeated
from airnp.masks._pillow import load_pillow


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

    pillow = load_pillow("text")
    font = pillow.ImageFont.load_default(size)
    canvas = pillow.Image.new("1", (n, m))  # one bit per entry: no half-covered entries from smoothing
    draw = pillow.ImageDraw.Draw(canvas)
    lines = _endless_lines([(word, font.getlength(f" {word}")) for word in words], n)
    for top in range(0, m, math.ceil(1.2 * size)):
        draw.text((0, top), next(lines), fill=1, font=font)
    return repeated(~np.asarray(canvas), shape)


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
