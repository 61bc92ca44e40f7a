"""Who used what: ``airnp.fit_implicit`` and the package implicit, on MovieLens 100K of 4 stars and more."""

from __future__ import annotations

import importlib.util
import json
import statistics
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array, csr_matrix

from bench.cells import write_file
from bench.ratings import data
from bench.ratings.data import Entries
from bench.ratings.peers import threads
from bench.timing import markdown

TABLE = "used"
CHOSEN = Path(__file__).with_name("used.json")
"""What :func:`tune` found."""

LIKED = 4.0
TOP = 10
GRID = {
    "factors": (16, 32, 64, 128),
    "regularization": (1.0, 10.0, 30.0, 60.0),
    "alpha": (1.0, 3.0, 10.0),
    "iterations": (15,),
}
"""Settings of implicit's AlternatingLeastSquares to choose from, on held-out pairs of the given split."""

Factors = tuple[np.ndarray, np.ndarray]


def pairs(seed: int | None) -> tuple[csr_array, csr_array]:
    """Return what was liked, for training and testing: of the given split, or of one of the five others."""
    table = data.movielens(1.0, 0) if seed is None else data.resplit(seed)
    return _liked(table.train, table.shape), _liked(table.test, table.shape)


def _liked(entries: Entries, shape: tuple[int, int]) -> csr_array:
    some = entries.select(entries.values >= LIKED)
    return csr_array((np.ones(len(some), np.float32), (some.rows, some.columns)), shape=shape)


def measured(factors: Factors, train: csr_array, test: csr_array) -> dict[str, float]:
    """Return precision, recall, NDCG and coverage of the ten best items of each user."""
    from airnp.metrics import ranking

    scores = factors[0] @ factors[1].T
    scores[train.tocoo().coords] = -np.inf
    best = np.argsort(-scores, axis=1, kind="stable")[:, :TOP]
    wanted = {user: test.indices[test.indptr[user] : test.indptr[user + 1]] for user in range(test.shape[0])}
    wanted = {user: items.tolist() for user, items in wanted.items() if len(items)}
    return ranking({user: best[user].tolist() for user in wanted}, wanted, TOP, items=train.shape[1])


def popularity(train: csr_array, settings: dict[str, Any], seed: int) -> Factors:
    """Score items by how many users they have."""
    counts = np.bincount(train.indices, minlength=train.shape[1]).astype(float)
    return np.ones((train.shape[0], 1)), counts[:, None]


def implicit_als(train: csr_array, settings: dict[str, Any], seed: int) -> Factors:
    """implicit's AlternatingLeastSquares."""
    from implicit.als import AlternatingLeastSquares

    model = AlternatingLeastSquares(**settings, random_state=seed, num_threads=threads())
    model.fit(csr_matrix(train), show_progress=False)
    return np.asarray(model.user_factors), np.asarray(model.item_factors)


def own(train: csr_array, settings: dict[str, Any], seed: int) -> Factors:
    """Fit ``airnp.fit_implicit``, the choice of its settings included."""
    import airnp

    model = airnp.fit_implicit(train, seed=seed)
    return model.row_factors, model.column_factors


Solve = Callable[[csr_array, dict[str, Any], int], Factors]
MODELS: dict[str, tuple[str, Solve]] = {
    "popularity": ("the items with the most users", popularity),
    "implicit": ("implicit's ALS, settings chosen beforehand", implicit_als),
    "own": ("`airnp.fit_implicit`, the choice of its settings included", own),
}


def is_missing() -> bool:
    """Whether implicit is not installed."""
    return importlib.util.find_spec("implicit") is None


def tune() -> None:
    """Try the grid of implicit on a fifth of the training pairs of the given split, and keep the best."""
    table = data.movielens(1.0, 0)
    held = np.random.default_rng(2024).random(len(table.train)) < 0.2
    train, test = (_liked(table.train.select(part), table.shape) for part in (~held, held))
    tried = []
    for values in product(*GRID.values()):
        settings = dict(zip(GRID, values, strict=True))
        ndcg = measured(implicit_als(train, settings, 0), train, test)["ndcg"]
        tried.append((settings, round(ndcg, 5)))
    settings, ndcg = max(tried, key=lambda trial: trial[1])
    lines = ",\n  ".join(json.dumps(trial) for trial in tried)
    found = json.dumps({"settings": settings, "validation_ndcg": ndcg})[:-1]
    write_file(CHOSEN, f'{found}, "tried": [\n  {lines}]}}\n')


def page(seeds: int) -> str:
    """Fit all models to the given split and to the others, in turn; return the results in Markdown."""
    chosen = json.loads(CHOSEN.read_text(encoding="utf-8"))["settings"]
    ready = [name for name in MODELS if name != "implicit" or not is_missing()]
    parts = []
    for label, splits in (("the given split", [None] * seeds), ("other splits", list(range(seeds)))):
        seconds: dict[str, list[float]] = {name: [] for name in ready}
        found: dict[str, list[dict[str, float]]] = {name: [] for name in ready}
        for seed, split in enumerate(splits):
            train, test = pairs(split)
            for name in ready:
                solve = MODELS[name][1]
                if seed == 0 and label == "the given split":
                    solve(train, chosen if name == "implicit" else {}, seed)  # compilation is not timed
                start = time.perf_counter()
                factors = solve(train, chosen if name == "implicit" else {}, seed)
                seconds[name].append(time.perf_counter() - start)
                found[name].append(measured(factors, train, test))
        rows = [
            [
                MODELS[name][0],
                *(
                    f"{np.mean([line[measure] for line in found[name]]):.4f}"
                    for measure in ("ndcg", "precision", "recall", "coverage")
                ),
                f"{statistics.stdev([line['ndcg'] for line in found[name]]):.4f}" if seeds > 1 else "–",
                f"{statistics.median(seconds[name]):.2g} s",
            ]
            for name in ready
        ]
        header = ["model", "NDCG@10", "precision@10", "recall@10", "coverage", "± of NDCG", "median time"]
        parts.append(f"### Who liked what, {label}\n\n{markdown(header, rows)}")
    if "implicit" not in ready:
        parts.append("Not measured: implicit is not installed.")
    return "\n\n".join(parts) + "\n"
