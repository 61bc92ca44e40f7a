// What AddressSanitizer must be told when the stack changes.
#pragma once

#include <cstddef>

#ifdef SIMT_ASAN
extern "C" {
void __sanitizer_start_switch_fiber(void** fake_stack, const void* bottom, size_t size);
void __sanitizer_finish_switch_fiber(void* fake_stack, const void** old_bottom, size_t* old_size);
}
#endif

namespace simt::sanitizer {

#ifdef SIMT_ASAN
inline const void* main_bottom;
inline size_t main_size;
inline bool to_main;

// A null `bottom` means the stack of the scheduler. (No fake stacks: detect_stack_use_after_return is off.)
inline void before_switch(const void* bottom, size_t size) {
    to_main = bottom == nullptr;
    __sanitizer_start_switch_fiber(nullptr, to_main ? main_bottom : bottom, to_main ? main_size : size);
}
inline void after_switch() {
    if (to_main)
        __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
    else
        __sanitizer_finish_switch_fiber(nullptr, &main_bottom, &main_size);
}
#else
inline void before_switch(const void*, size_t) {}
inline void after_switch() {}
#endif

}  // namespace simt::sanitizer
