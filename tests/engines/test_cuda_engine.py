"""The CUDA engine end to end, on a strict double of CuPy whose kernels run on the CPU.

What only a real device can show (cuBLAS itself, real stream capture) is in ``test_gpu.py``.
"""

from __future__ import annotations

import gc
import re
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from array_api_compat import array_namespace
from scipy import sparse

import airnp
from airnp import FixedLaplacian
from airnp._devices import check_device, describe, device_memory, load_library
from airnp.engines import _cublas, cuda, launching, select_engine
from airnp.engines.launching import spread
from tests.cupy_double.cublas import Library
from tests.engines.fits import MODELS, OPTIONS, assert_same, data, path, steps


class EveryOtherRow:
    """A linear operator of a user, on arrays of any namespace."""

    def forward(self, x):
        return x[..., ::2, :]

    def adjoint(self, z):
        xp = array_namespace(z)
        return xp.reshape(xp.stack([z, xp.zeros_like(z)], axis=-2), (*z.shape[:-2], 12, 9))


def both(gpu, batch=(), **options):
    """Return the same fit on the device and by the reference engine on the host."""
    Y, mask = data(batch)
    common = {"max_iter": 60, "stop": None, "seed": 0, **options}
    if "operator" in options:
        common["operator"] = EveryOtherRow()
        Y, mask = Y[::2], mask[::2]
    return airnp.fit(Y, mask, xp=gpu.cupy, **common), airnp.fit(Y, mask, engine="reference", **common)


@pytest.mark.parametrize("model", MODELS)
def test_every_model_follows_the_reference_for_200_iterations(gpu, model):
    assert_same(*both(gpu, regularizers=MODELS[model], max_iter=200))


@pytest.mark.parametrize("options", [*OPTIONS, {"operator": True}], ids=lambda options: ",".join(options))
def test_every_option_follows_the_reference(gpu, options):
    assert_same(*both(gpu, **options))


@pytest.mark.parametrize("model", ["row", "global", "product", "tv", "fixed"])
def test_stacks_follow_the_reference(gpu, model):
    assert_same(*both(gpu, batch=(2, 3), regularizers=MODELS[model]))


def test_float32_follows_the_reference(gpu):
    device, host = both(gpu, dtype="float32", max_iter=40)
    assert device.X.dtype == np.float32
    assert_same(device, host, 2e-4)


def test_the_automatic_stop_follows_the_reference(gpu):
    device, host = both(gpu, stop="auto", max_iter=150)
    assert device.best_iter == host.best_iter
    assert_same(device, host)


def test_xp_alone_chooses_the_engine(gpu):
    assert select_engine("auto", gpu.cupy).ops is cuda


def iterate(gpu, iterations, regularizers=None, **options):
    """Train for two iterations on the device, then count what ``iterations`` more do."""
    Y, mask = data()
    objective = airnp.Objective(Y, mask, regularizers=regularizers, xp=gpu.cupy, **options)
    training = steps(objective, xp=gpu.cupy)
    training.advance(2)
    run = training._run
    gpu.counters.reset()
    run(iterations)
    return gpu.counters.snapshot()


def test_launches_and_products_of_an_iteration(gpu):
    """AIR at depth 3: 10 products and 7 launches, and no allocation, copy or synchronisation."""
    few, many = (iterate(gpu, count) for count in (1, 21))
    per_iteration = {
        name: (sum(many[name].values()) - sum(few[name].values())) / 20 for name in ("launches", "operations")
    }
    assert per_iteration["launches"] == 7
    assert per_iteration["operations"] == 0
    assert (many["products"] - few["products"]) / 20 == 10
    for name in ("allocations", "host_to_device", "device_to_host", "synchronisations", "captures"):
        assert many[name] == few[name], name
    assert many["graph_launches"] - few["graph_launches"] == 20


@pytest.fixture
def plans(monkeypatch):
    """How the calls of each captured iteration were spread over streams."""
    found = []
    monkeypatch.setattr(
        launching, "spread", lambda calls, count: found.append(spread(calls, count)) or found[-1]
    )
    return found


