"""The arguments of ``inpaint`` that say how tiles lie and how each is fitted."""

from __future__ import annotations

import inspect
from typing import Any

from airnp._checks import checked_whole
from airnp.fitting import fit
from airnp.images.tiles import Grid

_WIDEST_OVERLAP = 64
_SMALLEST_TILE = 16

_NOT_FOR_TILES = (
    *("Y", "mask", "operator", "shape", "weights", "truth", "integers"),
    *("progress", "checkpoint", "checkpoint_every"),
    *("form", "offsets", "mask_factor", "batch_size"),
)
"""What :func:`airnp.fit` has for one matrix, and several tiles cannot share, or for sparse matrices alone."""

_FOR_TILES = tuple(name for name in inspect.signature(fit).parameters if name not in _NOT_FOR_TILES)


def checked_grid(height: int, width: int, tile: Any, overlap: Any) -> Grid:
    """Return the tiles that ``tile`` and ``overlap`` ask for, or raise."""
    size = checked_whole("tile", tile, least=_SMALLEST_TILE)
    if overlap is None:
        overlap = min(size // 4, _WIDEST_OVERLAP)
    return Grid(height, width, size, checked_whole("overlap", overlap, least=0))


def checked_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return options of :func:`airnp.fit` that tiles can share, or raise for others."""
    for name in options:
        if name not in _FOR_TILES:
            raise TypeError(
                f"{name}: not an option of inpaint; of airnp.fit's it has {', '.join(_FOR_TILES)}"
            )
    return options
