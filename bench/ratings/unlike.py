"""``python -m bench.ratings.unlike``: made-up tables of ratings unlike MovieLens, and parts of MovieLens.

``airnp.fit_ratings`` beside the offsets alone, with a shrinkage chosen by five-fold cross-validation, and
beside two small programs of this file whose settings are chosen on a tenth of the training ratings: ALS with
offsets, in closed form, and SVD++ by stochastic gradients. Seeds below 100 were used to develop; those that
are reported by default begin at 100.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, NamedTuple

import numba
import numpy as np
from scipy.sparse import csr_array

from bench.ratings import data
from bench.timing import markdown

SHARE = 0.2
"""Share of the ratings to test on."""

FIRST_SEED = 100
MAX_ITER = 400


class Ratings(NamedTuple):
    """Ratings of users (rows) and items (columns) for training, and others."""

    train: csr_array
    test: csr_array
    bounds: tuple[float, float]


# --- tables ---


def _split(
    truth: np.ndarray, there: np.ndarray, step: float, bounds: tuple[float, float], rng: Any
) -> Ratings:
    """Return the rated entries, rounded to a scale, a part of them to test on."""
    rows, columns = np.nonzero(there)
    values = truth[rows, columns]
    values = np.clip(np.rint(values / step) * step if step else values, *bounds)
    held = rng.random(len(rows)) < SHARE
    parts = (
        csr_array((values[part], (rows[part], columns[part])), shape=truth.shape) for part in (~held, held)
    )
    return Ratings(*parts, bounds)


def made(
    seed: int,
    *,
    shape: tuple[int, int],
    share: float,
    bounds: tuple[float, float],
    step: float,
    rank: int,
    signal: float,
    offsets: float = 0.4,
    noise: float = 0.8,
    popularity: float = 0.0,
) -> Ratings:
    """Return ratings mean + offsets + U Vᵀ + noise; ``popularity`` makes some lines have most of them.

    Popular items are better, too, and users rate what they like.
    """
    rng = np.random.default_rng([seed, 17])
    (m, n), (low, high) = shape, bounds
    taste = rng.standard_normal((m, rank)) @ rng.standard_normal((rank, n)) / np.sqrt(max(rank, 1))
    b, c = rng.standard_normal((m, 1)), rng.standard_normal(n)
    unit = (high - low) / 4
    truth = offsets * (b + c) + signal * taste + noise * rng.standard_normal(shape)
    truth = low + 0.65 * (high - low) + unit * truth
    weight = np.exp(
        popularity * (rng.standard_normal((m, 1)) + 0.5 * c + rng.standard_normal(n) + 0.3 * taste)
    )
    chance = weight * share / weight.mean()
    return _split(truth, rng.random(shape) < chance, step, bounds, rng)


def movielens(share: float, seed: int) -> Ratings:
    """Return a part of the training ratings of MovieLens 100K, and its test ratings."""
    table = data.movielens(share, seed)
    test = csr_array((table.test.values, (table.test.rows, table.test.columns)), shape=table.shape)
    return Ratings(table.matrix, test, table.bounds)


_LIKE = {"bounds": (1.0, 5.0), "step": 1.0, "rank": 4, "signal": 0.7}
TABLES: dict[str, tuple[str, Callable[[int], Ratings]]] = {
    "sparse": (
        "3000 users, 2000 items, 4 ratings of a user",
        lambda seed: made(seed, **_LIKE | {"shape": (3000, 2000), "share": 0.0025}),
    ),
    "few_users": (
        "40 users, 3000 items, 15 % rated",
        lambda seed: made(seed, **_LIKE | {"shape": (40, 3000), "share": 0.15}),
    ),
    "ten": (
        "scale 1–10, 500 by 400, 8 %",
        lambda seed: made(seed, **_LIKE | {"shape": (500, 400), "share": 0.08, "bounds": (1.0, 10.0)}),
    ),
    "popular": (
        "half stars, few items have most ratings",
        lambda seed: made(
            seed,
            **_LIKE
            | {"shape": (900, 700), "share": 0.03, "bounds": (0.5, 5.0), "step": 0.5, "popularity": 1.0},
        ),
    ),
    "offsets": (
        "offsets and noise alone",
        lambda seed: made(seed, **_LIKE | {"shape": (500, 400), "share": 0.05, "signal": 0.0}),
    ),
    "noise": (
        "noise alone",
        lambda seed: made(
            seed, **_LIKE | {"shape": (500, 400), "share": 0.05, "signal": 0.0, "offsets": 0.0}
        ),
    ),
    "low_rank": (
        "rank 3 and little noise, not rounded",
        lambda seed: made(
            seed,
            **_LIKE
            | {"shape": (500, 400), "share": 0.08, "step": 0.0, "rank": 3, "signal": 0.8, "noise": 0.05}
            | {"bounds": (-10.0, 10.0)},
        ),
    ),
    "half": ("half of MovieLens", lambda seed: movielens(0.5, seed)),
    "quarter": ("a quarter of MovieLens", lambda seed: movielens(0.25, seed)),
    "tenth": ("a tenth of MovieLens", lambda seed: movielens(0.1, seed)),
}


# --- programs ---


def offsets_of(train: csr_array) -> tuple[float, np.ndarray, np.ndarray]:
    """Return μ, b and c with the shrinkage that cross-validation chooses."""
    from airnp.data.entries import read_entries
    from airnp.model.offsets import first_offsets
    from airnp.ratings import chosen_shrinkage

    entries = read_entries(train, np.float64)
    return first_offsets(entries, chosen_shrinkage(entries))


def offsets_alone(ratings: Ratings, seed: int) -> np.ndarray:
    """Predict μ + b_i + c_j."""
    mean, b, c = offsets_of(ratings.train)
    rows, columns = ratings.test.nonzero()
    return mean + b[rows] + c[columns]


def als(ratings: Ratings, seed: int, rank: int, decay: float) -> np.ndarray:
    """Predict by offsets and ten rounds of ridge regressions for what they leave, with decay · n."""
    mean, b, c = offsets_of(ratings.train)
    rest = ratings.train.tocoo()
    rest = csr_array((rest.data - mean - b[rest.row] - c[rest.col], (rest.row, rest.col)), shape=rest.shape)
    sides = rest, csr_array(rest.T)
    factors = [
        np.zeros((rest.shape[0], rank)),
        np.random.default_rng(seed).normal(0, 0.1, (rest.shape[1], rank)),
    ]
    for turn in range(20):
        own, other = turn % 2, 1 - turn % 2
        starts = sides[own].indptr
        for line in np.flatnonzero(np.diff(starts)):
            part = slice(starts[line], starts[line + 1])
            a = factors[other][sides[own].indices[part]]
            gram = a.T @ a + decay * len(a) * np.eye(rank)
            factors[own][line] = np.linalg.solve(gram, a.T @ sides[own].data[part])
    rows, columns = ratings.test.nonzero()
    return mean + b[rows] + c[columns] + np.sum(factors[0][rows] * factors[1][columns], axis=1)


def svdpp(ratings: Ratings, seed: int, decay: float, rounds: int) -> np.ndarray:
    """Predict by SVD++ with 20 factors."""
    train, span = ratings.train, ratings.bounds[1] - ratings.bounds[0]
    mean, b, c = offsets_of(train)
    rng, rank = np.random.default_rng(seed), 20
    u, v, y = (rng.normal(0, 0.1, (size, rank)) for size in (*train.shape, train.shape[1]))
    values = (train.data - mean) / span * 4
    b, c = b / span * 4, c / span * 4
    _svdpp_rounds(train.indptr, train.indices, values, b, c, u, v, y, 0.007, decay, rounds)
    scale = 1 / np.sqrt(np.maximum(np.diff(train.indptr), 1))
    ones = csr_array((np.ones(train.nnz), train.indices, train.indptr), shape=train.shape)
    u = u + scale[:, None] * (ones @ y)
    rows, columns = ratings.test.nonzero()
    return mean + span / 4 * (b[rows] + c[columns] + np.sum(u[rows] * v[columns], axis=1))


@numba.njit(cache=True)
def _svdpp_rounds(indptr, indices, values, b, c, u, v, y, rate, decay, rounds):
    for _ in range(rounds):
        for i in range(len(indptr) - 1):
            some = indices[indptr[i] : indptr[i + 1]]
            if len(some) == 0:
                continue
            scale = 1 / np.sqrt(len(some))
            implied = np.zeros(u.shape[1])
            for j in some:
                implied += scale * y[j]
            slope = np.zeros(u.shape[1])
            for place, j in enumerate(some):
                error = values[indptr[i] + place] - b[i] - c[j] - np.sum((u[i] + implied) * v[j])
                b[i] += rate * (error - decay * b[i])
                c[j] += rate * (error - decay * c[j])
                slope += error * scale * v[j]
                old = v[j].copy()
                v[j] += rate * (error * (u[i] + implied) - decay * v[j])
                u[i] += rate * (error * old - decay * u[i])
            for j in some:
                y[j] += rate * (slope - decay * y[j])


ALS_GRID = [{"rank": rank, "decay": decay} for rank, decay in product((4, 16), (0.05, 0.1, 0.2, 0.5, 2.0))]
SVDPP_GRID = [
    {"decay": decay, "rounds": rounds} for decay, rounds in product((0.02, 0.06, 0.1, 0.2), (20, 60))
]


def chosen(solve: Callable[..., np.ndarray], grid: list[dict[str, Any]], ratings: Ratings) -> dict[str, Any]:
    """Return the settings with the smallest error on a tenth of the training ratings."""
    every = ratings.train.tocoo()
    held = np.random.default_rng(1).random(every.nnz) < 0.1
    parts = (
        csr_array((every.data[part], (every.row[part], every.col[part])), shape=every.shape)
        for part in (~held, held)
    )
    trial = Ratings(*parts, ratings.bounds)
    return min(grid, key=lambda settings: error_of(solve(trial, 0, **settings), trial))


def own(ratings: Ratings, seed: int) -> tuple[np.ndarray, float, float]:
    """Return predictions of ``airnp.fit_ratings``, seconds to choose settings, and seconds of its fit.

    The fit whose time is compared is one of all iterations, which chooses nothing.
    """
    from airnp.ratings import Trials, fitted_with, rating_dtype

    options = {
        "dtype": rating_dtype(ratings.train.data),
        "rank": min(128, *ratings.train.shape),
        "max_iter": MAX_ITER,
        "bounds": (float(ratings.train.data.min()), float(ratings.train.data.max())),
        "seed": seed,
        "xp": None,
        "device": None,
        "engine": "auto",
    }
    start = time.perf_counter()
    settings = Trials(ratings.train, None, None, options).choose()
    choosing = time.perf_counter() - start
    result = fitted_with(ratings.train, settings, **options | {"max_iter": settings.iterations})
    start = time.perf_counter()
    fitted_with(ratings.train, settings, **options)
    return result.predict(*ratings.test.nonzero()), choosing, time.perf_counter() - start


def error_of(predictions: np.ndarray, ratings: Ratings) -> float:
    """Return the root mean square error of clipped predictions."""
    rows, columns = ratings.test.nonzero()
    truth = ratings.test[rows, columns]
    return float(np.sqrt(np.mean((np.clip(predictions, *ratings.bounds) - truth) ** 2)))


# --- the page ---


def measured(name: str, seeds: Sequence[int]) -> list[str]:
    """Return the line of a table."""
    label, draw = TABLES[name]
    found: dict[str, list[float]] = {"own": [], "offsets": [], "als": [], "svdpp": []}
    ratios, count = [], 0
    first = draw(seeds[0])
    settings = {
        "als": chosen(als, ALS_GRID, first),
        "svdpp": chosen(svdpp, SVDPP_GRID, first),
    }
    for seed in seeds:
        ratings = draw(seed)
        count = ratings.train.nnz
        predictions, choosing, fit = own(ratings, seed)
        ratios.append((choosing + fit) / fit)
        found["own"].append(error_of(predictions, ratings))
        found["offsets"].append(error_of(offsets_alone(ratings, seed), ratings))
        found["als"].append(error_of(als(ratings, seed, **settings["als"]), ratings))
        found["svdpp"].append(error_of(svdpp(ratings, seed, **settings["svdpp"]), ratings))
    mean = {key: float(np.mean(values)) for key, values in found.items()}
    worst = max(a / b - 1 for a, b in zip(found["own"], found["offsets"], strict=True))
    best = min(mean[key] for key in ("als", "svdpp"))
    return [
        label,
        str(count),
        *(f"{mean[key]:.4f}" for key in ("offsets", "als", "svdpp", "own")),
        f"{100 * (mean['own'] / mean['offsets'] - 1):+.2f} % ({100 * worst:+.2f} %)",
        f"{100 * (mean['own'] / best - 1):+.2f} %",
        f"{np.median(ratios):.1f}",
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.ratings.unlike", description=__doc__)
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    arguments = parser.parse_args(argv)
    warnings.filterwarnings("ignore", message=".*no observed entry.*")
    header = ["table", "ratings", "offsets alone", "ALS", "SVD++", "`airnp.fit_ratings`"]
    header += ["against offsets (worst seed)", "against the better peer", "times one fit"]
    rows = []
    for name in arguments.tables:
        seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
        rows.append(measured(name, seeds))
        print(rows[-1], file=sys.stderr, flush=True)
    print(markdown(header, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
