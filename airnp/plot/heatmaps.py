"""Matrices as images: data, completion and error; learned graphs over time; widths of intervals."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from airnp import metrics
from airnp.plot.style import (
    HOLE,
    UNKNOWN,
    bare,
    label_lines,
    logarithmic,
    one_matrix,
    one_panel,
    one_truth,
    panels,
    shape_of_entries,
)
from airnp.results.graphs import chosen_problem
from airnp.results.result import FitResult
from airnp.training.recorder import GraphRecorder

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Values = npt.NDArray[np.float64]

_BAR: dict[str, Any] = {"location": "bottom", "shrink": 0.8, "aspect": 30, "pad": 0.03}


def before_after(
    result: FitResult,
    truth: Any = None,
    *,
    problem: Any = None,
    axes: Iterable[Axes] | None = None,
    cmap: Any = "gray",
) -> Figure:
    """Draw the data with its gaps, the completed matrix, and its error, side by side.

    Parameters
    ----------
    result : FitResult
    truth : array-like (…, m, n), optional
        The complete matrix, or the whole stack. With it the third panel is the absolute error of the
        second one. Without it, it is ``|X − Y|`` on the observed entries.
    problem : int or tuple of int, optional
        Which problem of a stack.
    axes : three Axes, optional
        Where to draw. Default: a new figure.
    cmap : str or Colormap
        Colours of the first two panels; they share a scale, which spans the observed entries and the truth.

    Returns
    -------
    Figure
        Missing entries are orange in the first panel. In the third, black is no error, and light grey is an
        unknown error.

    Examples
    --------
    >>> import airnp, airnp.plot
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.random((20, 2)) @ rng.random((2, 30))
    >>> result = airnp.fit(truth, rng.random(truth.shape) < 0.7, max_iter=1000, seed=0)
    >>> figure = airnp.plot.before_after(result, truth)
    >>> [ax.get_title().splitlines()[0] for ax in figure.axes[:3]]
    ['with gaps', 'completed', 'absolute error']
    """
    if result.mask is None or result.observed is None:
        raise ValueError("before_after: an operator's measurements are no picture; draw result.X yourself")
    mask = one_matrix(result.mask, result, problem)
    observed = one_matrix(result.observed, result, problem).astype(np.float64)
    fitted = one_matrix(result.matrix, result, problem).astype(np.float64)
    known = None if truth is None else one_truth(truth, result, problem)
    completed = np.where(mask, observed, fitted)
    if known is None:
        error, error_title = np.where(mask, np.abs(fitted - observed), np.nan), "misfit of observed entries"
    else:
        error, error_title = np.abs(completed - known), "absolute error" + _score(completed, known, mask)

    figure, (before, after, wrong) = panels(3, axes, 3.6, 3.9)
    seen = observed[mask] if known is None else known[np.isfinite(known)]
    limits = float(seen.min()), float(seen.max())
    _draw(before, np.where(mask, observed, np.nan), cmap, HOLE, *limits)
    bare(before, f"with gaps\n{1 - mask.mean():.1%} missing")
    image = _draw(after, completed, cmap, HOLE, *limits)
    bare(after, "completed\n")
    figure.colorbar(image, ax=after, extend=_extend(completed, *limits), **_BAR)
    image = _draw(wrong, error, "inferno", UNKNOWN, 0.0, float(np.nanmax(error)))
    bare(wrong, error_title if "\n" in error_title else error_title + "\n")
    figure.colorbar(image, ax=wrong, **_BAR)
    for ax in (before, after, wrong):
        label_lines(ax, result.index, result.columns)
    return figure


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
    >>> airnp.plot.uncertainty(result, 0.8).get_title()
    'width of 80 % intervals'
    """
    ends = replace(result, labels=None).interval(level)
    lower, upper = (one_matrix(side, result, problem) for side in ends)
    observed = one_matrix(result.mask, result, problem)
    widths = np.where(observed, np.nan, upper - lower)
    largest = float(np.nanmax(widths)) if not observed.all() else 0.0

    ax = one_panel(ax, 4.6, 4.6)
    image = _draw(ax, widths, cmap, UNKNOWN, 0.0, largest)
    bare(ax, f"width of {100 * level:g} % intervals")
    label_lines(ax, result.index, result.columns)
    ax.figure.colorbar(image, ax=ax, **_BAR)
    return ax


def _draw(ax: Axes, values: Values, cmap: Any, unknown: str, low: float, high: float) -> Any:
    """Draw a matrix; NaN is shown in the colour ``unknown``."""
    from matplotlib import colormaps

    return ax.imshow(
        values,
        cmap=(colormaps[cmap] if isinstance(cmap, str) else cmap).with_extremes(bad=unknown),
        vmin=low,
        # A matrix of equal values, such as no error at all, is drawn in the colour of the lowest.
        vmax=high if high > low else low + 1.0,
        aspect=shape_of_entries(*values.shape),
        interpolation="nearest",
        origin="upper",
    )


def _score(completed: Values, truth: Values, mask: npt.NDArray[np.bool_]) -> str:
    """Return the second line of the error's title, or nothing if the NMAE is not defined."""
    if mask.all() or truth.min() == truth.max():
        return ""
    return f"\nNMAE of missing entries {metrics.nmae(completed, truth, mask):.4f}"


def _extend(values: Values, low: float, high: float) -> str:
    """Return which ends of the colour bar some values exceed, as matplotlib names them."""
    below, above = bool(values.min() < low), bool(values.max() > high)
    return "both" if below and above else "min" if below else "max" if above else "neither"


def _off_diagonal(adjacency: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return a copy with NaN on the diagonal, which is not drawn."""
    values = adjacency.astype(np.float64)
    np.fill_diagonal(values, np.nan)
    return values
