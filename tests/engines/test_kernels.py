"""Values of every CUDA kernel of the dense form, its unmodified text run on the CPU, against the reference.

The executor (``tests/simt``) gives every CUDA thread its own fiber, with real barriers, shuffles and shared
memory. These tests cover shapes, grids, thread orders and template instances, equal bits in every order, and
tickets that are ready for the next launch. Races and stray accesses: ``test_kernels_sanitized.py``. Indices
beyond 2^31: ``test_kernel_indices.py``.
"""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from airnp.engines import reference
from airnp.engines.launching import THREADS
from tests.engines import kernel_launches as launches
from tests.engines.kernel_checks import (
    BETA1,
    BETA2,
    EPSILON,
    MACHINES,
    ORDERS,
    RATE,
    Entries,
    Graph,
    adam_numbers,
    assert_close,
    check_dense_laplacian,
    check_graph,
    check_mirror,
    check_record,
    check_residual,
    check_sparse_laplacian,
    check_split,
    check_tensors,
    check_variation,
    state,
)
from tests.engines.kernel_launches import KINDS, Machine, Numbers, fenced

SIZES = st.sampled_from([1, 2, 5, 31, 32, 33, 61, 64, 65, 97])
BATCHES = st.integers(1, 3)
DTYPES = st.sampled_from([np.float32, np.float64])
SEEDS = st.integers(0, 2**16)


def always(choices, **common):
    """Also try every combination of these choices, which Hypothesis might not draw."""

    def decorate(test):
        for values in product(*choices.values()):
            test = example(**dict(zip(choices, values, strict=True)), **common)(test)
        return test

    return decorate


TERMS = ("energy", "adjacency", "pull", "gradient")
FEW_BLOCKS = {"dtype": np.float64, "machine": Machine(order=2, most_blocks=2)}
MATRICES = {**FEW_BLOCKS, "shape": (3, 33, 61), "seed": 1}


@settings(max_examples=150)
@always({"kind": range(3), "adam": [False, True]}, nodes=97, batch=3, spread=1.0, seed=1, **FEW_BLOCKS)
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
    # More than two column tiles of graph_statistics, strips that no number of warps divides, and more pairs
    # of strips than the last block has threads to add them.
    graph = Graph(dtype, 1, 771, 4)
    found = graph.launched(kind, False, Machine())
    terms, _ = graph.expected(kind, False)
    for name in TERMS:
        assert_close(found[name], getattr(terms, name), dtype)


# "product" is not invariant: exp(V + Vᵀ − max V) itself leaves float's range for larger shifts.
@pytest.mark.parametrize(("kind", "shift"), [(0, -5e3), (0, 300), (1, -5e3), (1, 300), (2, -30), (2, 30)])
def test_graph_does_not_overflow(kind, shift):
    graph = Graph(np.float32, 2, 40, 1, 4.0)
    graph.v += np.float32(shift)
    found = graph.launched(kind, False, Machine(order=1))
    terms, _ = graph.expected(kind, False)
    for name in TERMS:
        assert_close(found[name], getattr(terms, name), np.float32, tolerance=3e-4)


def test_pairs_have_their_own_maximum():
    # V_ij = V_ji = 100 gives an exponent of 100 until the 150 of a later tile is seen: e^100 is no float.
    graph = Graph(np.float32, 1, 70, 1, 1.0)
    graph.v[0, 3, 5] = graph.v[0, 5, 3] = 100
    graph.v[0, 69, 2] = 150
    for order in ORDERS:
        found = graph.launched(2, False, Machine(order=order, most_blocks=1))
        terms, _ = graph.expected(2, False)
        assert_close(found["energy"], terms.energy, np.float32, tolerance=1e-4)


@pytest.mark.parametrize("kind", range(3), ids=KINDS)
def test_graph_propagates_nan(kind):
    graph = Graph(np.float32, 2, 33, 1)
    graph.v[1, 32, 4] = np.nan
    found = graph.launched(kind, False, Machine())
    terms, _ = graph.expected(kind, False)
    for name in TERMS:
        np.testing.assert_array_equal(np.isnan(found[name]), np.isnan(getattr(terms, name)))


@pytest.mark.parametrize("kind", range(3), ids=KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("nodes", "most_blocks"), [(65, 2048), (97, 3)])
def test_graph_bits_do_not_depend_on_order_or_launch(kind, dtype, nodes, most_blocks):
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


@always({"delta": [None, 0.3], "scales": product([False, True], repeat=2)}, **MATRICES)
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


