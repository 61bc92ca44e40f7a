// Shared by the kernels of the sparse form: pieces of lines of entries, and rows of factors in registers.
//
// The host puts this text between support.cuh and each sparse_*.cu. Factors are C-contiguous (lines, rank).
// A warp works on one line, or one piece of a long line, at a time. Its lanes hold the columns of a row, so
// that gathered rows are read in whole sectors. Every sum has a fixed order.

enum : int {
    PARTS = 4,                // columns of a row that a lane keeps in registers
    COLUMNS = LANES * PARTS,  // and a warp
};

// How many blocks a multiprocessor should hold at least where rows of factors stay in registers.
template <typename T>
constexpr int GATHERING_BLOCKS = sizeof(T) == sizeof(float) ? 4 : 2;

__device__ __forceinline__ int lane_of_thread() { return static_cast<int>(threadIdx.x % LANES); }

// The first item of this warp when all warps of the grid stride over the items, and the stride.
__device__ __forceinline__ long long first_item() {
    return static_cast<long long>(blockIdx.x) * WARPS + threadIdx.x / LANES;
}
__device__ __forceinline__ long long item_stride() { return static_cast<long long>(gridDim.x) * WARPS; }

// The sum over a warp, with the same bits in every lane. Every lane must call it.
template <typename T>
__device__ __forceinline__ T warp_total(T value) {
    for (int distance = LANES / 2; distance > 0; distance /= 2) {
        value += __shfl_xor_sync(FULL, value, distance);
    }
    return value;
}

// The columns start + lane, + 32, ... of one row; zero beyond the rank.
template <typename T>
struct Columns {
    T values[PARTS];

    __device__ static __forceinline__ Columns zero() {
        Columns found;
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
            found.values[part] = T(0);
        }
        return found;
    }

    __device__ static __forceinline__ Columns read(const T* row, int start, int rank) {
        Columns found;
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
            const int column = start + part * LANES + lane_of_thread();
            found.values[part] = column < rank ? row[column] : T(0);
        }
        return found;
    }

    // row <- (row if it adds) + factor * these
    __device__ __forceinline__ void write(T* row, int start, int rank, T factor, bool adds) const {
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
            const int column = start + part * LANES + lane_of_thread();
            if (column < rank) {
                row[column] = (adds ? row[column] : T(0)) + factor * values[part];
            }
        }
    }

    __device__ __forceinline__ void add(T factor, const Columns& other) {
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
            values[part] += factor * other.values[part];
        }
    }

    __device__ __forceinline__ Columns minus(const Columns& other) const {
        Columns found;
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
            found.values[part] = values[part] - other.values[part];
        }
        return found;
    }

    // This lane's part of sum a b.
    __device__ __forceinline__ T dot(const Columns& other) const {
        T sum = T(0);
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
            sum += values[part] * other.values[part];
        }
        return sum;
    }

    // This lane's part of sum metric a^2.
    __device__ __forceinline__ T square(const Columns& metric) const {
        T sum = T(0);
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
            sum += metric.values[part] * (values[part] * values[part]);
        }
        return sum;
    }
};

// One piece of a line: the entries from first to last. A line of one piece has slot -1 and writes its sums
// directly; other pieces write theirs to a row of `parts` (slots, rank + 1), and join_pieces adds these in
// their order.
struct Piece {
    long long line, slot, first, last;

    // Piece p of starts (pieces + 1), lines and slots (pieces); null pointers where every line is one piece.
    __device__ Piece(const long long* starts, const int* lines, const int* slots, long long p)
        : line(lines == nullptr ? p : lines[p]),
          slot(slots == nullptr ? -1 : slots[p]),
          first(starts[p]),
          last(starts[p + 1]) {}

    __device__ __forceinline__ bool is_whole() const { return slot < 0; }

    template <typename T>
    __device__ __forceinline__ T* row(T* whole, T* parts, int rank) const {
        return is_whole() ? whole + line * rank : parts + slot * (rank + 1);
    }

    // Where the sum of one number per entry of this piece goes.
    template <typename T>
    __device__ __forceinline__ T* total(T* whole, T* parts, int rank) const {
        return is_whole() ? whole + line : parts + slot * (rank + 1) + rank;
    }
};
