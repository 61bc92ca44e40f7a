// The learned graph, from V and the Gram matrix K of its nodes, in two passes: statistics, then the rest.
//
// With D_ij = K_ii + K_jj - 2 K_ij and P the softmax of V (of each row, or of all entries):
//
//     kind         adjacency A           energy R = 1/2 <A, D>     gradient of R in V
//     0 row        (P + P^T) / 2         1/2 sum_i r_i             1/2 P (D - r_i),  r_i = sum_j P_ij D_ij
//     1 global     P + P^T               <P, D>                    P (D - R)
//     2 product    exp(V + V^T) / S      1/2 <A, D>                A D - R P,        S = sum exp(V)
//
// K is symmetric up to rounding; a pair of tiles uses the tile above the diagonal for both.

enum : int { ROW = 0, GLOBAL = 1, PRODUCT = 2 };

// Blocks that a multiprocessor should hold, which limits a thread to 64, 80 or 128 registers.
template <typename T>
constexpr int STATISTICS_BLOCKS = sizeof(T) == sizeof(float) ? 4 : 2;
template <typename T>
constexpr int STEP_BLOCKS = sizeof(T) == sizeof(float) ? 3 : 2;
template <typename T>
constexpr int STEP_UNROLL = sizeof(T) == sizeof(float) ? 4 : 2;

// The p-th of the t (t + 1) / 2 pairs of strips (low <= high), by integer arithmetic alone.
//
// The pairs (a, a), ..., (a, t - 1) make a line of t - a. For even t, the lines a and t - 1 - a have t + 1
// pairs together; for odd t, line 0 has t, and so have the lines a and t - a together. Either way all pairs
// form a rectangle of width t | 1.
struct StripPair {
    int low, high;

    __device__ StripPair(int p, int t) {
        const int width = t | 1;
        const int line = p / width;
        const int along = p - line * width;
        const bool own = along < t - line;
        low = own ? line : t - line - (width - t);
        high = own ? line + along : low + along - (t - line);
    }
};

__device__ __forceinline__ int strips_of(int nodes) { return (nodes + TILE - 1) / TILE; }

// t (t + 1) / 2, the area of that rectangle. It fits into an int for graphs of up to two million nodes.
__device__ __forceinline__ int pairs_of(int strips) { return (strips | 1) * ((strips + 1) / 2); }

// The two sums of a softmax before normalisation: of exp(V), and of the weights times D.
template <typename T>
struct Softmax {
    Scaled<T> mass, energy;
};

// Columns start + lane, + 32, ... of one row, four at a time: one rescaling for four exponentials.
template <typename T>
__device__ __forceinline__ void add_columns(Softmax<T>& of, const T* v, const T* gram, const T* lengths,
                                            T length, int start, int nodes) {
    constexpr int AT_ONCE = 4;
    for (int group = 0; group < THREADS; group += 32 * AT_ONCE) {
        T values[AT_ONCE], distances[AT_ONCE];
        T top = of.mass.top;
#pragma unroll
        for (int k = 0; k < AT_ONCE; ++k) {
            const int column = group + 32 * k + static_cast<int>(threadIdx.x % 32);
            const bool inside = start + column < nodes;
            values[k] = inside ? v[start + column] : lowest<T>();
            distances[k] = inside ? length + lengths[column] - T(2) * gram[start + column] : T(0);
            top = larger(top, values[k]);
        }
        of.mass.raise(top);
        of.energy.raise(top);
#pragma unroll
        for (int k = 0; k < AT_ONCE; ++k) {
            const int column = group + 32 * k + static_cast<int>(threadIdx.x % 32);
            const T weight = start + column < nodes ? exponential(values[k] - top) : T(0);
            of.mass.sum.add(weight);
            of.energy.sum.add(weight * distances[k]);
        }
    }
}

