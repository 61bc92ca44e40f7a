"""The planted defects, by kernel: what is wrong, the text as it is, the text instead, and where to look.

Every kernel has at least a wrong bound or index, a wrong formula, and a race or a 32-bit overflow.
"""

from .mutation import Mutation

_TICKET = "__shared__ int last;\n"

_DEFECTS: dict[str, list[tuple[str, ...]]] = {
    "graph_statistics": [
        (
            "no barrier after writing diag K to shared memory",
            "__syncthreads();",
            "",
            "lengths[threadIdx.x] =",
        ),
        ("partial sums merged without a common maximum", "        other.raise(common);\n", ""),
        ("one column too many", "inside = start + column < nodes;", "inside = start + column <= nodes;"),
        (
            "row index in 32 bits",
            "const long long line = place(0, row, 0, nodes, nodes);",
            "const int line = row * nodes;",
        ),
        (
            "V_ij + V_ij instead of V_ij + V_ji",
            "exponential(upper[k] + tile[lane][row] - pair_top)",
            "exponential(upper[k] + tile[row][lane] - pair_top)",
        ),
        (
            "one maximum for V_ij and for V_ij + V_ji",
            "pair_top = i < j ? larger(pair_top, upper[k] + tile[lane][row]) : pair_top;",
            "pair_top = top;",
        ),
        ("no __threadfence after the ticket", "    __threadfence();\n    return last", "    return last"),
    ],
    "graph_step": [
        (
            "no barrier after loading the tiles",
            "            __syncthreads();\n",
            "",
            "tile[row][lane] = lower ? v[base",
        ),
        (
            "no __threadfence before a strip's ticket",
            "            __threadfence();\n            __syncthreads();\n            if (threadIdx.x < 2)",
            "            __syncthreads();\n            if (threadIdx.x < 2)",
        ),
        (
            "no barrier between two strips that end in the same block",
            "        pull[node] = factor * sum;\n    }\n    __syncthreads();",
            "        pull[node] = factor * sum;\n    }",
        ),
        ("r_i in place of r_j", "distance - sides[1].energy[lane]);", "distance - sides[0].energy[row]);"),
        (
            "the diagonal steps twice",
            "if (left < below && below < nodes)",
            "if (left <= below && below < nodes)",
        ),
        (
            "index of the lower tile in 32 bits",
            "const long long at = base + place(0, below, left, nodes, nodes);",
            "const int at = base + below * nodes + left;",
        ),
        (
            "wrong pairs for an even number of strips",
            "low = own ? line : t - line - (width - t);",
            "low = own ? line : t - line;",
        ),
        ("double arithmetic in the float kernel", "- T(2) * gram[at];", "- 2.0 * gram[at];"),
    ],
    "mirror": [
        (
            "no barrier before the tile is read",
            "        __syncthreads();\n",
            "",
            "gram[place(0, above, right, nodes, nodes)];\n            }\n        }\n",
        ),
        (
            "no barrier before the next tile",
            "= tile[lane][row];\n            }\n        }\n        __syncthreads();\n    }\n}",
            "= tile[lane][row];\n            }\n        }\n    }\n}",
        ),
        ("tile not turned", "nodes)] = tile[lane][row];", "nodes)] = tile[row][lane];"),
        (
            "one row too many",
            "if (below < nodes && left < below)",
            "if (below <= nodes && left < below)",
        ),
    ],
    "masked_residual": [
        ("Huber clips one side only", "error < -delta ? -delta : error", "error"),
        ("row scales of the first problem for all", "row_scale + matrix * m", "row_scale"),
        (
            "start of a problem in 32 bits",
            "const long long base",
            "const int base",
            "masked_residual(const T*",
        ),
        ("float sums without compensation", "        low += (high - (total - part)) + (x - part);\n", ""),
        (
            "ticket not reset",
            "atomicInc(ticket, drawers - 1) == drawers - 1",
            "atomicAdd(ticket, 1u) == drawers - 1",
        ),
        (
            "no barrier after reading the sums of the warps",
            "        total.merge(shared[warp]);\n    }\n    __syncthreads();",
            "        total.merge(shared[warp]);\n    }",
        ),
        (
            "the last block adds at most 256 parts",
            "block < gridDim.x; block += THREADS) {\n            total",
            "block < gridDim.x; block += gridDim.x) {\n            total",
        ),
    ],
    "add_scaled_lines": [
        ("overwrites g", "+= scales.at(at)", "= scales.at(at)"),
        ("one entry too many", "return index < size;", "return index <= size;"),
        ("entries counted in 32 bits", "long long index, size, stride;", "int index, size, stride;"),
    ],
    "add_variation": [
        (
            "cancellation in sqrt(d^2 + eps^2) - eps",
            "return step * step / (square_root(step * step + epsilon * epsilon) + epsilon);",
            "return square_root(step * step + epsilon * epsilon) - epsilon;",
        ),
        (
            "last column linked to the next row",
            "if (at.column + 1 < at.columns)",
            "if (at.column < at.columns)",
        ),
        ("start of a problem in 32 bits", "const long long base", "const int base", "add_variation(T*"),
    ],
    "add_laplacian": [
        ("degrees per problem although shared", "degree_batch > 1 ? matrix : 0", "matrix"),
        ("wrong sign of the neighbours", "current - neighbours[base", "current + neighbours[base"),
        ("start of a problem in 32 bits", "const long long base", "const int base", "add_laplacian(T*"),
        (
            "partial sums of other blocks read through the read-only cache",
            "T scale, Sum<T>* partial,",
            "T scale, Sum<T>* __restrict__ partial,",
            "add_laplacian(T*",
        ),
    ],
    "add_sparse_laplacian": [
        ("one edge too many", "edge < last[node]", "edge <= last[node]"),
        ("weights of the edges ignored", "data[edge] * z[", "z["),
        ("edges counted in 32 bits", "for (long long edge", "for (int edge"),
        ("edges of a column read one after another", "COLUMNS ? LANES : 1", "1"),
    ],
    "adam": [
        (
            "epsilon inside the bias correction",
            "(square_root(square) * root + epsilon)",
            "((square_root(square) + epsilon) * root)",
        ),
        ("numbers of the first tensor for all", "words[5]", "tensors[5]", "adam(const long long*"),
        ("entries beyond the grid left out", "i += stride", "i += size", "adam(const long long*"),
        ("place of the numbers in 32 bits", "static_cast<long long>(*cursor) * width", "*cursor * width"),
    ],
    "descend": [
        ("wrong sign", "p[i] -= rate * g[i]", "p[i] += rate * g[i]"),
        ("every block steps all entries", "i += stride", "i += THREADS", "descend(const long long*"),
        (
            "index in 32 bits",
            "static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x",
            "static_cast<int>(blockIdx.x * THREADS + threadIdx.x)",
            "descend(const long long*",
        ),
    ],
    "record": [
        ("the cursor wraps one line late", "line + 1 < capacity ?", "line < capacity ?"),
        (
            "problems before sources",
            "sources[i / batch]);\n        ring[line * size + i] = source[i % batch];",
            "sources[i % count]);\n        ring[line * size + i] = source[i / count];",
        ),
        (
            "every thread moves the cursor",
            "    if (threadIdx.x == 0) {\n        *cursor",
            "    {\n        *cursor",
        ),
        (
            "place of a line in 32 bits",
            "const long long size = static_cast<long long>(count) * batch;",
            "const int size = count * batch;",
        ),
    ],
    "split": [
        ("two bits too many in the first half", "T(8193)", "T(2049)"),
        ("product and difference may be fused", "return __fmul_rn(a, b);", "return a * b;"),
        ("the rest of another rounding", "low[i] = value - top;", "low[i] = large - value;"),
        ("index in 32 bits", "for (long long i = static_cast", "for (int i = static_cast"),
        ("one entry too many", "i < size", "i <= size"),
    ],
    "match_patches": [
        (
            "no barrier before the nearest are sorted",
            "        __syncthreads();\n        if (static_cast<int>(threadIdx.x) < wanted) {",
            "        if (static_cast<int>(threadIdx.x) < wanted) {",
        ),
        (
            "equal distances in the order of arrival",
            "near[k] == distance && numbers[k] < number",
            "near[k] == distance && k < static_cast<int>(threadIdx.x)",
        ),
        ("the last of equal distances left out", "i <= last", "i < last"),
        ("weights of gaps and of observed pixels exchanged", "gap ? trust : T(1)", "gap ? T(1) : trust"),
        ("candidates beyond the right edge", "min(x + search, width - patch)", "min(x + search, width - 1)"),
        (
            "place of a patch in 32 bits",
            "__forceinline__ long long corner(int number",
            "__forceinline__ int corner(int number",
        ),
        (
            "size of a channel in 32 bits",
            "const long long plane = static_cast<long long>(height) * width;",
            "const int plane = height * width;",
        ),
    ],
    "fill_groups": [
        (
            "no barrier before patches are overwritten",
            "start += CHUNK) {\n        __syncthreads();\n",
            "start += CHUNK) {\n",
        ),
        (
            "no barrier after a line of the factor",
            "        Team::meet();\n        if (Team::rank() == 0) {",
            "        if (Team::rank() == 0) {",
        ),
        (
            "lanes read the right side before it is there",
            "            __syncwarp(FULL);\n            factor<",
            "            factor<",
        ),
        (
            "a list is overwritten while other lanes read it",
            "        __syncwarp(FULL);  // all lanes are done with what was here\n",
            "",
        ),
        (
            "sums without atomics",
            "atomicAdd(reinterpret_cast<unsigned long long*>(sum), static_cast<unsigned long long>(value));",
            "*sum += value;",
        ),
        ("wrong sign of the precision", "direct ? -p[entry * d", "direct ? p[entry * d"),
        ("variance not taken from C", "c[entry * d + entry] - square", "square"),
        (
            "ridge of the patches' own variance",
            "trace.add(variance * (T(1) + s * s));",
            "trace.add(variance);",
        ),
        ("patches of other frames are filled", "if (corners[k] / plane != frame) {", "if (false) {"),
        ("one answer too many", "min(answers, count)", "min(answers + 1, count)"),
        ("warps share a part of their memory", "warp * (d * (d + 1) / 2)", "warp * (d * d / 2)"),
        ("pixel in 32 bits", "const long long pixel = at", "const int pixel = at"),
        ("double arithmetic in the float kernel", "(variance + T(1e-12))", "(variance + 1e-12)"),
    ],
    "row_residuals": [
        (
            "columns beyond the registers left out",
            "own.dot(found) + rest_of_dot(here, there, rank)",
            "own.dot(found)",
        ),
        ("parts without room for the total", "parts + slot * (rank + 1);", "parts + slot * rank;"),
        (
            "entries counted in 32 bits",
            "    long long line, slot, first, last;\n",
            "    long long line, slot;\n    int first, last;\n",
        ),
        ("no __threadfence before the ticket", "    __threadfence();\n", "", _TICKET),
    ],
    "entry_values": [
        ("one pair too many", "k < count;", "k <= count;"),
        ("the row's index for the column", "v + column * rank", "v + row * rank"),
        ("indices in 32 bits", "const long long row = rows[k],", "const int row = rows[k],"),
    ],
    "edge_terms": [
        ("maximum starts at zero", "T top = lowest<T>();", "T top = T(0);"),
        ("division by zero without edges", "last > first ? T(1) / mass : T(0)", "T(1) / mass"),
        ("a lane reads what another lane wrote", "(edge - first) % LANES == lane", "lane == 0"),
        (
            "place of a neighbour in 32 bits",
            "static_cast<long long>(indices[edge]) * rank",
            "indices[edge] * rank",
        ),
    ],
    "factor_gram": [
        (
            "no barrier before a column is scaled",
            "        __syncthreads();\n        for (int i = k + 1 + static_cast",
            "        for (int i = k + 1 + static_cast",
        ),
        ("pivots may be negative", "larger(own[k], tolerance * gram[k * width + k])", "own[k]"),
        ("division by the pivot of a row of zeros", "pivot == T(0) ? T(0) : T(1) / pivot", "T(1) / pivot"),
        ("the last column of the inverse left out", "j = lane; j <= k;", "j = lane; j < k;"),
        ("diagonal not updated", "j = k + 1 + lane; j <= i;", "j = k + 1 + lane; j < i;"),
        ("further blocks work, too", "blockIdx.x > 0 || blockIdx.y > 0 || blockIdx.z > 0", "blockIdx.y > 0"),
    ],
    "line_sums": [
        ("weights in the wrong order", "places == nullptr ? entry : places[entry]", "entry"),
        ("totals written by every group of columns", "unit.start == 0 &&", "true &&"),
        (
            "groups of columns rounded down",
            "(rank - start + COLUMNS - 1) / COLUMNS",
            "(rank - start) / COLUMNS",
        ),
        (
            "place of a part in 32 bits",
            "    long long line, slot, first, last;\n",
            "    long long line;\n    int slot;\n    long long first, last;\n",
        ),
    ],
    "gap_sums": [
        ("pieces add to what was there", "ADDS && piece.is_whole()", "ADDS"),
        ("metric of the first columns for all", "read(metric, unit.start, rank)", "read(metric, 0, rank)"),
        ("place of a neighbour in 32 bits", "const long long other", "const int other", "gap_sums(const"),
    ],
    "join_pieces": [
        ("start ignored", "column < start || (column == rank", "(column == rank"),
        ("always adds", "(ADDS ? *target : T(0)) + sum", "*target + sum"),
        (
            "place of a result in 32 bits",
            "const long long split = i / width, column = i % width, line = lines[split];",
            "const long long split = i / width, column = i % width;\n        const int line = lines[split];",
        ),
    ],
}

MUTATIONS = tuple(Mutation(kernel, *defect) for kernel, defects in _DEFECTS.items() for defect in defects)
