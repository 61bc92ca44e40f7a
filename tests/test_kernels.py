"""Every CUDA kernel, its unmodified text executed on the CPU, against ``engines/reference.py``.

The executor (``tests/simt``) gives every CUDA thread its own fiber, with real barriers, shuffles and shared
memory. Here: right values for every shape, grid, thread order and template instance; the same bits whatever
the order; tickets that are ready for the next launch. Races and stray accesses are searched for in
``test_kernels_sanitized.py``, indices beyond 2^31 tried in ``test_kernel_indices.py``.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airnp.engines import reference
from tests import kernel_launches as launches
from tests.kernel_checks import (
    BETA1,
    BETA2,
    EPSILON,
    RATE,
    Entries,
    Graph,
    adam_numbers,
    assert_close,
    check_dense_laplacian,
    check_graph,
    check_record,
    check_residual,
    check_sparse_laplacian,
    check_tensors,
    check_variation,
    run_and_check,
    state,
)
from tests.kernel_launches import KINDS, Machine, Numbers, fenced

SIZES = st.sampled_from([1, 2, 5, 31, 32, 33, 61, 64, 65, 97])
BATCHES = st.integers(1, 3)
DTYPES = st.sampled_from([np.float32, np.float64])
SEEDS = st.integers(0, 2**16)
MACHINES = st.builds(
    Machine,
    mode=st.sampled_from(["fast", "fma"]),
    order=st.sampled_from([0, 1, 2, 7]),
    most_blocks=st.sampled_from([1, 3, 2048]),
)
ORDERS = [0, 1, 2, 3, 7]


@settings(max_examples=150)
@given(
    kind=st.integers(0, 2),
    adam=st.booleans(),
    dtype=DTYPES,
    nodes=SIZES,
    batch=BATCHES,
    spread=st.sampled_from([0.1, 1.0, 5.0]),
    seed=SEEDS,
    machine=MACHINES,
)
def test_graph(**case):
    check_graph(**case)


@pytest.mark.parametrize("kind", range(3), ids=KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_graph_of_a_long_row(kind, dtype):
    # More than two column tiles of graph_statistics, and strips that no number of warps divides.
    graph = Graph(dtype, 1, 523, 4)
    found = graph.launched(kind, False, Machine())
    terms, _ = graph.expected(kind, False)
    for name in ("energy", "adjacency", "pull", "gradient"):
        assert_close(found[name], getattr(terms, name), dtype)


# "product" is not invariant: exp(V + Vᵀ − max V) itself leaves float's range for larger shifts.
@pytest.mark.parametrize(("kind", "shift"), [(0, -5e3), (0, 300), (1, -5e3), (1, 300), (2, -30), (2, 30)])
def test_graph_does_not_overflow(kind, shift):
    graph = Graph(np.float32, 2, 40, 1, 4.0)
    graph.v += np.float32(shift)
    found = graph.launched(kind, False, Machine(order=1))
    terms, _ = graph.expected(kind, False)
    for name in ("energy", "adjacency", "pull", "gradient"):
        assert_close(found[name], getattr(terms, name), np.float32, tolerance=3e-4)


def test_pairs_have_a_top_of_their_own():
    # V_ij = V_ji = 100 gives an exponent of 100 until the 150 of a later tile is seen: e^100 is no float.
    graph = Graph(np.float32, 1, 70, 1, 1.0)
    graph.v[0, 3, 5] = graph.v[0, 5, 3] = 100
    graph.v[0, 69, 2] = 150
    for order in ORDERS:
        found = graph.launched(2, False, Machine(order=order, most_blocks=1))
        terms, _ = graph.expected(2, False)
        assert_close(found["energy"], terms.energy, np.float32, tolerance=1e-4)


@pytest.mark.parametrize("kind", range(3), ids=KINDS)
def test_graph_shows_what_is_not_finite(kind):
    graph = Graph(np.float32, 2, 33, 1)
    graph.v[1, 32, 4] = np.nan
    found = graph.launched(kind, False, Machine())
    terms, _ = graph.expected(kind, False)
    for name in ("energy", "adjacency", "pull", "gradient"):
        np.testing.assert_array_equal(np.isnan(found[name]), np.isnan(getattr(terms, name)))


@pytest.mark.parametrize("kind", range(3), ids=KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("nodes", "most_blocks"), [(65, 2048), (97, 3)])
def test_graph_has_the_same_bits_in_every_order_and_launch(kind, dtype, nodes, most_blocks):
    graph = Graph(dtype, 2, nodes, 8)
    for adam in (False, True):
        wanted = graph.launched(kind, adam, Machine(most_blocks=most_blocks))
        for order in ORDERS[1:]:
            found = graph.launched(kind, adam, Machine(order=order, most_blocks=most_blocks), times=2)
            for name, array in found.items():
                np.testing.assert_array_equal(array, wanted[name], err_msg=name)


SHAPES = st.one_of(
    st.tuples(BATCHES, SIZES, SIZES),
    st.tuples(BATCHES, st.just(1), SIZES),
    st.tuples(BATCHES, SIZES, st.just(1)),
)


@given(
    dtype=DTYPES,
    shape=SHAPES,
    delta=st.sampled_from([None, 0.3, 5.0]),
    scales=st.tuples(st.booleans(), st.booleans()),
    seed=SEEDS,
    machine=MACHINES,
)
def test_residual(**case):
    check_residual(**case)


@given(dtype=DTYPES, shape=SHAPES, quadratic=st.booleans(), seed=SEEDS, machine=MACHINES)
def test_variation(**case):
    check_variation(**case)


@given(dtype=DTYPES, shape=SHAPES, columns=st.booleans(), shared=st.booleans(), seed=SEEDS, machine=MACHINES)
def test_dense_laplacian(**case):
    check_dense_laplacian(**case)


@given(
    dtype=DTYPES,
    shape=SHAPES,
    columns=st.booleans(),
    index=st.sampled_from([np.int32, np.int64]),
    density=st.sampled_from([0.0, 0.1, 0.6]),
    seed=SEEDS,
    machine=MACHINES,
)
def test_sparse_laplacian(**case):
    check_sparse_laplacian(**case)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_have_the_same_bits_in_every_order_and_launch(dtype):
    def results(machine, times):
        of = Entries(dtype, (2, 41, 37), 3)
        residual = launches.residual_launch(
            of.x, of.y, of.weights, 1.0, 0.5, of.row_scale, of.column_scale, machine
        )
        run_and_check(residual, machine, times)
        variation = launches.variation_launch(fenced(of.g), of.x, False, 0.7, 0.05, machine)
        run_and_check(variation, machine, times)
        laplacian = launches.laplacian_launch(
            fenced(of.g), of.x, of.neighbours, of.row_scale, False, 0.8, machine
        )
        run_and_check(laplacian, machine, times)
        return residual.args[10], residual.args[3], variation.args[6], laplacian.args[9]

    wanted = results(Machine(), 1)
    for order in ORDERS[1:]:
        for got, want in zip(results(Machine(order=order), 2), wanted, strict=True):
            np.testing.assert_array_equal(got, want)


def test_float_sums_keep_their_small_terms():
    # One thread meets a square of 1e8 first and then 400 times 1, which a plain float sum would lose.
    x = fenced(np.ones((1, 320, 320)), np.float32)
    x[0, 0, 0] = 1e4
    zero, one = fenced(np.zeros(x.shape, np.float32)), fenced(np.ones(x.shape, np.float32))
    machine = Machine(most_blocks=1)
    launch = launches.residual_launch(x, zero, one, 2.0, None, None, None, machine)
    run_and_check(launch, machine)
    np.testing.assert_allclose(launch.args[10], 1e8 + 320 * 320 - 1, rtol=1.2e-7)


def test_an_infinite_sum_stays_infinite():
    x = fenced(np.full((1, 20, 20), 1e30), np.float32)
    zero, one = fenced(np.zeros(x.shape, np.float32)), fenced(np.ones(x.shape, np.float32))
    launch = launches.residual_launch(x, zero, one, 1.0, None, None, None, Machine())
    run_and_check(launch, Machine())
    assert launch.args[10][0] == np.inf


def test_a_stack_deeper_than_the_grid():
    of = Entries(np.float64, (700, 1, 2), 0)
    machine = Machine(order=1)
    launch = launches.residual_launch(of.x, of.y, of.weights, 1.0, None, None, None, machine)
    small = replace(launch, grid=(1, 1, 5))
    run_and_check(small, machine)
    value, _ = reference.residual(of.x, of.y, of.weights, scale=1.0)
    assert_close(launch.args[10], value, np.float64)


@given(
    dtype=DTYPES,
    sizes=st.lists(st.sampled_from([0, 1, 31, 33, 257, 997, 1500]), min_size=1, max_size=5),
    adam=st.booleans(),
    machine=MACHINES,
)
def test_all_tensors_make_their_step_in_one_launch(**case):
    check_tensors(**case)


def one_step(parts, step, machine=None):
    """Make Adam's step of one tensor in place."""
    machine = Machine() if machine is None else machine
    numbers = Numbers.of(adam_numbers(step), parts[0].dtype)
    launch = launches.tensors_launch(
        "adam", [parts], [numbers.offset], numbers.table, numbers.cursor, machine
    )
    run_and_check(launch, machine)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_adam_equals_numpy_bit_for_bit(dtype):
    # Without contraction the CPU rounds every operation, as NumPy does.
    p, g, first, second = parts = state(997, dtype)
    gain1, keep2, gain2, rate, root, epsilon = (dtype(number) for number in adam_numbers(3))
    mean = first + gain1 * (g - first)
    square = keep2 * second + gain2 * (g * g)
    wanted = p - rate * mean / (np.sqrt(square) * root + epsilon), g.copy(), mean, square
    one_step(parts, 3)
    for got, want in zip(parts, wanted, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_first_step_does_not_shrink_for_tiny_gradients(dtype):
    # At |g| = 5e-7 with ε outside the bias correction the step is rate / (1 + ε/|g|) = 0.98 rate;
    # inside it would be 0.61 rate.
    p, first, second = (fenced(np.zeros(10, dtype)) for _ in range(3))
    one_step((p, fenced(np.full(10, 5e-7, dtype)), first, second), 1)
    np.testing.assert_allclose(p, -RATE / (1 + EPSILON / 5e-7), rtol=1e-5)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 2e-6), (np.float64, 1e-13)])
def test_adam_follows_torch(dtype, tolerance):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    size, steps = 61, 50
    p, first, second = state(size, dtype)[0], *(fenced(np.zeros(size, dtype)) for _ in range(2))
    parameter = torch.tensor(p.copy(), requires_grad=True)
    optimizer = torch.optim.Adam([parameter], lr=RATE, betas=(BETA1, BETA2), eps=EPSILON)
    for step in range(1, steps + 1):
        g = state(size, dtype, scale=10.0 ** -(step % 8), seed=step)[1]
        parameter.grad = torch.tensor(g.copy())
        optimizer.step()
        one_step((p, g, first, second), step)
    np.testing.assert_allclose(p, parameter.detach().numpy(), rtol=tolerance, atol=tolerance)


@given(
    dtype=DTYPES,
    count=st.integers(1, 6),
    batch=st.sampled_from([1, 3, 33, 300]),
    capacity=st.integers(1, 4),
    machine=MACHINES,
)
def test_record(**case):
    check_record(**case)