// The entries (i, j) and (j, i) of a pair of tiles, for i <= j. The energy counts each pair of nodes once: A
// and D are symmetric and D_ii = 0, so that 1/2 <A, D> = sum over i < j. Its exponents V_ij + V_ji have a top
// of their own.
template <typename T>
__device__ __forceinline__ void add_pairs(Softmax<T>& of, const T* v, const T* gram, T (*tile)[PITCH],
                                          StripPair pair, int nodes) {
    constexpr int ROWS = TILE / WARPS;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int j = pair.high * TILE + lane;
    T upper[ROWS], distances[ROWS];
    const T length = j < nodes ? gram[place(0, j, j, nodes, nodes)] : T(0);
#pragma unroll
    for (int k = 0; k < ROWS; ++k) {
        const int row = warp + WARPS * k;
        const int i = pair.low * TILE + row, below = pair.high * TILE + row, left = pair.low * TILE + lane;
        const bool inside = i < nodes && j < nodes;
        upper[k] = inside ? v[place(0, i, j, nodes, nodes)] : lowest<T>();
        distances[k] = T(0);
        if (inside) {
            const T sum = gram[place(0, i, i, nodes, nodes)] + length;
            distances[k] = sum - T(2) * gram[place(0, i, j, nodes, nodes)];
        }
        const bool lower = below < nodes && left < nodes;
        tile[row][lane] = lower ? v[place(0, below, left, nodes, nodes)] : lowest<T>();
    }
    __syncthreads();
    T top = of.mass.top, pair_top = of.energy.top;
#pragma unroll
    for (int k = 0; k < ROWS; ++k) {
        const int row = warp + WARPS * k;
        const int i = pair.low * TILE + row;
        if (i <= j && j < nodes) {
            top = larger(top, larger(upper[k], tile[lane][row]));
            pair_top = i < j ? larger(pair_top, upper[k] + tile[lane][row]) : pair_top;
        }
    }
    of.mass.raise(top);
    of.energy.raise(pair_top);
#pragma unroll
    for (int k = 0; k < ROWS; ++k) {
        const int row = warp + WARPS * k;
        const int i = pair.low * TILE + row;
        if (i <= j && j < nodes) {
            of.mass.sum.add(exponential(upper[k] - top));
        }
        if (i < j && j < nodes) {
            of.mass.sum.add(exponential(tile[lane][row] - top));
            of.energy.sum.add(exponential(upper[k] + tile[lane][row] - pair_top) * distances[k]);
        }
    }
    __syncthreads();
}

