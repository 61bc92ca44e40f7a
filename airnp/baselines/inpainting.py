"""Biharmonic inpainting: the smoothest surface through the observed pixels."""

from __future__ import annotations

from typing import Any

import numpy as np

from airnp.baselines._problem import Bools, Values, complete_each


def biharmonic(Y: Any, mask: Any = None) -> Any:
    """Fill the gaps of an image so that its biharmonic operator vanishes there. Observed entries are kept.

    Neighbouring entries must mean neighbouring things, as in an image; the order of rows and columns counts.
    Carried out by :func:`skimage.restoration.inpaint_biharmonic`, which clips to the range of the observed.

    Parameters
    ----------
    Y : array-like (…, m, n)
        As in :func:`airnp.fit`.
    mask : array-like, optional
        True where observed. Without it, NaN means missing.

    Returns
    -------
    ndarray or DataFrame (…, m, n)

    Raises
    ------
    ImportError
        Without scikit-image (``pip install "airnp[baselines]"``).

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
