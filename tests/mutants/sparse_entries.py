"""Defects of the kernels of the sparse form that work on observed entries, and on candidate edges."""

from .mutation import Mutation

_ROWS = "row_residuals(const"
_FENCE = ("    __threadfence();\n", "", "__shared__ int last;\n")

SPARSE_ENTRIES = (
    Mutation("row_residuals", "mean ignored", "const T base = *mean + rows[", "const T base = rows["),
    Mutation("row_residuals", "row offset ignored", "*mean + rows[piece.line];", "*mean;"),
    Mutation("row_residuals", "column offset of the row", "columns[other] -", "columns[piece.line] -"),
    Mutation("row_residuals", "wrong sign of the data", "- values[entry]", "+ values[entry]"),
    Mutation("row_residuals", "missing factor: scale", "T slope = scale * error;", "T slope = error;"),
    Mutation(
        "row_residuals",
        "missing factor 1/2 in the value",
        "finish_sum(squares, T(0.5) * scale,",
        "finish_sum(squares, scale,",
    ),
    Mutation(
        "row_residuals", "the last entry of a line skipped", "entry < piece.last", "entry < piece.last - 1"
    ),
    Mutation(
        "row_residuals",
        "missing compensation of the value",
        "squares.add(error * error);",
        "squares.high += error * error;",
    ),
    Mutation(
        "row_residuals",
        "every lane adds the square",
        "if (lane == 0) {\n                squares",
        "{\n                squares",
    ),
    Mutation(
        "row_residuals",
        "columns beyond the registers left out of the product",
        "warp_total(own.dot(found) + rest_of_dot(here, there, rank))",
        "warp_total(own.dot(found))",
    ),
    Mutation(
        "row_residuals", "the row's own factor pulled", "pull.add(slope, found)", "pull.add(slope, own)"
    ),
    Mutation("row_residuals", "totals without the scale", "total += slope;", "total += error;"),
    Mutation("row_residuals", "lines beyond the grid left out", "p += item_stride()", "p += pieces"),
    Mutation(
        "row_residuals",
        "only lane 0 has the whole product",
        "__shfl_xor_sync(FULL, value, distance)",
        "__shfl_down_sync(FULL, value, distance)",
    ),
    Mutation(
        "row_residuals",
        "parts without room for the total",
        "parts + slot * (rank + 1);",
        "parts + slot * rank;",
    ),
    Mutation("row_residuals", "a piece taken for a line", "lines == nullptr ? p : lines[p]", "p"),
    Mutation(
        "row_residuals",
        "place of a column's factor in 32 bits: overflow in large factors",
        "const long long other",
        "const int other",
    ),
    Mutation(
        "row_residuals",
        "place of a row's factor in 32 bits: overflow in large factors",
        "u + piece.line * rank",
        "u + static_cast<int>(piece.line) * rank",
    ),
    Mutation(
        "row_residuals",
        "entries counted in 32 bits: overflow beyond 2^31",
        "    long long line, slot, first, last;\n",
        "    long long line, slot;\n    int first, last;\n",
    ),
    Mutation("row_residuals", "no __threadfence before the ticket", *_FENCE),
    Mutation("entry_values", "mean ignored", "product + *mean + row", "product + row"),
    Mutation("entry_values", "row offset ignored", "row_offsets[row] + ", ""),
    Mutation("entry_values", "column offset of the row", "column_offsets[column]", "column_offsets[row]"),
    Mutation("entry_values", "the row's index for the column", "v + column * rank", "v + row * rank"),
    Mutation("entry_values", "the last pair skipped", "k < count;", "k < count - 1;"),
    Mutation("entry_values", "one pair too many", "k < count;", "k <= count;"),
    Mutation("entry_values", "pairs beyond the grid left out", "k += item_stride()", "k += count"),
    Mutation(
        "entry_values",
        "indices in 32 bits: overflow in large factors",
        "const long long row = rows[k],",
        "const int row = rows[k],",
    ),
    Mutation(
        "entry_values",
        "pairs counted in 32 bits: overflow beyond 2^31",
        "return static_cast<long long>(blockIdx.x) * WARPS + threadIdx.x / LANES;",
        "return static_cast<int>(blockIdx.x * WARPS + threadIdx.x / LANES);",
    ),
    Mutation(
        "entry_values",
        "columns beyond the registers left out",
        "warp_total(part + rest_of_dot(a, b, rank))",
        "warp_total(part)",
    ),
    Mutation(
        "entry_values",
        "half of the warp left out of a sum",
        "int distance = LANES / 2;",
        "int distance = LANES / 4;",
    ),
    Mutation(
        "entry_values",
        "one column too many",
        "column < rank ? row[column] : T(0)",
        "column <= rank ? row[column] : T(0)",
    ),
    Mutation(
        "edge_terms",
        "maximum not subtracted before exp",
        "exponential(logits[edge] - top)",
        "exponential(logits[edge])",
    ),
    Mutation(
        "edge_terms",
        "every lane has a maximum of its own",
        "            top = larger(top, __shfl_xor_sync(FULL, top, distance));\n",
        "",
    ),
    Mutation("edge_terms", "no maximum below zero", "T top = lowest<T>();", "T top = T(0);"),
    Mutation("edge_terms", "missing factor 1/2 in the slopes", "T(0.5) * weight * (", "weight * ("),
    Mutation("edge_terms", "mean distance not normalised", "        mean *= inverse;\n", ""),
    Mutation("edge_terms", "weights not normalised", "weights[edge] * inverse;", "weights[edge];"),
    Mutation("edge_terms", "pull not normalised", "0, rank, inverse, false", "0, rank, T(1), false"),
    Mutation("edge_terms", "metric ignored", "gap.square(Columns<T>::read(metric, 0, rank))", "gap.dot(gap)"),
    Mutation(
        "edge_terms",
        "metric ignored beyond the registers",
        "metric[column] * (difference * difference)",
        "difference * difference",
    ),
    Mutation(
        "edge_terms",
        "wrong sign of the pull",
        "own.minus(Columns<T>::read(there, 0, rank))",
        "Columns<T>::read(there, 0, rank).minus(own)",
    ),
    Mutation(
        "edge_terms",
        "missing factor 1/2 in the energy",
        "finish_sum(energy, T(0.5)",
        "finish_sum(energy, T(1)",
    ),
    Mutation(
        "edge_terms",
        "every lane adds the energy",
        "if (lane == 0) {\n            energy",
        "{\n            energy",
    ),
    Mutation("edge_terms", "missing compensation of the energy", "energy.add(mean);", "energy.high += mean;"),
    Mutation(
        "edge_terms",
        "a node without edges is divided by zero",
        "last > first ? T(1) / mass : T(0)",
        "T(1) / mass",
    ),
    Mutation("edge_terms", "a lane reads what another wrote", "(edge - first) % LANES == lane", "lane == 0"),
    Mutation("edge_terms", "the last edge skipped", "edge < last; ++edge", "edge < last - 1; ++edge"),
    Mutation("edge_terms", "nodes beyond the grid left out", "node += item_stride()", "node += nodes"),
    Mutation(
        "edge_terms",
        "place of a node in 32 bits: overflow in large factors",
        "here = t + node * rank",
        "here = t + static_cast<int>(node) * rank",
    ),
    Mutation(
        "edge_terms",
        "place of a neighbour in 32 bits: overflow in large factors",
        "static_cast<long long>(indices[edge]) * rank",
        "indices[edge] * rank",
    ),
    Mutation("edge_terms", "no __threadfence before the ticket", *_FENCE),
)