// The energy of each problem, and what graph_step needs: for ROW `statistics` is (batch, 3, nodes) with the
// maximum of each row, 1 / its sum of exponentials, and r_i; otherwise (batch, 3) with the maximum, 1 / the
// sum, and R.
//
// ROW and GLOBAL: one warp for a row, eight rows in a block; the diagonal of K, scattered in memory, is
// loaded into shared memory once for eight rows. PRODUCT: pairs of tiles, so that one block has V_ij and
// V_ji.
// Launch: block 256; z = min(batch, 65535); x = min(needed, 2048) with needed = ceil(nodes / 8) for ROW and
// GLOBAL, t (t + 1) / 2 with t = ceil(nodes / 32) for PRODUCT.
// partial: 6 * batch * gridDim.x values of T. tickets: batch, all 0 (and 0 again afterwards).
template <typename T, int KIND>
__global__ void __launch_bounds__(THREADS, STATISTICS_BLOCKS<T>)
graph_statistics(const T* __restrict__ v, const T* __restrict__ gram, T* __restrict__ statistics,
                 T* __restrict__ energy, Softmax<T>* partial, unsigned* tickets, int batch, int nodes) {
    __shared__ Scaled<T> shared[WARPS];
    for (int matrix = blockIdx.z; matrix < batch; matrix += gridDim.z) {
        const long long base = place(matrix, 0, 0, nodes, nodes);
        const T* values = v + base;
        const T* products = gram + base;
        Softmax<T> of = {Scaled<T>::empty(), Scaled<T>::empty()};
        Sum<T> row_energies = {T(0), T(0)};
        if constexpr (KIND == PRODUCT) {
            __shared__ T tile[TILE][PITCH];
            const int strips = strips_of(nodes);
            const int pairs = pairs_of(strips);
            for (long long p = blockIdx.x; p < pairs; p += gridDim.x) {
                add_pairs(of, values, products, tile, StripPair(static_cast<int>(p), strips), nodes);
            }
        } else {
            __shared__ T lengths[THREADS];
            const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
            for (long long first = static_cast<long long>(blockIdx.x) * WARPS; first < nodes;
                 first += static_cast<long long>(gridDim.x) * WARPS) {
                const int row = static_cast<int>(first) + warp;
                const T length = row < nodes ? products[place(0, row, row, nodes, nodes)] : T(0);
                for (int start = 0; start < nodes; start += THREADS) {
                    const int node = start + static_cast<int>(threadIdx.x);
                    lengths[threadIdx.x] = node < nodes ? products[place(0, node, node, nodes, nodes)] : T(0);
                    __syncthreads();
                    if (row < nodes) {
                        const long long line = place(0, row, 0, nodes, nodes);
                        add_columns(of, values + line, products + line, lengths, length, start, nodes);
                    }
                    __syncthreads();
                }
                if constexpr (KIND == ROW) {
                    const Scaled<T> mass = warp_merged(of.mass), pull = warp_merged(of.energy);
                    if (lane == 0 && row < nodes) {
                        const T inverse = T(1) / mass.sum.value();
                        const T row_energy = pull.sum.value() * inverse;
                        T* own = statistics + place(matrix, 0, row, 3, nodes);
                        own[0] = mass.top;
                        own[nodes] = inverse;
                        own[2 * static_cast<long long>(nodes)] = row_energy;
                        row_energies.add(row_energy);
                    }
                    of = {Scaled<T>::empty(), Scaled<T>::empty()};
                }
            }
        }
        if constexpr (KIND == ROW) {
            finish_sum(row_energies, T(0.5), reinterpret_cast<Sum<T>*>(partial), tickets, energy, matrix);
        } else {
            Softmax<T>* parts = partial + static_cast<long long>(matrix) * gridDim.x;
            of.mass = block_merged(of.mass, shared);
            of.energy = block_merged(of.energy, shared);
            if (threadIdx.x == 0) {
                parts[blockIdx.x] = of;
            }
            if (is_last_block(tickets + matrix, gridDim.x)) {
                of = {Scaled<T>::empty(), Scaled<T>::empty()};
                for (unsigned block = threadIdx.x; block < gridDim.x; block += THREADS) {
                    of.mass.merge(parts[block].mass);
                    of.energy.merge(parts[block].energy);
                }
                of.mass = block_merged(of.mass, shared);
                of.energy = block_merged(of.energy, shared);
                if (threadIdx.x == 0) {
                    const T inverse = T(1) / of.mass.sum.value();
                    const T shift = exponential(of.energy.top - of.mass.top);  // 1 for GLOBAL
                    const T total = of.energy.sum.value() * inverse * shift;
                    T* own = statistics + static_cast<long long>(matrix) * 3;
                    own[0] = of.mass.top;
                    own[1] = inverse;
                    own[2] = total;
                    energy[matrix] = total;
                }
            }
        }
    }
}

// Statistics of the nodes of a strip: maximum, 1 / sum and energy of their row (or of the matrix), and K_ii.
template <typename T>
struct Strip {
    T top[TILE], inverse[TILE], energy[TILE], length[TILE];

    __device__ __forceinline__ void load(int local, int node, int nodes, bool by_row, const T* statistics,
                                         const T* gram) {
        const bool inside = node < nodes;
        const long long at = by_row && inside ? node : 0, spacing = by_row ? nodes : 1;
        top[local] = statistics[at];
        inverse[local] = statistics[at + spacing];
        energy[local] = statistics[at + 2 * spacing];
        length[local] = inside ? gram[place(0, node, node, nodes, nodes)] : T(0);
    }
};

// pull of the nodes of one strip: 2 weight times the sums over all tiles, when all of them are written.
template <typename T>
__device__ __forceinline__ void finish_strip(const T* degrees, T* pull, T factor, T (*sums)[TILE], int strip,
                                             int strips, int nodes) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int node = strip * TILE + lane;
    T sum = T(0);
    if (node < nodes) {
        for (int tile = warp; tile < strips; tile += WARPS) {
            sum += degrees[place(0, tile, node, strips, nodes)];
        }
    }
    sums[warp][lane] = sum;
    __syncthreads();
    if (warp == 0 && node < nodes) {
        for (int other = 1; other < WARPS; ++other) {
            sum += sums[other][lane];
        }
        pull[node] = factor * sum;
    }
    __syncthreads();
}

