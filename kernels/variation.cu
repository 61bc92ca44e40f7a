// Total variation and its gradient, in gather form: every entry looks at its four neighbours, so no two
// threads write to the same place. The upper or left entry of a difference adds its value to the sum.

template <typename T, bool QUADRATIC>
struct Variation {
    T epsilon;

    __device__ __forceinline__ T slope(T step) const {
        if constexpr (QUADRATIC) {
            return step + step;
        } else {
            return step / square_root(step * step + epsilon * epsilon);
        }
    }

    // sqrt(d^2 + eps^2) - eps = d^2 / (sqrt(d^2 + eps^2) + eps), which does not cancel for small d.
    __device__ __forceinline__ T energy(T step) const {
        if constexpr (QUADRATIC) {
            return step * step;
        } else {
            return step * step / (square_root(step * step + epsilon * epsilon) + epsilon);
        }
    }
};

// g <- g + weight * gradient of R at x, value[b] = R = sum of sqrt(d^2 + eps^2) - eps, or of d^2 if
// QUADRATIC, over all differences d of neighbours in rows and columns.
// Launch: block 256; grid x = min(ceil(rows * columns / 256), 1024), z = min(batch, 65535).
// partial: 2 * batch * gridDim.x values of T. tickets: batch, all 0 (and 0 again afterwards).
template <typename T, bool QUADRATIC>
__global__ void __launch_bounds__(THREADS, RESIDENT)
add_variation(T* __restrict__ g, const T* __restrict__ x, T weight, T epsilon, Sum<T>* partial,
              unsigned* tickets, T* value, int batch, int rows, int columns) {
    const Variation<T, QUADRATIC> of = {epsilon};
    for (int matrix = blockIdx.z; matrix < batch; matrix += gridDim.z) {
        const long long base = place(matrix, 0, 0, rows, columns);
        Sum<T> sum = {T(0), T(0)};
#pragma unroll 1
        for (Walk at(rows, columns); at.inside(); at.next()) {
            const T* here = x + base + at.index;
            const T current = *here;
            T slope = T(0);
            if (at.row > 0) {
                slope += of.slope(current - here[-columns]);
            }
            if (at.row + 1 < static_cast<unsigned>(rows)) {
                const T step = here[columns] - current;
                slope -= of.slope(step);
                sum.add(of.energy(step));
            }
            if (at.column > 0) {
                slope += of.slope(current - here[-1]);
            }
            if (at.column + 1 < at.columns) {
                const T step = here[1] - current;
                slope -= of.slope(step);
                sum.add(of.energy(step));
            }
            g[base + at.index] += weight * slope;
        }
        finish_sum(sum, T(1), partial, tickets, value, matrix);
    }
}
