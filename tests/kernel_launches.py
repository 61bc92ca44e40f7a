"""How each CUDA kernel is launched, for tests: grids, scratch and tickets by the rules in the .cu files.

Every array that a kernel gets lies between two margins of a known pattern, so that a write past its ends
shows even where no sanitizer looks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from airnp.engines import launching as kernel_sources
from tests.simt import AddressTable, RawModule

KINDS = ("row", "global", "product")
THREADS = 256
NULL = np.uint64(0)
_MARGIN = 40
_TYPES = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}
_PATTERN = 0x5A


def instances(scalar: str) -> dict[str, list[str]]:
    """Return every template instance of every module for ``float`` or ``double``."""
    flags = ("false", "true")
    return {
        "adam": [f"adam<{scalar}>", f"descend<{scalar}>"],
        "fixed_graph": [
            f"add_laplacian<{scalar}>",
            *(
                f"add_sparse_laplacian<{scalar}, {index}, {flag}>"
                for index in ("int", "long long")
                for flag in flags
            ),
        ],
        "laplacian": [
            *(f"graph_statistics<{scalar}, {kind}>" for kind in range(3)),
            *(f"graph_step<{scalar}, {kind}, {flag}>" for kind in range(3) for flag in flags),
        ],
        "record": [f"record<{scalar}>"],
        "residual": [
            *(f"masked_residual<{scalar}, {flag}>" for flag in flags),
            f"add_scaled_lines<{scalar}>",
        ],
        "sparse_edges": [f"edge_terms<{scalar}>"],
        "sparse_entries": [f"row_residuals<{scalar}>", f"entry_values<{scalar}>"],
        "sparse_lines": [
            f"line_sums<{scalar}>",
            *(f"{name}<{scalar}, {flag}>" for name in ("gap_sums", "join_pieces") for flag in flags),
        ],
        "variation": [f"add_variation<{scalar}, {flag}>" for flag in flags],
    }


@cache
def _module(name: str, mode: str) -> Any:
    names = [*instances("float")[name], *instances("double")[name]]
    code = kernel_sources.module_source(name)
    return RawModule(code=code, options=("-std=c++17",), name_expressions=names, mode=mode)


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

    def run(self, launch: Launch) -> None:
        """Carry the launch out on its arrays, in place."""
        kernel = _module(launch.module, self.mode).get_function(launch.name)
        kernel.order = self.order
        kernel(launch.grid, (THREADS,), launch.args)


@dataclass(frozen=True)
class Launch:
    """One kernel with everything it is called with."""

    module: str
    name: str
    grid: tuple[int, int, int]
    args: tuple[Any, ...]


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


def scalar_name(dtype: Any) -> str:
    """Return the C++ name of a floating type."""
    return _TYPES[np.dtype(dtype)]


def flag(value: bool) -> str:
    """Return the C++ name of a truth value."""
    return "true" if value else "false"


def statistics_launch(kind: int, v: np.ndarray, gram: np.ndarray, machine: Machine) -> Launch:
    """Launch of graph_statistics; its arguments 2 and 3 are the statistics and the energy."""
    batch, nodes, _ = v.shape
    strips = -(-nodes // 32)
    blocks = machine.blocks(strips * (strips + 1) // 2 if kind == 2 else -(-nodes // 8))
    shape = (batch, 3, nodes) if kind == 0 else (batch, 3)
    return Launch(
        "laplacian",
        f"graph_statistics<{scalar_name(v.dtype)}, {kind}>",
        (blocks, 1, machine.depth(batch)),
        (
            v,
            gram,
            scratch(shape, v.dtype),
            scratch(batch, v.dtype),
            scratch((batch, blocks, 6), v.dtype),
            scratch(batch, np.uint32),
            np.int32(batch),
            np.int32(nodes),
        ),
    )


@dataclass(frozen=True)
class Numbers:
    """A table of step numbers on the "device": row ``cursor``, columns from ``offset`` on."""

    table: np.ndarray
    cursor: np.ndarray
    offset: int

    @classmethod
    def of(cls, numbers: tuple[float, ...], dtype: Any, row: int = 3, offset: int = 2) -> Numbers:
        """Return a table that is NaN everywhere but where the kernel should look."""
        table = np.full((row + 2, offset + len(numbers) + 1), np.nan, dtype)
        table[row, offset : offset + len(numbers)] = numbers
        return cls(fenced(table), fenced([row], np.int32), offset)


def step_launch(
    kind: int,
    v: np.ndarray,
    gram: np.ndarray,
    statistics: np.ndarray,
    weight: float,
    moments: tuple[np.ndarray, np.ndarray] | None,
    numbers: Numbers | None,
    machine: Machine,
) -> Launch:
    """Launch of graph_step; its arguments 4, 5 and 6 are adjacency, pull and gradient."""
    batch, nodes, _ = v.shape
    strips = -(-nodes // 32)
    adam = moments is not None and numbers is not None
    gradient = NULL if adam else scratch(v.shape, v.dtype)
    if moments is not None and numbers is not None:
        step = (*moments, numbers.table, numbers.cursor, np.int32(numbers.table.shape[1]))
        step = (*step, np.int32(numbers.offset))
    else:
        step = (NULL, NULL, NULL, NULL, np.int32(0), np.int32(0))
    return Launch(
        "laplacian",
        f"graph_step<{scalar_name(v.dtype)}, {kind}, {flag(adam)}>",
        (machine.blocks(strips * (strips + 1) // 2), 1, machine.depth(batch)),
        (
            v,
            gram,
            statistics,
            v.dtype.type(weight),
            scratch(v.shape, v.dtype),
            scratch(v.shape[:2], v.dtype),
            gradient,
            *step,
            scratch((batch, strips, nodes), v.dtype),
            scratch((batch, strips), np.uint32),
            np.int32(batch),
            np.int32(nodes),
        ),
    )


def _summing(x: np.ndarray, machine: Machine) -> tuple[tuple[int, int, int], tuple[Any, ...]]:
    """Return the grid of a pass over x, and partial sums, tickets, value and sizes as its last arguments."""
    batch, rows, columns = x.shape
    blocks = machine.blocks(min(math.ceil(rows * columns / THREADS), 1024))
    sums = (scratch((batch, blocks, 2), x.dtype), scratch(batch, np.uint32), scratch(batch, x.dtype))
    return (blocks, 1, machine.depth(batch)), (*sums, np.int32(batch), np.int32(rows), np.int32(columns))


def _or_null(array: np.ndarray | None) -> Any:
    return NULL if array is None else array


def residual_launch(
    x: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray,
    scale: float,
    delta: float | None,
    row_scale: np.ndarray | None,
    column_scale: np.ndarray | None,
    machine: Machine,
) -> Launch:
    """Launch of masked_residual; its arguments 3 and 10 are the gradient and the value."""
    grid, sums = _summing(x, machine)
    scalar = x.dtype.type
    settings = (scalar(scale), scalar(0 if delta is None else delta))
    return Launch(
        "residual",
        f"masked_residual<{scalar_name(x.dtype)}, {flag(delta is not None)}>",
        grid,
        (
            x,
            y,
            weights,
            scratch(x.shape, x.dtype),
            *settings,
            _or_null(row_scale),
            _or_null(column_scale),
            *sums,
        ),
    )


def lines_launch(
    g: np.ndarray,
    x: np.ndarray,
    row_scale: np.ndarray | None,
    column_scale: np.ndarray | None,
    machine: Machine,
) -> Launch:
    """Launch of add_scaled_lines, which changes its argument 0."""
    grid, sums = _summing(x, machine)
    args = (g, x, _or_null(row_scale), _or_null(column_scale), *sums[3:])
    return Launch("residual", f"add_scaled_lines<{scalar_name(x.dtype)}>", grid, args)


def variation_launch(
    g: np.ndarray, x: np.ndarray, quadratic: bool, weight: float, epsilon: float, machine: Machine
) -> Launch:
    """Launch of add_variation, which changes its argument 0; argument 6 is the value."""
    grid, sums = _summing(x, machine)
    scalar = x.dtype.type
    name = f"add_variation<{scalar_name(x.dtype)}, {flag(quadratic)}>"
    return Launch("variation", name, grid, (g, x, scalar(weight), scalar(epsilon), *sums))


def laplacian_launch(
    g: np.ndarray,
    z: np.ndarray,
    neighbours: np.ndarray,
    degree: np.ndarray,
    columns: bool,
    scale: float,
    machine: Machine,
) -> Launch:
    """Launch of add_laplacian, which changes its argument 0; argument 9 is the value."""
    grid, sums = _summing(z, machine)
    degrees = (NULL, degree) if columns else (degree, NULL)
    rest = (np.int32(len(degree)), z.dtype.type(scale), *sums)
    name = f"add_laplacian<{scalar_name(z.dtype)}>"
    return Launch("fixed_graph", name, grid, (g, z, neighbours, *degrees, *rest))


def sparse_launch(
    g: np.ndarray,
    z: np.ndarray,
    graph: tuple[np.ndarray, np.ndarray, np.ndarray],
    degree: np.ndarray,
    columns: bool,
    scale: float,
    machine: Machine,
) -> Launch:
    """Launch of add_sparse_laplacian, which changes its argument 0; argument 9 is the value."""
    grid, sums = _summing(z, machine)
    index = "int" if graph[1].dtype == np.int32 else "long long"
    name = f"add_sparse_laplacian<{scalar_name(z.dtype)}, {index}, {flag(columns)}>"
    return Launch("fixed_graph", name, grid, (g, z, *graph, degree, z.dtype.type(scale), *sums))


def tensors_launch(
    rule: str,
    tensors: list[tuple[np.ndarray, ...]],
    offsets: list[int],
    numbers: np.ndarray,
    cursor: np.ndarray,
    machine: Machine,
) -> Launch:
    """Launch of adam or descend over ``(p, g, first, second)`` of each tensor."""
    words = [[*parts, parts[0].size, offset] for parts, offset in zip(tensors, offsets, strict=True)]
    table = AddressTable([word for line in words for word in line])
    blocks = machine.blocks(min(-(-max(parts[0].size for parts in tensors) // THREADS), 4096))
    name = f"{rule}<{scalar_name(numbers.dtype)}>"
    args = (table, np.int32(len(tensors)), numbers, cursor, np.int32(numbers.shape[1]))
    return Launch("adam", name, (blocks, min(len(tensors), 65535, machine.most_blocks), 1), args)


def record_launch(sources: list[np.ndarray], ring: np.ndarray, cursor: np.ndarray) -> Launch:
    """Launch of record, which changes its arguments 3 and 4."""
    capacity, count, batch = ring.shape
    table = AddressTable(sources)
    args = (table, np.int32(count), np.int32(batch), ring, cursor, np.int32(capacity))
    return Launch("record", f"record<{scalar_name(ring.dtype)}>", (1, 1, 1), args)
