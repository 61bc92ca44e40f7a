// The Gram matrix of a factor as L D L^T, so that distances of rows of X are weighted sums of squares.

// factor <- L (unit lower triangular), inverse <- L^-1, pivots <- D >= 0, all of G + tolerance * diag(G),
// which is positive definite to rounding also where G has a lower rank. A row of zeros has the pivot 0. A G
// that is not finite gives numbers that are not finite.
//
// Column by column: the rows below take their multiple of row k off, in G and, from the identity on, in what
// becomes the inverse. Pivots below the tolerance come from rounding and are raised to it.
// Launch: block 256, grid 1. Further blocks do nothing. gram, factor and inverse: (rank, rank), different.
template <typename T>
__global__ void __launch_bounds__(THREADS, RESIDENT)
factor_gram(const T* __restrict__ gram, T* factor, T* pivots, T* inverse, T tolerance, int rank) {
    if (blockIdx.x > 0 || blockIdx.y > 0 || blockIdx.z > 0) {
        return;
    }
    const int lane = lane_of_thread(), warp = threadIdx.x / LANES;
    const long long width = rank;
    for (long long i = threadIdx.x; i < width * width; i += THREADS) {
        const long long row = i / width, column = i % width;
        factor[i] = column < row ? gram[i] : column == row ? gram[i] + tolerance * gram[i] : T(0);
        inverse[i] = column == row ? T(1) : T(0);
    }
    __syncthreads();
    for (int k = 0; k < rank; ++k) {
        const T* own = factor + k * width;
        const T pivot = larger(own[k], tolerance * gram[k * width + k]);
        const T quotient = pivot == T(0) ? T(0) : T(1) / pivot;
        for (int i = k + 1 + warp; i < rank; i += WARPS) {
            T* row = factor + i * width;
            const T multiple = row[k] * quotient;
            for (int j = k + 1 + lane; j <= i; j += LANES) {
                row[j] -= multiple * factor[j * width + k];
            }
            for (int j = lane; j <= k; j += LANES) {
                inverse[i * width + j] -= multiple * inverse[k * width + j];
            }
        }
        // Column k was read by all warps, and is of no more use but as a column of L.
        __syncthreads();
        for (int i = k + 1 + static_cast<int>(threadIdx.x); i < rank; i += THREADS) {
            factor[i * width + k] *= quotient;
        }
        if (threadIdx.x == 0) {
            pivots[k] = pivot;
            factor[k * width + k] = T(1);
        }
    }
}
