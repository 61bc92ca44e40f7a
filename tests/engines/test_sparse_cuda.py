"""The sparse form on a CUDA device, end to end, on a strict double of CuPy whose kernels run on the CPU.

The kernels have tests of their own in ``test_sparse_kernels.py``; what only a real device can show is in
``test_gpu.py``.
"""

from __future__ import annotations

import gc
from functools import partial

import numpy as np
import pytest
from airnp.training.sparse_loop import SparseTraining
from scipy.sparse import coo_array, csr_array

import airnp
from airnp import Adam, AdaptiveLaplacian, FixedLaplacian, GradientDescent, HeldOut, WeightDecay
from airnp import sparse_choice as choice
from airnp.data.entries import Batches, read_entries
from airnp.engines import sparse_cuda as cuda
from airnp.engines import sparse_reference as reference
from airnp.engines.contract import Edges, Offsets, Slopes
from airnp.engines.sparse_cuda import cut
from airnp.model.factored import Layout, SparseModel
from airnp.model.initialization import first_state
from tests.engines.fits import assert_same_sparse, path
from tests.engines.sparse_kernel_checks import Graph, Problem

M, N = 23, 17
PATH = csr_array(path(N))
GRAPHS = [AdaptiveLaplacian("rows", 1e-2, neighbors=4, refresh=40), FixedLaplacian(PATH, "columns", 1e-2)]
MODELS = {
    "factors": {"regularizers": []},
    "depth": {"regularizers": [AdaptiveLaplacian("columns", 1e-2, neighbors=5)], "depth": 4},
    "graphs": {"regularizers": GRAPHS},
    "all edges": {"regularizers": None},
    "ratings": {
        "regularizers": [WeightDecay(1e-3, "sqrt"), WeightDecay(1e-3, on="mask")],
        "offsets": 2.0,
        "mask_factor": "both",
        "optimizer": Adam(3e-3, second_moment="matrix"),
    },
    "everything": {
        "regularizers": [*GRAPHS, WeightDecay(1e-3)],
        "offsets": True,
        "mask_factor": "columns",
        "depth": 3,
    },
    "batches": {"regularizers": GRAPHS, "batch_size": 60, "offsets": True},
    "descent": {"regularizers": [], "optimizer": GradientDescent(0.05)},
}


def table(m=M, n=N, seed=0):
    """Return a sparse matrix with an entry in every row and column."""
    rng = np.random.default_rng(seed)
    mask = rng.random((m, n)) < 0.4
    mask[0] = mask[:, 0] = True
    rows, columns = np.nonzero(mask)
    values = 3 + (rng.standard_normal((m, 2)) @ rng.standard_normal((2, n)))[mask]
    return csr_array(coo_array((values, (rows, columns)), shape=(m, n)))


def settings(**options):
    common = {"form": "sparse", "rank": 3, "depth": 2, "max_iter": 100, "stop": None, "seed": 0}
    return {**common, "init": airnp.Gaussian(0.1, 0.3), **options}


def both(gpu, S=None, **options):
    """Return the same fit on the device, and by the reference engine on the host."""
    S = table() if S is None else S
    found = airnp.fit(S, xp=gpu.cupy, **settings(**options))
    return found, airnp.fit(S, engine="reference", **settings(**options))


@pytest.mark.parametrize("model", MODELS)
def test_every_model_follows_the_reference(gpu, model):
    iterations = 100 if model in ("graphs", "ratings", "everything", "batches") else 25
    assert_same_sparse(*both(gpu, max_iter=iterations, **MODELS[model]))


@pytest.mark.parametrize("model", ["everything", "ratings"])
def test_split_lines_only_change_rounding(gpu, monkeypatch, model):
    monkeypatch.setattr(cuda, "cut", partial(cut, longest=3))
    assert_same_sparse(*both(gpu, max_iter=30, **MODELS[model]))


def test_float32_stays_close(gpu):
    device, host = both(gpu, dtype="float32", max_iter=30, **MODELS["everything"])
    assert device.row_factors.dtype == np.float32
    np.testing.assert_allclose(device.X, host.X, atol=1e-3)


def test_more_columns_than_a_warp_has_registers_for(gpu):
    S = table(140, 135)
    terms = [AdaptiveLaplacian("rows", 1e-2, neighbors=3), WeightDecay(1e-3)]
    options = {"rank": 131, "max_iter": 3, "init": airnp.Gaussian(0, 0.1), "regularizers": terms}
    assert_same_sparse(*both(gpu, S, offsets=True, **options))


