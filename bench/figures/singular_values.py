"""How the singular values grow, one after the other, and what that does to the error."""

from __future__ import annotations

from matplotlib.figure import Figure

from bench.figures import depth
from bench.figures.drawing import OutcomeOf
from bench.figures.runs import Run
from bench.figures.scale import Scale
from bench.figures.style import STEPS, gap_title, grid, plain_log

PANELS = depth.PANELS[:3]


def runs(scale: Scale) -> list[Run]:
    return [run for panel in PANELS for run in depth.panel_runs(*panel, scale)]


def draw(outcome_of: OutcomeOf, scale: Scale) -> Figure:
    columns = 1 + len(depth.DEPTHS)
    figure, axes = grid(len(PANELS), columns, 3.0, 2.5)
    for (problem, method), line in zip(PANELS, axes, strict=True):
        for run, panel, colour in zip(
            depth.panel_runs(problem, method, scale), line[:-1], STEPS, strict=False
        ):
            outcome = outcome_of(run)
            iteration = outcome["iteration"]
            panel.plot(iteration, outcome["singular_values"], color=colour, linewidth=1)
            panel.set_yscale("symlog", linthresh=1)
            panel.set_ylim(bottom=0)
            panel.set_title(f"{method}, L = {run.depth}: {gap_title(problem)}", fontsize=8)
            line[-1].semilogy(iteration, outcome["unobserved_mse"], color=colour, label=f"L = {run.depth}")
        line[0].set_ylabel("12 largest singular values")
        line[-1].set_title("MSE on missing entries", fontsize=8)
        line[-1].legend(fontsize=8)
        plain_log(line[-1].yaxis, *line[-1].get_ylim())
        for panel in line:
            panel.grid(alpha=0.2)
            panel.tick_params(which="both", labelsize=8)
    for panel in axes[-1]:
        panel.set_xlabel("iteration")
    return figure
