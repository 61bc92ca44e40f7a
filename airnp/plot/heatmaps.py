"""Learned graphs as matrices, one picture per moment."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from airnp.graph_recorder import GraphRecorder
from airnp.plot.canvas import panels
from airnp.plot.style import bare, logarithmic
from airnp.stacks import chosen_problem

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