@pytest.mark.parametrize(
    ("options", "nodes", "path"),
    [({}, 17, 12), ({"depth": 2}, 14, 10), ({"depth": 4}, 20, 14), ({"regularizers": []}, 9, 7)],
    ids=["AIR", "two factors", "four factors", "no graphs"],
)
@pytest.mark.parametrize("shape", [(9, 9), (12, 9)], ids=str)
def test_rows_and_columns_are_branches_of_the_graph(gpu, plans, shape, options, nodes, path):
    """Also where arrays of both have one size, so that one could be lent twice."""
    rng = np.random.default_rng(0)
    airnp.fit(rng.random(shape), xp=gpu.cupy, max_iter=3, stop=None, **options)
    (plan,) = plans
    assert len(plan) == nodes
    assert {place.branch for place in plan} == {0, 1}
    assert max(place.depth for place in plan) == path


def test_branches_that_share_a_workspace_are_refused_by_the_double(gpu, monkeypatch):
    shared = []
    monkeypatch.setattr(
        _cublas, "workspace", lambda: shared or shared.append(gpu.cupy.empty(2**25, "uint8")) or shared
    )
    monkeypatch.setattr(_cublas.Handle, "bind", lambda self, stream, memory: bind(self, stream, memory[0]))
    with pytest.warns(RuntimeWarning, match="could not be captured .* may run at the same time"):
        iterate(gpu, 3)


bind = _cublas.Handle.bind


def array(start, size=8):
    """An array as far as planning looks at it."""
    return SimpleNamespace(data=SimpleNamespace(ptr=start), nbytes=size)


def planned(*calls, branches=2):
    """Plan calls that are given as (reads, writes)."""
    return spread([launching.Call(print, (), tuple(r), tuple(w)) for r, w in calls], branches)


def test_calls_that_share_no_memory_go_side_by_side():
    a, b, c, d = (array(100 * k) for k in range(4))
    plan = planned(([], [a]), ([a], [b]), ([a], [c]), ([b, c], [d]))
    assert [place.branch for place in plan] == [0, 0, 1, 0]
    assert [place.after for place in plan] == [(), (), (0,), (2,)]
    assert [place.depth for place in plan] == [1, 2, 2, 3]


@pytest.mark.parametrize(
    ("first", "second", "must"),
    [
        (([], ["a"]), (["a"], []), True),  # read after write
        ((["a"], []), ([], ["a"]), True),  # write after read
        (([], ["a"]), ([], ["a"]), True),  # write after write
        ((["a"], []), (["a"], []), False),
        (([], ["a"]), (["b"], []), False),
    ],
)
def test_which_calls_must_follow_each_other(first, second, must):
    arrays = {"a": array(0), "b": array(8)}
    one, two = (
        launching.Call(print, (), *(tuple(arrays[name] for name in names) for names in call))
        for call in (first, second)
    )
    assert two.must_follow(one) == must


def test_parts_of_one_array_are_the_same_memory():
    assert [place.branch for place in planned(([], [array(0, 80)]), ([], [array(72)]))] == [0, 0]
    assert [place.branch for place in planned(([], [array(0, 80)]), ([], [array(80)]))] == [0, 1]


def test_what_a_branch_already_waits_for_is_not_awaited_again():
    a, b, c = (array(100 * k) for k in range(3))
    plan = planned(([], [a]), ([], [b]), ([a, b], [c]), ([b, c], [a]))
    assert [place.after for place in plan] == [(), (), (1,), ()]


def test_copies_of_a_run_do_not_depend_on_its_length(gpu):
    counts = iterate(gpu, cuda.CAPACITY)
    assert counts["host_to_device"] <= 3
    assert counts["device_to_host"] == 1


def test_a_whole_fit_does_little_besides_its_graph(gpu):
    """In 100 iterations one look at the ring, one check that all is finite, one copy of the parameters."""

    def counts(iterations):
        gpu.counters.reset()
        airnp.fit(*data(), xp=gpu.cupy, max_iter=iterations, stop=None, seed=0)
        return gpu.counters.snapshot()

    few, many = counts(100), counts(300)
    assert many["graph_launches"] - few["graph_launches"] == 200
    assert sum((many["operations"] - few["operations"]).values()) <= 2 * 16
    limits = {"allocations": 12, "synchronisations": 5, "host_to_device": 3, "device_to_host": 2}
    for name, limit in limits.items():
        assert many[name] - few[name] <= 2 * limit, name


def test_records_between_two_looks_are_those_of_every_look(gpu):
    common = {"xp": gpu.cupy, "max_iter": 47, "stop": None, "seed": 0, "record": 5}
    seldom = airnp.fit(*data(), **common)
    often = airnp.fit(*data(), **common, callback=lambda iteration, state: False)
    for name in often.history:
        np.testing.assert_array_equal(seldom.history[name], often.history[name])
    np.testing.assert_array_equal(seldom.X.get(), often.X.get())


