"""``airnp.fit`` and ``airnp.fit_sparse`` from outside: seeds, results, memory, and every argument."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path
from typing import Any

import array_api_strict
import numpy as np
import pytest
import scipy.sparse
from scipy.sparse import coo_array, csr_array

import airnp
from airnp import (
    Adam,
    AdaptiveLaplacian,
    EnergyChange,
    FixedLaplacian,
    HeldOut,
    Nearest,
    Record,
    TotalVariation,
    WeightDecay,
)
from airnp._devices import available_memory, device_memory
from airnp.data.entries import read_entries
from airnp.model.objective import Objective
from tests.equality import assert_same

RNG = np.random.default_rng(7)
TRUTH = RNG.random((13, 3)) @ RNG.random((3, 10)) * 40 - 7
MASK = RNG.random(TRUTH.shape) < 0.65


def fit(**options: Any) -> airnp.FitResult:
    return airnp.fit(**{"Y": TRUTH, "mask": MASK, "max_iter": 60, "stop": None, "seed": 3, **options})


def table(m: int = 40, n: int = 30, rank: int = 2, share: float = 0.5) -> tuple[np.ndarray, csr_array]:
    """Return a matrix of low rank with entries around 3, and a sparse matrix of some of them."""
    rng = np.random.default_rng(0)
    truth = 3 + rng.standard_normal((m, rank)) @ rng.standard_normal((rank, n))
    return truth, csr_array(np.where(rng.random((m, n)) < share, truth, 0))


COMPLETE, STORED = table()


def fit_sparse(S: Any = STORED, **options: Any) -> airnp.SparseFitResult:
    quick = {"rank": 3, "depth": 2, "max_iter": 60, "stop": None, "seed": 0}
    return airnp.fit_sparse(S, **{**quick, **options})


class Same:
    """An operator that measures every entry, in another order."""

    def forward(self, X: Any) -> Any:
        return X[::-1]

    def adjoint(self, Z: Any) -> Any:
        return Z[::-1]


def normalized(result: airnp.FitResult) -> np.ndarray:
    """The product of the factors, multiplied here."""
    product = result.factors[0]
    for factor in result.factors[1:]:
        product = factor @ product
    return product


def learned(result: airnp.FitResult) -> list[Any]:
    return [item.parameter for item in result.regularizers if item.parameter is not None]


# ------------------------------------------------------------------------------------------- repeatability


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("stop", [None, HeldOut(patience=20, every=10)], ids=["none", "held-out"])
def test_same_seed_gives_the_same_bits(dtype, stop):
    first, second = (fit(dtype=dtype, stop=stop, max_iter=120) for _ in range(2))
    assert first.X.dtype == dtype
    np.testing.assert_array_equal(first.X, second.X)
    np.testing.assert_array_equal(first.history["loss"], second.history["loss"])
    assert not np.array_equal(first.X, fit(dtype=dtype, stop=stop, max_iter=120, seed=4).X)


@pytest.mark.parametrize("record", [1, 7, 30, 1000])
@pytest.mark.parametrize(
    ("stop", "regularizers"),
    [
        (None, None),
        (HeldOut(patience=30, every=20), []),
        (HeldOut(patience=30, relative_patience=0.1, every=20), None),
        (EnergyChange(0.05), None),
    ],
    ids=["none", "held-out-dmf", "held-out-air", "energy"],
)
def test_record_is_only_to_look_at(stop, regularizers, record):
    options = {
        "stop": stop,
        "regularizers": regularizers,
        "max_iter": 500,
        "init": airnp.Gaussian(0.3, 0.3),
        "optimizer": airnp.Adam(1e-2),
    }
    usual, other = fit(**options), fit(record=record, **options)
    np.testing.assert_array_equal(usual.X, other.X)
    for name in ("n_iter", "best_iter", "stop_reason"):
        assert getattr(usual, name) == getattr(other, name)
    assert stop is None or usual.n_iter < 500, "the case must exercise an early stop"


def test_a_seed_that_was_left_out_is_stored_and_repeats():
    first, second = fit(seed=None), fit(seed=None)
    assert first.seed != second.seed
    np.testing.assert_array_equal(fit(seed=first.seed).X, first.X)


def test_seeds_may_be_numpy_integers_and_large():
    assert fit(seed=np.int64(5), max_iter=2).seed == 5
    assert fit(seed=2**70, max_iter=2).seed == 2**70


def test_inputs_are_not_modified():
    Y, mask, truth, weights = TRUTH.copy(), MASK.copy(), TRUTH.copy(), np.where(MASK, 2.0, 1.0)
    start = [np.full(shape, 0.1) for shape in ((10, 10), (10, 10), (13, 10))]
    given = [Y, mask, truth, weights, *start]
    copies = [array.copy() for array in given]
    fit(Y=Y, mask=mask, record=Record(truth=truth), weights=weights, init=start, max_iter=5)
    for array, copy in zip(given, copies, strict=True):
        np.testing.assert_array_equal(array, copy)


# ------------------------------------------------------------------------------------------------- results


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("scale", "offset"), [(1.0, 0.0), (1e-8, 0.0), (1e8, 1e9), (1.0, 1e6)])
def test_completed_keeps_observed_entries_exactly(dtype, scale, offset):
    Y = (TRUTH * scale + offset).astype(dtype)
    result = fit(Y=Y, max_iter=5)
    completed = result.completed()
    assert completed.dtype == dtype
    np.testing.assert_array_equal(completed[MASK], Y[MASK])
    np.testing.assert_array_equal(completed[~MASK], result.X[~MASK])
    assert not np.array_equal(result.X[MASK], Y[MASK])


def test_completed_of_a_stack_with_nan():
    stack = np.where(MASK, np.stack([TRUTH, 2 * TRUTH]), np.nan)
    completed = fit(Y=stack, mask=None, max_iter=5).completed()
    np.testing.assert_array_equal(completed[:, MASK], stack[:, MASK])
    assert np.isfinite(completed).all()


GRAPHS = {
    "rows": lambda x: x,
    "columns": lambda x: np.swapaxes(x, -1, -2),
    "blocks": lambda x: np.stack(
        [block.ravel() for half in np.split(x, 6) for block in np.split(half, 2, axis=1)]
    ),
}


@pytest.mark.parametrize("adjacency", ["row", "global", "product"])
@pytest.mark.parametrize("axis", GRAPHS)
def test_fitted_graphs_are_graphs_and_have_the_energy_they_claim(axis, adjacency):
    place = airnp.Blocks(2, 5) if axis == "blocks" else axis
    result = fit(
        Y=TRUTH[:12],
        mask=MASK[:12],
        regularizers=[AdaptiveLaplacian(place, 1e-2, adjacency)],
        optimizer=airnp.Adam(2e-2),
    )
    (item,) = result.regularizers
    nodes = {"rows": 12, "columns": 10, "blocks": 12}[axis]
    assert item.name == axis
    assert item.adjacency.shape == item.laplacian.shape == item.parameter.shape == (nodes, nodes)
    np.testing.assert_array_equal(item.adjacency, item.adjacency.T)
    assert (item.adjacency >= 0).all()
    assert item.adjacency.std() > 1e-6
    np.testing.assert_allclose(item.laplacian.sum(axis=1), 0, atol=1e-14)
    z = GRAPHS[axis](normalized(result))
    assert float(item.energy) == pytest.approx(np.trace(z.T @ item.laplacian @ z), rel=1e-10)


def test_energies_are_those_of_the_state_that_is_returned():
    """The history has what an iteration started from; the regularisers have where the fit ended."""
    one, two = fit(max_iter=20), fit(max_iter=21)
    for item, name in zip(one.regularizers, ("energy_rows", "energy_columns"), strict=True):
        assert float(item.energy) == pytest.approx(two.history[name][-1], rel=1e-12)


def test_graphs_live_where_the_fit_lives(backend):
    Y = backend.array(np.where(MASK, TRUTH, 0.0))
    result = airnp.fit(Y, backend.array(MASK), stop=None, max_iter=3, seed=0)
    item = result.to_numpy().regularizers[1]
    laplacian = result.regularizers[1].laplacian
    assert type(laplacian) is type(result.X)
    assert getattr(laplacian, "device", None) == getattr(Y, "device", None)
    host = airnp.FitResult.to_numpy(result)
    np.testing.assert_allclose(
        item.laplacian, np.diag(item.adjacency.sum(axis=1)) - item.adjacency, atol=1e-14
    )
    assert type(host.X) is np.ndarray
    np.testing.assert_array_equal(np.asarray(host), host.X)


@pytest.mark.parametrize("kind", ["csr_array", "csr_matrix", "coo_array", "csc_matrix"])
@pytest.mark.parametrize("axis", ["rows", "columns"])
def test_a_sparse_graph_stays_sparse(kind, axis):
    nodes = TRUTH.shape[0 if axis == "rows" else 1]
    path = np.diag(np.arange(1.0, nodes), 1)
    path += path.T
    sparse = getattr(scipy.sparse, kind)(path)
    result = fit(regularizers=[airnp.FixedLaplacian(sparse, axis)])
    dense = fit(regularizers=[airnp.FixedLaplacian(path, axis)])
    (item,), (plain,) = result.regularizers, dense.regularizers
    assert scipy.sparse.issparse(item.adjacency)
    assert scipy.sparse.issparse(item.laplacian)
    np.testing.assert_array_equal(item.adjacency.toarray(), path)
    np.testing.assert_array_equal(item.laplacian.toarray(), plain.laplacian)
    np.testing.assert_allclose(item.laplacian.sum(axis=1), 0, atol=1e-14)
    np.testing.assert_allclose(result.X, dense.X, rtol=1e-10)
    assert item.parameter is None
    z = GRAPHS[axis](normalized(result))
    assert float(item.energy) == pytest.approx(np.trace(z.T @ (item.laplacian @ z)), rel=1e-10)
    np.testing.assert_allclose(result.to_numpy().X, result.X)


def test_a_regularizer_without_a_graph_has_none():
    (item,) = fit(regularizers=[TotalVariation(1e-3, "quadratic")]).regularizers
    assert item.adjacency is None
    assert item.laplacian is None
    assert item.parameter is None


def test_a_warm_start_continues_from_the_same_loss():
    first, longer = fit(max_iter=40), fit(max_iter=41, record=1)
    start = [*first.factors, *learned(first)]
    copies = [array.copy() for array in start]
    warm = fit(init=start, max_iter=30)
    assert warm.history["loss"][0] == longer.history["loss"][40]
    assert warm.history["loss"][-1] < warm.history["loss"][0]
    for array, copy in zip(start, copies, strict=True):
        np.testing.assert_array_equal(array, copy)
    by_factors = fit(init=first.factors, max_iter=1)
    assert by_factors.history["fidelity"][0] == longer.history["fidelity"][40]
    assert by_factors.history["energy_rows"][0] != longer.history["energy_rows"][40]


def test_a_warm_start_from_a_file(tmp_path):
    first = fit(max_iter=40, dtype="float32")
    first.save(tmp_path / "a.npz")
    stored = airnp.load(tmp_path / "a.npz")
    options = {"max_iter": 20, "dtype": "float32"}
    here = fit(init=[*first.factors, *learned(first)], **options)
    there = fit(init=[*stored.factors, *learned(stored)], **options)
    np.testing.assert_array_equal(here.X, there.X)


def test_results_compare_by_identity():
    """Field by field would ask arrays for one truth value."""
    first, second = fit(max_iter=2), fit(max_iter=2)
    assert first == first
    assert first != second
    assert first.history != second.history
    assert len({first, second}) == 2
    assert "13x10" in repr(first)


# -------------------------------------------------------------------------------------------- the sparse form


def test_both_forms_agree_over_200_iterations_where_all_candidates_are_kept():
    _, S = table(12, 9)
    common = {"depth": 3, "rank": 4, "max_iter": 200, "stop": None, "seed": 5}
    common["init"] = airnp.Gaussian(0.1, 0.3)
    weights = {"rows": 0.02, "columns": 0.03}
    dense = airnp.fit(S, regularizers=[AdaptiveLaplacian(*axis) for axis in weights.items()], **common)
    nearest = {"rows": Nearest(11), "columns": Nearest(8)}
    graphs = [AdaptiveLaplacian(*axis, candidates=nearest[axis[0]]) for axis in weights.items()]
    sparse = airnp.fit_sparse(S, regularizers=graphs, **common)
    np.testing.assert_allclose(sparse.X, dense.X, rtol=0, atol=1e-9)
    np.testing.assert_allclose(sparse.history["loss"], dense.history["loss"], rtol=1e-9)
    ours, theirs = sparse.row_graph(3).adjacency.toarray(), dense.row_graph(3).adjacency.toarray()
    np.testing.assert_allclose(ours, theirs, atol=1e-9)


def test_a_sparse_fit_completes_a_matrix_of_low_rank():
    truth, S = table(80, 60)
    options = {"offsets": True, "regularizers": [], "optimizer": Adam(0.01), "max_iter": 6000}
    result = fit_sparse(S, rank=4, stop="auto", **options)
    missing = S.toarray() == 0
    assert np.abs(result.predict(*np.nonzero(missing)) - truth[missing]).mean() < 0.05
    assert result.stop_reason in ("held-out error stopped falling", "max_iter (6000) reached")
    assert 0 < result.best_iter <= 3000


def test_every_option_at_once_and_the_result_tells_everything(tmp_path):
    graph = csr_array(np.eye(30, k=1) + np.eye(30, k=-1))
    terms = [
        AdaptiveLaplacian("rows", 1e-3, candidates=Nearest(5, refresh=7)),
        FixedLaplacian(graph, "columns", 1e-3),
        WeightDecay(1e-3, "sqrt"),
        WeightDecay(1e-3, on="mask"),
    ]
    result = fit_sparse(
        regularizers=terms, offsets=2.0, mask_factor="both", bounds=(-9.0, 12.0), batch_size=100
    )
    assert result.shape == (40, 30)
    assert list(result.history) == [
        *("iteration", "loss", "fidelity", "energy_rows", "energy_columns"),
        *("energy_decay", "energy_mask_decay", "energy_offsets"),
    ]
    assert result.X.min() >= -9.0
    assert result.predict(3, [4, 5]).shape == (2,)
    np.testing.assert_allclose(result.predict([[1], [2]], [3, 4]), result.X[1:3, 3:5], rtol=1e-12)
    with pytest.raises(IndexError, match="rows: expected 0 to 39"):
        result.predict([40], [0])
    assert result.row_graph().n_nodes == 40
    with pytest.raises(ValueError, match="column_graph: this fit learned no graph over columns"):
        result.column_graph()
    result.save(tmp_path / "result.npz")
    assert_same(airnp.load(tmp_path / "result.npz"), result)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("batch_size", [None, 150])
def test_the_same_seed_gives_the_same_bits_of_a_sparse_fit(threads, batch_size):
    _, S = table(60, 50)
    graph = AdaptiveLaplacian("rows", 1e-3, candidates=Nearest(4, refresh=20))
    options = {"rank": 16, "batch_size": batch_size, "dtype": "float32", "engine": airnp.CPU(threads)}
    options |= {"regularizers": [graph], "offsets": True}
    first, second, other = (fit_sparse(S, **options, seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.X, second.X)
    assert not np.array_equal(first.X, other.X)


def test_both_engines_agree():
    graph = AdaptiveLaplacian("columns", 1e-2, candidates=Nearest(6))
    options = {"offsets": True, "mask_factor": "rows", "regularizers": [graph]}
    fast, plain = fit_sparse(**options), fit_sparse(engine="reference", **options)
    np.testing.assert_allclose(fast.X, plain.X, rtol=1e-9)


def test_sparse_input_is_not_changed_and_explicit_zeros_count():
    C = coo_array(([0.0, 1.0, 2.0, 3.0], ([0, 0, 1, 2], [1, 0, 1, 2])), shape=(3, 3))
    assert read_entries(C).nnz == 4
    assert read_entries(scipy.sparse.lil_array(np.diag([1.0, 2.0, 3.0]))).nnz == 3
    before = C.data.copy()
    fit_sparse(C, rank=1, regularizers=[], max_iter=5)
    np.testing.assert_array_equal(C.data, before)


def test_empty_lines_are_warned_of_and_still_predicted():
    S = coo_array(([1.0, 2.0], ([0, 2], [0, 1])), shape=(3, 2))
    with pytest.warns(airnp.EmptyLineWarning, match="1 rows and 0 columns"):
        result = fit_sparse(S, rank=1, offsets=True, regularizers=[], max_iter=5, stop="auto")
    assert np.isfinite(result.X).all()


def test_batches_estimate_the_whole_loss_without_bias():
    options = {"regularizers": [], "max_iter": 400, "optimizer": Adam(0.01), "offsets": True}
    errors = [np.abs(fit_sparse(batch_size=size, **options).X - COMPLETE).mean() for size in (None, 200)]
    assert errors[1] < 1.5 * errors[0]


# ----------------------------------------------------------------------------------------------------- memory


def test_free_memory_never_changes_the_form(monkeypatch):
    _, S = table(60, 40, rank=3)
    options = {"rank": 5, "max_iter": 20, "stop": None, "seed": 0}
    plain = airnp.fit(S, **options)
    monkeypatch.setattr("airnp.fitting.available_memory", lambda: 2**60)
    assert_same(airnp.fit(S, **options), plain)
    monkeypatch.setattr("airnp.fitting.available_memory", lambda: 1000)
    with pytest.raises(
        MemoryError, match=r"a dense fit of 60x40 .* GiB.*; airnp\.fit_sparse\(S, rank=\.\.\.\)"
    ):
        airnp.fit(S, **options)
    monkeypatch.setattr("airnp.training.dense.available_memory", lambda: 1000)
    with pytest.raises(MemoryError, match=r"a fit of 60x40 in float64 needs about .* \(\d+ bytes\)"):
        airnp.fit(S.toarray(), **options)
    assert isinstance(airnp.fit_sparse(S, **options), airnp.SparseFitResult)


@pytest.mark.parametrize("shape", [(50_000, 3), (3, 50_000), (1000, 2, 4000)])
def test_a_fit_that_cannot_fit_is_refused_before_it_begins(shape, monkeypatch):
    monkeypatch.setattr("airnp.training.dense.available_memory", lambda: 2**34)
    Y = np.broadcast_to(np.arange(shape[-1]) / shape[-1], shape)
    monkeypatch.setattr(Objective, "of_data", lambda *data: pytest.fail("it began"))
    with pytest.raises(
        MemoryError,
        match=r"in float64 needs about [\de+.]+ GiB \(\d+ bytes\), there are 16: "
        r"dtype='float32' halves that, regularizers=\[\] learns no graphs",
    ):
        airnp.fit(Y)


def test_only_graphs_that_a_fit_learns_count(monkeypatch):
    monkeypatch.setattr("airnp.training.dense.available_memory", lambda: 2**26)
    Y = np.broadcast_to(np.arange(3.0), (5000, 3))
    rows, blocks = airnp.AdaptiveLaplacian("rows"), airnp.AdaptiveLaplacian(airnp.Blocks(1, 1))
    for graph in (rows, blocks):
        with pytest.raises(MemoryError, match=r"a fit of 5000x3 in float64 needs"):
            airnp.fit(Y, regularizers=[graph])
    for options in ({"regularizers": []}, {"regularizers": [airnp.AdaptiveLaplacian("columns")]}):
        assert np.isfinite(airnp.fit(Y, max_iter=2, stop=None, **options).X).all()


def test_limits_of_the_process_and_of_its_control_groups_count(tmp_path, monkeypatch):
    from airnp import _devices

    def write(folder, **files):
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name.replace("_", ".")).write_text(text)

    monkeypatch.setattr(_devices, "_GROUPS", tmp_path)
    monkeypatch.setattr(_devices, "_free_of_machine", lambda: 10**9)
    assert available_memory() == 10**9
    places = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    place = next(place for number, _, place in places if number == "0").lstrip("/")
    write(tmp_path, memory_max="9000\n", memory_current="2000\n", memory_stat="anon 1\ninactive_file 500\n")
    assert available_memory() == 7500
    write(tmp_path, memory_max="max\n")
    assert available_memory() == 10**9
    write(tmp_path / place, memory_max="100\n", memory_current="300\n", memory_stat="")
    assert available_memory() == 0
    write(tmp_path / place, memory_max="max\n")
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (2**33, 2**33))\n"
        "from airnp._devices import available_memory; print(0 < available_memory() < 2**33)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "True\n", done.stderr


def test_free_blocks_of_the_pool_of_a_device_count_as_free(gpu, monkeypatch):
    class Pool:
        def free_bytes(self) -> int:
            return 12_345

    monkeypatch.setattr(gpu.cupy, "get_default_memory_pool", Pool, raising=False)
    free, _ = gpu.cupy.cuda.runtime.memGetInfo()
    assert device_memory() == device_memory(1) == free + 12_345
    options = {"rank": 2, "max_iter": 2, "stop": None, "xp": gpu.cupy}
    assert isinstance(airnp.fit(STORED, **options), airnp.FitResult)
    monkeypatch.setattr("airnp.fitting.device_memory", lambda device: 1000)
    with pytest.raises(MemoryError, match=r"airnp\.fit_sparse"):
        airnp.fit(STORED, **options)


def test_a_large_matrix_is_not_formed():
    S = coo_array(([1.0, 2.0], ([0, 70_000], [0, 70_000])), shape=(70_001, 70_001))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", airnp.EmptyLineWarning)
        result = fit_sparse(S, rank=1, regularizers=[], max_iter=1)
    with pytest.raises(ValueError, match=r"predict\(rows, columns\)"):
        _ = result.X


HUGE = """
    import json, resource, warnings
    import numpy as np
    from scipy.sparse import coo_array
    import airnp

    # 80 GB for X and 320 GB for a graph over the rows, had they been formed.
    m, n, each = 200_000, 50_000, 10
    rng = np.random.default_rng(0)
    rows = np.repeat(np.arange(m), each)
    columns = (np.arange(each) * (n // each) + rng.integers(0, n // each, (m, each))).ravel()
    S = coo_array((rng.random(m * each, dtype=np.float32), (rows, columns)), shape=(m, n))
    ring = [(np.arange(size) + step) % size for size in (m, n) for step in (1, 2, 3)]
    graphs = []
    for size, ends in ((m, ring[:3]), (n, ring[3:])):
        places = np.tile(np.arange(size), 3), np.concatenate(ends)
        graphs.append(coo_array((np.ones(3 * size, np.float32), places), (size, size)))
    resource.setrlimit(resource.RLIMIT_AS, (6 * 2**30, 6 * 2**30))
    result = airnp.fit_sparse(
        S, rank=8, depth=2, max_iter=3, stop=None, seed=0, offsets=True, mask_factor="both",
        batch_size=500_000, regularizers=[
            airnp.AdaptiveLaplacian("rows", candidates=graphs[0]),
            airnp.AdaptiveLaplacian("columns", candidates=graphs[1]),
            airnp.WeightDecay(1e-9),
        ],
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    some = result.predict(rows[:5], columns[:5])
    print(json.dumps([type(result).__name__, peak, bool(np.isfinite(some).all())]))
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits memory as Linux does")
def test_200_000_rows_and_50_000_columns_in_6_gib():
    program = [sys.executable, "-W", "error", "-c", textwrap.dedent(HUGE)]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    kind, peak, finite = json.loads(done.stdout)
    assert (kind, finite) == ("SparseFitResult", True)
    assert peak < 1.5 * 2**30


# -------------------------------------------------------------------------------------------- every argument

CALLS: list[int] = []
CHANGES = "the answer changes"
BOTH: dict[str, tuple[Any, Any]] = {
    "device": ("gpu", "device: "),
    "regularizers": ([], CHANGES),
    "fidelity": (airnp.Squared("sum"), CHANGES),
    "depth": (4, CHANGES),
    "rank": (2, CHANGES),
    "max_iter": (7, lambda result: result.n_iter == 7),
    "stop": (HeldOut(0.2), CHANGES),
    "optimizer": ("gradient_descent", CHANGES),
    "learning_rate": (0.02, CHANGES),
    "init": (airnp.Gaussian(0.1, 0.3), CHANGES),
    "seed": (4, CHANGES),
    "dtype": ("float32", lambda result: result.X.dtype == np.float32),
    "normalize": (False, CHANGES),
    "bounds": ((0, 1), "bounds: .*outside"),
    "engine": ("cuda", "engine: 'cuda' works on CuPy arrays"),
    "record": (4, lambda result: result.history["iteration"].tolist() == [1, 4, 8, 12]),
    "callback": (lambda iteration, state: CALLS.append(iteration), lambda result: CALLS == [1, 10, 12]),
    "progress": (True, lambda result: True),
    "checkpoint": ("run.npz", lambda result: Path("run.npz").exists()),
}
ALONE: dict[Any, dict[str, tuple[Any, Any]]] = {
    airnp.fit: {
        "mask": (~MASK, CHANGES),
        "xp": (array_api_strict, lambda result: isinstance(result.X, type(array_api_strict.zeros(1)))),
        "operator": (Same(), CHANGES),
        "weights": (1.0 + np.arange(TRUTH.size).reshape(TRUTH.shape), CHANGES),
    },
    airnp.fit_sparse: {
        "xp": (array_api_strict, "xp: fit_sparse works on arrays of NumPy and CuPy"),
        "weights": (1.0 + np.arange(STORED.nnz), CHANGES),
        "offsets": (True, CHANGES),
        "mask_factor": ("rows", CHANGES),
        "batch_size": (100, CHANGES),
    },
}
DATA = {airnp.fit: {"Y": TRUTH, "mask": MASK}, airnp.fit_sparse: {"S": STORED, "rank": 3}}
PARAMETERS = [
    (function, name)
    for function, data in DATA.items()
    for name in inspect.signature(function).parameters
    if name not in ("Y", "S")
]


@pytest.mark.parametrize(
    ("function", "name"), PARAMETERS, ids=[f"{function.__name__}, {name}" for function, name in PARAMETERS]
)
def test_every_parameter_is_honoured_or_refused(function, name, tmp_path, monkeypatch, capsys):
    """A parameter that a function gets later needs an entry above, or fails here."""
    monkeypatch.chdir(tmp_path)
    CALLS.clear()
    usual = {**DATA[function], "max_iter": 12, "stop": None, "seed": 3}
    value, effect = {**BOTH, **ALONE[function]}[name]
    if isinstance(effect, str) and effect is not CHANGES:
        with pytest.raises(ValueError, match=f"^{effect}"):
            function(**{**usual, name: value})
        return
    result = function(**{**usual, name: value})
    assert ("12/12" in capsys.readouterr().err) == (name == "progress")
    if effect is CHANGES:
        assert not np.array_equal(result.X, function(**usual).X)
    else:
        assert effect(result)


def listed(*names: str) -> str:
    return ".*".join(f"'{name}'" for name in names)


WHOLE = [1.5, "3", None, True, np.nan]
BAD = [
    *[("max_iter", value, TypeError, "expected a whole number") for value in WHOLE],
    *[("max_iter", value, ValueError, "expected at least 1") for value in (0, -1)],
    *[("record", value, TypeError, "expected a whole number") for value in WHOLE if value is not None],
    *[("record", value, ValueError, "expected at least 1") for value in (0, -10)],
    *[("seed", value, TypeError, "expected a whole number") for value in (1.5, "3", True, [1])],
    ("seed", -1, ValueError, "expected at least 0"),
    *[("depth", value, TypeError, "expected a whole number") for value in WHOLE],
    *[("depth", value, ValueError, "expected at least 1") for value in (0, -2)],
    *[("rank", value, TypeError, "expected a whole number") for value in (2.0, "3", False)],
    ("rank", 0, ValueError, "expected at least 1"),
    ("rank", 11, ValueError, r"expected at most min\(m, n\) = 10 .*got 11"),
    ("stop", "never", ValueError, "expected 'auto', None or a rule such as HeldOut.*got 'never'"),
    ("stop", 3, TypeError, "expected 'auto', None or a rule such as HeldOut.*got 3"),
    ("stop", HeldOut, TypeError, "expected 'auto', None or a rule"),
    ("optimizer", "sgd", ValueError, listed("adam", "gradient_descent")),
    ("optimizer", 3, TypeError, "expected a name or an object"),
    ("optimizer", None, TypeError, "expected a name or an object"),
    ("optimizer", airnp.Adam, TypeError, "expected a name or an object"),
    *[("learning_rate", value, TypeError, "expected a number") for value in ("1e-3", None, True)],
    *[("learning_rate", value, ValueError, "expected a positive") for value in (0, -1e-3, np.nan, np.inf)],
    ("init", "zeros", ValueError, listed("gaussian", "balanced")),
    ("init", 3, TypeError, "expected a name, an initializer"),
    ("init", airnp.Gaussian, TypeError, "expected a name, an initializer"),
    ("init", np.ones((10, 10)), TypeError, "a list of arrays"),
    ("init", [np.ones((10, 10))], ValueError, "expected 3 factors.*5 arrays in all; got 1"),
    ("init", [np.ones((3, 3))] * 3, ValueError, r"array 0 must have shape \(10, 10\), got \(3, 3\)"),
    ("init", [np.full(s, np.nan) for s in ((10, 10), (10, 10), (13, 10))], ValueError, "NaN or infinite"),
    ("engine", "gpu", ValueError, listed("auto", "reference")),
    ("engine", None, ValueError, listed("auto", "reference")),
    ("fidelity", "mean", TypeError, r"expected Squared\(\) or Huber\(delta\), got 'mean'"),
    ("callback", "print", TypeError, r"expected a function of \(iteration, state\), got str"),
    ("normalize", "no", TypeError, "expected True or False, got 'no'"),
    ("operator", airnp.Operator(Same(), (3, 3)), ValueError, r"forward gives shape \(3, 3\)"),
    ("dtype", "float16", ValueError, "expected float32 or float64, got float16"),
    ("dtype", "complex64", ValueError, "expected float32 or float64, got complex64"),
    ("xp", "numpy", TypeError, "expected an array module"),
    ("regularizers", 3, TypeError, "expected"),
    ("regularizers", "auto", TypeError, "expected"),
    ("regularizers", ["tv"], TypeError, "expected objects such as TotalVariation"),
    ("regularizers", TotalVariation(1e-3), TypeError, "expected a list"),
]


@pytest.mark.parametrize(("name", "value", "error", "message"), BAD, ids=lambda value: str(value)[:20])
def test_bad_arguments_are_named(name, value, error, message):
    with pytest.raises(error, match=f"^{name}: .*{message}"):
        airnp.fit(TRUTH, MASK, **{"max_iter": 2, name: value})


BAD_SPARSE = [
    ("S", COMPLETE, TypeError, "expected a sparse matrix"),
    ("rank", None, TypeError, "expected a whole number"),
    ("rank", 31, ValueError, "expected at most"),
    ("depth", 1, ValueError, "one factor is the whole matrix"),
    ("fidelity", airnp.Huber(), ValueError, r"fit_sparse has Squared\(\), got Huber"),
    ("record", Record(truth=COMPLETE), ValueError, "truth is for airnp.fit"),
    ("regularizers", "auto", TypeError, "expected"),
    ("regularizers", [TotalVariation(1.0)], ValueError, "fit_sparse has AdaptiveLaplacian, FixedLaplacian"),
    ("adjacency", [AdaptiveLaplacian("rows", adjacency="global")], ValueError, "fit_sparse has 'row'"),
    ("regularizers", [WeightDecay(1.0, on="mask")], ValueError, "needs a mask_factor"),
    ("graph", [FixedLaplacian(np.ones((3, 3)))], ValueError, "expected 40 nodes"),
    ("candidates", [AdaptiveLaplacian(candidates=csr_array(np.eye(3)))], ValueError, "expected shape"),
    ("offsets", -1.0, ValueError, "expected True, False or a shrinkage"),
    ("mask_factor", "all", ValueError, "expected one of"),
    ("batch_size", 0, ValueError, "expected at least 1"),
    ("init", "balanced", ValueError, "'balanced' forms the whole matrix"),
    ("init", [np.ones((2, 2))], ValueError, "expected factors of shapes"),
    ("bounds", (0, 1), ValueError, ""),
]


@pytest.mark.parametrize(("name", "value", "error", "message"), BAD_SPARSE, ids=lambda value: str(value)[:20])
def test_bad_arguments_of_a_sparse_fit_are_named(name, value, error, message):
    argument = "regularizers" if name in ("adjacency", "graph", "candidates") else name
    with pytest.raises(error, match=f"^{name}: .*{message}"):
        fit_sparse(**{argument: value})


@pytest.mark.parametrize("name", ["truth", "loss", "form", "shape", "threads", "record_every", "offsets"])
def test_fit_takes_no_argument_of_another_name(name):
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
        fit(**{name: 1})


@pytest.mark.parametrize(
    ("term", "message"),
    [
        (WeightDecay(1.0), "regularizers: WeightDecay is for airnp.fit_sparse"),
        (AdaptiveLaplacian(candidates=Nearest(3)), "candidates: are for airnp.fit_sparse"),
    ],
)
def test_terms_of_a_sparse_fit_are_refused_by_a_dense_one(term, message):
    with pytest.raises(ValueError, match=message):
        fit(regularizers=[term])


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64, int, float])
def test_numbers_of_any_kind_are_numbers(kind):
    assert fit(learning_rate=kind(1), fidelity=airnp.Huber(kind(1)), max_iter=1).n_iter == 1


def test_a_single_factor_has_full_rank():
    with pytest.raises(ValueError, match=r"^rank: a single factor"):
        fit(depth=1, rank=3)


def test_a_history_is_a_mapping_of_columns():
    result = fit(max_iter=20)
    assert len(result.history) == len(list(result.history)) == 5
    assert result.history["iteration"].dtype == np.int64
    assert "3 records" in repr(result.history)
    result.history["loss"][0] = np.nan  # a copy
    assert np.isfinite(result.history["loss"]).all()