@always({"quadratic": [False, True]}, **MATRICES)
@given(dtype=DTYPES, shape=SHAPES, quadratic=st.booleans(), seed=SEEDS, machine=MACHINES)
def test_variation(**case):
    check_variation(**case)


@always({"columns": [False, True], "shared": [False, True]}, **MATRICES)
@given(dtype=DTYPES, shape=SHAPES, columns=st.booleans(), shared=st.booleans(), seed=SEEDS, machine=MACHINES)
def test_dense_laplacian(**case):
    check_dense_laplacian(**case)


@always({"columns": [False, True], "index": [np.int32, np.int64]}, density=0.3, **MATRICES)
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
def test_bits_of_sums_do_not_depend_on_order_or_launch(dtype):
    def results(machine, times):
        of = Entries(dtype, (2, 41, 37), 3)
        scales = {"row_scale": of.row_scale, "column_scale": of.column_scale}
        residual = launches.residual_launch(of.x, of.y, of.weights, 1.0, machine, delta=0.5, **scales)
        variation = launches.variation_launch(fenced(of.g), of.x, False, 0.7, 0.05, machine)
        neighbours = (of.neighbours, of.row_scale, False, 0.8)
        laplacian = launches.laplacian_launch(fenced(of.g), of.x, *neighbours, machine)
        for launch in (residual, variation, laplacian):
            launch.run(machine, times)
        return residual["gradient"], *(launch["value"] for launch in (residual, variation, laplacian))

    wanted = results(Machine(), 1)
    for order in ORDERS[1:]:
        for got, want in zip(results(Machine(order=order), 2), wanted, strict=True):
            np.testing.assert_array_equal(got, want)


def test_more_partial_sums_than_threads():
    of = Entries(np.float64, (1, 270, 250), 0)
    launch = launches.residual_launch(of.x, of.y, of.weights, 1.0, Machine())
    assert launch.grid[0] > THREADS
    launch.run(Machine())
    value, _ = reference.residual(of.x, of.y, of.weights, scale=1.0)
    assert_close(launch["value"], value, np.float64)


def sum_launch(name, machine):
    """Return a launch whose value is 1e8 + the number of its other entries.

    One thread meets 1e8 first and then some hundred times 1, which a plain float sum would lose.
    """
    if name == "variation":  # differences of 1e4, 1, -1, 1, ...
        x = np.arange(102401) % 2
        x[0] = 1 - 10**4
        x = fenced(x.reshape(1, 1, -1), np.float32)
        return launches.variation_launch(fenced(x), x, True, 1.0, 0.0, machine)
    x = fenced(np.ones((1, 320, 320)), np.float32)
    x[0, 0, 0] = 1e4
    zero, one, degree = fenced(0 * x), fenced(np.ones_like(x)), fenced(np.ones((1, 320)), np.float32)
    if name == "residual":
        return launches.residual_launch(x, zero, one, 2.0, machine)
    if name == "dense":
        return launches.laplacian_launch(zero, x, fenced(0 * x), degree, False, 1.0, machine)
    no_edges = fenced([], np.float32), fenced([], np.int32), fenced(np.zeros(321), np.int32)
    return launches.sparse_laplacian_launch(zero, x, no_edges, degree, False, 1.0, machine)


@pytest.mark.parametrize("name", ["residual", "variation", "dense", "sparse"])
def test_float_sums_keep_their_small_terms(name):
    machine = Machine(most_blocks=1)
    launch = sum_launch(name, machine)
    launch.run(machine)
    np.testing.assert_allclose(launch["value"], 1e8 + 320 * 320 - 1, rtol=1.2e-7)


@pytest.mark.parametrize("kind", range(3), ids=KINDS)
def test_graph_sums_keep_their_small_terms(kind):
    # One entry of P is e^16.7 times the others, each of which alone would be lost beside it.
    graph = Graph(np.float32, 1, 523, 0)
    graph.v[...], graph.gram[...] = -16.7, 0.5 * np.eye(523)
    graph.v[0, 0, 1] = 0
    found, (terms, _) = graph.launched(kind, False, Machine(most_blocks=1)), graph.expected(kind, False)
    share = np.exp(graph.v[0].astype(np.float64))
    if kind == 0:  # the row with that entry
        known, mass = found["statistics"][0, :, 0], share[0].sum()
        energy = share[0, 1:].sum() / mass
    else:
        known, mass, energy = found["statistics"][0], share.sum(), terms.energy[0]
    np.testing.assert_allclose(known, [0, 1 / mass, energy], rtol=3e-7)


