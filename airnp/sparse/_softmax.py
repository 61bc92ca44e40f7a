"""The softmax of one line and the slope of its energy, in vector registers; for compiled code only."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from airnp.sparse._registers import Block, Code

# exp(x) = 2^k e^r with |r| ≤ ln 2 / 2; ln 2 in two parts, the first exact in few bits. For each size of a
# number: the least exponent, both parts, terms of the series, bits of the fraction, and the exponent's bias.
_EXP = {
    4: (-87.0, 0.693359375, -2.12194440e-4, 7, 23, 127),
    8: (-708.0, 0.693147180369123816490, 1.90821492927058770002e-10, 13, 52, 1023),
}


class _Vectors:
    """Arithmetic on vectors and constants."""

    def __init__(self, code: Code) -> None:
        self.code, self.builder = code, code.builder
        self._whole = ir.VectorType(ir.IntType(8 * code.size), code.lanes)

    def all(self, value: float, kind: Any = None) -> Any:
        """Return a vector of equal constants."""
        return ir.Constant(self.code.vector if kind is None else kind, [value] * self.code.lanes)

    def larger(self, a: Any, b: Any) -> Any:
        return self.builder.select(self.builder.fcmp_ordered(">", a, b), a, b)

    def largest(self, vector: Any) -> Any:
        """Return the largest number of a vector, in all its places."""
        nothing = ir.Constant(self.code.vector, ir.Undefined)
        step = self.code.lanes // 2
        while step:
            turned = [(place + step) % self.code.lanes for place in range(self.code.lanes)]
            places = ir.Constant(ir.VectorType(ir.IntType(32), self.code.lanes), turned)
            vector = self.larger(vector, self.builder.shuffle_vector(vector, nothing, places))
            step //= 2
        return vector

    def exp(self, x: Any) -> Any:
        """Return exp(x) for x ≤ 0; what would be smaller than normal numbers is the smallest of these."""
        code, builder = self.code, self.builder
        least, high, low, terms, fraction, bias = _EXP[code.size]
        # A number that is none stays so: the comparison is false for it.
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


def _joined(
    code: Code, count: Any, start: Sequence[Any], body: Callable[[Block, list[Any]], list[Any]]
) -> list[Any]:
    """Return vectors after ``totals = body(block, totals)`` for all blocks of a line."""
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

        top = vectors.largest(_joined(code, count, [vectors.all(-math.inf)], climb)[0])

        def weigh(block: Block, totals: list[Any]) -> list[Any]:
            found = [vectors.exp(code.subtract(value, top)) for value in block.load(logits)]
            found = within(block, found, 0.0)
            block.store(found, weights)
            total, mean = totals
            for weight, distance in zip(found, block.load(slopes), strict=True):
                total, mean = code.add(total, weight), code.add(mean, code.multiply(weight, distance))
            return [total, mean]

        sums = [code.total([found]) for found in _joined(code, count, [vectors.all(0.0)] * 2, weigh)]
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
