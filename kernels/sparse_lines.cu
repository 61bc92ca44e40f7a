// Sums over the rows that the entries of each line refer to: sparse-dense products, Laplacians of graphs.
//
// A unit of work is one piece of a line and a group of COLUMNS columns, from `start` on. `weights` has one
// number for each entry of the pattern by rows; for a pattern by columns, `places` are their indices there,
// and a null pointer is the identity.

struct Unit {
    long long piece;
    int start;

    __device__ Unit(long long unit, int start_column, int chunks)
        : piece(unit / chunks), start(start_column + static_cast<int>(unit % chunks) * COLUMNS) {}
};

// The number of groups of columns.
__device__ __forceinline__ int chunks_of(int start, int rank) {
    return (rank - start + COLUMNS - 1) / COLUMNS;
}

template <typename T>
__device__ __forceinline__ T weight_of(const T* weights, const long long* places, long long entry) {
    return weights[places == nullptr ? entry : places[entry]];
}

// out_i <- sum w x_j over the entries of line i, for columns from `start` on; totals_i <- sum w, if `totals`
// is given and start is 0. Without weights, w = 1.
// Launch: block 256; grid x = min(ceil(pieces * chunks / 8), 2048), chunks = ceil((rank - start) / 128).
// parts: see Piece.
template <typename T>
__global__ void __launch_bounds__(THREADS, RESIDENT)
line_sums(const long long* __restrict__ starts, const int* __restrict__ lines, const int* __restrict__ slots,
          const int* __restrict__ indices, const long long* __restrict__ places,
          const T* __restrict__ weights, const T* __restrict__ x, T* __restrict__ out,
          T* __restrict__ totals, T* __restrict__ parts, long long pieces, int start, int rank) {
    const int chunks = chunks_of(start, rank);
    for (long long item = first_item(); item < pieces * chunks; item += item_stride()) {
        const Unit unit(item, start, chunks);
        const Piece piece(starts, lines, slots, unit.piece);
        Columns<T> sum = Columns<T>::zero();
        T total = T(0);
#pragma unroll 2
        for (long long entry = piece.first; entry < piece.last; ++entry) {
            const long long other = indices[entry];
            const T weight = weights == nullptr ? T(1) : weight_of(weights, places, entry);
            sum.add(weight, Columns<T>::read(x + other * rank, unit.start, rank));
            total += weight;
        }
        sum.write(piece.row(out, parts, rank), unit.start, rank, T(1), false);
        if (totals != nullptr && unit.start == 0 && lane_of_thread() == 0) {
            *piece.total(totals, parts, rank) = total;
        }
    }
}

// pull_i <- (pull_i if ADDS) + scale * sum w (t_i - t_j) over the edges of node i, for columns from `start`
// on. If `metric` is given, value = 1/2 sum w D, with D = sum metric (t_i - t_j)^2 over these columns.
// Launch: as line_sums. partial: 2 * gridDim.x values of T. tickets: 1, which is 0 (and 0 again afterwards).
// They may be null pointers where there is no metric. parts: see Piece.
template <typename T, bool ADDS>
__global__ void __launch_bounds__(THREADS, RESIDENT)
gap_sums(const long long* __restrict__ starts, const int* __restrict__ lines, const int* __restrict__ slots,
         const int* __restrict__ indices, const long long* __restrict__ places, const T* __restrict__ weights,
         const T* __restrict__ t, const T* __restrict__ metric, T scale, T* __restrict__ pull,
         T* __restrict__ parts, Sum<T>* partial, unsigned* tickets, T* value, long long pieces, int start,
         int rank) {
    const int chunks = chunks_of(start, rank);
    Sum<T> energy = {T(0), T(0)};
    for (long long item = first_item(); item < pieces * chunks; item += item_stride()) {
        const Unit unit(item, start, chunks);
        const Piece piece(starts, lines, slots, unit.piece);
        const Columns<T> own = Columns<T>::read(t + piece.line * rank, unit.start, rank);
        Columns<T> sum = Columns<T>::zero();
        for (long long entry = piece.first; entry < piece.last; ++entry) {
            const long long other = indices[entry];
            const T weight = weight_of(weights, places, entry);
            const Columns<T> gap = own.minus(Columns<T>::read(t + other * rank, unit.start, rank));
            sum.add(weight, gap);
            if (metric != nullptr) {
                energy.add(weight * gap.square(Columns<T>::read(metric, unit.start, rank)));
            }
        }
        sum.write(piece.row(pull, parts, rank), unit.start, rank, scale, ADDS && piece.is_whole());
    }
    if (metric != nullptr) {
        finish_sum(energy, T(0.5), partial, tickets, value, 0);
    }
}

// out_i <- (out_i if ADDS) + the sum of its pieces, for lines of several pieces: the s-th such line is
// lines[s], with the slots firsts[s] to firsts[s + 1]. totals_i likewise, if given. Columns from `start` on.
// Launch: block 256; grid x = min(ceil(splits * (rank + 1) / 256), 2048).
template <typename T, bool ADDS>
__global__ void __launch_bounds__(THREADS, RESIDENT)
join_pieces(const T* __restrict__ parts, const int* __restrict__ firsts, const int* __restrict__ lines,
            T* __restrict__ out, T* __restrict__ totals, int splits, int start, int rank) {
    const long long width = rank + 1;
    const long long stride = static_cast<long long>(gridDim.x) * THREADS;
    for (long long i = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x; i < splits * width;
         i += stride) {
        const long long split = i / width, column = i % width, line = lines[split];
        if (column < start || (column == rank && totals == nullptr)) {
            continue;
        }
        T sum = T(0);
        for (long long slot = firsts[split]; slot < firsts[split + 1]; ++slot) {
            sum += parts[slot * width + column];
        }
        T* target = column < rank ? out + line * rank + column : totals + line;
        *target = (ADDS ? *target : T(0)) + sum;
    }
}
