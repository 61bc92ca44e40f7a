"""Vectorised building blocks for numba kernels: exponentials, maxima, and transposed tiles in registers.

Call them from compiled code only. Addresses are plain integers, as in ``_blas.py``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload


@intrinsic
def _float_of_bits(typingctx, bits):
    """Return the float whose bits an int32 or int64 holds."""
    narrow = bits == types.int32

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.FloatType() if narrow else ir.DoubleType())

    return (types.float32 if narrow else types.float64)(bits), emit


def exp(x: Any) -> Any:
    """Return exp(x) for x ≤ 0, in a form that vectorises; numba's ``exp`` calls a scalar routine."""
    raise NotImplementedError("for compiled code only")


@overload(exp, jit_options={"error_model": "numpy"})
def _exp_overload(x):
    return _exp32 if x == types.float32 else _exp64


def _exp32(x):
    # x = k ln 2 + r with |r| ≤ ln 2 / 2; ln 2 in two parts, the first exact in few bits.
    x = max(x, np.float32(-87.0))
    k = np.int32(x * np.float32(1.4426950408889634) - np.float32(0.5))
    r = x - np.float32(k) * np.float32(0.693359375)
    r -= np.float32(k) * np.float32(-2.12194440e-4)
    y = np.float32(1 / 5040)
    y = y * r + np.float32(1 / 720)
    y = y * r + np.float32(1 / 120)
    y = y * r + np.float32(1 / 24)
    y = y * r + np.float32(1 / 6)
    y = y * r + np.float32(0.5)
    y = y * r + np.float32(1)
    y = y * r + np.float32(1)
    return y * _float_of_bits(np.int32((k + np.int32(127)) << np.int32(23)))


def _exp64(x):
    x = max(x, -708.0)
    k = np.int64(np.int32(x * 1.4426950408889634 - 0.5))
    r = x - k * 0.693147180369123816490
    r -= k * 1.90821492927058770002e-10
    y = 1 / 6227020800
    y = y * r + 1 / 479001600
    y = y * r + 1 / 39916800
    y = y * r + 1 / 3628800
    y = y * r + 1 / 362880
    y = y * r + 1 / 40320
    y = y * r + 1 / 5040
    y = y * r + 1 / 720
    y = y * r + 1 / 120
    y = y * r + 1 / 24
    y = y * r + 1 / 6
    y = y * r + 0.5
    y = y * r + 1.0
    y = y * r + 1.0
    return y * _float_of_bits((k + np.int64(1023)) << np.int64(52))


def maximum(values: Any) -> Any:
    """Return the largest of a contiguous line of floats; NaN counts as larger than all numbers.

    A maximum of floats does not vectorise, because of NaN; one of integers does. The bits of a float, with
    all but the sign inverted for negative numbers, have the order of the floats.
    """
    raise NotImplementedError("for compiled code only")


@overload(maximum)
def _maximum_overload(values):
    return _maximum32 if values.dtype == types.float32 else _maximum64


def _maximum32(values):
    bits = values.view(np.int32)
    magnitude, sign = np.int32(0x7FFFFFFF), np.int32(31)
    top = np.int32(-0x80000000)
    for j in range(bits.size):
        top = max(top, np.int32(bits[j] ^ ((bits[j] >> sign) & magnitude)))
    return _float_of_bits(np.int32(top ^ ((top >> sign) & magnitude)))


def _maximum64(values):
    bits = values.view(np.int64)
    magnitude, sign = np.int64(0x7FFFFFFFFFFFFFFF), np.int64(63)
    top = np.int64(-0x8000000000000000)
    for j in range(bits.size):
        top = max(top, bits[j] ^ ((bits[j] >> sign) & magnitude))
    return _float_of_bits(top ^ ((top >> sign) & magnitude))


def lanes(scalar_bytes: int) -> int:
    """Return the side of a tile: as many entries as 32 bytes hold."""
    return 32 // scalar_bytes


@overload(lanes)
def _lanes_overload(scalar_bytes):
    return lambda scalar_bytes: 32 // scalar_bytes


class _Tile:
    """A square tile of a row-major matrix, one vector register for each of its rows."""

    def __init__(self, builder: Any, scalar: Any, location: Any, stride: Any) -> None:
        self._builder = builder
        self._side = lanes(4 if isinstance(scalar, ir.FloatType) else 8)
        self._align = 32 // self._side
        pointer = builder.inttoptr(location, scalar.as_pointer())
        vector = ir.VectorType(scalar, self._side)
        self._rows = [
            builder.bitcast(
                builder.gep(pointer, [builder.mul(stride, stride.type(row))]), vector.as_pointer()
            )
            for row in range(self._side)
        ]

    def load(self) -> list[Any]:
        """Return the rows."""
        return [self._builder.load(row, align=self._align) for row in self._rows]

    def store(self, vectors: list[Any]) -> None:
        """Write the rows."""
        for row, vector in zip(self._rows, vectors, strict=True):
            self._builder.store(vector, row, align=self._align)


def _transpose(builder: Any, vectors: list[Any]) -> list[Any]:
    """Return the transpose of a tile, by swapping the blocks beside the diagonal at every scale."""
    side = len(vectors)
    vectors = list(vectors)
    scale = side // 2
    while scale:
        keep_left = [k if not k & scale else side + k - scale for k in range(side)]
        keep_right = [side + k if k & scale else k + scale for k in range(side)]
        for upper in range(side):
            if not upper & scale:
                a, b = vectors[upper], vectors[upper | scale]
                vectors[upper] = _shuffle(builder, a, b, keep_left)
                vectors[upper | scale] = _shuffle(builder, a, b, keep_right)
        scale //= 2
    return vectors


def _shuffle(builder: Any, a: Any, b: Any, lanes_of_both: list[int]) -> Any:
    mask = ir.Constant(ir.VectorType(ir.IntType(32), len(lanes_of_both)), lanes_of_both)
    return builder.shuffle_vector(a, b, mask)


def _broadcast(builder: Any, value: Any, side: int) -> Any:
    vector = ir.Constant(ir.VectorType(value.type, side), ir.Undefined)
    for lane in range(side):
        vector = builder.insert_element(vector, value, ir.IntType(32)(lane))
    return vector


@intrinsic
def symmetrize_tile(typingctx, upper, lower, stride, half):
    """U ← half · (U + Lᵀ) and L ← Uᵀ for the tiles at two addresses, mirror images of each other."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        upper, lower, stride, half = args
        u, low = (_Tile(builder, half.type, location, stride) for location in (upper, lower))
        above, below = u.load(), _transpose(builder, low.load())
        factor = _broadcast(builder, half, len(above))
        mean = [builder.fmul(factor, builder.fadd(a, b)) for a, b in zip(above, below, strict=True)]
        u.store(mean)
        low.store(_transpose(builder, mean))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, half), emit


@intrinsic
def mirror_tile(typingctx, source, target, stride, like):
    """Write the transpose of the tile at ``source`` to ``target``; ``like`` is any scalar of its dtype."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        source, target, stride, like = args
        tiles = (_Tile(builder, like.type, location, stride) for location in (source, target))
        original, image = tiles
        image.store(_transpose(builder, original.load()))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, like), emit
