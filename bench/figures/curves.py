"""The figures made of curves: errors and singular values during training, and against depth and width."""

from __future__ import annotations

from collections.abc import Callable

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.figures.runs import FROZEN_AT, Run, Scale, baboon_air, deep, syn_netflix
from bench.figures.style import (
    LINES,
    STEPS,
    Drawing,
    OutcomeOf,
    finish_panel,
    gap_title,
    grid,
    legend_below,
    letter,
    number,
    plain_log,
)

BABOON_GAPS = ("patch", "30%", "texture")
DEPTHS = (2, 3, 4)


# --- depth: MSE on observed against missing entries, for several depths ---


def depth_panels(scale: Scale) -> list[list[Run]]:
    """Return one run per depth for each panel, each to the end that the paper gives them."""
    cases = (
        ("Rank-5 80%", "DMF"),
        ("Barbara 80%", "DMF"),
        ("Barbara 80%", "DMF+TV"),
        ("Barbara patch", "DMF+TV"),
        ("Barbara texture", "DMF+TV"),
        ("IC 80%", "DMF+TV"),
    )
    # They end after hundreds of iterations, not thousands.
    options = {"observed_mse": 1e-3, "singular_values": 12, "every": scale.steps(20)}
    return [
        [deep(problem, method, scale, depth=depth, **options) for depth in DEPTHS]
        for problem, method in cases
    ]


def draw_depth(outcome_of: OutcomeOf, scale: Scale) -> Figure:
    figure, axes = grid(2, 3, 3.6, 3.7)
    for position, (runs, panel) in enumerate(zip(depth_panels(scale), axes.flat, strict=True)):
        for run, colour in zip(runs, STEPS, strict=False):
            outcome = outcome_of(run)
            observed, unobserved = outcome["observed_mse"], outcome["unobserved_mse"]
            label = f"L = {run.depth}: {unobserved[-1]:.2g}"
            panel.loglog(observed, unobserved, color=colour, label=label)
            panel.loglog(observed[-1], unobserved[-1], "D", color=colour, markersize=5)
        title = f"{letter(position)} {runs[0].method}: {gap_title(runs[0].problem)}"
        _finish_mse_panel(panel, title, fontsize=9)
    return figure


def _finish_mse_panel(panel: Axes, title: str, fontsize: int = 10) -> None:
    panel.set(xlabel="MSE on observed entries", ylabel="MSE on missing entries")
    panel.invert_xaxis()
    finish_panel(panel, title, fontsize)
    legend_below(panel, "missing MSE at the end")


# --- singular values: their growth during training ---


def singular_value_panels(scale: Scale) -> list[list[Run]]:
    return depth_panels(scale)[:3]


def draw_singular_values(outcome_of: OutcomeOf, scale: Scale) -> Figure:
    rows = singular_value_panels(scale)
    figure, axes = grid(len(rows), 1 + len(DEPTHS), 3.0, 2.5)
    for runs, line in zip(rows, axes, strict=True):
        for run, panel, colour in zip(runs, line[:-1], STEPS, strict=False):
            outcome = outcome_of(run)
            iteration = outcome["iteration"]
            panel.plot(iteration, outcome["singular_values"], color=colour, linewidth=1)
            panel.set_yscale("symlog", linthresh=1)
            panel.set_ylim(bottom=0)
            panel.set_title(f"{run.method}, L = {run.depth}: {gap_title(run.problem)}", fontsize=8)
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


# --- frozen: AIR against its own graphs, frozen at some moment ---


def frozen_panels(scale: Scale) -> list[list[Run]]:
    """Return AIR and then, from the same start, the same model with each of the frozen graphs."""
    moments = [scale.steps(moment) for moment in FROZEN_AT]
    return [
        [
            baboon_air(gaps, scale),
            *(deep(f"Baboon {gaps}", "AIR frozen", scale, frozen_at=moment) for moment in moments),
        ]
        for gaps in BABOON_GAPS
    ]


def draw_frozen(outcome_of: OutcomeOf, scale: Scale) -> Figure:
    figure, axes = grid(1, len(BABOON_GAPS), 3.7, 4.0)
    styles = [{**LINES["AIR"], "linewidth": 2}, *({"color": colour} for colour in STEPS)]
    for position, (runs, panel) in enumerate(zip(frozen_panels(scale), axes.flat, strict=True)):
        highest = 0.0
        for run, style in zip(runs, styles, strict=False):
            outcome = outcome_of(run)
            nmae = outcome["training_nmae"]
            what = "adaptive" if run.frozen_at is None else f"frozen at t = {run.frozen_at}"
            panel.plot(outcome["iteration"], nmae, label=f"{what}: {nmae[-1]:.4f}", **style)
            highest = max(highest, *nmae[1:])
        panel.set(xlabel="iteration", ylabel="NMAE on missing entries")
        panel.set_ylim(top=1.05 * highest)  # without the start, where X is 0, which would flatten the rest
        finish_panel(panel, f"{letter(position)} {gap_title(runs[0].problem)}")
        legend_below(panel, "last NMAE")
    return figure


# --- trajectories: MSE on observed against missing entries, for DMF, DMF+TV and AIR ---


def trajectory_panels(scale: Scale) -> list[list[Run]]:
    return [
        [
            *(deep(f"Baboon {gaps}", method, scale) for method in ("DMF", "DMF+TV")),
            baboon_air(gaps, scale),
        ]
        for gaps in BABOON_GAPS
    ]


