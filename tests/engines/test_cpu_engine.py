"""The CPU engine: the results of the reference, one pool of threads, no allocation, a harmless cache."""

from __future__ import annotations

import inspect
import os
import resource
import subprocess
import sys
import threading
import tracemalloc
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import distributed
import joblib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numba import config as numba_config
from numba import njit

import airnp
from airnp.engines import _cpu_kernels, _vector, cpu, reference, threads
from tests.engines.fits import MODELS, OPTIONS, assert_same, data, steps
from tests.strategies import ADJACENCIES, seeds


def fits(model, batch=(), **options):
    """Return the same fit by both engines."""
    Y, mask = data(batch)
    common = {"regularizers": MODELS[model], "max_iter": 60, "stop": None, "seed": 0, **options}
    return [airnp.fit(Y, mask, engine=engine, **common) for engine in ("cpu", "reference")]


@pytest.mark.parametrize("model", MODELS)
def test_every_model_follows_the_reference(model):
    assert_same(*fits(model), history=1e-7)


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: ", ".join(options) or "default")
def test_every_option_follows_the_reference(options):
    assert_same(*fits("air", **options), 1e-8, history=1e-6)


@pytest.mark.parametrize("model", MODELS)
def test_stacks_follow_the_reference(model):
    assert_same(*fits(model, batch=(2, 2), max_iter=25), history=1e-7)


@pytest.mark.parametrize("model", ["air", "global", "product", "tv", "sparse", "fixed"])
def test_float32_follows_the_reference(model):
    fast, slow = fits(model, dtype="float32", max_iter=40)
    assert fast.X.dtype == np.float32
    assert_same(fast, slow, 2e-4, history=2e-2)


@pytest.fixture
def parallel(monkeypatch):
    """Make the engine use several threads for small arrays, too."""
    monkeypatch.setattr(cpu, "_SMALL", 1)
    monkeypatch.setattr(cpu, "_SMALL_PRODUCT", 1)


@pytest.mark.usefixtures("parallel")
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("batch", [(), (3,)])
def test_two_threads_give_the_answer_of_one(model, batch):
    Y, mask = data(batch)
    common = {"regularizers": MODELS[model], "max_iter": 25, "stop": None, "seed": 0}
    one, two = (airnp.fit(Y, mask, engine=airnp.CPU(count), **common) for count in (1, 2))
    assert_same(two, one, history=1e-7)


@pytest.mark.usefixtures("parallel")
@pytest.mark.parametrize(
    ("shape", "options", "expected"),
    [
        ((12, 9), {}, 1),
        ((12, 7), {}, 0),  # one thread would wait for the other
        ((12, 9), {"regularizers": [airnp.AdaptiveLaplacian("rows")]}, 0),
        ((12, 9), {"optimizer": airnp.GradientDescent(0.05)}, 0),
        ((12, 9), {"optimizer": airnp.Adam(second_moment="matrix")}, 0),
    ],
)
def test_two_threads_take_a_graph_each(shape, options, expected, monkeypatch):
    if numba_config.NUMBA_NUM_THREADS < 2:
        pytest.skip("numba's pool has a single thread on this machine")
    launched = []

    def launch(kernel, chunks, *arguments):
        launched.append(kernel)
        original(kernel, chunks, *arguments)

    original = cpu.launch
    monkeypatch.setattr(cpu, "launch", launch)
    Y = np.random.default_rng(0).random(shape)
    common = {"max_iter": 25, "stop": None, "seed": 0, **options}
    one, two = (airnp.fit(Y, engine=airnp.CPU(count), **common) for count in (1, 2))
    assert_same(two, one, history=1e-7)
    assert launched.count(_cpu_kernels.two_row_graphs) == expected


@given(st.floats(-700, 0), st.sampled_from([np.float32, np.float64]))
@settings(max_examples=300)
def test_the_exponential(x, dtype):
    """Test it through a row softmax of two entries, P = exp(x) / (1 + exp(x)), over the whole range."""
    v = np.array([[0, x], [0, 0]], dtype=dtype)
    found = cpu.laplacian_terms("row", v, np.zeros((2, 2), dtype), weight=1.0).adjacency[0, 1]
    expected = reference.laplacian_terms("row", v, np.zeros((2, 2), dtype), weight=1.0).adjacency[0, 1]
    assert found == pytest.approx(expected, rel=1e-6 if dtype is np.float32 else 1e-14)


