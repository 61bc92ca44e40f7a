"""Where a completed matrix is sure of itself, and where it is not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from airnp.plot.canvas import one_panel
from airnp.plot.inputs import one_matrix
from airnp.plot.style import UNKNOWN, bare, label_lines, shape_of_entries
from airnp.result import FitResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def uncertainty(
    result: FitResult,
    level: float = 0.9,
    *,
    problem: Any = None,
    ax: Axes | None = None,
    cmap: Any = "viridis",
) -> Axes:
    """Draw the widths of the intervals of missing entries, ``result.interval(level)``.

    Parameters
    ----------
    result : FitResult
        Of a fit that held entries out, as the default does.
    level : float
        Between 0 and 1.
    problem : int or tuple of int, optional
        Which problem of a stack.
    ax : Axes, optional
        Where to draw. Default: a new figure.
    cmap : str or Colormap

    Returns
    -------
    Axes
        The darkest colour is a width of zero. Observed entries, which have no interval, are light grey.

    Examples
    --------
    >>> import airnp, airnp.plot
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.random((20, 2)) @ rng.random((2, 30)) + 0.1 * rng.random((20, 30))
    >>> result = airnp.fit(truth, rng.random(truth.shape) < 0.7, max_iter=1000, seed=0)
    >>> airnp.plot.uncertainty(result, 0.8).get_title()
    'width of 80 % intervals'
    """
    ends = replace(result, labels=None).interval(level)
    lower, upper = (one_matrix(side, result, problem) for side in ends)
    observed = one_matrix(result.mask, result, problem)
    widths = np.where(observed, np.nan, upper - lower)
    largest = float(np.nanmax(widths)) if not observed.all() else 0.0

    ax = one_panel(ax, 4.6, 4.6)
    from matplotlib import colormaps

    colours = (colormaps[cmap] if isinstance(cmap, str) else cmap).with_extremes(bad=UNKNOWN)
    image = ax.imshow(
        widths,
        cmap=colours,
        vmin=0.0,
        vmax=largest or 1.0,
        aspect=shape_of_entries(*widths.shape),
        interpolation="nearest",
        origin="upper",
    )
    bare(ax, f"width of {100 * level:g} % intervals")
    label_lines(ax, result.index, result.columns)
    ax.figure.colorbar(image, ax=ax, location="bottom", shrink=0.8, aspect=30, pad=0.03)
    return ax
