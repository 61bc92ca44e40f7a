"""What all plots share: colours, axes, panels, and the choice of one problem of a stack."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from airnp._arrays import Array, to_numpy
from airnp.results.graphs import chosen_problem
from airnp.results.result import FitResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")  # of Okabe and Ito
_DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (1, 1)))

LINES: tuple[dict[str, Any], ...] = tuple(
    {"color": colour, "linestyle": style} for colour, style in zip(_COLOURS, _DASHES, strict=True)
)
"""A colour and a line style per curve; either suffices to tell curves apart."""

HOLE = "#e2583e"
"""Marks missing entries. It differs from every grey; those who see no red see a middle grey."""

UNKNOWN = "#b8b8b8"
"""Marks entries whose error is unknown."""

_MOST_LABELS = 30
"""With more rows or columns, labels have no room."""


def bare(ax: Axes, title: str) -> None:
    """Remove all ticks, and set the title."""
    ax.set(xticks=[], yticks=[])
    ax.set_title(title, fontsize=11)


def label_lines(ax: Axes, index: Any, columns: Any) -> None:
    """Write the labels of a table at its rows and columns, if there is room."""
    if index is not None and len(index) <= _MOST_LABELS:
        ax.set_yticks(np.arange(len(index)), [str(label) for label in index], fontsize=8)
    if columns is not None and len(columns) <= _MOST_LABELS:
        ax.set_xticks(np.arange(len(columns)), [str(label) for label in columns], fontsize=8, rotation=90)


def shape_of_entries(m: int, n: int) -> Literal["equal", "auto"]:
    """Return matplotlib's aspect: square entries, unless the matrix is very long or very wide."""
    return "equal" if max(m, n) <= 4 * min(m, n) else "auto"


def logarithmic(values: npt.NDArray[np.float64]) -> Any:
    """Return a logarithmic scale for weights, over at most four decades, whose weakest weight is visible."""
    from matplotlib.colors import LogNorm

    positive = values[values > 0]
    strongest = float(positive.max(initial=0.0)) or 1.0
    weakest = float(positive.min(initial=strongest))
    return LogNorm(max(weakest / 3, 1e-4 * strongest), strongest, clip=True)


def logarithmic_axis(ax: Axes, low: float, high: float) -> None:
    """Make the vertical axis logarithmic, from ``low`` to ``high`` and a little more, with plain numbers."""
    ax.set_yscale("log")
    room = max((high / low) ** 0.05, 1.05)
    ax.set_ylim(low / room, high * room)
    decades = math.log10(high / low)
    # As many ticks between two powers of ten have numbers as there is room for.
    numbered = "23457" if decades < 1 else "25" if decades < 2 else ""
    if decades < 5:
        ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter(lambda value, _: f"{value:g}" if f"{value:.0e}"[0] in numbered else "")


def pyplot() -> Any:
    """Return ``matplotlib.pyplot``, or raise an error that says how to install it."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError('airnp.plot draws with matplotlib: pip install "airnp[plot]"') from error
    return plt


def one_panel(ax: Axes | None, width: float, height: float) -> Axes:
    """Return the given axes, or those of a new figure of this size in inches."""
    plt = pyplot()
    if ax is not None:
        return ax
    axes: Axes = plt.subplots(figsize=(width, height), layout="constrained")[1]
    return axes


def panels(
    count: int, axes: Iterable[Axes] | None, width: float, height: float, across: int = 5
) -> tuple[Figure, list[Axes]]:
    """Return ``count`` axes and their figure: the given ones, or new ones of this size in inches each.

    New ones are in rows of nearly equal length, at most ``across``.
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


def one_matrix(array: Array, result: FitResult, problem: Any) -> npt.NDArray[Any]:
    """Return the matrix (m, n) of one problem from an array of the shape of the result."""
    place: Any = chosen_problem(tuple(result.matrix.shape[:-2]), problem)
    return np.asarray(to_numpy(array)[place])


def one_truth(truth: Any, result: FitResult, problem: Any) -> npt.NDArray[np.float64]:
    """Check the shape of a truth; return its matrix (m, n) of one problem."""
    values = np.asarray(to_numpy(truth), dtype=np.float64)
    if values.shape != tuple(result.matrix.shape):
        raise ValueError(f"truth: expected shape {tuple(result.matrix.shape)}, got {values.shape}")
    return one_matrix(values, result, problem)
