"""Defects of the kernels of the sparse form that sum over lines."""

from .mutation import Mutation

_SUMS, _GAPS, _JOIN = "line_sums(const", "gap_sums(const", "join_pieces(const"

SPARSE_LINES = (
    Mutation(
        "line_sums",
        "weights ignored",
        "weights == nullptr ? T(1) : weight_of(weights, places, entry)",
        "T(1)",
    ),
    Mutation("line_sums", "no weights taken for zero", "? T(1) : weight_of", "? T(0) : weight_of"),
    Mutation("line_sums", "weights in another order", "places == nullptr ? entry : places[entry]", "entry"),
    Mutation(
        "line_sums",
        "the last entry of a line skipped",
        "entry < piece.last",
        "entry < piece.last - 1",
        after=_SUMS,
    ),
    Mutation("line_sums", "the line's own row summed", "x + other * rank", "x + piece.line * rank"),
    Mutation("line_sums", "totals count entries", "total += weight;", "total += T(1);"),
    Mutation(
        "line_sums",
        "totals written by every group of columns",
        "totals != nullptr && unit.start == 0 &&",
        "totals != nullptr &&",
    ),
    Mutation(
        "line_sums",
        "groups of columns overlap",
        "static_cast<int>(unit % chunks) * COLUMNS",
        "static_cast<int>(unit % chunks) * LANES",
    ),
    Mutation(
        "line_sums",
        "groups of columns rounded down",
        "(rank - start + COLUMNS - 1) / COLUMNS",
        "(rank - start) / COLUMNS",
    ),
    Mutation("line_sums", "start ignored", "start(start_column + static_cast", "start(static_cast"),
    Mutation(
        "line_sums",
        "parts by line instead of slot",
        "parts + slot * (rank + 1);",
        "parts + line * (rank + 1);",
    ),
    Mutation(
        "line_sums",
        "lines beyond the grid left out",
        "item += item_stride()",
        "item += pieces * chunks",
        after=_SUMS,
    ),
    Mutation(
        "line_sums",
        "place of a factor in 32 bits: overflow in large factors",
        "const long long other",
        "const int other",
        after=_SUMS,
    ),
    Mutation(
        "line_sums",
        "place of a part in 32 bits: overflow",
        "    long long line, slot, first, last;\n",
        "    long long line;\n    int slot;\n    long long first, last;\n",
    ),
    Mutation("line_sums", "one column too many written", "if (column < rank) {", "if (column <= rank) {"),
    Mutation(
        "gap_sums",
        "wrong sign of the pull",
        "own.minus(Columns<T>::read(t + other * rank, unit.start, rank))",
        "Columns<T>::read(t + other * rank, unit.start, rank).minus(own)",
    ),
    Mutation("gap_sums", "missing factor: scale", "rank, scale, ADDS", "rank, T(1), ADDS"),
    Mutation("gap_sums", "adds to stale parts", "ADDS && piece.is_whole()", "ADDS"),
    Mutation("gap_sums", "overwrites instead of adding", "ADDS && piece.is_whole()", "false"),
    Mutation(
        "gap_sums", "energy without weights", "energy.add(weight * gap.square(", "energy.add(gap.square("
    ),
    Mutation(
        "gap_sums", "missing factor 1/2 in the energy", "finish_sum(energy, T(0.5)", "finish_sum(energy, T(1)"
    ),
    Mutation(
        "gap_sums",
        "missing compensation of the energy",
        "energy.add(weight * gap.square(Columns<T>::read(metric, unit.start, rank)));",
        "energy.high += weight * gap.square(Columns<T>::read(metric, unit.start, rank));",
    ),
    Mutation(
        "gap_sums",
        "metric of the first group of columns",
        "read(metric, unit.start, rank)",
        "read(metric, 0, rank)",
    ),
    Mutation("gap_sums", "distances not squared", "(values[part] * values[part])", "values[part]"),
    Mutation("gap_sums", "weights in another order", "places == nullptr ? entry : places[entry]", "entry"),
    Mutation("gap_sums", "a piece taken for a line", "t + piece.line * rank", "t + unit.piece * rank"),
    Mutation(
        "gap_sums",
        "the last edge of a node skipped",
        "entry < piece.last",
        "entry < piece.last - 1",
        after=_GAPS,
    ),
    Mutation(
        "gap_sums",
        "lines beyond the grid left out",
        "item += item_stride()",
        "item += pieces * chunks",
        after=_GAPS,
    ),
    Mutation(
        "gap_sums",
        "place of a neighbour in 32 bits: overflow in large factors",
        "const long long other",
        "const int other",
        after=_GAPS,
    ),
    Mutation(
        "gap_sums",
        "no __threadfence before the ticket",
        "    __threadfence();\n",
        "",
        after="__shared__ int last;\n",
    ),
    Mutation("join_pieces", "the first piece skipped", "slot = firsts[split];", "slot = firsts[split] + 1;"),
    Mutation(
        "join_pieces", "the last piece skipped", "slot < firsts[split + 1]", "slot < firsts[split + 1] - 1"
    ),
    Mutation(
        "join_pieces",
        "parts without room for the total",
        "parts[slot * width + column]",
        "parts[slot * rank + column]",
    ),
    Mutation("join_pieces", "the number of a line for the line", "line = lines[split];", "line = split;"),
    Mutation("join_pieces", "overwrites instead of adding", "(ADDS ? *target : T(0)) + sum", "sum"),
    Mutation("join_pieces", "adds to what is not there", "(ADDS ? *target : T(0)) + sum", "*target + sum"),
    Mutation("join_pieces", "totals left out", "(column == rank && totals == nullptr)", "column == rank"),
    Mutation(
        "join_pieces",
        "start ignored: columns overwritten that are not in parts",
        "column < start || (column == rank",
        "(column == rank",
    ),
    Mutation("join_pieces", "the last number left out", "i < splits * width;", "i < splits * width - 1;"),
    Mutation(
        "join_pieces",
        "lines beyond the grid left out",
        "i += stride) {\n        const long long split",
        "i += splits * width) {\n        const long long split",
    ),
    Mutation(
        "join_pieces",
        "rows of the result as wide as those of parts",
        "out + line * rank",
        "out + line * width",
    ),
    Mutation(
        "join_pieces",
        "place of a result in 32 bits: overflow in large factors",
        "const long long split = i / width, column = i % width, line = lines[split];",
        "const long long split = i / width, column = i % width;\n        const int line = lines[split];",
    ),
    Mutation(
        "join_pieces",
        "numbers counted in 32 bits: overflow beyond 2^31",
        "static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;",
        "static_cast<int>(blockIdx.x * THREADS + threadIdx.x);",
        after=_JOIN,
    ),
)
