"""The CUDA engine: the operations of ``reference.py`` on CuPy arrays, by fused kernels and cuBLAS.

The kernels are in ``kernels/*.cu``. The first iteration of a run is executed and recorded, the recording is
captured into a CUDA graph, and the other iterations launch that graph: they neither allocate, nor copy from
the host, nor wait for the device. The numbers of each optimiser step and the recorded values are in tables on
the device, at a cursor that the last kernel of an iteration advances.
"""

from __future__ import annotations

import math
import threading
import warnings
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace

from airnp._arrays import Array
from airnp._devices import warn_of_slow_double
from airnp.engines import _cublas, reference
from airnp.engines.buffers import Lending
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
    numbers,
)
from airnp.engines.launching import THREADS, Recording, call, launch
from airnp.engines.sparse_cuda import add as add
from airnp.engines.sparse_cuda import decay as decay
from airnp.engines.sparse_cuda import edge_laplacian as edge_laplacian
from airnp.engines.sparse_cuda import edge_terms as edge_terms
from airnp.engines.sparse_cuda import entry_values as entry_values
from airnp.engines.sparse_cuda import gram_factors as gram_factors
from airnp.engines.sparse_cuda import line_sums as line_sums
from airnp.engines.sparse_cuda import multiply as multiply
from airnp.engines.sparse_cuda import residuals as residuals
from airnp.engines.sparse_cuda import total as total

replays_sparse = False
looks_seldom = True

CAPACITY = 128
"""Iterations between two synchronisations: rows of the tables of step numbers and of recorded values."""

_KINDS = {"row": 0, "global": 1, "product": 2}
_TILE, _ROWS_OF_BLOCK = 32, 8
_HALVED = 512
"""Nodes from which on half of a Gram matrix is computed and mirrored."""

_MOST_BLOCKS = {"graph": 2048, "entries": 1024, "adam": 4096, "second": 65535}


class _Local(threading.local):
    iteration: _Iteration | None = None
    halves: Lending | None = None
    """Where products of split operands have these, in a run that asks for them."""


_local = _Local()


def _stack(a: Array) -> Array:
    """Return a C-contiguous array as a stack of matrices, without copying."""
    return a.reshape(-1, a.shape[-2], a.shape[-1])


def _copy(a: Array) -> Array:
    """Return a C-contiguous copy. A replay would read the old copy, so the iteration is not replayable."""
    import cupy

    if _local.iteration is not None:
        _local.iteration.is_replayable = False
    return cupy.ascontiguousarray(a)


def _contiguous(a: Array) -> Array:
    return a if a.flags.c_contiguous else _copy(a)


def _operand(a: Array) -> tuple[Array, bool]:
    """Return a C-contiguous stack and whether its matrices are the transposes of those of ``a``."""
    if a.flags.c_contiguous:
        return _stack(a), False
    turned = a.swapaxes(-1, -2)
    if turned.flags.c_contiguous:
        return _stack(turned), True
    return _stack(_copy(a)), False


def _empty(shape: tuple[int, ...], like: Array) -> Array:
    import cupy

    return cupy.empty(shape, dtype=like.dtype)


def _float32(shape: tuple[int, ...]) -> Array:
    import cupy

    return cupy.empty(shape, dtype=cupy.float32)


def _tickets(count: int) -> Array:
    """Return counters that identify the last block of a sum; they are zero before and after a launch."""
    import cupy

    return cupy.zeros(count, dtype=cupy.uint32)


def _depth_of_grid(batch: int) -> int:
    return min(batch, _MOST_BLOCKS["second"])


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
        out = _empty((*batch, a.shape[-2], b.shape[-1]), a)
    _multiply(out, a, b)
    return out


def add_product(c: Array, a: Array, b: Array, *, alpha: float) -> Array:
    """Return ``c + alpha · a @ b``."""
    c = _contiguous(c)
    _multiply(c, a, b, alpha, 1.0)
    return c


