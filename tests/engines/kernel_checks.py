"""Checks of the kernels of the dense form against ``engines/reference.py``, for any shape, type and order."""

import math

import numpy as np
import scipy.sparse
from hypothesis import strategies as st

from airnp.engines import reference
from airnp.engines.contract import AdamUpdate, DescentUpdate, Moments
from tests.engines import kernel_launches as launches
from tests.engines.kernel_launches import KINDS, Machine, Numbers, check_fences, fenced

BETA1, BETA2, RATE, EPSILON = 0.9, 0.999, 1e-3, 1e-8
TOLERANCE = {np.float32: 2e-5, np.float64: 1e-12}
ORDERS = [0, 1, 2, 3, 7]
MACHINES = st.builds(
    Machine,
    mode=st.sampled_from(["fast", "fma"]),
    order=st.sampled_from([0, 1, 2, 7]),
    most_blocks=st.sampled_from([1, 3, 2048]),
)


def assert_close(got, want, dtype, *, size=None, tolerance=None):
    """Compare with a tolerance relative to ``size``: the size of what was summed, or the largest entry."""
    tolerance = TOLERANCE[dtype] if tolerance is None else tolerance
    want = np.asarray(want)
    assert got.dtype == dtype
    size = np.max(np.abs(want), initial=0) if size is None else size
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * size)


def wide(*arrays):
    """Return copies in double precision; None stays None."""
    return [None if array is None else array.astype(np.float64) for array in arrays]


def adam_numbers(step):
    """Return the six numbers of an Adam step, as the host puts them into the table."""
    rate, root = RATE / (1 - BETA1**step), 1 / math.sqrt(1 - BETA2**step)
    return 1 - BETA1, BETA2, 1 - BETA2, rate, root, EPSILON


def adam_update(first, second, step):
    return AdamUpdate(Moments(first, second), RATE, step, BETA1, BETA2, EPSILON)


class Graph:
    """V, the Gram matrix of its nodes, and moments, in a stack."""

    def __init__(self, dtype, batch, nodes, seed, spread=1.0):
        rng = np.random.default_rng(seed)
        z = rng.standard_normal((batch, nodes, 7))
        self.dtype, self.weight, self.step = dtype, 0.3, 5
        self.v = fenced(spread * rng.standard_normal((batch, nodes, nodes)), dtype)
        self.gram = fenced(z @ z.swapaxes(1, 2), dtype)
        self.first = fenced(1e-2 * rng.standard_normal(self.v.shape), dtype)
        self.second = fenced(1e-4 + 1e-3 * rng.random(self.v.shape), dtype)

    def expected(self, kind, adam):
        v, gram, first, second = wide(self.v, self.gram, self.first, self.second)
        update = adam_update(first, second, self.step) if adam else None
        terms = reference.laplacian_terms(KINDS[kind], v, gram, weight=self.weight, update=update)
        return terms, (first, second)

    def launched(self, kind, adam, machine, times=1):
        """Return what both kernels compute on copies of the arrays, launched ``times`` times."""
        gram = fenced(self.gram)
        statistics = launches.statistics_launch(kind, fenced(self.v), gram, machine)
        statistics.run(machine, times)
        v, first, second = (fenced(array) for array in (self.v, self.first, self.second))
        adam_step = {}
        if adam:
            adam_step = {
                "moments": (first, second),
                "numbers": Numbers.of(adam_numbers(self.step), self.dtype),
            }
        known = statistics["statistics"]
        step = launches.step_launch(kind, v, gram, known, self.weight, machine, **adam_step)
        step.run(machine, 1 if adam else times)
        check_fences(*(part for part in statistics.args if isinstance(part, np.ndarray)))
        np.testing.assert_array_equal(gram, self.gram)
        if not adam:
            np.testing.assert_array_equal(v, self.v)
        names = ("v", "first", "second") if adam else ("gradient",)
        found = {name: step[name] for name in ("adjacency", "pull", "statistics", *names)}
        return found | {"energy": statistics["energy"]}


class Entries:
    """x, y, weights and more for the kernels that pass over a matrix once."""

    def __init__(self, dtype, shape, seed):
        rng = np.random.default_rng(seed)
        batch, rows, columns = shape
        self.dtype = dtype
        self.x, self.y, self.g, self.neighbours = (
            fenced(rng.standard_normal(shape), dtype) for _ in range(4)
        )
        self.weights = fenced(rng.random(shape) * (rng.random(shape) < 0.7), dtype)
        self.row_scale = fenced(rng.standard_normal((batch, rows)), dtype)
        self.column_scale = fenced(rng.standard_normal((batch, columns)), dtype)