def test_the_graph_equals_single_launches(gpu, monkeypatch):
    Y, mask = data()
    common = {"xp": gpu.cupy, "max_iter": 30, "stop": None, "seed": 0}
    replayed = airnp.fit(Y, mask, **common)
    assert gpu.counters.graph_launches == 29
    monkeypatch.setattr(airnp.Objective, "is_plain", False)
    single = airnp.fit(Y, mask, **common)
    assert gpu.counters.graph_launches == 29
    np.testing.assert_array_equal(replayed.X.get(), single.X.get())
    np.testing.assert_array_equal(replayed.history["loss"], single.history["loss"])


def test_a_failed_capture_falls_back_to_single_launches(gpu, monkeypatch):
    multiply = Library._multiply

    def refusing(self, *arguments):
        capturing = gpu.cupy.cuda.get_current_stream().is_capturing()
        return 14 if capturing else multiply(self, *arguments)

    expected = airnp.fit(*data(), xp=gpu.cupy, max_iter=30, stop=None, seed=0)
    monkeypatch.setattr(Library, "_multiply", refusing)
    with pytest.warns(RuntimeWarning, match=r"could not be captured .*status 14"):
        found = airnp.fit(*data(), xp=gpu.cupy, max_iter=30, stop=None, seed=0)
    np.testing.assert_array_equal(found.X.get(), expected.X.get())


def test_runs_longer_than_the_tables_are_split(gpu, monkeypatch):
    monkeypatch.setattr(cuda, "CAPACITY", 7)
    assert_same(*both(gpu, max_iter=60, optimizer=airnp.Adam(schedule=airnp.ExponentialDecay(0.5, 5))))


def test_each_file_of_kernels_is_compiled_once_for_a_dtype(gpu):
    """CuPy calls the compiler once for each RawModule, however many instances it has."""
    for kind in ("row", "product"):
        airnp.fit(*data(), xp=gpu.cupy, regularizers=MODELS[kind], max_iter=2, stop=None, dtype="float32")
    assert launching._compiled.cache_info().misses == len(("adam", "laplacian", "record", "residual"))
    with pytest.raises(ValueError, match="not one of the module's name_expressions"):
        launching._compiled("adam", "float32", 0).get_function("adam<double>")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_slow_float64_is_told_once_for_each_device(gpu, dtype):
    gpu.settings.double_ratio = 64

    def told(device):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            airnp.fit(*data(), xp=gpu.cupy, device=device, max_iter=1, stop=None, dtype=dtype)
        return [str(warning.message) for warning in found]

    warned = [told(device) for device in (0, 0, 1)]
    expected = "this fit is in float64, .* at 1/64 of the speed of float32; dtype='float32' avoids that"
    assert [len(messages) for messages in warned] == ([1, 0, 1] if dtype == "float64" else [0, 0, 0])
    assert all(re.match(expected, message) for messages in warned for message in messages)


def test_the_same_seed_gives_the_same_bits(gpu):
    Y, mask = data()
    one, two = (airnp.fit(Y, mask, xp=gpu.cupy, max_iter=20, stop=None, seed=3) for _ in range(2))
    np.testing.assert_array_equal(one.X.get(), two.X.get())


def test_callbacks_and_checkpoints(gpu, tmp_path):
    Y, mask = data()
    seen = []
    result = airnp.fit(
        Y,
        mask,
        xp=gpu.cupy,
        max_iter=100,
        stop=None,
        seed=0,
        checkpoint=tmp_path / "run.npz",
        callback=lambda iteration, state: seen.append(iteration) or iteration == 30,
    )
    assert seen == [1, 10, 20, 30]
    assert result.n_iter == 30
    np.testing.assert_array_equal(airnp.load(tmp_path / "run.npz").X, result.X.get())


def test_a_diverging_fit_returns_the_last_finite_state(gpu):
    Y, mask = data()
    with pytest.raises(airnp.DivergenceError) as caught:
        airnp.fit(Y, mask, xp=gpu.cupy, optimizer=airnp.GradientDescent(1e6), max_iter=100, stop=None, seed=0)
    assert np.isfinite(caught.value.result.X.get()).all()


