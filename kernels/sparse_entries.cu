// Observed entries of a large matrix: values x_ij = mean + b_i + c_j + u_i . v_j, errors, and their slopes.

// This lane's part of sum a b over the columns that are not in registers.
template <typename T>
__device__ __forceinline__ T rest_of_dot(const T* a, const T* b, int rank) {
    T sum = T(0);
    for (int column = COLUMNS + lane_of_thread(); column < rank; column += LANES) {
        sum += a[column] * b[column];
    }
    return sum;
}

// With e = x - y at the entries of line i:
//     slopes <- s e,    gradient_i <- sum s e v_j,    totals_i <- sum s e,    value = s/2 sum e^2
// The first COLUMNS columns of the gradient are written here; line_sums computes the others from the slopes.
// Launch: block 256; grid x = min(ceil(pieces / 8), 2048).
// partial: 2 * gridDim.x values of T. tickets: 1, which is 0 (and 0 again afterwards). parts: see Piece.
template <typename T>
__global__ void __launch_bounds__(THREADS, GATHERING_BLOCKS<T>)
row_residuals(const long long* __restrict__ starts, const int* __restrict__ lines,
              const int* __restrict__ slots, const int* __restrict__ indices, const T* __restrict__ values,
              const T* __restrict__ u, const T* __restrict__ v, const T* __restrict__ mean,
              const T* __restrict__ rows, const T* __restrict__ columns, T scale, T* __restrict__ slopes,
              T* __restrict__ gradient, T* __restrict__ totals, T* __restrict__ parts, Sum<T>* partial,
              unsigned* tickets, T* value, long long pieces, int rank) {
    const int lane = lane_of_thread();
    Sum<T> squares = {T(0), T(0)};
    for (long long p = first_item(); p < pieces; p += item_stride()) {
        const Piece piece(starts, lines, slots, p);
        const T* here = u + piece.line * rank;
        const Columns<T> own = Columns<T>::read(here, 0, rank);
        const T base = *mean + rows[piece.line];
        Columns<T> pull = Columns<T>::zero();
        T total = T(0);
        for (long long entry = piece.first; entry < piece.last; ++entry) {
            const long long other = indices[entry];
            const T* there = v + other * rank;
            const Columns<T> found = Columns<T>::read(there, 0, rank);
            const T product = warp_total(own.dot(found) + rest_of_dot(here, there, rank));
            const T error = product + base + columns[other] - values[entry];
            const T slope = scale * error;
            pull.add(slope, found);
            total += slope;
            if (lane == 0) {
                squares.add(error * error);
                slopes[entry] = slope;
            }
        }
        pull.write(piece.row(gradient, parts, rank), 0, rank, T(1), false);
        if (lane == 0) {
            *piece.total(totals, parts, rank) = total;
        }
    }
    finish_sum(squares, T(0.5) * scale, partial, tickets, value, 0);
}

// out[k] <- x at the place (rows[k], columns[k]).
// Launch: block 256; grid x = min(ceil(count / 8), 2048).
template <typename T>
__global__ void __launch_bounds__(THREADS, RESIDENT)
entry_values(const int* __restrict__ rows, const int* __restrict__ columns, const T* __restrict__ u,
             const T* __restrict__ v, const T* __restrict__ mean, const T* __restrict__ row_offsets,
             const T* __restrict__ column_offsets, T* __restrict__ out, long long count, int rank) {
    for (long long k = first_item(); k < count; k += item_stride()) {
        const long long row = rows[k], column = columns[k];
        const T* a = u + row * rank;
        const T* b = v + column * rank;
        const T part = Columns<T>::read(a, 0, rank).dot(Columns<T>::read(b, 0, rank));
        const T product = warp_total(part + rest_of_dot(a, b, rank));
        if (lane_of_thread() == 0) {
            out[k] = product + *mean + row_offsets[row] + column_offsets[column];
        }
    }
}
