// Operations among the lanes of a warp. A shuffle or a vote moves registers and orders no memory accesses;
// __syncwarp does.
#include "races.h"
#include "scheduler.h"

namespace simt {

namespace {

unsigned lane_of(const Fiber& fiber) { return fiber.number % 32; }
Warp& warp_of(const Fiber& fiber) { return block.warps[fiber.number / 32]; }

void shuffle_all(Warp& warp) {
    for (unsigned lane = 0; lane < 32; ++lane) {
        if (!(warp.mask >> lane & 1)) continue;
        const unsigned source = warp.source[lane];
        if (!(warp.mask >> source & 1))
            fail("the shuffle of line %d: lane %u reads lane %u, which is not in the mask 0x%08x", warp.line,
                 lane, source, warp.mask);
        warp.result[lane] = warp.value[source];
    }
}

void vote_all(Warp& warp) {
    uint64_t ballots = 0;
    for (unsigned lane = 0; lane < 32; ++lane)
        if (warp.mask >> lane & 1) ballots |= warp.value[lane] << lane;
    for (uint64_t& result : warp.result) result = ballots;
}

void complete(Warp& warp, unsigned number) {
    if (warp.operation == Operation::barrier)
        races::warp_barrier(number, warp.mask);
    else if (warp.operation == Operation::ballot)
        vote_all(warp);
    else
        shuffle_all(warp);
    warp.arrived = 0;
    for (unsigned lane = 0; lane < 32; ++lane)
        if (warp.mask >> lane & 1) block.fibers[32 * number + lane].state = State::ready;
}

uint64_t meet(Operation operation, unsigned mask, uint64_t value, unsigned source, int line) {
    const Fiber& fiber = *block.running;
    Warp& warp = warp_of(fiber);
    const unsigned lane = lane_of(fiber);
    if (!(mask >> lane & 1))
        fail("*_sync of line %d: lane %u calls it and is not in its mask 0x%08x", line, lane, mask);
    if (mask & ~warp.members)
        fail("*_sync of line %d: the mask 0x%08x names lanes that the block does not have (0x%08x are there)",
             line, mask, warp.members);
    if (mask & warp.returned)
        fail("*_sync of line %d: the mask 0x%08x names lanes that have returned (0x%08x)", line, mask,
             mask & warp.returned);
    if (!warp.arrived) {
        warp.mask = mask;
        warp.operation = operation;
        warp.line = line;
    } else if (warp.mask != mask || warp.operation != operation || warp.line != line) {
        fail("divergent *_sync: lanes wait at line %d (mask 0x%08x), another comes to line %d (mask 0x%08x)",
             warp.line, warp.mask, line, mask);
    }
    warp.value[lane] = value;
    warp.source[lane] = source;
    warp.arrived |= 1u << lane;
    if (warp.arrived == warp.mask)
        complete(warp, fiber.number / 32);
    else
        wait(State::at_warp);
    return warp.result[lane];
}

// The lane to read; a lane outside the group of `width` lanes means: keep your own value.
unsigned source_lane(Shuffle kind, unsigned lane, int argument, int width) {
    const int self = static_cast<int>(lane), first = self & ~(width - 1), end = first + width;
    const int64_t wanted = kind == Shuffle::index ? first + (argument & (width - 1))
                           : kind == Shuffle::up  ? int64_t{self} - static_cast<unsigned>(argument)
                           : kind == Shuffle::down ? int64_t{self} + static_cast<unsigned>(argument)
                                                   : int64_t{self ^ argument};
    const int start = kind == Shuffle::exclusive_or ? 0 : first;  // xor may reach the groups before its own
    return static_cast<unsigned>(wanted >= start && wanted < end ? wanted : self);
}

}  // namespace

void warp_lost_a_lane(const Fiber& fiber) {
    Warp& warp = warp_of(fiber);
    if (warp.arrived && warp.mask >> lane_of(fiber) & 1)
        fail("lane %u returned while the *_sync of line %d waits for it (mask 0x%08x)", lane_of(fiber),
             warp.line, warp.mask);
    warp.returned |= 1u << lane_of(fiber);
}

void warp_barrier(unsigned mask, int line) { meet(Operation::barrier, mask, 0, 0, line); }

unsigned ballot(unsigned mask, bool predicate, int line) {
    return static_cast<unsigned>(meet(Operation::ballot, mask, predicate, 0, line));
}

uint64_t shuffle(unsigned mask, Shuffle kind, int argument, int width, uint64_t value, int line) {
    if (width < 1 || width > 32 || width & (width - 1))
        fail("the shuffle of line %d: its width, %d, is not a power of two up to 32", line, width);
    constexpr Operation operations[] = {Operation::index, Operation::up, Operation::down,
                                        Operation::exclusive_or};
    const unsigned source = source_lane(kind, lane_of(*block.running), argument, width);
    return meet(operations[static_cast<int>(kind)], mask, value, source, line);
}

}  // namespace simt
