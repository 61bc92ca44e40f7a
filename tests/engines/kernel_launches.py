"""Launches of every CUDA kernel, with grids, scratch memory and tickets by the rules in the .cu files.

Every array that a kernel gets lies between two margins of a known pattern, so that a write past its ends
shows even without a sanitizer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from airnp.data.entries import Pattern
from airnp.engines import launching
from airnp.engines.cuda import interleaved
from airnp.engines.launching import THREADS
from airnp.engines.sparse_cuda import Pieces, cut
from airnp.resemblance.patches import VALUE_ONE, WEIGHT_ONE
from tests.simt import AddressTable, RawModule

KINDS = ("row", "global", "product")
COLUMNS = 128
"""Columns that one warp keeps in registers, in the kernels of the sparse form."""

_MARGIN, _PATTERN = 40, 0x5A


@cache
def _module(name: str, dtype: str, mode: str) -> RawModule:
    names, code = list(launching.instances(name, dtype)), launching.module_source(name)
    return RawModule(code=code, options=launching.OPTIONS, name_expressions=names, mode=mode)


@dataclass(frozen=True)
class Machine:
    """Where a launch runs: build mode, order of the threads, and the most blocks in any direction."""

    mode: str = "fast"
    order: int = 0
    most_blocks: int = 2048

    def blocks(self, needed: int) -> int:
        """Return the number of blocks in x where the rule says ``needed``."""
        return max(1, min(needed, self.most_blocks))

    def depth(self, batch: int) -> int:
        """Return the number of blocks in z for a stack."""
        return min(batch, 65535, self.most_blocks)


@dataclass(frozen=True)
class Launch:
    """One kernel with all its arguments; ``launch["value"]`` is the argument of that name."""

    module: str
    instance: launching.Instance
    grid: tuple[int, ...]
    args: tuple[Any, ...]

    @classmethod
    def of(
        cls, module: str, kernel: str, variant: tuple[Any, ...], grid: tuple[int, ...], *args: Any
    ) -> Launch:
        """Build a launch as ``launching.launch`` does; arrays are NumPy's."""
        instance = launching.instance(module, kernel, variant)
        converted = tuple(
            argument
            if isinstance(argument, np.ndarray | AddressTable)
            else launching.number(kernel, parameter, dtype, argument)
            for argument, parameter, dtype in zip(args, instance.parameters, instance.dtypes, strict=True)
        )
        return cls(module, instance, grid, converted)

    def __getitem__(self, name: str) -> Any:
        return self.args[[parameter.name for parameter in self.instance.parameters].index(name)]

    def run(self, machine: Machine, times: int = 1) -> None:
        """Launch, then check that no margin was written and that all tickets are zero again."""
        dtype = "float32" if "<float" in self.instance.name else "float64"
        kernel = _module(self.module, dtype, machine.mode).get_function(self.instance.name)
        kernel.order = machine.order
        for _ in range(times):
            kernel(self.grid, (THREADS,), self.args)
        arrays = [part for part in self.args if isinstance(part, np.ndarray)]
        check_fences(*arrays)
        for part in arrays:
            if part.dtype == np.uint32:
                assert not part.any(), "tickets are not ready for the next launch"


def fenced(values: Any, dtype: Any = None) -> np.ndarray:
    """Return a C-contiguous copy of ``values`` with margins on both sides of it."""
    values = np.asarray(values, dtype)
    buffer = np.full((values.size + 2 * _MARGIN) * values.itemsize, _PATTERN, np.uint8).view(values.dtype)
    inside = buffer[_MARGIN : _MARGIN + values.size].reshape(values.shape)
    inside[...] = values
    return inside


def check_fences(*arrays: np.ndarray) -> None:
    """Assert that no margin of a :func:`fenced` array was written to."""
    for array in arrays:
        buffer = array
        while isinstance(buffer.base, np.ndarray):
            buffer = buffer.base
        edge = _MARGIN * array.itemsize
        assert (buffer[:edge] == _PATTERN).all(), "written before the start of an array"
        assert (buffer[-edge:] == _PATTERN).all(), "written past the end of an array"


def scratch(shape: Any, dtype: Any) -> np.ndarray:
    """Return an array that a kernel must write before it reads: NaN, or zero for tickets."""
    return fenced(np.zeros(shape, dtype) if dtype == np.uint32 else np.full(shape, np.nan, dtype))


