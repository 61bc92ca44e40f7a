"""Sums over gathered rows of factors, for compiled code only.

A line of a sparse pattern names rows of a factor. Each function walks the rows that a line names, once for
every block of up to four vectors of 64 bytes, whose sums stay in registers meanwhile. Sums are reassociated,
always in the same way.

Arguments that recur: ``zero`` and ``index`` say by their types what rows and indices are made of; rows of
``rank`` numbers lie side by side from ``data`` on; the line's rows are the ``count`` ones at ``indices``;
where rows are read for the first time, those that come up to ``limit`` after the line's first are asked for
ahead. All addresses are plain integers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from airnp.sparse._registers import Block, Code, whole

_AHEAD = 16
"""Rows between asking for one and using it."""


class _Line:
    """The rows that a line names."""

    def __init__(self, code: Code, index: Any, indices: Any, rank: Any, limit: Any = None) -> None:
        self._code, self._kind, self._indices = code, index, indices
        self._width = code.builder.mul(rank, whole(code.size))
        self._last = None if limit is None else code.builder.sub(limit, whole(1))

    def row(self, data: Any, entry: Any) -> Any:
        """Return the address of an entry's row."""
        builder = self._code.builder
        return builder.add(data, builder.mul(self._code.index(self._kind, self._indices, entry), self._width))

    def ahead(self, entry: Any) -> Any:
        """Return the entry that comes a little later, or the last there is."""
        builder = self._code.builder
        later = builder.add(entry, whole(_AHEAD))
        return builder.select(builder.icmp_signed("<", later, self._last), later, self._last)


def _sums_of_each(
    code: Code, rank: Any, count: Any, out: Any, term: Callable[[Block], Callable[[Any], list[Any]]]
) -> None:
    """Write, for each entry, the sum of ``term(block)(entry)`` over all blocks."""

    def body(block: Block) -> None:
        found = term(block)
        first = code.builder.icmp_signed("==", block.offset, whole(0))
        with cgutils.for_range(code.builder, count) as loop:
            total = code.total(found(loop.index))
            before = code.number(out, loop.index)
            zero = before.type(0.0)
            before = code.builder.select(first, zero, before)
            code.put_number(code.add(before, total), out, loop.index)

    code.blocks(rank, body)


@intrinsic
def dots(typingctx, zero, index, here, data, also, indices, count, limit, out, rank):
    """Write here · row of each entry to ``out``; rows at ``also`` are asked for, too."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        here, data, also, indices, count, limit, out, rank = args[2:]
        code = Code(builder, sig.args[0])
        line = _Line(code, sig.args[1], indices, rank, limit)

        def term(block: Block) -> Callable[[Any], list[Any]]:
            own = block.load(here)

            def products(entry: Any) -> list[Any]:
                later = line.ahead(entry)
                block.ask_for(line.row(data, later))
                block.ask_for(line.row(also, later))
                other = block.load(line.row(data, entry))
                return [code.multiply(a, b) for a, b in zip(own, other, strict=True)]

            return products

        _sums_of_each(code, rank, count, out, term)
        return context.get_dummy_value()

    return types.void(zero, index, *[types.int64] * 8), emit


@intrinsic
def squares(typingctx, zero, index, metric, here, data, indices, count, limit, out, rank):
    """Write Σ metric (here − row)² of each entry to ``out``."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        metric, here, data, indices, count, limit, out, rank = args[2:]
        code = Code(builder, sig.args[0])
        line = _Line(code, sig.args[1], indices, rank, limit)

        def term(block: Block) -> Callable[[Any], list[Any]]:
            own, scales = block.load(here), block.load(metric)

            def distances(entry: Any) -> list[Any]:
                block.ask_for(line.row(data, line.ahead(entry)))
                other = block.load(line.row(data, entry))
                gaps = [code.subtract(a, b) for a, b in zip(own, other, strict=True)]
                return [
                    code.multiply(code.multiply(scale, gap), gap)
                    for scale, gap in zip(scales, gaps, strict=True)
                ]

            return distances

        _sums_of_each(code, rank, count, out, term)
        return context.get_dummy_value()

    return types.void(zero, index, *[types.int64] * 8), emit