// adjacency (bit for bit symmetric), pull_i = 2 weight sum_j A_ij, and weight * the gradient of R in V:
// written to `gradient`, or with ADAM used directly for the step of V, so that V and its moments are read and
// written once.
//
// A block loads the tiles (I, J) and (J, I), I <= J, of V into shared memory. Thread (row, lane) of the upper
// entry (i, j) finds V_ji there, computes A_ij = A_ji once and both gradients, and leaves A_ij and the
// gradient of V_ji in shared memory to the thread that writes row j. So global memory is accessed along rows,
// and V and K are read once. On the diagonal, I = J, threads with row <= lane do the first part, the others
// the second.
//
// Degrees: a pair adds its 32 row sums to strip I as tile J, and if I < J its column sums to strip J as tile
// I, so every strip gets exactly one part from each of the t tiles. The block that draws the last of the t
// tickets of a strip adds them.
//
// Launch: block 256; grid x = t (t + 1) / 2 with t = ceil(nodes / 32), z = min(batch, 65535); any other grid
// works.
// statistics: of graph_statistics of the same KIND. degrees: batch * t * nodes values of T. tickets: batch *
// t, all 0 (and 0 again afterwards). With ADAM: gradient is not used (null); otherwise first, second,
// numbers, cursor are not (null).
template <typename T, int KIND, bool ADAM>
__global__ void __launch_bounds__(THREADS, STEP_BLOCKS<T>)
graph_step(T* __restrict__ v, const T* __restrict__ gram, const T* __restrict__ statistics, T weight,
           T* __restrict__ adjacency, T* __restrict__ pull, T* __restrict__ gradient, T* __restrict__ first,
           T* __restrict__ second, const T* __restrict__ numbers, const int* __restrict__ cursor, int width,
           int offset, T* degrees, unsigned* tickets, int batch, int nodes) {
    constexpr int ROWS = TILE / WARPS;
    __shared__ T tile[TILE][PITCH];     // V of the lower tile
    __shared__ T slopes[TILE][PITCH];   // and its gradient
    __shared__ T weights[TILE][PITCH];  // V of the upper tile, then A
    __shared__ T sums[WARPS][TILE];
    __shared__ Strip<T> sides[2];
    __shared__ int last[2];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int strips = strips_of(nodes);
    const int pairs = pairs_of(strips);
    const T scale = KIND == ROW ? T(0.5) * weight : weight;
    Adam<T> rule = {};
    if constexpr (ADAM) {
        rule = Adam<T>::from(current_numbers(numbers, cursor, width, offset));
    }
    for (int matrix = blockIdx.z; matrix < batch; matrix += gridDim.z) {
        const long long base = place(matrix, 0, 0, nodes, nodes);
        const T* known = statistics + static_cast<long long>(matrix) * 3 * (KIND == ROW ? nodes : 1);
        T* parts = degrees + static_cast<long long>(matrix) * strips * nodes;
        for (long long p = blockIdx.x; p < pairs; p += gridDim.x) {
            const StripPair pair(static_cast<int>(p), strips);
            const bool diagonal = pair.low == pair.high;
            const int left = pair.low * TILE + lane, right = pair.high * TILE + lane;
            if (warp < 2) {
                sides[warp].load(lane, warp == 0 ? left : right, nodes, KIND == ROW, known, gram + base);
            }
#pragma unroll
            for (int k = 0; k < ROWS; ++k) {
                const int row = warp + WARPS * k;
                const int above = pair.low * TILE + row, below = pair.high * TILE + row;
                const bool inside = above < nodes && right < nodes, lower = below < nodes && left < nodes;
                weights[row][lane] = inside ? v[base + place(0, above, right, nodes, nodes)] : T(0);
                tile[row][lane] = lower ? v[base + place(0, below, left, nodes, nodes)] : T(0);
            }
            __syncthreads();
#pragma unroll STEP_UNROLL<T>
            for (int k = 0; k < ROWS; ++k) {
                const int row = warp + WARPS * k;
                const int above = pair.low * TILE + row;
                const long long at = base + place(0, above, right, nodes, nodes);
                T a = T(0);
                if (above <= right && right < nodes) {
                    const T here = weights[row][lane], there = tile[lane][row];
                    const T distance = sides[0].length[row] + sides[1].length[lane] - T(2) * gram[at];
                    const T p_here = exponential(here - sides[0].top[row]) * sides[0].inverse[row];
                    const T p_there = exponential(there - sides[1].top[lane]) * sides[1].inverse[lane];
                    T slope, slope_there;
                    if constexpr (KIND == PRODUCT) {
                        a = exponential(here + there - sides[0].top[row]) * sides[0].inverse[row];
                        slope = scale * (a * distance - sides[0].energy[row] * p_here);
                        slope_there = scale * (a * distance - sides[1].energy[lane] * p_there);
                    } else {
                        a = KIND == ROW ? T(0.5) * (p_here + p_there) : p_here + p_there;
                        slope = scale * p_here * (distance - sides[0].energy[row]);
                        slope_there = scale * p_there * (distance - sides[1].energy[lane]);
                    }
                    adjacency[at] = a;
                    if constexpr (ADAM) {
                        v[at] = rule.moved(here, slope, first + at, second + at);
                    } else {
                        gradient[at] = slope;
                    }
                    slopes[lane][row] = slope_there;
                }
                if (!diagonal || row <= lane) {
                    weights[row][lane] = a;
                }
                if (diagonal && row < lane) {
                    weights[lane][row] = a;
                }
            }
            __syncthreads();
            if (warp == 0 && left < nodes) {
                T sum = T(0);
                for (int column = 0; column < TILE; ++column) {
                    sum += weights[lane][column];
                }
                parts[place(0, pair.high, left, strips, nodes)] = sum;
            }
            if (warp == 1 && !diagonal && right < nodes) {
                T sum = T(0);
                for (int row = 0; row < TILE; ++row) {
                    sum += weights[row][lane];
                }
                parts[place(0, pair.low, right, strips, nodes)] = sum;
            }
#pragma unroll STEP_UNROLL<T>
            for (int k = 0; k < ROWS; ++k) {
                const int row = warp + WARPS * k;
                const int below = pair.high * TILE + row;
                const long long at = base + place(0, below, left, nodes, nodes);
                if (left < below && below < nodes) {
                    adjacency[at] = weights[lane][row];
                    if constexpr (ADAM) {
                        v[at] = rule.moved(tile[row][lane], slopes[row][lane], first + at, second + at);
                    } else {
                        gradient[at] = slopes[row][lane];
                    }
                }
            }
            __threadfence();
            __syncthreads();
            if (threadIdx.x < 2) {
                const bool counts = threadIdx.x == 0 || !diagonal;
                const int strip = threadIdx.x == 0 ? pair.low : pair.high;
                unsigned* ticket = tickets + place(0, matrix, strip, batch, strips);
                last[threadIdx.x] = counts && draw_last(ticket, strips);
            }
            __syncthreads();
            __threadfence();
            for (int side = 0; side < 2; ++side) {
                if (last[side]) {
                    const int strip = side == 0 ? pair.low : pair.high;
                    T* target = pull + static_cast<long long>(matrix) * nodes;
                    finish_strip(parts, target, T(2) * weight, sums, strip, strips, nodes);
                }
            }
        }
    }
}