def test_a_fit_stays_on_the_device_it_was_given(gpu):
    Y, mask = data()
    result = airnp.fit(Y, mask, xp=gpu.cupy, device=1, max_iter=20, stop=None, seed=0)
    assert result.X.device.id == 1
    assert gpu.cupy.cuda.runtime.getDevice() == 0
    assert result.completed().device.id == 1
    assert result.regularizers[0].laplacian.device.id == 1
    expected = airnp.fit(Y, mask, max_iter=20, stop=None, seed=0, engine="reference")
    assert_same(result, expected)


def test_data_on_a_device_is_completed_there(gpu):
    Y, mask = data()
    with gpu.cupy.cuda.Device(1):
        there = gpu.cupy.asarray(Y), gpu.cupy.asarray(mask)
    assert airnp.fit(*there, max_iter=3, stop=None, seed=0).X.device.id == 1
    with pytest.raises(ValueError, match=r"device: expected .*1.*, where Y is"):
        airnp.fit(*there, device=0, max_iter=3)


def test_an_objective_on_another_device(gpu):
    Y, mask = data()
    with gpu.cupy.cuda.Device(1):
        there = gpu.cupy.asarray(Y), gpu.cupy.asarray(mask)
    objective = airnp.Objective(*there)
    value, grads = objective.value_and_grad(objective.init(0))
    host = airnp.Objective(Y, mask, engine="reference")
    expected, slopes = host.value_and_grad(host.init(0))
    assert value == pytest.approx(expected, rel=1e-12)
    for found, wanted in zip(grads, slopes, strict=True):
        np.testing.assert_allclose(found.get(), wanted, rtol=1e-9, atol=1e-14)


def test_a_sparse_graph_of_the_device(gpu):
    graph = sparse.csr_array(path(9))
    parts = tuple(map(gpu.cupy.asarray, (graph.data, graph.indices, graph.indptr)))
    there = gpu.cupyx.scipy.sparse.csr_matrix(parts, shape=graph.shape)
    device, host = (
        airnp.fit(
            *data(), regularizers=[FixedLaplacian(g, "columns", 1e-3)], max_iter=20, stop=None, seed=0, **o
        )
        for g, o in ((there, {"xp": gpu.cupy}), (graph, {"engine": "reference"}))
    )
    assert_same(device, host)


