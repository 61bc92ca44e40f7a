// Shared by all kernels: compensated sums, softmax sums, Adam's step, and sums that the last block finishes.
//
// The host puts this text in front of each .cu file. All arrays are C-contiguous stacks (batch, rows,
// columns). Blocks have THREADS threads in one dimension; grids may have any size, because every loop strides
// over the grid. blockIdx.z runs over the problems of a stack. No result depends on the order of blocks or
// threads.

enum : int {
    TILE = 32,   // nodes in a strip, and the side of a tile
    PITCH = 33,  // of a tile in shared memory: the entries of a column also lie in 32 different banks
    LANES = 32,
    THREADS = 256,
    WARPS = THREADS / LANES,
    RESIDENT = 4,  // blocks on a multiprocessor, which limits a thread to 64 registers
};
enum : unsigned { FULL = 0xffffffffu };

__device__ __forceinline__ float exponential(float x) { return expf(x); }
__device__ __forceinline__ double exponential(double x) { return exp(x); }
__device__ __forceinline__ float square_root(float x) { return sqrtf(x); }
__device__ __forceinline__ double square_root(double x) { return sqrt(x); }

// The start of a maximum. Finite, because exp(lowest - lowest) = 1 where exp(-inf + inf) would be NaN.
template <typename T>
__device__ __forceinline__ T lowest() {
    if constexpr (sizeof(T) == sizeof(float)) {
        return -3.402823466e38f;
    } else {
        return -1.7976931348623157e308;
    }
}

template <typename T>
__device__ __forceinline__ T larger(T a, T b) {
    return b > a ? b : a;
}

// The index of an entry in a stack, in 64 bits: one matrix of 50 000 x 50 000 has more than 2^31 entries.
__device__ __forceinline__ long long place(long long matrix, int row, int column, int rows, int columns) {
    return (matrix * rows + row) * columns + column;
}

// The entries of one matrix for this thread, when the whole grid strides over them in memory order. Rows and
// columns advance by addition, without a division inside the loop. Beyond the end the row may wrap around.
struct Walk {
    long long index, size, stride;
    unsigned row, column, columns, row_step, column_step;

    __device__ Walk(int rows, int matrix_columns) {
        size = static_cast<long long>(rows) * matrix_columns;
        stride = static_cast<long long>(gridDim.x) * THREADS;
        index = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
        columns = static_cast<unsigned>(matrix_columns);
        row = static_cast<unsigned>(index / columns);
        column = static_cast<unsigned>(index % columns);
        row_step = static_cast<unsigned>(stride / columns);
        column_step = static_cast<unsigned>(stride % columns);
    }

    __device__ __forceinline__ bool inside() const { return index < size; }

    __device__ __forceinline__ void next() {
        index += stride;
        row += row_step;
        column += column_step;
        if (column >= columns) {
            column -= columns;
            row += 1;
        }
    }
};

// A sum with its rounding errors, high + low: float kernels sum up to 10^9 terms without double precision.
template <typename T>
struct Sum {
    T high, low;

    // Knuth's two-sum: `high + x` and its exact error, whichever of the two is larger.
    __device__ __forceinline__ void add(T x) {
        const T total = high + x;
        const T part = total - high;
        low += (high - (total - part)) + (x - part);
        high = total;
    }

    __device__ __forceinline__ void merge(const Sum& other) {
        add(other.high);
        low += other.low;
    }

    // The error of an infinite sum is NaN; the value stays infinite.
    __device__ __forceinline__ T value() const {
        const T total = high + low;
        return total == total ? total : high;
    }

    __device__ __forceinline__ Sum below(int distance) const {
        return {__shfl_down_sync(FULL, high, distance), __shfl_down_sync(FULL, low, distance)};
    }
};

// exp(top) * (high + low): a sum of terms exp(v) * f, where top is the greatest exponent so far.
//
// Raising the top from c to c' multiplies the sum by exp(c - c') <= 1. Two such sums are merged by raising
// both to the greater top, so a softmax is summed in one pass, in parts, without overflow. An empty sum has
// the lowest finite top and the sum 0; merging it changes nothing.
template <typename T>
struct Scaled {
    T top;
    Sum<T> sum;

