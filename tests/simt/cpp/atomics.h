// Integer atomics, with exactly the overloads that CUDA has for these types: atomicAdd on a long long or on a
// floating-point number does not compile here. (CUDA has the latter; airnp must not use it.)
//
// One CUDA thread runs at a time, so plain arithmetic is atomic. The race detector is told of each access.
#pragma once

#include "intrinsics.h"

namespace simt {
template <typename T, typename Change>
SIMT_UNTRACKED T atomic(T* address, Change change) {
#ifdef SIMT_RACES
    before_atomic(address, sizeof(T), __builtin_return_address(0));
#endif
    const T old = *address;
    *address = change(old);
    return old;
}
}  // namespace simt

#define SIMT_ATOMIC(name, type, result)                                         \
    SIMT_INLINE type name(type* address, type value) {                          \
        return simt::atomic(address, [=](type old) -> type { return result; }); \
    }
#define SIMT_ATOMIC_BITS(type)              \
    SIMT_ATOMIC(atomicAnd, type, old& value) \
    SIMT_ATOMIC(atomicOr, type, old | value) \
    SIMT_ATOMIC(atomicXor, type, old ^ value)
#define SIMT_ATOMIC_ORDER(type)                              \
    SIMT_ATOMIC(atomicMin, type, old < value ? old : value) \
    SIMT_ATOMIC(atomicMax, type, old < value ? value : old)
#define SIMT_ATOMIC_SWAP(type)                                                                         \
    SIMT_ATOMIC(atomicExch, type, value)                                                               \
    SIMT_INLINE type atomicCAS(type* address, type expected, type value) {                             \
        return simt::atomic(address, [=](type old) -> type { return old == expected ? value : old; }); \
    }
#define SIMT_ATOMICS(type)  \
    SIMT_ATOMIC_BITS(type)  \
    SIMT_ATOMIC_ORDER(type) \
    SIMT_ATOMIC_SWAP(type)

SIMT_ATOMICS(int)
SIMT_ATOMICS(unsigned)
SIMT_ATOMICS(unsigned long long)
SIMT_ATOMIC_ORDER(long long)
// A GPU's counter wraps around, so the sum of ints is taken in unsigned arithmetic.
SIMT_ATOMIC(atomicAdd, int, static_cast<int>(static_cast<unsigned>(old) + static_cast<unsigned>(value)))
SIMT_ATOMIC(atomicAdd, unsigned, old + value)
SIMT_ATOMIC(atomicAdd, unsigned long long, old + value)
SIMT_ATOMIC(atomicSub, int, static_cast<int>(static_cast<unsigned>(old) - static_cast<unsigned>(value)))
SIMT_ATOMIC(atomicSub, unsigned, old - value)
SIMT_ATOMIC(atomicInc, unsigned, old >= value ? 0u : old + 1u)
SIMT_ATOMIC(atomicDec, unsigned, old == 0u || old > value ? value : old - 1u)

#undef SIMT_ATOMIC
#undef SIMT_ATOMIC_BITS
#undef SIMT_ATOMIC_ORDER
#undef SIMT_ATOMIC_SWAP
#undef SIMT_ATOMICS
