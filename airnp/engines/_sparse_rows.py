"""Numba building blocks of the sparse kernels: rows in vector registers, for any rank."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_BYTES = 64
_MOST = 4
"""The most vectors of a row that are processed together; the other registers stay free."""

_FLAGS = ("reassoc", "contract", "nsz", "arcp")
_WIDE, _NARROW, _BIT, _BYTE = (ir.IntType(bits) for bits in (64, 32, 1, 8))


def whole(value: int) -> Any:
    """Return an integer constant of 64 bits."""
    return ir.Constant(_WIDE, value)


class Code:
    """Emits LLVM instructions for one floating type."""

    def __init__(self, builder: Any, kind: Any) -> None:
        self.builder = builder
        self.scalar, self.size = (ir.FloatType(), 4) if kind == types.float32 else (ir.DoubleType(), 8)
        self.lanes = _BYTES // self.size
        self.vector = ir.VectorType(self.scalar, self.lanes)

    def call(self, name: str, result: Any, arguments: Sequence[Any], **options: Any) -> Any:
        """Emit a call of an LLVM intrinsic."""
        kind = ir.FunctionType(result, [argument.type for argument in arguments])
        function = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return self.builder.call(function, arguments, **options)

    def number(self, address: Any, place: Any) -> Any:
        """Load a number of an array."""
        return self.builder.load(self._pointer(address, place))

    def put_number(self, value: Any, address: Any, place: Any) -> None:
        """Store a number of an array."""
        self.builder.store(value, self._pointer(address, place))

    def _pointer(self, address: Any, place: Any) -> Any:
        where = self.builder.add(address, self.builder.mul(place, whole(self.size)))
        return self.builder.inttoptr(where, self.scalar.as_pointer())

    def index(self, kind: Any, address: Any, place: Any) -> Any:
        """Load an index of an array of int32 or int64, as int64."""
        narrow = kind == types.int32
        where = self.builder.add(address, self.builder.mul(place, whole(4 if narrow else 8)))
        found = self.builder.load(self.builder.inttoptr(where, (_NARROW if narrow else _WIDE).as_pointer()))
        return self.builder.sext(found, _WIDE) if narrow else found

    def spread(self, value: Any, kind: Any = None) -> Any:
        """Return a vector with a number in all lanes."""
        kind = self.vector if kind is None else kind
        nothing, start = ir.Constant(kind, ir.Undefined), ir.Constant(_NARROW, 0)
        first = self.builder.insert_element(nothing, value, start)
        everywhere = ir.Constant(ir.VectorType(_NARROW, kind.count), [0] * kind.count)
        return self.builder.shuffle_vector(first, nothing, everywhere)

    def add(self, a: Any, b: Any) -> Any:
        """Return a + b."""
        return self.builder.fadd(a, b, flags=_FLAGS)

    def subtract(self, a: Any, b: Any) -> Any:
        """Return a − b."""
        return self.builder.fsub(a, b, flags=_FLAGS)

    def multiply(self, a: Any, b: Any) -> Any:
        """Return a · b."""
        return self.builder.fmul(a, b, flags=_FLAGS)

    def total(self, vectors: Sequence[Any]) -> Any:
        """Return the sum of all lanes of some vectors."""
        found, zero = vectors[0], ir.Constant(self.scalar, 0.0)
        for vector in vectors[1:]:
            found = self.add(found, vector)
        name = f"llvm.vector.reduce.fadd.v{self.lanes}f{8 * self.size}"
        return self.call(name, self.scalar, [zero, found], fastmath=_FLAGS)

    def prefetch(self, address: Any) -> None:
        """Prefetch the cache line at an address, which need not be valid."""
        pointer = self.builder.inttoptr(address, _BYTE.as_pointer())
        hints = [ir.Constant(_NARROW, value) for value in (0, 3, 1)]
        self.call("llvm.prefetch.p0", ir.VoidType(), [pointer, *hints])

    def blocks(self, rank: Any, body: Callable[[Block], None]) -> None:
        """Call ``body`` for blocks of four vectors, then of two and one, then for the rest with a mask."""
        builder, lanes = self.builder, self.lanes

        def below(vectors: int) -> Any:
            """Return how many numbers lie in whole blocks of this many vectors."""
            return builder.and_(rank, whole(-vectors * lanes))

        def make(place: Any, vectors: int, mask: Any = None) -> None:
            body(Block(self, builder.mul(place, whole(self.size)), vectors, mask))

        step = whole(_MOST * lanes)
        with cgutils.for_range_slice(builder, whole(0), below(_MOST), step, _WIDE) as (place, _):
            make(place, _MOST)
        for vectors in (2, 1):
            there = builder.icmp_signed("!=", builder.and_(rank, whole(vectors * lanes)), whole(0))
            with builder.if_then(there):
                make(below(2 * vectors), vectors)
        rest = builder.sub(rank, below(1))
        with builder.if_then(builder.icmp_signed("!=", rest, whole(0))):
            order = ir.Constant(ir.VectorType(_NARROW, lanes), list(range(lanes)))
            limit = self.spread(builder.trunc(rest, _NARROW), order.type)
            make(below(1), 1, builder.icmp_signed("<", order, limit))


@dataclass(frozen=True)
class Block:
    """Neighbouring vectors of every row; with a mask, one vector at the end of a row.

    Attributes
    ----------
    code : Code
    offset : value
        Bytes from the start of a row.
    vectors : int
    mask : value or None
    """

    code: Code
    offset: Any
    vectors: int
    mask: Any

    def _pointers(self, row: Any) -> list[Any]:
        builder, kind = self.code.builder, self.code.vector.as_pointer()
        first = builder.add(row, self.offset)
        return [
            builder.inttoptr(builder.add(first, whole(_BYTES * place)), kind) for place in range(self.vectors)
        ]

    @property
    def _mask_arguments(self) -> tuple[str, Any]:
        return f"v{self.code.lanes}f{8 * self.code.size}.p0", ir.Constant(_NARROW, self.code.size)

    def zeros(self) -> list[Any]:
        """Return vectors of zeros."""
        return [self.code.spread(ir.Constant(self.code.scalar, 0.0))] * self.vectors

    def load(self, row: Any) -> list[Any]:
        """Return this part of a row; zeros where the mask is off."""
        code = self.code
        if self.mask is None:
            return [code.builder.load(pointer, align=code.size) for pointer in self._pointers(row)]
        (pointer,), (name, align) = self._pointers(row), self._mask_arguments
        arguments = [pointer, align, self.mask, self.zeros()[0]]
        return [code.call(f"llvm.masked.load.{name}", code.vector, arguments)]

    def store(self, values: Sequence[Any], row: Any) -> None:
        """Write this part of a row."""
        code = self.code
        if self.mask is None:
            for value, pointer in zip(values, self._pointers(row), strict=True):
                code.builder.store(value, pointer, align=code.size)
            return
        (pointer,), (name, align) = self._pointers(row), self._mask_arguments
        code.call(f"llvm.masked.store.{name}", ir.VoidType(), [values[0], pointer, align, self.mask])

    def prefetch(self, row: Any) -> None:
        """Prefetch this part of a row."""
        first = self.code.builder.add(row, self.offset)
        for place in range(self.vectors):
            self.code.prefetch(self.code.builder.add(first, whole(_BYTES * place)))

    def sums(
        self, count: Any, start: Sequence[Any], body: Callable[[Any, list[Any]], list[Any]]
    ) -> list[Any]:
        """Loop ``totals = body(entry, totals)`` over the entries, in registers, and return the totals."""
        builder = self.code.builder
        totals = [cgutils.alloca_once(builder, self.code.vector) for _ in start]
        for place, value in zip(totals, start, strict=True):
            builder.store(value, place)
        with cgutils.for_range(builder, count) as loop:
            found = body(loop.index, [builder.load(place) for place in totals])
            for place, value in zip(totals, found, strict=True):
                builder.store(value, place)
        return [builder.load(place) for place in totals]


_AHEAD = 16
"""How many rows ahead of their use rows are prefetched."""


class _Line:
    """The rows that the entries of a line refer to."""

    def __init__(self, code: Code, index: Any, indices: Any, rank: Any, limit: Any = None) -> None:
        self._code, self._kind, self._indices = code, index, indices
        self._width = code.builder.mul(rank, whole(code.size))
        self._last = None if limit is None else code.builder.sub(limit, whole(1))

    def row(self, data: Any, entry: Any) -> Any:
        """Return the address of an entry's row."""
        builder = self._code.builder
        return builder.add(data, builder.mul(self._code.index(self._kind, self._indices, entry), self._width))

    def ahead(self, entry: Any) -> Any:
        """Return the entry ``_AHEAD`` places later, or the last one."""
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
    """Write here · row of each entry to ``out``, and prefetch the rows at ``also``."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        here, data, also, indices, count, limit, out, rank = args[2:]
        code = Code(builder, sig.args[0])
        line = _Line(code, sig.args[1], indices, rank, limit)

        def term(block: Block) -> Callable[[Any], list[Any]]:
            own = block.load(here)

            def products(entry: Any) -> list[Any]:
                later = line.ahead(entry)
                block.prefetch(line.row(data, later))
                block.prefetch(line.row(also, later))
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
                block.prefetch(line.row(data, line.ahead(entry)))
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
    """Add Σ weight (here − row) to ``target``, with weights in the order of the line."""

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
    """Add Σ weight (here − row) to ``target``; ``places`` (int64) are the indices of the weights."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        places, weights, here, data, indices, count, limit, target, rank = args[2:]
        code = Code(builder, sig.args[0])
        line = _Line(code, sig.args[1], indices, rank, limit)

        def weight(block: Block, entry: Any) -> Any:
            later = line.ahead(entry)
            block.prefetch(line.row(data, later))
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
                block.prefetch(line.row(data, line.ahead(entry)))
                other = block.load(line.row(data, entry))
                return [code.add(total, b) for total, b in zip(totals, other, strict=True)]

            block.store(block.sums(count, block.zeros(), step), target)

        code.blocks(rank, body)
        return context.get_dummy_value()

    return types.void(zero, index, *[types.int64] * 6), emit


