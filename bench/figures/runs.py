"""Descriptions of runs, in the paper's sizes or in small ones, and the runs that several figures share."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass

GAPS = ("30%", "patch", "texture")
"""The three kinds of masks of the paper's pictures."""

DEEP = ("DMF", "DMF+TV", "AIR", "AIR frozen")
"""Methods that iterate, so that their training can be recorded."""

AUTHORS_WEIGHT = 1e-4
"""λ of both learned graphs in the authors' program. airnp's default is half of it at 240×240, which goes
through the same stages earlier; the paper's moments, such as t = 4000, belong to the authors' λ."""


TRUTH = "truth"
"""Computes nothing; keeps the complete matrix, its mask and its graphs, for figures that show them."""


@dataclass(frozen=True)
class Scale:
    """Divisors of sizes and iterations: 1 for the paper's, larger for a quick test."""

    size: int = 1
    iterations: int = 1

    def steps(self, iterations: int) -> int:
        """Return the number of iterations that replaces one of the paper's."""
        return max(1, iterations // self.iterations)

    def length(self, lines: int) -> int:
        """Return the number of rows, columns or components that replaces one of the paper's."""
        return max(1, lines // self.size)


FULL = Scale()
QUICK = Scale(size=4, iterations=10)


@dataclass(frozen=True)
class Run:
    """One method on one problem.

    Attributes
    ----------
    problem : str
        As :func:`bench.figures.compute.load` takes it.
    method : str
        One of :data:`DEEP`, :data:`TRUTH`, or a key of :data:`bench.figures.compute.OTHERS`.
    iterations : int
        The number of iterations; with ``stop="auto"`` the largest number.
    stop : None or "auto"
        As :func:`airnp.fit` takes it.
    every : int
        Iterations between two records.
    weight : float
        λ of AIR's graphs; None for airnp's default.
    graphs_at : tuple of int
        Iterations at which to keep the learned graphs.
    frozen_at : int
        The iteration of AIR whose graphs "AIR frozen" takes.
    singular_values : int
        How many of the largest to record.
    observed_mse : float
        The run ends when the mean squared error on the observed entries is below this.
    """

    problem: str
    method: str
    iterations: int = 0
    stop: str | None = None
    every: int = 100
    depth: int = 3
    rank: int | None = None
    weight: float | None = None
    graphs_at: tuple[int, ...] = ()
    frozen_at: int | None = None
    singular_values: int = 0
    observed_mse: float | None = None
    scale: Scale = FULL
    seed: int = 0

    def __post_init__(self) -> None:
        unseen = [moment for moment in self.graphs_at if moment % self.every]
        if unseen:
            raise ValueError(
                f"graphs_at: nothing is recorded at {unseen}, only every {self.every} iterations"
            )

    @property
    def name(self) -> str:
        """A file name from the settings that tell the runs of one scale apart."""
        parts = [self.problem, self.method]
        parts += [self.stop] if self.stop else []
        parts += [f"at {self.frozen_at}"] if self.frozen_at else []
        parts += [f"depth {self.depth}"] if self.depth != 3 else []
        parts += [f"rank {self.rank}"] if self.rank else []
        parts += [f"until {self.observed_mse:g}"] if self.observed_mse else []
        return re.sub(r"[^a-z0-9]+", "-", " ".join(parts).lower().replace("%", " percent")).strip("-")

    @property
    def source(self) -> Run | None:
        """The run that this one needs: AIR, whose graphs are frozen."""
        if self.frozen_at is None:
            return None
        data, _, gaps = self.problem.partition(" ")
        return baboon_air(gaps, self.scale) if data == "Baboon" else None

    def settings(self) -> dict[str, object]:
        """Return all settings, in types that JSON has."""
        return {**asdict(self), "graphs_at": list(self.graphs_at)}


FROZEN_AT = (4000, 7000, 9000)


def deep(problem: str, method: str, scale: Scale, iterations: int = 10_000, **options: object) -> Run:
    """Return a run of a deep factorisation; AIR has the authors' λ."""
    weight = AUTHORS_WEIGHT if method == "AIR" else None
    options = {"weight": weight, "every": scale.steps(100), "scale": scale, **options}
    return Run(problem, method, scale.steps(iterations), **options)


def baboon_air(gaps: str, scale: Scale) -> Run:
    """Return AIR on Baboon, which three figures use."""
    moments = tuple(scale.steps(t) for t in (*FROZEN_AT, 10_000))
    return deep(f"Baboon {gaps}", "AIR", scale, graphs_at=moments)


def syn_netflix(method: str, scale: Scale) -> Run:
    """Return DMF or AIR on Syn-Netflix, which converges slowly; two figures use it."""
    moments = tuple(scale.steps(t) for t in (5000, 7000, 10_000, 40_000)) if method == "AIR" else ()
    return deep("Syn-Netflix 70%", method, scale, 40_000, graphs_at=moments)
