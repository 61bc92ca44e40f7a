// The patches of a picture that are nearest to each reference patch.
//
// A picture is (frames, channels, height, width). A patch is named by its upper left corner and has
// channels * patch^2 entries. Its distance to another is sum w (x - y)^2, w = 1 where the reference patch is
// observed and `trust` elsewhere. Equal distances count by number: frames in turn, then rows, then columns.

enum : int {
    MOST_ENTRIES = 192,     // of a patch
    MOST_NEIGHBOURS = 128,  // of a reference patch
};

// Bits in the order of the distances, none of which is negative.
__device__ __forceinline__ unsigned ordered_bits(float x) { return __float_as_uint(x); }
__device__ __forceinline__ unsigned long long ordered_bits(double x) {
    return static_cast<unsigned long long>(__double_as_longlong(x));
}

struct Count {
    int number;

    __device__ __forceinline__ void merge(const Count& other) { number += other.number; }

    __device__ __forceinline__ Count below(int distance) const {
        return {__shfl_down_sync(FULL, number, distance)};
    }
};

// How many of the candidates 0 ... count - 1 pass a test. Every thread must call it; thread i tests the
// candidates i, i + THREADS, ...
template <typename Test>
__device__ __forceinline__ int block_count(int count, Count* shared, Test test) {
    Count own = {0};
    for (int i = threadIdx.x; i < count; i += THREADS) {
        own.number += test(i) ? 1 : 0;
    }
    return block_merged(own, shared).number;
}

// The candidates for a patch: all places at most `search` rows and columns away, in all frames.
struct Window {
    int top, left, rows, columns;

    __device__ Window(int y, int x, int patch, int search, int height, int width)
        : top(max(y - search, 0)),
          left(max(x - search, 0)),
          rows(min(y + search, height - patch) - top + 1),
          columns(min(x + search, width - patch) - left + 1) {}

    // The index of a candidate's upper left corner in its first channel.
    __device__ __forceinline__ long long corner(int number, int channels, int height, int width) const {
        const int row = number / columns, frame = row / rows;
        return place(static_cast<long long>(frame) * channels, top + row % rows, left + number % columns,
                     height, width);
    }
};

// places[g] (neighbours) <- the nearest patches of reference patch first + g, nearest first, as indices of
// their corners; found[g] <- their number, which is 0 if that patch has no gap. Reference patches are at the
// crossings of rows and columns, row by row. `known` (channels, height, width) is 0 at the gaps of the frame.
// Launch: block 256; grid x = min(groups, 1024). distances: gridDim.x * frames * (2 search + 1)^2.
template <typename T>
__global__ void __launch_bounds__(THREADS, RESIDENT)
match_patches(const T* __restrict__ x, const int* __restrict__ known, const int* __restrict__ rows,
              const int* __restrict__ columns, T trust, T* __restrict__ distances,
              long long* __restrict__ places, int* __restrict__ found, long long first, int groups,
              int row_length, int frame, int frames, int channels, int height, int width, int patch,
              int search, int neighbours) {
    __shared__ T own[MOST_ENTRIES], weight[MOST_ENTRIES], near[MOST_NEIGHBOURS];
    __shared__ int numbers[MOST_NEIGHBOURS];
    __shared__ int taken;
    __shared__ Count shared[WARPS];
    const int entries = channels * patch * patch, side = 2 * search + 1;
    const long long plane = static_cast<long long>(height) * width;
    T* own_distances = distances + static_cast<long long>(blockIdx.x) * frames * side * side;
    for (int group = blockIdx.x; group < groups; group += gridDim.x) {
        const int y = rows[(first + group) / row_length], left = columns[(first + group) % row_length];
        bool gap = false;
        // Entries are ordered by column, channel and row: the columns' sums are added last.
        if (static_cast<int>(threadIdx.x) < entries) {
            const int line = threadIdx.x / patch;
            const long long at = place(line % channels, y + threadIdx.x % patch, left + line / channels,
                                       height, width);
            own[threadIdx.x] = x[frame * channels * plane + at];
            gap = known[at] == 0;
            weight[threadIdx.x] = gap ? trust : T(1);
        }
        if (threadIdx.x == 0) {
            taken = 0;
        }
        if (!__syncthreads_or(gap)) {
            if (threadIdx.x == 0) {
                found[group] = 0;
            }
            continue;
        }
        const Window window(y, left, patch, search, height, width);
        const int count = frames * window.rows * window.columns, wanted = min(neighbours, count);
        for (int i = threadIdx.x; i < count; i += THREADS) {
            const T* other = x + window.corner(i, channels, height, width);
            T distance = T(0);
            int entry = 0;
            for (int v = 0; v < patch; ++v) {
                T sum = T(0);
                for (int c = 0; c < channels; ++c) {
                    const T* there = other + c * plane + v;
                    for (int u = 0; u < patch; ++u, ++entry) {
                        const T apart = own[entry] - there[static_cast<long long>(u) * width];
                        sum += weight[entry] * apart * apart;
                    }
                }
                distance += sum;
            }
            own_distances[i] = distance;
        }
        // The greatest edge with fewer than `wanted` distances before it, bit by bit: the wanted-th distance.
        using Bits = decltype(ordered_bits(T(0)));
        Bits edge = 0;
        for (int bit = 8 * static_cast<int>(sizeof(T)) - 2; bit >= 0; --bit) {
            const Bits trial = edge | Bits(1) << bit;
            const int before = block_count(
                count, shared, [=](int i) { return ordered_bits(own_distances[i]) < trial; });
            edge = before < wanted ? trial : edge;
        }
        // The same for the numbers of the candidates at that distance.
        int last = 0;
        for (int bit = 31 - __clz(count); bit >= 0; --bit) {
            const int trial = last | 1 << bit;
            const int before = block_count(count, shared, [=](int i) {
                const Bits bits = ordered_bits(own_distances[i]);
                return bits < edge || (bits == edge && i < trial);
            });
            last = before < wanted ? trial : last;
        }
        for (int i = threadIdx.x; i < count; i += THREADS) {
            const Bits bits = ordered_bits(own_distances[i]);
            if (bits < edge || (bits == edge && i <= last)) {
                const int slot = atomicAdd(&taken, 1);  // in any order: they are sorted below
                near[slot] = own_distances[i];
                numbers[slot] = i;
            }
        }
        __syncthreads();
        if (static_cast<int>(threadIdx.x) < wanted) {
            const T distance = near[threadIdx.x];
            const int number = numbers[threadIdx.x];
            int rank = 0;
            for (int k = 0; k < wanted; ++k) {
                rank += near[k] < distance || (near[k] == distance && numbers[k] < number) ? 1 : 0;
            }
            places[static_cast<long long>(group) * neighbours + rank] =
                window.corner(number, channels, height, width);
        }
        if (threadIdx.x == 0) {
            found[group] = wanted;
        }
    }
}
