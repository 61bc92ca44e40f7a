// One planted defect in each kernel when RIGHT is false; its correct twin when RIGHT is true.
// tests/engines/test_simt.py has the table that says which mode must catch which defect.

// ---- barriers and shared memory

template <bool RIGHT>
__global__ void missing_barrier(const float* x, float* out, int n) {
    __shared__ float turned[64];
    turned[threadIdx.x] = x[threadIdx.x];
    if (RIGHT) __syncthreads();
    out[threadIdx.x] = turned[63 - threadIdx.x];
}

// The next round overwrites what others still read.
template <bool RIGHT>
__global__ void missing_second_barrier(const float* x, float* out, int n) {
    __shared__ float turned[64];
    float sum = 0;
    for (int round = 0; round < 3; ++round) {
        turned[threadIdx.x] = x[threadIdx.x];
        __syncthreads();
        sum += turned[63 - threadIdx.x];
        if (RIGHT) __syncthreads();
    }
    out[threadIdx.x] = sum / 3;
}

// Lanes of a warp are not in lock-step, and a shuffle orders no memory.
template <bool RIGHT>
__global__ void shuffle_as_fence(const float* x, float* out, int n) {
    __shared__ float turned[64];
    const unsigned lane = threadIdx.x % 32, first = threadIdx.x - lane;
    turned[threadIdx.x] = x[threadIdx.x];
    __shfl_sync(0xffffffffu, 1, 0);
    if (RIGHT) __syncwarp();
    const unsigned other = first + 31 - lane;
    out[63 - other] = turned[other];
}

