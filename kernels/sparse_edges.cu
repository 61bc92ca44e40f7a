// The learned graph over candidate edges: softmax of each node's edges, distances, slopes, outgoing pull.
//
// With D_ij = sum_k metric_k (t_ik - t_jk)^2 and P the softmax of the logits over the edges of node i:
//     R = 1/2 sum P D,    slope of a logit = 1/2 P_ij (D_ij - r_i),  r_i = sum_j P_ij D_ij
//     2 L t = sum_j P_ij (t_i - t_j) + sum_j P_ji (t_i - t_j): the first half here, the second by gap_sums

// The first COLUMNS columns of `pull` are written here; gap_sums computes the others from the weights. One
// warp works on a node, however many edges it has. Sums are normalised at the end, so that each t_j is
// gathered once. A lane reads again only the edges that it wrote itself.
// Launch: block 256; grid x = min(ceil(nodes / 8), 2048).
// partial: 2 * gridDim.x values of T. tickets: 1, which is 0 (and 0 again afterwards).
template <typename T>
__global__ void __launch_bounds__(THREADS, GATHERING_BLOCKS<T>)
edge_terms(const long long* __restrict__ indptr, const int* __restrict__ indices,
           const T* __restrict__ logits, const T* __restrict__ t, const T* __restrict__ metric, T* weights,
           T* slopes, T* __restrict__ pull, Sum<T>* partial, unsigned* tickets, T* value, int nodes,
           int rank) {
    const int lane = lane_of_thread();
    Sum<T> energy = {T(0), T(0)};
    for (long long node = first_item(); node < nodes; node += item_stride()) {
        const long long first = indptr[node], last = indptr[node + 1];
        T top = lowest<T>();
        for (long long edge = first + lane; edge < last; edge += LANES) {
            top = larger(top, logits[edge]);
        }
        for (int distance = LANES / 2; distance > 0; distance /= 2) {
            top = larger(top, __shfl_xor_sync(FULL, top, distance));
        }
        const T* here = t + node * rank;
        const Columns<T> own = Columns<T>::read(here, 0, rank);
        Columns<T> sum = Columns<T>::zero();
        T mass = T(0), mean = T(0);
        for (long long edge = first; edge < last; ++edge) {
            const T* there = t + static_cast<long long>(indices[edge]) * rank;
            const Columns<T> gap = own.minus(Columns<T>::read(there, 0, rank));
            T part = gap.square(Columns<T>::read(metric, 0, rank));
            for (int column = COLUMNS + lane; column < rank; column += LANES) {
                const T difference = here[column] - there[column];
                part += metric[column] * (difference * difference);
            }
            const T distance = warp_total(part);
            const T weight = exponential(logits[edge] - top);
            sum.add(weight, gap);
            mass += weight;
            mean += weight * distance;
            if ((edge - first) % LANES == lane) {
                weights[edge] = weight;
                slopes[edge] = distance;
            }
        }
        const T inverse = last > first ? T(1) / mass : T(0);
        mean *= inverse;
        for (long long edge = first + lane; edge < last; edge += LANES) {
            const T weight = weights[edge] * inverse;
            weights[edge] = weight;
            slopes[edge] = T(0.5) * weight * (slopes[edge] - mean);
        }
        sum.write(pull + node * rank, 0, rank, inverse, false);
        if (lane == 0) {
            energy.add(mean);
        }
    }
    finish_sum(energy, T(0.5), partial, tickets, value, 0);
}
