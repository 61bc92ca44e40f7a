// Which accesses of a launch are ordered, by the rules of CUDA.
//
//  * A launch is ordered after all that came before it.
//  * __syncthreads() orders all that its block did before it with all that the block does after it;
//    __syncwarp() does so for the lanes of its mask. A shuffle or a vote orders nothing.
//  * An atomic operation is relaxed: it passes on, to the later atomic operations on the same address, only
//    what its thread had published. __threadfence() publishes what the thread knows; barriers spread what is
//    published. So both "every thread fences, barrier, thread 0 takes a ticket" and "barrier, thread 0 fences
//    and takes a ticket" are in order, and neither is without its fence. The reader's side needs no second
//    fence, as in NVIDIA's sample threadFenceReduction.
#pragma once

#include <unordered_map>

#include "clocks.h"

namespace simt::races {

class Order {
public:
    void start_launch();
    void start_block(unsigned threads);
    void barrier() { meet(0, static_cast<unsigned>(seen.size()), ~0u); }
    void warp_barrier(unsigned warp, unsigned mask) { meet(32 * warp, 32, mask); }
    void fence(unsigned thread);
    void atomic(unsigned thread, const void* address);

    uint64_t block() const { return number; }
    uint32_t time(unsigned thread) const { return seen[thread].own[thread]; }
    bool knows(unsigned thread, uint64_t block, unsigned other, uint32_t time) const;

private:
    void meet(unsigned first, unsigned count, unsigned mask);

    uint64_t number = 0;                    // of the running block, in the order of running
    std::vector<Knowledge> seen, published;  // by thread
    bool any_published = false;
    std::unordered_map<const void*, Slices> passed_on;  // by the address of the atomic
};

}  // namespace simt::races
