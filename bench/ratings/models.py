"""The models of the ablation: each is ``airnp.fit`` or ``airnp.fit_ratings`` with other arguments."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from bench.ratings.data import Table

Settings = dict[str, Any]
Watch = Callable[[int, np.ndarray], bool]
"""Told the iteration and the predictions of the test entries at that moment; says whether to stop."""


@dataclass(frozen=True)
class Answer:
    """What a model says about the test entries, clipped to the bounds, and how long it took."""

    predictions: np.ndarray
    seconds: float


@dataclass(frozen=True)
class Model:
    """One line of the page.

    ``grid`` has what is tried for each setting. Models with ``iterates`` are watched while they are tuned;
    the best iteration becomes ``max_iter``.
    """

    label: str
    solve: Callable[[Table, Settings, int, Watch | None], np.ndarray]
    grid: dict[str, tuple[Any, ...]]
    iterates: bool = False
    has_seed: bool = True
    needs: str | None = None

    @property
    def is_missing(self) -> bool:
        """Whether this is a peer that is not installed."""
        return self.needs is not None and importlib.util.find_spec(self.needs) is None

    def trials(self) -> Iterator[Settings]:
        """Yield every combination of the grid."""
        for values in product(*self.grid.values()):
            yield dict(zip(self.grid, values, strict=True))

    def answer(self, table: Table, settings: Settings, seed: int, watch: Watch | None = None) -> Answer:
        """Fit the training entries and predict the test entries."""
        start = time.perf_counter()
        found = self.solve(table, settings, seed, watch)
        seconds = time.perf_counter() - start
        return Answer(np.clip(found, *table.bounds).astype(np.float64), seconds)


def offsets_only(table: Table, settings: Settings, seed: int, watch: Watch | None) -> np.ndarray:
    """μ + b_i + c_j."""
    from airnp.sparse.entries import read_entries
    from airnp.sparse.offsets import first_offsets

    mean, rows, columns = first_offsets(read_entries(table.matrix), settings["shrinkage"])
    return mean + rows[table.test.rows] + columns[table.test.columns]


def factorisation(table: Table, settings: Settings, seed: int, watch: Watch | None) -> np.ndarray:
    """Factors of the sparse form with what ``settings`` ask for besides; all in units of the ratings."""
    import airnp

    callback = None
    if watch is not None:

        def callback(iteration: int, state: Any) -> bool:
            return watch(iteration, state.result().predict(table.test.rows, table.test.columns))

    result = airnp.fit(
        table.matrix,
        form="sparse",
        depth=settings.get("depth", 2),
        rank=min(settings["rank"], *table.shape),
        regularizers=_regularizers(table, settings),
        fidelity="sum",
        normalize=False,
        offsets=settings.get("shrinkage", 10.0),
        init=airnp.Gaussian(0.0, settings["spread"]),
        optimizer=airnp.Adam(
            settings["rate"],
            graph_learning_rate=settings.get("graph_rate"),
            second_moment=settings.get("second_moment", "matrix"),
        ),
        bounds=table.bounds,
        stop=None,
        max_iter=settings["max_iter"],
        dtype="float32",
        seed=seed,
        callback=callback,
        record_every=5,
    )
    return result.predict(table.test.rows, table.test.columns)


def _regularizers(table: Table, settings: Settings) -> list[Any]:
    import airnp

    found: list[Any] = []
    if settings.get("decay"):
        found.append(airnp.WeightDecay(settings["decay"], growth="sqrt"))
    weight, kind = settings.get("graph_weight", 0), settings.get("graph")
    graphs = {"rows": table.row_graph, "columns": table.column_graph}
    for axis, graph in graphs.items() if weight else ():
        if kind == "nearest":
            neighbours = {"neighbors": settings["neighbors"], "refresh": settings["refresh"]}
            found.append(airnp.AdaptiveLaplacian(axis, weight=weight, **neighbours))
        elif kind == "candidates":
            found.append(airnp.AdaptiveLaplacian(axis, weight=weight, candidates=graph))
        else:
            found.append(airnp.FixedLaplacian(graph, axis=axis, weight=weight))
    return found


def masked(table: Table, settings: Settings, seed: int, watch: Watch | None) -> np.ndarray:
    """``airnp.fit_ratings`` as it comes."""
    import airnp

    result = airnp.fit_ratings(table.matrix, bounds=table.bounds, seed=seed)
    return result.predict(table.test.rows, table.test.columns)


FREE = {
    "rank": (64,),
    "spread": (3e-4, 1e-3, 3e-3, 1e-2),
    "rate": (1e-3, 3e-4),
    "shrinkage": (3.0,),
    "max_iter": (800,),
}
DECAYED = FREE | {
    "spread": (0.03,),
    "rate": (1e-3, 3e-3),
    "shrinkage": (3.0, 10.0),
    "decay": (0.8, 1.2, 1.6, 2.0),
}
NEAREST = {"graph": ("nearest",), "neighbors": (20,), "refresh": (50,)}
CANDIDATES = {"graph": ("candidates",)}
GIVEN = {"graph": ("given",)}
WITH_GRAPHS = FREE | {
    "spread": (1e-3, 3e-3),
    "rate": (3e-4,),
    "graph_weight": (0.01, 0.03, 0.1, 0.3, 1.0),
}
DECAYED_WITH_GRAPHS = DECAYED | {
    "rate": (3e-3,),
    "shrinkage": (3.0,),
    "decay": (0.8, 1.2, 1.6),
    "graph_weight": (1e-3, 0.01, 0.1, 1.0),
}
# The edges of a given graph weigh one each, a dozen to a node.
DECAYED_WITH_GIVEN = DECAYED_WITH_GRAPHS | {"graph_weight": (1e-5, 1e-4, 1e-3, 1e-2)}

ABLATION = {
    "offsets": Model("offsets only", offsets_only, {"shrinkage": (1.0, 2.0, 3.0, 5.0, 10.0)}, has_seed=False),
    "dmf3": Model("DMF, depth 3", factorisation, {"depth": (3,), "second_moment": ("matrix",)} | FREE, True),
    "dmf3_entry": Model(
        "DMF, depth 3, elementwise Adam",
        factorisation,
        {"depth": (3,), "second_moment": ("entry",)} | FREE,
        True,
    ),
    "dmf2": Model("DMF, depth 2", factorisation, {"second_moment": ("matrix",)} | FREE, True),
    "dmf2_entry": Model(
        "DMF, depth 2, elementwise Adam", factorisation, {"second_moment": ("entry",)} | FREE, True
    ),
    "nearest": Model(
        "depth 2 + learned graphs on nearest neighbours",
        factorisation,
        WITH_GRAPHS | NEAREST,
        True,
    ),
    "candidates": Model(
        "depth 2 + learned graphs on given candidates",
        factorisation,
        WITH_GRAPHS | CANDIDATES,
        True,
    ),
    "l2": Model("biased factorisation, ℓ2", factorisation, DECAYED, True),
    "l2_nearest": Model(
        "ℓ2 + learned graphs on nearest neighbours",
        factorisation,
        DECAYED_WITH_GRAPHS | NEAREST,
        True,
    ),
    "l2_candidates": Model(
        "ℓ2 + learned graphs on given candidates",
        factorisation,
        DECAYED_WITH_GRAPHS | CANDIDATES,
        True,
    ),
    "l2_given": Model("ℓ2 + given Laplacians", factorisation, DECAYED_WITH_GIVEN | GIVEN, True),
    "mask": Model("ℓ2 + mask factor on both sides: `airnp.fit_ratings`", masked, {}),
}