def test_held_out_entries_stop_a_fit_on_the_device(gpu):
    rule = HeldOut(0.1, patience=20, every=5)
    assert_same_sparse(
        *both(gpu, stop=rule, regularizers=[], offsets=True, optimizer=Adam(0.02), max_iter=60)
    )


def test_a_sparse_matrix_of_cupy(gpu):
    S = table()
    there = gpu.cupyx.scipy.sparse.csr_matrix(S)
    one, two = (
        airnp.fit(Y, **settings(regularizers=GRAPHS, max_iter=5), **options)
        for Y, options in ((there, {}), (S, {"xp": gpu.cupy}))
    )
    np.testing.assert_array_equal(one.X, two.X)
    dense = airnp.fit(there, **settings(form="dense", regularizers=[], max_iter=5))
    assert isinstance(dense.X, gpu.cupy.ndarray)


def test_a_fit_works_on_the_device_that_was_asked_for(gpu, monkeypatch):
    seen, residuals = [], cuda.residuals

    def spy(*given, **more):
        seen.append(gpu.cupy.cuda.runtime.getDevice())
        return residuals(*given, **more)

    monkeypatch.setattr(cuda, "residuals", spy)
    S, options = table(), settings(max_iter=3, **MODELS["factors"])
    second = airnp.fit(S, xp=gpu.cupy, device=1, **options)
    np.testing.assert_array_equal(second.X, airnp.fit(S, xp=gpu.cupy, **options).X)
    with gpu.cupy.cuda.Device(1):
        there = gpu.cupyx.scipy.sparse.csr_matrix(S)
    airnp.fit(there, **options)
    assert seen == [1] * 3 + [0] * 3 + [1] * 3
    with pytest.raises(ValueError, match=r"device: expected .*, where Y is, got 0; move Y"):
        airnp.fit(there, device=0, **options)
    with pytest.raises(ValueError, match="device: expected one of 0 to 1, got 7"):
        airnp.fit(S, xp=gpu.cupy, device=7, **options)
    with pytest.raises(ValueError, match="device: expected cpu, where Y is, got 1"):
        airnp.fit(S, device=1, **options)
    assert isinstance(airnp.fit(there, **{**options, "form": "auto"}), airnp.FitResult)


def test_ratings_of_cupy(gpu):
    stars = table()
    stars.data = np.clip(np.rint(stars.data), 1, 5)
    there = gpu.cupyx.scipy.sparse.csr_matrix(stars)
    options = {"rank": 3, "max_iter": 10, "seed": 0, "threads": 1}
    host = airnp.fit_ratings(stars, **options)
    for R, more in ((there, {}), (stars, {"xp": gpu.cupy}), (stars, {"xp": gpu.cupy, "device": 1})):
        result = airnp.fit_ratings(R, **options, **more)
        np.testing.assert_allclose(result.X, host.X, rtol=1e-4)
        assert (float(result.bounds.low), float(result.bounds.high)) == (1, 5)


def test_the_form_follows_the_memory_of_the_device(gpu, monkeypatch):
    options = settings(form="auto", regularizers=[], max_iter=2)
    assert isinstance(airnp.fit(table(), xp=gpu.cupy, **options), airnp.FitResult)
    monkeypatch.setattr(choice, "device_memory", lambda device: 1000)
    assert isinstance(airnp.fit(table(), xp=gpu.cupy, **options), airnp.SparseFitResult)


def test_a_result_of_a_device_is_on_the_host_and_can_be_saved(gpu, tmp_path):
    result = airnp.fit(table(), xp=gpu.cupy, **settings(max_iter=5, **MODELS["graphs"], offsets=True))
    assert type(result.offsets.mean) is float
    for array in (result.row_factors, result.column_factors, result.offsets.rows, result.offsets.columns):
        assert isinstance(array, np.ndarray)
    result.save(tmp_path / "result.npz")
    np.testing.assert_array_equal(airnp.load(tmp_path / "result.npz").X, result.X)


