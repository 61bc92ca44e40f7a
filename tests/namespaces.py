"""Fits in any array namespace, and comparisons of their results with those of NumPy."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import array_api_compat as compat
import numpy as np

import airnp
from airnp import (
    AdaptiveLaplacian,
    Blocks,
    Custom,
    DirichletEnergy,
    FixedLaplacian,
    HeldOut,
    Huber,
    PatchLaplacian,
    Squared,
    TotalVariation,
)
from airnp._arrays import to_numpy
from tests.conftest import Backend

SHAPE = (12, 9)
NUMPY = Backend("numpy", np)
KEEPS_SCALARS = (np.float32(1) / 2).dtype == np.float32  # before NumPy 2 a scalar may become float64
Options = dict[str, Any]


def stack(*batch: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return low-rank matrices and masks that leave three entries at least in every row and column."""
    rng = np.random.default_rng(seed)
    Y = rng.standard_normal((*batch, SHAPE[0], 2)) @ rng.standard_normal((*batch, 2, SHAPE[1]))
    mask = rng.random((*batch, *SHAPE)) < 0.6
    for shift in (0, 3, 5):
        mask[..., np.arange(12), (np.arange(12) + shift) % 9] = True
    return Y, mask


Y, MASK = stack()
WEIGHTS = np.random.default_rng(1).uniform(0.2, 2, SHAPE)
GRAPH = np.eye(12, k=1) + np.eye(12, k=-1)
OUTLIERS = Y + 5.0 * (np.arange(108).reshape(SHAPE) % 17 == 0)


class Mixing:
    """X → left · X · right, with arrays of the backend's own."""

    def __init__(self, backend: Backend) -> None:
        rng = np.random.default_rng(2)
        self.left = backend.array(rng.standard_normal((7, 12)))
        self.right = backend.array(rng.standard_normal((9, 8)))

    def forward(self, X: Any) -> Any:
        return self.left @ X @ self.right

    def adjoint(self, Z: Any) -> Any:
        transpose = compat.array_namespace(Z).matrix_transpose
        return transpose(self.left) @ Z @ transpose(self.right)


MEASURED = Mixing(NUMPY).forward(Y)


def adaptive(kind: Any) -> AdaptiveLaplacian:
    """Return a learned graph over the rows, of another adjacency than the default."""
    return AdaptiveLaplacian("rows", weight=1e-2, adjacency=kind)


Case = Callable[[Backend], tuple[Any, Any, Options]]

REGULARIZERS: dict[str, Callable[[Backend], list[Any]]] = {
    "DMF": lambda b: [],
    "TV l1": lambda b: [TotalVariation(1e-3)],
    "TV quadratic": lambda b: [TotalVariation(1e-3, kind="quadratic")],
    "given graph": lambda b: [FixedLaplacian(b.array(GRAPH))],
    "given graph of columns": lambda b: [FixedLaplacian(GRAPH[:9, :9], "columns", weight=1e-2)],
    "Dirichlet": lambda b: [DirichletEnergy("rows"), DirichletEnergy("columns")],
    "blocks": lambda b: [AdaptiveLaplacian(Blocks(4, 3))],
    "graph of blocks": lambda b: [FixedLaplacian(GRAPH[:9, :9], Blocks(4, 3))],
    "patches": lambda b: [PatchLaplacian(1e-2, 1, 5, 3, 4), PatchLaplacian()],
    "own transform": lambda b: [AdaptiveLaplacian(Mixing(b))],
    "global": lambda b: [adaptive("global")],
    "product": lambda b: [adaptive("product"), AdaptiveLaplacian("columns")],
    "custom": lambda b: [Custom(lambda X: (compat.array_namespace(X).sum(X**2, axis=(-2, -1)), 2 * X), 1e-2)],
    "custom with numbers": lambda b: [Custom(lambda X: (0.5, 0 * X), 1e-2)],
    "all together": lambda b: [
        *(AdaptiveLaplacian(axis) for axis in ("rows", "columns", Blocks(3, 3))),
        TotalVariation(1e-3),
        FixedLaplacian(GRAPH),
    ],
}

FITS: dict[str, Options] = {
    "balanced": {"init": "balanced"},
    "gradient descent": {"optimizer": "gradient_descent", "learning_rate": 0.5},
    "held out": {"stop": HeldOut(patience=30, every=10), "max_iter": 60},
    "auto": {"stop": "auto", "max_iter": 60},
    "energy change": {"stop": airnp.EnergyChange(1e-3), "max_iter": 60},
    "not normalised": {"normalize": False},
}


def case(options: Callable[[Backend], Options], data: np.ndarray = Y, mask: Any = MASK) -> Case:
    """Return a case with the arrays of a backend."""
    return lambda b: (b.array(data), None if mask is None else b.array(mask), options(b))


