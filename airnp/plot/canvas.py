"""Where to draw: axes that the caller gave, or new ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def pyplot() -> Any:
    """Return ``matplotlib.pyplot``, or raise an error that says how to install it."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError('airnp.plot draws with matplotlib: pip install "airnp[plot]"') from error
    return plt


def one_panel(ax: Axes | None, width: float, height: float) -> Axes:
    """Return the given axes, or those of a new figure of so many inches."""
    plt = pyplot()
    if ax is not None:
        return ax
    axes: Axes = plt.subplots(figsize=(width, height), layout="constrained")[1]
    return axes


def panels(
    count: int, axes: Iterable[Axes] | None, width: float, height: float, across: int = 5
) -> tuple[Figure, list[Axes]]:
    """Return so many axes and their figure: the given ones, or new ones of so many inches each.

    New ones stand in rows of at most ``across``, as equal as can be.
    """
    plt = pyplot()
    if axes is not None:
        given = list(np.ravel(np.asarray(axes, dtype=object)))
        if len(given) != count:
            raise ValueError(f"axes: expected {count}, got {len(given)}")
        return given[0].figure, given
    rows = -(-count // across)
    columns = -(-count // rows)
    figure, grid = plt.subplots(
        rows, columns, figsize=(columns * width, rows * height), layout="constrained", squeeze=False
    )
    for spare in grid.flat[count:]:
        spare.remove()
    return figure, list(grid.flat[:count])
