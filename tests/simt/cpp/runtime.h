// Functions of the run time that the kernel text calls through cuda.h.
//
// The run time is compiled without sanitizers, so that they see the kernel's own accesses and nothing else.
#pragma once

#include <cstddef>
#include <cstdint>

#include "types.h"

namespace simt {

struct Position {
    uint3 thread, block;
};

extern const Position* current;  // of the CUDA thread that runs now
extern dim3 grid_size, block_size;

enum class Vote { none, count, all, any };
enum class Shuffle { index, up, down, exclusive_or };

int barrier(Vote vote, bool predicate, int line);
void warp_barrier(unsigned mask, int line);
uint64_t shuffle(unsigned mask, Shuffle kind, int argument, int width, uint64_t value, int line);
unsigned ballot(unsigned mask, bool predicate, int line);
void fence();

// Called by the race-checking build alone; `place` is where in the kernel.
void before_atomic(const void* address, unsigned bytes, const void* place);

}  // namespace simt
