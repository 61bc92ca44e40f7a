"""Where the nodes of a graph are drawn: each connected part by itself, and the parts beside each other."""

from __future__ import annotations

import importlib.util
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from airnp.graphs import Graph

Places = npt.NDArray[np.float64]
Layout = Literal["spring", "spectral"]

_GAP = 0.9
"""Space between two parts. A part of n nodes is drawn in a square of side √n."""

_LANDSCAPE = 1.4
"""Width of the whole drawing, in units of the square root of its area."""


def places_of(graph: Graph, layout: Layout | None) -> Places:
    """Return the place of each node, shape (k, 2), the same at every call.

    Parameters
    ----------
    graph : Graph
    layout : {"spring", "spectral"} or None
        As :func:`airnp.plot.graph` takes it; None is spring if networkx is installed.

    Examples
    --------
    >>> from airnp.graphs import reduced
    >>> places_of(reduced(np.ones((4, 4))), "spectral").shape
    (4, 2)
    """
    if layout is None:
        layout = "spectral" if importlib.util.find_spec("networkx") is None else "spring"
    count, part = connected_components(graph.adjacency, directed=False)
    places = np.zeros((graph.n_nodes, 2))
    members = sorted((np.flatnonzero(part == number) for number in range(count)), key=len, reverse=True)
    sides = [np.sqrt(len(nodes)) for nodes in members]
    for nodes, side, corner in zip(members, sides, _shelved(sides), strict=True):
        inner = graph.adjacency[nodes][:, nodes]
        drawn = _spring(inner) if layout == "spring" else _spectral(inner)
        places[nodes] = corner + side * drawn
    return places


def _shelved(sides: list[float]) -> list[Places]:
    """Return the lower left corner of squares of falling size, side by side in rows of about equal width."""
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
    """Let edges pull and nodes push, by networkx, from the spectral places on.

    Weights differ by powers of ten and would draw the strongest edges as points; every edge pulls alike.
    """
    drawn = Graph(adjacency).to_networkx()
    from networkx import spring_layout

    start = dict(enumerate(_spectral(adjacency)))
    moved = spring_layout(drawn, pos=start, weight=None, seed=0, iterations=100)
    return _in_unit_square(np.array([moved[node] for node in range(len(start))]))


def _spectral(adjacency: csr_array) -> Places:
    """Take the two smoothest functions on a connected graph as coordinates.

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
    """Return places stretched so that they fill [0, 1]², or lie in its middle where they are on a line."""
    low, high = places.min(axis=0), places.max(axis=0)
    extent = high - low
    filled = (places - low) / np.where(extent > 0, extent, 1.0)
    return np.asarray(np.where(extent > 0, filled, 0.5))
