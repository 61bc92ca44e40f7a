"""Products and factors of small float32 matrices, in registers, for numba kernels.

A tile is four rows of sixteen columns. Matrices are parts of flat arrays: an entry to begin with and steps
between entries, so that any of them can be read transposed. Two forms: in one the sixteen columns are those
of one matrix; in the other (``lanes``) they are sixteen matrices side by side, whose entries are interleaved.

Call them from compiled code only. Rows of tiles may reach into padding behind a matrix, of 12 columns.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

ROWS, LANES = 4, 16
PADDING = LANES - ROWS
"""Entries behind each row of a matrix that tiles may reach into."""

_SCALAR = ir.FloatType()
_VECTOR = ir.VectorType(_SCALAR, LANES)
_ZEROS = ir.Constant(_VECTOR, [_SCALAR(0)] * LANES)
_WHOLE = types.int64
_FLOATS = types.Array(types.float32, 1, "C")


def _pointer(context: Any, builder: Any, array: Any, place: Any) -> Any:
    data = context.make_array(_FLOATS)(context, builder, array).data
    return builder.gep(data, [place])


def _load(builder: Any, data: Any, place: Any, kind: Any) -> Any:
    return builder.load(builder.bitcast(builder.gep(data, [place]), kind.as_pointer()), align=4)


def _store(builder: Any, value: Any, data: Any, place: Any) -> None:
    builder.store(value, builder.bitcast(builder.gep(data, [place]), value.type.as_pointer()), align=4)


def _spread(builder: Any, value: Any, count: int = LANES) -> Any:
    one = builder.insert_element(
        ir.Constant(ir.VectorType(_SCALAR, count), ir.Undefined), value, ir.IntType(32)(0)
    )
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(ir.IntType(32), count), [0] * count))


def _tile_product(lanes: bool, eliminates: bool) -> Any:
    """Return an intrinsic: C ← Σ_k A[k, r] B[k], or C ← C − Σ_k A[k, r] B[k], for a tile C.

    Row r of C is at c + r·c_row, A[k, r] at a + k·a_step + r·a_row, and row k of B at b + k·b_step. With
    ``lanes``, A[k, r] is a row of sixteen as well.
    """

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        C, c, c_row, A, a, a_step, a_row, B, b, b_step, count = arguments
        target, left, right = (
            _pointer(context, builder, array, place) for array, place in ((C, c), (A, a), (B, b))
        )
        c_places, a_places = (
            [builder.mul(row, count.type(r)) for r in range(ROWS)] for row in (c_row, a_row)
        )
        totals = [
            cgutils.alloca_once_value(
                builder, _load(builder, target, place, _VECTOR) if eliminates else _ZEROS
            )
            for place in c_places
        ]
        add = builder.fsub if eliminates else builder.fadd
        with cgutils.for_range(builder, count) as loop:
            row = _load(builder, right, builder.mul(loop.index, b_step), _VECTOR)
            first = builder.mul(loop.index, a_step)
            for total, place in zip(totals, a_places, strict=True):
                factor = _load(builder, left, builder.add(first, place), _VECTOR if lanes else _SCALAR)
                factor = factor if lanes else _spread(builder, factor)
                term = builder.fmul(factor, row, flags=("contract",))
                builder.store(add(builder.load(total), term, flags=("contract",)), total)
        for total, place in zip(totals, c_places, strict=True):
            _store(builder, builder.load(total), target, place)
        return context.get_dummy_value()

    @intrinsic
    def tile(typingctx, C, c, c_row, A, a, a_step, a_row, B, b, b_step, count):
        arrays = (_FLOATS, _WHOLE, _WHOLE)
        return types.void(*arrays, *arrays, _WHOLE, *arrays, _WHOLE), emit

    return tile


def _corner_inverse(lanes: bool) -> Any:
    """Return an intrinsic: T ← U⁻¹ for the 4×4 corner UᵀU whose upper triangle begins at a, row by row.

    T has 16 entries from t on.
    """
    kind = _VECTOR if lanes else _SCALAR
    size = LANES if lanes else 1

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        A, a, a_row, a_step, T, t = arguments
        source, target = _pointer(context, builder, A, a), _pointer(context, builder, T, t)
        whole = a.type
        root = builder.module.declare_intrinsic(
            "llvm.sqrt." + ("v16f32" if lanes else "f32"), (), ir.FunctionType(kind, [kind])
        )

        def constant(value: float) -> Any:
            return ir.Constant(_VECTOR, [_SCALAR(value)] * LANES) if lanes else _SCALAR(value)

        def less(value: Any, one: Any, other: Any) -> Any:
            return builder.fsub(value, builder.fmul(one, other, flags=("contract",)), flags=("contract",))

        # U over the diagonal, and the inverses of its diagonal.
        U: dict[tuple[int, int], Any] = {}
        over = []
        for i in range(ROWS):
            for j in range(i, ROWS):
                place = builder.add(builder.mul(a_row, whole(i)), builder.mul(a_step, whole(j)))
                U[i, j] = _load(builder, source, place, kind)
                for k in range(i):
                    U[i, j] = less(U[i, j], U[k, i], U[k, j])
            least = constant(1e-30)
            safe = builder.select(builder.fcmp_ordered(">", U[i, i], least), U[i, i], least)
            over.append(builder.fdiv(constant(1.0), builder.call(root, [safe])))
            for j in range(i + 1, ROWS):
                U[i, j] = builder.fmul(U[i, j], over[i])
        # Row i of U⁻ᵀ follows from the rows before it; it is column i of T.
        W: dict[tuple[int, int], Any] = {}
        for i in range(ROWS):
            for j in range(ROWS):
                if i < j:
                    W[i, j] = constant(0.0)
                elif i == j:
                    W[i, j] = over[i]
                else:
                    total = constant(0.0)
                    for k in range(j, i):
                        total = less(total, U[k, i], W[k, j])
                    W[i, j] = builder.fmul(total, over[i])
                _store(builder, W[i, j], target, whole((ROWS * j + i) * size))
        return context.get_dummy_value()

    @intrinsic
    def corner(typingctx, A, a, a_row, a_step, T, t):
        return types.void(_FLOATS, _WHOLE, _WHOLE, _WHOLE, _FLOATS, _WHOLE), emit

    return corner


product, product_of_lanes = (_tile_product(lanes, False) for lanes in (False, True))
eliminate, eliminate_lanes = (_tile_product(lanes, True) for lanes in (False, True))
corner_inverse, corner_inverse_of_lanes = (_corner_inverse(lanes) for lanes in (False, True))


@intrinsic
def sum_of_lines(typingctx, total, t, X, x, step, count):
    """Write the sum of ``count`` rows of sixteen entries, from x on, ``step`` apart."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        total, t, X, x, step, count = arguments
        target, source = (_pointer(context, builder, *part) for part in ((total, t), (X, x)))
        value = cgutils.alloca_once_value(builder, _ZEROS)
        with cgutils.for_range(builder, count) as loop:
            row = _load(builder, source, builder.mul(loop.index, step), _VECTOR)
            builder.store(builder.fadd(builder.load(value), row), value)
        _store(builder, builder.load(value), target, count.type(0))
        return context.get_dummy_value()

    return types.void(_FLOATS, _WHOLE, _FLOATS, _WHOLE, _WHOLE, _WHOLE), emit


