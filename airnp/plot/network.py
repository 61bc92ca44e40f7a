"""A graph as nodes and edges, or as a matrix."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from airnp.plot.style import label_lines, logarithmic, one_panel, pyplot
from airnp.results.graphs import Graph

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_LAYOUTS = ("spring", "spectral", "matrix")
_MOST_LABELS = 60
"""With more nodes, labels have no room."""

Places = npt.NDArray[np.float64]
Layout = Literal["spring", "spectral"]

_GAP = 0.9
"""Space between two parts. A part of n nodes is drawn in a square of side √n."""

_LANDSCAPE = 1.4
"""Width of the whole drawing, in units of the square root of its area."""


def graph(
    graph: Graph,
    *,
    layout: Literal["spring", "spectral", "matrix"] | None = None,
    labels: bool | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw a learned graph.

    Parameters
    ----------
    graph : Graph
        Such as ``result.row_graph(k=4)``. With more than a few neighbours per node only the layout
        ``"matrix"`` is clear.
    layout : {"spring", "spectral", "matrix"}, optional
        ``"spring"`` lets edges pull and nodes push, by networkx (``pip install "airnp[graph]"``).
        ``"spectral"`` takes eigenvectors of the Laplacian as coordinates, each connected part by itself.
        ``"matrix"`` is a heat map of the adjacency in the order of the data. Default: ``"spring"`` if
        networkx is installed, else ``"spectral"``.
    labels : bool, optional
        Whether to write labels at the nodes. Default: if the data had labels and there are at most 60.
    ax : Axes, optional
        Where to draw. Default: a new figure.

    Returns
    -------
    Axes
        Edges are the darker and thicker the larger their weight; nodes are coloured by their position in
        the data.

    Examples
    --------
    >>> import airnp, airnp.plot
    >>> Y = np.random.default_rng(0).random((8, 6))
    >>> result = airnp.fit(Y, regularizers=None, max_iter=40, stop=None, seed=0)
    >>> ax = airnp.plot.graph(result.row_graph(k=2), layout="spectral")
    >>> ax.get_title()
    '8 rows, 10 edges'
    """
    if layout is not None and layout not in _LAYOUTS:
        raise ValueError(f"layout: expected one of {', '.join(map(repr, _LAYOUTS))}, got {layout!r}")
    if not isinstance(graph, Graph):
        raise TypeError(f"graph: expected a Graph, as of result.row_graph(), got {type(graph).__name__}")
    if layout == "matrix":
        ax = one_panel(ax, 4.8, 4.2)
        _draw_matrix(ax, graph)
    else:
        pyplot()  # raises before the layout is computed if matplotlib is missing
        places = places_of(graph, layout)
        ax = one_panel(ax, 5.6, 4.8)
        _draw_edges(ax, graph, places)
        _draw_nodes(ax, graph, places)
        if labels or (labels is None and graph.labels is not None and graph.n_nodes <= _MOST_LABELS):
            _write_labels(ax, graph, places)
    ax.set_title(f"{graph.n_nodes} {graph.name}, {graph.n_edges} edges", fontsize=11, pad=12)
    return ax


def _draw_matrix(ax: Axes, graph: Graph) -> None:
    weights = graph.adjacency.toarray()
    image = ax.imshow(
        np.where(weights > 0, weights, np.nan),
        cmap="Blues",
        norm=logarithmic(weights),
        interpolation="nearest",
        origin="upper",
    )
    ax.figure.colorbar(image, ax=ax, shrink=0.85, label="weight $A_{ij}$")
    label_lines(ax, graph.labels, graph.labels)


def _draw_edges(ax: Axes, graph: Graph, places: Places) -> None:
    """Draw all edges, the strongest last and so on top."""
    from matplotlib.collections import LineCollection
    from scipy.sparse import triu

    edges = triu(graph.adjacency, format="coo")
    order = np.argsort(edges.data, kind="stable")
    starts, ends, weights = edges.row[order], edges.col[order], edges.data[order]
    # Even the weakest edges stay visible.
    share = np.sqrt(weights / weights.max(initial=1e-300))
    lines = LineCollection(
        list(np.stack([places[starts], places[ends]], axis=1)),
        linewidths=0.4 + 2.2 * share,
        colors=[(0.2, 0.2, 0.2, alpha) for alpha in 0.15 + 0.65 * share],
        zorder=1,
    )
    ax.add_collection(lines)


