"""Which entries a thread works on: pairs of tiles, walks through a matrix, and matrices of 50 000 x 50 000.

Such a matrix has more than 2^31 entries. Here its memory is only promised by the system, and of a grid of
millions of blocks one block is executed, the one that works on the last entries. An index that was computed
in 32 bits lands in front of the array, where there is room for it, and the right entries stay as they were.
"""

import mmap

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airnp.engines import launching as kernel_sources
from airnp.engines import reference
from tests.kernel_launches import NULL, THREADS
from tests.simt import AddressTable, RawModule

NODES = 50_000
NO_RESERVE = 0x4000  # Linux: pages get memory when they are written to

PAIRS = """
extern "C" __global__ void strip_pairs(int* low, int* high, const int* numbers, int count, int strips) {
    for (int i = threadIdx.x; i < count; i += THREADS) {
        const StripPair pair(numbers[i], strips);
        low[i] = pair.low;
        high[i] = pair.high;
    }
}
"""

WALK = """
extern "C" __global__ void count_visits(int* visits, int* wrong, int rows, int columns) {
    for (Walk at(rows, columns); at.inside(); at.next()) {
        visits[at.index] += 1;
        wrong[at.index] = at.row * columns + at.column != at.index;
    }
}
"""

# With this in front of a text, a launch of one block executes block (BLOCK, 0, MATRIX) of a grid of BLOCKS.
ONE_BLOCK = """
#undef gridDim
#undef blockIdx
#define gridDim (dim3(BLOCKS, 1, MATRIX + 1))
#define blockIdx (uint3{BLOCK, 0, MATRIX})
"""


def strip_pairs(numbers, strips):
    kernel = RawModule(code=kernel_sources.module_source("laplacian") + PAIRS).get_function("strip_pairs")
    numbers = np.asarray(numbers, np.int32)
    low, high = np.empty_like(numbers), np.empty_like(numbers)
    kernel((1,), (THREADS,), (low, high, numbers, np.int32(numbers.size), np.int32(strips)))
    return list(zip(low.tolist(), high.tolist(), strict=True))


