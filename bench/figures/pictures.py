"""Barbara as every method recovers it, beside what they were given."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from bench.figures.drawing import OutcomeOf
from bench.figures.runs import DEFAULTS, GAPS, TRUTH, Run, deep
from bench.figures.scale import Scale
from bench.figures.style import bare, grid

QUIET = ("KNN", "SVD", "PNMC", "biharmonic")


def panel_runs(gaps: str, scale: Scale) -> list[Run]:
    """Return one run per method; AIR with airnp's own λ, and both it and the defaults stop by themselves."""
    problem = f"Barbara {gaps}"
    return [
        *(Run(problem, method, scale=scale) for method in QUIET),
        *(deep(problem, method, scale) for method in ("DMF", "DMF+TV")),
        *(deep(problem, method, scale, 40_000, stop="auto", weight=None) for method in ("AIR", DEFAULTS)),
    ]


def truth_run(gaps: str, scale: Scale) -> Run:
    return Run(f"Barbara {gaps}", TRUTH, scale=scale)


def runs(scale: Scale) -> list[Run]:
    return [run for gaps in GAPS for run in (truth_run(gaps, scale), *panel_runs(gaps, scale))]


def draw(outcome_of: OutcomeOf, scale: Scale) -> Figure:
    figure, axes = grid(len(GAPS), 2 + len(panel_runs(GAPS[0], scale)), 2.2, 2.45)
    for gaps, line in zip(GAPS, axes, strict=True):
        given = outcome_of(truth_run(gaps, scale))
        line[0].imshow(with_gaps(given["X"], given["mask"]), interpolation="nearest")
        bare(line[0], f"given: {1 - given['mask'].mean():.0%} missing")
        for run, panel in zip(panel_runs(gaps, scale), line[1:-1], strict=True):
            outcome = outcome_of(run)
            # Some methods keep the observed pixels and some do not; the error counts the missing ones alone.
            filled = np.where(given["mask"], given["X"], outcome["X"])
            panel.imshow(filled, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
            bare(panel, f"{run.method}: {float(outcome['nmae']):.4f}")
        line[-1].imshow(given["X"], cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        bare(line[-1], "truth")
    return figure


def with_gaps(picture: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Return an RGB picture whose missing pixels are red, which no grey can be mistaken for."""
    red = np.array([0.8, 0.15, 0.1])
    return np.where(mask[..., None], np.clip(picture, 0, 1)[..., None], red)
