// The end of an iteration: store its values in a ring buffer on the device and advance the cursor.

// ring[cursor][s][b] <- the b-th value of the s-th source; then cursor <- cursor + 1, and 0 after the last
// line. `sources` has `count` addresses of arrays of `batch` values; `ring` is (capacity, count, batch).
// Launch: block 256, grid 1, after all kernels that read the cursor. Further blocks do nothing.
template <typename T>
__global__ void __launch_bounds__(THREADS, RESIDENT)
record(const long long* __restrict__ sources, int count, int batch, T* __restrict__ ring, int* cursor,
       int capacity) {
    if (blockIdx.x > 0 || blockIdx.y > 0 || blockIdx.z > 0) {
        return;
    }
    const int line = *cursor;
    const long long size = static_cast<long long>(count) * batch;
    for (long long i = threadIdx.x; i < size; i += THREADS) {
        const T* source = reinterpret_cast<const T*>(sources[i / batch]);
        ring[line * size + i] = source[i % batch];
    }
    // Every thread has read the cursor before it changes.
    __syncthreads();
    if (threadIdx.x == 0) {
        *cursor = line + 1 < capacity ? line + 1 : 0;
    }
}
