"""Checks of the kernels of the sparse form against ``engines/sparse_reference.py``."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from airnp.data.entries import Entries, Pattern
from airnp.engines import sparse_reference as reference
from airnp.engines.contract import Edges, Offsets, Slopes
from tests.engines.kernel_checks import assert_close
from tests.engines.kernel_launches import (
    COLUMNS,
    Lines,
    edge_terms_launch,
    entry_values_launch,
    fenced,
    gap_sums_launch,
    gram_launch,
    join_pieces_launch,
    line_sums_launch,
    row_residuals_launch,
    scratch,
)


def random_pattern(rng, m, n, share):
    """Return random entries: one row is full; of three or more lines, one row and one column are empty."""
    mask = rng.random((m, n)) < share
    order = rng.permutation(m)
    mask[order[0]] = share > 0
    if m > 2:
        mask[order[1]] = False
    if n > 2:
        mask[:, rng.integers(n)] = False
    return pattern_of(mask)


def pattern_of(mask):
    found = csr_array(mask)
    return Pattern(found.indptr.astype(np.int64), found.indices.astype(np.int32), mask.shape[1])


class Problem:
    """Random entries, factors and offsets."""

    def __init__(self, dtype, m, n, rank, share, longest, seed):
        rng = np.random.default_rng(seed)
        self.dtype, self.rank, self.scale = dtype, rank, 0.7
        self.pattern = random_pattern(rng, m, n, share)
        self.lines = Lines.of(self.pattern, longest)
        turned, self.places = self.pattern.transposed()
        self.turned = Lines.of(turned, longest)
        self.values = fenced(rng.standard_normal(len(self.pattern.indices)), dtype)
        self.u, self.v = (fenced(rng.standard_normal((size, rank)) / rank**0.5, dtype) for size in (m, n))
        self.offsets = tuple(fenced(rng.standard_normal(size), dtype) for size in (1, m, n))

    def wide(self):
        mean, rows, columns = (part.astype(np.float64) for part in self.offsets)
        return self.u.astype(np.float64), self.v.astype(np.float64), Offsets(float(mean[0]), rows, columns)

    def expected(self):
        u, v, offsets = self.wide()
        out = Slopes(*(np.empty_like(part) for part in (u, v, offsets.rows, offsets.columns)))
        entries = Entries(self.pattern, self.values.astype(np.float64))
        return reference.residuals(entries, u, v, offsets, scale=self.scale, out=out), out


def check_residuals(machine, times=1, **case):
    """Check residuals by rows, sums by columns from the slopes, and the joining of pieces."""
    of = Problem(**case)
    kind, rank, lines, turned = of.dtype, of.rank, of.lines, of.turned
    parts = lines.parts(rank, kind)
    rows = row_residuals_launch(lines, of.values, of.u, of.v, of.offsets, of.scale, parts, machine)
    rows.run(machine, times)
    slopes, gu, gb = (rows[name] for name in ("slopes", "gradient", "totals"))
    if rank > COLUMNS:
        rest = line_sums_launch(lines, of.v, gu, parts, machine, weights=slopes, start=COLUMNS)
        rest.run(machine)
    if lines.pieces.splits:
        join_pieces_launch(lines, parts, gu, gb, machine).run(machine, times)
    gv, gc, parts = scratch(of.v.shape, kind), scratch(len(of.v), kind), turned.parts(rank, kind)
    given = {"weights": slopes, "places": of.places, "totals": gc}
    line_sums_launch(turned, of.u, gv, parts, machine, **given).run(machine, times)
    if turned.pieces.splits:
        join_pieces_launch(turned, parts, gv, gc, machine).run(machine, times)
    value, wanted = of.expected()
    assert_close(rows["value"], [value], kind)
    for got, want in zip((gu, gv, gb, gc), wanted, strict=True):
        assert_close(got, want, kind)
    return rows["value"], slopes, gu, gv, gb, gc


def check_values(machine, **case):
    """Check entry_values at the entries of a pattern."""
    of = Problem(**case)
    rows, columns = of.pattern.line_of_each(), of.pattern.indices
    launch = entry_values_launch(fenced(rows), fenced(columns), of.u, of.v, of.offsets, machine)
    launch.run(machine)
    assert_close(launch["out"], reference.entry_values(rows, columns, *of.wide()), of.dtype)


def check_plain_sums(machine, **case):
    """Check line_sums without weights, by rows and by columns."""
    of = Problem(**case)
    for lines, x in ((of.lines, of.v), (of.turned, of.u)):
        parts, count = lines.parts(of.rank, of.dtype), lines.pattern.lines
        out, wanted = scratch((count, of.rank), of.dtype), np.empty((count, of.rank))
        line_sums_launch(lines, x, out, parts, machine).run(machine, times=2)
        if lines.pieces.splits:
            join_pieces_launch(lines, parts, out, None, machine).run(machine)
        reference.line_sums(lines.pattern, x.astype(np.float64), out=wanted)
        assert_close(out, wanted, of.dtype)


class Graph:
    """Random candidate edges, self-loops included, with logits, nodes and a metric."""

    def __init__(self, dtype, nodes, rank, share, longest, seed):
        rng = np.random.default_rng(seed)
        mask = rng.random((nodes, nodes)) < share
        mask[rng.integers(nodes)] = True
        mask[:, rng.integers(nodes)] = True
        self.dtype, self.rank = dtype, rank
        self.pattern = pattern_of(mask | np.eye(nodes, dtype=bool))
        self.logits = fenced(2 * rng.standard_normal(len(self.pattern.indices)), dtype)
        self.t = fenced(rng.standard_normal((nodes, rank)), dtype)
        self.metric = fenced(rng.random(rank) / rank, dtype)
        turned, self.places = self.pattern.transposed()
        self.lines, self.turned = Lines.of(self.pattern, longest), Lines.of(turned, longest)
        self.symmetric = Lines.of(pattern_of(mask | mask.T), longest)
        upper = rng.random((nodes, nodes))
        rows = self.symmetric.pattern.line_of_each()
        self.weights = fenced((upper + upper.T)[rows, self.symmetric.pattern.indices], dtype)

    def wide(self):
        return [part.astype(np.float64) for part in (self.logits, self.t, self.metric)]


def check_edges(machine, times=1, **case):
    """Check edge_terms, and gap_sums for the columns that it leaves and for the incoming half of the pull."""
    of = Graph(**case)
    kind, rank = of.dtype, of.rank
    outgoing = edge_terms_launch(of.pattern, of.logits, of.t, of.metric, machine)
    outgoing.run(machine, times)
    weights, slopes, pull = (outgoing[name] for name in ("weights", "slopes", "pull"))
    if rank > COLUMNS:
        parts = of.lines.parts(rank, kind)
        rest = gap_sums_launch(of.lines, weights, of.t, pull, parts, machine, start=COLUMNS)
        rest.run(machine)
        if of.lines.pieces.splits:
            joined = join_pieces_launch(of.lines, parts, pull, None, machine, start=COLUMNS)
            joined.run(machine)
    parts = of.turned.parts(rank, kind)
    incoming = gap_sums_launch(of.turned, weights, of.t, pull, parts, machine, places=of.places, adds=True)
    incoming.run(machine)
    if of.turned.pieces.splits:
        join_pieces_launch(of.turned, parts, pull, None, machine, adds=True).run(machine)
    logits, t, metric = of.wide()
    wanted = np.empty_like(logits), np.empty_like(logits), np.empty_like(t)
    value = reference.edge_terms(
        Edges(of.pattern), logits, t, metric, weights=wanted[0], slopes=wanted[1], pull=wanted[2]
    )
    assert_close(outgoing["value"], [value], kind)
    for got, want in zip((weights, slopes, pull), wanted, strict=True):
        assert_close(got, want, kind)
    return outgoing["value"], weights, slopes, pull


def check_laplacian(machine, times=1, **case):
    """Check gap_sums of a given symmetric graph, with its energy."""
    of = Graph(**case)
    pull, parts = scratch(of.t.shape, of.dtype), of.symmetric.parts(of.rank, of.dtype)
    launch = gap_sums_launch(
        of.symmetric, of.weights, of.t, pull, parts, machine, scale=2.0, metric=of.metric
    )
    launch.run(machine, times)
    if of.symmetric.pieces.splits:
        join_pieces_launch(of.symmetric, parts, pull, None, machine).run(machine, times)
    _, t, metric = of.wide()
    wanted = np.empty_like(t)
    value = reference.edge_laplacian(
        of.symmetric.pattern, of.weights.astype(np.float64), t, metric, pull=wanted
    )
    assert_close(launch["value"], [value], of.dtype, size=1 + abs(value))
    assert_close(pull, wanted, of.dtype, size=1 + 2 * of.weights.sum())
    return launch["value"], pull


def check_gram(machine, dtype, rank, width, seed):
    """Check G = L D Lᵀ and L⁻¹ for a factor of so many columns, ``width`` of them independent."""
    rng = np.random.default_rng(seed)
    v = rng.standard_normal((2 * rank, width)) @ rng.standard_normal((width, rank)) / max(width, 1) ** 0.5
    given = fenced(v.T @ v, dtype)
    tolerance = 8 * rank**0.5 * float(np.finfo(dtype).eps)
    launch = gram_launch(given, tolerance, (2, 1, 1) if seed % 2 else (1, 1, 1))
    launch.run(machine)
    factor, pivots, inverse = (launch[name].astype(np.float64) for name in ("factor", "pivots", "inverse"))
    assert (pivots >= 0).all()
    np.testing.assert_array_equal(np.diagonal(factor), 1)
    lower = np.tril(np.ones_like(factor, bool))
    assert not factor[~lower].any()
    assert not inverse[~lower].any()
    wide = given.astype(np.float64)
    sizes = np.sqrt(np.diagonal(wide))
    error = np.abs((factor * pivots) @ factor.T - wide)
    assert (error <= 1.25 * tolerance * np.outer(sizes, sizes)).all()
    scale = np.abs(inverse) @ np.abs(factor)
    assert (np.abs(inverse @ factor - np.eye(rank)) <= 8 * rank * np.finfo(dtype).eps * scale).all()
    return launch
