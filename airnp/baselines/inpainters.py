"""Inpainting of pictures: linear and biharmonic surfaces, and OpenCV's Navier-Stokes, Telea and FSR."""

from __future__ import annotations

from typing import Any

import numpy as np

from airnp._checks import checked_choice, checked_whole
from airnp.baselines.common import Bools, Completion, Values, complete_each
from airnp.images.surfaces import linear_surface

_BLOCK = 16
"""Side of the blocks of frequency-selective reconstruction, which skips incomplete ones at the margin."""


def linear(Y: Any, mask: Any = None) -> Any:
    """Interpolate linearly over triangles of observed pixels of an image. Observed entries are kept.

    The order of rows and columns must mean something, as in an image. Gaps outside all triangles, at the
    margin, become their nearest observed entry. Uses :class:`scipy.interpolate.LinearNDInterpolator`.

    Parameters
    ----------
    Y, mask : array-like (…, m, n)
        As in :func:`airnp.fit`: the mask is True where observed; without it, NaN means missing.

    Returns
    -------
    ndarray or DataFrame (…, m, n)

    Notes
    -----
    Rows and columns without any observed entry are bridged as any other gap.

    Examples
    --------
    >>> import numpy as np
    >>> ramp = np.add.outer(np.arange(6.0), np.arange(7.0))
    >>> mask = np.ones(ramp.shape, dtype=bool)
    >>> mask[2:4, 3:5] = False
    >>> bool(np.allclose(linear(ramp, mask), ramp))
    True
    """
    return complete_each(Y, mask, linear_surface, "they are bridged from the nearest observed ones")


def biharmonic(Y: Any, mask: Any = None) -> Any:
    """Fill the gaps of an image so that its biharmonic operator vanishes there. Observed entries are kept.

    The order of rows and columns must mean something, as in an image.
    Uses :func:`skimage.restoration.inpaint_biharmonic`, which clips to the range of the observed entries.

    Parameters
    ----------
    Y, mask : array-like (…, m, n)
        As in :func:`airnp.fit`: the mask is True where observed; without it, NaN means missing.

    Returns
    -------
    ndarray or DataFrame (…, m, n)

    Notes
    -----
    Rows and columns without any observed entry are bridged as any other gap.

    Examples
    --------
    >>> import numpy as np
    >>> ramp = np.add.outer(np.arange(6.0), np.arange(7.0))
    >>> mask = np.ones(ramp.shape, dtype=bool)
    >>> mask[2:4, 3:5] = False
    >>> bool(np.allclose(biharmonic(ramp, mask), ramp))
    True
    """
    try:
        from skimage.restoration import inpaint_biharmonic
    except ImportError as error:
        raise ImportError('biharmonic needs scikit-image: pip install "airnp[baselines]"') from error

    def complete(values: Values, mask: Bools) -> Values:
        filled: Values = np.asarray(inpaint_biharmonic(values, ~mask))
        return np.where(mask, values, filled)

    return complete_each(Y, mask, complete, "they are bridged from the nearest observed ones")


def navier_stokes(Y: Any, mask: Any = None, *, radius: int = 1) -> Any:
    """Continue isophotes into the gaps of an image, by ``cv2.inpaint``. Observed entries are kept.

    The order of rows and columns must mean something, as in an image. OpenCV's 16-bit form is used, on the
    range of the observed entries; the answer stays in that range.

    Parameters
    ----------
    Y, mask : array-like (…, m, n)
        As in :func:`airnp.fit`: the mask is True where observed; without it, NaN means missing.
    radius : int
        Radius in entries of the neighbourhood that fills an entry. OpenCV's examples use 3; on pictures 1
        has the lower error.

    Returns
    -------
    ndarray or DataFrame (…, m, n)

    Notes
    -----
    Rows and columns without any observed entry are bridged as any other gap.

    References
    ----------
    Bertalmio, Bertozzi and Sapiro, Navier-Stokes, fluid dynamics, and image and video inpainting, CVPR 2001.

    Examples
    --------
    >>> import numpy as np
    >>> ramp = np.add.outer(np.arange(8.0), np.arange(9.0))
    >>> mask = np.ones(ramp.shape, dtype=bool)
    >>> mask[3:5, 4:6] = False
    >>> bool(np.abs(navier_stokes(ramp, mask) - ramp).max() < 2)
    True
    """
    complete = _completion("navier_stokes", "INPAINT_NS", radius)
    return complete_each(Y, mask, complete, "they are bridged from the nearest observed ones")


