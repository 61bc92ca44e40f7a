"""The models of the ablation: each is ``airnp.fit_sparse`` or ``airnp.fit_ratings`` with other arguments."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from bench.ratings import grids
from bench.ratings.data import Table
from bench.ratings.grids import Grids

Settings = dict[str, Any]
Watch = Callable[[int, np.ndarray], bool]
"""Called with the iteration and the predictions of the test entries; returns whether to stop."""


@dataclass(frozen=True)
class Answer:
    """Predictions of the test entries, clipped to the bounds, and the seconds they took."""

    predictions: np.ndarray
    seconds: float


@dataclass(frozen=True)
class Model:
    """One line of the page.

    ``grids`` has the grid of each kind of table; a kind that is not in it has the grid of "ratings". Models
    with ``iterates`` are watched while they are tuned, and the best iteration becomes ``max_iter``.
    ``needs`` names the package of a peer, ``most_seeds`` limits the seeds of slow models.
    """

    label: str
    solve: Callable[[Table, Settings, int, Watch | None], np.ndarray]
    grids: Grids
    iterates: bool = False
    has_seed: bool = True
    needs: str | None = None
    most_seeds: int = 100

    @property
    def is_missing(self) -> bool:
        """Whether the package that it needs is not installed."""
        return self.needs is not None and importlib.util.find_spec(self.needs) is None

    def trials(self, kind: str) -> Iterator[Settings]:
        """Yield every combination of the grid for a kind of table."""
        grid = self.grids[kind if kind in self.grids else "ratings"]
        for values in product(*grid.values()):
            yield dict(zip(grid, values, strict=True))

    def seeds(self, wanted: int, has_draws: bool) -> range:
        """Return the seeds to run: one if neither the table nor the model depends on it."""
        return range(min(wanted, self.most_seeds) if self.has_seed or has_draws else 1)

    def answer(self, table: Table, settings: Settings, seed: int, watch: Watch | None = None) -> Answer:
        """Fit the training entries and predict the test entries."""
        start = time.perf_counter()
        predictions = self.solve(table, settings, seed, watch)
        seconds = time.perf_counter() - start
        return Answer(np.clip(predictions, *table.bounds).astype(np.float64), seconds)


def offsets_only(table: Table, settings: Settings, seed: int, watch: Watch | None) -> np.ndarray:
    """Predict μ + b_i + c_j."""
    from airnp.data.entries import read_entries
    from airnp.model.offsets import first_offsets

    mean, rows, columns = first_offsets(read_entries(table.matrix), settings["shrinkage"])
    return mean + rows[table.test.rows] + columns[table.test.columns]


def factorisation(table: Table, settings: Settings, seed: int, watch: Watch | None) -> np.ndarray:
    """Predict by factors of the sparse form, with the regularisers of ``settings``, in units of ratings."""
    import airnp

    callback = None
    if watch is not None:

        def callback(iteration: int, state: Any) -> bool:
            return watch(iteration, state.result().predict(table.test.rows, table.test.columns))

    result = airnp.fit_sparse(
        table.matrix,
        depth=settings.get("depth", 2),
        rank=min(settings["rank"], *table.shape),
        regularizers=_regularizers(table, settings),
        fidelity=airnp.Squared("sum"),
        normalize=False,
        offsets=settings.get("shrinkage", 10.0),
        init=airnp.Gaussian(0.0, settings["spread"]),
        optimizer=airnp.Adam(
            settings["rate"],
            graph_learning_rate=settings.get("graph_rate"),
            second_moment=settings.get("second_moment", "matrix"),
        ),
        bounds=table.bounds,
        batch_size=-(-len(table.train) // settings["batches"]) if "batches" in settings else None,
        stop=None,
        max_iter=settings["max_iter"],
        dtype="float32",
        seed=seed,
        callback=callback,
        record=5,
    )
    return result.predict(table.test.rows, table.test.columns)


def _regularizers(table: Table, settings: Settings) -> list[Any]:
    """Return decay, learned graphs (on nearest neighbours or on given edges) and given graphs."""
    import airnp

    found: list[Any] = []
    if settings.get("decay"):
        found.append(airnp.WeightDecay(settings["decay"], growth="sqrt"))
    kind, weight, given = (settings.get(name) for name in ("graph", "graph_weight", "given_weight"))
    for axis, graph in (("rows", table.row_graph), ("columns", table.column_graph)):
        if kind == "nearest":
            nearest = airnp.Nearest(settings["neighbors"], refresh=settings["refresh"])
            found.append(airnp.AdaptiveLaplacian(axis, weight=weight, candidates=nearest))
        elif kind in ("candidates", "both"):
            found.append(airnp.AdaptiveLaplacian(axis, weight=weight, candidates=graph))
        if kind in ("given", "both"):
            found.append(airnp.FixedLaplacian(graph, axis=axis, weight=given if kind == "both" else weight))
    return found


def mask_factors(table: Table, settings: Settings, seed: int, watch: Watch | None) -> np.ndarray:
    """Predict by ``airnp.fit_ratings`` with its defaults."""
    import airnp

    result = airnp.fit_ratings(table.matrix, bounds=table.bounds, seed=seed)
    return result.predict(table.test.rows, table.test.columns)


def _factors(label: str, grids: Grids) -> Model:
    return Model(label, factorisation, grids, iterates=True)


ABLATION = {
    "offsets": Model("offsets only", offsets_only, grids.OFFSETS, has_seed=False),
    "dmf3": _factors("DMF, depth 3", grids.DMF3),
    "dmf3_entry": _factors("DMF, depth 3, elementwise Adam", grids.DMF3_ENTRY),
    "dmf2": _factors("DMF, depth 2", grids.DMF2),
    "dmf2_entry": _factors("DMF, depth 2, elementwise Adam", grids.DMF2_ENTRY),
    "nearest": _factors("depth 2 + learned graphs on nearest neighbours", grids.NEAREST),
    "nearest3": _factors("depth 3 + learned graphs on nearest neighbours", grids.NEAREST3),
    "candidates": _factors("depth 2 + learned graphs on given candidates", grids.CANDIDATES),
    "given": _factors("depth 2 + given Laplacians", grids.GIVEN),
    "both": _factors("depth 2 + learned graphs on given candidates + given Laplacians", grids.BOTH),
    "l2": _factors("biased factorisation, ℓ2", grids.L2),
    "l2_nearest": _factors("ℓ2 + learned graphs on nearest neighbours", grids.L2_NEAREST),
    "l2_candidates": _factors("ℓ2 + learned graphs on given candidates", grids.L2_CANDIDATES),
    "l2_given": _factors("ℓ2 + given Laplacians", grids.L2_GIVEN),
    "l2_quarter": _factors("ℓ2, a quarter of the entries an iteration", grids.L2_QUARTER),
    "l2_sixteenth": _factors("ℓ2, a sixteenth of the entries an iteration", grids.L2_SIXTEENTH),
    "mask": Model("ℓ2 + mask factor on both sides: `airnp.fit_ratings`", mask_factors, {"ratings": {}}),
}