    __device__ static __forceinline__ Scaled empty() { return {lowest<T>(), {T(0), T(0)}}; }

    __device__ __forceinline__ void raise(T new_top) {
        const T factor = exponential(top - new_top);
        sum.high *= factor;
        sum.low *= factor;
        top = new_top;
    }

    __device__ __forceinline__ void merge(Scaled other) {
        const T common = larger(top, other.top);
        raise(common);
        other.raise(common);
        sum.merge(other.sum);
    }

    __device__ __forceinline__ Scaled below(int distance) const {
        return {__shfl_down_sync(FULL, top, distance), sum.below(distance)};
    }
};

// The merged sums (Sum or Scaled) of a warp, in lane 0. Every lane must call it.
template <typename S>
__device__ __forceinline__ S warp_merged(S sum) {
    for (int distance = 16; distance > 0; distance /= 2) {
        sum.merge(sum.below(distance));
    }
    return sum;
}

// The merged sums of a block, in every thread; `shared` has room for WARPS. Every thread must call it.
template <typename S>
__device__ __forceinline__ S block_merged(S sum, S* shared) {
    sum = warp_merged(sum);
    if (threadIdx.x % 32 == 0) {
        shared[threadIdx.x / 32] = sum;
    }
    __syncthreads();
    S total = shared[0];
    for (int warp = 1; warp < WARPS; ++warp) {
        total.merge(shared[warp]);
    }
    __syncthreads();
    return total;
}

// Draw a ticket; true for the last of `drawers` draws, which also resets it to 0 for the next launch.
__device__ __forceinline__ bool draw_last(unsigned* ticket, unsigned drawers) {
    return atomicInc(ticket, drawers - 1) == drawers - 1;
}

// True in every thread of the last of `blocks` blocks, which may then read what the other blocks wrote: they
// write, fence and draw; the last one draws, fences and reads.
__device__ __forceinline__ bool is_last_block(unsigned* ticket, unsigned blocks) {
    __shared__ int last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        last = draw_last(ticket, blocks);
    }
    __syncthreads();
    __threadfence();
    return last != 0;
}

// value[matrix] <- factor * the sum over all threads of all blocks in x. Every thread must call it, for each
// matrix. `partial` is (batch, gridDim.x, 2), `tickets` (batch) and 0 before the first launch.
template <typename T>
__device__ __forceinline__ void finish_sum(Sum<T> sum, T factor, Sum<T>* partial, unsigned* tickets, T* value,
                                           int matrix) {
    __shared__ Sum<T> shared[WARPS];
    sum = block_merged(sum, shared);
    Sum<T>* parts = partial + static_cast<long long>(matrix) * gridDim.x;
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = sum;
    }
    if (is_last_block(tickets + matrix, gridDim.x)) {
        Sum<T> total = {T(0), T(0)};
        for (unsigned block = threadIdx.x; block < gridDim.x; block += THREADS) {
            total.merge(parts[block]);
        }
        total = block_merged(total, shared);
        if (threadIdx.x == 0) {
            value[matrix] = factor * total.value();
        }
    }
}

// The numbers of one update in the current iteration: `numbers` is (capacity, width), `cursor` its row.
template <typename T>
__device__ __forceinline__ const T* current_numbers(const T* numbers, const int* cursor, int width,
                                                    long long offset) {
    return numbers + static_cast<long long>(*cursor) * width + offset;
}

// Adam's step of one entry at step t, in PyTorch's arithmetic: epsilon is added after the bias correction.
template <typename T>
struct Adam {
    T gain1, keep2, gain2, rate, root, epsilon;

    // 1 - beta1, beta2, 1 - beta2, rate / (1 - beta1^t), 1 / sqrt(1 - beta2^t), epsilon: rounded by the host.
    __device__ static __forceinline__ Adam from(const T* numbers) {
        return {numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5]};
    }

    __device__ __forceinline__ T moved(T value, T slope, T* first, T* second) const {
        const T mean = *first + gain1 * (slope - *first);
        const T square = keep2 * *second + gain2 * (slope * slope);
        *first = mean;
        *second = square;
        return value - rate * mean / (square_root(square) * root + epsilon);
    }
};
