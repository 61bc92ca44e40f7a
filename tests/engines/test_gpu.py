"""What only a real CUDA device can show: ``python -m pytest tests/engines/test_gpu.py``.

Without a usable device every test skips and says why; with ``AIRNP_REQUIRE_GPU=1`` it fails instead. Tests
that need two devices or TF32 units skip on a machine without them in any case.
"""

from __future__ import annotations

import gc
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import airnp
from airnp import AdaptiveLaplacian, DirichletEnergy, Nearest, TotalVariation
from airnp._devices import check_device, describe
from airnp.engines import _cublas, cuda, launching
from airnp.resemblance.patches import VALUE_ONE, Round, Sums, collect, reference_places
from tests.engines.fits import (
    assert_same,
    assert_same_sparse,
    fit_sparse,
    learned,
    models,
    sparse_models,
    steps,
    table,
)
from tests.strategies import ADJACENCIES

pytestmark = pytest.mark.gpu

M, N = 45, 38
MODELS = models(M, N) | {
    "tv": [TotalVariation(1e-4, epsilon=0.1)],
    "everything": [
        AdaptiveLaplacian("rows"),
        TotalVariation(1e-5, epsilon=0.1),
        DirichletEnergy("rows"),
        AdaptiveLaplacian("columns"),
    ],
}
ODD_SHAPES = [(1, 1), (1, 40), (40, 1), (31, 32), (32, 33), (33, 31), (257, 3), (3, 257), (257, 129)]


