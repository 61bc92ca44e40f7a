"""The sparse operations of the CPU and the CUDA engine against those of the reference.

The CUDA engine runs on a strict double of CuPy whose kernels run on the CPU.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from airnp._arrays import to_numpy
from airnp.data.entries import Entries
from airnp.engines import cpu, cuda, reference, sparse_cpu, sparse_cuda
from airnp.engines import threads as pool
from airnp.engines.contract import DecayPart, Edges, Offsets, Slopes
from airnp.regularizers.candidates import edges_to, exact
from tests.engines.sparse_kernel_checks import Graph, Problem

SIZES = [(1, 1, 1), (7, 5, 3), (7, 9, 33), (41, 1, 5), (60, 90, 17), (50, 40, 48), (30, 20, 130)]


@pytest.fixture(params=["cpu", "cpu, 2 threads", "cpu, strips", "cuda", "cuda, split lines"])
def place(request, monkeypatch):
    """An engine and the namespace of its arrays, with limits that make small cases take every path."""
    name = request.param
    if name.startswith("cuda"):
        if name.endswith("split lines"):
            monkeypatch.setattr(sparse_cuda, "cut", partial(sparse_cuda.cut, longest=3))
        return SimpleNamespace(ops=cuda, xp=request.getfixturevalue("gpu").cupy, using=nullcontext)
    monkeypatch.setattr(sparse_cpu, "_SMALL", 1)
    if name == "cpu, strips":
        monkeypatch.setattr(sparse_cpu, "_ENTRIES_PER_LINE", 1)
        monkeypatch.setattr(sparse_cpu, "_CACHE_BYTES", 1)
    threads = 1 if name == "cpu" else 2
    return SimpleNamespace(ops=cpu, xp=np, using=lambda: pool.using(threads))


def results(ops, xp, dtype, m, n, rank):
    """Return all that the sparse operations of an engine give for one random case, by name."""
    case, graph = Problem(dtype, m, n, rank, 0.4, 1024, 1), Graph(dtype, m, rank, 0.4, 1024, 1)
    wide = np.float64 if ops is reference else dtype

    def placed(array):
        return xp.asarray(array.astype(wide))

    def empty(*shape):
        return xp.full(shape, 9, dtype=wide)

    found = {}
    u, v, (mean, b, c) = placed(case.u), placed(case.v), map(placed, case.offsets)
    offsets, weights = Offsets(float(mean[0]), b, c), 0.5 + case.values**2
    for name, each in (("residuals", None), ("weighted residuals", weights.astype(wide))):
        out = Slopes(empty(m, rank), empty(n, rank), empty(m), empty(n))
        entries = Entries(case.pattern, case.values.astype(wide), 1.0, each)
        found[name] = ops.residuals(entries, u, v, offsets, scale=case.scale, out=out)
        found |= {f"{name}: {part}": array for part, array in out._asdict().items()}
    places = case.pattern.line_of_each(), case.pattern.indices
    found["entry_values"] = ops.entry_values(*places, u, v, offsets)
    ops.line_sums(case.pattern, v, out=found.setdefault("line_sums", empty(m, rank)))
    logits, t, metric = placed(graph.logits), placed(graph.t), placed(graph.metric)
    parts = {"weights": empty(len(logits)), "slopes": empty(len(logits)), "pull": empty(m, rank)}
    found["edge_terms"] = ops.edge_terms(Edges(graph.pattern), logits, t, metric, **parts)
    found |= {f"edge_terms: {part}": array for part, array in parts.items()}
    pull = found.setdefault("edge_laplacian: pull", empty(m, rank))
    symmetric = graph.symmetric.pattern
    found["edge_laplacian"] = ops.edge_laplacian(symmetric, placed(graph.weights), t, metric, pull=pull)
    basis, metric, inverse = ops.gram_factors(ops.product(v, v, transpose_a=True))
    found["gram_factors"], found["gram_factors: inverse"] = (basis * metric) @ basis.T, inverse @ basis
    assert to_numpy(metric).min() >= 0
    for name, factor in (("number", 0.3), ("column", b[:, None])):
        ops.multiply(u, factor, out=found.setdefault(f"multiply by a {name}", empty(m, rank)))
    ops.add(found.setdefault("add", empty(m, rank)), u)
    slopes = found.setdefault("decay: u", empty(m, rank)), found.setdefault("decay: v", empty(n, rank))
    kept = [DecayPart(u, b[:, None] ** 2, slopes[0]), DecayPart(v, None, slopes[1])]
    found["decay"] = ops.decay(kept, weight=0.2)
    ops.total(v, out=found.setdefault("total", empty(1, 1)))
    for name in ("residuals", "weighted residuals", "edge_terms", "edge_laplacian", "decay"):
        assert found[name].shape == ()
        assert found[name].dtype == np.float64
    return {name: to_numpy(array) for name, array in found.items()}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("m", "n", "rank"), SIZES)
def test_operations_equal_the_reference(place, m, n, rank, dtype):
    with place.using():
        found = results(place.ops, place.xp, dtype, m, n, rank)
    wanted = results(reference, np, dtype, m, n, rank)
    for name, want in wanted.items():
        size = max(np.abs(want).max(initial=0.0), 1e-30)
        np.testing.assert_allclose(
            found[name] / size, want / size, rtol=0, atol=1e-4 if dtype == np.float32 else 1e-12, err_msg=name
        )


@pytest.mark.parametrize("threads", [1, 2])
def test_without_offsets_the_cpu_engine_neither_reads_nor_writes_them(threads, monkeypatch):
    monkeypatch.setattr(sparse_cpu, "_SMALL", 1)
    case = Problem(np.float64, 40, 30, 5, 0.4, 1024, 1)
    zeros = Offsets(0.0, np.zeros(40), np.zeros(30))
    given = Offsets(0.3, *case.offsets[1:])
    found = []
    for offsets, plain in ((zeros, False), (given, True)):
        out = Slopes(*(np.full(shape, 9.0) for shape in ((40, 5), (30, 5), 40, 30)))
        entries = Entries(case.pattern, case.values)
        with pool.using(threads):
            value = cpu.residuals(entries, case.u, case.v, offsets, scale=0.7, out=out, plain=plain)
        found.append((value, out.u, out.v))
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-12 * np.abs(b).max())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rank", [1, 7, 8, 15, 16, 17, 31, 32, 47, 63, 64, 65, 95, 130])
def test_kernels_of_the_cpu_write_to_their_rows_and_to_nothing_else(rank, dtype):
    m, n, sentinel, gap = 9, 6, 77.0, 24
    case = Problem(dtype, m, n, rank, 0.4, 1024, rank)
    u, v, offsets = case.u, case.v, Offsets(0.3, *case.offsets[1:])
    edges = edges_to(exact(np.asarray(u), np.arange(m), 3))
    rng = np.random.default_rng(rank)
    logits, metric = rng.standard_normal(edges.count).astype(dtype), rng.random(rank).astype(dtype)
    shapes = [(m, rank), (n, rank), (m,), (n,), (m, rank), (m, rank), (edges.count,), (edges.count,)]

    def written(ops):
        # One allocation for all: a stray write would land among the sentinels between two of them.
        memory = np.full(gap + sum(int(np.prod(shape)) + gap for shape in shapes), sentinel, dtype)
        taken, arrays, first = np.zeros(memory.size, bool), [], gap
        for shape in shapes:
            size = int(np.prod(shape))
            arrays.append(memory[first : first + size].reshape(shape))
            taken[first : first + size] = True
            first += size + gap
        *slopes, sums, pull, weights, graph = arrays
        with pool.using(1):
            entries = Entries(case.pattern, case.values)
            ops.residuals(entries, u, v, offsets, scale=1.0, out=Slopes(*slopes))
            ops.line_sums(case.pattern, v, out=sums)
            ops.edge_terms(edges, logits, u, metric, weights=weights, slopes=graph, pull=pull)
        assert (memory[~taken] == sentinel).all()
        return arrays

    for ours, theirs in zip(written(cpu), written(reference), strict=True):
        size = max(np.abs(theirs).max(), 1e-30)
        np.testing.assert_allclose(
            ours / size, theirs / size, rtol=0, atol=1e-4 if dtype == np.float32 else 1e-12
        )


def test_a_large_case_equals_the_reference():
    with pool.using(2):
        found = results(cpu, np, np.float64, 400, 150, 100)
    for name, want in results(reference, np, np.float64, 400, 150, 100).items():
        size = np.abs(want).max()
        np.testing.assert_allclose(found[name] / size, want / size, rtol=0, atol=1e-12, err_msg=name)
