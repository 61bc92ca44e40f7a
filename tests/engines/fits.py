"""Models, options and comparisons for tests that fit one problem by two engines, dense or sparse."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import airnp
from airnp import (
    AdaptiveLaplacian,
    Blocks,
    DirichletEnergy,
    FixedLaplacian,
    Nearest,
    TotalVariation,
    WeightDecay,
)
from airnp._arrays import to_numpy
from airnp.engines import Auto, select_engine
from airnp.training.steps import Steps
from tests.strategies import ADJACENCIES

M, N = 12, 9


def path(size):
    """Return the adjacency of a path graph."""
    return np.eye(size, k=1) + np.eye(size, k=-1)


def learned(kind):
    """Return learned graphs over the rows and the columns."""
    return [AdaptiveLaplacian(axis, 1e-3, kind) for axis in ("rows", "columns")]


def models(m, n):
    """Return regularizers for matrices (m, n), by name."""
    return {
        "air": None,
        "dmf": [],
        **{kind: learned(kind) for kind in ADJACENCIES},
        "two graphs over the rows": [
            AdaptiveLaplacian("rows"),
            AdaptiveLaplacian("rows", adjacency="global"),
        ],
        "tv": [TotalVariation(1e-3)],
        "quadratic tv": [TotalVariation(1e-3, "quadratic")],
        "fixed": [FixedLaplacian(np.ones((m, m)), "rows", 1e-3), FixedLaplacian(path(n), "columns", 1e-3)],
        "sparse": [
            FixedLaplacian(sparse.csr_array(path(size)), axis, 1e-3)
            for size, axis in ((n, "columns"), (m, "rows"))
        ],
        "covariance": [DirichletEnergy("columns", 1e-3)],
        "everything": [
            AdaptiveLaplacian("rows"),
            TotalVariation(1e-4),
            DirichletEnergy("rows"),
            AdaptiveLaplacian("columns"),
        ],
    }


MODELS = {**models(M, N), "blocks": [AdaptiveLaplacian(Blocks(3, 1), 1e-3)]}
OPTIONS = [
    {},
    {"depth": 1},
    {"depth": 2, "rank": 3},
    {"depth": 4},
    {"fidelity": airnp.Huber(0.2)},
    {"fidelity": airnp.Squared("sum")},
    {"weights": np.linspace(0.1, 2, M * N).reshape(M, N)},
    {"optimizer": airnp.Adam(3e-3, graph_learning_rate=1e-2, betas=(0.8, 0.99), epsilon=1e-7)},
    {"optimizer": airnp.GradientDescent(0.05)},
    {"optimizer": airnp.Adam(schedule=airnp.ExponentialDecay(0.5, 20))},
    {"optimizer": airnp.Adam(3e-3, second_moment="matrix")},
    {"init": "balanced"},
    {"normalize": False},
]


def data(batch=(), seed=0):
    """Return values and a mask."""
    rng = np.random.default_rng(seed)
    return rng.random((*batch, M, N)), rng.random((*batch, M, N)) < 0.8


def sparse_models(n):
    """Return options of sparse fits of n columns, by name."""
    graphs = [
        AdaptiveLaplacian("rows", 1e-2, candidates=Nearest(4, refresh=40)),
        FixedLaplacian(sparse.csr_array(path(n)), "columns", 1e-2),
    ]
    return {
        "factors": {"regularizers": []},
        "depth": {"regularizers": [AdaptiveLaplacian("columns", 1e-2, candidates=Nearest(5))], "depth": 4},
        "graphs": {"regularizers": graphs},
        "all edges": {"regularizers": None},
        "ratings": {
            "regularizers": [WeightDecay(1e-3, "sqrt"), WeightDecay(1e-3, on="mask")],
            "offsets": 2.0,
            "mask_factor": "both",
            "optimizer": airnp.Adam(3e-3, second_moment="matrix"),
        },
        "everything": {
            "regularizers": [*graphs, WeightDecay(1e-3)],
            "offsets": True,
            "mask_factor": "columns",
            "depth": 3,
        },
        "batches": {"regularizers": graphs, "batch_size": 60, "offsets": True},
        "descent": {"regularizers": [], "optimizer": airnp.GradientDescent(0.05)},
    }


def table(m, n, share=0.4):
    """Return a sparse matrix of rank 2 with one full row and one full column."""
    rng = np.random.default_rng(0)
    mask = rng.random((m, n)) < share
    mask[0] = mask[:, 0] = True
    values = 3 + (rng.standard_normal((m, 2)) @ rng.standard_normal((2, n)))[mask]
    return sparse.csr_array(sparse.coo_array((values, np.nonzero(mask)), shape=(m, n)))


def fit_sparse(S, **options):
    """Fit a sparse matrix, with settings that suit small ones."""
    common = {"rank": 3, "depth": 2, "max_iter": 100, "stop": None, "seed": 0}
    return airnp.fit_sparse(S, **{**common, "init": airnp.Gaussian(0.1, 0.3), **options})


def steps(objective, optimizer=None, *, xp=np, threads=1):
    """Return optimiser steps on an objective from its own start."""
    engine = select_engine(Auto(threads), xp)
    return Steps(objective, optimizer or airnp.Adam(), objective.init(0), engine=engine)


def assert_same(found, wanted, tolerance=1e-9, history=1e-8):
    """Compare two fits: completed matrices, histories (relative to ``history``) and learned graphs."""
    np.testing.assert_allclose(to_numpy(found.X), wanted.X, rtol=tolerance, atol=tolerance)
    for name in wanted.history:
        np.testing.assert_allclose(found.history[name], wanted.history[name], rtol=history, atol=tolerance)
    for a, b in zip(found.regularizers, wanted.regularizers, strict=True):
        if b.parameter is not None:
            np.testing.assert_allclose(to_numpy(a.parameter), b.parameter, rtol=tolerance, atol=tolerance)
            np.testing.assert_allclose(to_numpy(a.adjacency), b.adjacency, rtol=tolerance, atol=tolerance)


def assert_same_sparse(found, wanted, tolerance=1e-9):
    """Compare two fits of the sparse form."""
    np.testing.assert_allclose(found.X, wanted.X, rtol=tolerance, atol=tolerance)
    assert found.best_iter == wanted.best_iter
    for name in wanted.history:
        got, want = found.history[name], wanted.history[name]
        np.testing.assert_allclose(got, want, rtol=10 * tolerance, atol=tolerance)
    for a, b in zip(found.graphs, wanted.graphs, strict=True):
        assert abs(a.adjacency - b.adjacency).max() < tolerance
        assert a.energy == pytest.approx(b.energy, rel=tolerance)
