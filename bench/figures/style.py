"""How all figures look: one colour and one line style per method, in colours that most eyes tell apart."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, StrMethodFormatter

LINES: dict[str, dict[str, Any]] = {
    "DMF": {"color": "#d55e00", "linestyle": "--"},
    "DMF+TV": {"color": "#009e73", "linestyle": "-."},
    "AIR": {"color": "#0072b2", "linestyle": "-"},
}
STEPS = ("#e69f00", "#cc79a7", "#7a3b69", "#3d3d3d", "#56b4e9")
"""For a row of settings of one method."""


def grid(rows: int, columns: int, width: float, height: float) -> tuple[Figure, np.ndarray]:
    """Return a figure and its axes, each of so many inches."""
    # Not through pyplot, which would keep every figure alive and ask for a display.
    figure = Figure(figsize=(columns * width, rows * height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def letter(position: int) -> str:
    """Return (a), (b), …"""
    return f"({chr(ord('a') + position)})"


def plain_log(axis: Axis, lowest: float, highest: float) -> None:
    """Label a logarithmic axis with numbers as people write them, and enough of them on a short one."""
    decades = math.log10(highest / lowest)
    labelled = (2, 3, 4, 5, 7) if decades < 1 else (2, 5) if decades < 2 else ()

    def text(value: float, _: int) -> str:
        leading = round(value / 10 ** math.floor(math.log10(value) + 1e-9))
        return f"{value:g}" if leading in labelled else ""

    if decades < 5:
        axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(FuncFormatter(text))


def legend_below(axes: Axes, title: str) -> None:
    """Put the legend where it cannot hide a curve."""
    place = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.19)}
    axes.legend(title=title, fontsize=8, title_fontsize=8, frameon=False, **place)


def number(error: float) -> str:
    """Return an error with as many digits as tell it from others of its size."""
    return f"{error:.4f}" if error >= 0.002 else f"{error:.5f}"


def bare(axes: Axes, title: str = "") -> None:
    """Leave only the picture and its title."""
    axes.set(xticks=[], yticks=[])
    axes.set_title(title, fontsize=9)


def gap_title(problem: str) -> str:
    """Return a problem's name as a reader would say it."""
    data, _, gaps = problem.partition(" ")
    missing = {"patch": "patches missing", "texture": "texture missing"}
    return f"{data}, {missing.get(gaps, f'{gaps} missing')}"


def save(figure: Figure, path: Any) -> None:
    """Write a PNG that is the same, byte for byte, whenever the figure is."""
    figure.savefig(path, dpi=110, metadata={"Software": None})
