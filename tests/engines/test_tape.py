"""Replayed iterations of the CPU engine give the bits of iterations that are made one by one."""

from __future__ import annotations

import numpy as np
import pytest

import airnp
from airnp.engines import cpu
from airnp.engines.tape import Tape
from tests.engines.fits import MODELS, data, fit_sparse, sparse_models, table

SPARSE = sparse_models(17)


@pytest.fixture
def replays(monkeypatch):
    """Count the iterations that are replayed."""
    found, play = [], Tape.play
    monkeypatch.setattr(Tape, "play", lambda tape, updates: (found.append(1), play(tape, updates)))
    return found


@pytest.mark.parametrize("model", ["air", "global", "everything", "sparse"])
def test_dense_iterations(model, replays, monkeypatch):
    options = {"regularizers": MODELS[model], "max_iter": 60, "stop": None, "seed": 0}
    replayed = airnp.fit(*data(), **options)
    assert len(replays) == 59
    monkeypatch.setattr(airnp.Objective, "is_plain", False)
    single = airnp.fit(*data(), **options)
    assert len(replays) == 59
    np.testing.assert_array_equal(replayed.X, single.X)
    np.testing.assert_array_equal(replayed.history["loss"], single.history["loss"])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("model", [name for name in SPARSE if name != "batches"])
def test_sparse_iterations(model, dtype, replays, monkeypatch):
    """Candidates are searched anew after 40 and 80 iterations; then the first iteration is recorded again."""
    options = {"max_iter": 100, "dtype": dtype, **SPARSE[model]}
    replayed = fit_sparse(table(23, 17), **options)
    assert len(replays) == (97 if model in ("graphs", "everything") else 99)
    monkeypatch.setattr(cpu, "replays_sparse", False)
    single = fit_sparse(table(23, 17), **options)
    np.testing.assert_array_equal(replayed.X, single.X)
    np.testing.assert_array_equal(replayed.history["loss"], single.history["loss"])
    for one, other in zip(replayed.graphs, single.graphs, strict=True):
        assert (one.adjacency != other.adjacency).nnz == 0


def test_batches_are_not_replayed(replays):
    fit_sparse(table(23, 17), max_iter=20, **SPARSE["batches"])
    assert not replays
