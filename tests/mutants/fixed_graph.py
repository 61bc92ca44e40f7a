"""Defects of the kernels of given graphs, dense and sparse."""

from .mutation import Mutation

_DENSE = "add_laplacian(T*"
_SPARSE = "add_sparse_laplacian(T*"

FIXED_GRAPH = (
    Mutation("add_laplacian", "batch index ignored in the degrees", "degree_batch > 1 ? matrix : 0", "0"),
    Mutation(
        "add_laplacian",
        "degrees for each problem where one line serves all",
        "degree_batch > 1 ? matrix : 0",
        "matrix",
    ),
    Mutation(
        "add_laplacian",
        "wrong sign of the neighbours",
        "degree * current - neighbours[base + at.index]",
        "degree * current + neighbours[base + at.index]",
    ),
    Mutation(
        "add_laplacian",
        "wrong line: a row's degree by column",
        "line * rows + at.row",
        "line * rows + at.column",
    ),
    Mutation(
        "add_laplacian",
        "column degrees with the number of rows between problems",
        "line * columns + at.column",
        "line * rows + at.column",
    ),
    Mutation(
        "add_laplacian", "the value lacks z", "sum.add(current * pull);", "sum.add(pull);", after=_DENSE
    ),
    Mutation("add_laplacian", "missing factor: scale ignored", "+= scale * pull;", "+= pull;", after=_DENSE),
    Mutation(
        "add_laplacian",
        "missing factor 1/2 the other way round: half of the value",
        "finish_sum(sum, T(1),",
        "finish_sum(sum, T(0.5),",
        after=_DENSE,
    ),
    Mutation(
        "add_laplacian",
        "overwrites g instead of adding to it",
        "+= scale * pull;",
        "= scale * pull;",
        after=_DENSE,
    ),
    Mutation(
        "add_laplacian",
        "batch index ignored in z",
        "const T current = z[base + at.index];",
        "const T current = z[at.index];",
        after=_DENSE,
    ),
    Mutation(
        "add_laplacian",
        "place of a problem in 32 bits: overflow in large stacks",
        "const long long base",
        "const int base",
        after=_DENSE,
    ),
    Mutation(
        "add_laplacian",
        "problems beyond the grid are left out",
        "matrix += gridDim.z)",
        "matrix += batch)",
        after=_DENSE,
    ),
    Mutation(
        "add_laplacian",
        "missing compensation of the value",
        "sum.add(current * pull);",
        "sum.high += current * pull;",
        after=_DENSE,
    ),
    Mutation(
        "add_laplacian",
        "no __threadfence before the ticket",
        "    __threadfence();\n",
        "",
        after="__shared__ int last;\n",
    ),
    Mutation(
        "add_laplacian",
        "partial sums of other blocks read through the read-only cache",
        "T scale, Sum<T>* partial,",
        "T scale, Sum<T>* __restrict__ partial,",
        after=_DENSE,
    ),
    Mutation(
        "add_laplacian",
        "ticket not reset for the next launch",
        "atomicInc(ticket, drawers - 1) == drawers - 1",
        "atomicAdd(ticket, 1u) == drawers - 1",
    ),
    Mutation(
        "add_sparse_laplacian",
        "the last edge of a node skipped",
        "edge < indptr[node + 1]",
        "edge < indptr[node + 1] - 1",
    ),
    Mutation(
        "add_sparse_laplacian",
        "the first edge of a node skipped",
        "edge = indptr[node];",
        "edge = indptr[node] + 1;",
    ),
    Mutation(
        "add_sparse_laplacian", "one edge too many", "edge < indptr[node + 1]", "edge <= indptr[node + 1]"
    ),
    Mutation(
        "add_sparse_laplacian",
        "wrong transpose: rows for columns",
        "const long long node = COLUMNS ? at.column : at.row;",
        "const long long node = COLUMNS ? at.row : at.column;",
    ),
    Mutation(
        "add_sparse_laplacian", "neighbours of a row taken from the same row", "COLUMNS ? 1 : columns", "1"
    ),
    Mutation(
        "add_sparse_laplacian",
        "place of a neighbour in 32 bits: overflow at 50 000 nodes",
        "const long long spacing",
        "const int spacing",
    ),
    Mutation(
        "add_sparse_laplacian",
        "edges counted in 32 bits: overflow in large graphs",
        "for (long long edge",
        "for (int edge",
    ),
    Mutation(
        "add_sparse_laplacian",
        "neighbours counted from the entry itself",
        "at.index - at.column : at.column",
        "at.index : at.column",
    ),
    Mutation(
        "add_sparse_laplacian",
        "batch index ignored for the neighbours",
        "const long long origin = base + (COLUMNS",
        "const long long origin = (COLUMNS",
    ),
    Mutation(
        "add_sparse_laplacian", "wrong sign of the neighbours", "pull -= data[edge]", "pull += data[edge]"
    ),
    Mutation("add_sparse_laplacian", "weights of the edges ignored", "data[edge] * z[", "z["),
    Mutation("add_sparse_laplacian", "degree ignored", "degree[node] * current", "current"),
    Mutation(
        "add_sparse_laplacian", "missing factor: scale ignored", "+= scale * pull;", "+= pull;", after=_SPARSE
    ),
    Mutation(
        "add_sparse_laplacian",
        "the value of g instead of z",
        "sum.add(current * pull);",
        "sum.add(g[base + at.index] * pull);",
        after=_SPARSE,
    ),
    Mutation(
        "add_sparse_laplacian",
        "problems beyond the grid are left out",
        "matrix += gridDim.z)",
        "matrix += batch)",
        after=_SPARSE,
    ),
    Mutation(
        "add_sparse_laplacian",
        "missing compensation of the value",
        "sum.add(current * pull);",
        "sum.high += current * pull;",
        after=_SPARSE,
    ),
)
