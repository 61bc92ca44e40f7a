// The fidelity, its gradient, and the degree parts of the Laplacians: one pass over x, y and the weights.

// The row and column scales of one matrix; an absent one is a null pointer.
template <typename T>
struct LineScales {
    const T* rows;
    const T* columns;

    __device__ LineScales(const T* row_scale, const T* column_scale, long long matrix, int m, int n)
        : rows(row_scale == nullptr ? nullptr : row_scale + matrix * m),
          columns(column_scale == nullptr ? nullptr : column_scale + matrix * n) {}

    __device__ __forceinline__ T at(const Walk& entry) const {
        T sum = T(0);
        if (rows != nullptr) {
            sum += rows[entry.row];
        }
        if (columns != nullptr) {
            sum += columns[entry.column];
        }
        return sum;
    }
};

// With e = x - y:
//     gradient <- s w e + (row_scale_i + column_scale_j) x,    value[b] = s/2 sum w e^2
// and for HUBER, with c = e clipped at -delta and delta,
//     gradient <- s w c + (row_scale_i + column_scale_j) x,    value[b] = s sum w c (e - c/2)
// which is e^2/2 for |e| <= delta and delta (|e| - delta/2) beyond.
// Launch: block 256; grid x = min(ceil(rows * columns / 256), 1024), z = min(batch, 65535).
// partial: 2 * batch * gridDim.x values of T. tickets: batch, all 0 (and 0 again afterwards).
template <typename T, bool HUBER>
__global__ void __launch_bounds__(THREADS, RESIDENT)
masked_residual(const T* __restrict__ x, const T* __restrict__ y, const T* __restrict__ weights,
                T* __restrict__ gradient, T scale, T delta, const T* __restrict__ row_scale,
                const T* __restrict__ column_scale, Sum<T>* partial, unsigned* tickets, T* value, int batch,
                int rows, int columns) {
    for (int matrix = blockIdx.z; matrix < batch; matrix += gridDim.z) {
        const long long base = place(matrix, 0, 0, rows, columns);
        const LineScales<T> scales(row_scale, column_scale, matrix, rows, columns);
        Sum<T> sum = {T(0), T(0)};
#pragma unroll 1
        for (Walk at(rows, columns); at.inside(); at.next()) {
            const T current = x[base + at.index];
            const T error = current - y[base + at.index];
            T clipped = error;
            if constexpr (HUBER) {
                clipped = error > delta ? delta : error < -delta ? -delta : error;
            }
            const T slope = weights[base + at.index] * clipped;
            sum.add(slope * (error - T(0.5) * clipped));
            gradient[base + at.index] = scale * slope + scales.at(at) * current;
        }
        finish_sum(sum, scale, partial, tickets, value, matrix);
    }
}

// g <- g + (row_scale_i + column_scale_j) x; an absent scale is a null pointer.
// Launch: as masked_residual.
template <typename T>
__global__ void __launch_bounds__(THREADS, RESIDENT)
add_scaled_lines(T* __restrict__ g, const T* __restrict__ x, const T* __restrict__ row_scale,
                 const T* __restrict__ column_scale, int batch, int rows, int columns) {
    for (int matrix = blockIdx.z; matrix < batch; matrix += gridDim.z) {
        const long long base = place(matrix, 0, 0, rows, columns);
        const LineScales<T> scales(row_scale, column_scale, matrix, rows, columns);
#pragma unroll 1
        for (Walk at(rows, columns); at.inside(); at.next()) {
            g[base + at.index] += scales.at(at) * x[base + at.index];
        }
    }
}
