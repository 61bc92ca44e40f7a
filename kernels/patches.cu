// Groups of resembling patches: their Gaussian, and what it says about the gaps of some of them.
//
// A group is K patches of d = channels * patch^2 entries, with mean m and covariance
// C_ab = S_ab (1 + s_a s_b), and a ridge. S is the covariance of the patches, s_a = sqrt(V_a / S_aa), and V
// the mean variance of their entries. With o the observed entries of a patch and g its gaps, P = C^-1:
//
//     mean of the gaps:  m_g - P_gg^-1 P_go (x - m)_o  = m_g + C_go C_oo^-1 (x - m)_o
//     variances:         diag P_gg^-1                  = diag (C_gg - C_go C_oo^-1 C_og)
//
// The smaller of the two systems is solved: A = U'U is P_gg or C_oo. On the one side B = U'^-1 and
// r = -U'^-1 P_go (x - m)_o, on the other B = U'^-1 C_og and r = U'^-1 (x - m)_o. The mean is m_g + B'r; the
// variances are diag B'B, or diag (C_gg - B'B).
//
// Sums over patches are integers: they may be added in any order, and have the same bits every time.

enum : int {
    MOST_ENTRIES = 192,     // of a patch
    MOST_NEIGHBOURS = 128,  // of a reference patch
    CHUNK = 8,              // patches that are read at a time
};

// How many blocks a multiprocessor should hold at least.
template <typename T>
constexpr int FILLING_BLOCKS = sizeof(T) == sizeof(float) ? 4 : 2;

// Threads that work on one matrix: the whole block, or one warp.
template <bool WHOLE>
struct Team {
    enum : int { ROWS = WHOLE ? WARPS : 1, SIZE = ROWS * LANES };

    __device__ static __forceinline__ int rank() { return static_cast<int>(threadIdx.x) % SIZE; }

    __device__ static __forceinline__ void meet() {
        if constexpr (WHOLE) {
            __syncthreads();
        } else {
            __syncwarp(FULL);
        }
    }
};

// Overwrite the upper triangle of A (n, n) with U, A = U'U, and its diagonal with 1 / U_kk.
template <typename Team, typename T>
__device__ __forceinline__ void factor(T* a, int n) {
    const int row = Team::rank() / LANES, lane = Team::rank() % LANES;
    for (int k = 0; k < n; ++k) {
        T* top = a + k * n;
        const T over = T(1) / square_root(larger(top[k], T(1e-30)));
        for (int j = k + 1 + Team::rank(); j < n; j += Team::SIZE) {
            top[j] *= over;
        }
        Team::meet();
        if (Team::rank() == 0) {
            top[k] = over;
        }
        for (int i = k + 1 + row; i < n; i += Team::ROWS) {
            const T scale = top[i];
            for (int j = i + lane; j < n; j += LANES) {
                a[i * n + j] -= scale * top[j];
            }
        }
        Team::meet();
    }
}

// R <- U'^-1 R for R (n, columns), whose first `units` columns are those of the identity. No thread reads
// what another one writes.
template <typename Team, typename T>
__device__ __forceinline__ void substitute(const T* u, int n, T* r, int columns, int units) {
    for (int j = Team::rank(); j < columns; j += Team::SIZE) {
        const int first = j < units ? j : 0;
        for (int i = first; i < n; ++i) {
            T sum = r[i * columns + j];
            for (int k = first; k < i; ++k) {
                sum -= u[k * n + i] * r[k * columns + j];
            }
            r[i * columns + j] = sum * u[i * n + i];
        }
    }
}

// P <- C^-1 for symmetric C (d, d); `space` has room for d^2. The whole block must call it.
template <typename T>
__device__ __forceinline__ void invert(const T* c, int d, T* p, T* space) {
    for (int i = threadIdx.x; i < d * d; i += THREADS) {
        p[i] = c[i];
        space[i] = i % (d + 1) == 0 ? T(1) : T(0);
    }
    __syncthreads();
    factor<Team<true>>(p, d);
    substitute<Team<true>>(p, d, space, d, d);
    __syncthreads();
    for (int a = threadIdx.x / LANES; a < d; a += WARPS) {
        for (int b = a + static_cast<int>(threadIdx.x) % LANES; b < d; b += LANES) {
            T sum = T(0);
            for (int k = b; k < d; ++k) {
                sum += space[k * d + a] * space[k * d + b];
            }
            p[a * d + b] = p[b * d + a] = sum;
        }
    }
    __syncthreads();
}

