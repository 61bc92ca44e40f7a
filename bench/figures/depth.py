"""Does depth help? Error on observed against unobserved entries, for several depths."""

from __future__ import annotations

from matplotlib.figure import Figure

from bench.figures.drawing import OutcomeOf
from bench.figures.runs import Run, deep
from bench.figures.scale import Scale
from bench.figures.style import STEPS, gap_title, grid, legend_below, letter, plain_log

DEPTHS = (2, 3, 4)
PANELS = (
    ("Rank-5 80%", "DMF"),
    ("Barbara 80%", "DMF"),
    ("Barbara 80%", "DMF+TV"),
    ("Barbara patch", "DMF+TV"),
    ("Barbara texture", "DMF+TV"),
    ("IC 80%", "DMF+TV"),
)


def panel_runs(problem: str, method: str, scale: Scale) -> list[Run]:
    """Return one run per depth, each to the end that the paper gives them."""
    # They end after hundreds of iterations, not thousands.
    options = {"observed_mse": 1e-3, "singular_values": 12, "every": scale.steps(20)}
    return [deep(problem, method, scale, depth=depth, **options) for depth in DEPTHS]


def runs(scale: Scale) -> list[Run]:
    return [run for problem, method in PANELS for run in panel_runs(problem, method, scale)]


def draw(outcome_of: OutcomeOf, scale: Scale) -> Figure:
    figure, axes = grid(2, 3, 3.6, 3.7)
    for position, (problem, method) in enumerate(PANELS):
        panel = axes.flat[position]
        for run, colour in zip(panel_runs(problem, method, scale), STEPS, strict=False):
            outcome = outcome_of(run)
            observed, unobserved = outcome["observed_mse"], outcome["unobserved_mse"]
            label = f"L = {run.depth}: {unobserved[-1]:.2g}"
            panel.loglog(observed, unobserved, color=colour, label=label)
            panel.loglog(observed[-1], unobserved[-1], "D", color=colour, markersize=5)
        panel.set(xlabel="MSE on observed entries", ylabel="MSE on missing entries")
        panel.invert_xaxis()
        panel.set_title(f"{letter(position)} {method}: {gap_title(problem)}", fontsize=9)
        panel.grid(which="both", alpha=0.2)
        plain_log(panel.yaxis, *panel.get_ylim())
        legend_below(panel, "missing MSE at the end")
    return figure
