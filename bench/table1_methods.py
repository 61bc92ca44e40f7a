"""The methods of table 1: how each is called, on which rows, and what is kept of its run."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Literal

import numpy as np

import airnp
from airnp import baselines
from bench.paper_rows import COLUMNS, ROWS, Problem, Row

RECORD_EVERY = 100
"""Iterations between two points of a trajectory."""


@dataclass(frozen=True)
class Method:
    """One column of the table.

    Attributes
    ----------
    title : str
    run : callable
        ``run(problem, seed, **settings)`` returns the completed matrix and what else to keep.
    settings : mapping
        What it is told besides the data and the seed; part of the identity of its cells.
    column : str, optional
        The paper's column to compare with.
    rows : {"all", "images", "others"}
        Where it makes sense.
    is_seeded : bool
        Whether the seed moves it.
    is_fit : bool
        Whether it is a run of :func:`airnp.fit`.
    """

    title: str
    run: Callable[..., tuple[Any, dict[str, Any]]]
    settings: Mapping[str, Any] = field(default_factory=dict)
    column: str | None = None
    rows: Literal["all", "images", "others"] = "all"
    is_seeded: bool = True
    is_fit: bool = False

    def suits(self, row: Row) -> bool:
        return self.rows == "all" or row.is_image == (self.rows == "images")

    def seeds(self, row: Row, count: int) -> range:
        """Return the seeds that can differ: one, where neither the mask nor the method depends on it."""
        return range(count if self.is_seeded or not row.has_fixed_mask else 1)


@dataclass(frozen=True)
class Task:
    """One cell to compute."""

    row: str
    method: str
    seed: int
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Experiment:
    """Rows and methods by name. Worker processes get a copy, so all functions in it have importable names."""

    rows: Mapping[str, Row]
    methods: Mapping[str, Method]

    def solve(self, task: Task) -> dict[str, Any]:
        """Return the NMAE and the seconds of one cell, and what else its method keeps."""
        row, method = self.rows[task.row], self.methods[task.method]
        problem = row.load(task.seed)
        if method.is_fit:
            _warm_up()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", airnp.EmptyLineWarning)
            start = time.perf_counter()
            X, kept = method.run(problem, task.seed, **task.settings)
            seconds = time.perf_counter() - start
        nmae = float(airnp.metrics.nmae(X, problem.truth, problem.mask))
        if not np.isfinite(nmae):
            raise ArithmeticError(f"the error on missing entries is {nmae}")
        return {"nmae": nmae, "seconds": round(seconds, 3), **kept}


@cache
def _warm_up() -> None:
    """Load the compiled engine, which is not part of any fit's time."""
    values = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    graphs = [airnp.AdaptiveLaplacian("rows"), airnp.AdaptiveLaplacian("columns")]
    for regularizers in (None, [], [airnp.TotalVariation()], [*graphs, airnp.TotalVariation()]):
        airnp.fit(values, regularizers=regularizers, max_iter=2, stop=None, seed=0, threads=1)


def _baseline(name: str, problem: Problem, seed: int, **settings: Any) -> tuple[Any, dict[str, Any]]:
    options = dict(settings)
    if name not in ("mean", "knn", "biharmonic"):
        options["seed"] = seed
    if name in ("dmf", "rdmf", "dmf_de"):
        options["threads"] = 1
    if name == "dmf_de":
        options |= problem.graphs
    return baselines.METHODS[name](problem.observed, problem.mask, **options), {}


def _air(problem: Problem, seed: int, **settings: Any) -> tuple[Any, dict[str, Any]]:
    """AIR as it comes. The truth is recorded on the way, and decides nothing."""
    result = airnp.fit(
        problem.observed,
        problem.mask,
        seed=seed,
        threads=1,
        truth=problem.truth,
        record_every=RECORD_EVERY,
        **settings,
    )
    points = zip(result.history["iteration"], result.history["nmae"], strict=True)
    return result.X, {
        "n_iter": int(result.n_iter),
        "best_iter": int(result.best_iter),
        "stop_reason": result.stop_reason,
        "trajectory": [[int(iteration), float(f"{nmae:.6g}")] for iteration, nmae in points],
    }


def _of(baseline: str, title: str, **options: Any) -> Method:
    column = baseline if baseline in COLUMNS else None
    return Method(title, partial(_baseline, baseline), column=column, **options)


METHODS = {
    "mean": _of("mean", "mean", is_seeded=False),
    "knn": _of("knn", "KNN", is_seeded=False),
    "svd": _of("svd", "SVD"),
    "soft_impute": _of("soft_impute", "SoftImpute"),
    "pnmc": _of("pnmc", "PNMC", rows="images"),
    "biharmonic": _of("biharmonic", "biharmonic", rows="images", is_seeded=False),
    "dmf": _of("dmf", "DMF, last iterate", is_fit=True),
    # As many iterations at most as AIR has.
    "dmf_auto": _of("dmf", "DMF, stopped", settings={"stop": "auto", "max_iter": 40_000}, is_fit=True),
    "rdmf": _of("rdmf", "RDMF", rows="images", is_fit=True),
    "dmf_de": _of("dmf_de", "DMF+DE", rows="others", is_fit=True),
    "air_graphs": Method("AIR, graphs alone", _air, {"regularizers": None}, is_fit=True),
    "air": Method("AIR", _air, column="air", is_fit=True),
    "air_full": Method("AIR, never stopped", _air, {"stop": None, "max_iter": 20_000}, is_fit=True),
}

PAPER = Experiment(ROWS, METHODS)
