"""Heat maps of the learned graphs over rows and columns, beside the relations that are true."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from bench.figures.compute import Outcome
from bench.figures.drawing import OutcomeOf
from bench.figures.runs import TRUTH, Run, baboon_air, syn_netflix
from bench.figures.scale import Scale
from bench.figures.style import bare, grid

BABOON_AT = (4000, 7000, 10_000)
SYN_NETFLIX_AT = (5000, 7000, 10_000, 40_000)
LINES = ("row", "column")


def baboon_runs(scale: Scale) -> list[Run]:
    return [Run("Baboon 30%", TRUTH, scale=scale), baboon_air("30%", scale)]


def draw_baboon(outcome_of: OutcomeOf, scale: Scale) -> Figure:
    truth, learned = (outcome_of(run) for run in baboon_runs(scale))
    figure, axes = grid(2, 2 + len(BABOON_AT), 2.5, 2.6)
    picture = truth["X"]
    for line, turned, panels in zip(LINES, (picture, picture.T), axes, strict=True):
        panels[0].imshow(turned, cmap="gray", vmin=0, vmax=1)
        bare(panels[0], "Baboon" if line == "row" else "Baboon, transposed")
        image = panels[1].imshow(distances(turned), cmap="Blues_r")
        bare(panels[1], f"true distance of {line}s (RMS)")
        figure.colorbar(image, ax=panels[1], shrink=0.7)
        draw_learned(figure, panels[2:], learned, line, [scale.steps(t) for t in BABOON_AT])
    return figure


def syn_netflix_runs(scale: Scale) -> list[Run]:
    return [Run("Syn-Netflix 70%", TRUTH, scale=scale), syn_netflix("AIR", scale)]


def draw_syn_netflix(outcome_of: OutcomeOf, scale: Scale) -> Figure:
    truth, learned = (outcome_of(run) for run in syn_netflix_runs(scale))
    figure, axes = grid(2, 2 + len(SYN_NETFLIX_AT), 2.5, 2.6)
    ratings = truth["X"]
    for line, turned, panels in zip(LINES, (ratings, ratings.T), axes, strict=True):
        image = panels[0].imshow(without_diagonal(truth[f"{line}_graph"]), cmap="Blues", vmin=0)
        bare(panels[0], f"given graph of {'users' if line == 'row' else 'items'}")
        figure.colorbar(image, ax=panels[0], shrink=0.7)
        image = panels[1].imshow(distances(turned), cmap="Blues_r")
        bare(panels[1], f"true distance of {line}s (RMS)")
        figure.colorbar(image, ax=panels[1], shrink=0.7)
        draw_learned(figure, panels[2:], learned, line, [scale.steps(t) for t in SYN_NETFLIX_AT])
    return figure


def draw_learned(
    figure: Figure, panels: np.ndarray, learned: Outcome, line: str, moments: list[int]
) -> list[Axes]:
    """Draw −L off its diagonal, which is A, at several moments on one logarithmic scale."""
    position = [list(learned["graphs_at"]).index(moment) for moment in moments]
    graphs = [without_diagonal(learned[f"{line}_graphs"][index]) for index in position]
    size = graphs[0].shape[0]
    # In units of a graph that connects all lines alike: 1/size.
    norm = LogNorm(1e-2, 1e2, clip=True)
    for graph, moment, panel in zip(graphs, moments, panels, strict=True):
        image = panel.imshow(np.maximum(graph * size, 1e-30), cmap="Blues", norm=norm)
        kept = np.nansum(graph) / size
        bare(panel, f"$-L_{line[0]}$ at t = {moment}\nmean degree {kept:.3f}")
    figure.colorbar(image, ax=list(panels), shrink=0.7, label="times uniform")
    return list(panels)


def without_diagonal(graph: np.ndarray) -> np.ndarray:
    """Return a copy without the edges from a node to itself, which have no meaning."""
    return np.where(np.eye(len(graph), dtype=bool), np.nan, graph)


def distances(lines: np.ndarray) -> np.ndarray:
    """Return the root mean square difference of every two rows."""
    gram = lines.astype(np.float64) @ lines.T.astype(np.float64)
    norms = np.diagonal(gram)
    squares = norms[:, None] + norms[None, :] - 2 * gram
    return np.sqrt(np.maximum(squares, 0) / lines.shape[1])