@given(
    hnp.arrays(
        st.sampled_from([np.float32, np.float64]),
        st.integers(1, 40),
        elements=st.floats(width=32, allow_nan=False),
    )
)
def test_the_maximum(values):
    assert line_maximum(values) == values.max()


@njit
def line_maximum(values):
    return _vector.maximum(values)


def test_the_maximum_with_nan_is_nan():
    assert np.isnan(line_maximum(np.array([1.0, np.nan, np.inf, 2.0])))


@given(st.integers(1, 70), st.integers(1, 3), st.sampled_from([np.float32, np.float64]), seeds)
@settings(max_examples=60)
def test_symmetric_parts_and_mirror_images(n, chunks, dtype, seed):
    """Test tiles in registers and the rest at the edges."""
    p = np.random.default_rng(seed).standard_normal((2, n, n)).astype(dtype)
    whole, lower = p.copy(), p.copy()
    _cpu_kernels.symmetrize.build(chunks)(whole, dtype(0.5), chunks)
    np.testing.assert_array_equal(whole, dtype(0.5) * (p + p.swapaxes(1, 2)))
    _cpu_kernels.mirror.build(chunks)(lower, chunks)
    np.testing.assert_array_equal(lower, np.tril(p) + np.tril(p, -1).swapaxes(1, 2))


@pytest.mark.parametrize("kind", ADJACENCIES)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_and_infinity_propagate(kind, bad):
    v = np.zeros((5, 5))
    v[1, 2] = bad
    terms = cpu.laplacian_terms(kind, v, np.eye(5), weight=1.0)
    assert not np.isfinite(terms.energy)


@pytest.mark.parametrize("delta", [None, 0.3])
def test_bits_do_not_depend_on_addresses(delta):
    """Small arrays that lie close together must not make a loop take another path."""
    rng = np.random.default_rng(5)
    for n in range(1, 18):
        for _ in range(30):
            x, y, w = np.abs(rng.standard_normal((3, 1, n)))
            kept, found = [], set()
            for _ in range(10):
                kept.append(np.empty(rng.integers(1, 80)))
                value, gradient = cpu.residual(x, y, w, scale=1 / 3, huber_delta=delta)
                found.add((float(value), gradient.tobytes()))
            assert len(found) == 1


