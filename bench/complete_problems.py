"""Small problems for ``bench.complete``: pictures, tables, matrices of low rank, binary data, ratings.

Each kind of data has gaps here and there, in lines and in holes. The two halves have no picture, table or
draw in common.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import airnp
from bench.pictures.problems import REPORT as REPORT_PICTURES
from bench.pictures.problems import TUNING as TUNING_PICTURES
from bench.pictures.problems import draw_mask, picture
from bench.tables import data
from bench.tables.gaps import make_gaps

HALVES = ("tuning", "report")
SIDE = 64
ROWS = 160
"""Rows of a table, at most."""

Gaps = Callable[[tuple[int, int], np.random.Generator], np.ndarray]


@dataclass(frozen=True)
class SmallProblem:
    """A complete matrix, which entries are observed, and how it is given to ``airnp.complete``.

    Attributes
    ----------
    truth : ndarray (m, n)
    mask : bool ndarray (m, n)
    kind : {"matrix", "table", "binary", "ratings"}
    metric : {"mae", "rmse", "auc"}
    """

    truth: np.ndarray
    mask: np.ndarray
    kind: str
    metric: str

    @property
    def given(self) -> Any:
        """The data with gaps: a DataFrame, a sparse matrix, or an array."""
        gaps = np.where(self.mask, self.truth, np.nan)
        if self.kind == "table":
            from pandas import DataFrame

            return DataFrame(gaps, columns=[f"x{j}" for j in range(gaps.shape[1])])
        if self.kind == "ratings":
            from scipy.sparse import coo_array

            where = np.nonzero(self.mask)
            return coo_array((self.truth[where], where), shape=self.truth.shape)
        return gaps


def scattered(share: float) -> Gaps:
    """Return a function that drops entries at random, but never a whole line."""
    return lambda shape, rng: _kept(airnp.masks.random(shape, share, seed=rng), rng)


def lines(shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """Return a mask without half of every fifth row, and half of every fifth column, in one piece each."""
    mask = np.ones(shape, bool)
    for side in (mask, mask.T):
        for number in rng.permutation(len(side))[: len(side) // 5]:
            first = rng.integers(side.shape[1] // 2 + 1)
            side[number, first : first + side.shape[1] // 2] = False
    return _kept(mask, rng)


def holes(shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """Return a mask without eight rectangles, whose sides are a seventh of the matrix's."""
    mask = np.ones(shape, bool)
    size = np.maximum(np.array(shape) // 7, 2)
    for top, left in rng.integers(0, np.subtract(shape, size) + 1, (8, 2)):
        mask[top : top + size[0], left : left + size[1]] = False
    return _kept(mask, rng)


def _kept(mask: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the mask with an entry at least in every line."""
    for row in np.flatnonzero(~mask.any(axis=1)):
        mask[row, rng.integers(mask.shape[1])] = True
    for column in np.flatnonzero(~mask.any(axis=0)):
        mask[rng.integers(mask.shape[0]), column] = True
    return mask


def _picture(name: str, mask: str, rng: np.random.Generator) -> SmallProblem:
    whole = picture(name, "240")
    top, left = rng.integers(0, len(whole) - SIDE + 1, 2)
    truth = whole[top : top + SIDE, left : left + SIDE]
    if mask == "scratches":
        return SmallProblem(truth, airnp.masks.scratches(truth.shape, 6, 2, seed=rng), "matrix", "mae")
    seen = draw_mask(mask, truth.shape, [int(rng.integers(2**31))])
    return SmallProblem(truth, seen, "matrix", "mae")


def _table(name: str, gaps: Gaps | str, rng: np.random.Generator) -> SmallProblem:
    known = data.load(name)
    truth = known.frame.loc[:, known.is_numeric].to_numpy(float)
    truth = truth[rng.permutation(len(truth))[:ROWS]]
    truth = truth[:, np.ptp(truth, axis=0) > 0]
    if isinstance(gaps, str):
        mask = make_gaps(truth, 0.3, gaps, int(rng.integers(2**31)))
    else:
        mask = gaps((truth.shape[0], truth.shape[1]), rng)
    return SmallProblem(truth, mask, "table", "rmse")


def _low_rank(rank: int, noise: float, gaps: Gaps, rng: np.random.Generator) -> SmallProblem:
    m, n = 60, 50
    truth = rng.standard_normal((m, rank)) @ rng.standard_normal((rank, n)) / rank**0.5
    truth += noise * rng.standard_normal((m, n))
    return SmallProblem(truth, gaps((m, n), rng), "matrix", "mae")


def _binary(metric: str, gaps: Gaps, rng: np.random.Generator) -> SmallProblem:
    m, n = 60, 50
    scores = rng.standard_normal((m, 3)) @ rng.standard_normal((3, n)) + 0.5 * rng.standard_normal((m, n))
    return SmallProblem((scores > 1) * 1.0, gaps((m, n), rng), "binary", metric)


def _ratings(share: float, rng: np.random.Generator) -> SmallProblem:
    m, n = 90, 70
    scores = 3 + 0.6 * rng.standard_normal((m, 1)) + 0.6 * rng.standard_normal((1, n))
    scores = scores + 0.5 * rng.standard_normal((m, 2)) @ rng.standard_normal((2, n))
    truth = np.clip((scores + 0.5 * rng.standard_normal((m, n))).round(), 1, 5)
    return SmallProblem(truth, scattered(share)((m, n), rng), "ratings", "mae")


def _makers(half: str) -> Iterator[tuple[str, Callable[[np.random.Generator], SmallProblem]]]:
    masks = ("30%", "70%", "scratches", "patches")
    for place, name in enumerate(REPORT_PICTURES if half == "report" else TUNING_PICTURES):
        for mask in (masks[place % 4], masks[(place + 1 + place // 4) % 4]):
            yield f"picture {name} {mask}", partial(_picture, name, mask)
    ways: dict[str, Any] = {"30%": scattered(0.3), "lines": lines, "holes": holes}
    names = data.REPORT if half == "report" else data.TUNING
    for place, name in enumerate(names):
        for way in ("30%", ("lines", "MNAR")[place % 2], ("MAR", "holes")[place % 2]):
            yield f"table {name} {way}", partial(_table, name, ways.get(way, way))
    for way, gaps in (ways | {"60%": scattered(0.6)}).items():
        for rank, noise in ((2, 0.0), (4, 0.05), (3, 0.5)):
            yield f"rank {rank} + {noise:g} {way}", partial(_low_rank, rank, noise, gaps)
    for way, gaps in ways.items():
        for metric in ("mae", "auc", "rmse"):
            yield f"binary {metric} {way}", partial(_binary, metric, gaps)
    for share in (0.5, 0.7, 0.8, 0.9):
        yield f"ratings {share:.0%}", partial(_ratings, share)


def problems(half: str, seed: int = 0) -> dict[str, Callable[[], SmallProblem]]:
    """Return the problems of a half by their names; each seed is another draw."""
    found: dict[str, Callable[[], SmallProblem]] = {}
    for number, (name, make) in enumerate(_makers(half)):
        found[name] = partial(_made, make, [seed, HALVES.index(half), number])
    return found


def _made(make: Callable[[np.random.Generator], SmallProblem], seed: list[int]) -> SmallProblem:
    return make(np.random.default_rng(seed))
