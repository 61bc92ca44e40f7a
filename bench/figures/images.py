"""The figures made of images: learned graphs as heat maps, and pictures as every method recovers them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from bench.figures.compute import Outcome
from bench.figures.runs import GAPS, TRUTH, Run, Scale, baboon_air, deep, syn_netflix
from bench.figures.style import Drawing, OutcomeOf, bare, grid

# --- learned graphs over rows and columns, beside the true distances ---

BABOON_AT = (4000, 7000, 10_000)
SYN_NETFLIX_AT = (5000, 7000, 10_000, 40_000)


def baboon_panels(scale: Scale) -> list[list[Run]]:
    return [[Run("Baboon 30%", TRUTH, scale=scale), baboon_air("30%", scale)]]


def syn_netflix_panels(scale: Scale) -> list[list[Run]]:
    return [[Run("Syn-Netflix 70%", TRUTH, scale=scale), syn_netflix("AIR", scale)]]


def draw_baboon(outcome_of: OutcomeOf, scale: Scale) -> Figure:
    def draw_first(figure: Figure, panel: Axes, truth: Outcome, line: str) -> None:
        picture = truth["X"] if line == "row" else truth["X"].T
        panel.imshow(picture, cmap="gray", vmin=0, vmax=1)
        bare(panel, "Baboon" if line == "row" else "Baboon, transposed")

    return _draw_graphs(baboon_panels(scale)[0], draw_first, BABOON_AT, outcome_of, scale)


def draw_syn_netflix(outcome_of: OutcomeOf, scale: Scale) -> Figure:
    def draw_first(figure: Figure, panel: Axes, truth: Outcome, line: str) -> None:
        image = panel.imshow(without_diagonal(truth[f"{line}_graph"]), cmap="Blues", vmin=0)
        bare(panel, f"given graph of {'users' if line == 'row' else 'items'}")
        figure.colorbar(image, ax=panel, shrink=0.7)

    return _draw_graphs(syn_netflix_panels(scale)[0], draw_first, SYN_NETFLIX_AT, outcome_of, scale)


def _draw_graphs(
    runs: Sequence[Run],
    draw_first: Callable[[Figure, Axes, Outcome, str], None],
    moments: Sequence[int],
    outcome_of: OutcomeOf,
    scale: Scale,
) -> Figure:
    """Draw, for rows and columns, a first panel, the true distances, and the graphs of some moments."""
    truth, learned = (outcome_of(run) for run in runs)
    figure, axes = grid(2, 2 + len(moments), 2.5, 2.6)
    for line, lines, panels in zip(("row", "column"), (truth["X"], truth["X"].T), axes, strict=True):
        draw_first(figure, panels[0], truth, line)
        image = panels[1].imshow(distances(lines), cmap="Blues_r")
        bare(panels[1], f"true distance of {line}s (RMS)")
        figure.colorbar(image, ax=panels[1], shrink=0.7)
        _draw_learned(figure, panels[2:], learned, line, [scale.steps(moment) for moment in moments])
    return figure


def _draw_learned(
    figure: Figure, panels: np.ndarray, learned: Outcome, line: str, moments: Sequence[int]
) -> None:
    """Draw −L off its diagonal, which is A, at several moments on one logarithmic scale."""
    positions = [list(learned["graphs_at"]).index(moment) for moment in moments]
    graphs = [without_diagonal(learned[f"{line}_graphs"][position]) for position in positions]
    size = graphs[0].shape[0]
    # In units of 1/size, the weights of a graph that connects all lines alike.
    norm = LogNorm(1e-2, 1e2, clip=True)
    for graph, moment, panel in zip(graphs, moments, panels, strict=True):
        image = panel.imshow(np.maximum(graph * size, 1e-30), cmap="Blues", norm=norm)
        degree = np.nansum(graph) / size
        bare(panel, f"$-L_{line[0]}$ at t = {moment}\nmean degree {degree:.3f}")
    figure.colorbar(image, ax=list(panels), shrink=0.7, label="times uniform")


def without_diagonal(graph: np.ndarray) -> np.ndarray:
    """Return a copy without the edges from a node to itself, which have no meaning."""
    return np.where(np.eye(len(graph), dtype=bool), np.nan, graph)


def distances(lines: np.ndarray) -> np.ndarray:
    """Return the root mean square difference of every two rows."""
    gram = lines.astype(np.float64) @ lines.T.astype(np.float64)
    norms = np.diagonal(gram)
    squares = norms[:, None] + norms[None, :] - 2 * gram
    return np.sqrt(np.maximum(squares, 0) / lines.shape[1])


# --- Barbara, recovered by every method ---


def picture_panels(scale: Scale) -> list[list[Run]]:
    """Return the truth and one run per method; AIR is ``airnp.fit`` with its defaults."""

    def runs(problem: str) -> list[Run]:
        return [
            *(Run(problem, method, scale=scale) for method in (TRUTH, "KNN", "SVD", "PNMC", "biharmonic")),
            *(deep(problem, method, scale) for method in ("DMF", "DMF+TV")),
            deep(problem, "AIR", scale, 40_000, stop="auto", weight=None),
        ]

    return [runs(f"Barbara {gaps}") for gaps in GAPS]


def draw_pictures(outcome_of: OutcomeOf, scale: Scale) -> Figure:
    rows = picture_panels(scale)
    figure, axes = grid(len(rows), 1 + len(rows[0]), 2.2, 2.45)
    for (truth, *runs), line in zip(rows, axes, strict=True):
        given = outcome_of(truth)
        line[0].imshow(with_gaps(given["X"], given["mask"]), interpolation="nearest")
        bare(line[0], f"given: {1 - given['mask'].mean():.0%} missing")
        for run, panel in zip(runs, line[1:-1], strict=True):
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


IMAGES = (
    Drawing("graphs_baboon", baboon_panels, draw_baboon),
    Drawing("graphs_syn_netflix", syn_netflix_panels, draw_syn_netflix),
    Drawing("pictures", picture_panels, draw_pictures),
)
