"""Rows of numbers in vector registers: the vocabulary of ``_rows.py``, in LLVM's terms.

Rows are addresses (plain integers): numba would check, line by line, whether arrays overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

_BYTES = 64
_MOST = 4
"""Vectors that are walked together at most: that leaves registers for what else is needed."""

_FLAGS = ("reassoc", "contract", "nsz", "arcp")
_WIDE, _NARROW, _BIT, _BYTE = (ir.IntType(bits) for bits in (64, 32, 1, 8))


def whole(value: int) -> Any:
    """Return a constant."""
    return ir.Constant(_WIDE, value)


class Code:
    """Writes instructions for one type of numbers."""

    def __init__(self, builder: Any, kind: Any) -> None:
        self.builder = builder
        self.scalar, self.size = (ir.FloatType(), 4) if kind == types.float32 else (ir.DoubleType(), 8)
        self.lanes = _BYTES // self.size
        self.vector = ir.VectorType(self.scalar, self.lanes)

    def call(self, name: str, result: Any, arguments: Sequence[Any], **options: Any) -> Any:
        """Call an intrinsic function of LLVM."""
        kind = ir.FunctionType(result, [argument.type for argument in arguments])
        function = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return self.builder.call(function, arguments, **options)

    def number(self, address: Any, place: Any) -> Any:
        """Return a number of an array."""
        return self.builder.load(self._pointer(address, place))

    def put_number(self, value: Any, address: Any, place: Any) -> None:
        """Write a number of an array."""
        self.builder.store(value, self._pointer(address, place))

    def _pointer(self, address: Any, place: Any) -> Any:
        where = self.builder.add(address, self.builder.mul(place, whole(self.size)))
        return self.builder.inttoptr(where, self.scalar.as_pointer())

    def index(self, kind: Any, address: Any, place: Any) -> Any:
        """Return an index of an array of int32 or int64."""
        narrow = kind == types.int32
        where = self.builder.add(address, self.builder.mul(place, whole(4 if narrow else 8)))
        found = self.builder.load(self.builder.inttoptr(where, (_NARROW if narrow else _WIDE).as_pointer()))
        return self.builder.sext(found, _WIDE) if narrow else found

    def spread(self, value: Any, kind: Any = None) -> Any:
        """Return a vector of equal numbers."""
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
        """Return the sum of all numbers in some vectors."""
        found, zero = vectors[0], ir.Constant(self.scalar, 0.0)
        for vector in vectors[1:]:
            found = self.add(found, vector)
        name = f"llvm.vector.reduce.fadd.v{self.lanes}f{8 * self.size}"
        return self.call(name, self.scalar, [zero, found], fastmath=_FLAGS)

    def prefetch(self, address: Any) -> None:
        """Ask for the cache line at an address, which may be anywhere."""
        pointer = self.builder.inttoptr(address, _BYTE.as_pointer())
        hints = [ir.Constant(_NARROW, value) for value in (0, 3, 1)]
        self.call("llvm.prefetch.p0", ir.VoidType(), [pointer, *hints])

    def blocks(self, rank: Any, body: Callable[[Block], None]) -> None:
        """Call ``body`` for blocks of four vectors, then of two and one, then for the rest, behind a mask."""
        builder, lanes = self.builder, self.lanes

        def below(vectors: int) -> Any:
            """Return how many numbers there are in whole blocks of so many vectors."""
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
    """Some neighbouring vectors of every row; with a mask, a single one that is cut short.

    Attributes
    ----------
    code : Code
    offset : value
        Bytes from the beginning of a row.
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
    def _masked(self) -> tuple[str, Any]:
        return f"v{self.code.lanes}f{8 * self.code.size}.p0", ir.Constant(_NARROW, self.code.size)

    def zeros(self) -> list[Any]:
        """Return vectors of zeros."""
        return [self.code.spread(ir.Constant(self.code.scalar, 0.0))] * self.vectors

    def load(self, row: Any) -> list[Any]:
        """Return this part of a row; zeros where the mask is off."""
        code = self.code
        if self.mask is None:
            return [code.builder.load(pointer, align=code.size) for pointer in self._pointers(row)]
        (pointer,), (name, align) = self._pointers(row), self._masked
        arguments = [pointer, align, self.mask, self.zeros()[0]]
        return [code.call(f"llvm.masked.load.{name}", code.vector, arguments)]

    def store(self, values: Sequence[Any], row: Any) -> None:
        """Write this part of a row."""
        code = self.code
        if self.mask is None:
            for value, pointer in zip(values, self._pointers(row), strict=True):
                code.builder.store(value, pointer, align=code.size)
            return
        (pointer,), (name, align) = self._pointers(row), self._masked
        code.call(f"llvm.masked.store.{name}", ir.VoidType(), [values[0], pointer, align, self.mask])

    def ask_for(self, row: Any) -> None:
        """Prefetch this part of a row."""
        first = self.code.builder.add(row, self.offset)
        for place in range(self.vectors):
            self.code.prefetch(self.code.builder.add(first, whole(_BYTES * place)))

    def sums(
        self, count: Any, start: Sequence[Any], body: Callable[[Any, list[Any]], list[Any]]
    ) -> list[Any]:
        """Return vectors after ``totals = body(entry, totals)`` for each entry; they stay in registers."""
        builder = self.code.builder
        totals = [cgutils.alloca_once(builder, self.code.vector) for _ in start]
        for place, value in zip(totals, start, strict=True):
            builder.store(value, place)
        with cgutils.for_range(builder, count) as loop:
            found = body(loop.index, [builder.load(place) for place in totals])
            for place, value in zip(totals, found, strict=True):
                builder.store(value, place)
        return [builder.load(place) for place in totals]