def _sums(batch: int, blocks: int, dtype: Any) -> tuple[np.ndarray, ...]:
    """Return the partial sums, tickets and values of a kernel that sums over blocks."""
    return scratch((batch, blocks, 2), dtype), scratch(batch, np.uint32), scratch(batch, dtype)


# --- the dense form ---


@dataclass(frozen=True)
class Numbers:
    """A table of step numbers on the device: row ``cursor``, columns from ``offset`` on."""

    table: np.ndarray
    cursor: np.ndarray
    offset: int

    @classmethod
    def of(cls, numbers: tuple[float, ...], dtype: Any, row: int = 3, offset: int = 2) -> Numbers:
        """Return a table that is NaN everywhere except where the kernel should look."""
        table = np.full((row + 2, offset + len(numbers) + 1), np.nan, dtype)
        table[row, offset : offset + len(numbers)] = numbers
        return cls(fenced(table), fenced([row], np.int32), offset)


def statistics_launch(kind, v, gram, machine):
    batch, nodes, _ = v.shape
    strips = -(-nodes // 32)
    blocks = machine.blocks(strips * (strips + 1) // 2 if kind == 2 else -(-nodes // 8))
    statistics = scratch((batch, 3, nodes) if kind == 0 else (batch, 3), v.dtype)
    sums = scratch(batch, v.dtype), scratch((batch, blocks, 6), v.dtype), scratch(batch, np.uint32)
    grid = (blocks, 1, machine.depth(batch))
    args = (v, gram, statistics, *sums, batch, nodes)
    return Launch.of("laplacian", "graph_statistics", (v.dtype, kind), grid, *args)


def step_launch(kind, v, gram, statistics, weight, machine, moments=None, numbers=None):
    """Build a launch of graph_step; moments and numbers make it an Adam step of ``v``."""
    batch, nodes, _ = v.shape
    strips = -(-nodes // 32)
    adam = moments is not None
    gradient = None if adam else scratch(v.shape, v.dtype)
    step = (None, None, None, None, 0, 0)
    if adam:
        step = (*moments, numbers.table, numbers.cursor, numbers.table.shape[1], numbers.offset)
    grid = (machine.blocks(strips * (strips + 1) // 2), 1, machine.depth(batch))
    out = scratch(v.shape, v.dtype), scratch(v.shape[:2], v.dtype), gradient
    degrees = scratch((batch, strips, nodes), v.dtype), scratch((batch, strips), np.uint32)
    args = (v, gram, statistics, weight, *out, *step, *degrees, batch, nodes)
    return Launch.of("laplacian", "graph_step", (v.dtype, kind, adam), grid, *args)


def _pass_over(x, machine):
    """Return the grid of a pass over x, and the last arguments: partial sums, tickets, value, sizes."""
    batch, rows, columns = x.shape
    blocks = machine.blocks(min(-(-rows * columns // THREADS), 1024))
    return (blocks, 1, machine.depth(batch)), (*_sums(batch, blocks, x.dtype), *x.shape)


def residual_launch(x, y, weights, scale, machine, *, delta=None, row_scale=None, column_scale=None):
    grid, sums = _pass_over(x, machine)
    args = (x, y, weights, scratch(x.shape, x.dtype), scale, delta or 0, row_scale, column_scale, *sums)
    return Launch.of("residual", "masked_residual", (x.dtype, delta is not None), grid, *args)


def lines_launch(g, x, row_scale, column_scale, machine):
    grid, sums = _pass_over(x, machine)
    return Launch.of(
        "residual", "add_scaled_lines", (x.dtype,), grid, g, x, row_scale, column_scale, *sums[3:]
    )


def variation_launch(g, x, quadratic, weight, epsilon, machine):
    grid, sums = _pass_over(x, machine)
    return Launch.of("variation", "add_variation", (x.dtype, quadratic), grid, g, x, weight, epsilon, *sums)


def laplacian_launch(g, z, neighbours, degree, columns, scale, machine):
    grid, sums = _pass_over(z, machine)
    degrees = (None, degree) if columns else (degree, None)
    args = (g, z, neighbours, *degrees, len(degree), scale, *sums)
    return Launch.of("fixed_graph", "add_laplacian", (z.dtype,), grid, *args)


def sparse_laplacian_launch(g, z, graph, degree, columns, scale, machine):
    grid, sums = _pass_over(z, machine)
    edges = interleaved(*graph) if columns else (*graph[:2], graph[2][:-1], graph[2][1:])
    index = "int" if edges[1].dtype == np.int32 else "long long"
    args = (g, z, *map(fenced, edges), degree, scale, *sums)
    return Launch.of("fixed_graph", "add_sparse_laplacian", (z.dtype, index, columns), grid, *args)


def tensors_launch(rule, tensors, offsets, numbers, cursor, machine):
    """Build a launch of adam or descend over ``(p, g, first, second)`` of each tensor."""
    words = [[*parts, parts[0].size, offset] for parts, offset in zip(tensors, offsets, strict=True)]
    table = AddressTable([word for line in words for word in line])
    blocks = machine.blocks(min(-(-max(parts[0].size for parts in tensors) // THREADS), 4096))
    grid = (blocks, min(len(tensors), 65535, machine.most_blocks), 1)
    args = (table, len(tensors), numbers, cursor, numbers.shape[1])
    return Launch.of("adam", rule, (numbers.dtype,), grid, *args)


def mirror_launch(gram, machine):
    nodes = len(gram)
    strips = -(-nodes // 32)
    grid = (machine.blocks(min(strips * (strips + 1) // 2, 2048)), 1, 1)
    return Launch.of("laplacian", "mirror", (gram.dtype,), grid, gram, nodes)


def split_launch(x, machine):
    halves = scratch(x.shape, x.dtype), scratch(x.shape, x.dtype)
    grid = (machine.blocks(min(-(-x.size // THREADS), 4096)), 1, 1)
    return Launch.of("split", "split", (x.dtype,), grid, x, *halves, x.size)


def record_launch(sources, ring, cursor, grid=(1, 1, 1)):
    capacity, count, batch = ring.shape
    args = (AddressTable(sources), count, batch, ring, cursor, capacity)
    return Launch.of("record", "record", (ring.dtype,), grid, *args)


# --- the sparse form ---


def _optional(array: Any, dtype: Any) -> Any:
    return None if array is None else fenced(array, dtype)


@dataclass(frozen=True)
class Lines:
    """A pattern in pieces, as the device has it."""

    pattern: Pattern
    pieces: Pieces

    @classmethod
    def of(cls, pattern: Pattern, longest: int) -> Lines:
        return cls(pattern, cut(pattern.indptr, longest))

    def arguments(self) -> tuple[Any, ...]:
        """Return starts, lines, slots and indices."""
        pieces = self.pieces
        places = (_optional(pieces.lines, np.int32), _optional(pieces.slots, np.int32))
        return fenced(pieces.starts, np.int64), *places, fenced(self.pattern.indices, np.int32)

    def parts(self, rank: int, dtype: Any) -> np.ndarray:
        return scratch((self.pieces.parts, rank + 1), dtype)

    def grid(self, machine: Machine, start: int, rank: int) -> tuple[int, ...]:
        """Return the grid of a kernel that works on pieces in groups of columns."""
        return _warps(machine, self.pieces.count * -(-(rank - start) // COLUMNS))


def _warps(machine: Machine, items: int) -> tuple[int, ...]:
    return machine.blocks(min(-(-items // 8), 2048)), 1, 1


def row_residuals_launch(lines, values, u, v, offsets, scale, parts, machine):
    grid = _warps(machine, lines.pieces.count)
    out = (scratch(len(values), u.dtype), scratch(u.shape, u.dtype), scratch(len(u), u.dtype))
    args = (*lines.arguments(), values, u, v, *offsets, scale, *out, parts, *_sums(1, grid[0], u.dtype))
    sizes = (lines.pieces.count, u.shape[1])
    return Launch.of("sparse_entries", "row_residuals", (u.dtype,), grid, *args, *sizes)


def entry_values_launch(rows, columns, u, v, offsets, machine):
    args = (rows, columns, u, v, *offsets, scratch(len(rows), u.dtype), len(rows), u.shape[1])
    return Launch.of("sparse_entries", "entry_values", (u.dtype,), _warps(machine, len(rows)), *args)


def line_sums_launch(lines, x, out, parts, machine, *, weights=None, places=None, totals=None, start=0):
    rank = x.shape[1]
    optional = (_optional(places, np.int64), _optional(weights, x.dtype))
    args = (*lines.arguments(), *optional, x, out, totals, parts, lines.pieces.count, start, rank)
    return Launch.of("sparse_lines", "line_sums", (x.dtype,), lines.grid(machine, start, rank), *args)


def gap_sums_launch(
    lines, weights, t, pull, parts, machine, *, scale=1.0, places=None, metric=None, adds=False, start=0
):
    rank = t.shape[1]
    grid = lines.grid(machine, start, rank)
    sums = (None, None, None) if metric is None else _sums(1, grid[0], t.dtype)
    args = (*lines.arguments(), _optional(places, np.int64), weights, t, metric, scale, pull, parts, *sums)
    sizes = (lines.pieces.count, start, rank)
    return Launch.of("sparse_lines", "gap_sums", (t.dtype, adds), grid, *args, *sizes)


def join_pieces_launch(lines, parts, out, totals, machine, *, adds=False, start=0):
    pieces, rank = lines.pieces, out.shape[1]
    grid = (machine.blocks(min(-(-pieces.splits * (rank + 1) // THREADS), 2048)), 1, 1)
    tables = (fenced(pieces.split_firsts, np.int32), fenced(pieces.split_lines, np.int32))
    args = (parts, *tables, out, totals, pieces.splits, start, rank)
    return Launch.of("sparse_lines", "join_pieces", (out.dtype, adds), grid, *args)


def gram_launch(gram, tolerance, grid=(1, 1, 1)):
    rank, dtype = len(gram), gram.dtype
    out = scratch((rank, rank), dtype), scratch(rank, dtype), scratch((rank, rank), dtype)
    return Launch.of("sparse_gram", "factor_gram", (dtype,), grid, gram, *out, tolerance, rank)


def edge_terms_launch(pattern, logits, t, metric, machine):
    grid = _warps(machine, len(t))
    form = (fenced(pattern.indptr, np.int64), fenced(pattern.indices, np.int32))
    out = (scratch(len(logits), t.dtype), scratch(len(logits), t.dtype), scratch(t.shape, t.dtype))
    args = (*form, logits, t, metric, *out, *_sums(1, grid[0], t.dtype), *t.shape)
    return Launch.of("sparse_edges", "edge_terms", (t.dtype,), grid, *args)


# --- patches ---


def match_launch(x, known, rows, columns, frame, how, machine, *, first=0):
    """Build a launch of match_patches for the reference patches from ``first`` on."""
    frames, channels, height, width = x.shape
    groups = len(rows) * len(columns) - first
    blocks = machine.blocks(min(groups, 1024))
    distances = scratch((blocks, frames * (2 * how.search + 1) ** 2), x.dtype)
    found = fenced(np.full((groups, how.neighbours), -1)), fenced(np.full(groups, -1), np.int32)
    sizes = (first, groups, len(columns), frame, frames, channels, height, width)
    args = (x, known, rows, columns, how.trust, distances, *found, *sizes)
    kinds = ("patch_matching", "match_patches", (x.dtype,), (blocks, 1, 1))
    return Launch.of(*kinds, *args, how.patch, how.search, how.neighbours)


def fill_launch(x, u, known, places, found, frame, how, machine):
    """Build a launch of fill_groups; the sums begin at 0."""
    _, channels, height, width = x.shape
    d, (groups, neighbours) = channels * how.patch**2, places.shape
    blocks = machine.blocks(groups)
    space = scratch((blocks, 2 * d * d + 4 * d * (d + 1)), x.dtype)
    sums = [fenced(np.zeros(x.shape[1:], np.int64)) for _ in range(3)]
    numbers = (how.ridge, how.noise, how.softening, WEIGHT_ONE, int(VALUE_ONE))
    args = (x, u, known, places, found, space, *sums, *numbers, groups, frame, channels, height, width)
    kinds = ("patches", "fill_groups", (x.dtype,), (blocks, 1, 1))
    return Launch.of(*kinds, *args, how.patch, neighbours, how.answers)
