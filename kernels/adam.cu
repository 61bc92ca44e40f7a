// The step of all parameters in one launch.
//
// `tensors` is a table of 64-bit words on the device, six for each tensor:
//     address of p, address of g, address of first, address of second, size, offset of its numbers in a row
// `numbers` (capacity, width) has the scalars of many iterations, computed by the host in double and rounded
// once; `cursor` is the current row. So an iteration needs nothing from the host, and a CUDA graph can be
// replayed.

enum : int { WORDS = 6 };

template <typename P>
__device__ __forceinline__ P* pointer(long long address) {
    return reinterpret_cast<P*>(address);
}

// p, first, second <- Adam's step by g.
// Launch: block 256; grid x = min(ceil(largest size / 256), 4096), y = min(count, 65535).
template <typename T>
__global__ void __launch_bounds__(THREADS, RESIDENT)
adam(const long long* __restrict__ tensors, int count, const T* __restrict__ numbers,
     const int* __restrict__ cursor, int width) {
    const long long stride = static_cast<long long>(gridDim.x) * THREADS;
    const long long start = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
    for (long long tensor = blockIdx.y; tensor < count; tensor += gridDim.y) {
        const long long* words = tensors + tensor * WORDS;
        T* __restrict__ p = pointer<T>(words[0]);
        const T* __restrict__ g = pointer<const T>(words[1]);
        T* __restrict__ first = pointer<T>(words[2]);
        T* __restrict__ second = pointer<T>(words[3]);
        const long long size = words[4];
        const Adam<T> rule = Adam<T>::from(current_numbers(numbers, cursor, width, words[5]));
#pragma unroll 1
        for (long long i = start; i < size; i += stride) {
            p[i] = rule.moved(p[i], g[i], first + i, second + i);
        }
    }
}

// p <- p - rate * g, with one number for each tensor; the words of first and second are not used.
// Launch: as adam.
template <typename T>
__global__ void __launch_bounds__(THREADS, RESIDENT)
descend(const long long* __restrict__ tensors, int count, const T* __restrict__ numbers,
        const int* __restrict__ cursor, int width) {
    const long long stride = static_cast<long long>(gridDim.x) * THREADS;
    const long long start = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
    for (long long tensor = blockIdx.y; tensor < count; tensor += gridDim.y) {
        const long long* words = tensors + tensor * WORDS;
        T* __restrict__ p = pointer<T>(words[0]);
        const T* __restrict__ g = pointer<const T>(words[1]);
        const long long size = words[4];
        const T rate = *current_numbers(numbers, cursor, width, words[5]);
#pragma unroll 1
        for (long long i = start; i < size; i += stride) {
            p[i] -= rate * g[i];
        }
    }
}
