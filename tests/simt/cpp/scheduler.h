// The state of a launch, as the parts of the run time share it.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime.h"

namespace simt {

enum class State : unsigned char { ready, at_barrier, at_warp, returned };

struct Fiber {
    void* stack;
    Position position;
    unsigned number;  // in its block; its lane is number % 32
    State state;
};

enum class Operation : unsigned char { barrier, ballot, index, up, down, exclusive_or };

// Lanes put a value (and the lane they want to read) in; the last one to arrive works out everyone's result.
struct Warp {
    unsigned members, returned, arrived, mask;
    Operation operation;
    int line;
    uint64_t value[32], result[32];
    unsigned source[32];
};

struct Block {
    std::vector<Fiber> fibers;
    std::vector<Warp> warps;
    Fiber* running;
    unsigned alive, waiting;  // threads that have not returned; threads at the barrier
    Vote vote;
    int line, tally, verdict;  // of the barrier that is pending; `verdict` of the one that completed
};

extern Block block;

void wait(State state);  // suspends the running fiber until it is made ready again
[[noreturn]] __attribute__((format(printf, 1, 2))) void fail(const char* format, ...);
void warp_lost_a_lane(const Fiber& fiber);  // called when a thread returns

}  // namespace simt
