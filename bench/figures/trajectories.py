"""Does the error on missing entries follow the one on observed entries down? DMF, DMF+TV and AIR."""

from __future__ import annotations

from matplotlib.figure import Figure

from bench.figures.drawing import OutcomeOf
from bench.figures.runs import Run, baboon_air, deep
from bench.figures.scale import Scale
from bench.figures.style import LINES, gap_title, grid, legend_below, letter, plain_log

GAPS = ("patch", "30%", "texture")


def panel_runs(gaps: str, scale: Scale) -> list[Run]:
    others = [deep(f"Baboon {gaps}", method, scale) for method in ("DMF", "DMF+TV")]
    return [*others, baboon_air(gaps, scale)]


def runs(scale: Scale) -> list[Run]:
    return [run for gaps in GAPS for run in panel_runs(gaps, scale)]


def draw(outcome_of: OutcomeOf, scale: Scale) -> Figure:
    figure, axes = grid(1, len(GAPS), 3.7, 4.0)
    for position, (gaps, panel) in enumerate(zip(GAPS, axes.flat, strict=True)):
        for run in panel_runs(gaps, scale):
            outcome = outcome_of(run)
            observed, unobserved = outcome["observed_mse"], outcome["unobserved_mse"]
            style = LINES[run.method]
            panel.loglog(observed, unobserved, label=f"{run.method}: {unobserved[-1]:.4f}", **style)
            panel.loglog(observed[0], unobserved[0], "o", color="black", markersize=4)
            panel.loglog(observed[-1], unobserved[-1], "D", color=style["color"], markersize=6)
        panel.set(xlabel="MSE on observed entries", ylabel="MSE on missing entries")
        panel.invert_xaxis()
        panel.set_title(f"{letter(position)} {gap_title(f'Baboon {gaps}')}", fontsize=10)
        panel.grid(which="both", alpha=0.2)
        plain_log(panel.yaxis, *panel.get_ylim())
        legend_below(panel, "missing MSE at the end")
    return figure
