"""Compute the outcome of a :class:`~bench.figures.runs.Run`: load its problem, fit it, record training."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import airnp
from airnp import baselines
from airnp.engines.reference import adjacency
from airnp.training.recorder import FitState
from bench.figures.runs import DEEP, FULL, TRUTH, Run, Scale
from bench.paper_rows import LOADERS, draw_mask

Outcome = dict[str, np.ndarray]
"""Arrays by name: the matrix ``X``, its ``nmae``, and for deep factorisations one value per record."""

OTHERS: dict[str, Callable[..., Any]] = {
    "KNN": baselines.knn,
    "SVD": baselines.svd,
    "PNMC": baselines.pnmc,
    "biharmonic": baselines.biharmonic,
}
_SEEDED = ("SVD", "PNMC")
VARIATION_WEIGHT = 0.01
"""λ of the total variation times m·n, the default of :func:`airnp.baselines.rdmf`."""


def compute(run: Run, outcome_of: Callable[[Run], Outcome], threads: int = 1) -> Outcome:
    """Return the outcome of a run; ``outcome_of`` returns that of the run it needs."""
    problem = load(run.problem, run.scale, run.seed)
    if run.method == TRUTH:
        given = {"row_graph": problem.row_graph, "column_graph": problem.column_graph}
        graphs = {name: graph for name, graph in given.items() if graph is not None}
        return {"X": problem.truth, "mask": problem.mask, **graphs}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", airnp.EmptyLineWarning)
        if run.method in DEEP:
            return _deep(run, problem, outcome_of, threads)
        options = {"seed": run.seed} if run.method in _SEEDED else {}
        X = OTHERS[run.method](problem.truth, problem.mask, **options)
    nmae = airnp.metrics.nmae(X, problem.truth, problem.mask)
    return {"X": np.asarray(X, np.float32), "nmae": np.asarray(nmae)}


def _deep(run: Run, problem: Problem, outcome_of: Callable[[Run], Outcome], threads: int) -> Outcome:
    records = Records(run, problem)
    result = airnp.fit(
        problem.truth,
        problem.mask,
        regularizers=_regularizers(run, problem, outcome_of),
        depth=run.depth,
        rank=run.rank,
        max_iter=run.iterations,
        stop=run.stop,
        seed=run.seed,
        normalize=problem.normalize,
        engine=airnp.CPU(threads),
        record=run.every,
        callback=records,
    )
    weights = [item.weight for item in result.regularizers]
    nmae = airnp.metrics.nmae(result.X, problem.truth, problem.mask)
    return {
        "X": result.X,
        "nmae": np.asarray(nmae),
        "best_iter": np.asarray(result.best_iter),
        "weights": np.asarray(weights),
        **records.arrays(),
    }


def _regularizers(
    run: Run, problem: Problem, outcome_of: Callable[[Run], Outcome]
) -> list[airnp.Regularizer] | None:
    if run.method == "AIR":
        lines = ("rows", "columns")
        return None if run.weight is None else [airnp.AdaptiveLaplacian(axis, run.weight) for axis in lines]
    if run.method == "DMF":
        return []
    if run.method == "DMF+TV":
        return [airnp.TotalVariation(VARIATION_WEIGHT / problem.truth.size)]
    source = run.source
    if source is None:
        raise ValueError(f"{run.name}: there is no run of AIR to take the graphs from")
    learned = outcome_of(source)
    moment = list(learned["graphs_at"]).index(run.frozen_at)
    graphs = {"rows": learned["row_graphs"][moment], "columns": learned["column_graphs"][moment]}
    return [
        airnp.FixedLaplacian(graph, axis, float(weight), kind="adjacency")
        for (axis, graph), weight in zip(graphs.items(), learned["weights"], strict=True)
    ]


class Records:
    """A callback of :func:`airnp.fit` that records errors and, if the run needs them, graphs and more."""

    def __init__(self, run: Run, problem: Problem) -> None:
        self._run = run
        self._problem = problem
        self._rows: list[dict[str, Any]] = []
        self._graphs: list[tuple[int, np.ndarray, np.ndarray]] = []

    def __call__(self, iteration: int, state: FitState) -> bool:
        """Record one moment; return whether the observed entries are fitted closely enough to stop."""
        truth, mask = self._problem.truth, self._problem.mask
        squares = (state.X - truth) ** 2
        row = {
            "iteration": iteration,
            "training_nmae": airnp.metrics.nmae(state.X, truth, mask),
            "observed_mse": squares[mask].mean(),
            "unobserved_mse": squares[~mask].mean(),
        }
        if self._run.singular_values:
            values = np.linalg.svd(state.X, compute_uv=False)
            row["singular_values"] = values[: self._run.singular_values]
        self._rows.append(row)
        if iteration in self._run.graphs_at:
            rows, columns = (np.asarray(adjacency("row", v)) for v in state.params[-2:])
            self._graphs.append((iteration, rows, columns))
        goal = self._run.observed_mse
        return goal is not None and bool(row["observed_mse"] < goal)

    def arrays(self) -> Outcome:
        """Return the records, one array per column."""
        columns: Outcome = {name: np.asarray([row[name] for row in self._rows]) for name in self._rows[0]}
        if self._graphs:
            moments, row_graphs, column_graphs = zip(*self._graphs, strict=True)
            columns |= {
                "graphs_at": np.asarray(moments),
                "row_graphs": np.asarray(row_graphs, np.float32),
                "column_graphs": np.asarray(column_graphs, np.float32),
            }
        return columns


# --- problems ---

LOW_RANK = "Rank-5"


@dataclass(frozen=True)
class Problem:
    """A complete matrix, the mask of its observed entries, and the graphs of the data, if any."""

    truth: np.ndarray
    mask: np.ndarray
    row_graph: np.ndarray | None = None
    column_graph: np.ndarray | None = None
    normalize: bool = True


def load(name: str, scale: Scale = FULL, seed: int = 0) -> Problem:
    """Load a matrix and its mask by name: ``"Barbara 30%"``, ``"Baboon texture"``, ``"Rank-5 80%"``."""
    data, _, gaps = name.partition(" ")
    if data == LOW_RANK:
        truth = _low_rank(scale.length(100), rank=5)
        # Normalising it to [0, 1] would add a constant, which raises the rank by one.
        return Problem(truth, draw_mask(gaps, truth.shape, seed), normalize=False)
    loaded = LOADERS[data]()
    mask = draw_mask(gaps, loaded.matrix.shape, seed)
    step = slice(None, None, scale.size)
    return Problem(
        loaded.matrix[step, step].astype(np.float32),
        mask[step, step],
        _subsample(loaded.row_graph, step),
        _subsample(loaded.column_graph, step),
    )


def _low_rank(size: int, rank: int) -> np.ndarray:
    """Return a random matrix of the given rank whose entries have variance 1."""
    rng = np.random.default_rng(5)
    left, right = rng.standard_normal((size, rank)), rng.standard_normal((rank, size))
    return (left @ right / np.sqrt(rank)).astype(np.float32)


def _subsample(graph: Any, step: slice) -> np.ndarray | None:
    if graph is None:
        return None
    dense = graph.toarray() if hasattr(graph, "toarray") else np.asarray(graph)
    return dense[step, step]