@given(st.integers(1, 70), st.integers(1, 70), st.integers(1, 5), seeds)
@settings(max_examples=30)
def test_parallel_gram_matrices(k, d, chunks, seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((2, k, d))
    for columns in (False, True):
        z = np.swapaxes(x, -1, -2) if columns else x
        out = np.full((2, z.shape[1], z.shape[1]), np.nan)
        routines = (cpu.address("gemm", x.dtype), cpu.address("syrk", x.dtype))
        _cpu_kernels.symmetric_product.build(chunks)(*routines, x, columns, out, 1.0, 0.0, chunks)
        _cpu_kernels.mirror.build(chunks)(out, chunks)
        np.testing.assert_allclose(out, z @ np.swapaxes(z, -1, -2), atol=1e-12)


@pytest.mark.parametrize("stride", [1, 2])
def test_a_step_that_copies_is_not_replayed(stride):
    """A strided operand is copied for the kernel; replaying that call would read the first copy forever."""
    base = np.zeros((4, 6))

    def step(updates):
        base[...] += 1
        return [
            cpu.residual(base[:, ::stride], np.zeros((4, 6 // stride)), np.ones((4, 6 // stride)), scale=2.0)[
                0
            ]
        ]

    recorded = cpu.prepare(list, step, replayable=stride == 2, threads=1)(3)
    np.testing.assert_allclose(recorded[:, 0], base[:, ::stride].size * np.array([1.0, 4.0, 9.0]))


def test_a_kernel_has_one_parallel_loop():
    """Numba would fuse two, and a thread could then read what another has not written yet."""
    found = [item for item in vars(_cpu_kernels).values() if isinstance(item, _cpu_kernels.Kernel)]
    assert len(found) > 10
    for kernel in found:
        assert inspect.getsource(kernel._function).count("prange(") == 1, kernel._function.__name__


@pytest.mark.parametrize("second_moment", ["entry", "matrix"])
def test_an_iteration_allocates_no_matrix(second_moment):
    m = 120
    rng = np.random.default_rng(0)
    objective = airnp.Objective(rng.random((m, m)), rng.random((m, m)) < 0.7)
    training = steps(objective, airnp.Adam(second_moment=second_moment))
    training.advance(3)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        training._run(20)
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    matrix = m * m * 8
    assert peak - before < matrix / 2
    assert after - before < matrix / 10


def test_memory_of_a_fit_is_bounded():
    from bench.memory import peak_matrices

    assert peak_matrices(200, "AIR") <= 30
    assert peak_matrices(200, "DMF") < peak_matrices(200, "AIR")


def test_threads_of_blas_are_restored():
    from threadpoolctl import threadpool_info

    def counts():
        return [(library["filepath"], library["num_threads"]) for library in threadpool_info()]

    before = counts()
    Y, mask = data()
    airnp.fit(Y, mask, max_iter=3, stop=None, seed=0, engine=airnp.CPU(2))
    assert [entry for entry in counts() if entry in before] == before
    assert threads.current_threads() == 1


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, None),
        ({"OMP_NUM_THREADS": "1"}, 1),
        ({"OPENBLAS_NUM_THREADS": "1"}, 1),
        ({"NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "64"}, 1),
        ({"OMP_NUM_THREADS": "1,2"}, 1),
        ({"OMP_NUM_THREADS": "nonsense"}, None),
        ({"OMP_NUM_THREADS": "100000"}, None),
    ],
)
def test_the_environment_limits_threads(variables, expected, monkeypatch):
    for variable in threads._VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    processors = len(os.sched_getaffinity(0))
    assert threads.available_threads() == (processors if expected is None else expected)


@pytest.mark.parametrize(
    ("count", "error"), [(0, ValueError), (-1, ValueError), (1.5, TypeError), (True, TypeError)]
)
def test_a_bad_number_of_threads_is_refused(count, error):
    with pytest.raises(error, match="threads: expected"):
        airnp.CPU(count)


def one_fit(seed):
    Y, mask = data()
    return airnp.fit(Y, mask, max_iter=20, stop=None, seed=seed, engine=airnp.CPU(2)).X


@pytest.mark.usefixtures("parallel")
def test_fits_side_by_side_in_python_threads():
    expected = [one_fit(seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as executor:
        for found, answer in zip(executor.map(one_fit, range(4)), expected, strict=True):
            np.testing.assert_allclose(found, answer, rtol=1e-10)


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")
@pytest.mark.usefixtures("parallel")
def test_fits_in_child_processes_after_a_parallel_fit(method):
    """A forked child must not touch the parent's thread pool: GNU OpenMP would abort."""
    expected = one_fit(0)
    with ProcessPoolExecutor(1, mp_context=get_context(method)) as executor:
        found = executor.submit(one_fit, 0).result(timeout=600)
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_fits_in_joblib_workers():
    """Workers are separate processes, each limited to one thread."""
    expected = [one_fit(seed) for seed in range(2)]
    found = joblib.Parallel(n_jobs=2)(joblib.delayed(one_fit)(seed) for seed in range(2))
    for answer, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(answer, wanted, rtol=1e-10)


@pytest.mark.usefixtures("parallel")
def test_fits_in_the_threads_of_a_dask_worker():
    expected = [one_fit(seed) for seed in range(4)]
    cluster = {"n_workers": 1, "threads_per_worker": 2, "processes": False, "dashboard_address": None}
    with distributed.Client(**cluster) as client:
        found = client.gather(client.map(one_fit, range(4)))
    for answer, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(answer, wanted, rtol=1e-10)


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess:
    root = str(Path(airnp.__file__).parent.parent)
    paths = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    variables = {**os.environ, "PYTHONPATH": paths, **environment}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=variables, check=False
    )


TINY_FIT = "import airnp, numpy as np; print(airnp.fit(np.eye(4) + 1, max_iter=3, stop=None, seed=0).X.sum())"


def test_an_unwritable_cache_is_not_used():
    normal, readonly = run_python(TINY_FIT), run_python(TINY_FIT, NUMBA_CACHE_DIR="/dev/null/below")
    assert readonly.returncode == 0, readonly.stderr
    assert readonly.stdout == normal.stdout


def test_a_fit_leaves_the_threads_of_others_as_they_are():
    """Numba's pool would set the threads of OpenMP, which PyTorch uses, too."""
    pytest.importorskip("torch")
    code = """
import torch, airnp, numba, numpy as np
from threadpoolctl import threadpool_info
before = torch.get_num_threads()
limits = {each["filepath"]: each["num_threads"] for each in threadpool_info()}
for _ in range(2):
    airnp.fit(np.eye(40) + 1, max_iter=3, stop=None, seed=0, engine=airnp.CPU(threads=2))
    assert torch.get_num_threads() == before
    after = {each["filepath"]: each["num_threads"] for each in threadpool_info()}
    assert {name: after[name] for name in limits} == limits
    assert numba.get_num_threads() == 2
"""
    done = run_python(code, NUMBA_NUM_THREADS="2", OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr


def test_two_processes_may_compile_at_once(tmp_path):
    found: list[subprocess.CompletedProcess] = []
    workers = [
        threading.Thread(target=lambda: found.append(run_python(TINY_FIT, NUMBA_CACHE_DIR=str(tmp_path))))
        for _ in range(2)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [process.returncode for process in found] == [0, 0], [process.stderr for process in found]
    assert found[0].stdout == found[1].stdout
    assert any(tmp_path.rglob("*.nbi")), "nothing was cached"


FILLS = """
import hashlib, airnp, airnp.sklearn, numpy as np
from airnp.commands.demo import scene
Y, mask = scene(64).astype(np.float32), np.random.default_rng(0).random((64, 64)) < 0.6
fit = airnp.fit(Y, mask, max_iter=40, stop=None, seed=0, dtype="float32")
table = airnp.sklearn.AIRImputer(random_state=0).fit_transform(np.where(mask, Y, np.nan)[:, :6])
for found in (fit.X, airnp.inpaint(Y, mask, quality="fast"), table):
    print(hashlib.sha256(np.ascontiguousarray(found).tobytes()).hexdigest())
"""


@pytest.mark.slow
def test_code_from_the_cache_gives_the_bits_of_code_just_compiled(tmp_path):
    """A function that is called, not inlined, exists twice: as itself, and as optimised with its caller."""
    first, second = (run_python(FILLS, NUMBA_CACHE_DIR=str(tmp_path)) for _ in range(2))
    assert first.returncode == 0, first.stderr
    assert first.stdout == second.stdout


def test_the_first_fit_prints_that_it_compiles(tmp_path):
    code = "import airnp, numpy as np; airnp.fit(np.eye(4) + 1, max_iter=3, stop=None, seed=0, progress=True)"
    first, second = (run_python(code, NUMBA_CACHE_DIR=str(tmp_path)) for _ in range(2))
    assert "compiling" in first.stderr
    assert "compiling" not in second.stderr


@pytest.fixture
def double(tmp_path, monkeypatch):
    """Return a function that is compiled anew at each call of the fixture's value, with a cache on disk."""
    monkeypatch.setattr(numba_config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(_cpu_kernels._Cache, "_failed", False)

    def twice(x):
        return 2 * x

    return lambda: _cpu_kernels.compiled(nogil=True)(twice)


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
@pytest.mark.parametrize("content", [b"", b"cut", None], ids=["empty", "garbage", "half"])
def test_a_cache_of_broken_files_is_named_once_and_not_used(double, tmp_path, capsys, suffix, content):
    assert double()(21) == 42
    paths = list(tmp_path.rglob(f"*.{suffix}"))
    assert len(paths) == 1
    whole = paths[0].read_bytes()
    paths[0].write_bytes(whole[: len(whole) // 2] if content is None else content)
    broken, again = double(), double()
    assert broken(21) == again(21) == 42
    assert broken(1.5) == 3.0
    said = capsys.readouterr().err
    assert said.count("cannot be used") == 1
    assert str(paths[0].parent) in said


def test_a_full_disk_is_named_once_and_fits_go_on(double, capsys):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))  # every write fails, as on a full disk
    try:
        assert double()(21) == 42
        assert double()(21) == 42
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert capsys.readouterr().err.count("cannot be used (OSError: ") == 1


def test_every_kernel_has_the_cache_that_goes_on():
    sources = sorted(Path(_cpu_kernels.__file__).parent.glob("*.py"))
    assert [path.name for path in sources if "cache=True" in path.read_text(encoding="utf-8")] == []
