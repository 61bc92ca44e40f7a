"""What a figure is, and the style of all figures: one colour and one line style per method."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, StrMethodFormatter

from bench.figures.compute import Outcome
from bench.figures.runs import Run, Scale

OutcomeOf = Callable[[Run], Outcome]


@dataclass(frozen=True)
class Drawing:
    """A figure: the runs of each of its panels, and a function that draws their outcomes."""

    name: str
    panels: Callable[[Scale], list[list[Run]]]
    draw: Callable[[OutcomeOf, Scale], Figure]

    def runs(self, scale: Scale) -> list[Run]:
        """Return all runs of the figure, each once."""
        return list(dict.fromkeys(run for panel in self.panels(scale) for run in panel))


LINES: dict[str, dict[str, Any]] = {
    "DMF": {"color": "#d55e00", "linestyle": "--"},
    "DMF+TV": {"color": "#009e73", "linestyle": "-."},
    "AIR": {"color": "#0072b2", "linestyle": "-"},
}
STEPS = ("#e69f00", "#cc79a7", "#7a3b69", "#3d3d3d", "#56b4e9")
"""Colours for several settings of one method."""


def grid(rows: int, columns: int, width: float, height: float) -> tuple[Figure, np.ndarray]:
    """Return a figure and its axes, each ``width`` × ``height`` inches."""
    # Not through pyplot, which would keep every figure alive and ask for a display.
    figure = Figure(figsize=(columns * width, rows * height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def letter(position: int) -> str:
    """Return (a), (b), …"""
    return f"({chr(ord('a') + position)})"


def plain_log(axis: Axis, lowest: float, highest: float) -> None:
    """Label a logarithmic axis with plain numbers, and a short one also between powers of ten."""
    decades = math.log10(highest / lowest)
    labelled = (2, 3, 4, 5, 7) if decades < 1 else (2, 5) if decades < 2 else ()

    def text(value: float, _: int) -> str:
        leading = round(value / 10 ** math.floor(math.log10(value) + 1e-9))
        return f"{value:g}" if leading in labelled else ""

    if decades < 5:
        axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(FuncFormatter(text))


def finish_panel(panel: Axes, title: str, fontsize: int = 10) -> None:
    """Set the title, draw grid lines, and label a logarithmic axis."""
    panel.set_title(title, fontsize=fontsize)
    panel.grid(which="both", alpha=0.2)
    if panel.get_yscale() == "log":
        plain_log(panel.yaxis, *panel.get_ylim())


def legend_below(axes: Axes, title: str) -> None:
    """Put the legend below the panel, where it hides no curve."""
    place = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.19)}
    axes.legend(title=title, fontsize=8, title_fontsize=8, frameon=False, **place)


def number(error: float) -> str:
    """Return an error with four decimals, a small one with five."""
    return f"{error:.4f}" if error >= 0.002 else f"{error:.5f}"


def bare(axes: Axes, title: str = "") -> None:
    """Remove the ticks and set the title."""
    axes.set(xticks=[], yticks=[])
    axes.set_title(title, fontsize=9)


def gap_title(problem: str) -> str:
    """Return the name of a problem for readers."""
    data, _, gaps = problem.partition(" ")
    missing = {"patch": "patches missing", "texture": "texture missing"}
    return f"{data}, {missing.get(gaps, f'{gaps} missing')}"


def save(figure: Figure, path: Any) -> None:
    """Write a PNG; the same figure gives the same bytes."""
    figure.savefig(path, dpi=110, metadata={"Software": None})
