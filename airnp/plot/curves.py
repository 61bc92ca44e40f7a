"""Curves: loss, energies and error over the iterations, and singular values."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from airnp.plot.style import LINES, logarithmic_axis, one_matrix, one_panel, one_truth, panels
from airnp.results.graphs import chosen_problem
from airnp.results.history import History
from airnp.results.result import FitResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_LEAST = 1e-4
"""Lower end of the vertical axis, as a share of the largest value."""


def trajectories(
    result: FitResult | History, *, problem: Any = None, axes: Iterable[Axes] | None = None
) -> Figure:
    """Draw what a fit recorded: loss and fidelity, the energies, and the NMAE if the truth was given to it.

    Parameters
    ----------
    result : FitResult or History
        With a result, the iterate that it returns is marked, if that is not the last.
    problem : int or tuple of int, optional
        Which problem of a stack.
    axes : sequence of Axes, optional
        Where to draw: one for the losses, one for the energies if there are any, one for the NMAE if it was
        recorded. Default: a new figure.

    Returns
    -------
    Figure
        Losses and energies are in normalised units, each energy without its λ.

    Examples
    --------
    >>> import airnp, airnp.plot
    >>> Y = np.random.default_rng(0).random((8, 6))
    >>> result = airnp.fit(Y, regularizers=None, max_iter=40, stop=None, seed=0)
    >>> figure = airnp.plot.trajectories(result)
    >>> [line.get_label() for ax in figure.axes for line in ax.lines]
    ['loss', 'fidelity', 'rows', 'columns']
    """
    history = result.history if isinstance(result, FitResult) else result
    if len(history["iteration"]) == 0:
        raise ValueError("trajectories: the history is empty")
    chosen = chosen_problem(history["loss"].shape[1:], problem)
    place: Any = (..., *chosen)
    columns = {name: history[name][place] for name in history if name != "iteration"}
    energies = [name for name in columns if name.startswith("energy_")]
    groups = {"loss": ["loss", "fidelity"], "energy": energies, "NMAE of missing entries": ["nmae"]}
    groups = {title: names for title, names in groups.items() if names and set(names) <= set(columns)}

    figure, given = panels(len(groups), axes, 4.2, 3.4)
    for ax, (title, names) in zip(given, groups.items(), strict=True):
        for name, style in zip(names, itertools.cycle(LINES), strict=False):
            values = columns[name]
            marker = "o" if len(values) == 1 else ""
            label = name.removeprefix("energy_").replace("_", " ")
            ax.plot(history["iteration"], values, label=label, linewidth=1.4, marker=marker, **style)
        drawn = np.concatenate([columns[name] for name in names])
        if drawn.max() > 0:
            # A fit starts with a matrix near zero, whose energies would take half of the plot.
            logarithmic_axis(ax, max(drawn.min(), _LEAST * drawn.max()), drawn.max())
        if isinstance(result, FitResult):
            best = int(np.asarray(result.best_iter)[chosen])
            if best != result.n_iter:
                style = {"color": "0.35", "linewidth": 1, "linestyle": (0, (2, 3))}
                ax.axvline(best, label=f"returned: {best}", **style)
        ax.set(xlabel="iteration", ylabel=title)
        ax.grid(alpha=0.25)
        if len(ax.lines) > 1:
            ax.legend(frameon=False, fontsize=9)
    return figure


def singular_values(
    result: FitResult, truth: Any = None, *, problem: Any = None, ax: Axes | None = None
) -> Axes:
    """Draw the singular values of the recovered matrix ``result.X``, the largest first.

    Parameters
    ----------
    result : FitResult
    truth : array-like (…, m, n), optional
        The complete matrix, or the whole stack, to draw the singular values of as well.
    problem : int or tuple of int, optional
        Which problem of a stack.
    ax : Axes, optional
        Where to draw. Default: a new figure.

    Returns
    -------
    Axes
        On a logarithmic scale that ends where the rounding errors of the result's type begin.

    Examples
    --------
    >>> import airnp, airnp.plot
    >>> Y = np.outer([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 4.0])
    >>> ax = airnp.plot.singular_values(airnp.fit(Y, max_iter=100, seed=0), Y)
    >>> [line.get_label() for line in ax.lines]
    ['recovered', 'truth']
    """
    recovered = one_matrix(result.matrix, result, problem)
    curves = {"recovered": _spectrum(recovered)}
    if truth is not None:
        curves["truth"] = _spectrum(one_truth(truth, result, problem))

    ax = one_panel(ax, 4.6, 3.6)
    for (label, values), style, marker in zip(curves.items(), LINES, "os", strict=False):
        numbers = np.arange(1, len(values) + 1)
        ax.plot(numbers, values, label=label, marker=marker, markersize=3, linewidth=1.2, **style)
    largest = float(max(values[0] for values in curves.values()))
    if largest > 0:
        least = min(float(values[-1]) for values in curves.values())
        rounding = float(np.finfo(recovered.dtype).eps) * max(recovered.shape)
        logarithmic_axis(ax, max(least, rounding * largest), largest)
    ax.set(xlabel="index", ylabel="singular value")
    ax.locator_params(axis="x", integer=True)
    ax.grid(alpha=0.25)
    ax.legend(frameon=False, fontsize=9)
    return ax


def _spectrum(matrix: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    return np.linalg.svd(matrix.astype(np.float64), compute_uv=False)
