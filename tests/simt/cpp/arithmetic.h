// CUDA's arithmetic functions that <math.h> has not, or has with another meaning.
#pragma once

#include <math.h>

#include <cstdint>
#include <type_traits>

// CUDA's min and max take mixed types, and ignore a NaN when the other operand is a number.
template <typename A, typename B>
constexpr std::common_type_t<A, B> min(A a, B b) {
    using T = std::common_type_t<A, B>;
    if constexpr (std::is_floating_point_v<T>)
        return fmin(static_cast<T>(a), static_cast<T>(b));
    else
        return static_cast<T>(b) < static_cast<T>(a) ? static_cast<T>(b) : static_cast<T>(a);
}
template <typename A, typename B>
constexpr std::common_type_t<A, B> max(A a, B b) {
    using T = std::common_type_t<A, B>;
    if constexpr (std::is_floating_point_v<T>)
        return fmax(static_cast<T>(a), static_cast<T>(b));
    else
        return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(b) : static_cast<T>(a);
}

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float rsqrt(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }

// The approximate ones of a GPU differ from these by a few units in the last place.
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __fdividef(float a, float b) { return a / b; }

// The _rn functions are never contracted into a fused multiply-add; the empty statement hides the result
// from the compiler, which would contract it in the "fma" mode otherwise.
#define SIMT_ROUNDED(name, type, expression)  \
    inline type name(type a, type b) {        \
        type result = expression;             \
        __asm__("" : "+x"(result));           \
        return result;                        \
    }
SIMT_ROUNDED(__fadd_rn, float, a + b)
SIMT_ROUNDED(__fsub_rn, float, a - b)
SIMT_ROUNDED(__fmul_rn, float, a* b)
SIMT_ROUNDED(__fdiv_rn, float, a / b)
SIMT_ROUNDED(__dadd_rn, double, a + b)
SIMT_ROUNDED(__dsub_rn, double, a - b)
SIMT_ROUNDED(__dmul_rn, double, a* b)
SIMT_ROUNDED(__ddiv_rn, double, a / b)
#undef SIMT_ROUNDED
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline double __dsqrt_rn(double x) { return sqrt(x); }
inline float __frcp_rn(float x) { return 1.0f / x; }

template <typename To, typename From>
To simt_bits(From value) {
    static_assert(sizeof(To) == sizeof(From));
    To result;
    __builtin_memcpy(&result, &value, sizeof result);
    return result;
}
inline int __float_as_int(float x) { return simt_bits<int>(x); }
inline unsigned __float_as_uint(float x) { return simt_bits<unsigned>(x); }
inline float __int_as_float(int x) { return simt_bits<float>(x); }
inline float __uint_as_float(unsigned x) { return simt_bits<float>(x); }
inline long long __double_as_longlong(double x) { return simt_bits<long long>(x); }
inline double __longlong_as_double(long long x) { return simt_bits<double>(x); }

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