def draw_trajectories(outcome_of: OutcomeOf, scale: Scale) -> Figure:
    figure, axes = grid(1, len(BABOON_GAPS), 3.7, 4.0)
    for position, (runs, panel) in enumerate(zip(trajectory_panels(scale), axes.flat, strict=True)):
        for run in runs:
            outcome = outcome_of(run)
            observed, unobserved = outcome["observed_mse"], outcome["unobserved_mse"]
            style = LINES[run.method]
            panel.loglog(observed, unobserved, label=f"{run.method}: {unobserved[-1]:.4f}", **style)
            panel.loglog(observed[0], unobserved[0], "o", color="black", markersize=4)
            panel.loglog(observed[-1], unobserved[-1], "D", color=style["color"], markersize=6)
        _finish_mse_panel(panel, f"{letter(position)} {gap_title(runs[0].problem)}")
    return figure


# --- training: NMAE of DMF and AIR during training ---


def training_panels(scale: Scale) -> list[list[Run]]:
    def run(problem: str, method: str) -> Run:
        if problem == "Syn-Netflix 70%":
            return syn_netflix(method, scale)
        return deep(problem, method, scale)

    pictures = [f"Cameraman {gaps}" for gaps in ("30%", "texture", "patch")]
    problems = (*pictures, "Syn-Netflix 70%", "IC 20%", "GPCR 20%")
    return [[run(problem, method) for method in ("DMF", "AIR")] for problem in problems]


def draw_training(outcome_of: OutcomeOf, scale: Scale) -> Figure:
    figure, axes = grid(2, 3, 3.6, 3.5)
    for position, (runs, panel) in enumerate(zip(training_panels(scale), axes.flat, strict=True)):
        for run in runs:
            outcome = outcome_of(run)
            iteration, nmae = outcome["iteration"], outcome["training_nmae"]
            best = int(nmae.argmin())
            label = f"{run.method}: {number(nmae[-1])}, least {number(nmae[best])}"
            panel.semilogy(iteration, nmae, label=label, linewidth=1.2, **LINES[run.method])
            panel.semilogy(iteration[best], nmae[best], "v", color=LINES[run.method]["color"], markersize=6)
        panel.set(xlabel="iteration", ylabel="NMAE on missing entries")
        finish_panel(panel, f"{letter(position)} {gap_title(runs[0].problem)}")
        legend_below(panel, "last NMAE, and the least (▼)")
    return figure


# --- depth and width: NMAE of AIR and DMF on Barbara with half of it missing ---

WIDTH_PROBLEM = "Barbara 50%"
MORE_DEPTHS = (2, 3, 4, 5)
RANKS = (10, 30, 60, 120, 240)
FULL_RANK = 240


def depth_width_panels(scale: Scale) -> list[list[Run]]:
    """Return the runs over depths and over ranks of DMF, then those of AIR; the full rank is depth three."""
    ranks = [None if rank == FULL_RANK else scale.length(rank) for rank in RANKS]
    return [
        runs
        for method in ("DMF", "AIR")
        for runs in (
            [deep(WIDTH_PROBLEM, method, scale, depth=depth) for depth in MORE_DEPTHS],
            [deep(WIDTH_PROBLEM, method, scale, rank=rank) for rank in ranks],
        )
    ]


def draw_depth_width(outcome_of: OutcomeOf, scale: Scale) -> Figure:
    figure, axes = grid(2, 3, 3.6, 3.0)
    full = scale.length(FULL_RANK)
    panels = depth_width_panels(scale)
    quantities: tuple[tuple[str, str, Callable[[Run], int]], ...] = (
        ("L", "number of factors L", lambda run: run.depth),
        ("r", "inner dimension r", lambda run: run.rank or full),
    )
    for row, (symbol, label, value_of) in enumerate(quantities):
        dmf_and_air = panels[row::2]
        for panel, runs in zip(axes[row], reversed(dmf_and_air), strict=False):
            for run, colour in zip(runs, STEPS, strict=False):
                outcome = outcome_of(run)
                nmae = outcome["training_nmae"]
                panel.semilogy(outcome["iteration"], nmae, color=colour, label=f"{symbol} = {value_of(run)}")
            panel.set(xlabel="iteration", ylabel="NMAE on missing entries")
            panel.set_title(f"{runs[0].method}, during training", fontsize=10)
            panel.legend(fontsize=8)
        _draw_ends(axes[row][-1], dmf_and_air, value_of, outcome_of)
        axes[row][-1].set(xlabel=label, ylabel="NMAE on missing entries")
    for position, panel in enumerate(axes.flat):
        finish_panel(panel, f"{letter(position)} {panel.get_title()}")
    return figure


def _draw_ends(
    panel: Axes, lines: list[list[Run]], value_of: Callable[[Run], int], outcome_of: OutcomeOf
) -> None:
    """Draw the last error and the least one against depth or rank."""
    for runs in lines:
        errors = [outcome_of(run)["training_nmae"] for run in runs]
        values, method = [value_of(run) for run in runs], runs[0].method
        colour = LINES[method]["color"]
        panel.plot(values, [error[-1] for error in errors], "o-", color=colour, label=f"{method}, last")
        panel.plot(values, [error.min() for error in errors], "v:", color=colour, label=f"{method}, least")
    panel.set_xticks(values)
    panel.set_title("at the end, and at best", fontsize=10)
    panel.legend(fontsize=8)


CURVES = (
    Drawing("depth", depth_panels, draw_depth),
    Drawing("singular_values", singular_value_panels, draw_singular_values),
    Drawing("frozen", frozen_panels, draw_frozen),
    Drawing("trajectories", trajectory_panels, draw_trajectories),
    Drawing("training", training_panels, draw_training),
    Drawing("depth_width", depth_width_panels, draw_depth_width),
)