def test_graph_energies_of_rows_keep_their_small_terms():
    # Row 0 sees a node at a squared distance of 1e8, the others see theirs at 1.
    graph = Graph(np.float32, 1, 523, 0)
    graph.v[...], graph.gram[...] = 0, 0.5 * np.eye(523)
    graph.v[0, :, 0] = graph.v[0, 0] = -200
    graph.v[0, 0, 1], graph.gram[0, 0, 0] = 0, 1e8
    found, (terms, _) = graph.launched(0, False, Machine(most_blocks=1)), graph.expected(0, False)
    np.testing.assert_allclose(found["energy"], terms.energy, rtol=1.2e-7)


def test_small_differences_do_not_cancel_in_the_variation():
    of = Entries(np.float32, (1, 20, 30), 0)
    of.x *= np.float32(1e-4)
    launch = launches.variation_launch(of.g, of.x, False, 1.0, 0.05, Machine())
    launch.run(Machine())
    x = of.x.astype(np.float64)
    steps = np.concatenate([np.diff(x, axis=axis).ravel() for axis in (1, 2)])
    np.testing.assert_allclose(launch["value"], np.sum(steps**2) / (2 * 0.05), rtol=1e-5)


def test_infinite_sums_stay_infinite():
    x = fenced(np.full((1, 20, 20), 1e30), np.float32)
    zero, one = fenced(np.zeros(x.shape, np.float32)), fenced(np.ones(x.shape, np.float32))
    launch = launches.residual_launch(x, zero, one, 1.0, Machine())
    launch.run(Machine())
    assert launch["value"][0] == np.inf


def test_residual_of_a_stack_deeper_than_the_grid():
    of = Entries(np.float64, (700, 1, 2), 0)
    machine = Machine(order=1)
    launch = launches.residual_launch(of.x, of.y, of.weights, 1.0, machine)
    replace(launch, grid=(1, 1, 5)).run(machine)
    value, _ = reference.residual(of.x, of.y, of.weights, scale=1.0)
    assert_close(launch["value"], value, np.float64)


@always({"adam": [False, True]}, sizes=[997, 33, 0, 1500], **FEW_BLOCKS)
@given(
    dtype=DTYPES,
    sizes=st.lists(st.sampled_from([0, 1, 31, 33, 257, 997, 1500]), min_size=1, max_size=5),
    adam=st.booleans(),
    machine=MACHINES,
)
def test_tensors_step_in_one_launch(**case):
    check_tensors(**case)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("nodes", [1, 31, 32, 33, 65, 130])
def test_graph_mirrors_a_triangle(dtype, nodes):
    for order in ORDERS:
        for most_blocks in (1, 3, 2048):
            check_mirror(dtype, nodes, Machine("fast", order, most_blocks))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("mode", "most_blocks"), [("fast", 1), ("fast", 2048), ("fma", 2048)])
@pytest.mark.parametrize("size", [1, 255, 256, 3000])
def test_halves_of_split_operands(dtype, mode, most_blocks, size):
    check_split(dtype, size, Machine(mode, 1, most_blocks))


def one_step(parts, step):
    """Make Adam's step of one tensor in place."""
    numbers = Numbers.of(adam_numbers(step), parts[0].dtype)
    places = ([numbers.offset], numbers.table, numbers.cursor)
    launches.tensors_launch("adam", [parts], *places, Machine()).run(Machine())


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
def test_first_step_does_not_shrink_for_tiny_gradients(dtype):
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


@always({"capacity": [1, 3]}, count=3, batch=300, **FEW_BLOCKS)
@given(
    dtype=DTYPES,
    count=st.integers(1, 6),
    batch=st.sampled_from([1, 3, 33, 300]),
    capacity=st.integers(1, 4),
    machine=MACHINES,
)
def test_record(**case):
    check_record(**case)


def test_record_works_in_one_block_only():
    ring, cursor = fenced(np.full((3, 2, 4), np.nan)), fenced([0], np.int32)
    sources = [fenced(np.arange(4.0)), fenced(np.arange(4.0, 8.0))]
    launches.record_launch(sources, ring, cursor, grid=(2, 2, 2)).run(Machine())
    assert cursor[0] == 1
    np.testing.assert_array_equal(ring[0], np.stack(sources))
    assert np.isnan(ring[1:]).all()