def test_a_warp_of_columns_reads_the_edges_of_a_graph_side_by_side(gpu, monkeypatch):
    """At most 4 sectors of 32 bytes for each request of 32 numbers of float32; many more in CSR form."""
    rng = np.random.default_rng(0)
    dense = np.triu(rng.random((90, 90)) < 0.1, 1) * rng.random((90, 90))
    graph = sparse.csr_array(dense + dense.T)
    launch, found = cuda.launch, []
    monkeypatch.setattr(cuda, "launch", lambda *given, **more: found.append(given) or launch(*given, **more))
    options = {
        "regularizers": [FixedLaplacian(graph, "columns", 1e-2)],
        "max_iter": 20,
        "stop": None,
        "seed": 0,
    }
    Y = rng.random((40, 90))
    there = airnp.fit(Y, xp=gpu.cupy, dtype="float32", **options)
    given = next(given for given in found if given[1] == "add_sparse_laplacian")
    first, last = (given[position].get().astype(int) for position in (8, 9))
    assert ((last - first) // 32 == np.diff(graph.indptr)).all()

    def sectors(first, last, step):
        for warp in range(0, 90, 32):
            edges, ends = first[warp : warp + 32], last[warp : warp + 32]
            while (active := edges < ends).any():
                yield len(set(4 * edges[active] // 32))
                edges = edges + step

    assert max(sectors(first, last, 32)) == 4
    assert np.mean(list(sectors(graph.indptr[:-1], graph.indptr[1:], 1))) > 15
    np.testing.assert_allclose(there.X.get(), airnp.fit(Y, engine="reference", **options).X, atol=2e-4)


def test_a_graph_is_interleaved_once_and_leaves_the_device_with_the_fit(gpu):
    result = airnp.fit(*data(), xp=gpu.cupy, regularizers=MODELS["sparse"], max_iter=30, stop=None, seed=0)
    del result
    gc.collect()
    assert not cuda._interleaved
    objective = airnp.Objective(*data(), xp=gpu.cupy, regularizers=MODELS["sparse"])
    params = objective.init(0)
    objective.value_and_grad(params)
    (edges,) = cuda._interleaved.values()
    objective.value_and_grad(params)
    assert next(iter(cuda._interleaved.values())) is edges


def test_two_devices_at_once(gpu):
    Y, mask = data()

    def on(device):
        return airnp.fit(Y, mask, xp=gpu.cupy, device=device, max_iter=20, stop=None, seed=device)

    with ThreadPoolExecutor(2) as executor:
        found = list(executor.map(on, (0, 1)))
    for device, result in enumerate(found):
        assert result.X.device.id == device
        expected = airnp.fit(Y, mask, max_iter=20, stop=None, seed=device, engine="reference")
        assert_same(result, expected)


@pytest.mark.parametrize(
    ("dtype", "precision", "modes"),
    [
        ("float32", None, {0}),
        ("float32", "tf32", {0, 3}),
        ("float64", "tf32", {0}),
        ("float32", "tf32x3", {0, 3}),
        ("float64", "tf32x3", {0}),
    ],
)
def test_tf32_is_off_unless_asked_for(gpu, dtype, precision, modes):
    airnp.fit(*data(), xp=gpu.cupy, max_iter=3, stop=None, dtype=dtype, engine=airnp.CUDA(precision))
    assert set(gpu.cublas.modes) == modes


def test_cublas_is_set_up_before_the_capture(gpu):
    """During a capture only the product itself is called."""
    iterate(gpu, 1)
    calls = len(gpu.cublas.modes)
    iterate(gpu, 5)
    assert len(gpu.cublas.modes) <= calls + 3


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (1, 40), (40, 33)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_half_of_a_large_gram_matrix_is_mirrored(gpu, monkeypatch, shape, dtype):
    monkeypatch.setattr(cuda, "_HALVED", 1)
    host = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    close = {"rtol": 0, "atol": 50 * np.finfo(dtype).eps}
    for x in (gpu.cupy.asarray(host), gpu.cupy.asarray(host.T.copy()).T):
        for columns in (False, True):
            wanted = host.T @ host if columns else host @ host.T
            found = cuda.gram(x, columns=columns)
            np.testing.assert_allclose(found.get(), wanted, **close)
            np.testing.assert_array_equal(found.get(), found.get().T)
    assert sum(count for name, count in gpu.counters.launches.items() if "mirror" in name) == 4


def test_a_fit_with_halved_gram_matrices_follows_the_reference(gpu, monkeypatch, plans):
    monkeypatch.setattr(cuda, "_HALVED", 1)
    assert_same(*both(gpu))
    assert {len(plan) for plan in plans} == {19}
    assert {max(place.depth for place in plan) for plan in plans} == {13}


def test_errors_of_cublas_are_raised(gpu, monkeypatch):
    monkeypatch.setattr(Library, "cublasDgemmStridedBatched", lambda *arguments: 13)
    with pytest.raises(_cublas.CublasError, match="cublasDgemmStridedBatched failed with status 13"):
        cuda.product(gpu.cupy.zeros((2, 3)), gpu.cupy.zeros((3, 2)))


def test_tf32_without_a_gpu_is_refused():
    with pytest.raises(ValueError, match="engine: 'cuda' works on CuPy arrays, the problem is in numpy"):
        airnp.fit(*data(), engine=airnp.CUDA("tf32"))
    with pytest.raises(ValueError, match="precision: expected None, 'tf32', 'tf32x3', 'bf16x9'; got 'half'"):
        airnp.CUDA("half")


def test_split_operands_have_the_accuracy_of_float32(gpu):
    """The double rounds operands to TF32 where cuBLAS does: in one product to 10 bits, in three to 21."""
    fits = {
        name: airnp.fit(
            *data(), xp=gpu.cupy, max_iter=40, stop=None, seed=0, dtype="float32", engine=airnp.CUDA(name)
        )
        for name in (None, "tf32", "tf32x3")
    }
    exact = airnp.fit(*data(), max_iter=40, stop=None, seed=0, dtype="float64", engine="reference").X
    errors = {name: float(np.abs(fit.X.get() - exact).max()) for name, fit in fits.items()}
    assert errors["tf32x3"] < 2 * errors[None]
    assert errors["tf32"] > 5 * errors[None]


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("beta", [0.0, 1.0])
def test_products_of_split_operands(gpu, turned, beta):
    """Entries of very different size, and results that cancel."""
    rng = np.random.default_rng(0)
    a, b, c = (
        (rng.standard_normal(shape) * np.exp(3 * rng.standard_normal(shape))).astype(np.float32)
        for shape in ((2, 30, 50), (2, 50, 20), (2, 30, 20))
    )
    left = gpu.cupy.asarray(a.swapaxes(-1, -2).copy() if turned else a)
    left = left.swapaxes(-1, -2) if turned else left
    target, right = gpu.cupy.asarray(c), gpu.cupy.asarray(b)
    nothing = [gpu.cupy.zeros((), dtype="float32")]

    def step(updates):
        cuda._multiply(target, left, right, 0.5, beta)
        return nothing

    found = {}
    for name in (None, "tf32", "tf32x3"):
        target.set(c)
        cuda.prepare(list, step, precision=name)(1)
        found[name] = target.get()
    sizes = [np.abs(part.astype(np.float64)) for part in (a, b, c)]
    exact = 0.5 * a.astype(np.float64) @ b.astype(np.float64) + beta * c
    bound = (0.5 * sizes[0] @ sizes[1] + beta * sizes[2]) * np.finfo(np.float32).eps
    errors = {name: float((np.abs(product - exact) / bound).max()) for name, product in found.items()}
    assert errors["tf32x3"] < 6
    assert errors["tf32"] > 100


def test_operands_are_split_once_in_a_gram_matrix(gpu):
    def counts(iterations):
        gpu.counters.reset()
        engine = airnp.CUDA("tf32x3")
        airnp.fit(*data(), xp=gpu.cupy, max_iter=iterations, stop=None, dtype="float32", engine=engine)
        return gpu.counters.snapshot()

    few, many = counts(13), counts(23)
    assert many["launches"]["split<float>"] - few["launches"]["split<float>"] == 10 * (2 * 8 + 2)
    assert many["products"] - few["products"] == 10 * 3 * 10


@pytest.mark.parametrize(
    ("precision", "capability", "version", "message"),
    [
        (
            "tf32",
            (7, 5),
            120900,
            "'tf32' needs a device of compute capability 8.0 or newer, this one has 7.5",
        ),
        ("tf32x3", (7, 0), 120900, "'tf32x3' needs a device of compute capability 8.0 or newer"),
        ("bf16x9", (9, 0), 120900, "'bf16x9' needs a device of compute capability 10.0 to 10.3"),
        ("bf16x9", (12, 0), 120900, "'bf16x9' needs a device .* this one has 12.0"),
        ("bf16x9", (10, 0), 120800, "'bf16x9' needs cuBLAS 12.9 or newer, found 120800"),
    ],
)
def test_units_that_are_not_there_are_refused(gpu, precision, capability, version, message):
    gpu.settings.compute_capability, gpu.cublas.version = capability, version
    with pytest.raises(ValueError, match=f"precision: {message}"):
        airnp.fit(*data(), xp=gpu.cupy, max_iter=2, dtype="float32", engine=airnp.CUDA(precision))


def test_bf16x9_is_a_mode_of_cublas(gpu):
    gpu.settings.compute_capability = (10, 0)
    options = {"xp": gpu.cupy, "max_iter": 3, "stop": None, "seed": 0, "dtype": "float32"}
    airnp.fit(*data(), **options, engine=airnp.CUDA("bf16x9"))
    assert set(gpu.cublas.modes) == {0, 4}


# --- libraries, memory and streams as CUDA has them ---


@pytest.fixture
def two_versions(tmp_path, monkeypatch):
    """NVIDIA's wheels for CUDA 12 and 13, with libraries that say their version, and a pathfinder."""
    source = tmp_path / "version.c"
    source.write_text("int version(void) { return VERSION; }")
    folders = {
        ("cublas", 12): "cublas",
        ("nvrtc", 12): "cuda_nvrtc",
        ("cublas", 13): "cu13",
        ("nvrtc", 13): "cu13",
    }
    for (name, major), folder in folders.items():
        place = tmp_path / "nvidia" / folder / "lib"
        place.mkdir(parents=True, exist_ok=True)
        output = place / f"lib{name}.so.{major}"
        command = ["gcc", "-shared", "-fPIC", f"-DVERSION={major}", "-o", output, source]
        subprocess.run(command, check=True)
    finder = ModuleType("cuda.pathfinder")
    newest = tmp_path / "nvidia" / "cu13" / "lib"
    finder.load_nvidia_dynamic_lib = lambda name: SimpleNamespace(abs_path=str(newest / f"lib{name}.so.13"))
    monkeypatch.setitem(sys.modules, "cuda", ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", finder)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    return tmp_path


@pytest.mark.skipif(sys.platform != "linux", reason="libraries have other names there")
@pytest.mark.parametrize("name", ["cublas", "nvrtc"])
def test_a_library_has_the_version_of_cupy(gpu, two_versions, monkeypatch, name):
    """PyTorch's wheels bring CUDA 13 beside a CuPy for CUDA 12."""
    for major in (12, 13):
        gpu.settings.runtime_version = 1000 * major
        assert load_library(name).version() == major
    monkeypatch.setattr(sys, "path", [])
    assert load_library(name).version() == 13  # where pathfinder finds it
    gpu.settings.runtime_version = 99_000
    with pytest.raises(OSError, match=rf"{name} of CUDA 99 was not found; tried lib{name}.so.99"):
        load_library(name)


def test_blocks_that_cupy_keeps_count_as_free(gpu):
    before = device_memory()
    array = gpu.cupy.zeros(2**20)
    assert device_memory() == before - array.nbytes
    del array
    assert gpu.cupy.cuda.runtime.memGetInfo()[0] < before
    assert device_memory() == before


def interrupted(gpu, monkeypatch, place):
    """Return a fit of at most 60 iterations that Ctrl-C ends after some launches of its graph."""
    launch, count = gpu.cupy.cuda.Graph.launch, [0]

    def launching_until(self, stream=None):
        launch(self, stream)
        count[0] += 1
        if count[0] == place:
            raise KeyboardInterrupt

    gpu.settings.deferred = True
    with monkeypatch.context() as patch:
        patch.setattr(gpu.cupy.cuda.Graph, "launch", launching_until)
        return airnp.fit(*data(), xp=gpu.cupy, max_iter=60, stop=None, seed=0)


@pytest.mark.parametrize("place", [5, 35])
def test_ctrl_c_leaves_no_launch_behind(gpu, monkeypatch, place):
    """A launch that is queued would write to memory that has other owners by then."""
    found = interrupted(gpu, monkeypatch, place)
    assert gpu.pending() == 0
    assert found.stop_reason == "interrupted"
    gpu.settings.deferred = False
    expected = airnp.fit(*data(), max_iter=found.n_iter, stop=None, seed=0, engine="reference")
    np.testing.assert_allclose(found.X.get(), expected.X, rtol=1e-9, atol=1e-9)


def test_ctrl_c_during_the_capture_leaves_a_usable_stream(gpu, monkeypatch):
    multiply = Library._multiply

    def interrupting(self, *arguments):
        if gpu.cupy.cuda.get_current_stream().is_capturing():
            raise KeyboardInterrupt
        return multiply(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Library, "_multiply", interrupting)
        assert airnp.fit(*data(), xp=gpu.cupy, max_iter=30, stop=None, seed=0).stop_reason == "interrupted"
    assert_same(*both(gpu))


def in_a_thread(function):
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(function).result()


def test_a_graph_keeps_the_workspace_that_it_contains(gpu):
    """It may be launched by another thread than the one that captured it, which is gone."""
    training = steps(airnp.Objective(*data(), xp=gpu.cupy), xp=gpu.cupy)
    in_a_thread(lambda: training.advance(5))
    values = training.advance(5)
    assert gpu.counters.captures == 1
    assert np.isfinite(values).all()


def test_threads_that_come_and_go_share_handles_and_streams(gpu):
    def multiply():
        return cuda.product(gpu.cupy.ones((2, 3)), gpu.cupy.ones((3, 2))).get()

    for _ in range(12):
        in_a_thread(multiply)
    assert len(gpu.cublas.handles) == _cublas._BRANCHES
    with ThreadPoolExecutor(12) as executor:
        list(executor.map(lambda _: multiply(), range(24)))
    del executor
    assert len(gpu.cublas.handles) <= 12 * _cublas._BRANCHES


def test_more_handles_than_the_pool_keeps_are_destroyed(gpu):
    leases = [_cublas._Lease(0) for _ in range(_cublas._MOST_IDLE + 3)]
    assert len(gpu.cublas.handles) == len(leases) * _cublas._BRANCHES
    del leases
    assert len(gpu.cublas.handles) == _cublas._MOST_IDLE * _cublas._BRANCHES


def test_fits_leave_no_memory_behind(gpu):
    def held():
        result = airnp.fit(*data(), xp=gpu.cupy, max_iter=12, stop=None, seed=0)
        del result
        return gpu.cupy.get_default_memory_pool().total_bytes()

    held()
    assert held() == held()


def test_a_stream_at_the_address_of_another_one_is_set_anew(gpu):
    gpu.settings.recycles_streams = True
    cp = gpu.cupy
    a, b = cp.ones((2, 3)), cp.ones((3, 2))
    addresses = set()
    for _ in range(2):
        cp.cuda.get_current_stream().synchronize()
        stream = cp.cuda.Stream(non_blocking=True)
        with stream:
            assert cuda.product(a, b).get().sum() == 12
        addresses.add(stream.ptr)
        del stream
    assert len(addresses) == 1
    assert_same(*both(gpu))
    assert_same(*both(gpu))


# --- errors ---


def test_a_scipy_operator_beside_device_arrays_is_refused(gpu):
    operator = sparse.linalg.aslinearoperator(np.eye(6))
    with pytest.raises(TypeError, match="operator: scipy's linear operators work on arrays of numpy"):
        airnp.fit(np.ones((2, 3)), operator=operator, xp=gpu.cupy)


def test_cuda_on_numpy_arrays_is_refused():
    with pytest.raises(ValueError, match=r"engine: 'cuda' works on CuPy arrays, .* numpy; say xp=cupy"):
        airnp.fit(np.eye(3), engine="cuda")


def test_cuda_without_cupy_names_the_extra(monkeypatch):
    monkeypatch.setattr("airnp.engines.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"CuPy is not installed: pip install \"airnp\[cuda12x\]\""):
        airnp.fit(np.eye(3), engine="cuda")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"failure": 35}, "cannot use a device: cudaErrorInsufficientDriver"),
        ({"failure": 100}, "cannot use a device: cudaErrorNoDevice"),
        ({"runtime_version": 11080}, "expected CUDA 12 or newer, CuPy has 11.8"),
        ({"compute_capability": (6, 1)}, "has compute capability 6.1, 7.0 or newer is needed"),
    ],
)
def test_a_device_that_cannot_be_used_is_explained(gpu, settings, message):
    for name, value in settings.items():
        setattr(gpu.settings, name, value)
    with pytest.raises(RuntimeError, match=message):
        airnp.fit(*data(), xp=gpu.cupy)
    assert message.partition(":")[0] in describe()