// gram_ji <- gram_ij for i < j: what cuBLAS leaves out where it multiplies a matrix by its own transpose.
//
// By pairs of tiles, so that global memory is accessed along rows.
// Launch: block 256; grid x = min(t (t + 1) / 2, 2048) with t = ceil(nodes / 32); any other grid works.
template <typename T>
__global__ void __launch_bounds__(THREADS, RESIDENT)
mirror(T* gram, int nodes) {
    __shared__ T tile[TILE][PITCH];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int strips = strips_of(nodes);
    const int pairs = pairs_of(strips);
    for (long long p = blockIdx.x; p < pairs; p += gridDim.x) {
        const StripPair pair(static_cast<int>(p), strips);
        for (int row = warp; row < TILE; row += WARPS) {
            const int above = pair.low * TILE + row, right = pair.high * TILE + lane;
            if (above <= right && right < nodes) {
                tile[row][lane] = gram[place(0, above, right, nodes, nodes)];
            }
        }
        __syncthreads();
        for (int row = warp; row < TILE; row += WARPS) {
            const int below = pair.high * TILE + row, left = pair.low * TILE + lane;
            if (below < nodes && left < below) {
                gram[place(0, below, left, nodes, nodes)] = tile[lane][row];
            }
        }
        __syncthreads();
    }
}
