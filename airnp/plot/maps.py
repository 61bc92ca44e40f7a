"""Maps: learned graphs as matrices over time, and where a completion is uncertain."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from airnp.plot.style import (
    UNKNOWN,
    bare,
    label_lines,
    logarithmic,
    one_matrix,
    one_panel,
    panels,
    shape_of_entries,
)
from airnp.results.graphs import chosen_problem
from airnp.results.result import FitResult
from airnp.training.graph_recorder import GraphRecorder

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def laplacians(
    recorder: GraphRecorder, name: str = "rows", *, problem: Any = None, axes: Iterable[Axes] | None = None
) -> Figure:
    """Draw a learned Laplacian as heat maps, one for each moment that was recorded.

    Parameters
    ----------
    recorder : GraphRecorder
        After a fit that had it as its ``callback``.
    name : str
        Which graph: ``"rows"``, ``"columns"``, or another of ``recorder.names``.
    problem : int or tuple of int, optional
        Which problem of a stack.
    axes : sequence of Axes, optional
        Where to draw, one for each of ``recorder.moments``. Default: a new figure.

    Returns
    -------
    Figure
        Each panel shows −L off the diagonal, which is the adjacency A: the darker, the more alike two lines
        are. The diagonal, the sums of the rows, is left out. All panels share one logarithmic scale.

    Examples
    --------
    >>> import numpy as np
    >>> import airnp, airnp.plot
    >>> recorder = airnp.plot.GraphRecorder(at=[1, 20, 40])
    >>> Y = np.random.default_rng(0).random((8, 6))
    >>> result = airnp.fit(Y, regularizers=None, max_iter=40, stop=None, callback=recorder)
    >>> figure = airnp.plot.laplacians(recorder, "columns")
    >>> [ax.get_title().splitlines()[0] for ax in figure.axes[:3]]
    ['iteration 1', 'iteration 20', 'iteration 40']
    """
    adjacencies = recorder.adjacencies(name)
    place = chosen_problem(adjacencies.shape[1:-2], problem)
    weights = [_off_diagonal(adjacency[place]) for adjacency in adjacencies]
    figure, given = panels(len(weights), axes, 2.7, 3.4)
    norm = logarithmic(np.stack(weights))
    for ax, moment, values in zip(given, recorder.moments, weights, strict=True):
        image = ax.imshow(
            np.maximum(values, norm.vmin), cmap="Blues", norm=norm, interpolation="nearest", origin="upper"
        )
        degree = np.nansum(values) / len(values)
        bare(ax, f"iteration {moment}\nmean degree {degree:.3g}")
    label = f"$-L_{{ij}}$ of {name.replace('_', ' ')}, $i \\neq j$"
    figure.colorbar(image, ax=given, shrink=0.8, aspect=30, pad=0.01, label=label)
    return figure


def _off_diagonal(adjacency: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return a copy whose diagonal is NaN, which is drawn as nothing."""
    values = adjacency.astype(np.float64)
    np.fill_diagonal(values, np.nan)
    return values


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
    >>> import numpy as np
    >>> import airnp, airnp.plot
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.random((20, 2)) @ rng.random((2, 30)) + 0.1 * rng.random((20, 30))
    >>> result = airnp.fit(truth, rng.random(truth.shape) < 0.7, max_iter=1000, seed=0)
    >>> airnp.plot.maps(result, 0.8).get_title()
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
