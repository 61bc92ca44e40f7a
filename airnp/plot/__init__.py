"""Plots of fits, with matplotlib (``pip install "airnp[plot]"``).

=========================  =====================================================================
:func:`before_after`       the data with its gaps, the completed matrix, the error
:func:`trajectories`       loss, energies and error over the iterations
:func:`laplacians`         learned graphs as heat maps, at the moments of a :class:`airnp.GraphRecorder`
:func:`singular_values`    the spectrum of the recovered matrix
:func:`graph`              a learned graph, as nodes and edges or as a matrix
:func:`uncertainty`        how wide the intervals of missing entries are
=========================  =====================================================================

Each draws into the axes that it is given, or into a new figure of pyplot, and returns the Axes or, if there
are several, the Figure. Call ``plt.show()`` or ``figure.savefig(…)`` to show or write it. No setting of
matplotlib is changed. Colours can be told apart by colour-blind people and in grey.
"""

from airnp.plot.curves import singular_values, trajectories
from airnp.plot.heatmaps import before_after, laplacians, uncertainty
from airnp.plot.network import graph
from airnp.training.recorder import GraphRecorder

__all__ = [
    "GraphRecorder",
    "before_after",
    "graph",
    "laplacians",
    "singular_values",
    "trajectories",
    "uncertainty",
]
