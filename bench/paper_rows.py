"""The eleven rows of the paper's first table: the data, what is missing, and the printed numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

import airnp
from airnp import datasets

COLUMNS = ("knn", "svd", "pnmc", "dmf", "rdmf", "dmf_de", "air")
PRINTED = {  # NMAE as printed, in the order of COLUMNS; None where the paper says NA
    "Barbara 30%": (0.083, 0.0621, 0.0622, 0.0613, 0.0494, None, 0.0471),
    "Barbara patch": (0.1563, 0.2324, 0.2055, 0.7664, 0.3025, None, 0.1195),
    "Barbara texture": (0.0712, 0.1331, 0.1100, 0.3885, 0.1864, None, 0.0692),
    "Baboon 30%": (0.0831, 0.1631, 0.0965, 0.2134, 0.0926, None, 0.0814),
    "Baboon patch": (0.1195, 0.1571, 0.1722, 0.8133, 0.2111, None, 0.1316),
    "Baboon texture": (0.1237, 0.1815, 0.1488, 0.5835, 0.2818, None, 0.1208),
    "Syn-Netflix 70%": (0.0032, 0.0376, None, 0.0003, None, 0.0008, 0.0002),
    "Syn-Netflix 75%": (0.0046, 0.0378, None, 0.0004, None, 0.0009, 0.0003),
    "Syn-Netflix 80%": (0.0092, 0.0414, None, 0.0014, None, 0.0012, 0.0007),
    "IC 20%": (0.0169, 0.0547, None, 0.0773, None, 0.0151, 0.0134),
    "GPCR 20%": (0.0409, 0.0565, None, 0.1513, None, 0.0245, 0.0271),
}
LOADERS = {
    "Barbara": datasets.barbara,
    "Baboon": datasets.baboon,
    "Cameraman": datasets.cameraman,
    "Syn-Netflix": datasets.syn_netflix,
    "IC": datasets.dti_ic,
    "GPCR": datasets.dti_gpcr,
}


@dataclass(frozen=True)
class Problem:
    """A complete matrix, which entries are observed, and graphs where the data has them."""

    truth: np.ndarray
    mask: np.ndarray
    graphs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def observed(self) -> np.ndarray:
        """The matrix as a method may see it: NaN where it is missing."""
        return np.where(self.mask, self.truth, np.asarray(np.nan, self.truth.dtype))

    def fit(self, seed: int, **settings: Any) -> airnp.FitResult:
        """Complete it by :func:`airnp.fit`, with one thread unless ``settings`` say otherwise."""
        return airnp.fit(self.observed, self.mask, seed=seed, **{"engine": airnp.CPU(threads=1), **settings})


@dataclass(frozen=True)
class Row:
    """One row of the table.

    Attributes
    ----------
    name : str
    load : callable
        ``load(seed)`` returns the :class:`Problem`; the seed is that of a random mask.
    printed : mapping
        The paper's NMAE by column, for the columns that it has.
    has_fixed_mask : bool
        Whether the same entries are missing for every seed.
    is_image : bool
        Whether neighbouring entries are related.
    is_binary : bool
        Whether all entries are 0 or 1, most of them 0.
    """

    name: str
    load: Callable[[int], Problem]
    printed: Mapping[str, float]
    has_fixed_mask: bool = False
    is_image: bool = False
    is_binary: bool = False

    @property
    def best_printed(self) -> str:
        """The column of the paper's best number."""
        return min(self.printed, key=self.printed.__getitem__)

    @property
    def goal(self) -> float:
        """The paper's best number."""
        return self.printed[self.best_printed]


def load(name: str, seed: int) -> Problem:
    """Load the data of a row and draw or load its mask."""
    data_name, _, pattern = name.partition(" ")
    data = LOADERS[data_name]()
    graphs = {"row_graph": data.row_graph, "column_graph": data.column_graph}
    return Problem(data.matrix.astype(np.float32), draw_mask(pattern, data.matrix.shape, seed), graphs)


def draw_mask(pattern: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Return a mask of observed entries: "patch", "texture" (240×240 only), or a missing share like "30%"."""
    if pattern == "patch":
        return airnp.masks.patch(shape)
    if pattern == "texture":
        return datasets.texture_mask()
    return airnp.masks.random(shape, float(pattern.removesuffix("%")) / 100, seed=seed)


def _row(name: str) -> Row:
    numbers = zip(COLUMNS, PRINTED[name], strict=True)
    return Row(
        name,
        load=partial(load, name),
        printed={column: number for column, number in numbers if number is not None},
        has_fixed_mask=not name.endswith("%"),
        is_image=name.startswith(("Barbara", "Baboon")),
        is_binary=name.startswith(("IC", "GPCR")),
    )


ROWS = {name: _row(name) for name in PRINTED}
