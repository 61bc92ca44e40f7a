"""What was given, what came out, and how wrong it is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from airnp import metrics
from airnp.plot.style import HOLE, UNKNOWN, bare, label_lines, one_matrix, one_truth, panels, shape_of_entries
from airnp.results.result import FitResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Values = npt.NDArray[np.float64]


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
        second one. Without it, it is ``|X − Y|`` on the observed entries: what the fit left over.
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
        error that is not known.

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
    colours = _with_bad(cmap, HOLE), float(seen.min()), float(seen.max())
    _draw(before, np.where(mask, observed, np.nan), *colours)
    bare(before, f"with gaps\n{1 - mask.mean():.1%} missing")
    image = _draw(after, completed, *colours)
    bare(after, "completed\n")
    figure.colorbar(image, ax=after, extend=_beyond(completed, *colours[1:]), **_BAR)
    image = _draw(wrong, error, _with_bad("inferno", UNKNOWN), 0.0, float(np.nanmax(error)))
    bare(wrong, error_title if "\n" in error_title else error_title + "\n")
    figure.colorbar(image, ax=wrong, **_BAR)
    for ax in (before, after, wrong):
        label_lines(ax, result.index, result.columns)
    return figure


_BAR: dict[str, Any] = {"location": "bottom", "shrink": 0.8, "aspect": 30, "pad": 0.03}


def _score(completed: Values, truth: Values, mask: npt.NDArray[np.bool_]) -> str:
    """Return the second line of the error's title; nothing where there is no such number."""
    if mask.all() or truth.min() == truth.max():
        return ""
    return f"\nNMAE of missing entries {metrics.nmae(completed, truth, mask):.4f}"


def _with_bad(cmap: Any, bad: str) -> Any:
    """Return a copy of a colour map that shows NaN in a colour of its own."""
    from matplotlib import colormaps

    return (colormaps[cmap] if isinstance(cmap, str) else cmap).with_extremes(bad=bad)


def _draw(ax: Axes, values: Values, cmap: Any, low: float, high: float) -> Any:
    return ax.imshow(
        values,
        cmap=cmap,
        vmin=low,
        # A map of equal values, such as no error at all, is drawn in the colour of the lowest.
        vmax=high if high > low else low + 1.0,
        aspect=shape_of_entries(*values.shape),
        interpolation="nearest",
        origin="upper",
    )


def _beyond(values: Values, low: float, high: float) -> str:
    """Return which ends of the colour bar stand for more than their number."""
    below, above = bool(values.min() < low), bool(values.max() > high)
    return "both" if below and above else "min" if below else "max" if above else "neither"