@intrinsic
def squares_apart(typingctx, total, t, X, x, Y, y, Q, q, plane, planes, step, count):
    """Write Σ Q (X − Y)² over ``planes`` planes and ``count`` rows of each, for sixteen columns."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        total, t, X, x, Y, y, Q, q, plane, planes, step, count = arguments
        target, *sources = (
            _pointer(context, builder, *part) for part in ((total, t), (X, x), (Y, y), (Q, q))
        )
        value = cgutils.alloca_once_value(builder, _ZEROS)
        with cgutils.for_range(builder, planes) as outer, cgutils.for_range(builder, count) as inner:
            place = builder.add(builder.mul(outer.index, plane), builder.mul(inner.index, step))
            here, there, weight = (_load(builder, source, place, _VECTOR) for source in sources)
            apart = builder.fsub(here, there)
            square = builder.fmul(builder.fmul(weight, apart), apart, flags=("contract",))
            builder.store(builder.fadd(builder.load(value), square, flags=("contract",)), value)
        _store(builder, builder.load(value), target, count.type(0))
        return context.get_dummy_value()

    pair = (_FLOATS, _WHOLE)
    return types.void(*pair, *pair, *pair, *pair, _WHOLE, _WHOLE, _WHOLE, _WHOLE), emit


@intrinsic
def below(typingctx, values, value, limits, limit):
    """Return which of sixteen values are below their limits, as bits of an integer."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        values, value, limits, limit = arguments
        one, other = (
            _load(builder, _pointer(context, builder, array, place), place.type(0), _VECTOR)
            for array, place in ((values, value), (limits, limit))
        )
        bits = builder.bitcast(builder.fcmp_ordered("<", one, other), ir.IntType(LANES))
        return builder.zext(bits, ir.IntType(64))

    return _WHOLE(_FLOATS, _WHOLE, _FLOATS, _WHOLE), emit