def check_graph(kind, adam, dtype, nodes, batch, spread, seed, machine):
    """Check both kernels of a learned graph, with the gradient written or used for Adam's step."""
    graph = Graph(dtype, batch, nodes, seed, spread)
    found = graph.launched(kind, adam, machine)
    terms, (first, second) = graph.expected(kind, adam)
    wanted = {name: getattr(terms, name) for name in ("energy", "adjacency", "pull")}
    step = {"v": terms.parameter, "first": first, "second": second}
    wanted |= step if adam else {"gradient": terms.gradient}
    for name, want in wanted.items():
        assert_close(found[name], want, dtype)
    np.testing.assert_array_equal(found["adjacency"], found["adjacency"].swapaxes(1, 2))


def check_residual(dtype, shape, delta, scales, seed, machine):
    """Check masked_residual, launched twice, and add_scaled_lines."""
    of = Entries(dtype, shape, seed)
    row_scale, column_scale = of.row_scale if scales[0] else None, of.column_scale if scales[1] else None
    lines = {"row_scale": row_scale, "column_scale": column_scale}
    launch = launches.residual_launch(of.x, of.y, of.weights, 1.7, machine, delta=delta, **lines)
    launch.run(machine, times=2)
    x, y, weights, rows, columns = wide(of.x, of.y, of.weights, row_scale, column_scale)
    value, gradient = reference.residual(
        x, y, weights, scale=1.7, huber_delta=delta, row_scale=rows, column_scale=columns
    )
    assert_close(launch["value"], value, dtype)
    assert_close(launch["gradient"], gradient, dtype)
    lines = launches.lines_launch(of.g, of.x, row_scale, column_scale, machine)
    wanted = reference.scale_lines(of.g.astype(np.float64), x, rows, columns)
    lines.run(machine)
    assert_close(of.g, wanted, dtype)


def check_variation(dtype, shape, quadratic, seed, machine):
    """Check add_variation."""
    of = Entries(dtype, shape, seed)
    g, x = wide(of.g, of.x)
    kind = "quadratic" if quadratic else "l1"
    value, wanted = reference.total_variation(g, x, kind=kind, epsilon=0.05, weight=0.7)
    launch = launches.variation_launch(of.g, of.x, quadratic, 0.7, 0.05, machine)
    launch.run(machine)
    assert_close(launch["value"], value, dtype)
    assert_close(of.g, wanted, dtype)


def line_reference(g, z, adjacency, degree, columns, weight):
    """Return reference.fixed_laplacian for nodes that are rows, or columns."""
    if not columns:
        return reference.fixed_laplacian(g, z, adjacency, degree, weight=weight)
    turned = (g.swapaxes(1, 2), z.swapaxes(1, 2))
    value, gradient = reference.fixed_laplacian(*turned, adjacency, degree, weight=weight)
    return value, gradient.swapaxes(1, 2)


def cancelled(z, degree):
    """Return the size of degree ⊙ z, which the neighbours may cancel, or of Σ z ⊙ degree ⊙ z."""
    return 1 + 4 * np.max(degree) * np.sum(np.square(z))


def check_dense_laplacian(dtype, shape, columns, shared, seed, machine):
    """Check add_laplacian."""
    of = Entries(dtype, shape, seed)
    nodes = shape[2 if columns else 1]
    adjacency = np.random.default_rng(seed).random((1 if shared else shape[0], nodes, nodes))
    adjacency += adjacency.swapaxes(1, 2)
    degree = fenced(adjacency.sum(-1), dtype)
    g, z = wide(of.g, of.x)
    neighbours = fenced(z @ adjacency if columns else adjacency @ z, dtype)
    value, wanted = line_reference(g, z, adjacency, degree.astype(np.float64), columns, 0.4)
    launch = launches.laplacian_launch(of.g, of.x, neighbours, degree, columns, 0.8, machine)
    launch.run(machine)
    assert_close(launch["value"], value, dtype, size=cancelled(z, degree))
    assert_close(of.g, wanted, dtype, size=cancelled(1, degree))