# exp(x) = 2^k e^r with |r| ≤ ln 2 / 2; ln 2 in two parts, the first exact in few bits. For each size of a
# number: the least exponent, both parts, terms of the series, bits of the fraction, and the exponent's bias.
_EXP = {
    4: (-87.0, 0.693359375, -2.12194440e-4, 7, 23, 127),
    8: (-708.0, 0.693147180369123816490, 1.90821492927058770002e-10, 13, 52, 1023),
}


class _Vectors:
    """Vector arithmetic for the softmax."""

    def __init__(self, code: Code) -> None:
        self.code, self.builder = code, code.builder
        self._whole = ir.VectorType(ir.IntType(8 * code.size), code.lanes)

    def all(self, value: float, kind: Any = None) -> Any:
        """Return a vector with a constant in all lanes."""
        return ir.Constant(self.code.vector if kind is None else kind, [value] * self.code.lanes)

    def larger(self, a: Any, b: Any) -> Any:
        return self.builder.select(self.builder.fcmp_ordered(">", a, b), a, b)

    def largest(self, vector: Any) -> Any:
        """Return the largest lane of a vector, in all lanes."""
        nothing = ir.Constant(self.code.vector, ir.Undefined)
        step = self.code.lanes // 2
        while step:
            turned = [(place + step) % self.code.lanes for place in range(self.code.lanes)]
            places = ir.Constant(ir.VectorType(ir.IntType(32), self.code.lanes), turned)
            vector = self.larger(vector, self.builder.shuffle_vector(vector, nothing, places))
            step //= 2
        return vector

    def exp(self, x: Any) -> Any:
        """Return exp(x) for x ≤ 0, and at least the smallest normal number."""
        code, builder = self.code, self.builder
        least, high, low, terms, fraction, bias = _EXP[code.size]
        # The comparison is false for NaN, which therefore stays NaN.
        x = builder.select(builder.fcmp_ordered("<", x, self.all(least)), self.all(least), x)
        power = code.subtract(code.multiply(x, self.all(1 / math.log(2))), self.all(0.5))
        k = builder.fptosi(power, self._whole)
        whole = builder.sitofp(k, code.vector)
        r = code.subtract(x, code.multiply(whole, self.all(high)))
        r = code.subtract(r, code.multiply(whole, self.all(low)))
        y = self.all(1 / math.factorial(terms))
        for term in range(terms - 1, -1, -1):
            y = code.add(code.multiply(y, r), self.all(1 / math.factorial(term)))
        bits = builder.shl(builder.add(k, self.all(bias, self._whole)), self.all(fraction, self._whole))
        return code.multiply(y, builder.bitcast(bits, code.vector))


