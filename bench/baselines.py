"""The baselines on rows of the paper's first table, beside the paper's printed numbers.

    python -m bench.baselines [--quick] [--rows "Barbara 30%" ...] [--methods knn svd ...] [--seed 0]

The data come from :mod:`airnp.datasets`. ``--quick`` takes one image row and one DTI row, and
leaves out the deep factorisations, which take about a minute each. Methods that need neighbouring entries
to mean neighbouring things (PNMC, RDMF, biharmonic) are run on images only, DMF+DE on the others only, as in
the paper. One seed each. The settings behind the paper's baselines are not known to us: its numbers differ.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import airnp
from airnp import datasets
from airnp.baselines import METHODS
from bench.timing import markdown

COLUMNS = ("knn", "svd", "pnmc", "dmf", "rdmf", "dmf_de", "air")
PAPER = {  # NMAE as printed, in the order of COLUMNS; None where the paper says NA
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
QUICK = ("Barbara 30%", "IC 20%")
IMAGES_ONLY = ("pnmc", "rdmf", "biharmonic")
SLOW = ("dmf", "rdmf", "dmf_de")
SEEDED = ("svd", "soft_impute", "pnmc", *SLOW)


LOADERS = {
    "Barbara": datasets.barbara,
    "Baboon": datasets.baboon,
    "Syn-Netflix": datasets.syn_netflix,
    "IC": datasets.dti_ic,
    "GPCR": datasets.dti_gpcr,
}


@dataclass(frozen=True)
class Problem:
    """A complete matrix, which entries are observed, and graphs where the data has them."""

    truth: np.ndarray
    mask: np.ndarray
    graphs: dict[str, Any] = field(default_factory=dict)


def load(row: str, seed: int) -> Problem:
    """Load the data of a row and draw or load its mask."""
    name, _, pattern = row.partition(" ")
    data = LOADERS[name]()
    if pattern == "patch":
        mask = airnp.masks.patch(data.matrix.shape)
    elif pattern == "texture":
        mask = datasets.texture_mask()
    else:
        mask = airnp.masks.random(data.matrix.shape, float(pattern.removesuffix("%")) / 100, seed=seed)
    graphs = {"row_graph": data.row_graph, "column_graph": data.column_graph}
    return Problem(data.matrix.astype(np.float32), mask, graphs)


def options_for(method: str, problem: Problem, seed: int) -> dict[str, Any]:
    graphs = problem.graphs if method == "dmf_de" else {}
    return {**({"seed": seed} if method in SEEDED else {}), **graphs}


def suits(method: str, row: str) -> bool:
    on_image = row.startswith(("Barbara", "Baboon"))
    return on_image if method in IMAGES_ONLY else not (method == "dmf_de" and on_image)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="two rows, no deep factorisation")
    parser.add_argument("--rows", nargs="+", choices=list(PAPER), metavar="ROW")
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), metavar="METHOD")
    parser.add_argument("--seed", type=int, default=0, help="of the mask and of the methods")
    arguments = parser.parse_args(argv)
    rows = arguments.rows or (QUICK if arguments.quick else list(PAPER))
    methods = arguments.methods or [name for name in METHODS if not (arguments.quick and name in SLOW)]
    warnings.simplefilter("ignore", airnp.EmptyLineWarning)

    lines = []
    for row in rows:
        problem = load(row, arguments.seed)
        for method in methods:
            if not suits(method, row):
                continue
            print(f"{row}: {method} ...", end=" ", file=sys.stderr, flush=True)
            start = time.perf_counter()
            X = METHODS[method](problem.truth, problem.mask, **options_for(method, problem, arguments.seed))
            seconds = time.perf_counter() - start
            nmae = airnp.metrics.nmae(X, problem.truth, problem.mask)
            printed = PAPER[row][COLUMNS.index(method)] if method in COLUMNS else None
            print(f"{nmae:.4f}, {seconds:.1f} s", file=sys.stderr, flush=True)
            ratio = "–" if printed is None else f"{nmae / printed:.2f}×"
            lines.append(
                [row, method, f"{nmae:.4f}", printed or "–", ratio, PAPER[row][-1], f"{seconds:.1f}"]
            )
    print(markdown(["row", "method", "NMAE", "printed", "ratio", "AIR printed", "seconds"], lines))


if __name__ == "__main__":
    main()
