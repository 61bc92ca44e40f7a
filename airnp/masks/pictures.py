"""Masks drawn as pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airnp.masks._arguments import Mask, checked_between, checked_shape, repeated
from airnp.masks._grey import grey_values


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
    grey = grey_values(image)
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
    return repeated(mask[np.ix_(nearest_rows, nearest_columns)], shape)


def _nearest(size: int, length: int) -> NDArray[np.intp]:
    """For each of `size` entries, the pixel of `length` under its centre."""
    return (2 * np.arange(size) + 1) * length // (2 * size)
