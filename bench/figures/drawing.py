"""What a figure is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from matplotlib.figure import Figure

from bench.figures.compute import Outcome
from bench.figures.runs import Run
from bench.figures.scale import Scale

OutcomeOf = Callable[[Run], Outcome]


@dataclass(frozen=True)
class Drawing:
    """A figure: the runs it needs, and how to draw what came out of them."""

    name: str
    runs: Callable[[Scale], list[Run]]
    draw: Callable[[OutcomeOf, Scale], Figure]
