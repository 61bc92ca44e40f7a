"""Which entries a thread works on: pairs of tiles, walks through a matrix, and more than 2^31 entries.

A matrix of 50 000 x 50 000 has more than 2^31 entries. Its memory is reserved but mostly never touched, and
only one block of a grid of millions is run, the one of the last entries. An index computed in 32 bits would
land in front of the array, where room is reserved too, and the right entries would stay as they were.
"""

import mmap

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airnp.engines import reference
from airnp.engines.launching import THREADS, module_source
from airnp.resemblance.patches import VALUE_ONE, WEIGHT_ONE, collect_by_formula
from tests.engines.kernel_launches import Launch
from tests.engines.patch_kernel_checks import round_of
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
    kernel = RawModule(code=module_source("laplacian") + PAIRS).get_function("strip_pairs")
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
    kernel = RawModule(code=module_source("residual") + WALK).get_function("count_visits")
    visits, wrong = np.zeros((rows, columns), np.int32), np.ones((rows, columns), np.int32)
    kernel((blocks,), (THREADS,), (visits, wrong, np.int32(rows), np.int32(columns)))
    assert (visits == 1).all()
    assert not wrong.any()


def reserved(*shape):
    """Return float32 zeros whose memory is reserved but not yet used, with as much room in front of them."""
    size = int(np.prod(shape, dtype=np.int64))
    room = 2**31 + 2**20
    memory = mmap.mmap(-1, 4 * (room + size), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE)
    return np.frombuffer(memory, np.float32)[room:].reshape(shape)