template <bool RIGHT>
__global__ void uninitialised_shared(const float* x, float* out, int n) {
    __shared__ float turned[64];
    if (RIGHT || threadIdx.x != 5) turned[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = turned[63 - threadIdx.x];
}

template <bool RIGHT>
__global__ void early_return(const float* x, float* out, int n) {
    __shared__ float turned[64];
    if (!RIGHT && threadIdx.x >= n - 1) return;
    turned[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = turned[63 - threadIdx.x];
}

template <bool RIGHT>
__global__ void divergent_barrier(const float* x, float* out, int n) {
    __shared__ float turned[64];
    turned[threadIdx.x] = x[threadIdx.x];
    if (RIGHT || threadIdx.x % 2) {
        __syncthreads();
    } else {
        out[threadIdx.x] = 0;
        __syncthreads();
    }
    out[threadIdx.x] = turned[63 - threadIdx.x];
}

// One warp waits for the other, which never comes.
template <bool RIGHT>
__global__ void barrier_in_one_branch(const float* x, float* out, int n) {
    __shared__ float turned[64];
    turned[threadIdx.x] = x[threadIdx.x];
    if (RIGHT || threadIdx.x < 32) __syncthreads();
    else if (threadIdx.x < 48) __syncwarp(0xffffffffu);
    else __syncthreads();
    out[threadIdx.x] = turned[63 - threadIdx.x];
}

// ---- warps

template <bool RIGHT>
__global__ void absent_lane(const float* x, float* out, int n) {
    const float other = 63.0f - threadIdx.x;
    if (!RIGHT && threadIdx.x % 32 >= 16) return;
    out[threadIdx.x] = __shfl_sync(0xffffffffu, other, static_cast<int>(threadIdx.x));
}

template <bool RIGHT>
__global__ void lane_outside_mask(const float* x, float* out, int n) {
    const unsigned lane = threadIdx.x % 32;
    const unsigned mask = RIGHT ? 0xffffffffu : lane < 16 ? 0x0000ffffu : 0xffff0000u;
    out[63 - threadIdx.x] = __shfl_xor_sync(mask, x[threadIdx.x ^ 16], 16);
}

// ---- memory

template <bool RIGHT>
__global__ void global_write_past_end(const float* x, float* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n + !RIGHT) out[i] = x[max(n - 1 - i, 0)];
}

template <bool RIGHT>
__global__ void global_read_past_end(const float* x, float* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[n - i - RIGHT];
}

template <bool RIGHT>
__global__ void shared_write_past_end(const float* x, float* out, int n) {
    __shared__ float turned[64];
    float* place = turned + 64 - threadIdx.x;  // a pointer hides the bounds from the compiler
    place[RIGHT ? -1 : 0] = x[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = turned[threadIdx.x];
}

template <bool RIGHT>
__global__ void shared_read_past_end(const float* x, float* out, int n) {
    __shared__ float turned[64];
    turned[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    const float* place = turned + 64 - threadIdx.x;
    out[threadIdx.x] = place[RIGHT ? -1 : 0];
}

// Past the end of a row, inside the array: the neighbour's entry is read.
template <bool RIGHT>
__global__ void shared_row_past_end(const float* x, float* out, int n) {
    __shared__ float tile[2][33];
    const unsigned row = threadIdx.x / 32, column = threadIdx.x % 32;
    tile[row][column] = x[threadIdx.x];
    if (column == 0) tile[row][32] = 0;
    __syncthreads();
    const unsigned other = 63 - threadIdx.x;
    out[threadIdx.x] = RIGHT ? tile[other / 32][other % 32] : tile[0][other + other / 32];
}

template <bool RIGHT>
__global__ void index_overflow(const float* x, float* out, int n) {
    const int i = threadIdx.x, rows = 1000 * n;
    const long long last = RIGHT ? static_cast<long long>(rows) * rows : rows * rows;
    if (last != 0) out[i] = x[n - 1 - i];
}

template <bool RIGHT>
__global__ void misaligned_vector(const float* x, float* out, int n) {
    const int i = 4 * threadIdx.x;
    const float4 value = *reinterpret_cast<const float4*>(x + n - 4 - i - (!RIGHT && i < 32));
    *reinterpret_cast<float4*>(out + i) = make_float4(value.w, value.z, value.y, value.x);
}

// ---- several blocks

template <bool RIGHT>
__global__ void block_race(const float* x, float* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = x[n - 1 - i];
    if (!RIGHT && threadIdx.x == 0) out[0] = x[n - 1];
}

template <bool RIGHT>
__global__ void reads_other_block(const float* x, float* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = x[n - 1 - i];
    if (!RIGHT && blockIdx.x == 1) out[i] += 0 * out[threadIdx.x];
}

template <bool RIGHT>
__global__ void plain_counter(const float* x, float* out, unsigned* counter, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = x[n - 1 - i];
    if (RIGHT) atomicAdd(counter, 1u);
    else *counter += 1;
}

// All others use atomics; one thread has a plain look.
template <bool RIGHT>
__global__ void plain_look_at_counter(const float* x, float* out, unsigned* counter, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = x[n - 1 - i];
    if (!RIGHT && i == n - 1 && *counter > 1000) out[i] = 0;
    atomicAdd(counter, 1u);
}

// ---- the last block adds what all blocks left behind; its defects by name

constexpr int EVERY_THREAD_FENCES = 0, ONE_THREAD_FENCES = 1, NO_FENCE = 2, LATE_FENCE = 3, NO_BARRIER = 4,
              PLAIN_TICKET = 5, NO_TICKET = 6, EARLY_FENCE = 7;

template <int HOW>
__global__ void __launch_bounds__(64)
last_block(const float* x, float* parts, float* total, unsigned* ticket, int n) {
    __shared__ bool last;
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (HOW == EARLY_FENCE) __threadfence();
    parts[i] = x[i];
    if (HOW == EVERY_THREAD_FENCES || HOW == NO_BARRIER || HOW == PLAIN_TICKET) __threadfence();
    if (HOW != NO_BARRIER) __syncthreads();
    if (threadIdx.x == 0) {
        if (HOW == ONE_THREAD_FENCES) __threadfence();
        unsigned before = blockIdx.x;
        if (HOW == PLAIN_TICKET) before = (*ticket)++;
        else if (HOW != NO_TICKET) before = atomicAdd(ticket, 1u);
        if (HOW == LATE_FENCE) __threadfence();
        last = before == gridDim.x - 1;
    }
    __syncthreads();
    if (!last) return;
    if (threadIdx.x == 0) {
        float sum = 0;
        for (int j = 0; j < n; ++j) sum += parts[j];
        *total = sum;
        *ticket = 0;
    }
}

// ---- what a kernel may use, tried out

template <typename T>
__global__ void shuffles(const T* x, T* out, int argument, int width) {
    const int i = threadIdx.x, size = blockDim.x;
    const T value = x[i];
    out[i] = __shfl_sync(0xffffffffu, value, argument, width);
    out[size + i] = __shfl_up_sync(0xffffffffu, value, argument, width);
    out[2 * size + i] = __shfl_down_sync(0xffffffffu, value, argument, width);
    out[3 * size + i] = __shfl_xor_sync(0xffffffffu, value, argument, width);
}

__global__ void votes(const int* x, int* out) {
    const int i = threadIdx.x, size = blockDim.x;
    out[i] = static_cast<int>(__ballot_sync(0xffffffffu, x[i] > 0));
    out[size + i] = __any_sync(0xffffffffu, x[i] > 0);
    out[2 * size + i] = __all_sync(0xffffffffu, x[i] > 0);
    out[3 * size + i] = __syncthreads_count(x[i] > 0);
    out[4 * size + i] = __syncthreads_or(x[i] > 0);
    out[5 * size + i] = __syncthreads_and(x[i] > 0);
}

__global__ void atomics(int* signed_numbers, unsigned* numbers, unsigned long long* wide) {
    const int i = threadIdx.x;
    atomicAdd(signed_numbers, -i);
    atomicMax(signed_numbers + 1, i);
    atomicMin(signed_numbers + 2, -i);
    atomicAdd(numbers, 2u);
    atomicInc(numbers + 1, 9u);
    atomicDec(numbers + 2, 9u);
    atomicOr(numbers + 3, 1u << i % 32);
    atomicCAS(numbers + 4, 7u, 8u);
    atomicExch(numbers + 5, 6u);
    atomicSub(numbers + 6, 1u);
    atomicAdd(wide, 1ull << 32);
    atomicMax(wide + 1, static_cast<unsigned long long>(i) << 32);
}

template <typename T>
__global__ void arithmetic(const T* x, T* out) {
    const T a = __ldg(x), b = __ldg(x + 1), nan = x[2];
    out[0] = max(a, nan);
    out[1] = min(nan, b);
    out[2] = rsqrt(a);
    out[3] = fabs(-a) + sqrt(a) + exp(b);
    out[4] = isnan(nan) ? T(1) : T(0);
    out[5] = static_cast<T>(max(3, 4ll) + min(2u, 1u));
    out[6] = fmax(a, b) - fmin(a, b);
}

// One rounding when contracted, two when not; the second is never contracted.
__global__ void contraction(const float* x, float* out) {
    out[0] = x[0] * x[1] - x[2];
    out[1] = __fmul_rn(x[0], x[1]) - x[2];
}

extern "C" __global__ void positions(long long* out) {
    const long long block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    const long long thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    out[block * (blockDim.x * blockDim.y * blockDim.z) + thread] = 1000 * block + thread;
}

extern "C" __global__ void through_a_table(const unsigned long long* table, int arrays, double scale) {
    for (int j = blockIdx.x; j < arrays; j += gridDim.x) {
        double* array = reinterpret_cast<double*>(table[2 * j]);
        for (unsigned i = threadIdx.x; i < table[2 * j + 1]; i += blockDim.x) array[i] *= scale;
    }
}

extern "C" __global__ void optional(const float* x, bool negate, signed char* out, long long size) {
    for (long long i = threadIdx.x; i < size; i += blockDim.x)
        out[i] = static_cast<signed char>((x == nullptr ? 1 : x[i]) * (negate ? -1 : 1));
}

extern "C" __global__ void order_of_blocks(int* out, int* next) {
    out[(*next)++] = static_cast<int>(blockIdx.x);
}
