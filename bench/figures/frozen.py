"""Is it worth it to go on learning the graphs? AIR against its own graphs, frozen at some moment."""

from __future__ import annotations

from matplotlib.figure import Figure

from bench.figures.drawing import OutcomeOf
from bench.figures.runs import FROZEN_AT, Run, baboon_air, deep
from bench.figures.scale import Scale
from bench.figures.style import LINES, STEPS, gap_title, grid, legend_below, letter

GAPS = ("patch", "30%", "texture")


def panel_runs(gaps: str, scale: Scale) -> list[Run]:
    """Return AIR and then, from the same start, the same model with each of the frozen graphs."""
    frozen = [
        deep(f"Baboon {gaps}", "AIR frozen", scale, frozen_at=scale.steps(moment)) for moment in FROZEN_AT
    ]
    return [baboon_air(gaps, scale), *frozen]


def runs(scale: Scale) -> list[Run]:
    return [run for gaps in GAPS for run in panel_runs(gaps, scale)]


def draw(outcome_of: OutcomeOf, scale: Scale) -> Figure:
    figure, axes = grid(1, len(GAPS), 3.7, 4.0)
    for position, (gaps, panel) in enumerate(zip(GAPS, axes.flat, strict=True)):
        adaptive, *frozen = panel_runs(gaps, scale)
        highest = 0.0
        styles = [{**LINES["AIR"], "linewidth": 2}, *({"color": colour} for colour in STEPS)]
        for run, style in zip([adaptive, *frozen], styles, strict=False):
            outcome = outcome_of(run)
            nmae = outcome["training_nmae"]
            what = "adaptive" if run is adaptive else f"frozen at t = {run.frozen_at}"
            panel.plot(outcome["iteration"], nmae, label=f"{what}: {nmae[-1]:.4f}", **style)
            highest = max(highest, *nmae[1:])
        panel.set(xlabel="iteration", ylabel="NMAE on missing entries")
        panel.set_ylim(top=1.05 * highest)  # the start, where X is 0, would flatten all the rest
        panel.set_title(f"{letter(position)} {gap_title(adaptive.problem)}", fontsize=10)
        panel.grid(which="both", alpha=0.2)
        legend_below(panel, "last NMAE")
    return figure