def check_sparse_laplacian(dtype, shape, columns, index, density, seed, machine):
    """Check add_sparse_laplacian."""
    of = Entries(dtype, shape, seed)
    nodes = shape[2 if columns else 1]
    rng = np.random.default_rng(seed)
    adjacency = rng.random((nodes, nodes)) * (rng.random((nodes, nodes)) < density)
    adjacency = (adjacency + adjacency.T).astype(dtype)
    sparse = scipy.sparse.csr_array(adjacency)
    parts = (fenced(sparse.data), fenced(sparse.indices, index), fenced(sparse.indptr, index))
    degree = fenced(adjacency.sum(-1), dtype)
    value, wanted = line_reference(*wide(of.g, of.x, adjacency, degree), columns, 0.4)
    launch = launches.sparse_laplacian_launch(of.g, of.x, parts, degree, columns, 0.8, machine)
    launch.run(machine)
    assert_close(launch["value"], value, dtype, size=cancelled(of.x, degree))
    assert_close(of.g, wanted, dtype, size=cancelled(1, degree))


def state(size, dtype, scale=1.0, seed=0):
    """Return p, g, first and second of one tensor."""
    rng = np.random.default_rng(seed)
    p, first, g = (rng.standard_normal(size).astype(dtype) for _ in range(3))
    second = np.square(rng.standard_normal(size)).astype(dtype)
    return fenced(p), fenced(g * dtype(scale)), fenced(first), fenced(second)


def check_tensors(dtype, sizes, adam, machine):
    """Check adam or descend over several tensors, each with its own numbers."""
    tensors = [state(size, dtype, seed=seed) for seed, size in enumerate(sizes)]
    wanted = [wide(*parts) for parts in tensors]
    width, row = 6 if adam else 1, 2
    numbers = np.full((row + 2, width * len(sizes) + 1), np.nan, dtype)
    offsets = [1 + width * position for position in range(len(sizes))][::-1]
    for position, (offset, (p, g, first, second)) in enumerate(zip(offsets, wanted, strict=True)):
        step = 3 + position  # every tensor has numbers of its own
        update = adam_update(first, second, step) if adam else DescentUpdate(RATE * step, step)
        numbers[row, offset : offset + width] = adam_numbers(step) if adam else RATE * step
        reference.apply_updates([p], [g], [update])
    launch = launches.tensors_launch(
        "adam" if adam else "descend", tensors, offsets, fenced(numbers), fenced([row], np.int32), machine
    )
    launch.run(machine)
    for parts, want in zip(tensors, wanted, strict=True):
        check_fences(*parts)
        for got, right in zip(parts, want, strict=True):
            assert_close(got, right, dtype)


def check_mirror(dtype, nodes, machine):
    """Check that the upper triangle is copied below the diagonal, where there was nothing."""
    given = np.random.default_rng(nodes).standard_normal((nodes, nodes)).astype(dtype)
    gram = fenced(np.where(np.tri(nodes, k=-1, dtype=bool), np.nan, given), dtype)
    launches.mirror_launch(gram, machine).run(machine)
    np.testing.assert_array_equal(gram, np.triu(given) + np.triu(given, 1).T)


def check_split(dtype, size, machine):
    """Check that halves add up exactly, and that the first is the nearest of 11 or 26 bits."""
    rng = np.random.default_rng(size)
    x = fenced(rng.standard_normal(size) * np.exp(5 * rng.standard_normal(size)), dtype)
    launch = launches.split_launch(x, machine)
    launch.run(machine)
    high, low = (launch[name].astype(np.longdouble) for name in ("high", "low"))
    np.testing.assert_array_equal(high + low, x.astype(np.longdouble))
    bits = 11 if dtype == np.float32 else 26
    mantissa, exponent = np.frexp(high)
    whole = np.ldexp(mantissa, bits)
    np.testing.assert_array_equal(whole, np.rint(whole))
    assert (np.abs(low) <= np.ldexp(np.longdouble(0.51), exponent - bits)).all()
    for value in (np.inf, np.nan):
        given = fenced([value, 0.0], dtype)
        odd = launches.split_launch(given, machine)
        odd.run(machine)
        assert not np.isfinite(odd["high"][0] + odd["low"][0])
        assert odd["high"][1] == odd["low"][1] == 0


def check_record(dtype, count, batch, capacity, machine):
    """Check record until the cursor is back at the start."""
    rng = np.random.default_rng(count)
    ring, cursor = fenced(np.full((capacity, count, batch), np.nan), dtype), fenced([0], np.int32)
    lines = []
    for line in range(capacity):
        sources = [fenced(rng.standard_normal(batch), dtype) for _ in range(count)]
        assert cursor[0] == line
        launches.record_launch(sources, ring, cursor).run(machine)
        lines.append(np.stack(sources))
        np.testing.assert_array_equal(ring[: line + 1], np.stack(lines))
        assert np.isnan(ring[line + 1 :]).all()
    assert cursor[0] == 0