def test_a_device_that_is_not_there_is_refused(gpu):
    with pytest.raises(ValueError, match="device: expected one of 0 to 1, got 5"):
        airnp.fit(*data(), xp=gpu.cupy, device=5)


def test_a_usable_device_is_described(gpu):
    check_device()
    assert "CUDA 12.9" in describe()
    assert "sm_80" in describe()


def test_too_little_memory_says_how_much_is_needed(gpu):
    gpu.settings.memory = 300_000
    rng = np.random.default_rng(0)
    with pytest.raises(MemoryError, match=r"100x90 in float64 needs about .*: dtype='float32' halves"):
        airnp.fit(rng.random((100, 90)), xp=gpu.cupy, max_iter=5, stop=None)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            lambda xp, a: xp.zeros((4, 3), dtype=xp.float32),
            TypeError,
            "x: expected dtype float64, got float32",
        ),
        (lambda xp, a: a.T, ValueError, "x: expected C-contiguous memory"),
        (lambda xp, a: np.zeros((4, 3)), TypeError, "x: expected an array of CuPy, got ndarray"),
    ],
)
def test_launch_refuses_arrays_that_a_kernel_would_misread(gpu, change, error, message):
    xp = gpu.cupy
    g, wrong = xp.zeros((4, 3)), change(xp, xp.zeros((4, 3)))
    with pytest.raises(error, match=f"add_scaled_lines: {message}"):
        launching.launch(
            "residual", "add_scaled_lines", ("float64",), (1, 1, 1), g, wrong, None, None, 1, 4, 3
        )


def test_launch_refuses_other_devices_large_numbers_and_missing_arguments(gpu):
    xp = gpu.cupy
    g, x = xp.zeros((4, 3)), xp.zeros((4, 3))

    def launch(*arguments):
        launching.launch("residual", "add_scaled_lines", ("float64",), (1, 1, 1), *arguments)

    with xp.cuda.Device(1):
        elsewhere = xp.zeros((4, 3))
    with pytest.raises(ValueError, match="x: is on device 1, the current device is 0"):
        launch(g, elsewhere, None, None, 1, 4, 3)
    with pytest.raises((ValueError, OverflowError), match=r"2147483648|int32|bounds"):
        launch(g, x, None, None, 1, 2**31, 3)
    with pytest.raises(TypeError, match="expected 7 arguments, got 6"):
        launch(g, x, None, None, 1, 4)
    with pytest.raises(ValueError, match=r"residual.cu has no kernel template named nothing"):
        launching._head("residual", "nothing")
