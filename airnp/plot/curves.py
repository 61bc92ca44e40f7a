"""Loss, energies and error over the iterations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from airnp.history import History
from airnp.plot.canvas import panels
from airnp.plot.style import LINES, logarithmic_axis
from airnp.result import FitResult
from airnp.stacks import chosen_problem

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LEAST = 1e-4
"""Share of the largest value at which the vertical axis ends."""


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
        for name, style in zip(names, _styles(len(names)), strict=True):
            values = columns[name]
            marker = "o" if len(values) == 1 else ""
            label = name.removeprefix("energy_").replace("_", " ")
            ax.plot(history["iteration"], values, label=label, linewidth=1.4, marker=marker, **style)
        drawn = np.concatenate([columns[name] for name in names])
        if drawn.max() > 0:
            # A fit starts with a matrix near zero, whose energies would take half of the picture.
            logarithmic_axis(ax, max(drawn.min(), _LEAST * drawn.max()), drawn.max())
        if isinstance(result, FitResult):
            _mark_returned(ax, int(np.asarray(result.best_iter)[chosen]), result.n_iter)
        ax.set(xlabel="iteration", ylabel=title)
        ax.grid(alpha=0.25)
        if len(ax.lines) > 1:
            ax.legend(frameon=False, fontsize=9)
    return figure


def _styles(count: int) -> list[dict[str, Any]]:
    return [LINES[position % len(LINES)] for position in range(count)]


def _mark_returned(ax: Axes, best: int, last: int) -> None:
    if best != last:
        ax.axvline(best, color="0.35", linewidth=1, linestyle=(0, (2, 3)), label=f"returned: {best}")
