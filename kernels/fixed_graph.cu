// Laplacians of given graphs: L z = degree z - A z, for nodes that are the rows of z, or its columns.

// g <- g + scale * (degree z - neighbours), value[b] = sum z (degree z - neighbours), with neighbours = A z
// (or z A). One of row_degree (nodes are rows) and column_degree (nodes are columns) is a null pointer. A
// degree has degree_batch lines: `batch`, or 1 for the whole stack. scale is 2 * the weight of the
// graph.
// Launch: block 256; grid x = min(ceil(rows * columns / 256), 1024), z = min(batch, 65535).
// partial: 2 * batch * gridDim.x values of T. tickets: batch, all 0 (and 0 again afterwards).
template <typename T>
__global__ void __launch_bounds__(THREADS, RESIDENT)
add_laplacian(T* __restrict__ g, const T* __restrict__ z, const T* __restrict__ neighbours,
              const T* __restrict__ row_degree, const T* __restrict__ column_degree, int degree_batch,
              T scale, Sum<T>* partial, unsigned* tickets, T* value, int batch, int rows, int columns) {
    for (int matrix = blockIdx.z; matrix < batch; matrix += gridDim.z) {
        const long long base = place(matrix, 0, 0, rows, columns);
        const long long line = degree_batch > 1 ? matrix : 0;
        Sum<T> sum = {T(0), T(0)};
#pragma unroll 1
        for (Walk at(rows, columns); at.inside(); at.next()) {
            const T degree = row_degree != nullptr ? row_degree[line * rows + at.row]
                                                   : column_degree[line * columns + at.column];
            const T current = z[base + at.index];
            const T pull = degree * current - neighbours[base + at.index];
            sum.add(current * pull);
            g[base + at.index] += scale * pull;
        }
        finish_sum(sum, T(1), partial, tickets, value, matrix);
    }
}

// The same for one symmetric graph for the whole stack, without a product: every entry gathers its own
// neighbours. The edges of a node are data[e] and indices[e] from first[node] until last[node]: one after
// another, as in CSR form, if nodes are the rows of z; every LANES-th place if they are its columns
// (COLUMNS), so that a warp, which has neighbouring columns, reads neighbouring places.
// degree: one line. Launch, partial and tickets: as add_laplacian.
template <typename T, typename Index, bool COLUMNS>
__global__ void __launch_bounds__(THREADS, RESIDENT)
add_sparse_laplacian(T* __restrict__ g, const T* __restrict__ z, const T* __restrict__ data,
                     const Index* __restrict__ indices, const Index* __restrict__ first,
                     const Index* __restrict__ last, const T* __restrict__ degree, T scale,
                     Sum<T>* partial, unsigned* tickets, T* value, int batch, int rows, int columns) {
    for (int matrix = blockIdx.z; matrix < batch; matrix += gridDim.z) {
        const long long base = place(matrix, 0, 0, rows, columns);
        Sum<T> sum = {T(0), T(0)};
#pragma unroll 1
        for (Walk at(rows, columns); at.inside(); at.next()) {
            const long long node = COLUMNS ? at.column : at.row;
            // The entry of node 0 in this line.
            const long long origin = base + (COLUMNS ? at.index - at.column : at.column);
            const long long spacing = COLUMNS ? 1 : columns;
            const T current = z[base + at.index];
            T pull = degree[node] * current;
#pragma unroll 2
            for (long long edge = first[node]; edge < last[node]; edge += COLUMNS ? LANES : 1) {
                pull -= data[edge] * z[origin + indices[edge] * spacing];
            }
            sum.add(current * pull);
            g[base + at.index] += scale * pull;
        }
        finish_sum(sum, T(1), partial, tickets, value, matrix);
    }
}