@pytest.mark.parametrize("strips", [1, 2, 3, 4, 7, 8, 31, 32])
def test_every_pair_of_strips_has_one_number(strips):
    found = strip_pairs(range(strips * (strips + 1) // 2), strips)
    assert sorted(found) == [(low, high) for low in range(strips) for high in range(low, strips)]


def pair_number(low, high, strips):
    """Return the number of a pair, the inverse of StripPair."""
    width = strips | 1
    line = strips - low - (width - strips)
    if low < (strips + 1) // 2:
        return low * width + high - low
    return line * width + strips - line + high - low


@pytest.mark.parametrize("strips", [1562, 1563])
def test_pairs_of_many_strips(strips):
    rng = np.random.default_rng(0)
    wanted = [tuple(sorted(pair)) for pair in rng.integers(0, strips, (500, 2)).tolist()]
    wanted += [(0, 0), (0, strips - 1), (strips - 2, strips - 1), (strips - 1, strips - 1)]
    assert strip_pairs([pair_number(*pair, strips) for pair in wanted], strips) == wanted


@given(
    rows=st.integers(1, 60),
    columns=st.integers(1, 700),
    blocks=st.integers(1, 7),
)
def test_a_walk_visits_every_entry_once(rows, columns, blocks):
    kernel = RawModule(code=kernel_sources.module_source("residual") + WALK).get_function("count_visits")
    visits, wrong = np.zeros((rows, columns), np.int32), np.ones((rows, columns), np.int32)
    kernel((blocks,), (THREADS,), (visits, wrong, np.int32(rows), np.int32(columns)))
    assert (visits == 1).all()
    assert not wrong.any()


def promised(*shape):
    """Return float32 zeros of this shape, most of which must never be touched, with as much room in front."""
    size = int(np.prod(shape, dtype=np.int64))
    room = 2**31 + 2**20
    memory = mmap.mmap(-1, 4 * (room + size), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE)
    return np.frombuffer(memory, np.float32)[room:].reshape(shape)


def run_one_block(module, name, blocks, block, matrix, args):
    numbers = (f"-DBLOCKS={blocks}u", f"-DBLOCK={block}u", f"-DMATRIX={matrix}u")
    code = ONE_BLOCK + kernel_sources.module_source(module)
    kernel = RawModule(code=code, options=("-std=c++17", *numbers), name_expressions=[name]).get_function(
        name
    )
    kernel((1,), (THREADS,), args)


def test_row_statistics_of_many_nodes():
    v, gram, rng = promised(1, NODES, NODES), promised(1, NODES, NODES), np.random.default_rng(0)
    last = slice(NODES - 8, NODES)
    v[0, last], gram[0, last] = rng.standard_normal((2, 8, NODES))
    statistics, energy, tickets = promised(1, 3, NODES), promised(1), np.zeros(1, np.uint32)
    blocks = NODES // 8
    args = (v, gram, statistics, energy, promised(blocks, 6), tickets, np.int32(1), np.int32(NODES))
    run_one_block("laplacian", "graph_statistics<float, 0>", blocks, blocks - 1, 0, args)
    values, products = v[0, last].astype(np.float64), gram[0, last].astype(np.float64)
    norms = np.zeros(NODES)
    norms[last] = np.diagonal(products[:, last])
    p = np.exp(values - values.max(1, keepdims=True))
    distances = norms[last, None] + norms - 2 * products
    np.testing.assert_array_equal(statistics[0, 0, last], values.max(1))
    np.testing.assert_allclose(statistics[0, 1, last], 1 / p.sum(1), rtol=1e-5)
    np.testing.assert_allclose(
        statistics[0, 2, last], (p * distances).sum(1) / p.sum(1), rtol=1e-4, atol=1e-5
    )
    assert tickets[0] == 1


class LastPair:
    """The tiles (1561, 1562) and (1562, 1561) of V and K; the last strip of 50 000 nodes has 16."""

    strips = -(-NODES // 32)
    blocks = strips * (strips + 1) // 2
    block = pair_number(strips - 2, strips - 1, strips)
    above, right = slice(32 * (strips - 2), 32 * (strips - 1)), slice(32 * (strips - 1), NODES)

    def __init__(self, batch=1):
        rng = np.random.default_rng(1)
        self.v, self.gram = promised(batch, NODES, NODES), promised(batch, NODES, NODES)
        around = slice(self.above.start, NODES)
        corner = rng.standard_normal((NODES - self.above.start, 5))
        self.v[-1, around, around] = rng.standard_normal((len(corner), len(corner)))
        self.gram[-1, around, around] = corner @ corner.T
        self.upper, self.lower = (part.astype(np.float64) for part in self.tiles(self.v))
        norms = np.diagonal(self.gram[-1, around, around]).astype(np.float64)
        products = self.tiles(self.gram)[0].astype(np.float64)
        self.distances = norms[:32, None] + norms[None, 32:] - 2 * products

    def tiles(self, array):
        """Return the upper tile, and the lower one transposed."""
        return array[-1, self.above, self.right], array[-1, self.right, self.above].T


def test_pair_statistics_of_many_nodes():
    pair = LastPair()
    partial, tickets = promised(pair.blocks, 6), np.zeros(1, np.uint32)
    args = (pair.v, pair.gram, promised(3), promised(1), partial, tickets, np.int32(1), np.int32(NODES))
    run_one_block("laplacian", "graph_statistics<float, 2>", pair.blocks, pair.block, 0, args)
    top, mass, rest, pair_top, energy, pair_rest = partial[pair.block].astype(np.float64)
    both = pair.upper + pair.lower
    wanted = np.exp(np.stack([pair.upper, pair.lower])).sum()
    np.testing.assert_allclose((mass + rest) * np.exp(top), wanted, rtol=1e-5)
    wanted = (np.exp(both) * pair.distances).sum()
    np.testing.assert_allclose((energy + pair_rest) * np.exp(pair_top), wanted, rtol=1e-5)
    assert tickets[0] == 1


# In a stack of 30, the parts of the degrees are too many to be counted in 32 bits, too.
@pytest.mark.parametrize(("adam", "batch"), [(False, 1), (True, 1), (False, 30)])
def test_the_step_of_many_nodes(adam, batch):
    pair = LastPair(batch)
    adjacency, gradient = promised(*pair.v.shape), promised(*pair.v.shape)
    degrees = promised(batch, pair.strips, NODES)
    first, second = (promised(*pair.v.shape), promised(*pair.v.shape)) if adam else (NULL, NULL)
    top, inverse, total, weight = 3.0, 0.25, 0.7, 0.5
    numbers = np.array([[0.1, 0.999, 0.001, 0.01, 1.0, 1e-8]], np.float32)
    pull, tickets = promised(batch, NODES), np.zeros((batch, pair.strips), np.uint32)
    args = (
        pair.v,
        pair.gram,
        np.tile(np.array([top, inverse, total], np.float32), (batch, 1)),
        np.float32(weight),
        adjacency,
        pull,
        NULL if adam else gradient,
        first,
        second,
        numbers,
        np.zeros(1, np.int32),
        np.int32(6),
        np.int32(0),
        degrees,
        tickets,
        np.int32(batch),
        np.int32(NODES),
    )
    name = f"graph_step<float, 1, {'true' if adam else 'false'}>"
    run_one_block("laplacian", name, pair.blocks, pair.block, batch - 1, args)
    p = [inverse * np.exp(values - top) for values in (pair.upper, pair.lower)]
    for found in pair.tiles(adjacency):
        np.testing.assert_allclose(found, p[0] + p[1], rtol=1e-5)
    low, high = pair.strips - 2, pair.strips - 1
    np.testing.assert_allclose(degrees[-1, high, pair.above], (p[0] + p[1]).sum(1), rtol=1e-5)
    np.testing.assert_allclose(degrees[-1, low, pair.right], (p[0] + p[1]).sum(0), rtol=1e-5)
    np.testing.assert_array_equal(np.argwhere(tickets), [[batch - 1, low], [batch - 1, high]])
    slopes = [weight * share * (pair.distances - total) for share in p]
    if not adam:
        for found, slope in zip(pair.tiles(gradient), slopes, strict=True):
            np.testing.assert_allclose(found, slope, rtol=1e-4, atol=1e-6)
        return
    for values, slope, moved, mean, square in zip(
        (pair.upper, pair.lower),
        slopes,
        *(pair.tiles(array) for array in (pair.v, first, second)),
        strict=True,
    ):
        np.testing.assert_allclose(mean, 0.1 * slope, rtol=1e-4, atol=1e-7)
        np.testing.assert_allclose(square, 0.001 * slope**2, rtol=1e-3, atol=1e-10)
        wanted = values - 0.01 * 0.1 * slope / (np.sqrt(0.001 * slope**2) + 1e-8)
        np.testing.assert_allclose(moved, wanted, rtol=1e-5, atol=1e-5)


class LastEntries:
    """The last 256 entries of a large matrix, or of a stack of them."""

    def __init__(self, shape):
        self.shape, (batch, rows, columns) = shape, shape
        self.blocks = -(-rows * columns // THREADS)
        self.last = (batch - 1, rows - 1, slice((self.blocks - 1) * THREADS - (rows - 1) * columns, columns))
        self.sizes = (np.int32(batch), np.int32(rows), np.int32(columns))
        self.sums = (promised(batch, self.blocks, 2), np.zeros(batch, np.uint32), promised(batch))
        self.rng = np.random.default_rng(2)

    def array(self):
        """Return an array with random values where the last block looks, and around it."""
        array = promised(*self.shape)
        array[-1, -2:, self.shape[2] - 300 :] = self.rng.standard_normal((2, 300))
        return array

    def line(self, size):
        line = promised(self.shape[0], size)
        line[-1] = self.rng.standard_normal(size)
        return line

    def run(self, module, name, args):
        run_one_block(module, name, self.blocks, self.blocks - 1, self.shape[0] - 1, args)
        if "scaled" not in name:
            assert self.sums[1].tolist() == [0] * (self.shape[0] - 1) + [1]


LARGE = [(1, NODES, NODES), (3, 30_000, 40_000)]


@pytest.mark.parametrize("shape", LARGE)
def test_residual_of_a_large_matrix(shape):
    of = LastEntries(shape)
    x, y, weights, gradient, g = (of.array() for _ in range(5))
    rows, columns = of.line(shape[1]), of.line(shape[2])
    args = (x, y, weights, gradient, np.float32(2), np.float32(0), rows, columns, *of.sums, *of.sizes)
    of.run("residual", "masked_residual<float, false>", args)
    at = of.last
    scale = rows[-1, -1] + columns[-1, at[2]]
    wanted = 2 * weights[at] * (x[at] - y[at]) + scale * x[at]
    np.testing.assert_allclose(gradient[at], wanted, rtol=1e-4, atol=1e-5)
    wanted = g[at] + scale * x[at]
    of.run("residual", "add_scaled_lines<float>", (g, x, rows, columns, *of.sizes))
    np.testing.assert_allclose(g[at], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", LARGE)
def test_variation_of_a_large_matrix(shape):
    of = LastEntries(shape)
    g, x = of.array(), of.array()
    corner = (slice(-1, None), slice(-2, None), slice(shape[2] - 300, None))
    _, wanted = reference.total_variation(g[corner], x[corner], kind="quadratic", epsilon=1.0, weight=0.5)
    args = (g, x, np.float32(0.5), np.float32(1), *of.sums, *of.sizes)
    of.run("variation", "add_variation<float, true>", args)
    width = of.last[2].stop - of.last[2].start
    np.testing.assert_allclose(g[of.last], wanted[-1, -1, -width:], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", LARGE)
def test_fixed_graphs_of_a_large_matrix(shape):
    of = LastEntries(shape)
    batch, rows, columns = shape
    dense, sparse, z, neighbours = (of.array() for _ in range(4))
    degree, at, scale = of.line(columns), of.last, np.float32(0.5)
    wanted = dense[at] + scale * (degree[-1, at[2]] * z[at] - neighbours[at])
    args = (dense, z, neighbours, NULL, degree, np.int32(batch), scale, *of.sums, *of.sizes)
    of.run("fixed_graph", "add_laplacian<float>", args)
    np.testing.assert_allclose(dense[at], wanted, rtol=1e-4, atol=1e-5)
    # A graph with one edge, from the last row to the one before it.
    indptr = np.zeros(rows + 1, np.int32)
    indptr[rows] = 1
    data, indices = np.full(1, 3, np.float32), np.full(1, rows - 2, np.int32)
    line = of.line(rows)[-1]
    wanted = sparse[at] + scale * (line[-1] * z[at] - 3 * z[batch - 1, rows - 2, at[2]])
    of.sums[1][:] = 0
    args = (sparse, z, data, indices, indptr, line, scale, *of.sums, *of.sizes)
    of.run("fixed_graph", "add_sparse_laplacian<float, int, false>", args)
    np.testing.assert_allclose(sparse[at], wanted, rtol=1e-4, atol=1e-5)


def test_a_sparse_graph_with_many_edges():
    # The edges of node 1 are the last of more than 2^31, in 64-bit indices.
    edges, rows, columns = 2**31 + 7, 2, 3
    data, indices = promised(edges), promised(2 * edges).view(np.int64)
    data[-2:], indices[-2:] = (3, 5), (0, 1)
    indptr = np.array([edges - 2, edges - 2, edges], np.int64)
    z, g, degree = np.arange(6, dtype=np.float32), np.zeros(6, np.float32), np.zeros(2, np.float32)
    sums = (np.zeros((1, 2), np.float32), np.zeros(1, np.uint32), np.zeros(1, np.float32))
    sizes = (np.int32(1), np.int32(rows), np.int32(columns))
    args = (g, z, data, indices, indptr, degree, np.float32(1), *sums, *sizes)
    run_one_block("fixed_graph", "add_sparse_laplacian<float, long long, false>", 1, 0, 0, args)
    np.testing.assert_array_equal(g[3:], -3 * z[:3] - 5 * z[3:])


@pytest.mark.parametrize("adam", [False, True])
def test_the_step_of_a_large_tensor_far_down_the_table(adam):
    # Neither the entries, nor the place of the numbers of iteration 2^27 - 1, can be counted in 32 bits.
    size, width, offset, rng = NODES**2, 20, 14, np.random.default_rng(3)
    tensors, blocks = [promised(size) for _ in range(4)], -(-size // THREADS)
    last = slice((blocks - 1) * THREADS, size)
    for tensor in tensors:
        tensor[last] = 0.5 + rng.random(size - last.start)
    numbers, cursor = promised(2**27, width), np.array([2**27 - 1], np.int32)
    numbers[-1, offset:] = 0.1, 0.999, 0.001, 0.01, 1.0, 1e-8
    p, g, first, second = (tensor[last].astype(np.float64) for tensor in tensors)
    args = (AddressTable([*tensors, size, offset]), np.int32(1), numbers, cursor, np.int32(width))
    name = "adam<float>" if adam else "descend<float>"
    run_one_block("adam", name, blocks, blocks - 1, 0, args)
    mean, square = first + 0.1 * (g - first), 0.999 * second + 0.001 * g**2
    wanted = (p - 0.01 * mean / (np.sqrt(square) + 1e-8), g, mean, square)
    if not adam:
        wanted = (p - 0.1 * g, g, first, second)
    for tensor, right in zip(tensors, wanted, strict=True):
        np.testing.assert_allclose(tensor[last], right, rtol=1e-5)


def test_record_far_down_the_ring():
    ring, cursor = promised(2**28, 3, 5), np.array([2**28 - 2], np.int32)
    sources = [np.arange(5, dtype=np.float32) + 10 * number for number in range(1, 4)]
    args = (AddressTable(sources), np.int32(3), np.int32(5), ring, cursor, np.int32(2**28))
    run_one_block("record", "record<float>", 1, 0, 0, args)
    np.testing.assert_array_equal(ring[-2], np.stack(sources))
    assert cursor[0] == 2**28 - 1
