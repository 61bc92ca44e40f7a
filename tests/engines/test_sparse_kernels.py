"""The CUDA kernels of the sparse form, their unmodified text executed on the CPU, against the specification.

As ``test_kernels.py``, ``test_kernels_sanitized.py`` and ``test_kernel_indices.py`` do for the dense form:
right values for every shape, grid and order of threads, the same bits whatever the order, no race, no stray
access, and more than 2^31 entries.
"""

from itertools import product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from airnp.data.entries import Pattern
from airnp.engines.sparse_cuda import cut
from tests import sparse_kernel_checks as checks
from tests.engines.test_kernel_indices import promised, run_one_block
from tests.kernel_checks import assert_close, run_and_check
from tests.kernel_launches import NULL, Machine, fenced, scratch

RANKS = st.sampled_from([1, 5, 31, 32, 33, 64, 127, 128, 129, 161, 300])
SIZES = st.sampled_from([1, 2, 7, 9, 33, 41])
MACHINES = st.builds(
    Machine,
    mode=st.sampled_from(["fast", "fma"]),
    order=st.sampled_from([0, 1, 2, 7]),
    most_blocks=st.sampled_from([1, 3, 2048]),
)
CASES = {
    "dtype": st.sampled_from([np.float32, np.float64]),
    "rank": RANKS,
    "share": st.sampled_from([0.0, 0.1, 0.6, 1.0]),
    "longest": st.sampled_from([1, 3, 10, 1024]),
    "seed": st.integers(0, 2**16),
    "machine": MACHINES,
}
ORDERS = [0, 1, 2, 3, 7]


def always(**common):
    """Try some ranks and pieces in any case: Hypothesis' fixed draws may leave one out."""

    def decorate(test):
        machine = Machine(order=2, most_blocks=2)
        for rank, longest, dtype in product([5, 129], [3, 1024], [np.float32, np.float64]):
            case = {"rank": rank, "longest": longest, "dtype": dtype, "share": 0.4, "seed": 1}
            test = example(**case, machine=machine, **common)(test)
        return test

    return decorate


@settings(max_examples=60)
@always(m=41, n=33)
@given(m=SIZES, n=SIZES, **CASES)
def test_residuals(**case):
    checks.check_residuals(**case)


@settings(max_examples=40)
@always(m=41, n=33)
@given(m=SIZES, n=SIZES, **CASES)
def test_values_at_entries(**case):
    checks.check_values(**case)


@settings(max_examples=40)
@always(m=41, n=33)
@given(m=SIZES, n=SIZES, **CASES)
def test_plain_line_sums(**case):
    checks.check_plain_sums(**case)


@settings(max_examples=60)
@always(nodes=41)
@given(nodes=SIZES, **CASES)
def test_learned_edges(**case):
    checks.check_edges(**case)


@settings(max_examples=40)
@always(nodes=41)
@given(nodes=SIZES, **CASES)
def test_given_graph(**case):
    checks.check_laplacian(**case)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("most_blocks", [3, 2048])
def test_the_same_bits_in_every_order_and_launch(dtype, most_blocks):
    shape = {"rank": 37, "share": 0.4, "longest": 7, "seed": 3, "dtype": dtype}

    def results(machine, times):
        residuals = checks.check_residuals(machine, times, m=61, n=43, **shape)
        edges = checks.check_edges(machine, times, nodes=53, **shape)
        return (*residuals, *edges, *checks.check_laplacian(machine, times, nodes=53, **shape))

    wanted = results(Machine(most_blocks=most_blocks), 1)
    for order in ORDERS[1:]:
        found = results(Machine(order=order, most_blocks=most_blocks), 2)
        for got, want in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(got, want)


def test_a_long_line_is_the_work_of_many_warps():
    # One popular row of 2999 entries: three pieces, whose sums are those of the whole line.
    case = {"m": 3, "n": 3000, "rank": 3, "share": 0.2, "longest": 1024, "seed": 0}
    of = checks.Problem(dtype=np.float64, **case)
    assert of.lines.pieces.count == 5
    checks.check_residuals(Machine(order=1), dtype=np.float64, **case)


@pytest.mark.parametrize("longest", [1, 2, 3, 1024])
def test_pieces_cover_every_entry_once(longest):
    indptr = np.array([0, 0, 1, 8, 8, 10, 10, 17])
    pieces = cut(indptr, longest)
    lines = np.arange(7) if pieces.lines is None else pieces.lines
    assert (np.diff(pieces.starts) <= longest).all()
    for line in range(7):
        own = np.flatnonzero(lines == line)
        assert (pieces.starts[own[0]], pieces.starts[own[-1] + 1]) == (indptr[line], indptr[line + 1])
        if pieces.slots is not None:
            split = np.flatnonzero(pieces.split_lines == line)
            slots = [np.arange(pieces.split_firsts[s], pieces.split_firsts[s + 1]) for s in split]
            np.testing.assert_array_equal(pieces.slots[own], slots[0] if slots else [-1])