def _multiply(c: Array, a: Array, b: Array, alpha: float = 1.0, beta: float = 0.0) -> None:
    """Queue c ← alpha · a @ b + beta · c.

    With split operands, a = a' + a" and b = b' + b", the product is a" b' + a' b" + a' b', the small parts
    first; a" b" is below the rounding of float32.
    """
    target, (left, turned), (right, other_turned) = _stack(c), _operand(a), _operand(b)
    halves = _local.halves if c.dtype == np.float32 else None
    if halves is None:
        _gemm(target, left, turned, right, other_turned, alpha, beta)
        return
    parts = [_split(left, halves)]
    same = right.data.ptr == left.data.ptr and right.shape == left.shape
    parts.append(parts[0] if same else _split(right, halves))
    for first, second in ((1, 0), (0, 1), (0, 0)):
        _gemm(target, parts[0][first], turned, parts[1][second], other_turned, alpha, beta)
        beta = 1.0
    for half in {id(half): half for pair in parts for half in pair}.values():
        halves.give(half)


def _gemm(c: Array, a: Array, turned: bool, b: Array, other_turned: bool, alpha: float, beta: float) -> None:
    call(_cublas.gemm, c, a, turned, b, other_turned, alpha, beta, reads=(a, b), writes=(c,))


def _split(x: Array, halves: Lending) -> tuple[Array, Array]:
    """Return the leading bits of each entry, and the others."""
    high, low = halves.take(x.shape), halves.take(x.shape)
    grid = (min(math.ceil(x.size / THREADS), _MOST_BLOCKS["adam"]),)
    launch("split", "split", (x.dtype,), grid, x, high, low, x.size)
    return high, low


