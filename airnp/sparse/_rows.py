"""Rows of factors in vector registers: dot products, scaled sums and distances, for compiled code only.

Loops over a few dozen numbers lose more time to checks whether arrays overlap than they spend computing. Here
rows are addresses (plain integers), read 64 bytes at a time, and what is left one by one. Sums are
reassociated, always in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_BYTES = 64
_FLAGS = ("reassoc", "contract", "nsz", "arcp")
_INDEX = ir.IntType(64)


class _Row:
    """The numbers at an address, a vector or a single one at a time."""

    def __init__(self, builder: Any, address: Any) -> None:
        self._builder, self._address = builder, address

    def _at(self, kind: Any, place: Any, size: int) -> Any:
        place = self._builder.add(self._address, self._builder.mul(place, ir.Constant(_INDEX, size)))
        return self._builder.inttoptr(place, kind.as_pointer())

    def load(self, kind: Any, place: Any, size: int) -> Any:
        return self._builder.load(self._at(kind, place, size), align=size)

    def store(self, value: Any, place: Any, size: int) -> None:
        self._builder.store(value, self._at(value.type, place, size), align=size)


def _scalar(kind: Any) -> tuple[Any, int]:
    return (ir.FloatType(), 4) if kind == types.float32 else (ir.DoubleType(), 8)


def _spread(builder: Any, value: Any, kind: Any) -> Any:
    """Return a vector of equal numbers, or the number itself for a scalar kind."""
    if not isinstance(kind, ir.VectorType):
        return value
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    lanes = ir.Constant(ir.VectorType(ir.IntType(32), kind.count), [0] * kind.count)
    return builder.shuffle_vector(first, ir.Constant(kind, ir.Undefined), lanes)


def _walk(builder: Any, scalar: Any, size: int, count: Any, body: Callable[[Any, Any], None]) -> None:
    """Call ``body(kind, place)`` for all whole vectors of a row, then for what is left of it."""
    lanes = _BYTES // size
    whole = builder.and_(count, ir.Constant(_INDEX, -lanes))
    step, one = ir.Constant(_INDEX, lanes), ir.Constant(_INDEX, 1)
    with cgutils.for_range_slice(builder, ir.Constant(_INDEX, 0), whole, step, _INDEX) as (place, _):
        body(ir.VectorType(scalar, lanes), place)
    with cgutils.for_range_slice(builder, whole, count, one, _INDEX) as (place, _):
        body(scalar, place)


def _summed(builder: Any, scalar: Any, size: int, count: Any, term: Callable[[Any, Any], Any]) -> Any:
    """Return Σ term over a row."""
    vector = ir.VectorType(scalar, _BYTES // size)
    totals = {kind: cgutils.alloca_once(builder, kind) for kind in (vector, scalar)}
    builder.store(_spread(builder, ir.Constant(scalar, 0.0), vector), totals[vector])
    builder.store(ir.Constant(scalar, 0.0), totals[scalar])

    def body(kind: Any, place: Any) -> None:
        before = builder.load(totals[kind])
        builder.store(builder.fadd(before, term(kind, place), flags=_FLAGS), totals[kind])

    _walk(builder, scalar, size, count, body)
    name = f"llvm.vector.reduce.fadd.v{vector.count}f{8 * size}"
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(scalar, [scalar, vector]), name)
    rest, whole = builder.load(totals[scalar]), builder.load(totals[vector])
    return builder.call(function, [rest, whole], fastmath=_FLAGS)


@intrinsic
def dot(typingctx, zero, a, b, count):
    """Return Σ a b for rows at two addresses; ``zero`` has their type."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        scalar, size = _scalar(sig.args[0])
        x, y = _Row(builder, args[1]), _Row(builder, args[2])

        def term(kind: Any, place: Any) -> Any:
            return builder.fmul(x.load(kind, place, size), y.load(kind, place, size), flags=_FLAGS)

        return _summed(builder, scalar, size, args[3], term)

    return zero(zero, types.int64, types.int64, types.int64), emit


@intrinsic
def squares(typingctx, zero, metric, a, b, count):
    """Return Σ metric (a − b)² for rows at three addresses."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        scalar, size = _scalar(sig.args[0])
        weights, x, y = (_Row(builder, address) for address in args[1:4])

        def term(kind: Any, place: Any) -> Any:
            gap = builder.fsub(x.load(kind, place, size), y.load(kind, place, size), flags=_FLAGS)
            scaled = builder.fmul(weights.load(kind, place, size), gap, flags=_FLAGS)
            return builder.fmul(scaled, gap, flags=_FLAGS)

        return _summed(builder, scalar, size, args[4], term)

    return zero(zero, types.int64, types.int64, types.int64, types.int64), emit


def _added(builder: Any, target: _Row, value: Any, place: Any, size: int) -> None:
    before = target.load(value.type, place, size)
    target.store(builder.fadd(before, value, flags=_FLAGS), place, size)


@intrinsic
def add_scaled(typingctx, scale, x, y, count):
    """Add scale · x to y, for rows at two addresses."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        scalar, size = _scalar(sig.args[0])
        source, target = _Row(builder, args[1]), _Row(builder, args[2])

        def body(kind: Any, place: Any) -> None:
            times = _spread(builder, args[0], kind)
            value = builder.fmul(times, source.load(kind, place, size), flags=_FLAGS)
            _added(builder, target, value, place, size)

        _walk(builder, scalar, size, args[3], body)
        return context.get_dummy_value()

    return types.void(scale, types.int64, types.int64, types.int64), emit


@intrinsic
def add_gap(typingctx, scale, a, b, y, count):
    """Add scale · (a − b) to y, for rows at three addresses."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        scalar, size = _scalar(sig.args[0])
        first, second, target = (_Row(builder, address) for address in args[1:4])

        def body(kind: Any, place: Any) -> None:
            gap = builder.fsub(first.load(kind, place, size), second.load(kind, place, size), flags=_FLAGS)
            _added(
                builder, target, builder.fmul(_spread(builder, args[0], kind), gap, flags=_FLAGS), place, size
            )

        _walk(builder, scalar, size, args[4], body)
        return context.get_dummy_value()

    return types.void(scale, types.int64, types.int64, types.int64, types.int64), emit


@intrinsic
def prefetch(typingctx, address):
    """Ask for the cache line at an address, which may be anywhere."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pointer = ir.IntType(8).as_pointer()
        narrow = ir.IntType(32)
        function = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(ir.VoidType(), [pointer, narrow, narrow, narrow]),
            "llvm.prefetch.p0",
        )
        hints = [ir.Constant(narrow, value) for value in (0, 3, 1)]
        builder.call(function, [builder.inttoptr(args[0], pointer), *hints])
        return context.get_dummy_value()

    return types.void(types.int64), emit