// C (d, d) <- the covariance of a group of `count` patches; `mean` is theirs. The whole block must call it.
template <typename T>
__device__ __forceinline__ void moments(const T* __restrict__ x, const T* __restrict__ u,
                                        const long long* corners, const long long* inside, int count, int d,
                                        T ridge, T noise, T* mean, T* c) {
    __shared__ T chunk[CHUNK * MOST_ENTRIES], spread[MOST_ENTRIES];
    __shared__ Sum<T> shared[WARPS];
    const int row = threadIdx.x / LANES, lane = threadIdx.x % LANES, own = threadIdx.x;
    const T share = T(1) / T(count);
    if (own < d) {
        T sum = T(0), unsure = T(0);
        for (int k = 0; k < count; ++k) {
            sum += x[corners[k] + inside[own]];
            unsure += u[corners[k] + inside[own]];
        }
        mean[own] = sum * share;
        spread[own] = unsure * share;
    }
    for (int start = 0; start < count; start += CHUNK) {
        __syncthreads();
        for (int i = own; i < CHUNK * d; i += THREADS) {
            const int k = start + i / d, entry = i % d;
            chunk[i] = k < count ? x[corners[k] + inside[entry]] - mean[entry] : T(0);
        }
        __syncthreads();
        for (int a = row; a < d; a += WARPS) {
            for (int b = a + lane; b < d; b += LANES) {
                T sum = start == 0 ? T(0) : c[a * d + b];
#pragma unroll
                for (int k = 0; k < CHUNK; ++k) {
                    sum += chunk[k * d + a] * chunk[k * d + b];
                }
                c[a * d + b] = sum;
            }
        }
    }
    __syncthreads();
    Sum<T> trace = {T(0), T(0)};
    if (own < d) {
        const T variance = c[own * d + own] * share;
        const T s = square_root(spread[own] / (variance + T(1e-12)));
        spread[own] = s;
        trace.add(variance * (T(1) + s * s));
    }
    const T added = ridge * block_merged(trace, shared).value() / T(d) + noise;
    for (int a = row; a < d; a += WARPS) {
        for (int b = a + lane; b < d; b += LANES) {
            const T covariance = c[a * d + b] * share * (T(1) + spread[a] * spread[b]);
            c[a * d + b] = c[b * d + a] = a == b ? covariance + added : covariance;
        }
    }
    __syncthreads();
}

// The entries of one patch, in the memory of one warp: observed ones from the front, gaps from the back.
struct Split {
    const unsigned char* entries;
    int d, observed;

    // `known` begins at the patch. Every lane must call it.
    __device__ Split(const int* __restrict__ known, const long long* inside, int patch_entries,
                     unsigned char* space)
        : entries(space), d(patch_entries), observed(0) {
        const int lane = threadIdx.x % LANES;
        const unsigned before = (1u << lane) - 1u;
        int gap_count = 0;
        __syncwarp(FULL);  // all lanes are done with what was here
        for (int start = 0; start < d; start += LANES) {
            const int entry = start + lane;
            const bool is_seen = entry < d && known[inside[entry]] != 0, is_gap = entry < d && !is_seen;
            const unsigned seen_lanes = __ballot_sync(FULL, is_seen);
            const unsigned gap_lanes = __ballot_sync(FULL, is_gap);
            if (is_seen) {
                space[observed + __popc(seen_lanes & before)] = static_cast<unsigned char>(entry);
            } else if (is_gap) {
                space[d - 1 - gap_count - __popc(gap_lanes & before)] = static_cast<unsigned char>(entry);
            }
            observed += __popc(seen_lanes);
            gap_count += __popc(gap_lanes);
        }
        __syncwarp(FULL);
    }

    __device__ __forceinline__ int gaps() const { return d - observed; }
    __device__ __forceinline__ int gap(int i) const { return entries[d - 1 - i]; }
    __device__ __forceinline__ int seen(int i) const { return entries[i]; }
    __device__ __forceinline__ bool needs_precision() const { return 0 < gaps() && gaps() <= observed; }
};

__device__ __forceinline__ void add_exactly(long long* sum, long long value) {
    atomicAdd(reinterpret_cast<unsigned long long*>(sum), static_cast<unsigned long long>(value));
}

