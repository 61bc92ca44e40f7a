"""The CPU engine: the operations of ``reference.py`` on NumPy arrays, fused with numba and fed by BLAS.

Everything is done on C-contiguous stacks ``(batch, rows, columns)``; a transposed view is passed to BLAS
as such, never copied. Results are written into the memory that :func:`memory` hands out, so that an
iteration allocates no matrix.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from airnp._arrays import Array
from airnp.engines import _cpu_kernels as kernels
from airnp.engines import threads as pool
from airnp.engines._blas import address
from airnp.engines.buffers import Lending, empty_apart
from airnp.engines.contract import (
    AdamUpdate,
    AdjacencyKind,
    Begin,
    LaplacianTerms,
    Memory,
    Precision,
    Run,
    Step,
    Update,
    VariationKind,
)
from airnp.engines.sparse_cpu import add as add
from airnp.engines.sparse_cpu import decay as decay
from airnp.engines.sparse_cpu import edge_laplacian as edge_laplacian
from airnp.engines.sparse_cpu import edge_terms as edge_terms
from airnp.engines.sparse_cpu import entry_values as entry_values
from airnp.engines.sparse_cpu import gram_factors as gram_factors
from airnp.engines.sparse_cpu import line_sums as line_sums
from airnp.engines.sparse_cpu import multiply as multiply
from airnp.engines.sparse_cpu import residuals as residuals
from airnp.engines.sparse_cpu import total as total
from airnp.engines.tape import Player, call, launch, spoil, step_settings

replays_sparse = True
looks_seldom = False

_SMALL = 16_384
"""Entries below which cutting work into chunks costs more than it gives."""

_SMALL_PRODUCT = 4_000_000
"""Multiplications below which the same holds for a product."""

_SMALL_GRAM = 160, 400
"""Nodes below which one thread, or several, gain nothing from the symmetry of a Gram matrix."""

_ALIKE = 1.5
"""How many times as many nodes a graph may have as one that another thread computes meanwhile."""


def _matmul(a: Array, b: Array, out: Array) -> Array:
    call(np.matmul, a, b, out)
    return out


def _zeros(shape: Any, dtype: Any) -> Array:
    zeros = empty_apart(shape, dtype)
    zeros[...] = 0
    return zeros


def _chunks(work: int, small: int | None = None) -> int:
    count = pool.current_threads()
    return 1 if count == 1 or work < (_SMALL if small is None else small) * count else count


def _stack(a: Array) -> Array:
    """Return a C-contiguous array as a stack of matrices, without copying."""
    return a[None] if a.ndim == 2 else a.reshape(-1, a.shape[-2], a.shape[-1])


def _copied(a: Array) -> Array:
    """Return a C-contiguous copy; a record of this iteration would use the old one, so it is not whole."""
    spoil()
    return np.array(a, order="C")


def _contiguous(a: Array) -> Array:
    return a if a.flags.c_contiguous else _copied(a)


def _readable(a: Array) -> Array:
    """Return ``a`` as a C-contiguous stack; copies only what is not contiguous."""
    return _stack(_contiguous(a))


def _operand(a: Array) -> tuple[Array, bool]:
    """Return a C-contiguous stack and whether its matrices are the transposes of those of ``a``."""
    if a.flags.c_contiguous:
        return _stack(a), False
    turned = a.swapaxes(-1, -2)
    if turned.flags.c_contiguous:
        return _stack(turned), True
    return _readable(a), False


def _writable(a: Array) -> Array:
    """Return ``a`` if a kernel can write to it in place, else a C-contiguous copy."""
    return a if a.flags.c_contiguous and a.flags.writeable else _copied(a)


def _multiply(chunks: int, c: Array, a: Array, b: Array, alpha: float, beta: float) -> Array:
    scalar = c.dtype.type
    launch(
        kernels.multiply,
        chunks,
        address("gemm", c.dtype),
        *_operand(a),
        *_operand(b),
        _stack(c),
        scalar(alpha),
        scalar(beta),
    )
    return c


def product(
    a: Array,
    b: Array,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    out: Array | None = None,
) -> Array:
    """Return ``op(a) @ op(b)``, shape (…, m, n), where op transposes on request."""
    a = a.swapaxes(-1, -2) if transpose_a else a
    b = b.swapaxes(-1, -2) if transpose_b else b
    if out is None:
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        out = empty_apart((*batch, a.shape[-2], b.shape[-1]), a.dtype)
    chunks = _chunks(out.size * a.shape[-1], _SMALL_PRODUCT)
    return _matmul(a, b, out) if chunks == 1 else _multiply(chunks, out, a, b, 1.0, 0.0)


def add_product(c: Array, a: Array, b: Array, *, alpha: float) -> Array:
    """Return ``c + alpha · a @ b``."""
    return _multiply(_chunks(c.size * a.shape[-1], _SMALL_PRODUCT), _writable(c), a, b, alpha, 1.0)


def gram(x: Array, *, columns: bool = False, out: Array | None = None) -> Array:
    """Return the products of all pairs of rows of ``x``, K = x xᵀ, or of all pairs of columns, K = xᵀ x."""
    z = x.swapaxes(-1, -2) if columns else x
    if out is None:
        out = empty_apart((*z.shape[:-1], z.shape[-2]), z.dtype)
    if _waiting.graphs is None:
        _multiply_by_itself(z, out)
    else:
        _waiting.graphs.append(_Graph(z, out))
    return out


def _multiply_by_itself(z: Array, out: Array) -> None:
    chunks = _chunks(out.size * z.shape[-1], _SMALL_PRODUCT)
    if z.shape[-2] < _SMALL_GRAM[chunks > 1]:
        _multiply(chunks, out, z, z.swapaxes(-1, -2), 1.0, 0.0)
        return
    scalar = z.dtype.type
    routines = address("gemm", z.dtype), address("syrk", z.dtype)
    launch(kernels.symmetric_product, chunks, *routines, *_operand(z), _stack(out), scalar(1), scalar(0))
    launch(kernels.mirror, chunks, _stack(out))


@dataclass
class _Graph:
    """A Gram matrix that is wanted, and what is wanted from it.

    Attributes
    ----------
    z, gram : arrays
        K = z zᵀ is to be written to ``gram``.
    terms : tuple
        2 λ, where the degrees go, and the arguments of the kernel ``row_graph``; empty if only K is wanted.
    """

    z: Array
    gram: Array
    terms: tuple[Any, ...] = ()

    def compute(self) -> None:
        """Compute all that is wanted, with all threads."""
        _multiply_by_itself(self.z, self.gram)
        if self.terms:
            _compute_row_graph(*self.terms)

    @property
    def arguments(self) -> tuple[Any, ...]:
        """Those of this graph for the kernel ``two_row_graphs``."""
        dtype = self.z.dtype
        routines = address("gemm", dtype), address("syrk", dtype)
        return (*routines, *_operand(self.z), dtype.type(1), dtype.type(0), *self.terms)


class _Waiting(threading.local):
    graphs: list[_Graph] | None = None


_waiting = _Waiting()


@contextmanager
def together() -> Iterator[None]:
    """Let two learned graphs wait until both are known, if there are two threads: each then computes one.

    A thread that has a graph for itself multiplies only half of a Gram matrix, starts once instead of four
    times, and finds the matrices in its own cache.
    """
    if pool.current_threads() != 2:
        yield
        return
    graphs = _waiting.graphs = []
    try:
        yield
    finally:
        _waiting.graphs = None
    if _are_alike(graphs):
        launch(kernels.two_row_graphs, 2, *(graph.arguments for graph in graphs))
    else:
        for graph in graphs:
            graph.compute()


def _waiting_for(gram: Array, *, terms_too: bool) -> _Graph | None:
    """Return the graph that waits with this Gram matrix; if its terms cannot wait, too, compute it: None."""
    graphs = _waiting.graphs or []
    place = next((place for place, graph in enumerate(graphs) if graph.gram is gram), None)
    if place is None or terms_too:
        return None if place is None else graphs[place]
    graphs.pop(place).compute()
    return None


def _are_alike(graphs: Sequence[_Graph]) -> bool:
    """Return whether these are two graphs that take about as long, and long enough to share."""
    nodes = sorted(graph.gram.shape[-1] for graph in graphs)
    whole = len(graphs) == 2 and all(graph.terms for graph in graphs)
    return whole and nodes[1] <= _ALIKE * nodes[0] and _chunks(2 * graphs[0].gram.size) > 1


def _compute_row_graph(twice: Any, pull: Array, *form: Any) -> None:
    """Compute the terms and the degrees of a graph with all threads."""
    stack, half = form[8], form[2]
    chunks = _chunks(stack.size)
    launch(kernels.row_graph, chunks, *form)
    launch(kernels.symmetrize, chunks, stack, half)
    launch(kernels.row_sums, chunks, stack, twice, pull)


def adjacency(kind: AdjacencyKind, v: Array) -> Array:
    """Return the symmetric, non-negative adjacency A (…, k, k) of the free matrix V (…, k, k)."""
    return laplacian_terms(kind, v, np.zeros(v.shape, v.dtype), weight=0.0).adjacency


def _moments(update: AdamUpdate) -> tuple[Array, Array]:
    """Return both moments, made contiguous if they are not: a kernel writes to them."""
    moments = update.moments
    moments.first, moments.second = _writable(moments.first), _writable(moments.second)
    return moments.first, moments.second


def laplacian_terms(
    kind: AdjacencyKind,
    v: Array,
    gram: Array,
    *,
    weight: float,
    update: Update | None = None,
    out: Array | None = None,
) -> LaplacianTerms:
    """Return the learned graph's energy, adjacency, degrees, and the gradient of V (or update V by it).

    The formulas are those of :func:`airnp.engines.reference.laplacian_terms`. Adam's step is made in the
    pass that computes the gradient, except for "product" and where a matrix has one second moment, which
    needs the whole gradient first.
    """
    v = v if update is None else _writable(v)
    a = empty_apart(v.shape, v.dtype) if out is None else out
    adam = isinstance(update, AdamUpdate) and update.second_moment == "entry" and kind != "product"
    gradient = None if adam else empty_apart(v.shape, v.dtype)
    values, products, stack, scalar = _readable(v), _readable(gram), _stack(a), v.dtype.type
    slopes = stack if gradient is None else _stack(gradient)
    lines = empty_apart((4, *values.shape[:2]), v.dtype)
    norms, energies, pull = lines[:3]
    energy = empty_apart(len(values))
    chunks, half = _chunks(v.size), scalar(0.5 if kind == "row" else 1.0)
    step: tuple[Any, ...] = (adam, stack, stack, np.zeros(6, v.dtype))
    if adam and isinstance(update, AdamUpdate):
        step = (adam, *map(_stack, _moments(update)), step_settings(update, v.dtype))
    graph = _waiting_for(gram, terms_too=kind == "row" and adam)
    if kind == "row":
        sums = (norms, energies, energy)
        form = (values, products, half, scalar(weight), *step, stack, slopes, *sums)
        terms = (scalar(2 * weight), pull, *form)
        if graph is None:
            _compute_row_graph(*terms)
        else:
            graph.terms = terms
    else:
        tops, inverses = lines[2:]
        launch(kernels.maxima, chunks, values, tops)
        launch(kernels.exponentials, chunks, values, tops, kind == "global", stack, inverses)
        at = (values, tops, inverses)
        if kind == "global":
            launch(kernels.global_energies, chunks, stack, inverses, products, norms, energies, energy)
            form = (stack, products, norms, energy, scalar(weight), step[0], values, *step[1:])
            launch(kernels.global_step, chunks, *form, slopes)
        else:
            launch(kernels.pair_adjacency, chunks, *at, products, stack, norms, energies, energy)
            form = (stack, products, norms, energy, scalar(weight))
            launch(kernels.pair_gradient, chunks, *at, *form, slopes)
        # For "product" this only makes the last bits of both sides equal.
        launch(kernels.symmetrize, chunks, stack, scalar(0.5) if kind == "product" else half)
        launch(kernels.row_sums, chunks, stack, scalar(2 * weight), pull)
    if gradient is not None and update is not None:
        apply_updates([v], [gradient], [update])
        gradient = None
    return LaplacianTerms(energy.reshape(v.shape[:-2]), a, pull.reshape(v.shape[:-1]), gradient, v)


def _line_scales(x: Array, row_scale: Array | None, column_scale: Array | None) -> tuple[Array, Array]:
    """Return scales of shape (batch, m) and (batch, n), zero where none was given."""
    batch, m, n = x.shape
    rows = _zeros((batch, m), x.dtype) if row_scale is None else row_scale.reshape(batch, m)
    columns = _zeros((batch, n), x.dtype) if column_scale is None else column_scale.reshape(batch, n)
    return rows, columns


def residual(
    x: Array,
    y: Array,
    weights: Array,
    *,
    scale: float,
    huber_delta: float | None = None,
    row_scale: Array | None = None,
    column_scale: Array | None = None,
    out: Array | None = None,
) -> tuple[Array, Array]:
    """Return the fidelity F and its gradient, with the diagonal parts of the Laplacians added."""
    gradient = empty_apart(x.shape, x.dtype) if out is None else out
    current, scalar = _readable(x), x.dtype.type
    value = empty_apart(len(current))
    launch(
        kernels.masked_residual,
        _chunks(x.size),
        current,
        _readable(y),
        _readable(weights),
        scalar(scale),
        scalar(-1 if huber_delta is None else huber_delta),
        *_line_scales(current, row_scale, column_scale),
        _stack(gradient),
        empty_apart(current.shape[:2], x.dtype),
        value,
    )
    return value.reshape(x.shape[:-2]), gradient


def scale_lines(g: Array, x: Array, row_scale: Array | None, column_scale: Array | None) -> Array:
    """Return ``g + row_scale ⊙ x + x ⊙ column_scale`` for scales of shape (…, m) and (…, n)."""
    g, current = _writable(g), _readable(x)
    scales = _line_scales(current, row_scale, column_scale)
    launch(kernels.add_scaled_lines, _chunks(x.size), _stack(g), current, *scales)
    return g


def fixed_laplacian(
    g: Array, z: Array, adjacency: Any, degree: Array, *, weight: float
) -> tuple[Array, Array]:
    """Return R = tr(zᵀ L z) and g + 2 λ L z, with L = diag(degree) − adjacency given and symmetric.

    When ``z`` is the transpose of a C-contiguous matrix x, all is done on x, whose columns are the nodes.
    """
    turned = not z.flags.c_contiguous and z.swapaxes(-1, -2).flags.c_contiguous
    x, target = (z.swapaxes(-1, -2), g.swapaxes(-1, -2)) if turned else (_contiguous(z), g)
    target = _writable(target)
    current, slopes = _stack(x), _stack(target)
    values = empty_apart(current.shape[:2], z.dtype)
    energy = empty_apart(len(current))
    scale, chunks = z.dtype.type(2 * weight), _chunks(z.size)
    if isinstance(adjacency, np.ndarray):
        neighbours = product(x, adjacency) if turned else product(adjacency, x)
        none = _zeros((1, current.shape[1 if turned else 2]), z.dtype)
        given = degree.reshape(-1, degree.shape[-1])
        degrees = (none, given) if turned else (given, none)
        launch(
            kernels.add_laplacian,
            chunks,
            slopes,
            current,
            _stack(neighbours),
            *degrees,
            scale,
            values,
            energy,
        )
    else:
        kernel = kernels.add_sparse_laplacian_of_columns if turned else kernels.add_sparse_laplacian_of_rows
        graph = (adjacency.data, adjacency.indices, adjacency.indptr)
        launch(kernel, chunks, slopes, current, *graph, degree, scale, values, energy)
    return energy.reshape(z.shape[:-2]), target.swapaxes(-1, -2) if turned else target


def total_variation(
    g: Array, x: Array, *, kind: VariationKind, epsilon: float, weight: float
) -> tuple[Array, Array]:
    """Return the variation R(x) over neighbours in rows and columns, and g + λ ∇R."""
    g, current = _writable(g), _readable(x)
    values, energy = empty_apart(current.shape[:2], x.dtype), empty_apart(len(current))
    scalar, chunks = x.dtype.type, _chunks(x.size)
    launch(
        kernels.add_variation,
        chunks,
        _stack(g),
        current,
        kind == "quadratic",
        scalar(epsilon),
        scalar(weight),
        empty_apart((chunks, x.shape[-1]), x.dtype),
        values,
        energy,
    )
    return energy.reshape(x.shape[:-2]), g


def apply_updates(params: Sequence[Array], grads: Sequence[Array], updates: Sequence[Update]) -> list[Array]:
    """Carry out one update per parameter, in place."""
    moved = []
    for param, grad, update in zip(params, grads, updates, strict=True):
        target, chunks = _writable(param), _chunks(param.size)
        slopes, settings = _contiguous(grad), step_settings(update, target.dtype)
        if not isinstance(update, AdamUpdate):
            launch(kernels.descend, chunks, target.reshape(-1), slopes.reshape(-1), settings)
        elif update.second_moment == "matrix":
            _move_matrices(chunks, target, slopes, *_moments(update), settings)
        else:
            arrays = (target, slopes, *_moments(update))
            launch(kernels.adam, chunks, *(array.reshape(-1) for array in arrays), settings)
        moved.append(target)
    return moved


def _move_matrices(
    chunks: int, param: Array, grad: Array, first: Array, second: Array, settings: Array
) -> None:
    """Make Adam's step with one second moment for each matrix of a stack."""
    lines = second.size, param.size // max(second.size, 1)
    partial = empty_apart((lines[0], max(-(-lines[1] // kernels.PIECE), 1)))
    values, slopes, mean, square = (*(a.reshape(lines) for a in (param, grad, first)), second.reshape(-1))
    launch(kernels.mean_squares, chunks, slopes, square, settings, partial)
    launch(kernels.adam_of_matrices, chunks, values, slopes, mean, square, settings)


def memory(like: Array) -> Memory:
    """Return memory for the intermediates of many iterations: each array is made once."""
    return Lending(lambda shape: empty_apart(shape, like.dtype))


def prepare(
    begin: Begin,
    step: Step,
    *,
    replayable: bool = False,
    threads: int | None = None,
    precision: Precision | None = None,
) -> Run:
    """Return a function that makes so many iterations and brings back what they recorded.

    The first iteration of a replayable step is recorded, and the others play the record, with one thread
    where that is quicker.
    """
    count = pool.checked_threads(threads)
    player = Player(begin, step, replayable)
    pace: pool.Pace | None = None

    def paced() -> Sequence[Array]:
        # The iteration that is recorded may compile: its time says nothing.
        return pace.run(player.iterate) if player.is_recorded and pace is not None else player.iterate()

    def run(iterations: int) -> npt.NDArray[np.float64]:
        nonlocal pace
        with pool.using(count) as several:
            if pace is not None:
                pace.resume()
            elif several > 1:
                pace = pool.Pace(several, pool.let_work)
            return np.asarray([np.array(paced()) for _ in range(iterations)], dtype=np.float64)

    return run
