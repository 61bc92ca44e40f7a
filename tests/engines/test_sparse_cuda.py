"""The sparse form on a CUDA device, end to end, on a strict double of CuPy whose kernels run on the CPU.

The kernels have tests of their own in ``test_sparse_kernels.py``, the operations in
``test_sparse_operations.py``; what only a real device can show is in ``test_gpu.py``.
"""

from __future__ import annotations

import gc
from functools import partial

import array_api_strict
import numpy as np
import pytest

import airnp
from airnp import Adam, AdaptiveLaplacian, HeldOut, Nearest, WeightDecay
from airnp._devices import device_memory
from airnp.data.entries import read_entries
from airnp.engines import cuda, sparse_cuda
from airnp.engines.sparse_cuda import cut
from airnp.model.factored import FactoredObjective, Layout
from tests.engines.fits import assert_same_sparse, fit_sparse, sparse_models, steps, table
from tests.sparse_tables import weighted_table

M, N = 23, 17
MODELS = sparse_models(N)


def both(gpu, S=None, **options):
    """Return the same fit on the device, and by the reference engine on the host."""
    S = table(M, N) if S is None else S
    return fit_sparse(S, xp=gpu.cupy, **options), fit_sparse(S, engine="reference", **options)


@pytest.mark.parametrize("model", MODELS)
def test_every_model_follows_the_reference(gpu, model):
    iterations = 100 if model in ("graphs", "ratings", "everything", "batches") else 25
    assert_same_sparse(*both(gpu, max_iter=iterations, **MODELS[model]))


@pytest.mark.parametrize("model", ["everything", "ratings"])
def test_split_lines_only_change_rounding(gpu, monkeypatch, model):
    monkeypatch.setattr(sparse_cuda, "cut", partial(cut, longest=3))
    assert_same_sparse(*both(gpu, max_iter=30, **MODELS[model]))


def test_float32_stays_close(gpu):
    device, host = both(gpu, dtype="float32", max_iter=30, **MODELS["everything"])
    assert device.row_factors.dtype == np.float32
    np.testing.assert_allclose(device.X, host.X, atol=1e-3)


def test_more_columns_than_a_warp_has_registers_for(gpu):
    S = table(140, 135)
    terms = [AdaptiveLaplacian("rows", 1e-2, candidates=Nearest(3)), WeightDecay(1e-3)]
    options = {"rank": 131, "max_iter": 3, "init": airnp.Gaussian(0, 0.1), "regularizers": terms}
    assert_same_sparse(*both(gpu, S, offsets=True, **options))


def test_held_out_entries_stop_a_fit_on_the_device(gpu):
    rule = HeldOut(0.1, patience=20, every=5)
    assert_same_sparse(
        *both(gpu, stop=rule, regularizers=[], offsets=True, optimizer=Adam(0.02), max_iter=60)
    )


def test_a_sparse_matrix_of_cupy(gpu):
    S = table(M, N)
    there = gpu.cupyx.scipy.sparse.csr_matrix(S)
    one, two = (
        fit_sparse(Y, max_iter=5, **MODELS["graphs"], **options)
        for Y, options in ((there, {}), (S, {"xp": gpu.cupy}))
    )
    np.testing.assert_array_equal(one.X, two.X)
    dense = airnp.fit(there, rank=3, regularizers=[], max_iter=5, stop=None, seed=0)
    assert isinstance(dense.X, gpu.cupy.ndarray)


def test_a_fit_works_on_the_device_that_was_asked_for(gpu, monkeypatch):
    seen, residuals = [], cuda.residuals

    def spy(*given, **more):
        seen.append(gpu.cupy.cuda.runtime.getDevice())
        return residuals(*given, **more)

    monkeypatch.setattr(cuda, "residuals", spy)
    S, options = table(M, N), {"max_iter": 3, **MODELS["factors"]}
    second = fit_sparse(S, xp=gpu.cupy, device=1, **options)
    np.testing.assert_array_equal(second.X, fit_sparse(S, xp=gpu.cupy, **options).X)
    with gpu.cupy.cuda.Device(1):
        there = gpu.cupyx.scipy.sparse.csr_matrix(S)
    fit_sparse(there, **options)
    assert seen == [1] * 3 + [0] * 3 + [1] * 3
    with pytest.raises(ValueError, match=r"device: expected .*, where Y is, got 0; move Y"):
        fit_sparse(there, device=0, **options)
    with pytest.raises(ValueError, match="device: expected one of 0 to 1, got 7"):
        fit_sparse(S, xp=gpu.cupy, device=7, **options)
    with pytest.raises(ValueError, match="device: expected cpu, where Y is, got 1"):
        fit_sparse(S, device=1, **options)


