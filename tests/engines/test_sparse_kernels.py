"""Values of the CUDA kernels of the sparse form, run on the CPU, against the reference.

As ``test_kernels.py`` does for the dense form: shapes, grids, thread orders, and equal bits in every order.
"""

from itertools import product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from airnp.data.entries import Pattern
from airnp.engines.sparse_cuda import cut
from tests.engines import kernel_launches as launches
from tests.engines import sparse_kernel_checks as checks
from tests.engines.kernel_checks import MACHINES, ORDERS, assert_close
from tests.engines.kernel_launches import Lines, Machine, fenced, scratch

SIZES = st.sampled_from([1, 2, 7, 9, 33, 41])
CASES = {
    "dtype": st.sampled_from([np.float32, np.float64]),
    "rank": st.sampled_from([1, 5, 31, 32, 33, 64, 127, 128, 129, 161, 300]),
    "share": st.sampled_from([0.0, 0.1, 0.6, 1.0]),
    "longest": st.sampled_from([1, 3, 10, 1024]),
    "seed": st.integers(0, 2**16),
    "machine": MACHINES,
}


def always(**common):
    """Also try some ranks and lengths of pieces, which Hypothesis might not draw."""

    def decorate(test):
        machine = Machine(order=2, most_blocks=2)
        for rank, longest, dtype in product([5, 129], [3, 1024], [np.float32, np.float64]):
            case = {"rank": rank, "longest": longest, "dtype": dtype, "share": 0.4, "seed": 1}
            test = example(**case, machine=machine, **common)(test)
        return test

    return decorate


@pytest.mark.parametrize("check", [checks.check_residuals, checks.check_values, checks.check_plain_sums])
@settings(max_examples=60)
@always(m=41, n=33)
@given(m=SIZES, n=SIZES, **CASES)
def test_entries(check, **case):
    check(**case)


@pytest.mark.parametrize("check", [checks.check_edges, checks.check_laplacian])
@settings(max_examples=60)
@always(nodes=41)
@given(nodes=SIZES, **CASES)
def test_graphs(check, **case):
    check(**case)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("rank", "width"), [(1, 1), (5, 0), (7, 7), (31, 3), (33, 33), (64, 63), (70, 1)])
def test_gram_matrices_of_any_rank(dtype, rank, width):
    wanted = checks.check_gram(Machine(), dtype, rank, width, seed=1)
    for order in ORDERS[1:]:
        found = checks.check_gram(Machine(order=order), dtype, rank, width, seed=1)
        for name in ("factor", "pivots", "inverse"):
            np.testing.assert_array_equal(found[name], wanted[name])


def test_pivots_that_rounding_makes_negative_are_raised():
    v = np.random.default_rng(0).standard_normal((2, 40))
    launch = launches.gram_launch(fenced(v.T @ v), 0.0)
    launch.run(Machine())
    assert (launch["pivots"] >= 0).all()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_gram_matrix_that_is_not_finite_is_told(value):
    gram = np.eye(5) + 1
    gram[3, 3] = value
    launch = launches.gram_launch(fenced(gram), 1e-15)
    launch.run(Machine())
    assert not np.isfinite(launch["pivots"]).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("most_blocks", [3, 2048])
def test_bits_do_not_depend_on_order_or_launch(dtype, most_blocks):
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


def test_long_lines_are_split_between_warps():
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
    launch = launches.edge_terms_launch(pattern, fenced([0.0, 0.0]), t, metric, Machine())
    launch.run(Machine())
    np.testing.assert_array_equal(launch["weights"], [0.5, 0.5])
    np.testing.assert_allclose(launch["slopes"], [0.75, -0.75])
    np.testing.assert_allclose(launch["pull"], [[0, 0], [1, 1], [0, 0]])
    np.testing.assert_allclose(launch["value"].item(), 1.5)


@pytest.mark.parametrize("shift", [-5e3, 300])
def test_softmax_does_not_overflow(shift):
    of = checks.Graph(np.float32, 40, 5, 0.4, 1024, 1)
    calm = launches.edge_terms_launch(of.pattern, of.logits, of.t, of.metric, Machine())
    shifted = fenced(of.logits + np.float32(shift))
    wild = launches.edge_terms_launch(of.pattern, shifted, of.t, of.metric, Machine())
    calm.run(Machine())
    wild.run(Machine())
    for name in ("weights", "slopes", "pull", "value"):
        assert_close(wild[name], calm[name], np.float32, tolerance=1e-3)


def test_nan_propagates():
    of = checks.Problem(np.float32, 7, 9, 5, 0.6, 1024, 0)
    of.values[3] = np.nan
    parts = of.lines.parts(of.rank, of.dtype)
    launch = launches.row_residuals_launch(of.lines, of.values, of.u, of.v, of.offsets, 1.0, parts, Machine())
    launch.run(Machine())
    assert np.isnan(launch["value"].item())
    assert np.isnan(launch["gradient"]).any(axis=1).tolist() == np.isnan(launch["totals"]).tolist()
    graph = checks.Graph(np.float32, 20, 5, 0.4, 1024, 1)
    graph.logits[7] = np.nan
    launch = launches.edge_terms_launch(graph.pattern, graph.logits, graph.t, graph.metric, Machine())
    launch.run(Machine())
    node = graph.pattern.line_of_each()[7]
    assert np.flatnonzero(np.isnan(launch["pull"]).all(axis=1)).tolist() == [node]
    assert np.isnan(launch["value"].item())


def test_float_sums_keep_their_small_terms():
    # One entry, or edge, of 1e8 and then many of 1, which a plain float sum of one warp would lose.
    count, machine = 3000, Machine(most_blocks=1)
    pattern = Pattern(np.array([0, count]), np.arange(count, dtype=np.int32), count)
    lines = Lines.of(pattern, 5000)
    one, zeros = fenced([[0.0]], np.float32), fenced(np.zeros((count, 1)), np.float32)
    values = fenced(np.ones(count), np.float32)
    values[0] = 1e4
    offsets = tuple(fenced(np.zeros(size), np.float32) for size in (1, 1, count))
    launch = launches.row_residuals_launch(
        lines, values, one, zeros, offsets, 2.0, lines.parts(1, np.float32), machine
    )
    launch.run(machine)
    np.testing.assert_allclose(launch["value"], 1e8 + count - 1, rtol=1.2e-7)
    t = fenced(np.zeros((count, 1)), np.float32)
    t[1:, 0] = 1
    t[1, 0] = 1e4
    star = Pattern(np.r_[0, np.full(count, count)], np.arange(count, dtype=np.int32), count)
    lines = Lines.of(star, 5000)
    weights, metric = fenced(np.full(count, 2.0), np.float32), fenced([1.0], np.float32)
    pull, parts = scratch((count, 1), np.float32), lines.parts(1, np.float32)
    launch = launches.gap_sums_launch(lines, weights, t, pull, parts, machine, metric=metric)
    launch.run(machine)
    np.testing.assert_allclose(launch["value"], 1e8 + count - 2, rtol=1.2e-7)
    # Each node has one edge, to the next; the distances are 1e8 and then 1.
    ring = Pattern(np.arange(count + 1), np.roll(np.arange(count, dtype=np.int32), -1), count)
    t[:, 0] = np.arange(count) % 2
    t[0, 0] = 1e4 + 1
    launch = launches.edge_terms_launch(ring, fenced(np.zeros(count), np.float32), t, metric, machine)
    launch.run(machine)
    exact = 0.5 * np.sum(np.square(np.roll(t[:, 0], -1).astype(np.float64) - t[:, 0]))
    np.testing.assert_allclose(launch["value"], exact, rtol=1.2e-7)
