// One Adam step over one flat array, in place.
//
//     first  <- beta1 * first  + (1 - beta1) * g
//     second <- beta2 * second + (1 - beta2) * g * g
//     p      <- p - rate * first / (sqrt(second) / root + eps)
//
// with rate = learning_rate / (1 - beta1^t) and root = sqrt(1 - beta2^t) at step t = 1, 2, ...
// This is the arithmetic of PyTorch: eps is added after the bias correction. This model starts with gradients
// near 5e-7, where an eps inside the correction would shrink the first steps noticeably.
//
// The caller computes rate, root, 1 - beta1 and 1 - beta2 in double and rounds them once to T: 1 - beta2 taken in
// float from a rounded 0.999f would be wrong in the fifth digit.
//
// The loop strides over the whole grid with 64-bit indices, so every one-dimensional launch shape is right,
// including one with fewer threads than entries or more. No entry is read by two threads: no barrier is needed.

template <typename T>
__global__ void adam(T* __restrict__ p, T* __restrict__ first, T* __restrict__ second, const T* __restrict__ g,
                     long long size, T beta1, T one_minus_beta1, T beta2, T one_minus_beta2, T rate, T root, T eps) {
    const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
    for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < size; i += stride) {
        const T gradient = g[i];
        const T m = beta1 * first[i] + one_minus_beta1 * gradient;
        const T v = beta2 * second[i] + one_minus_beta2 * gradient * gradient;
        first[i] = m;
        second[i] = v;
        p[i] -= rate * m / (sqrt(v) / root + eps);
    }
}
