"""Who over-fits? The error on missing entries while DMF and AIR are trained."""

from __future__ import annotations

from matplotlib.figure import Figure

from bench.figures.drawing import OutcomeOf
from bench.figures.runs import Run, deep, syn_netflix
from bench.figures.scale import Scale
from bench.figures.style import LINES, gap_title, grid, legend_below, letter, number, plain_log

PANELS = (
    "Cameraman 30%",
    "Cameraman texture",
    "Cameraman patch",
    "Syn-Netflix 70%",
    "IC 20%",
    "GPCR 20%",
)


def panel_runs(problem: str, scale: Scale) -> list[Run]:
    if problem == "Syn-Netflix 70%":
        return [syn_netflix(method, scale) for method in ("DMF", "AIR")]
    return [deep(problem, method, scale) for method in ("DMF", "AIR")]


def runs(scale: Scale) -> list[Run]:
    return [run for problem in PANELS for run in panel_runs(problem, scale)]


def draw(outcome_of: OutcomeOf, scale: Scale) -> Figure:
    figure, axes = grid(2, 3, 3.6, 3.5)
    for position, (problem, panel) in enumerate(zip(PANELS, axes.flat, strict=True)):
        for run in panel_runs(problem, scale):
            outcome = outcome_of(run)
            iteration, nmae = outcome["iteration"], outcome["training_nmae"]
            best = int(nmae.argmin())
            label = f"{run.method}: {number(nmae[-1])}, least {number(nmae[best])}"
            panel.semilogy(iteration, nmae, label=label, linewidth=1.2, **LINES[run.method])
            panel.semilogy(iteration[best], nmae[best], "v", color=LINES[run.method]["color"], markersize=6)
        panel.set(xlabel="iteration", ylabel="NMAE on missing entries")
        panel.set_title(f"{letter(position)} {gap_title(problem)}", fontsize=10)
        panel.grid(which="both", alpha=0.2)
        plain_log(panel.yaxis, *panel.get_ylim())
        legend_below(panel, "last NMAE, and the least (▼)")
    return figure
