// The table of kernels that a compiled text offers: name, parameters, and a way to run one CUDA thread of it.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include "intrinsics.h"

namespace simt {

constexpr unsigned argument_slot = 16;  // bytes; argument i stands at 16 i, wide enough for every parameter

struct Parameter {
    char pointer;    // 'm' to something mutable, 'c' to something constant, 0 for a value
    char kind;       // 'f' floating point, 'i' integer, 'v' void, 's' else; of a pointer: of its target
    unsigned bytes;  // of the value, or of the target
};

using Call = void(void (*kernel)(), const unsigned char* arguments);

struct Entry {
    const char* name;
    void (*kernel)();
    Call* call;
    const Parameter* parameters;
    unsigned count;
    unsigned most_threads;  // of a block, as __launch_bounds__ promises
};

template <typename T>
constexpr char kind_of() {
    if (std::is_void_v<T>) return 'v';
    if (std::is_floating_point_v<T>) return 'f';
    return std::is_integral_v<T> ? 'i' : 's';
}
template <typename T>
constexpr unsigned size_of() {
    if constexpr (std::is_void_v<T>)
        return 0;
    else
        return sizeof(T);
}
template <typename T>
constexpr Parameter describe() {
    static_assert(!std::is_reference_v<T>, "a kernel takes no references");
    static_assert(sizeof(T) <= argument_slot);
    if constexpr (std::is_pointer_v<T>) {
        using To = std::remove_pointer_t<T>;
        using Plain = std::remove_cv_t<To>;
        return {std::is_const_v<To> ? 'c' : 'm', kind_of<Plain>(), size_of<Plain>()};
    } else {
        return {0, kind_of<T>(), sizeof(T)};
    }
}

template <typename... P>
struct Signature {
    static constexpr Parameter parameters[sizeof...(P) + 1] = {describe<std::remove_cv_t<P>>()..., {}};

    template <std::size_t... I>
    SIMT_UNTRACKED static void spread(void (*kernel)(P...), const unsigned char* arguments,
                                      std::index_sequence<I...>) {
        kernel(*reinterpret_cast<const P*>(arguments + argument_slot * I)...);
    }
    SIMT_UNTRACKED static void call(void (*kernel)(), const unsigned char* arguments) {
        spread(reinterpret_cast<void (*)(P...)>(kernel), arguments, std::index_sequence_for<P...>{});
    }
};

template <typename... P>
Entry entry(const char* name, void (*kernel)(P...), unsigned most_threads) {
    using S = Signature<P...>;
    return {name, reinterpret_cast<void (*)()>(kernel), &S::call, S::parameters, sizeof...(P), most_threads};
}

}  // namespace simt