CASES: dict[str, Case] = {
    "AIR": case(lambda b: {}),
    "NaN is missing": case(lambda b: {}, np.where(MASK, Y, np.nan), None),
    "int mask": case(lambda b: {}, Y, MASK.astype(np.int64)),
    "float mask": case(lambda b: {}, Y, MASK.astype(np.float32)),
    "one factor": case(lambda b: {"depth": 1}),
    "depth 4, rank 3": case(lambda b: {"depth": 4, "rank": 3}),
    **{name: case(lambda b, make=make: {"regularizers": make(b)}) for name, make in REGULARIZERS.items()},
    "Huber": case(lambda b: {"fidelity": Huber(0.02)}, OUTLIERS),
    "weights": case(lambda b: {"weights": b.array(WEIGHTS)}),
    "int weights": case(lambda b: {"weights": b.array(2 * MASK.astype(np.int64))}, Y, None),
    "bool weights": case(lambda b: {"weights": b.array(MASK)}, Y, None),
    "sum fidelity": case(lambda b: {"fidelity": Squared("sum")}),
    "operator": case(lambda b: {"operator": Mixing(b)}, MEASURED, None),
    "operator and Huber": case(
        lambda b: {"operator": Mixing(b), "fidelity": Huber(), "regularizers": [TotalVariation(1e-3)]},
        MEASURED,
        np.arange(56).reshape(7, 8) % 5 > 0,
    ),
    "stack": case(lambda b: {}, *stack(2)),
    "stack with one mask": case(
        lambda b: {"regularizers": [adaptive("global"), TotalVariation(1e-3), DirichletEnergy("columns")]},
        stack(2, 2)[0],
    ),
    "stack with patches": case(lambda b: {"regularizers": [PatchLaplacian(patch=5)]}, *stack(2)),
    "integers": case(lambda b: {}, np.rint(50 * Y).astype(np.int64)),
}

ALL = CASES | {name: case(lambda b, options=options: options) for name, options in FITS.items()}


def fitted(data: Any, mask: Any, options: Options) -> airnp.FitResult:
    """Fit by the reference engine, for a few iterations unless the options say otherwise."""
    common = {"max_iter": 20, "stop": None, "seed": 5, "record": 5, "engine": "reference"}
    return airnp.fit(data, mask, **{**common, **options})


@cache
def numpy_fit(name: str) -> airnp.FitResult:
    """The answer of NumPy in float64 to a case."""
    return fitted(*ALL[name](NUMPY))


def arrays_of(result: airnp.FitResult) -> dict[str, Any]:
    """Return every array of a result by name."""
    found = {"X": result.X, "offset": result.normalization.offset, "scale": result.normalization.scale}
    if result.mask is not None:
        found |= {"mask": result.mask, "observed": result.observed, "completed": result.completed()}
    found |= {f"factor {level}": factor for level, factor in enumerate(result.factors)}
    for place, item in enumerate(result.regularizers):
        parts = {name: getattr(item, name) for name in ("energy", "adjacency", "laplacian", "parameter")}
        found |= {f"{name} {place}": part for name, part in parts.items() if part is not None}
    return found


def assert_lives(result: airnp.FitResult, backend: Backend, dtype: str = "float64") -> None:
    """Assert that every array of a result is of the backend's namespace, device and of one float type."""
    like = backend.array(np.zeros(1, dtype=dtype))
    xp = compat.array_namespace(like)
    for name, array in arrays_of(result).items():
        assert compat.is_array_api_obj(array), name
        assert compat.array_namespace(array) is xp, name
        assert compat.device(array) == compat.device(like), name
        if array.ndim > 0 or KEEPS_SCALARS:
            assert array.dtype == (xp.bool if name == "mask" else like.dtype), name


def assert_same(found: airnp.FitResult, expected: airnp.FitResult, tolerance: float = 1e-11) -> None:
    """Assert that two results agree to rounding in every array, number and record."""
    assert (found.n_iter, found.stop_reason) == (expected.n_iter, expected.stop_reason)
    np.testing.assert_array_equal(found.best_iter, expected.best_iter)
    assert list(found.history) == list(expected.history)
    for column in found.history:
        np.testing.assert_allclose(
            found.history[column], expected.history[column], rtol=tolerance, atol=tolerance, err_msg=column
        )
    one, other = arrays_of(found), arrays_of(expected)
    assert one.keys() == other.keys()
    for name, array in one.items():
        values = to_numpy(other[name])
        size = max(np.abs(values).max(), 1e-3)
        np.testing.assert_allclose(
            to_numpy(array).astype(float), values, rtol=0, atol=tolerance * size, err_msg=name
        )
