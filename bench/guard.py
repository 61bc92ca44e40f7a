"""Hash what fits return, so that a change that should change no answer can be shown to change none.

    python -m bench.guard --write before.json      # on the code as it was
    python -m bench.guard --check before.json      # on the code as it is; exits with 1 and names what differs

About eighty small fits: both forms, every stopping rule, both dtypes, every regulariser, stacks, operators,
bounds, runs that are saved at an iteration drawn at random and resumed, one thread and two. Hashes are of the
bits, so a file is good for one machine and one set of library versions.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

import airnp
from airnp import (
    CPU,
    Adam,
    AdaptiveLaplacian,
    Balanced,
    Blocks,
    DirichletEnergy,
    EnergyChange,
    ExponentialDecay,
    FixedLaplacian,
    Gaussian,
    HeldOut,
    Huber,
    Nearest,
    Operator,
    Record,
    Squared,
    TotalVariation,
    WeightDecay,
)

warnings.simplefilter("ignore")

Job = tuple[str, Callable[[], Any]]

rng = np.random.default_rng(0)
TABLE = rng.random((30, 4)) @ rng.random((4, 22)) + 0.02 * rng.standard_normal((30, 22))
MASK = rng.random(TABLE.shape) < 0.7
STACK = np.stack([TABLE, TABLE[::-1] ** 2])
grid = np.linspace(0, 3, 40)
PICTURE = np.sin(np.add.outer(grid, 2 * grid)) + 0.1 * rng.standard_normal((40, 40))
HOLES = np.ones(PICTURE.shape, bool)
HOLES[8:14, 20:28] = HOLES[25:31, 5:9] = False
SPARSE = scipy.sparse.coo_array(np.where(MASK, TABLE, 0.0))
WIDE = scipy.sparse.coo_array(np.where(MASK, TABLE, 0.0).T)
RATINGS = scipy.sparse.csr_array(rng.integers(1, 6, (60, 40)) * (rng.random((60, 40)) < 0.3))
RING = np.roll(np.eye(30), 1, axis=0) + np.roll(np.eye(30), -1, axis=0)
OPERATOR = scipy.sparse.linalg.aslinearoperator(rng.standard_normal((200, 30 * 22)))


def result_hash(result: Any) -> str:
    """Return a short hash of the matrix or factors, of graphs, history, iterations and reason."""
    digest = hashlib.blake2b(digest_size=8)

    def add(array: Any) -> None:
        found = np.ascontiguousarray(array)
        digest.update(f"{found.shape}{found.dtype}".encode() + found.tobytes())

    if hasattr(result, "row_factors"):
        arrays = [
            result.row_factors,
            result.column_factors,
            *(graph.adjacency.data for graph in result.graphs),
        ]
        if result.offsets is not None:
            arrays += [result.offsets.rows, result.offsets.columns, result.offsets.mean]
    else:
        arrays = [result.matrix, *result.factors, *(item.energy for item in result.regularizers)]
        arrays += [item.parameter for item in result.regularizers if item.parameter is not None]
    for array in arrays:
        add(array)
    for name in result.history:
        digest.update(name.encode())
        add(result.history[name])
    add(result.best_iter)
    digest.update(f"{result.n_iter}{result.stop_reason}{result.seed}".encode())
    return digest.hexdigest()


def dense(**settings: Any) -> Callable[[], Any]:
    settings = {"Y": TABLE, "mask": MASK, "max_iter": 700, "seed": 3, **settings}
    return lambda: airnp.fit(**settings)


def sparse(**settings: Any) -> Callable[[], Any]:
    settings = {"S": SPARSE, "rank": 5, "max_iter": 300, "seed": 3, **settings}
    return lambda: airnp.fit_sparse(**settings)


def interrupt_and_resume(settings: dict[str, Any], fit: Callable[..., Any], at: int) -> Callable[[], Any]:
    """Stop a run at an iteration, and go on from its file."""

    def run() -> Any:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "run.npz"
            fit(**settings, checkpoint=file, callback=lambda iteration, state: iteration >= at)()
            return airnp.resume(file, callback=lambda iteration, state: False)

    return run


def jobs() -> Iterator[Job]:
    """Yield all configurations."""
    rules = {
        "none": None,
        "energy": EnergyChange(1e-3),
        "held_out": HeldOut(0.1, patience=100, every=20),
        "no_refit": HeldOut(0.1, patience=100, every=20, refit=False),
        "patient": HeldOut(0.1, patience=5000, every=50),
    }
    for name, rule in rules.items():
        for dtype in ("float32", "float64"):
            for threads in (1, 2):
                yield f"dense/{name}/{dtype}/{threads}", dense(stop=rule, dtype=dtype, engine=CPU(threads))
                yield f"sparse/{name}/{dtype}/{threads}", sparse(stop=rule, dtype=dtype, engine=CPU(threads))
    short = {"stop": None, "max_iter": 250}
    of_dense: dict[str, Any] = {
        "dmf": {"regularizers": []},
        "tv": {"regularizers": [TotalVariation(1e-4)]},
        "tv2": {"regularizers": [TotalVariation(1e-4, kind="quadratic")]},
        "fixed": {"regularizers": [FixedLaplacian(RING)]},
        "fixed_sparse": {"regularizers": [FixedLaplacian(scipy.sparse.csr_array(RING))]},
        "covariance": {"regularizers": [DirichletEnergy("rows"), DirichletEnergy("columns")]},
        "global": {"regularizers": [AdaptiveLaplacian("rows", adjacency="global")]},
        "product": {"regularizers": [AdaptiveLaplacian("columns", 1e-5, adjacency="product")]},
        "blocks": {"Y": PICTURE, "mask": HOLES, "regularizers": [AdaptiveLaplacian(Blocks(8, 8))]},
        "holes": {"Y": PICTURE, "mask": HOLES, "stop": HeldOut(0.1, patience=100, every=20), "max_iter": 700},
        "stack": {"Y": STACK, "stop": HeldOut(0.1, patience=100, every=20), "max_iter": 700},
        "stack_energy": {"Y": STACK, "stop": EnergyChange(1e-3), "max_iter": 700},
        "operator": {"Y": OPERATOR @ TABLE.ravel(), "mask": None, "operator": Operator(OPERATOR, (30, 22))},
        "weights": {"weights": 1 + np.arange(660).reshape(30, 22) % 3},
        "bounds": {"bounds": (-1, 3)},
        "thin": {"rank": 3, "depth": 2},
        "deep": {"depth": 5, "init": Balanced(1e-2)},
        "descent": {"optimizer": "gradient_descent", "learning_rate": 1.0},
        "matrix_moment": {"optimizer": Adam(1e-3, second_moment="matrix")},
        "decay": {"optimizer": Adam(2e-3, graph_learning_rate=1e-2, schedule=ExponentialDecay(0.5, 60))},
        "plain": {"normalize": False},
        "reference": {"engine": "reference", "max_iter": 60},
        "huber": {"fidelity": Huber(0.05)},
        "sum": {"fidelity": Squared("sum")},
        "truth": {"record": Record(7, TABLE)},
    }
    for name, settings in of_dense.items():
        yield f"dense/{name}", dense(**{**short, **settings})
    of_sparse: dict[str, Any] = {
        "dmf": {"regularizers": []},
        "wide": {"S": WIDE},
        "few": {
            "regularizers": [
                AdaptiveLaplacian(axis, candidates=Nearest(4, refresh=40)) for axis in ("rows", "columns")
            ]
        },
        "given": {"regularizers": [AdaptiveLaplacian("rows", candidates=scipy.sparse.csr_array(RING))]},
        "fixed": {"regularizers": [FixedLaplacian(scipy.sparse.csr_array(RING))]},
        "decay": {"regularizers": [WeightDecay(0.01, "sqrt")]},
        "offsets": {"offsets": True},
        "mask": {
            "mask_factor": "both",
            "offsets": 2.0,
            "regularizers": [WeightDecay(0.1, "sqrt"), WeightDecay(0.3, on="mask")],
            "fidelity": Squared("sum"),
        },
        "batches": {"batch_size": 50, "offsets": True},
        "weights": {"weights": 1 + np.arange(SPARSE.nnz) % 3},
        "thin": {"depth": 2, "init": Gaussian(0.0, 0.1)},
        "matrix_moment": {"optimizer": Adam(1e-3, second_moment="matrix")},
        "decay_rate": {"optimizer": Adam(2e-3, schedule=ExponentialDecay(0.5, 60))},
        "bounds": {"bounds": (-1, 3)},
        "plain": {"normalize": False},
        "reference": {"engine": "reference", "max_iter": 60},
    }
    for name, settings in of_sparse.items():
        yield f"sparse/{name}", sparse(**{**short, **settings})
    yield "ratings", lambda: airnp.fit_ratings(RATINGS, rank=8, seed=1, max_iter=200)
    drawn = np.random.default_rng(1)
    held = HeldOut(0.1, patience=100, every=20)
    runs: list[tuple[str, Callable[..., Any], dict[str, Any]]] = [
        ("dense/none", dense, {"stop": None}),
        ("dense/held_out", dense, {"stop": held}),
        ("dense/holes", dense, {"Y": PICTURE, "mask": HOLES, "stop": held}),
        ("dense/stack", dense, {"Y": STACK, "stop": held}),
        ("sparse/none", sparse, {"stop": None}),
        ("sparse/held_out", sparse, {"stop": held, "offsets": True}),
        ("sparse/batches", sparse, {"stop": None, "batch_size": 50}),
        ("sparse/few", sparse, {"stop": None, **of_sparse["few"]}),
    ]
    for name, fit, settings in runs:
        yield f"resumed/{name}", interrupt_and_resume(settings, fit, int(drawn.integers(5, 240)))


def main() -> int:
    """Write or check the hashes."""
    parser = argparse.ArgumentParser(prog="python -m bench.guard", description=__doc__)
    parser.add_argument("--write", type=Path, metavar="FILE")
    parser.add_argument("--check", type=Path, metavar="FILE")
    parser.add_argument("--only", default="", help="configurations whose names contain this")
    asked = parser.parse_args()
    before = json.loads(asked.check.read_text()) if asked.check else {}
    found, differ = {}, []
    for name, job in jobs():
        if asked.only not in name:
            continue
        try:
            found[name] = result_hash(job())
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
            print(f"FAILED {name}: {found[name]}", flush=True)
        if asked.check and found[name] != before.get(name):
            differ.append(name)
            print(f"DIFFERS {name}: {before.get(name)} -> {found[name]}", flush=True)
    if asked.write:
        asked.write.write_text(json.dumps(found, indent=1))
    print(f"{len(found)} configurations, {len(differ)} differ")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
