"""All figures, in the order of the paper."""

from __future__ import annotations

from bench.figures import (
    depth,
    depth_width,
    frozen,
    graphs,
    pictures,
    singular_values,
    training,
    trajectories,
)
from bench.figures.drawing import Drawing

FIGURES = {
    drawing.name: drawing
    for drawing in (
        Drawing("depth", depth.runs, depth.draw),
        Drawing("singular_values", singular_values.runs, singular_values.draw),
        Drawing("graphs_baboon", graphs.baboon_runs, graphs.draw_baboon),
        Drawing("graphs_syn_netflix", graphs.syn_netflix_runs, graphs.draw_syn_netflix),
        Drawing("frozen", frozen.runs, frozen.draw),
        Drawing("trajectories", trajectories.runs, trajectories.draw),
        Drawing("training", training.runs, training.draw),
        Drawing("pictures", pictures.runs, pictures.draw),
        Drawing("depth_width", depth_width.runs, depth_width.draw),
    )
}
