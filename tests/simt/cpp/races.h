// The race detector's view of a launch; empty functions in builds that do not look for races.
#pragma once

namespace simt::races {

#ifdef SIMT_RACES
void start_launch(const void* ignored_start, const void* ignored_stop);
void start_block(unsigned threads, const char* shared_start, const char* shared_stop);
void barrier();
void warp_barrier(unsigned warp, unsigned mask);
void fence(unsigned thread);
void atomic(unsigned thread, const void* address, unsigned bytes, const void* place);
#else
inline void start_launch(const void*, const void*) {}
inline void start_block(unsigned, const char*, const char*) {}
inline void barrier() {}
inline void warp_barrier(unsigned, unsigned) {}
inline void fence(unsigned) {}
inline void atomic(unsigned, const void*, unsigned, const void*) {}
#endif

}  // namespace simt::races