def why_not() -> str | None:
    """Return why there is no device to test on, or None."""
    try:
        import cupy  # noqa: F401

        check_device()
    except (ImportError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return None


@pytest.fixture(autouse=True)
def cupy() -> Any:
    """Return CuPy with a working device and a free memory pool, or skip the test."""
    reason = why_not()
    if reason is not None:
        if os.environ.get("AIRNP_REQUIRE_GPU") == "1":
            pytest.fail(f"AIRNP_REQUIRE_GPU=1, but {reason}", pytrace=False)
        pytest.skip(f"no usable CUDA device: {reason}")
    import cupy

    gc.collect()
    cupy.get_default_memory_pool().free_all_blocks()
    return cupy


def data(shape=(M, N), batch=(), seed=0):
    """Return values, and a mask with an entry in each row and column."""
    rng = np.random.default_rng(seed)
    mask = rng.random((*batch, *shape)) < 0.8
    mask[..., 0, :] = mask[..., :, 0] = True
    return rng.random((*batch, *shape)), mask


def both(xp, shape=(M, N), batch=(), engine="reference", **options):
    """Return the same fit on the device, and on the host by another engine."""
    Y, mask = data(shape, batch)
    common = {"max_iter": 200, "stop": None, "seed": 0, **options}
    return airnp.fit(Y, mask, xp=xp, **common), airnp.fit(Y, mask, engine=engine, **common)


def assert_same_bits(one, two):
    for a, b in zip(one.factors, two.factors, strict=True):
        np.testing.assert_array_equal(a.get(), b.get())
    for a, b in zip(one.regularizers, two.regularizers, strict=True):
        if a.parameter is not None:
            np.testing.assert_array_equal(a.parameter.get(), b.parameter.get())
    for name in one.history:
        np.testing.assert_array_equal(one.history[name], two.history[name])


# --- the results of the reference ---


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", ADJACENCIES)
def test_learned_graphs_follow_the_specification(cupy, kind, depth):
    assert_same(*both(cupy, regularizers=learned(kind), depth=depth))


@pytest.mark.parametrize("model", [name for name in MODELS if name not in ADJACENCIES])
def test_every_other_model_follows_the_specification(cupy, model):
    assert_same(*both(cupy, regularizers=MODELS[model]))


@pytest.mark.parametrize(
    "options",
    [
        {"fidelity": airnp.Huber(0.2)},
        {"rank": 5},
        {"weights": np.linspace(0.1, 2, M * N).reshape(M, N)},
        {"optimizer": airnp.GradientDescent(0.05)},
        {"optimizer": airnp.Adam(3e-3, schedule=airnp.ExponentialDecay(0.5, 20))},
    ],
    ids=lambda options: ",".join(options),
)
def test_every_option_follows_the_specification(cupy, options):
    assert_same(*both(cupy, **options))


@pytest.mark.parametrize("batch", [(1,), (7,), (2, 3)], ids=str)
@pytest.mark.parametrize("model", [*ADJACENCIES, "tv", "fixed", "sparse"])
def test_stacks_follow_the_specification(cupy, model, batch):
    assert_same(*both(cupy, batch=batch, regularizers=MODELS[model], max_iter=60))


@pytest.mark.parametrize("shape", ODD_SHAPES, ids=str)
@pytest.mark.parametrize("kind", ADJACENCIES)
def test_odd_shapes_follow_the_specification(cupy, kind, shape):
    assert_same(*both(cupy, shape, regularizers=learned(kind), max_iter=30))


@pytest.mark.parametrize("kind", ADJACENCIES)
def test_float32_stays_close_to_the_specification(cupy, kind):
    device, host = both(cupy, regularizers=learned(kind), dtype="float32", max_iter=100)
    assert device.X.dtype == np.float32
    np.testing.assert_allclose(device.X.get(), host.X, atol=1e-4)
    np.testing.assert_allclose(device.history["loss"], host.history["loss"], rtol=1e-4)


def test_the_automatic_stop_and_a_checkpoint(cupy, tmp_path):
    device, host = both(cupy, stop="auto", checkpoint=tmp_path / "run.npz")
    assert device.best_iter == host.best_iter
    assert_same(device, host)
    airnp.fit(*data(), xp=cupy, max_iter=20, stop=None, seed=0, checkpoint=tmp_path / "device.npz")
    again = airnp.fit(*data(), xp=cupy, max_iter=20, stop=None, seed=0)
    np.testing.assert_array_equal(airnp.load(tmp_path / "device.npz").X, again.X.get())


def test_a_large_problem_agrees_with_the_cpu_engine(cupy):
    assert_same(*both(cupy, (2000, 1500), engine="cpu", max_iter=3))


# --- the sparse form ---

SPARSE = sparse_models(N)


@pytest.mark.parametrize("model", SPARSE)
def test_the_sparse_form_follows_the_specification(cupy, model):
    S = table(M, N)
    host = fit_sparse(S, engine="reference", **SPARSE[model])
    assert_same_sparse(fit_sparse(S, xp=cupy, **SPARSE[model]), host)


def test_a_sparse_matrix_of_cupy(cupy):
    from cupyx.scipy.sparse import csr_matrix

    S = table(M, N)
    one, two = fit_sparse(csr_matrix(S), **SPARSE["graphs"]), fit_sparse(S, xp=cupy, **SPARSE["graphs"])
    np.testing.assert_array_equal(one.X, two.X)


@pytest.mark.parametrize("rank", [1, 31, 33, 128, 129, 200])
def test_lines_of_thousands_of_entries_and_odd_ranks(cupy, rank):
    S = table(210, 5000, 0.01)
    options = {
        "rank": rank,
        "max_iter": 5,
        "regularizers": [AdaptiveLaplacian("rows", 1e-3, candidates=Nearest(7))],
    }
    host = fit_sparse(S, engine="reference", **options)
    assert_same_sparse(fit_sparse(S, xp=cupy, **options), host, 1e-8)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_sparse_form_has_the_same_bits_twice(cupy, dtype):
    S = table(300, 5000, 0.02)
    options = {"xp": cupy, "dtype": dtype, "max_iter": 20, "rank": 33, **SPARSE["ratings"]}
    one, two = fit_sparse(S, **options), fit_sparse(S, **options)
    np.testing.assert_array_equal(one.row_factors, two.row_factors)
    np.testing.assert_array_equal(one.column_factors, two.column_factors)


# --- CUDA graphs, the same bits ---


class CountedGraph:
    """A graph of CuPy that counts its launches."""

    def __init__(self, graph):
        self.graph, self.launches = graph, 0

    def launch(self, stream):
        self.launches += 1
        self.graph.launch(stream)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("model", [*ADJACENCIES, "everything", "sparse"])
def test_graphs_are_captured_and_make_the_bits_of_single_launches(cupy, monkeypatch, model, dtype):
    captured, capture = [], cuda._Iteration._capture

    def counted(iteration, stream):
        captured.append(CountedGraph(capture(iteration, stream)))
        return captured[-1]

    monkeypatch.setattr(cuda._Iteration, "_capture", counted)
    options = {"xp": cupy, "max_iter": 300, "stop": None, "seed": 0, "dtype": dtype}
    options["regularizers"] = MODELS[model]
    replayed = airnp.fit(*data(), **options)
    assert [graph.launches for graph in captured] == [299]
    assert all(isinstance(graph.graph, cupy.cuda.Graph) for graph in captured)
    monkeypatch.setattr(airnp.Objective, "is_plain", False)
    single = airnp.fit(*data(), **options)
    assert len(captured) == 1
    assert_same_bits(replayed, single)


@pytest.mark.parametrize("shape", [(M, N), (300, 257)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_same_seed_gives_the_same_bits(cupy, shape, dtype):
    options = {"xp": cupy, "max_iter": 200, "stop": None, "seed": 3, "dtype": dtype}
    assert_same_bits(*(airnp.fit(*data(shape), **options) for _ in range(2)))


# --- precision ---


def relative_error(found, exact):
    return float(np.linalg.norm(found.get() - exact) / np.linalg.norm(exact))


def test_products_have_the_precision_that_was_asked_for(cupy):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((512, 512)).astype("float32") for _ in range(2))
    exact = a.astype("float64") @ b.astype("float64")
    there = cupy.asarray(a), cupy.asarray(b)
    assert relative_error(cuda.product(*there), exact) < 2e-6
    if int(cupy.cuda.Device().compute_capability) < 80:
        pytest.skip("TF32 units came with compute capability 8.0")
    lane = _cublas.lane()
    workspaces = [_cublas.workspace() for _ in lane.streams]
    cupy.cuda.get_current_stream().synchronize()
    with lane.streams[0], _cublas.session("tf32", workspaces):
        coarse = relative_error(cuda.product(*there), exact)
        doubles = cuda.product(*(x.astype("float64") for x in there))
    assert 1e-5 < coarse < 2e-3
    assert relative_error(doubles, exact) < 1e-14


@pytest.mark.parametrize("precision", ["tf32x3", "bf16x9"])
def test_products_by_tensor_cores_have_the_accuracy_of_float32(cupy, precision):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((512, 512)).astype("float32") for _ in range(2))
    there = cupy.asarray(a), cupy.asarray(b)
    found = []

    def step(updates):
        found.append(cuda.product(*there))
        return [cupy.zeros((), "float32")]

    try:
        cuda.prepare(list, step, precision=precision)(1)
    except ValueError as error:
        pytest.skip(str(error))
    assert relative_error(found[0], a.astype("float64") @ b.astype("float64")) < 2e-6


def test_a_fit_in_tf32_is_close_but_not_equal(cupy):
    if int(cupy.cuda.Device().compute_capability) < 80:
        pytest.skip("TF32 units came with compute capability 8.0")
    options = {"xp": cupy, "max_iter": 50, "stop": None, "seed": 0, "dtype": "float32"}
    full, coarse = (
        airnp.fit(*data((256, 256)), engine=airnp.CUDA(name), **options) for name in (None, "tf32")
    )
    assert not np.array_equal(full.X.get(), coarse.X.get())
    np.testing.assert_allclose(coarse.history["loss"], full.history["loss"], rtol=0.02)
    assert relative_error(coarse.X, full.X.get()) < 0.05


# --- patches of pictures ---


@pytest.mark.parametrize(("frames", "channels", "patch"), [(1, 1, 6), (3, 1, 5), (1, 3, 6), (1, 3, 8)])
def test_rounds_of_patches_follow_the_cpu(cupy, frames, channels, patch):
    rng = np.random.default_rng(0)
    f, c, y, x = np.indices((frames, channels, 61, 67))
    X = (0.5 + 0.3 * np.sin(x / 3 + c + f / 5) * np.cos(y / 4 - c)).astype(np.float32)
    X += rng.normal(0, 0.02, X.shape).astype(np.float32)
    M = rng.random(X.shape) < 0.5
    U = np.where(M, 0, 1e-3).astype(np.float32)
    how = Round(patch=patch)
    where = [reference_places(length, patch, how.stride) for length in X.shape[2:]]
    host = collect(X, U, M, 0, *where, how)
    device, again = (collect(*map(cupy.asarray, (X, U, M)), 0, *where, how) for _ in range(2))
    device, again = (Sums(*(part.get() for part in vars(sums).values())) for sums in (device, again))
    for one, other in zip(vars(device).values(), vars(again).values(), strict=True):
        np.testing.assert_array_equal(one, other)
    # Rounding may choose the other one of two patches that are equally near.
    assert np.mean(device.counts != host.counts) < 1e-3
    told = (host.counts > 0) & (device.counts > 0)
    assert told.any()
    means = [sums.values[told] / sums.weights[told] / VALUE_ONE for sums in (host, device)]
    assert np.quantile(np.abs(means[0] - means[1]), 0.999) < 1e-5


# --- kernels ---


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("module", launching.source_names())
def test_every_kernel_compiles_for_this_device(cupy, module, dtype):
    device = cupy.cuda.runtime.getDevice()
    for name in launching.instances(module, dtype):
        kernel = launching._function(name, module, dtype, device)
        assert kernel.attributes["max_threads_per_block"] >= launching.THREADS, name


def test_info_names_the_device(cupy):
    name = cupy.cuda.runtime.getDeviceProperties(0)["name"]
    assert (name.decode() if isinstance(name, bytes) else name) in describe()


# --- several fits, several devices ---


def test_two_fits_at_once_on_one_device(cupy):
    def fitted(seed):
        return airnp.fit(*data(seed=seed), xp=cupy, max_iter=150, stop=None, seed=seed)

    alone = [fitted(seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as executor:
        together = list(executor.map(fitted, range(4)))
    for one, two in zip(alone, together, strict=True):
        assert_same_bits(one, two)


def need_two_devices(xp):
    if xp.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("this machine has one CUDA device")


def test_two_devices_at_once(cupy):
    need_two_devices(cupy)

    def fitted(device):
        return airnp.fit(*data(), xp=cupy, device=device, max_iter=200, stop=None, seed=device)

    with ThreadPoolExecutor(2) as executor:
        found = list(executor.map(fitted, (0, 1)))
    for device, result in enumerate(found):
        assert result.X.device.id == device
        expected = airnp.fit(*data(), max_iter=200, stop=None, seed=device, engine="reference")
        assert_same(result, expected)


def test_a_fit_stays_on_the_device_of_its_data(cupy):
    need_two_devices(cupy)
    with cupy.cuda.Device(1):
        there = tuple(map(cupy.asarray, data()))
    result = airnp.fit(*there, max_iter=50, stop=None, seed=0)
    assert result.X.device.id == 1
    assert cupy.cuda.runtime.getDevice() == 0
    assert_same(result, airnp.fit(*data(), max_iter=50, stop=None, seed=0, engine="reference"))


# --- memory ---


def test_iterations_take_no_memory(cupy):
    pool = cupy.get_default_memory_pool()
    objective = airnp.Objective(*data((300, 200)), xp=cupy)
    training = steps(objective, xp=cupy)
    training.advance(200)
    used, reserved = pool.used_bytes(), pool.total_bytes()
    training.advance(2000)
    assert pool.used_bytes() <= used
    assert pool.total_bytes() <= reserved


def test_fits_give_their_memory_back(cupy):
    pool = cupy.get_default_memory_pool()
    used = []
    for _ in range(3):
        airnp.fit(*data((300, 200)), xp=cupy, max_iter=20, stop=None, seed=0)
        gc.collect()
        used.append(pool.used_bytes())
    assert used[1] <= used[0]  # the first one made the workspace of cuBLAS, which stays
    assert used[2] <= used[1]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_too_little_memory_says_how_much_is_needed(cupy, dtype):
    airnp.fit(*data(), xp=cupy, max_iter=2, stop=None)  # now the workspace of cuBLAS is there
    Y, mask = data((1000, 900))
    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    pool.set_limit(size=pool.total_bytes() + 12 * Y.astype(dtype).nbytes)
    try:
        with pytest.raises(MemoryError, match=rf"1000x900 in {dtype} needs about .* GiB") as caught:
            airnp.fit(Y, mask, xp=cupy, max_iter=2, stop=None, seed=0, dtype=dtype)
    finally:
        pool.set_limit(size=0)
    assert ("dtype='float32' halves that" in str(caught.value)) == (dtype == "float64")
    airnp.fit(*data(), xp=cupy, max_iter=2, stop=None)  # and the device works as before
