"""Surfaces through the observed pixels of a channel: linear over triangles, and biharmonic."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


def linear_surface(values: Values, observed: Bools) -> Values:
    """Interpolate linearly over triangles of observed pixels.

    Gaps outside all triangles, at the margin, become their nearest observed pixel.

    Parameters
    ----------
    values : ndarray of float64 (H, W)
    observed : ndarray of bool (H, W)
        True at one pixel or more.

    Returns
    -------
    ndarray of float64 (H, W)

    Examples
    --------
    >>> ramp = np.add.outer(np.arange(6.0), np.arange(7.0))
    >>> observed = np.ones(ramp.shape, dtype=bool)
    >>> observed[2:4, 3:5] = False
    >>> bool(np.allclose(linear_surface(np.where(observed, ramp, 0), observed), ramp))
    True
    """
    from scipy.interpolate import LinearNDInterpolator, NearestNDInterpolator
    from scipy.ndimage import binary_dilation

    if observed.all():
        return values.copy()
    # A pixel with eight observed neighbours is no corner of a triangle around a gap: every circle through
    # it that is larger than a cell of the grid contains one of them.
    rim = observed & binary_dilation(~observed, structure=np.ones((3, 3)))
    corners, gaps = np.argwhere(rim), np.argwhere(~observed)
    filled = NearestNDInterpolator(corners, values[rim])(gaps)
    # All on one line: no triangles.
    if np.linalg.matrix_rank(corners - corners[0]) == 2:
        between = LinearNDInterpolator(corners, values[rim])(gaps)
        filled = np.where(np.isnan(between), filled, between)
    answer = values.copy()
    answer[~observed] = filled
    return answer


def biharmonic_surface(values: Values, observed: Bools) -> Values:
    """Minimise ‖L x‖² over the gaps, L the Laplacian of the grid of pixels; edges are natural.

    Parameters
    ----------
    values : ndarray of float64 (H, W)
    observed : ndarray of bool (H, W)
        True at one pixel or more.

    Returns
    -------
    ndarray of float64 (H, W)

    Examples
    --------
    >>> ramp = np.add.outer(np.arange(6.0), np.arange(7.0))
    >>> observed = np.ones(ramp.shape, dtype=bool)
    >>> observed[2:4, 3:5] = False
    >>> bool(np.allclose(biharmonic_surface(np.where(observed, ramp, 0), observed), ramp))
    True
    """
    from scipy.sparse import csr_array, diags_array
    from scipy.sparse.linalg import splu

    from airnp.resemblance.stages import grid_laplacian

    if observed.all():
        return values.copy()
    grid = grid_laplacian(*values.shape)
    size = values.size
    joined: Any = csr_array((grid.weights.astype(np.float64), grid.others, grid.starts), shape=(size, size))
    L = (diags_array(joined.sum(axis=1)) - joined).tocsc()
    seen = observed.ravel()
    unknown = L[:, ~seen]
    answer = np.where(observed, values, 0.0)
    flat = answer.reshape(-1)
    # A trace of the identity keeps the system regular where fewer pixels are observed than a plane needs.
    system = (unknown.T @ unknown + 1e-12 * diags_array(np.ones(unknown.shape[1]))).tocsc()
    flat[~seen] = splu(system, permc_spec="MMD_AT_PLUS_A").solve(-(unknown.T @ (L @ flat)))
    return answer