def test_nodes_without_edges_are_not_pulled():
    pattern = Pattern(np.array([0, 0, 2, 2]), np.array([0, 1], np.int32), 3)
    t, metric = fenced(np.arange(6.0).reshape(3, 2)), fenced([1.0, 0.5])
    launch = checks.edge_terms_launch(pattern, fenced([0.0, 0.0]), t, metric, Machine())
    run_and_check(launch, Machine())
    weights, slopes, pull = launch.args[5:8]
    np.testing.assert_array_equal(weights, [0.5, 0.5])
    np.testing.assert_allclose(slopes, [0.75, -0.75])
    np.testing.assert_allclose(pull, [[0, 0], [1, 1], [0, 0]])
    np.testing.assert_allclose(launch.args[10], [1.5])


@pytest.mark.parametrize("shift", [-5e3, 300])
def test_the_softmax_does_not_overflow(shift):
    of = checks.Graph(np.float32, 40, 5, 0.4, 1024, 1)
    calm = checks.edge_terms_launch(of.pattern, of.logits, of.t, of.metric, Machine())
    wild = checks.edge_terms_launch(of.pattern, of.logits + np.float32(shift), of.t, of.metric, Machine())
    Machine().run(calm)
    Machine().run(wild)
    for place in (5, 6, 7, 10):
        assert_close(wild.args[place], calm.args[place], np.float32, tolerance=1e-3)


def test_what_is_not_finite_shows():
    of = checks.Problem(np.float32, 7, 9, 5, 0.6, 1024, 0)
    of.values[3] = np.nan
    parts = of.lines.parts(of.rank, of.dtype)
    launch = checks.row_residuals_launch(of.lines, of.values, of.u, of.v, of.offsets, 1.0, parts, Machine())
    run_and_check(launch, Machine())
    assert np.isnan(launch.args[17][0])
    assert np.isnan(launch.args[12]).any(axis=1).tolist() == np.isnan(launch.args[13]).tolist()
    graph = checks.Graph(np.float32, 20, 5, 0.4, 1024, 1)
    graph.logits[7] = np.nan
    launch = checks.edge_terms_launch(graph.pattern, graph.logits, graph.t, graph.metric, Machine())
    run_and_check(launch, Machine())
    node = graph.pattern.line_of_each()[7]
    assert np.flatnonzero(np.isnan(launch.args[7]).all(axis=1)).tolist() == [node]
    assert np.isnan(launch.args[10][0])


def test_float_sums_keep_their_small_terms():
    # One entry, or edge, of 1e8 and then many of 1, which a plain float sum of one warp would lose.
    count, machine = 3000, Machine(most_blocks=1)
    pattern = Pattern(np.array([0, count]), np.arange(count, dtype=np.int32), count)
    lines = checks.Lines.of(pattern, 5000)
    one, zeros = fenced([[0.0]], np.float32), fenced(np.zeros((count, 1)), np.float32)
    values = fenced(np.ones(count), np.float32)
    values[0] = 1e4
    offsets = tuple(fenced(np.zeros(size), np.float32) for size in (1, 1, count))
    launch = checks.row_residuals_launch(
        lines, values, one, zeros, offsets, 2.0, lines.parts(1, np.float32), machine
    )
    run_and_check(launch, machine)
    np.testing.assert_allclose(launch.args[17], 1e8 + count - 1, rtol=1.2e-7)
    t = fenced(np.zeros((count, 1)), np.float32)
    t[1:, 0] = 1
    t[1, 0] = 1e4
    star = Pattern(np.r_[0, np.full(count, count)], np.arange(count, dtype=np.int32), count)
    lines = checks.Lines.of(star, 5000)
    weights, metric = fenced(np.full(count, 2.0), np.float32), fenced([1.0], np.float32)
    pull, parts = scratch((count, 1), np.float32), lines.parts(1, np.float32)
    launch = checks.gap_sums_launch(lines, weights, t, pull, parts, machine, metric=metric)
    run_and_check(launch, machine)
    np.testing.assert_allclose(launch.args[13], 1e8 + count - 2, rtol=1.2e-7)
    # Each node has one edge, to the next; the distances are 1e8 and then 1.
    ring = Pattern(np.arange(count + 1), np.roll(np.arange(count, dtype=np.int32), -1), count)
    t[:, 0] = np.arange(count) % 2
    t[0, 0] = 1e4 + 1
    launch = checks.edge_terms_launch(ring, fenced(np.zeros(count), np.float32), t, metric, machine)
    run_and_check(launch, machine)
    exact = 0.5 * np.sum(np.square(np.roll(t[:, 0], -1).astype(np.float64) - t[:, 0]))
    np.testing.assert_allclose(launch.args[10], exact, rtol=1.2e-7)


