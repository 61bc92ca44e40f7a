"""Patches of a picture on a CUDA device: :func:`airnp.resemblance.patches.collect` by kernels of our own.

Two kernels take turns, some thousands of reference patches at a time: ``match_patches`` finds the nearest
patches of each, ``fill_groups`` computes the Gaussian of each group and what it says about gaps. One block
works on one reference patch. Sums are 64-bit integers, so they have the same bits every time, although blocks
come in any order. The host waits for nothing.
"""

from __future__ import annotations

from typing import Any

import array_api_compat as compat
import numpy as np

from airnp._arrays import beside, own_module
from airnp.engines.launching import launch
from airnp.resemblance.patches import VALUE_ONE, WEIGHT_ONE, Round, Sums, Whole

MOST_ENTRIES, MOST_NEIGHBOURS = 192, 128
"""Entries of a patch, C·p², and patches of a group that the kernels have room for."""

_GROUPS = 8192
"""Reference patches of one launch."""

_MOST_BLOCKS = 512
"""About as many as a large device works on at the same time, so that their memory stays in its cache."""

_SPACE = 2**28
"""Bytes for the distances, or for the matrices, of all these blocks."""


def collect(X: Any, U: Any, M: Any, frame: int, rows: Whole, columns: Whole, how: Round) -> Sums:
    """Fill the gaps of patches from their groups, and add up what they say about every pixel of a frame.

    Parameters and result are those of :func:`airnp.resemblance.patches.collect`; X, U, M and the sums are
    arrays of CuPy on one device. X and U may also be float64.
    """
    frames, channels, height, width = X.shape
    entries = channels * how.patch**2
    _check_arrays(X, U, M, frame)
    _check_patches(how, X.shape, rows, columns)
    cupy = own_module(compat.array_namespace(X))
    with beside(X):
        X, U = cupy.ascontiguousarray(X), cupy.ascontiguousarray(U)
        known = M[frame].astype(np.int32, order="C")
        sums = Sums(*(cupy.zeros(X.shape[1:], dtype=np.int64) for _ in range(3)))
        total = rows.size * columns.size
        if total == 0:
            return sums
        crossings = [cupy.asarray(places.astype(np.int32)) for places in (rows, columns)]
        groups = min(total, _GROUPS)
        nearest = cupy.empty((groups, how.neighbours), dtype=np.int64)
        found = cupy.empty(groups, dtype=np.int32)

        def space(size: int) -> Any:
            """Return memory of so many numbers for each of some blocks."""
            blocks = min(groups, _MOST_BLOCKS, max(1, _SPACE // (size * X.dtype.itemsize)))
            return cupy.empty((blocks, size), dtype=X.dtype)

        distances = space(frames * (2 * how.search + 1) ** 2)
        matrices = space(2 * entries**2 + 4 * entries * (entries + 1))
        for first in range(0, total, groups):
            part = min(groups, total - first)
            launch(
                *("patch_matching", "match_patches", (X.dtype,), (min(part, len(distances)),)),
                *(X, known, *crossings, how.trust, distances, nearest, found, first, part, columns.size),
                *(frame, frames, channels, height, width, how.patch, how.search, how.neighbours),
            )
            launch(
                *("patches", "fill_groups", (X.dtype,), (min(part, len(matrices)),)),
                *(X, U, known, nearest, found, matrices, sums.values, sums.weights, sums.counts),
                *(how.ridge, how.noise, how.softening, WEIGHT_ONE, VALUE_ONE, part, frame),
                *(channels, height, width, how.patch, how.neighbours, how.answers),
            )
        return sums


def _check_arrays(X: Any, U: Any, M: Any, frame: int) -> None:
    """Raise if a kernel would misread the arrays."""
    if X.dtype not in (np.float32, np.float64):
        raise TypeError(f"X: expected float32 or float64, got {X.dtype}")
    for name, array in (("U", U), ("M", M)):
        if array.shape != X.shape:
            raise ValueError(f"{name}: expected the shape of X, {X.shape}, got {array.shape}")
    if not 0 <= frame < X.shape[0]:
        raise ValueError(f"frame: expected 0 to {X.shape[0] - 1}, got {frame}")


def _check_patches(how: Round, shape: tuple[int, ...], rows: Whole, columns: Whole) -> None:
    """Raise ValueError for what a kernel has no room for, and for patches beyond the picture."""
    entries = shape[1] * how.patch**2
    if entries > MOST_ENTRIES:
        raise ValueError(
            f"patch: on a CUDA device a patch has at most {MOST_ENTRIES} entries, got {entries}, "
            f"{how.patch}x{how.patch} pixels of {shape[1]} channels"
        )
    if not 1 <= how.neighbours <= MOST_NEIGHBOURS:
        raise ValueError(
            f"neighbours: on a CUDA device expected 1 to {MOST_NEIGHBOURS}, got {how.neighbours}"
        )
    for name, places, length in (("rows", rows, shape[2]), ("columns", columns, shape[3])):
        if places.size and not 0 <= places.min() <= places.max() <= length - how.patch:
            raise ValueError(
                f"{name}: expected places from 0 to {length - how.patch}, where patches of {how.patch} of "
                f"{length} pixels begin, got {places.min()} to {places.max()}"
            )
