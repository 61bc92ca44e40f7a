"""Defects of the kernels that end an iteration: Adam, plain descent, the record of what was computed."""

from .mutation import Mutation

_ADAM = "adam(const long long*"
_DESCEND = "descend(const long long*"

UPDATES = (
    Mutation(
        "adam",
        "epsilon inside the bias correction",
        "(square_root(square) * root + epsilon)",
        "((square_root(square) + epsilon) * root)",
    ),
    Mutation(
        "adam",
        "no bias correction of the second moment",
        "square_root(square) * root + epsilon",
        "square_root(square) + epsilon",
    ),
    Mutation("adam", "wrong sign", "value - rate * mean", "value + rate * mean"),
    Mutation("adam", "first moment not stored", "        *first = mean;\n", ""),
    Mutation("adam", "second moment not stored", "        *second = square;\n", ""),
    Mutation("adam", "second moment does not decay", "keep2 * *second", "*second"),
    Mutation(
        "adam",
        "stale moment: the step uses the mean of the iteration before",
        "        *first = mean;\n        *second = square;\n        return value - rate * mean /",
        "        const T before = *first;\n        *first = mean;\n        *second = square;\n"
        "        return value - rate * before /",
    ),
    Mutation("adam", "gradient not squared", "gain2 * (slope * slope)", "gain2 * slope"),
    Mutation(
        "adam",
        "1 - beta2 and beta2 swapped in the row of numbers",
        "{numbers[0], numbers[1], numbers[2],",
        "{numbers[0], numbers[2], numbers[1],",
    ),
    Mutation(
        "adam",
        "the next row of the numbers table",
        "static_cast<long long>(*cursor) * width",
        "static_cast<long long>(*cursor + 1) * width",
    ),
    Mutation(
        "adam",
        "the first row of the numbers table in every iteration",
        "numbers + static_cast<long long>(*cursor) * width + offset",
        "numbers + offset",
    ),
    Mutation(
        "adam",
        "place of the numbers in 32 bits: overflow far down the table",
        "static_cast<long long>(*cursor) * width",
        "*cursor * width",
    ),
    Mutation("adam", "numbers of the first tensor for all", "words[5]", "tensors[5]", after=_ADAM),
    Mutation(
        "adam", "wrong length of a line of the table", "enum : int { WORDS = 6 }", "enum : int { WORDS = 5 }"
    ),
    Mutation(
        "adam",
        "index in 32 bits: overflow at 50 000 nodes",
        "static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x",
        "static_cast<int>(blockIdx.x * THREADS + threadIdx.x)",
        after=_ADAM,
    ),
    Mutation("adam", "size in 32 bits", "const long long size", "const int size", after=_ADAM),
    Mutation(
        "adam",
        "grid-stride loop broken: every block takes all entries",
        "i += stride",
        "i += THREADS",
        after=_ADAM,
    ),
    Mutation("adam", "entries beyond the grid are left out", "i += stride", "i += size", after=_ADAM),
    Mutation(
        "adam", "tensors beyond the grid are left out", "tensor += gridDim.y", "tensor += count", after=_ADAM
    ),
    Mutation("adam", "the last entry skipped", "i < size;", "i < size - 1;", after=_ADAM),
    Mutation("adam", "one entry too many", "i < size;", "i <= size;", after=_ADAM),
    Mutation("descend", "wrong sign", "p[i] -= rate * g[i]", "p[i] += rate * g[i]"),
    Mutation("descend", "the old value is lost", "p[i] -= rate * g[i]", "p[i] = -rate * g[i]"),
    Mutation("descend", "rate ignored", "p[i] -= rate * g[i]", "p[i] -= g[i]"),
    Mutation("descend", "stale gradient beyond the grid", "rate * g[i]", "rate * g[start]"),
    Mutation("descend", "rate of the first tensor for all", "words[5]", "tensors[5]", after=_DESCEND),
    Mutation(
        "descend",
        "place of the rates in 32 bits: overflow far down the table",
        "static_cast<long long>(*cursor) * width",
        "*cursor * width",
    ),
    Mutation(
        "descend",
        "the next row of the numbers table",
        "static_cast<long long>(*cursor) * width",
        "static_cast<long long>(*cursor + 1) * width",
    ),
    Mutation(
        "descend",
        "index in 32 bits: overflow at 50 000 nodes",
        "static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x",
        "static_cast<int>(blockIdx.x * THREADS + threadIdx.x)",
        after=_DESCEND,
    ),
    Mutation("descend", "size in 32 bits", "const long long size", "const int size", after=_DESCEND),
    Mutation(
        "descend",
        "grid-stride loop broken: every block takes all entries",
        "i += stride",
        "i += THREADS",
        after=_DESCEND,
    ),
    Mutation(
        "descend",
        "tensors beyond the grid are left out",
        "tensor += gridDim.y",
        "tensor += count",
        after=_DESCEND,
    ),
    Mutation("descend", "the last tensor skipped", "tensor < count;", "tensor < count - 1;", after=_DESCEND),
    Mutation("descend", "the last entry skipped", "i < size;", "i < size - 1;", after=_DESCEND),
    Mutation(
        "record", "no barrier before the cursor moves", "    __syncthreads();\n", "", after="record(const"
    ),
    Mutation(
        "record", "the cursor does not go back to the start", "line + 1 < capacity ? line + 1 : 0", "line + 1"
    ),
    Mutation(
        "record", "the cursor goes back one line too late", "line + 1 < capacity ?", "line < capacity ?"
    ),
    Mutation(
        "record", "the cursor goes back one line too early", "line + 1 < capacity ?", "line + 2 < capacity ?"
    ),
    Mutation("record", "cursor ignored: always the first line", "ring[line * size + i]", "ring[i]"),
    Mutation(
        "record",
        "wrong transpose: problems before sources",
        "sources[i / batch]);\n        ring[line * size + i] = source[i % batch];",
        "sources[i % count]);\n        ring[line * size + i] = source[i / count];",
    ),
    Mutation(
        "record", "lines with the length of one source", "ring[line * size + i]", "ring[line * batch + i]"
    ),
    Mutation(
        "record",
        "place of a line in 32 bits: overflow in a long ring",
        "const long long size = static_cast<long long>(count) * batch;",
        "const int size = count * batch;",
    ),
    Mutation(
        "record",
        "no more than 256 values",
        "i < size; i += THREADS)",
        "i < size; i += size)",
        after="record(const",
    ),
    Mutation("record", "the last value skipped", "i < size;", "i < size - 1;", after="record(const"),
    Mutation(
        "record",
        "every thread moves the cursor",
        "    if (threadIdx.x == 0) {\n        *cursor",
        "    {\n        *cursor",
    ),
    Mutation(
        "record",
        "further blocks work, too",
        "    if (blockIdx.x > 0 || blockIdx.y > 0 || blockIdx.z > 0) {\n        return;\n    }\n",
        "",
    ),
)
