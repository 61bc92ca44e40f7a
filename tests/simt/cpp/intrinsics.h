// Built-in variables, barriers, fences and warp operations.
//
// __builtin_LINE() as a default argument is the line of the caller: messages name it, and two threads that
// meet at different lines are told apart.
#pragma once

#include "runtime.h"

// In the race-checking build these functions touch memory of the executor, not of the kernel: untracked.
#ifdef SIMT_RACES
#define SIMT_UNTRACKED __attribute__((no_sanitize("thread"), noinline))
#else
#define SIMT_UNTRACKED
#endif

// Inlined in every build, so that the place of an access is one in the kernel.
#define SIMT_INLINE __attribute__((always_inline)) inline

namespace simt {
SIMT_UNTRACKED inline uint3 thread_index() { return current->thread; }
SIMT_UNTRACKED inline uint3 block_index() { return current->block; }
SIMT_UNTRACKED inline dim3 block_dimensions() { return block_size; }
SIMT_UNTRACKED inline dim3 grid_dimensions() { return grid_size; }

template <typename T>
T shuffle_value(unsigned mask, Shuffle kind, int argument, int width, T value, int line) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "CUDA shuffles values of 4 or 8 bytes");
    uint64_t bits = 0;
    __builtin_memcpy(&bits, &value, sizeof value);
    bits = shuffle(mask, kind, argument, width, bits, line);
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}
}  // namespace simt

#define threadIdx (simt::thread_index())
#define blockIdx (simt::block_index())
#define blockDim (simt::block_dimensions())
#define gridDim (simt::grid_dimensions())
#define warpSize 32

inline void __syncthreads(int line = __builtin_LINE()) { simt::barrier(simt::Vote::none, false, line); }
inline int __syncthreads_count(int predicate, int line = __builtin_LINE()) {
    return simt::barrier(simt::Vote::count, predicate != 0, line);
}
inline int __syncthreads_and(int predicate, int line = __builtin_LINE()) {
    return simt::barrier(simt::Vote::all, predicate != 0, line);
}
inline int __syncthreads_or(int predicate, int line = __builtin_LINE()) {
    return simt::barrier(simt::Vote::any, predicate != 0, line);
}
inline void __syncwarp(unsigned mask = 0xffffffffu, int line = __builtin_LINE()) {
    simt::warp_barrier(mask, line);
}
inline void __threadfence() { simt::fence(); }

template <typename T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32, int line = __builtin_LINE()) {
    return simt::shuffle_value(mask, simt::Shuffle::index, lane, width, value, line);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, int line = __builtin_LINE()) {
    return simt::shuffle_value(mask, simt::Shuffle::up, static_cast<int>(delta), width, value, line);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, int line = __builtin_LINE()) {
    return simt::shuffle_value(mask, simt::Shuffle::down, static_cast<int>(delta), width, value, line);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, int line = __builtin_LINE()) {
    return simt::shuffle_value(mask, simt::Shuffle::exclusive_or, lanes, width, value, line);
}
inline unsigned __ballot_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
    return simt::ballot(mask, predicate != 0, line);
}
inline int __any_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
    return simt::ballot(mask, predicate != 0, line) != 0;
}
inline int __all_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
    return simt::ballot(mask, predicate != 0, line) == mask;
}

template <typename T>
SIMT_INLINE T __ldg(const T* address) {
    return *address;
}