// Add what patches say about their gaps to values, weights and counts (channels, height, width) of one frame.
// Group g has found[g] patches at places[g] (neighbours), nearest first; the first `answers` of them are
// filled, if they are in that frame. weight = weight_one * softening / (variance + softening) + 1, and
// values is the sum of weight * value * value_one; value_one is a power of two.
// Launch: block 256; grid x = any, at most groups. space: gridDim.x * (2 d^2 + 4 d (d + 1)).
template <typename T>
__global__ void __launch_bounds__(THREADS, FILLING_BLOCKS<T>)
fill_groups(const T* __restrict__ x, const T* __restrict__ u, const int* __restrict__ known,
            const long long* __restrict__ places, const int* __restrict__ found, T* space,
            long long* values, long long* weights, long long* counts, T ridge, T noise, T softening,
            T weight_one, int value_one, int groups, int frame, int channels, int height, int width,
            int patch, int neighbours, int answers) {
    __shared__ long long inside[MOST_ENTRIES], corners[MOST_NEIGHBOURS];
    __shared__ T mean[MOST_ENTRIES];
    __shared__ unsigned char lists[WARPS][MOST_ENTRIES];
    constexpr long long FINE = 1 << 29;  // values are rounded to this; 8 * FINE * 2^30 is below 2^63
    const int d = channels * patch * patch, warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const long long plane = place(channels, 0, 0, height, width), size = 2 * d * d + 4 * d * (d + 1);
    T* c = space + blockIdx.x * size;
    T* p = c + d * d;
    T* rest = p + d * d;
    T* a = rest + warp * (d * (d + 1) / 2);
    if (static_cast<int>(threadIdx.x) < d) {
        const int line = threadIdx.x / patch;
        inside[threadIdx.x] = place(line / patch, line % patch, threadIdx.x % patch, height, width);
    }
    for (int group = blockIdx.x; group < groups; group += gridDim.x) {
        const int count = found[group];
        if (count == 0) {
            continue;
        }
        __syncthreads();
        if (static_cast<int>(threadIdx.x) < count) {
            corners[threadIdx.x] = places[static_cast<long long>(group) * neighbours + threadIdx.x];
        }
        __syncthreads();
        moments(x, u, corners, inside, count, d, ridge, noise, mean, c);
        bool needs_precision = false;
        const int answering = min(answers, count);
        for (int k = warp; k < answering; k += WARPS) {
            if (corners[k] / plane == frame) {
                const Split split(known + corners[k] - frame * plane, inside, d, lists[warp]);
                needs_precision = needs_precision || split.needs_precision();
            }
        }
        if (__syncthreads_or(needs_precision)) {
            invert(c, d, p, rest);
        }
        for (int k = warp; k < answering; k += WARPS) {
            if (corners[k] / plane != frame) {
                continue;
            }
            const T* own = x + corners[k];
            const long long at = corners[k] - frame * plane;
            const Split split(known + at, inside, d, lists[warp]);
            const bool direct = split.needs_precision();
            const int gaps = split.gaps(), n = direct ? gaps : split.observed, columns = gaps + 1;
            if (gaps == 0) {
                continue;
            }
            T* r = a + n * n;
            for (int i = 0; i < n; ++i) {
                const T* line = direct ? p + split.gap(i) * d : c + split.seen(i) * d;
                for (int j = i + lane; j < n; j += LANES) {
                    a[i * n + j] = line[direct ? split.gap(j) : split.seen(j)];
                }
                for (int j = lane; j < gaps; j += LANES) {
                    r[i * columns + j] = direct ? T(i == j) : line[split.gap(j)];
                }
            }
            for (int i = lane; i < n; i += LANES) {
                T right = T(0);
                for (int j = direct ? 0 : i; j < (direct ? split.observed : i + 1); ++j) {
                    const int entry = split.seen(j);
                    const T apart = own[inside[entry]] - mean[entry];
                    right += direct ? -p[entry * d + split.gap(i)] * apart : apart;
                }
                r[i * columns + gaps] = right;
            }
            __syncwarp(FULL);
            factor<Team<false>>(a, n);
            substitute<Team<false>>(a, n, r, columns, direct ? gaps : 0);
            __syncwarp(FULL);
            for (int j = lane; j < gaps; j += LANES) {
                T filled = T(0), square = T(0);
                for (int i = 0; i < n; ++i) {
                    const T part = r[i * columns + j];
                    filled += part * r[i * columns + gaps];
                    square += part * part;
                }
                const int entry = split.gap(j);
                const T variance = larger(direct ? square : c[entry * d + entry] - square, T(0));
                const T value = larger(T(-8), -larger(T(-8), -(mean[entry] + filled)));
                const long long weight =
                    static_cast<long long>(weight_one * softening / (variance + softening) + T(1));
                const long long fine = static_cast<long long>(value * T(FINE)) * weight;
                const long long pixel = at + inside[entry];
                add_exactly(values + pixel, fine / (FINE / value_one));
                add_exactly(weights + pixel, weight);
                add_exactly(counts + pixel, 1);
            }
        }
    }
}