def reserved_integers(size, dtype=np.int64):
    return reserved(size * np.dtype(dtype).itemsize // 4).view(dtype)


def sums_of(batch, blocks):
    """Return memory for partial sums, tickets and values."""
    return reserved(batch, blocks, 2), np.zeros(batch, np.uint32), reserved(batch)


def run_one_block(module, kernel, variant, blocks, block, *args, matrix=0):
    """Run one block of a float32 kernel, for one matrix of a stack, as part of a large grid."""
    launch = Launch.of(module, kernel, ("float32", *variant), (1,), *args)
    grid = (f"-DBLOCKS={blocks}u", f"-DBLOCK={block}u", f"-DMATRIX={matrix}u")
    name, code = launch.instance.name, ONE_BLOCK + module_source(module)
    compiled = RawModule(code=code, options=("-std=c++17", *grid), name_expressions=[name])
    compiled.get_function(name)(launch.grid, (THREADS,), launch.args)


def test_row_statistics_of_many_nodes():
    v, gram, rng = reserved(1, NODES, NODES), reserved(1, NODES, NODES), np.random.default_rng(0)
    last = slice(NODES - 8, NODES)
    v[0, last], gram[0, last] = rng.standard_normal((2, 8, NODES))
    statistics, energy, tickets = reserved(1, 3, NODES), reserved(1), np.zeros(1, np.uint32)
    blocks = NODES // 8
    args = (v, gram, statistics, energy, reserved(blocks, 6), tickets, 1, NODES)
    run_one_block("laplacian", "graph_statistics", (0,), blocks, blocks - 1, *args)
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


def test_mirror_of_many_nodes():
    gram, strips = reserved(NODES, NODES), -(-NODES // 32)
    above, right = slice(32 * (strips - 2), 32 * (strips - 1)), slice(32 * (strips - 1), NODES)
    gram[above, right] = np.random.default_rng(2).standard_normal((32, NODES - right.start))
    blocks = strips * (strips + 1) // 2
    run_one_block("laplacian", "mirror", (), blocks, pair_number(strips - 2, strips - 1, strips), gram, NODES)
    np.testing.assert_array_equal(gram[right, above], gram[above, right].T)
    assert gram[right, above].all()


class LastPair:
    """The tiles (1561, 1562) and (1562, 1561) of V and K; the last strip of 50 000 nodes has 16."""

    strips = -(-NODES // 32)
    blocks = strips * (strips + 1) // 2
    block = pair_number(strips - 2, strips - 1, strips)
    above, right = slice(32 * (strips - 2), 32 * (strips - 1)), slice(32 * (strips - 1), NODES)

    def __init__(self, batch=1):
        rng = np.random.default_rng(1)
        self.v, self.gram = reserved(batch, NODES, NODES), reserved(batch, NODES, NODES)
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
    partial, tickets = reserved(pair.blocks, 6), np.zeros(1, np.uint32)
    args = (pair.v, pair.gram, reserved(3), reserved(1), partial, tickets, 1, NODES)
    run_one_block("laplacian", "graph_statistics", (2,), pair.blocks, pair.block, *args)
    top, mass, rest, pair_top, energy, pair_rest = partial[pair.block].astype(np.float64)
    both = pair.upper + pair.lower
    wanted = np.exp(np.stack([pair.upper, pair.lower])).sum()
    np.testing.assert_allclose((mass + rest) * np.exp(top), wanted, rtol=1e-5)
    wanted = (np.exp(both) * pair.distances).sum()
    np.testing.assert_allclose((energy + pair_rest) * np.exp(pair_top), wanted, rtol=1e-5)
    assert tickets[0] == 1


# In a stack of 30, the index of a partial degree exceeds 32 bits as well.
@pytest.mark.parametrize(("adam", "batch"), [(False, 1), (True, 1), (False, 30)])
def test_step_of_many_nodes(adam, batch):
    pair = LastPair(batch)
    adjacency, gradient = reserved(*pair.v.shape), reserved(*pair.v.shape)
    degrees = reserved(batch, pair.strips, NODES)
    first, second = (reserved(*pair.v.shape), reserved(*pair.v.shape)) if adam else (None, None)
    top, inverse, total, weight = 3.0, 0.25, 0.7, 0.5
    numbers = np.array([[0.1, 0.999, 0.001, 0.01, 1.0, 1e-8]], np.float32)
    pull, tickets = reserved(batch, NODES), np.zeros((batch, pair.strips), np.uint32)
    statistics = np.tile(np.array([top, inverse, total], np.float32), (batch, 1))
    out = (adjacency, pull, None if adam else gradient)
    step = (first, second, numbers, np.zeros(1, np.int32), 6, 0)
    args = (pair.v, pair.gram, statistics, weight, *out, *step, degrees, tickets, batch, NODES)
    run_one_block("laplacian", "graph_step", (1, adam), pair.blocks, pair.block, *args, matrix=batch - 1)
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
        self.sums = sums_of(batch, self.blocks)
        self.rng = np.random.default_rng(2)

    def array(self):
        """Return an array with random values where the last block looks, and around it."""
        array = reserved(*self.shape)
        array[-1, -2:, self.shape[2] - 300 :] = self.rng.standard_normal((2, 300))
        return array

    def line(self, size):
        line = reserved(self.shape[0], size)
        line[-1] = self.rng.standard_normal(size)
        return line

    def run(self, module, kernel, variant, *args, sums=True):
        """Run the last block; sizes, and if there are any the sums in front of them, end the arguments."""
        args = (*args, *(self.sums if sums else ()), *self.shape)
        matrix = self.shape[0] - 1
        self.sums[1][:] = 0
        run_one_block(module, kernel, variant, self.blocks, self.blocks - 1, *args, matrix=matrix)
        assert self.sums[1].tolist() == [0] * matrix + [int(sums)]


LARGE = [(1, NODES, NODES), (3, 30_000, 40_000)]


@pytest.mark.parametrize("shape", LARGE)
def test_residual_of_a_large_matrix(shape):
    of = LastEntries(shape)
    x, y, weights, gradient, g = (of.array() for _ in range(5))
    rows, columns = of.line(shape[1]), of.line(shape[2])
    of.run("residual", "masked_residual", (False,), x, y, weights, gradient, 2, 0, rows, columns)
    at = of.last
    scale = rows[-1, -1] + columns[-1, at[2]]
    wanted = 2 * weights[at] * (x[at] - y[at]) + scale * x[at]
    np.testing.assert_allclose(gradient[at], wanted, rtol=1e-4, atol=1e-5)
    wanted = g[at] + scale * x[at]
    of.run("residual", "add_scaled_lines", (), g, x, rows, columns, sums=False)
    np.testing.assert_allclose(g[at], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", LARGE)
def test_variation_of_a_large_matrix(shape):
    of = LastEntries(shape)
    g, x = of.array(), of.array()
    corner = (slice(-1, None), slice(-2, None), slice(shape[2] - 300, None))
    _, wanted = reference.total_variation(g[corner], x[corner], kind="quadratic", epsilon=1.0, weight=0.5)
    of.run("variation", "add_variation", (True,), g, x, 0.5, 1)
    width = of.last[2].stop - of.last[2].start
    np.testing.assert_allclose(g[of.last], wanted[-1, -1, -width:], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", LARGE)
def test_given_graphs_of_a_large_matrix(shape):
    of = LastEntries(shape)
    batch, rows, columns = shape
    dense, sparse, z, neighbours = (of.array() for _ in range(4))
    degree, at, scale = of.line(columns), of.last, np.float32(0.5)
    wanted = dense[at] + scale * (degree[-1, at[2]] * z[at] - neighbours[at])
    of.run("fixed_graph", "add_laplacian", (), dense, z, neighbours, None, degree, batch, scale)
    np.testing.assert_allclose(dense[at], wanted, rtol=1e-4, atol=1e-5)
    # A graph with one edge, from the last row to the one before it.
    first, last = np.zeros(rows, np.int32), np.zeros(rows, np.int32)
    last[-1] = 1
    data, indices = np.full(1, 3, np.float32), np.full(1, rows - 2, np.int32)
    line = of.line(rows)[-1]
    wanted = sparse[at] + scale * (line[-1] * z[at] - 3 * z[batch - 1, rows - 2, at[2]])
    graph = (data, indices, first, last, line)
    of.run("fixed_graph", "add_sparse_laplacian", ("int", False), sparse, z, *graph, scale)
    np.testing.assert_allclose(sparse[at], wanted, rtol=1e-4, atol=1e-5)


def test_given_graph_with_many_edges():
    # The edges of node 1 are the last of more than 2^31, in 64-bit indices.
    edges, room = 2**31 + 7, 2**31
    memory, indices = reserved(room + edges), reserved_integers(room + edges)[room:]
    data, memory[5] = memory[room:], np.nan  # an edge that was counted in 32 bits would start there
    data[-2:], indices[-2:] = (3, 5), (0, 1)
    first, last = np.array([[edges - 2, edges - 2], [edges - 2, edges]], np.int64)
    z, g, degree = np.arange(6, dtype=np.float32), np.zeros(6, np.float32), np.zeros(2, np.float32)
    args = (g, z, data, indices, first, last, degree, 1, *sums_of(1, 1), 1, 2, 3)
    run_one_block("fixed_graph", "add_sparse_laplacian", ("long long", False), 1, 0, *args)
    np.testing.assert_array_equal(g[3:], -3 * z[:3] - 5 * z[3:])


@pytest.mark.parametrize("adam", [False, True])
def test_step_of_a_large_tensor_far_down_the_table(adam):
    # Neither the entries, nor the place of the numbers of iteration 2^27 - 1, can be counted in 32 bits.
    size, width, offset, rng = NODES**2, 20, 14, np.random.default_rng(3)
    tensors, blocks = [reserved(size) for _ in range(4)], -(-size // THREADS)
    last = slice((blocks - 1) * THREADS, size)
    for tensor in tensors:
        tensor[last] = 0.5 + rng.random(size - last.start)
    numbers, cursor = reserved(2**27, width), np.array([2**27 - 1], np.int32)
    numbers[-1, offset:] = 0.1, 0.999, 0.001, 0.01, 1.0, 1e-8
    p, g, first, second = (tensor[last].astype(np.float64) for tensor in tensors)
    args = (AddressTable([*tensors, size, offset]), 1, numbers, cursor, width)
    run_one_block("adam", "adam" if adam else "descend", (), blocks, blocks - 1, *args)
    mean, square = first + 0.1 * (g - first), 0.999 * second + 0.001 * g**2
    wanted = (p - 0.01 * mean / (np.sqrt(square) + 1e-8), g, mean, square)
    if not adam:
        wanted = (p - 0.1 * g, g, first, second)
    for tensor, right in zip(tensors, wanted, strict=True):
        np.testing.assert_allclose(tensor[last], right, rtol=1e-5)


def test_split_of_a_large_array():
    size, blocks = 2**31 + 300, 2**23 + 2
    x, high, low = (reserved(size) for _ in range(3))
    x[-300:] = np.linspace(1, 2, 300)
    run_one_block("split", "split", (), blocks, blocks - 1, x, high, low, size)
    np.testing.assert_array_equal(high[-44:] + low[-44:], x[-44:])
    assert high[-44:].all()


def test_record_far_down_the_ring():
    ring, cursor = reserved(2**28, 3, 5), np.array([2**28 - 2], np.int32)
    sources = [np.arange(5, dtype=np.float32) + 10 * number for number in range(1, 4)]
    run_one_block("record", "record", (), 1, 0, AddressTable(sources), 3, 5, ring, cursor, 2**28)
    np.testing.assert_array_equal(ring[-2], np.stack(sources))
    assert cursor[0] == 2**28 - 1


# --- the sparse form ---

FAR = 2**31 + 16
"""Entries, pieces or pairs, more than 32 bits can count."""
LINE, OTHER, RANK = 1_200_000_000, 1_100_000_000, 3
"""Indices of lines that fit into 32 bits, while the places of their factors do not."""


class Far:
    """The last piece of a long pattern, with two entries; the last block of the grid works on it."""

    blocks, block = FAR // 8, FAR // 8 - 1

    def __init__(self, slot=None):
        rng = np.random.default_rng(0)
        self.starts, self.lines, self.indices = (
            reserved_integers(FAR + 1),
            reserved_integers(FAR, np.int32),
            reserved_integers(FAR, np.int32),
        )
        self.starts[-9:] = FAR - 2  # the pieces before the last are empty
        self.starts[-1], self.lines[-1], self.indices[-2:] = FAR, LINE, (5, OTHER)
        self.slots = None
        if slot is not None:
            self.slots = reserved_integers(FAR, np.int32)
            self.slots[-8:] = slot
        self.weights, self.u, self.v = reserved(FAR), reserved(LINE + 1, RANK), reserved(OTHER + 1, RANK)
        self.weights[-2:], self.u[LINE] = rng.standard_normal(2), rng.standard_normal(RANK)
        self.v[5], self.v[OTHER] = rng.standard_normal((2, RANK))
        self.sums = sums_of(1, self.blocks)

    @property
    def form(self):
        return self.starts, self.lines, self.slots, self.indices

    def run(self, module, kernel, variant, *args):
        run_one_block(module, kernel, variant, self.blocks, self.block, *args)


def test_sparse_residuals_of_many_entries():
    far = Far()
    rows, columns, mean = reserved(LINE + 1), reserved(OTHER + 1), np.array([0.5], np.float32)
    rows[LINE], columns[5], columns[OTHER] = 1, 2, 3
    slopes, gradient, totals = reserved(FAR), reserved(LINE + 1, RANK), reserved(LINE + 1)
    sides = (far.weights, far.u, far.v, mean, rows, columns, 0.5)
    out = (slopes, gradient, totals, None, *far.sums, FAR, RANK)
    far.run("sparse_entries", "row_residuals", (), *far.form, *sides, *out)
    error = far.v[[5, OTHER]] @ far.u[LINE] + 1.5 + np.array([2, 3]) - far.weights[-2:]
    np.testing.assert_allclose(slopes[-2:], 0.5 * error, rtol=1e-5)
    np.testing.assert_allclose(gradient[LINE], 0.5 * error @ far.v[[5, OTHER]], rtol=1e-5)
    np.testing.assert_allclose(totals[LINE], 0.5 * error.sum(), rtol=1e-5)
    np.testing.assert_allclose(far.sums[0][0, far.block].sum(), np.sum(error**2), rtol=1e-5)
    assert far.sums[1][0] == 1


def test_sparse_values_of_many_pairs():
    far, rows, columns, out = (
        Far(),
        reserved_integers(FAR, np.int32),
        reserved_integers(FAR, np.int32),
        reserved(FAR),
    )
    rows[-1], columns[-1] = LINE, OTHER
    b, c = reserved(LINE + 1), reserved(OTHER + 1)
    b[LINE], c[OTHER] = 1, 2
    args = (rows, columns, far.u, far.v, np.ones(1, np.float32), b, c, out, FAR, RANK)
    far.run("sparse_entries", "entry_values", (), *args)
    np.testing.assert_allclose(out[-1], far.u[LINE] @ far.v[OTHER] + 4, rtol=1e-5)


@pytest.mark.parametrize("slot", [None, 1_000_000_000])
def test_sparse_sums_over_many_entries(slot):
    far = Far(slot)
    places, parts = reserved_integers(FAR), None if slot is None else reserved(slot + 1, RANK + 1)
    places[-2:] = FAR - 1, FAR - 2
    out, totals = reserved(LINE + 1, RANK), reserved(LINE + 1)
    args = (*far.form, places, far.weights, far.v, out, totals, parts, FAR, 0, RANK)
    far.run("sparse_lines", "line_sums", (), *args)
    weights = far.weights[[FAR - 1, FAR - 2]]
    row, total = (out[LINE], totals[LINE]) if slot is None else (parts[slot, :RANK], parts[slot, RANK])
    np.testing.assert_allclose(row, weights @ far.v[[5, OTHER]], rtol=1e-5)
    np.testing.assert_allclose(total, weights.sum(), rtol=1e-5)


def test_sparse_gaps_over_many_edges():
    far = Far()
    nodes, pull = reserved(LINE + 1, RANK), reserved(LINE + 1, RANK)
    nodes[[5, OTHER]], nodes[LINE], pull[LINE] = far.v[[5, OTHER]], far.u[LINE], 7
    absent = (None, None, None, None)  # no parts and no energy
    args = (*far.form, None, far.weights, nodes, None, 2, pull, *absent, FAR, 0, RANK)
    far.run("sparse_lines", "gap_sums", (True,), *args)
    gaps = nodes[LINE] - nodes[[5, OTHER]]
    np.testing.assert_allclose(pull[LINE], 7 + 2 * far.weights[-2:] @ gaps, rtol=1e-5)


def test_sparse_edges_of_many_nodes():
    far, nodes = Far(), LINE + 1
    indptr, weights, slopes, pull = (
        reserved_integers(nodes + 1),
        reserved(FAR),
        reserved(FAR),
        reserved(nodes, RANK),
    )
    indptr[-9:-1], indptr[-1] = FAR - 2, FAR
    t, metric = reserved(nodes, RANK), np.array([1, 2, 3], np.float32)
    t[[5, OTHER]], t[LINE] = far.v[[5, OTHER]], far.u[LINE]
    blocks = -(-nodes // 8)
    sums = sums_of(1, blocks)
    out = (weights, slopes, pull, *sums)
    args = (indptr, far.indices, far.weights, t, metric, *out, nodes, RANK)
    run_one_block("sparse_edges", "edge_terms", (), blocks, blocks - 1, *args)
    p = np.exp(far.weights[-2:].astype(np.float64))
    p /= p.sum()
    gaps = t[LINE] - t[[5, OTHER]]
    distances = gaps**2 @ metric
    np.testing.assert_allclose(weights[-2:], p, rtol=1e-5)
    np.testing.assert_allclose(slopes[-2:], 0.5 * p * (distances - p @ distances), rtol=1e-4)
    np.testing.assert_allclose(pull[LINE], p @ gaps, rtol=1e-4, atol=1e-6)
    assert sums[1][0] == 1


def test_sparse_joining_of_many_pieces():
    splits, slots = 1_000_000_000, 1_000_000_002
    firsts, lines = reserved_integers(splits + 1, np.int32), reserved_integers(splits, np.int32)
    firsts[-2:], lines[-64:] = (slots - 2, slots), LINE
    parts, out, totals = reserved(slots, RANK + 1), reserved(LINE + 1, RANK), reserved(LINE + 1)
    parts[-2:] = np.arange(8).reshape(2, 4)
    firsts[-65:-1] = slots - 2  # the lines before the last have no pieces
    lines[-64:-1] = 0
    blocks = splits * (RANK + 1) // 256
    args = (parts, firsts, lines, out, totals, splits, 0, RANK)
    run_one_block("sparse_lines", "join_pieces", (False,), blocks, blocks - 1, *args)
    np.testing.assert_array_equal(out[LINE], [4, 6, 8])
    assert totals[LINE] == 10


# --- patches ---


@pytest.mark.parametrize(
    ("shape", "frame"),
    [((1, 1, NODES, NODES), 0), ((1, 3, 35_000, 35_000), 0), ((3, 1, 35_000, 35_000), 2)],
)
def test_patches_of_a_large_picture(shape, frame):
    # The last reference patch sees nothing but the corner of the picture, which is a small one by itself.
    side, how, rng = 9, round_of(search=4), np.random.default_rng(5)
    (frames, channels, height, width), last = shape, slice(-side, None)
    X, U = rng.random((2, *shape[:2], side, side), np.float32)
    U *= np.float32(1e-3)
    M = rng.random(X.shape) < 0.5
    x, u = reserved(*shape), reserved(*shape)
    known = reserved_integers(channels * height * width, np.int32).reshape(shape[1:])
    x[..., last, last], u[..., last, last], known[..., last, last] = X, U, M[frame]
    rows, columns = (np.arange(length - how.patch + 1, dtype=np.int32) for length in (height, width))
    places, found = np.full((1, how.neighbours), -1), np.zeros(1, np.int32)
    distances = np.zeros((frames, 2 * how.search + 1, 2 * how.search + 1), np.float32)
    sizes = (frame, frames, channels, height, width, how.patch)
    arguments = (x, known, rows, columns, how.trust, distances, places, found)
    first = len(rows) * len(columns) - 1
    run_one_block(
        *("patch_matching", "match_patches", (), 1, 0),
        *(*arguments, first, 1, len(columns), *sizes, how.search, how.neighbours),
    )
    sums = [reserved_integers(channels * height * width).reshape(shape[1:]) for _ in range(3)]
    space = np.zeros(6 * (channels * how.patch**2 + 1) ** 2, np.float32)
    numbers = (how.ridge, how.noise, how.softening, WEIGHT_ONE, int(VALUE_ONE))
    run_one_block(
        *("patches", "fill_groups", (), 1, 0),
        *(x, u, known, places, found, space, *sums, *numbers, 1, frame),
        *(channels, height, width, how.patch, how.neighbours, how.answers),
    )
    corner = np.array([side - how.patch])
    wanted = collect_by_formula(X, U, M, frame, corner, corner, how)
    values, weights, counts = (total[:, last, last] for total in sums)
    np.testing.assert_array_equal(counts, wanted.counts)
    assert counts.any()
    np.testing.assert_allclose(weights / WEIGHT_ONE, wanted.weights / WEIGHT_ONE, atol=1e-3)
    one = WEIGHT_ONE * VALUE_ONE
    np.testing.assert_allclose(values / one, wanted.values / one, atol=1e-3)
