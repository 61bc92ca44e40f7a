"""The settings to try for each model of the ablation, on each kind of table.

"ratings" is MovieLens 100K, all of it or a quarter; "scarce" a tenth of it; "whole" a small matrix with a
random share given; "batches" the comparison of batch sizes.
"""

from __future__ import annotations

from typing import Any

Grid = dict[str, tuple[Any, ...]]
Grids = dict[str, Grid]

_FREE: Grid = {
    "rank": (64,),
    "spread": (3e-4, 1e-3, 3e-3, 1e-2),
    "rate": (1e-3, 3e-4),
    "shrinkage": (3.0,),
    "max_iter": (800,),
}
_DECAYED = _FREE | {
    "spread": (0.03,),
    "rate": (1e-3, 3e-3),
    "shrinkage": (3.0, 10.0),
    "decay": (0.8, 1.2, 1.6, 2.0),
}
_WITH_GRAPHS = _FREE | {
    "spread": (1e-3, 3e-3),
    "rate": (3e-4,),
    "graph_weight": (0.01, 0.03, 0.1, 0.3, 1.0),
}
_DECAYED_WITH_GRAPHS = _DECAYED | {
    "rate": (3e-3,),
    "shrinkage": (3.0,),
    "decay": (0.8, 1.2, 1.6),
    "graph_weight": (1e-3, 0.01, 0.1, 1.0),
}

# Fewer ratings need stronger shrinkage of the offsets, and perhaps no factors at all.
_SHRUNK: Grid = {"shrinkage": (3.0, 6.0, 12.0)}
_SCARCE = _FREE | _SHRUNK | {"spread": (1e-3,), "rate": (3e-4,)}
_SCARCE_DECAYED = _DECAYED | _SHRUNK | {"rate": (1e-3,), "decay": (0.8, 1.2, 1.8)}
_SCARCE_WEIGHTS: Grid = {"graph_weight": (0.03, 0.3, 3.0)}
_SCARCE_GIVEN: Grid = {"graph_weight": (1e-3, 1e-2, 1e-1)}

_WHOLE = _FREE | {"spread": (1e-4, 1e-3, 1e-2), "rate": (1e-3,), "max_iter": (4000,)}
_WHOLE_LONG: Grid = {"rate": (1e-3, 3e-4), "max_iter": (10_000,)}
_WHOLE_DECAYED = _WHOLE | {"spread": (0.03,), "rate": (3e-3,), "decay": (0.01, 0.03, 0.1, 0.3)}
_WHOLE_GRAPHS = _WHOLE | {"spread": (1e-4,)}
_WHOLE_DECAYED_GRAPHS = _WHOLE_DECAYED | {"decay": (0.03, 0.1)}
_WHOLE_FEW_WEIGHTS: Grid = {"graph_weight": (1e-2, 1e-1)}
_WHOLE_FEW_GIVEN: Grid = {"graph_weight": (1e-4, 1e-3, 1e-2)}
_WHOLE_WEIGHTS: Grid = {"graph_weight": (3e-3, 1e-2, 3e-2, 1e-1)}
_WHOLE_GIVEN: Grid = {"graph_weight": (1e-4, 1e-3, 3e-3, 1e-2)}

_NEAREST: Grid = {"graph": ("nearest",), "neighbors": (20,), "refresh": (50,)}
_CANDIDATES: Grid = {"graph": ("candidates",)}
_GIVEN: Grid = {"graph": ("given",)}
# The edges of a given graph have weight one each, a dozen per node.
_LIGHT: Grid = {"graph_weight": (1e-5, 1e-4, 1e-3, 1e-2)}
# One setting for all batch sizes; only the number of iterations is chosen.
_IN_BATCHES = _DECAYED | {"rate": (3e-3,), "shrinkage": (3.0,), "decay": (1.2,), "max_iter": (2000,)}


def _free(**more: Any) -> Grid:
    return {name: (value,) for name, value in more.items()} | _FREE


OFFSETS: Grids = {
    "ratings": {"shrinkage": (1.0, 2.0, 3.0, 5.0, 10.0)},
    "scarce": {"shrinkage": (3.0, 6.0, 12.0)},
}
DMF3: Grids = {
    "ratings": _free(depth=3, second_moment="matrix"),
    "whole": _WHOLE | _WHOLE_LONG | {"depth": (3,)},
}
DMF3_ENTRY: Grids = {"ratings": _free(depth=3, second_moment="entry")}
DMF2: Grids = {
    "ratings": _free(second_moment="matrix"),
    "scarce": _SCARCE | {"spread": (3e-4, 1e-3)},
    "whole": _WHOLE | _WHOLE_LONG,
}
DMF2_ENTRY: Grids = {"ratings": _free(second_moment="entry")}
NEAREST: Grids = {
    "ratings": _WITH_GRAPHS | _NEAREST,
    "scarce": _SCARCE | _SCARCE_WEIGHTS | _NEAREST,
    "whole": _WHOLE_GRAPHS | _WHOLE_WEIGHTS | _NEAREST,
}
NEAREST3: Grids = {"ratings": _WHOLE_GRAPHS | _WHOLE_WEIGHTS | _NEAREST | {"depth": (3,)}}
CANDIDATES: Grids = {
    "ratings": _WITH_GRAPHS | _CANDIDATES,
    "scarce": _SCARCE | _SCARCE_WEIGHTS | _CANDIDATES,
    "whole": _WHOLE_GRAPHS | _WHOLE_WEIGHTS | _CANDIDATES,
}
GIVEN: Grids = {
    "ratings": _WITH_GRAPHS | _LIGHT | _GIVEN,
    "scarce": _SCARCE | _SCARCE_GIVEN | _GIVEN,
    "whole": _WHOLE_GRAPHS | _WHOLE_GIVEN | _GIVEN,
}
BOTH: Grids = {
    "ratings": _WITH_GRAPHS | {"graph": ("both",), "given_weight": (1e-4, 1e-3)},
    "whole": _WHOLE_GRAPHS | _WHOLE_FEW_WEIGHTS | {"graph": ("both",), "given_weight": (1e-4, 1e-3)},
}
L2: Grids = {
    "ratings": _DECAYED,
    "scarce": _SCARCE_DECAYED,
    "whole": _WHOLE_DECAYED,
    "batches": _IN_BATCHES,
}
L2_NEAREST: Grids = {
    "ratings": _DECAYED_WITH_GRAPHS | _NEAREST,
    "scarce": _SCARCE_DECAYED | _SCARCE_WEIGHTS | _NEAREST,
    "whole": _WHOLE_DECAYED_GRAPHS | _WHOLE_FEW_WEIGHTS | _NEAREST,
}
L2_CANDIDATES: Grids = {
    "ratings": _DECAYED_WITH_GRAPHS | _CANDIDATES,
    "scarce": _SCARCE_DECAYED | _SCARCE_WEIGHTS | _CANDIDATES,
    "whole": _WHOLE_DECAYED_GRAPHS | _WHOLE_FEW_WEIGHTS | _CANDIDATES,
}
L2_GIVEN: Grids = {
    "ratings": _DECAYED_WITH_GRAPHS | _LIGHT | _GIVEN,
    "scarce": _SCARCE_DECAYED | _SCARCE_GIVEN | _GIVEN,
    "whole": _WHOLE_DECAYED_GRAPHS | _WHOLE_FEW_GIVEN | _GIVEN,
}
L2_QUARTER: Grids = {"ratings": _IN_BATCHES | {"batches": (4,)}}
L2_SIXTEENTH: Grids = {"ratings": _IN_BATCHES | {"batches": (16,)}}
