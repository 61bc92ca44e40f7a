// Runs the blocks of a grid one after another, and the threads of a block as fibers that take turns.
#include "scheduler.h"

#include <sys/mman.h>

#include <cstdarg>
#include <cstdio>
#include <numeric>
#include <utility>

#include "context.h"
#include "entry.h"
#include "races.h"
#include "sanitizer.h"

extern "C" char simt_shared_start[], simt_shared_stop[];

namespace simt {

const Position* current;
dim3 grid_size, block_size;
Block block;

namespace {

constexpr size_t stack_bytes = 64 * 1024;
constexpr unsigned most_threads = 1024;

char* stacks;
void* main_stack;
const Entry* kernel;
const unsigned char* arguments;
char message[600];

// Order 0 is the natural one, 1 its reverse, others are shuffled, anew each time.
class Permutation {
public:
    Permutation(uint64_t size, unsigned order) : items(size), kind(order), state(order) {
        std::iota(items.begin(), items.end(), 0);
        if (kind == 1)
            for (uint64_t i = 0; i < size; ++i) items[i] = size - 1 - i;
    }
    const std::vector<uint64_t>& next() {
        if (kind > 1)
            for (uint64_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[random() % i]);
        return items;
    }

private:
    uint64_t random() {  // SplitMix64
        uint64_t z = state += 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }
    std::vector<uint64_t> items;
    unsigned kind;
    uint64_t state;
};

void leave() {
    sanitizer::before_switch(nullptr, 0);
    simt_switch(&block.running->stack, main_stack);
    sanitizer::after_switch();
}

void run_thread() {
    sanitizer::after_switch();
    kernel->call(kernel->kernel, arguments);
    Fiber& fiber = *block.running;
    if (block.waiting) fail("a thread returned while others wait at __syncthreads() of line %d", block.line);
    fiber.state = State::returned;
    --block.alive;
    warp_lost_a_lane(fiber);
    leave();
}

// Not memset, which AddressSanitizer would watch: the red zones between the variables are overwritten too.
void fill_with_nan(char* start, char* stop) {
    size_t count = static_cast<size_t>(stop - start);
    __asm__ volatile("rep stosb" : "+D"(start), "+c"(count) : "a"(0xff) : "memory");
}

char* stack_of(unsigned number) { return stacks + number * stack_bytes; }

void start_block(uint3 index) {
    const unsigned count = block_size.x * block_size.y * block_size.z;
    block.alive = count;
    block.waiting = 0;
    block.warps.assign((count + 31) / 32, Warp{});
    block.fibers.resize(count);
    for (unsigned i = 0; i < count; ++i) {
        const unsigned row = i / block_size.x;
        const uint3 thread{i % block_size.x, row % block_size.y, row / block_size.y};
        // Stacks that all end at the same place of a page would fight for the same lines of the cache.
        char* top = stack_of(i) + stack_bytes - 64 * (i % 61);
        block.fibers[i] = {simt_new_stack(top, run_thread), {thread, index}, i, State::ready};
        block.warps[i / 32].members |= 1u << i % 32;
    }
    fill_with_nan(simt_shared_start, simt_shared_stop);
    races::start_block(count, simt_shared_start, simt_shared_stop);
}

void resume(Fiber& fiber) {
    block.running = &fiber;
    current = &fiber.position;
    sanitizer::before_switch(stack_of(fiber.number), stack_bytes);
    simt_switch(&main_stack, fiber.stack);
    sanitizer::after_switch();
    current = nullptr;
}

void run_block(uint3 index, Permutation& order) {
    start_block(index);
    while (block.alive) {
        bool moved = false;
        for (const uint64_t i : order.next()) {
            if (block.fibers[i].state != State::ready) continue;
            resume(block.fibers[i]);
            if (message[0]) return;
            moved = true;
        }
        if (!moved) {
            snprintf(message, sizeof message,
                     "deadlock in block (%u, %u, %u): %u threads wait at __syncthreads(), the other %u at a "
                     "warp operation that cannot complete",
                     index.x, index.y, index.z, block.waiting, block.alive - block.waiting);
            return;
        }
    }
}

}  // namespace

void wait(State state) {
    block.running->state = state;
    leave();
}

void fail(const char* format, ...) {
    va_list values;
    va_start(values, format);
    int length = vsnprintf(message, sizeof message, format, values);
    va_end(values);
    if (length > static_cast<int>(sizeof message) - 100) length = sizeof message - 100;
    const Position& at = *current;
    snprintf(message + length, sizeof message - length, " [block (%u, %u, %u), thread (%u, %u, %u)]",
             at.block.x, at.block.y, at.block.z, at.thread.x, at.thread.y, at.thread.z);
    leave();  // for ever: the launch is given up, and its fibers with it
    __builtin_unreachable();
}

int barrier(Vote vote, bool predicate, int line) {
    const unsigned count = static_cast<unsigned>(block.fibers.size());
    if (block.alive != count)
        fail("__syncthreads() of line %d is reached after %u threads of the block returned", line,
             count - block.alive);
    if (block.waiting && (block.line != line || block.vote != vote))
        fail("divergent __syncthreads(): some threads wait at line %d, others at line %d", block.line, line);
    if (!block.waiting) {
        block.line = line;
        block.vote = vote;
        block.tally = 0;
    }
    block.tally += predicate;
    if (++block.waiting < count) {
        wait(State::at_barrier);
    } else {
        block.waiting = 0;
        block.verdict = vote == Vote::count ? block.tally
                        : vote == Vote::any ? block.tally > 0
                                            : block.tally == static_cast<int>(count);
        for (Fiber& fiber : block.fibers)
            if (fiber.state == State::at_barrier) fiber.state = State::ready;
        races::barrier();
    }
    // No later barrier can complete, and change the verdict, before this thread has arrived at it.
    return block.verdict;
}

void fence() { races::fence(block.running->number); }

void before_atomic(const void* address, unsigned bytes, const void* place) {
    races::atomic(block.running->number, address, bytes, place);
}

}  // namespace simt

#define SIMT_EXPORT extern "C" __attribute__((visibility("default")))

// Returns null, or a message that says what the kernel did wrong.
SIMT_EXPORT const char* simt_launch(const simt::Entry* entry, const unsigned* grid, const unsigned* size,
                                    const unsigned char* values, unsigned order) {
    using namespace simt;
    if (!stacks)
        stacks = static_cast<char*>(mmap(nullptr, most_threads * stack_bytes, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (stacks == MAP_FAILED) return "no memory for the stacks of the threads";
    grid_size = {grid[0], grid[1], grid[2]};
    block_size = {size[0], size[1], size[2]};
    kernel = entry;
    arguments = values;
    message[0] = 0;
    races::start_launch(stacks, stacks + most_threads * stack_bytes);
    Permutation threads(uint64_t{size[0]} * size[1] * size[2], order);
    Permutation blocks(uint64_t{grid[0]} * grid[1] * grid[2], order);
    for (const uint64_t i : blocks.next()) {
        const uint64_t row = i / grid[0];
        run_block({unsigned(i % grid[0]), unsigned(row % grid[1]), unsigned(row / grid[1])}, threads);
        if (message[0]) return message;
    }
    return nullptr;
}