def test_ratings_of_cupy(gpu):
    stars = table(M, N)
    stars.data = np.clip(np.rint(stars.data), 1, 5)
    there = gpu.cupyx.scipy.sparse.csr_matrix(stars)
    options = {"rank": 3, "max_iter": 10, "seed": 0}
    host = airnp.fit_ratings(stars, **options)
    for R, more in ((there, {}), (stars, {"xp": gpu.cupy}), (stars, {"xp": gpu.cupy, "device": 1})):
        result = airnp.fit_ratings(R, **options, **more)
        np.testing.assert_allclose(result.X, host.X, rtol=1e-4)
        assert (float(result.bounds.low), float(result.bounds.high)) == (1, 5)


def test_a_dense_fit_that_the_device_has_no_room_for_names_the_sparse_one(gpu, monkeypatch):
    monkeypatch.setattr("airnp.fitting.device_memory", lambda device: 1000)
    with pytest.raises(MemoryError, match=r"airnp.fit_sparse\(S, rank=...\) never forms the whole matrix"):
        airnp.fit(table(M, N), xp=gpu.cupy)


@pytest.mark.parametrize("longest", [1024, 3])
def test_weights_on_a_device(gpu, monkeypatch, longest):
    monkeypatch.setattr(sparse_cuda, "cut", partial(cut, longest=longest))
    Y, W = weighted_table(np.random.default_rng(8), M, N, zeros=True)
    graph = AdaptiveLaplacian(candidates=Nearest(4))
    options = {"max_iter": 25, "offsets": True, "mask_factor": "both", "regularizers": [graph]}
    host = fit_sparse(Y, weights=W, engine="reference", **options)
    for weights in (W, gpu.cupyx.scipy.sparse.csr_matrix(W)):
        assert_same_sparse(fit_sparse(Y, weights=weights, xp=gpu.cupy, **options), host)
    wide = {**options, "rank": 131, "max_iter": 2, "regularizers": []}
    Y, W = weighted_table(np.random.default_rng(9), 140, 135)
    host, device = fit_sparse(Y, weights=W, **wide), fit_sparse(Y, weights=W, xp=gpu.cupy, **wide)
    np.testing.assert_allclose(device.X, host.X, rtol=1e-9)


def test_a_result_of_a_device_is_on_the_host_and_can_be_saved(gpu, tmp_path):
    result = fit_sparse(table(M, N), xp=gpu.cupy, max_iter=5, offsets=True, **MODELS["graphs"])
    assert type(result.offsets.mean) is float
    for array in (result.row_factors, result.column_factors, result.offsets.rows, result.offsets.columns):
        assert isinstance(array, np.ndarray)
    result.save(tmp_path / "result.npz")
    np.testing.assert_array_equal(airnp.load(tmp_path / "result.npz").X, result.X)


# --- costs ---


def trained(gpu, regularizers):
    """Train on the device for a few iterations."""
    layout = Layout(M, N, 2, 3, offsets=True, mask_rows=True)
    objective = FactoredObjective(
        read_entries(table(M, N)), layout, regularizers, ops=cuda, xp=gpu.cupy, scale=1.0, shrinkage=1.0
    )
    training = steps(objective, xp=gpu.cupy)
    training.advance(3)
    return training


def test_launches_copies_and_memory_of_an_iteration(gpu):
    training = trained(gpu, MODELS["graphs"]["regularizers"])
    free = device_memory()
    gpu.counters.reset()
    training.attempt(5)
    assert gpu.counters.launches == {
        name: 5 * count
        for name, count in {
            "row_residuals<double>": 1,
            "line_sums<double>": 3,  # ∂V, the mask factor, and its gradient
            "factor_gram<double>": 2,  # of both graphs
            "edge_terms<double>": 1,
            "gap_sums<double, true>": 1,
            "gap_sums<double, false>": 1,
            "adam<double>": 1,
        }.items()
    }
    assert gpu.counters.device_to_host == 1  # fidelities and energies of all iterations together
    assert device_memory() == free


def test_patterns_leave_the_device_with_the_fit(gpu):
    trained(gpu, MODELS["graphs"]["regularizers"])
    gc.collect()
    assert not sparse_cuda._patterns
    assert not sparse_cuda._entries
    assert not sparse_cuda._edges


# --- errors ---


def test_unsupported_engines_and_namespaces_are_refused(gpu):
    S = table(M, N)
    with pytest.raises(ValueError, match="engine: 'reference' has sparse operations on NumPy arrays alone"):
        fit_sparse(S, xp=gpu.cupy, engine="reference")
    with pytest.raises(ValueError, match=r"engine: 'cuda' works on CuPy arrays, .*; say xp=cupy"):
        fit_sparse(S, engine="cuda")
    with pytest.raises(ValueError, match="xp: fit_sparse works on arrays of NumPy and CuPy, got array_api"):
        fit_sparse(S, xp=array_api_strict)


def test_a_missing_device_is_reported(gpu):
    gpu.settings.devices = 0
    with pytest.raises(RuntimeError, match="xp: CuPy"):
        fit_sparse(table(M, N), xp=gpu.cupy)