# --- under the sanitizers ---

SANITIZED = [
    (1, 1, 1, 1024, 1, 2048),
    (7, 9, 33, 3, 1, 2048),
    (41, 33, 5, 4, 2, 2048),
    (33, 41, 130, 6, 7, 1),
]


@pytest.mark.parametrize("mode", ["asan", "tsan"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("m", "n", "rank", "longest", "order", "most_blocks"), SANITIZED)
def test_no_stray_access_and_no_race(mode, dtype, m, n, rank, longest, order, most_blocks):
    machine = Machine(mode=mode, order=order, most_blocks=most_blocks)
    case = {"dtype": dtype, "rank": rank, "share": 0.3, "longest": longest, "seed": 1}
    checks.check_residuals(machine, m=m, n=n, **case)
    checks.check_values(machine, m=m, n=n, **case)
    checks.check_plain_sums(machine, m=m, n=n, **case)
    checks.check_edges(machine, nodes=m, **case)
    checks.check_laplacian(machine, nodes=n, **case)


# --- more than 2^31 of something ---

FAR = 2**31 + 16
"""Entries, pieces or pairs, the last of which cannot be counted in 32 bits."""
LINE, OTHER, RANK = 1_200_000_000, 1_100_000_000, 3
"""Lines that are counted in 32 bits, but not the entries of factors in front of them."""


class Far:
    """A piece far down a pattern, with two entries, the last: block 2^28 + 1 of a grid works on it."""

    blocks, block = FAR // 8, FAR // 8 - 1

    def __init__(self, slot=None):
        rng = np.random.default_rng(0)
        self.starts, self.lines, self.indices = whole(FAR + 1), whole(FAR, np.int32), whole(FAR, np.int32)
        self.starts[-9:] = FAR - 2  # the pieces before the last are empty
        self.starts[-1], self.lines[-1], self.indices[-2:] = FAR, LINE, (5, OTHER)
        self.slots = NULL
        if slot is not None:
            self.slots = whole(FAR, np.int32)
            self.slots[-8:] = slot
        self.weights, self.u, self.v = promised(FAR), promised(LINE + 1, RANK), promised(OTHER + 1, RANK)
        self.weights[-2:], self.u[LINE] = rng.standard_normal(2), rng.standard_normal(RANK)
        self.v[5], self.v[OTHER] = rng.standard_normal((2, RANK))
        self.sums = promised(self.blocks, 2), np.zeros(1, np.uint32), promised(1)
        self.rank = np.int32(RANK)

    @property
    def form(self):
        return self.starts, self.lines, self.slots, self.indices

    def run(self, module, name, *args):
        run_one_block(module, f"{name}<float>", self.blocks, self.block, 0, args)


def whole(size, dtype=np.int64):
    """Return so many whole numbers, zero and promised only."""
    return promised(size * np.dtype(dtype).itemsize // 4).view(dtype)


def test_residuals_of_many_entries():
    far = Far()
    rows, columns, mean = promised(LINE + 1), promised(OTHER + 1), np.array([0.5], np.float32)
    rows[LINE], columns[5], columns[OTHER] = 1, 2, 3
    slopes, gradient, totals = promised(FAR), promised(LINE + 1, RANK), promised(LINE + 1)
    sides = (far.weights, far.u, far.v, mean, rows, columns, np.float32(0.5))
    out = (slopes, gradient, totals, NULL, *far.sums, np.int64(FAR), far.rank)
    far.run("sparse_entries", "row_residuals", *far.form, *sides, *out)
    error = far.v[[5, OTHER]] @ far.u[LINE] + 1.5 + np.array([2, 3]) - far.weights[-2:]
    np.testing.assert_allclose(slopes[-2:], 0.5 * error, rtol=1e-5)
    np.testing.assert_allclose(gradient[LINE], 0.5 * error @ far.v[[5, OTHER]], rtol=1e-5)
    np.testing.assert_allclose(totals[LINE], 0.5 * error.sum(), rtol=1e-5)
    np.testing.assert_allclose(far.sums[0][far.block].sum(), np.sum(error**2), rtol=1e-5)
    assert far.sums[1][0] == 1


def test_values_of_many_pairs():
    far, rows, columns, out = Far(), whole(FAR, np.int32), whole(FAR, np.int32), promised(FAR)
    rows[-1], columns[-1] = LINE, OTHER
    b, c = promised(LINE + 1), promised(OTHER + 1)
    b[LINE], c[OTHER] = 1, 2
    args = (rows, columns, far.u, far.v, np.ones(1, np.float32), b, c, out, np.int64(FAR), far.rank)
    far.run("sparse_entries", "entry_values", *args)
    np.testing.assert_allclose(out[-1], far.u[LINE] @ far.v[OTHER] + 4, rtol=1e-5)


@pytest.mark.parametrize("slot", [None, 1_000_000_000])
def test_sums_over_many_entries(slot):
    far = Far(slot)
    places, parts = whole(FAR), NULL if slot is None else promised(slot + 1, RANK + 1)
    places[-2:] = FAR - 1, FAR - 2
    out, totals = promised(LINE + 1, RANK), promised(LINE + 1)
    sizes = (np.int64(FAR), np.int32(0), far.rank)
    far.run("sparse_lines", "line_sums", *far.form, places, far.weights, far.v, out, totals, parts, *sizes)
    weights = far.weights[[FAR - 1, FAR - 2]]
    row, total = (out[LINE], totals[LINE]) if slot is None else (parts[slot, :RANK], parts[slot, RANK])
    np.testing.assert_allclose(row, weights @ far.v[[5, OTHER]], rtol=1e-5)
    np.testing.assert_allclose(total, weights.sum(), rtol=1e-5)


def test_gaps_over_many_edges():
    far = Far()
    nodes, pull = promised(LINE + 1, RANK), promised(LINE + 1, RANK)
    nodes[[5, OTHER]], nodes[LINE], pull[LINE] = far.v[[5, OTHER]], far.u[LINE], 7
    given = (NULL, far.weights, nodes, NULL, np.float32(2), pull, NULL, NULL, NULL, NULL)
    args = (*far.form, *given, np.int64(FAR), np.int32(0), far.rank)
    run_one_block("sparse_lines", "gap_sums<float, true>", far.blocks, far.block, 0, args)
    gaps = nodes[LINE] - nodes[[5, OTHER]]
    np.testing.assert_allclose(pull[LINE], 7 + 2 * far.weights[-2:] @ gaps, rtol=1e-5)


def test_edges_of_many_nodes():
    far, nodes = Far(), LINE + 1
    indptr, weights, slopes, pull = whole(nodes + 1), promised(FAR), promised(FAR), promised(nodes, RANK)
    indptr[-9:-1], indptr[-1] = FAR - 2, FAR
    t, metric = promised(nodes, RANK), np.array([1, 2, 3], np.float32)
    t[[5, OTHER]], t[LINE] = far.v[[5, OTHER]], far.u[LINE]
    blocks = -(-nodes // 8)
    sums = promised(blocks, 2), np.zeros(1, np.uint32), promised(1)
    args = (
        indptr,
        far.indices,
        far.weights,
        t,
        metric,
        weights,
        slopes,
        pull,
        *sums,
        np.int32(nodes),
        far.rank,
    )
    run_one_block("sparse_edges", "edge_terms<float>", blocks, blocks - 1, 0, args)
    p = np.exp(far.weights[-2:].astype(np.float64))
    p /= p.sum()
    gaps = t[LINE] - t[[5, OTHER]]
    distances = gaps**2 @ metric
    np.testing.assert_allclose(weights[-2:], p, rtol=1e-5)
    np.testing.assert_allclose(slopes[-2:], 0.5 * p * (distances - p @ distances), rtol=1e-4)
    np.testing.assert_allclose(pull[LINE], p @ gaps, rtol=1e-4, atol=1e-6)
    assert sums[1][0] == 1


def test_joining_many_pieces():
    splits, slots = 1_000_000_000, 1_000_000_002
    firsts, lines = whole(splits + 1, np.int32), whole(splits, np.int32)
    firsts[-2:], lines[-64:] = (slots - 2, slots), LINE
    parts, out, totals = promised(slots, RANK + 1), promised(LINE + 1, RANK), promised(LINE + 1)
    parts[-2:] = np.arange(8).reshape(2, 4)
    firsts[-65:-1] = slots - 2  # the lines before the last have no pieces
    lines[-64:-1] = 0
    blocks = splits * (RANK + 1) // 256
    args = (parts, firsts, lines, out, totals, np.int32(splits), np.int32(0), np.int32(RANK))
    run_one_block("sparse_lines", "join_pieces<float, false>", blocks, blocks - 1, 0, args)
    np.testing.assert_array_equal(out[LINE], [4, 6, 8])
    assert totals[LINE] == 10