def _reduce(
    code: Code, count: Any, start: Sequence[Any], body: Callable[[Block, list[Any]], list[Any]]
) -> list[Any]:
    """Loop ``totals = body(block, totals)`` over the blocks of a line and return the totals."""
    places = [cgutils.alloca_once_value(code.builder, value) for value in start]
    for place, value in zip(places, start, strict=True):
        code.builder.store(value, place)

    def step(block: Block) -> None:
        found = body(block, [code.builder.load(place) for place in places])
        for place, value in zip(places, found, strict=True):
            code.builder.store(value, place)

    code.blocks(count, step)
    return [code.builder.load(place) for place in places]


@intrinsic
def softmax(typingctx, zero, logits, weights, slopes, count):
    """Write P to ``weights`` and ½ P (D − Σ P D) over the D at ``slopes``; return Σ P D.

    For a line of ``count`` numbers at three addresses; ``zero`` has their type.
    """

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        _, logits, weights, slopes, count = args
        code = Code(builder, sig.args[0])
        vectors = _Vectors(code)

        def within(block: Block, values: list[Any], otherwise: float) -> list[Any]:
            if block.mask is None:
                return values
            return [builder.select(block.mask, value, vectors.all(otherwise)) for value in values]

        def climb(block: Block, totals: list[Any]) -> list[Any]:
            for value in within(block, block.load(logits), -math.inf):
                totals = [vectors.larger(value, totals[0])]
            return totals

        top = vectors.largest(_reduce(code, count, [vectors.all(-math.inf)], climb)[0])

        def weigh(block: Block, totals: list[Any]) -> list[Any]:
            found = [vectors.exp(code.subtract(value, top)) for value in block.load(logits)]
            found = within(block, found, 0.0)
            block.store(found, weights)
            total, mean = totals
            for weight, distance in zip(found, block.load(slopes), strict=True):
                total, mean = code.add(total, weight), code.add(mean, code.multiply(weight, distance))
            return [total, mean]

        sums = [code.total([found]) for found in _reduce(code, count, [vectors.all(0.0)] * 2, weigh)]
        inverse = builder.fdiv(code.scalar(1.0), sums[0])
        mean = code.multiply(sums[1], inverse)
        times, shift, half = code.spread(inverse), code.spread(mean), vectors.all(0.5)

        def finish(block: Block) -> None:
            found = [code.multiply(weight, times) for weight in block.load(weights)]
            block.store(found, weights)
            gaps = [code.subtract(distance, shift) for distance in block.load(slopes)]
            found = [code.multiply(code.multiply(half, w), gap) for w, gap in zip(found, gaps, strict=True)]
            block.store(found, slopes)

        code.blocks(count, finish)
        return mean

    return zero(zero, *[types.int64] * 4), emit