# --- single operations ---


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("m", "n", "rank"), [(1, 1, 1), (7, 9, 33), (41, 1, 5), (30, 20, 130)])
def test_operations_equal_the_reference(gpu, m, n, rank, dtype):
    there, tolerance = gpu.cupy.asarray, 2e-4 if dtype == np.float32 else 1e-12
    of = Problem(dtype, m, n, rank, 0.4, 1024, 1)
    entries, (mean, rows, columns) = airnp.data.entries.Entries(of.pattern, of.values), of.offsets
    out = Slopes(*(gpu.cupy.empty(part.shape, dtype) for part in (of.u, of.v, rows, columns)))
    offsets = Offsets(float(mean[0]), there(rows), there(columns))
    sides = there(of.u), there(of.v)
    value = cuda.residuals(entries, *sides, offsets, scale=of.scale, out=out)
    found = [value, *out, cuda.values_at(of.pattern.line_of_each(), of.pattern.indices, *sides, offsets)]
    wanted_value, wanted = of.expected()
    wanted = [wanted_value, *wanted]
    wanted.append(reference.values_at(of.pattern.line_of_each(), of.pattern.indices, *of.wide()))
    graph = Graph(dtype, m, rank, 0.4, 1024, 1)
    t, metric, edges = there(graph.t), there(graph.metric), Edges(graph.pattern)
    arrays = [gpu.cupy.empty(shape, dtype) for shape in (graph.logits.shape, graph.logits.shape, t.shape)]
    parts = dict(zip(("weights", "slopes", "pull"), arrays, strict=True))
    found += [cuda.edge_terms(edges, there(graph.logits), t, metric, **parts), *arrays]
    logits, wide_t, wide_metric = graph.wide()
    host = [np.empty(array.shape) for array in arrays]
    parts = dict(zip(("weights", "slopes", "pull"), host, strict=True))
    wanted += [reference.edge_terms(edges, logits, wide_t, wide_metric, **parts), *host]
    for got, want in zip(found, wanted, strict=True):
        size = np.abs(want).max(initial=1e-30)
        np.testing.assert_allclose(got.get() / size, want / size, rtol=0, atol=tolerance)


# --- costs ---


def trained(gpu, iterations=3, **options):
    """Train on the device for a few iterations."""
    layout = Layout(M, N, 2, 3, offsets=True, mask_rows=True)
    entries = read_entries(table())
    model = SparseModel(entries, layout, scale=1.0, shrinkage=1.0, ops=cuda, **options)
    state = first_state(model, 0, "gaussian", 1.0, 1)
    training = SparseTraining(model, Adam(), state, Batches(entries, None, 0), 1)
    for _ in range(iterations):
        training.step()
    return training


def test_launches_copies_and_memory_of_an_iteration(gpu):
    terms = [AdaptiveLaplacian("rows", 1e-2, neighbors=4), FixedLaplacian(PATH, "columns", 1e-2)]
    training = trained(gpu, regularizers=terms)
    free, _ = gpu.cupy.cuda.runtime.memGetInfo()
    gpu.counters.reset()
    for _ in range(5):
        training.step()
    assert gpu.counters.launches == {
        f"{name}": 5 * count
        for name, count in {
            "row_residuals<double>": 1,
            "line_sums<double>": 3,  # ∂V, the mask factor, and its gradient
            "edge_terms<double>": 1,
            "gap_sums<double, true>": 1,
            "gap_sums<double, false>": 1,
            "adam<double>": 1,
        }.items()
    }
    # Fidelity and energies together, and the Gram matrix of each graph.
    assert gpu.counters.device_to_host == 5 * 3
    assert gpu.cupy.cuda.runtime.memGetInfo()[0] == free


def test_patterns_leave_the_device_with_the_fit(gpu):
    trained(gpu, regularizers=GRAPHS)
    gc.collect()
    assert not cuda._patterns
    assert not cuda._entries
    assert not cuda._edges


# --- errors ---


def test_unsupported_engines_and_namespaces_are_refused(gpu):
    S = table()
    with pytest.raises(ValueError, match="engine: form='sparse' has 'auto', 'cuda' for arrays of CuPy"):
        airnp.fit(S, xp=gpu.cupy, engine="reference", **settings())
    with pytest.raises(ValueError, match="say xp=cupy for 'cuda'"):
        airnp.fit(S, engine="cuda", **settings())
    strict = pytest.importorskip("array_api_strict", reason="array_api_strict is not installed")
    with pytest.raises(
        ValueError, match="xp: form='sparse' works on arrays of NumPy and CuPy, got array_api"
    ):
        airnp.fit(S, xp=strict, **settings())


def test_a_missing_device_is_reported(gpu):
    gpu.settings.devices = 0
    with pytest.raises(RuntimeError, match="xp: CuPy"):
        airnp.fit(table(), xp=gpu.cupy, **settings())
