"""How the kernels of the sparse form are launched, and what they must compute by ``sparse/reference.py``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from airnp.data.entries import Entries, Pattern
from airnp.engines import sparse_reference as reference
from airnp.engines.contract import Edges, Offsets, Slopes
from airnp.engines.sparse_cuda import Pieces, cut
from tests.kernel_checks import assert_close, run_and_check
from tests.kernel_launches import NULL, THREADS, Launch, Machine, fenced, flag, scalar_name, scratch

COLUMNS = 128
"""Columns that one warp has in its registers."""

_WARPS = THREADS // 32


def random_pattern(rng: np.random.Generator, m: int, n: int, share: float) -> Pattern:
    """Return entries at random places; one row is full; of three or more, one is empty."""
    mask = rng.random((m, n)) < share
    order = rng.permutation(m)
    mask[order[0]] = share > 0
    if m > 2:
        mask[order[1]] = False
    if n > 2:
        mask[:, rng.integers(n)] = False
    found = csr_array(mask)
    return Pattern(found.indptr.astype(np.int64), found.indices.astype(np.int32), n)


def _or_null(array: Any, dtype: Any) -> Any:
    return NULL if array is None else fenced(array, dtype)


@dataclass(frozen=True)
class Lines:
    """A pattern cut into pieces, as the device has it."""

    pattern: Pattern
    pieces: Pieces

    @classmethod
    def of(cls, pattern: Pattern, longest: int) -> Lines:
        return cls(pattern, cut(pattern.indptr, longest))

    def arguments(self) -> tuple[Any, ...]:
        """Return starts, lines, slots and indices."""
        pieces = self.pieces
        places = (_or_null(pieces.lines, np.int32), _or_null(pieces.slots, np.int32))
        return fenced(pieces.starts, np.int64), *places, fenced(self.pattern.indices, np.int32)

    def parts(self, rank: int, dtype: Any) -> np.ndarray:
        return scratch((self.pieces.parts, rank + 1), dtype)

    def units(self, start: int, rank: int) -> int:
        return self.pieces.count * -(-(rank - start) // COLUMNS)


def _warps(machine: Machine, items: int) -> tuple[int, int, int]:
    return machine.blocks(min(-(-items // _WARPS), 2048)), 1, 1


def _sums(grid: tuple[int, ...], dtype: Any) -> tuple[np.ndarray, ...]:
    """Return partial sums, tickets and the value."""
    return scratch((grid[0], 2), dtype), scratch(1, np.uint32), scratch(1, dtype)


def row_residuals_launch(
    lines: Lines, values: Any, u: Any, v: Any, offsets: Any, scale: float, parts: Any, machine: Machine
) -> Launch:
    """Launch of row_residuals; 11, 12, 13 and 17 are slopes, gradient, totals and value."""
    kind, rank = u.dtype, u.shape[1]
    grid = _warps(machine, lines.pieces.count)
    out = (scratch(len(values), kind), scratch(u.shape, kind), scratch(len(u), kind))
    args = (*lines.arguments(), values, u, v, *offsets, kind.type(scale), *out, parts, *_sums(grid, kind))
    sizes = (np.int64(lines.pieces.count), np.int32(rank))
    return Launch("sparse_entries", f"row_residuals<{scalar_name(kind)}>", grid, (*args, *sizes))


def entry_values_launch(rows: Any, columns: Any, u: Any, v: Any, offsets: Any, machine: Machine) -> Launch:
    """Launch of entry_values; 7 is the answer."""
    args = (rows, columns, u, v, *offsets, scratch(len(rows), u.dtype))
    sizes = (np.int64(len(rows)), np.int32(u.shape[1]))
    grid = _warps(machine, len(rows))
    return Launch("sparse_entries", f"entry_values<{scalar_name(u.dtype)}>", grid, (*args, *sizes))


def line_sums_launch(
    lines: Lines,
    x: Any,
    out: Any,
    parts: Any,
    machine: Machine,
    *,
    weights: Any = None,
    places: Any = None,
    totals: Any = None,
    start: int = 0,
) -> Launch:
    """Launch of line_sums, which changes ``out`` and ``totals``."""
    kind, rank = x.dtype, x.shape[1]
    optional = (_or_null(places, np.int64), _or_null(weights, kind))
    args = (*lines.arguments(), *optional, x, out, NULL if totals is None else totals, parts)
    sizes = (np.int64(lines.pieces.count), np.int32(start), np.int32(rank))
    grid = _warps(machine, lines.units(start, rank))
    return Launch("sparse_lines", f"line_sums<{scalar_name(kind)}>", grid, (*args, *sizes))


def gap_sums_launch(
    lines: Lines,
    weights: Any,
    t: Any,
    pull: Any,
    parts: Any,
    machine: Machine,
    *,
    scale: float = 1.0,
    places: Any = None,
    metric: Any = None,
    adds: bool = False,
    start: int = 0,
) -> Launch:
    """Launch of gap_sums, which changes ``pull``; 13 is the value."""
    kind, rank = t.dtype, t.shape[1]
    grid = _warps(machine, lines.units(start, rank))
    energy = (NULL, NULL, NULL) if metric is None else _sums(grid, kind)
    given = (_or_null(places, np.int64), weights, t, NULL if metric is None else metric)
    sizes = (np.int64(lines.pieces.count), np.int32(start), np.int32(rank))
    args = (*lines.arguments(), *given, kind.type(scale), pull, parts, *energy, *sizes)
    return Launch("sparse_lines", f"gap_sums<{scalar_name(kind)}, {flag(adds)}>", grid, args)


def join_pieces_launch(
    lines: Lines, parts: Any, out: Any, totals: Any, machine: Machine, *, adds: bool = False, start: int = 0
) -> Launch:
    """Launch of join_pieces, which changes ``out`` and ``totals``."""
    pieces, rank = lines.pieces, out.shape[1]
    blocks = machine.blocks(min(-(-pieces.splits * (rank + 1) // THREADS), 2048))
    tables = (fenced(pieces.split_firsts, np.int32), fenced(pieces.split_lines, np.int32))
    sizes = (np.int32(pieces.splits), np.int32(start), np.int32(rank))
    args = (parts, *tables, out, NULL if totals is None else totals, *sizes)
    name = f"join_pieces<{scalar_name(out.dtype)}, {flag(adds)}>"
    return Launch("sparse_lines", name, (blocks, 1, 1), args)


def edge_terms_launch(pattern: Pattern, logits: Any, t: Any, metric: Any, machine: Machine) -> Launch:
    """Launch of edge_terms; 5, 6, 7 and 10 are weights, slopes, pull and value."""
    kind, (nodes, rank) = t.dtype, t.shape
    grid = _warps(machine, nodes)
    form = (fenced(pattern.indptr, np.int64), fenced(pattern.indices, np.int32))
    out = (scratch(len(logits), kind), scratch(len(logits), kind), scratch(t.shape, kind))
    args = (*form, logits, t, metric, *out, *_sums(grid, kind), np.int32(nodes), np.int32(rank))
    return Launch("sparse_edges", f"edge_terms<{scalar_name(kind)}>", grid, args)


class Problem:
    """Entries, factors and offsets of some shape."""

    def __init__(self, dtype: Any, m: int, n: int, rank: int, share: float, longest: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.dtype, self.rank, self.scale = dtype, rank, 0.7
        self.pattern = random_pattern(rng, m, n, share)
        self.lines = Lines.of(self.pattern, longest)
        turned, self.places = self.pattern.transposed()
        self.turned = Lines.of(turned, longest)
        self.values = fenced(rng.standard_normal(len(self.pattern.indices)), dtype)
        self.u, self.v = (fenced(rng.standard_normal((size, rank)) / rank**0.5, dtype) for size in (m, n))
        self.offsets = tuple(fenced(rng.standard_normal(size), dtype) for size in (1, m, n))

    def wide(self) -> tuple[Any, ...]:
        mean, rows, columns = (part.astype(np.float64) for part in self.offsets)
        return self.u.astype(np.float64), self.v.astype(np.float64), Offsets(float(mean[0]), rows, columns)

    def expected(self) -> tuple[float, Slopes]:
        u, v, offsets = self.wide()
        out = Slopes(*(np.empty_like(part) for part in (u, v, offsets.rows, offsets.columns)))
        entries = Entries(self.pattern, self.values.astype(np.float64))
        return reference.residuals(entries, u, v, offsets, scale=self.scale, out=out), out


def check_residuals(machine: Machine, times: int = 1, **case: Any) -> tuple[Any, ...]:
    """All four kernels of residuals: by rows with the slopes, by columns from these, pieces joined."""
    of = Problem(**case)
    kind, rank, lines, turned = of.dtype, of.rank, of.lines, of.turned
    parts = lines.parts(rank, kind)
    rows = row_residuals_launch(lines, of.values, of.u, of.v, of.offsets, of.scale, parts, machine)
    run_and_check(rows, machine, times)
    slopes, gu, gb = rows.args[11:14]
    if rank > COLUMNS:
        rest = line_sums_launch(lines, of.v, gu, parts, machine, weights=slopes, start=COLUMNS)
        run_and_check(rest, machine)
    if lines.pieces.splits:
        run_and_check(join_pieces_launch(lines, parts, gu, gb, machine), machine, times)
    gv, gc, parts = scratch(of.v.shape, kind), scratch(len(of.v), kind), turned.parts(rank, kind)
    given = {"weights": slopes, "places": of.places, "totals": gc}
    run_and_check(line_sums_launch(turned, of.u, gv, parts, machine, **given), machine, times)
    if turned.pieces.splits:
        run_and_check(join_pieces_launch(turned, parts, gv, gc, machine), machine, times)
    value, wanted = of.expected()
    assert_close(rows.args[17], [value], kind)
    for got, want in zip((gu, gv, gb, gc), wanted, strict=True):
        assert_close(got, want, kind)
    return rows.args[17], slopes, gu, gv, gb, gc


def check_values(machine: Machine, **case: Any) -> None:
    """entry_values, at the entries of a pattern."""
    of = Problem(**case)
    rows, columns = of.pattern.line_of_each(), of.pattern.indices
    launch = entry_values_launch(fenced(rows), fenced(columns), of.u, of.v, of.offsets, machine)
    run_and_check(launch, machine)
    assert_close(launch.args[7], reference.values_at(rows, columns, *of.wide()), of.dtype)


def check_plain_sums(machine: Machine, **case: Any) -> None:
    """line_sums without weights, by rows and by columns."""
    of = Problem(**case)
    for lines, x in ((of.lines, of.v), (of.turned, of.u)):
        parts, count = lines.parts(of.rank, of.dtype), lines.pattern.lines
        out, wanted = scratch((count, of.rank), of.dtype), np.empty((count, of.rank))
        run_and_check(line_sums_launch(lines, x, out, parts, machine), machine, times=2)
        if lines.pieces.splits:
            run_and_check(join_pieces_launch(lines, parts, out, None, machine), machine)
        reference.line_sums(lines.pattern, x.astype(np.float64), wanted)
        assert_close(out, wanted, of.dtype)


class Graph:
    """Candidate edges, each node among its own, with logits, nodes and a metric."""

    def __init__(self, dtype: Any, nodes: int, rank: int, share: float, longest: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        mask = rng.random((nodes, nodes)) < share
        mask[rng.integers(nodes)] = True
        mask[:, rng.integers(nodes)] = True
        self.dtype, self.rank = dtype, rank
        self.pattern = self._pattern(mask | np.eye(nodes, dtype=bool))
        self.logits = fenced(2 * rng.standard_normal(len(self.pattern.indices)), dtype)
        self.t = fenced(rng.standard_normal((nodes, rank)), dtype)
        self.metric = fenced(rng.random(rank) / rank, dtype)
        turned, self.places = self.pattern.transposed()
        self.lines, self.turned = Lines.of(self.pattern, longest), Lines.of(turned, longest)
        self.symmetric = Lines.of(self._pattern(mask | mask.T), longest)
        upper = rng.random((nodes, nodes))
        rows = self.symmetric.pattern.line_of_each()
        self.weights = fenced((upper + upper.T)[rows, self.symmetric.pattern.indices], dtype)

    @staticmethod
    def _pattern(mask: Any) -> Pattern:
        found = csr_array(mask)
        return Pattern(found.indptr.astype(np.int64), found.indices.astype(np.int32), len(mask))

    def wide(self) -> list[Any]:
        return [part.astype(np.float64) for part in (self.logits, self.t, self.metric)]


def check_edges(machine: Machine, times: int = 1, **case: Any) -> tuple[Any, ...]:
    """edge_terms, the columns that it leaves, and the incoming half of the pull."""
    of = Graph(**case)
    kind, rank = of.dtype, of.rank
    outgoing = edge_terms_launch(of.pattern, of.logits, of.t, of.metric, machine)
    run_and_check(outgoing, machine, times)
    weights, slopes, pull = outgoing.args[5:8]
    if rank > COLUMNS:
        parts = of.lines.parts(rank, kind)
        rest = gap_sums_launch(of.lines, weights, of.t, pull, parts, machine, start=COLUMNS)
        run_and_check(rest, machine)
        if of.lines.pieces.splits:
            joined = join_pieces_launch(of.lines, parts, pull, None, machine, start=COLUMNS)
            run_and_check(joined, machine)
    parts = of.turned.parts(rank, kind)
    incoming = gap_sums_launch(of.turned, weights, of.t, pull, parts, machine, places=of.places, adds=True)
    run_and_check(incoming, machine)
    if of.turned.pieces.splits:
        run_and_check(join_pieces_launch(of.turned, parts, pull, None, machine, adds=True), machine)
    logits, t, metric = of.wide()
    wanted = np.empty_like(logits), np.empty_like(logits), np.empty_like(t)
    value = reference.edge_terms(
        Edges(of.pattern), logits, t, metric, weights=wanted[0], slopes=wanted[1], pull=wanted[2]
    )
    assert_close(outgoing.args[10], [value], kind)
    for got, want in zip((weights, slopes, pull), wanted, strict=True):
        assert_close(got, want, kind)
    return outgoing.args[10], weights, slopes, pull


def check_laplacian(machine: Machine, times: int = 1, **case: Any) -> tuple[Any, ...]:
    """gap_sums of a given symmetric graph, with its energy."""
    of = Graph(**case)
    pull, parts = scratch(of.t.shape, of.dtype), of.symmetric.parts(of.rank, of.dtype)
    launch = gap_sums_launch(
        of.symmetric, of.weights, of.t, pull, parts, machine, scale=2.0, metric=of.metric
    )
    run_and_check(launch, machine, times)
    if of.symmetric.pieces.splits:
        run_and_check(join_pieces_launch(of.symmetric, parts, pull, None, machine), machine, times)
    _, t, metric = of.wide()
    wanted = np.empty_like(t)
    value = reference.laplacian(of.symmetric.pattern, of.weights.astype(np.float64), t, metric, pull=wanted)
    assert_close(launch.args[13], [value], of.dtype, size=1 + abs(value))
    assert_close(pull, wanted, of.dtype, size=1 + 2 * of.weights.sum())
    return launch.args[13], pull