def telea(Y: Any, mask: Any = None, *, radius: int = 2) -> Any:
    """Fill the gaps of an image inwards from weighted neighbours, by ``cv2.inpaint``. Observed are kept.

    The order of rows and columns must mean something, as in an image. OpenCV's 16-bit form is used, on the
    range of the observed entries; the answer stays in that range.

    Parameters
    ----------
    Y, mask : array-like (…, m, n)
        As in :func:`airnp.fit`: the mask is True where observed; without it, NaN means missing.
    radius : int
        Radius in entries of the neighbourhood that fills an entry. OpenCV's examples use 3; on pictures 2
        has the lower error.

    Returns
    -------
    ndarray or DataFrame (…, m, n)

    Notes
    -----
    Rows and columns without any observed entry are bridged as any other gap.

    References
    ----------
    Telea, An image inpainting technique based on the fast marching method, Journal of Graphics Tools (2004).

    Examples
    --------
    >>> import numpy as np
    >>> ramp = np.add.outer(np.arange(8.0), np.arange(9.0))
    >>> mask = np.ones(ramp.shape, dtype=bool)
    >>> mask[3:5, 4:6] = False
    >>> bool(np.abs(telea(ramp, mask) - ramp).max() < 2)
    True
    """
    complete = _completion("telea", "INPAINT_TELEA", radius)
    return complete_each(Y, mask, complete, "they are bridged from the nearest observed ones")


def fsr(Y: Any, mask: Any = None, *, quality: str = "fast") -> Any:
    """Fill the gaps of an image by frequency-selective reconstruction. Observed entries are kept.

    Blocks are modelled as sums of a few Fourier functions, fitted to the observed entries around them, by
    ``cv2.xphoto.inpaint``. The order of rows and columns must mean something, as in an image. OpenCV has
    an 8-bit form only, so filled entries are multiples of 1/255 of the range of the observed entries.

    Parameters
    ----------
    Y, mask : array-like (…, m, n)
        As in :func:`airnp.fit`: the mask is True where observed; without it, NaN means missing.
    quality : {"fast", "best"}
        OpenCV's profile. ``"best"`` takes ten to fifty times as long, and on most pictures that were tried
        its error is the larger one.

    Returns
    -------
    ndarray or DataFrame (…, m, n)

    Notes
    -----
    OpenCV leaves gaps empty that are in incomplete blocks of 16×16 at the lower and right margin. The image
    is therefore extended by its mirror image to whole blocks.

    Rows and columns without any observed entry are bridged as any other gap.

    References
    ----------
    Seiler, Jonscher, Schöberl and Kaup, Resampling images to a regular grid from a non-regular subset of
    pixel positions using frequency selective reconstruction, IEEE Transactions on Image Processing (2015).
    Genser, Seiler, Schilling and Kaup, Signal and loss geometry aware frequency selective extrapolation for
    error concealment, Picture Coding Symposium (2018).

    Examples
    --------
    >>> import numpy as np
    >>> waves = np.add.outer(np.sin(np.arange(16.0)), np.sin(np.arange(16.0)))
    >>> mask = np.random.default_rng(0).random(waves.shape) < 0.7
    >>> bool(np.abs(fsr(waves, mask) - waves).mean() < 0.1)
    True
    """
    checked_choice("quality", quality, ("fast", "best"))
    cv2 = _load("fsr")
    if not hasattr(cv2, "xphoto"):
        raise ImportError('fsr needs opencv-contrib, not plain OpenCV: pip install "airnp[bench]"')
    profile = getattr(cv2.xphoto, f"INPAINT_FSR_{quality.upper()}")

    def complete(values: Values, mask: Bools) -> Values:
        m, n = values.shape
        margins = ((0, -m % _BLOCK), (0, -n % _BLOCK))
        pixels, offset, step = _quantize(values, mask, np.uint8)
        source, known = (np.pad(part, margins, mode="symmetric") for part in (pixels, mask.astype(np.uint8)))
        filled = np.zeros_like(source)
        cv2.xphoto.inpaint(source, known, filled, profile)  # zero means missing here
        return np.where(mask, values, offset + step * filled[:m, :n])

    return complete_each(Y, mask, complete, "they are bridged from the nearest observed ones")


def _completion(name: str, flag: str, radius: Any) -> Completion:
    radius = checked_whole("radius", radius)
    cv2 = _load(name)

    def complete(values: Values, mask: Bools) -> Values:
        pixels, offset, step = _quantize(values, mask, np.uint16)
        filled = cv2.inpaint(pixels, (~mask).astype(np.uint8), radius, getattr(cv2, flag))
        return np.where(mask, values, offset + step * filled)

    return complete


def _quantize(values: Values, mask: Bools, dtype: Any) -> tuple[Any, float, float]:
    """Return whole numbers over the range of `dtype`, 0 where missing, and the offset and step to undo it."""
    low, high = float(values[mask].min()), float(values[mask].max())
    step = (high - low) / np.iinfo(dtype).max
    levels = np.rint((values - low) / (step or 1.0))
    return np.where(mask, levels, 0).astype(dtype), low, step


def _load(name: str) -> Any:
    try:
        import cv2
    except ImportError as error:
        raise ImportError(f'{name} needs OpenCV: pip install "airnp[bench]"') from error
    return cv2
