// The two halves of a number, for products of float32 accuracy by units that keep 11 bits of a significand.

// 2^13 + 1 and 2^27 + 1: Dekker's factors for a significand of 24 and of 53 bits.
template <typename T>
constexpr T SPLITTER = sizeof(T) == sizeof(float) ? T(8193) : T(134217729);

// A product that is rounded before anything is subtracted from it: fused, nothing would be left over.
__device__ __forceinline__ float rounded_product(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double rounded_product(double a, double b) { return __dmul_rn(a, b); }

// high + low = x, exactly; a float `high` has 11 bits, the rest has 13, whose rounding to 11 loses less than
// 2^-22 of x. Values beyond 2^114 overflow, and what is not finite stays so.
// Launch: block 256; grid x = min(ceil(size / 256), 4096).
template <typename T>
__global__ void __launch_bounds__(THREADS, RESIDENT)
split(const T* __restrict__ x, T* __restrict__ high, T* __restrict__ low, long long size) {
    const long long stride = static_cast<long long>(gridDim.x) * THREADS;
    for (long long i = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x; i < size; i += stride) {
        const T value = x[i];
        const T large = rounded_product(SPLITTER<T>, value);
        const T top = large - (large - value);
        high[i] = top;
        low[i] = value - top;
    }
}