def _add_gaps(
    code: Code, line: _Line, here: Any, data: Any, count: Any, target: Any, rank: Any,
    weight: Callable[[Block, Any], Any],
) -> None:  # fmt: skip
    """Add Σ weight (here − row) to ``target``."""

    def body(block: Block) -> None:
        own = block.load(here)

        def step(entry: Any, totals: list[Any]) -> list[Any]:
            times = code.spread(weight(block, entry))
            other = block.load(line.row(data, entry))
            gaps = [code.subtract(a, b) for a, b in zip(own, other, strict=True)]
            return [
                code.add(total, code.multiply(times, gap)) for total, gap in zip(totals, gaps, strict=True)
            ]

        block.store(block.sums(count, block.load(target), step), target)

    code.blocks(rank, body)


@intrinsic
def add_gaps(typingctx, zero, index, weights, here, data, indices, count, target, rank):
    """Add Σ weight (here − row) to ``target``; the weights are those of the line."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        weights, here, data, indices, count, target, rank = args[2:]
        code = Code(builder, sig.args[0])
        line = _Line(code, sig.args[1], indices, rank)

        def weight(_block: Block, entry: Any) -> Any:
            return code.number(weights, entry)

        _add_gaps(code, line, here, data, count, target, rank, weight)
        return context.get_dummy_value()

    return types.void(zero, index, *[types.int64] * 7), emit


@intrinsic
def add_gaps_from(typingctx, zero, index, places, weights, here, data, indices, count, limit, target, rank):
    """Add Σ weight (here − row) to ``target``; an entry's weight is where ``places`` (int64) says."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        places, weights, here, data, indices, count, limit, target, rank = args[2:]
        code = Code(builder, sig.args[0])
        line = _Line(code, sig.args[1], indices, rank, limit)

        def weight(block: Block, entry: Any) -> Any:
            later = line.ahead(entry)
            block.ask_for(line.row(data, later))
            place = code.index(types.int64, places, later)
            code.prefetch(builder.add(weights, builder.mul(place, whole(code.size))))
            return code.number(weights, code.index(types.int64, places, entry))

        _add_gaps(code, line, here, data, count, target, rank, weight)
        return context.get_dummy_value()

    return types.void(zero, index, *[types.int64] * 9), emit


@intrinsic
def add_both_ways(typingctx, zero, index, scales, here, data, slopes, indices, count, target, rank):
    """Add Σ scale · row to ``target``, and scale · here to each entry's row at ``slopes``."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        scales, here, data, slopes, indices, count, target, rank = args[2:]
        code = Code(builder, sig.args[0])
        line = _Line(code, sig.args[1], indices, rank)

        def body(block: Block) -> None:
            own = block.load(here)

            def step(entry: Any, totals: list[Any]) -> list[Any]:
                times, slope = code.spread(code.number(scales, entry)), line.row(slopes, entry)
                other = block.load(line.row(data, entry))
                moved = [
                    code.add(before, code.multiply(times, a))
                    for before, a in zip(block.load(slope), own, strict=True)
                ]
                block.store(moved, slope)
                return [
                    code.add(total, code.multiply(times, b)) for total, b in zip(totals, other, strict=True)
                ]

            block.store(block.sums(count, block.load(target), step), target)

        code.blocks(rank, body)
        return context.get_dummy_value()

    return types.void(zero, index, *[types.int64] * 8), emit


@intrinsic
def put_sum(typingctx, zero, index, data, indices, count, limit, target, rank):
    """Write Σ row to ``target``."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        data, indices, count, limit, target, rank = args[2:]
        code = Code(builder, sig.args[0])
        line = _Line(code, sig.args[1], indices, rank, limit)

        def body(block: Block) -> None:
            def step(entry: Any, totals: list[Any]) -> list[Any]:
                block.ask_for(line.row(data, line.ahead(entry)))
                other = block.load(line.row(data, entry))
                return [code.add(total, b) for total, b in zip(totals, other, strict=True)]

            block.store(block.sums(count, block.zeros(), step), target)

        code.blocks(rank, body)
        return context.get_dummy_value()

    return types.void(zero, index, *[types.int64] * 6), emit