def _draw_nodes(ax: Axes, graph: Graph, places: Places) -> None:
    size = float(np.clip(6000 / max(graph.n_nodes, 1), 12, 130))
    nodes: Any = ax.scatter(
        places[:, 0],
        places[:, 1],
        c=np.arange(graph.n_nodes),
        cmap="viridis",
        s=size,
        edgecolors="white",
        linewidths=0.6,
        zorder=2,
    )
    ax.figure.colorbar(nodes, ax=ax, shrink=0.7, aspect=30, label=f"position among the {graph.name}")
    ax.set_aspect("equal")
    ax.set_axis_off()
    ax.margins(0.08)


def _write_labels(ax: Axes, graph: Graph, places: Places) -> None:
    from matplotlib.patheffects import withStroke

    names = range(graph.n_nodes) if graph.labels is None else graph.labels
    # A white rim keeps a name legible on top of edges.
    rim = [withStroke(linewidth=2.5, foreground="white")]
    above: dict[str, Any] = {"xytext": (0, 7), "textcoords": "offset points", "ha": "center"}
    for name, place in zip(names, places, strict=True):
        ax.annotate(str(name), place, **above, fontsize=8, path_effects=rim, zorder=3)


def places_of(graph: Graph, layout: Layout | None) -> Places:
    """Return the place of each node, shape (k, 2), the same for every call.

    Parameters
    ----------
    graph : Graph
    layout : {"spring", "spectral"} or None
        As :func:`airnp.plot.graph` takes it; None is spring if networkx is installed.

    Examples
    --------
    >>> from airnp.results.graphs import reduced
    >>> places_of(reduced(np.ones((4, 4))), "spectral").shape
    (4, 2)
    """
    if layout is None:
        layout = "spectral" if importlib.util.find_spec("networkx") is None else "spring"
    count, part = connected_components(graph.adjacency, directed=False)
    places = np.zeros((graph.n_nodes, 2))
    members = sorted((np.flatnonzero(part == number) for number in range(count)), key=len, reverse=True)
    sides = [np.sqrt(len(nodes)) for nodes in members]
    for nodes, side, corner in zip(members, sides, _shelve(sides), strict=True):
        inner = graph.adjacency[nodes][:, nodes]
        drawn = _spring(inner) if layout == "spring" else _spectral(inner)
        places[nodes] = corner + side * drawn
    return places


def _shelve(sides: list[float]) -> list[Places]:
    """Return the lower left corners of squares, largest first, placed in rows of about equal width."""
    width = _LANDSCAPE * np.sqrt(sum((side + _GAP) ** 2 for side in sides))
    corners: list[Places] = []
    right = down = height = 0.0
    for side in sides:
        if right > 0 and right + side > width:
            right, down = 0.0, down - height - _GAP
        if right == 0:
            height = side
        corners.append(np.array([right, down - side]))
        right += side + _GAP
    return corners


def _spring(adjacency: csr_array) -> Places:
    """Return networkx's spring layout, started from the spectral one.

    All edges pull alike: weights differ by powers of ten, and would draw the strongest edges as points.
    """
    drawn = Graph(adjacency).to_networkx()
    from networkx import spring_layout

    start = dict(enumerate(_spectral(adjacency)))
    moved = spring_layout(drawn, pos=start, weight=None, seed=0, iterations=100)
    return _in_unit_square(np.array([moved[node] for node in range(len(start))]))


def _spectral(adjacency: csr_array) -> Places:
    """Return the two smoothest functions on a connected graph as coordinates.

    These are the eigenvectors of D^-½ A D^-½ that follow the first, times D^-½.
    """
    nodes = adjacency.shape[0]
    if nodes < 3:
        return _in_unit_square(np.stack([np.arange(nodes), np.zeros(nodes)], axis=1))
    dense = adjacency.toarray()
    root = np.sqrt(dense.sum(axis=1))
    vectors = np.linalg.eigh(dense / np.outer(root, root))[1]
    return _in_unit_square(vectors[:, [-2, -3]] / root[:, None])


def _in_unit_square(places: Places) -> Places:
    """Scale places to fill [0, 1]²; an axis without extent lies in the middle."""
    low, high = places.min(axis=0), places.max(axis=0)
    extent = high - low
    filled = (places - low) / np.where(extent > 0, extent, 1.0)
    return np.asarray(np.where(extent > 0, filled, 0.5))