def gram(x: Array, *, columns: bool = False, out: Array | None = None) -> Array:
    """Return the products of all pairs of rows of ``x``, K = x xᵀ, or of all pairs of columns, K = xᵀ x.

    Half of K, which is symmetric, is enough for one large matrix; for a small one, a second launch, which
    mirrors that half, would cost more than it saves.
    """
    nodes = x.shape[-1] if columns else x.shape[-2]
    halved = nodes >= _HALVED and math.prod(x.shape[:-2]) == 1 and _local.halves is None
    if not halved:
        return product(x, x, transpose_a=columns, transpose_b=not columns, out=out)
    stack, turned = _operand(x)
    out = _empty((*x.shape[:-2], nodes, nodes), x) if out is None else out
    call(_cublas.syrk, _stack(out)[0], stack[0], columns != turned, reads=(stack,), writes=(out,))
    strips = math.ceil(nodes / _TILE)
    blocks = min(strips * (strips + 1) // 2, _MOST_BLOCKS["graph"])
    launch("laplacian", "mirror", (x.dtype,), (blocks,), out, nodes)
    return out


def together() -> AbstractContextManager[None]:
    """Return a context that changes nothing: what is asked for is computed at once."""
    return nullcontext()


def adjacency(kind: AdjacencyKind, v: Array) -> Array:
    """Return the symmetric, non-negative adjacency A (…, k, k) of the free matrix V (…, k, k)."""
    return laplacian_terms(kind, v, array_namespace(v).zeros_like(v), weight=0.0).adjacency


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

    Two launches: statistics of the softmax with the energy, then the rest over pairs of tiles, including
    Adam's step of V.
    """
    v = _contiguous(v)
    stack, products = _stack(v), _stack(_contiguous(gram))
    batch, nodes = stack.shape[:2]
    dtype, depth = v.dtype, _depth_of_grid(batch)
    strips = math.ceil(nodes / _TILE)
    pairs = strips * (strips + 1) // 2
    blocks = min(pairs if kind == "product" else math.ceil(nodes / _ROWS_OF_BLOCK), _MOST_BLOCKS["graph"])
    energy = _empty(v.shape[:-2], v)
    statistics = _empty((batch, 3, nodes) if kind == "row" else (batch, 3), v)
    launch(
        "laplacian",
        "graph_statistics",
        (dtype, _KINDS[kind]),
        (blocks, 1, depth),
        *(stack, products, statistics, energy, _empty((6 * batch * blocks,), v), _tickets(batch)),
        *(batch, nodes),
    )
    a = _empty(v.shape, v) if out is None else out
    pull = _empty(v.shape[:-1], v)
    adam = _is_fused(update)
    gradient = None if adam else _empty(v.shape, v)
    step: tuple[Any, ...] = (None, None, None, None, 0, 0)
    if adam and isinstance(update, AdamUpdate):
        table, cursor, width, (offset,) = _step_numbers([update], v)
        step = (*_moments(update), table, cursor, width, offset)
    launch(
        "laplacian",
        "graph_step",
        (dtype, _KINDS[kind], adam),
        (pairs, 1, depth),
        *(stack, products, statistics, weight, a, pull, gradient, *step),
        *(_empty((batch * strips * nodes,), v), _tickets(batch * strips), batch, nodes),
    )
    if gradient is not None and update is not None:
        apply_updates([v], [gradient], [update])
        gradient = None
    return LaplacianTerms(energy, a, pull, gradient, v)


def _is_fused(update: Update | None) -> bool:
    """Return whether a kernel can do this Adam step; one second moment per matrix needs a sum first."""
    return isinstance(update, AdamUpdate) and update.second_moment == "entry"


def _moments(update: AdamUpdate) -> tuple[Array, Array]:
    moments = update.moments
    moments.first, moments.second = _contiguous(moments.first), _contiguous(moments.second)
    return moments.first, moments.second


def _blocks_of_entries(stack: Array) -> int:
    entries = int(stack.shape[1]) * int(stack.shape[2])
    return min(math.ceil(entries / THREADS), _MOST_BLOCKS["entries"])


def _sum_over_blocks(stack: Array) -> tuple[tuple[int, int, int], Array, Array]:
    """Return the grid of an entrywise kernel that sums, its space for partial sums, and its tickets."""
    batch, blocks = stack.shape[0], _blocks_of_entries(stack)
    return (blocks, 1, _depth_of_grid(batch)), _empty((2 * batch * blocks,), stack), _tickets(batch)


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
    current = _stack(_contiguous(x))
    gradient = _empty(x.shape, x) if out is None else out
    value = _empty(x.shape[:-2], x)
    grid, partial, tickets = _sum_over_blocks(current)
    launch(
        "residual",
        "masked_residual",
        (x.dtype, huber_delta is not None),
        grid,
        *(current, _contiguous(y), _contiguous(weights), gradient, scale, huber_delta or 0.0),
        *(_scales(row_scale), _scales(column_scale), partial, tickets, value, *current.shape),
    )
    return value, gradient


def _scales(scale: Array | None) -> Array | None:
    return None if scale is None else _contiguous(scale)


def scale_lines(g: Array, x: Array, row_scale: Array | None, column_scale: Array | None) -> Array:
    """Return ``g + row_scale ⊙ x + x ⊙ column_scale`` for scales of shape (…, m) and (…, n)."""
    g, current = _contiguous(g), _stack(_contiguous(x))
    grid = (_blocks_of_entries(current), 1, _depth_of_grid(current.shape[0]))
    scales = (_scales(row_scale), _scales(column_scale))
    launch("residual", "add_scaled_lines", (x.dtype,), grid, g, current, *scales, *current.shape)
    return g


def fixed_laplacian(
    g: Array, z: Array, adjacency: Any, degree: Array, *, weight: float
) -> tuple[Array, Array]:
    """Return R = tr(zᵀ L z) and g + 2 λ L z, with L = diag(degree) − adjacency given and symmetric.

    If ``z`` is the transpose of a C-contiguous matrix x, the kernels work on x, whose columns are the nodes.
    """
    import cupy

    turned = not z.flags.c_contiguous and z.swapaxes(-1, -2).flags.c_contiguous
    x, target = (z.swapaxes(-1, -2), g.swapaxes(-1, -2)) if turned else (_contiguous(z), g)
    target, current = _contiguous(target), _stack(x)
    grid, partial, tickets = _sum_over_blocks(current)
    value = _empty(z.shape[:-2], z)
    sums = (2 * weight, partial, tickets, value, *current.shape)
    if isinstance(adjacency, cupy.ndarray):
        neighbours = product(x, adjacency) if turned else product(adjacency, x)
        degrees = (None, degree) if turned else (degree, None)
        graphs = math.prod(degree.shape[:-1])
        arguments = (target, current, neighbours, *degrees, graphs, *sums)
        launch("fixed_graph", "add_laplacian", (z.dtype,), grid, *arguments)
    else:
        edges = _edges_of_columns(adjacency) if turned else _edges_of_rows(adjacency)
        index = "int" if edges[1].dtype == np.int32 else "long long"
        variant = (z.dtype, index, turned)
        launch("fixed_graph", "add_sparse_laplacian", variant, grid, target, current, *edges, degree, *sums)
    return value, target.swapaxes(-1, -2) if turned else target


def _edges_of_rows(adjacency: Any) -> tuple[Array, ...]:
    """Return weights and ends of edges, and where those of each node begin and end."""
    return adjacency.data, adjacency.indices, adjacency.indptr[:-1], adjacency.indptr[1:]


_interleaved: dict[int, tuple[Array, ...]] = {}
"""By the identity of a graph, for as long as it exists: CuPy's sparse matrices cannot be keys."""


def _edges_of_columns(adjacency: Any) -> tuple[Array, ...]:
    """Return the same, interleaved; computed once for a graph."""
    import cupy

    key = id(adjacency)
    if key not in _interleaved:
        parts = (adjacency.data, adjacency.indices, adjacency.indptr)
        _interleaved[key] = tuple(map(cupy.asarray, interleaved(*(part.get() for part in parts))))
        weakref.finalize(adjacency, _interleaved.pop, key, None)
    return _interleaved[key]


def interleaved(
    data: npt.NDArray[Any], indices: npt.NDArray[Any], indptr: npt.NDArray[Any]
) -> tuple[npt.NDArray[Any], ...]:
    """Return a graph in CSR form so that the k-th edges of 32 nodes in a row lie side by side.

    Parameters
    ----------
    data, indices : array (e,)
    indptr : array (nodes + 1,)

    Returns
    -------
    data, indices : array (e',)
        Each 32 nodes have room for as many edges as the one with the most needs.
    first, last : array (nodes,)
        A node's edges are at every 32nd place from its first until, exclusively, its last.
    """
    starts = indptr[:-1].astype(np.int64)
    counts = indptr[1:] - starts
    nodes = np.arange(counts.size)
    most = np.maximum.reduceat(counts, nodes[::_TILE])
    strips = _TILE * (np.cumsum(most) - most)
    first = strips[nodes // _TILE] + nodes % _TILE
    places = np.repeat(first - _TILE * starts, counts) + _TILE * np.arange(data.size)
    room = _TILE * int(most.sum())
    index = indices.dtype if room <= np.iinfo(np.int32).max else np.dtype(np.int64)
    weights, ends = np.zeros(room, data.dtype), np.zeros(room, index)
    weights[places], ends[places] = data, indices
    return weights, ends, first.astype(index), (first + _TILE * counts).astype(index)


def total_variation(
    g: Array, x: Array, *, kind: VariationKind, epsilon: float, weight: float
) -> tuple[Array, Array]:
    """Return the variation R(x) over neighbours in rows and columns, and g + λ ∇R."""
    g, current = _contiguous(g), _stack(_contiguous(x))
    grid, partial, tickets = _sum_over_blocks(current)
    value = _empty(x.shape[:-2], x)
    variant, sums = (x.dtype, kind == "quadratic"), (partial, tickets, value, *current.shape)
    launch("variation", "add_variation", variant, grid, g, current, weight, epsilon, *sums)
    return value, g


def apply_updates(params: Sequence[Array], grads: Sequence[Array], updates: Sequence[Update]) -> list[Array]:
    """Apply one update per parameter, in place: one launch for all entrywise Adam steps.

    One second moment per matrix has no kernel: CuPy computes those steps, and an iteration with them is
    executed step by step instead of being launched as a CUDA graph.
    """
    targets = [_contiguous(param) for param in params]
    slopes = [_contiguous(grad) for grad in grads]
    for kernel in ("adam", "descend", None):
        chosen = [i for i, update in enumerate(updates) if _kernel(update) == kernel]
        group = [[arrays[i] for i in chosen] for arrays in (targets, slopes, updates)]
        if chosen and kernel is None:
            if _local.iteration is not None:
                _local.iteration.is_replayable = False
            reference.apply_updates(*group)
        elif chosen and kernel is not None:
            _update_all(kernel, *group)
    return targets


def _kernel(update: Update) -> str | None:
    """Return the name of the kernel for an update, or None if there is none."""
    if _is_fused(update):
        return "adam"
    return None if isinstance(update, AdamUpdate) else "descend"


def _update_all(
    kernel: str, targets: Sequence[Array], slopes: Sequence[Array], updates: Sequence[Update]
) -> None:
    import cupy

    table, cursor, width, offsets = _step_numbers(updates, targets[0])
    rows = []
    used: list[Array] = []
    for target, slope, update, offset in zip(targets, slopes, updates, offsets, strict=True):
        moments = _moments(update) if isinstance(update, AdamUpdate) else ()
        addresses = [moment.data.ptr for moment in moments] or [0, 0]
        rows.append([target.data.ptr, slope.data.ptr, *addresses, target.size, offset])
        used += [target, slope, *moments]
    tensors = cupy.asarray(np.array(rows, dtype=np.int64))
    if _local.iteration is not None:
        _local.iteration.keep(used)  # the table holds addresses only
    largest = max(target.size for target in targets)
    grid = (min(math.ceil(largest / THREADS), _MOST_BLOCKS["adam"]), min(len(rows), _MOST_BLOCKS["second"]))
    arguments = (tensors, len(rows), table, cursor, width)
    launch("adam", kernel, (targets[0].dtype,), grid, *arguments, through=used)


def _step_numbers(updates: Sequence[Update], like: Array) -> tuple[Array, Array, int, list[int]]:
    """Return the table of step numbers, the cursor, the width of a row, and each update's offset in it."""
    import cupy

    if _local.iteration is not None:
        iteration = _local.iteration
        offsets = [iteration.offset(update) for update in updates]
        return iteration.table(like.dtype), iteration.cursor, iteration.width, offsets
    row = [number for update in updates for number in numbers(update)]
    lengths = [len(numbers(update)) for update in updates]
    table = cupy.asarray(np.array([row], dtype=like.dtype))
    return table, cupy.zeros(1, dtype=cupy.int32), len(row), _starts(lengths)


def _starts(lengths: Sequence[int]) -> list[int]:
    return [sum(lengths[:position]) for position in range(len(lengths))]


def memory(like: Array) -> Memory:
    """Return memory for the intermediates of many iterations, whose arrays are reused.

    Every fit begins with this call, so it warns where the device is slow in the dtype of the fit.
    """
    if like.dtype == np.float64:
        warn_of_slow_double(like.device.id)
    return Lending(lambda shape: _empty(shape, like), resting=2)


class _Iteration:
    """One iteration as a list of launches, with its tables on the device."""

    def __init__(self, updates: Sequence[Update]) -> None:
        import cupy

        self.is_replayable = True
        self.cursor = cupy.zeros(1, dtype=cupy.int32)
        lengths = [len(numbers(update)) for update in updates]
        self.width = max(sum(lengths), 1)
        self._updates, self._offsets = updates, _starts(lengths)
        self._tables: dict[Any, Array] = {}
        self._rows: npt.NDArray[np.float64] = np.zeros((0, self.width))
        self._recording = Recording()
        self._kept: list[Array] = []
        self._ring: Array = None
        self._batch: tuple[int, ...] = ()

    def offset(self, update: Update) -> int:
        """Return the offset of an update's numbers in a row of the table."""
        position = next(i for i, known in enumerate(self._updates) if known is update)
        return self._offsets[position]

    def keep(self, arrays: Sequence[Array]) -> None:
        """Hold references to arrays whose addresses the recording contains."""
        self._kept += arrays

    def table(self, dtype: Any) -> Array:
        """Return the step numbers on the device, in a dtype."""
        import cupy

        if dtype not in self._tables:
            self._tables[dtype] = cupy.empty((CAPACITY, self.width), dtype=dtype)
            self._fill(dtype)
        return self._tables[dtype]

    def _fill(self, dtype: Any) -> None:
        self._tables[dtype][: len(self._rows)].set(self._rows.astype(dtype))

    def load(self, steps: Sequence[Sequence[Update]]) -> None:
        """Copy the numbers of the next iterations to the device and reset the cursor."""
        self._rows = np.zeros((len(steps), self.width))
        for row, updates in zip(self._rows, steps, strict=True):
            flat = [number for update in updates for number in numbers(update)]
            row[: len(flat)] = flat
        for dtype in self._tables:
            self._fill(dtype)
        self.cursor.set(np.zeros(1, np.int32))

    def record(self, step: Step) -> Sequence[Array]:
        """Run the iteration and note its launches, with a last one that records its values."""
        import cupy

        _local.iteration = self
        try:
            with self._recording:
                values = step(self._updates)
                if self.is_replayable:
                    self._batch = values[0].shape
                    size = math.prod(self._batch)
                    self._ring = cupy.empty((CAPACITY, len(values), size), dtype=values[0].dtype)
                    addresses = np.array([value.data.ptr for value in values], dtype=np.int64)
                    self.keep(values)
                    sources = cupy.asarray(addresses)
                    counts = (len(values), size, self._ring, self.cursor, CAPACITY)
                    variant = (values[0].dtype,)
                    launch("record", "record", variant, (1,), sources, *counts, through=values)
        finally:
            _local.iteration = None
        return values

    def replay(self, streams: Sequence[Any]) -> Callable[[], None]:
        """Return a function that queues the whole iteration by launching a CUDA graph.

        In the graph, what shares no memory runs side by side: it is captured on several streams. If a driver
        or library refuses to be captured, the function launches the kernels one by one, which is slower and
        gives the same results.
        """
        import cupy

        try:
            graph = self._capture(streams)
        except RuntimeError as error:
            warnings.warn(
                f"the iteration could not be captured as a CUDA graph ({error}); its kernels are launched "
                "one by one, which is slower for small matrices",
                RuntimeWarning,
                stacklevel=2,
            )
            return self._recording.replay
        return lambda: graph.launch(cupy.cuda.get_current_stream())

    def _capture(self, streams: Sequence[Any]) -> Any:
        first, *others = streams
        first.begin_capture()
        try:
            self._recording.replay_side_by_side(streams)
        except BaseException:  # Ctrl-C, too: the streams serve the next fit
            with suppress(RuntimeError):  # ending a failed capture raises again
                for other in others:
                    first.wait_event(other.record())
            with suppress(RuntimeError):
                first.end_capture()
            raise
        return first.end_capture()

    def read(self, count: int) -> npt.NDArray[np.float64]:
        """Wait for the last ``count`` iterations and return their recorded values."""
        found: npt.NDArray[np.float64] = self._ring[:count].get().astype(np.float64)
        return found.reshape(count, -1, *self._batch)


def prepare(
    begin: Begin,
    step: Step,
    *,
    replayable: bool = False,
    threads: int | None = None,
    precision: Precision | None = None,
) -> Run:
    """Return a function that runs a number of iterations and returns their recorded values.

    The first iteration of a replayable step is recorded and captured as a CUDA graph, which runs the others.
    ``threads`` is for the CPU. The graph has workspaces of its own for cuBLAS, whose addresses it contains:
    one for each of the streams that it is captured on.
    """
    workspaces: list[Array] = []
    halves = Lending(_float32, resting=4) if precision == "tf32x3" else None
    iteration: _Iteration | None = None
    again: Callable[[], None] | None = None

    def portion(count: int) -> npt.NDArray[np.float64]:
        nonlocal iteration, again
        steps = [begin() for _ in range(count)]
        if not replayable or (iteration is not None and not iteration.is_replayable):
            return _values([step(updates) for updates in steps])
        first = iteration is None
        if iteration is None:
            iteration = _Iteration(steps[0])
        iteration.load(steps)
        if first:
            values = iteration.record(step)
            if not iteration.is_replayable:
                return _values([values, *(step(updates) for updates in steps[1:])])
        for _ in range(first, count):
            if again is None:
                again = iteration.replay(_cublas.lane().streams)
            again()
        return iteration.read(count)

    def run(iterations: int) -> npt.NDArray[np.float64]:
        import cupy

        cupy.cuda.get_current_stream().synchronize()  # its results are read on the stream below
        streams = _cublas.lane().streams
        with streams[0] as stream:
            while len(workspaces) < len(streams):
                workspaces.append(_cublas.workspace())
            try:
                _local.halves = halves
                with _cublas.session(precision, workspaces):
                    counts = [min(CAPACITY, iterations - done) for done in range(0, iterations, CAPACITY)]
                    return np.concatenate([portion(count) for count in counts])
            finally:
                _local.halves = None
                # After Ctrl-C launches may still be queued, which write to arrays that the caller drops.
                stream.synchronize()

    return run


def _values(records: Sequence[Sequence[Array]]) -> npt.NDArray[np.float64]:
    """Return the values of iterations that were run one by one."""
    import cupy

    rows = [cupy.stack(list(values)) for values in records]
    found: npt.NDArray[np.float64] = cupy.stack(rows).get().astype(np.float64)
    return found