@intrinsic
def lowest_bit(typingctx, bits):
    """Return the place of the lowest bit of an integer that is not 0."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.IntType(1)(1))

    return _WHOLE(_WHOLE), emit


# --- rows of sparse matrices, for four columns side by side ---

FOUR = 4
_FOUR = ir.VectorType(_SCALAR, FOUR)
_PLACES = types.Array(types.int32, 1, "C")


def _entry(context: Any, builder: Any, part: Any) -> Any:
    """Return a function of e: the place of its row in a matrix of four columns, and the entry four times."""
    columns, entries, begin = part
    places = context.make_array(_PLACES)(context, builder, columns).data
    factors = context.make_array(_FLOATS)(context, builder, entries).data

    def at(e: Any) -> tuple[Any, Any]:
        e = builder.add(begin, e)
        column = builder.zext(builder.load(builder.gep(places, [e])), begin.type)
        return builder.mul(column, begin.type(FOUR)), _spread(
            builder, builder.load(builder.gep(factors, [e])), FOUR
        )

    return at


@intrinsic
def weighted_sum(typingctx, total, x, columns, entries, begin, count):
    """Write Σ_e entries[e] · x[columns[e]] of ``count`` entries from ``begin`` on; x has four columns."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        total, x, *part, count = arguments
        zero = count.type(0)
        target, source = (_pointer(context, builder, array, zero) for array in (total, x))
        at = _entry(context, builder, part)
        # Two sums, so that an addition need not wait for the one before it.
        sums = [cgutils.alloca_once_value(builder, ir.Constant(_FOUR, [_SCALAR(0)] * FOUR)) for _ in range(2)]

        def add(e: Any, value: Any) -> None:
            place, factor = at(e)
            term = builder.fmul(factor, _load(builder, source, place, _FOUR), flags=("contract",))
            builder.store(builder.fadd(builder.load(value), term, flags=("contract",)), value)

        with cgutils.for_range(builder, builder.ashr(count, count.type(1))) as loop:
            twice = builder.shl(loop.index, count.type(1))
            add(twice, sums[0])
            add(builder.add(twice, count.type(1)), sums[1])
        with builder.if_then(builder.trunc(count, ir.IntType(1))):
            add(builder.sub(count, count.type(1)), sums[0])
        _store(builder, builder.fadd(*map(builder.load, sums)), target, zero)
        return context.get_dummy_value()

    return types.void(_FLOATS, _FLOATS, _PLACES, _FLOATS, _WHOLE, _WHOLE), emit


@intrinsic
def add_weighted(typingctx, total, x, columns, entries, begin, count):
    """Add entries[e] · total to x[columns[e]] for ``count`` entries from ``begin`` on."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        total, x, *part, count = arguments
        zero = count.type(0)
        source, target = (_pointer(context, builder, array, zero) for array in (total, x))
        value, at = _load(builder, source, zero, _FOUR), _entry(context, builder, part)
        with cgutils.for_range(builder, count) as loop:
            place, factor = at(loop.index)
            term = builder.fmul(factor, value, flags=("contract",))
            before = _load(builder, target, place, _FOUR)
            _store(builder, builder.fadd(before, term, flags=("contract",)), target, place)
        return context.get_dummy_value()

    return types.void(_FLOATS, _FLOATS, _PLACES, _FLOATS, _WHOLE, _WHOLE), emit
