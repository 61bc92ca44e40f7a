"""How many factors, and how wide? AIR and DMF on Barbara with half of it missing."""

from __future__ import annotations

from matplotlib.figure import Figure

from bench.figures.drawing import OutcomeOf
from bench.figures.runs import Run, deep
from bench.figures.scale import Scale
from bench.figures.style import LINES, STEPS, grid, letter, plain_log

PROBLEM = "Barbara 50%"
METHODS = ("DMF", "AIR")
DEPTHS = (2, 3, 4, 5)
RANKS = (10, 30, 60, 120, 240)
FULL_RANK = 240


def depth_runs(method: str, scale: Scale) -> list[Run]:
    return [deep(PROBLEM, method, scale, depth=depth) for depth in DEPTHS]


def rank_runs(method: str, scale: Scale) -> list[Run]:
    """Return one run per rank; the full one is that of depth three."""
    ranks = [None if rank == FULL_RANK else scale.length(rank) for rank in RANKS]
    return [deep(PROBLEM, method, scale, rank=rank) for rank in ranks]


def runs(scale: Scale) -> list[Run]:
    everything = [run for method in METHODS for of in (depth_runs, rank_runs) for run in of(method, scale)]
    return list(dict.fromkeys(everything))


def draw(outcome_of: OutcomeOf, scale: Scale) -> Figure:
    figure, axes = grid(2, 3, 3.6, 3.0)
    full = scale.length(FULL_RANK)
    choices = (
        ("L", "number of factors L", depth_runs, lambda run: run.depth),
        ("r", "inner dimension r", rank_runs, lambda run: run.rank or full),
    )
    for row, (symbol, label, runs_of, value_of) in enumerate(choices):
        for panel, method in zip(axes[row], reversed(METHODS), strict=False):
            for run, colour in zip(runs_of(method, scale), STEPS, strict=False):
                outcome = outcome_of(run)
                nmae = outcome["training_nmae"]
                panel.semilogy(outcome["iteration"], nmae, color=colour, label=f"{symbol} = {value_of(run)}")
            panel.set(xlabel="iteration", ylabel="NMAE on missing entries")
            panel.set_title(f"{method}, during training", fontsize=10)
            panel.legend(fontsize=8)
        draw_ends(axes[row][-1], runs_of, value_of, outcome_of, scale)
        axes[row][-1].set(xlabel=label, ylabel="NMAE on missing entries")
    for position, panel in enumerate(axes.flat):
        panel.set_title(f"{letter(position)} {panel.get_title()}", fontsize=10)
        panel.grid(which="both", alpha=0.2)
        if panel.get_yscale() == "log":
            plain_log(panel.yaxis, *panel.get_ylim())
    return figure


def draw_ends(panel, runs_of, value_of, outcome_of: OutcomeOf, scale: Scale) -> None:
    """Draw the last error and the least one against depth or rank."""
    for method in METHODS:
        chosen = runs_of(method, scale)
        errors = [outcome_of(run)["training_nmae"] for run in chosen]
        values = [value_of(run) for run in chosen]
        colour = LINES[method]["color"]
        panel.plot(values, [error[-1] for error in errors], "o-", color=colour, label=f"{method}, last")
        panel.plot(values, [error.min() for error in errors], "v:", color=colour, label=f"{method}, least")
    panel.set_xticks(values)
    panel.set_title("at the end, and at best", fontsize=10)
    panel.legend(fontsize=8)
