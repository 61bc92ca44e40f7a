// A race detector for CUDA: g++ -fsanitize=thread announces every access, Order says which are ordered.
//
// ThreadSanitizer's own run time knows C++ threads, a few thousand of them, and no __threadfence(). This one
// knows the rules of CUDA, and remembers every access to a word that a later one could still race with. So a
// race is reported whatever the order in which the threads happen to run.
#include "races.h"

#include <memory>
#include <unordered_map>

#include "order.h"
#include "scheduler.h"

extern "C" const char __ehdr_start[];  // where the shared object begins

namespace simt::races {

namespace {

struct Access {
    uint64_t block;
    uint3 index;  // of the block, for the message
    uint32_t time;
    uint32_t place;  // in the code
    uint16_t thread;
    uint8_t bytes;  // of the word, one bit each
};

struct Word {
    std::vector<Access> reads, writes;
    std::vector<Access> atomics;  // none, or the last one: see on_read
};

constexpr uintptr_t word_bytes = 4, page_bytes = 4096;

struct Page {
    Word words[page_bytes / word_bytes];
};

Order order;
std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages;
uintptr_t ignored_start, ignored_size, last_number = ~uintptr_t{0};
Page* last_page;

Word& word_at(uintptr_t address) {
    const uintptr_t number = address / page_bytes;
    if (number != last_number) {
        std::unique_ptr<Page>& page = pages[number];
        if (!page) page = std::make_unique<Page>();
        last_page = page.get();
        last_number = number;
    }
    return last_page->words[address % page_bytes / word_bytes];
}

Access access_now(uint8_t bytes, const void* place) {
    const Fiber& fiber = *block.running;
    const auto offset = static_cast<uint32_t>(static_cast<const char*>(place) - __ehdr_start - 1);
    const auto thread = static_cast<uint16_t>(fiber.number);
    return {order.block(), fiber.position.block, order.time(fiber.number), offset, thread, bytes};
}

// Braces mark what the Python side translates: an address in memory, places in the code.
[[noreturn]] void report(const char* what, const Access& now, const char* earlier_what, const Access& earlier,
                         uintptr_t address) {
    fail("data race: %s at {+%#x} and an earlier %s at {+%#x} by block (%u, %u, %u), thread %u of it, are "
         "not ordered by a barrier, nor by a fence and an atomic; both touch {&%#zx}",
         what, now.place, earlier_what, earlier.place, earlier.index.x, earlier.index.y, earlier.index.z,
         earlier.thread, address);
}

void check(const std::vector<Access>& earlier, const Access& now, const char* what, const char* earlier_what,
           uintptr_t address) {
    for (const Access& before : earlier)
        if (before.bytes & now.bytes && !order.knows(now.thread, before.block, before.thread, before.time))
            report(what, now, earlier_what, before, address);
}

void forget_covered(std::vector<Access>& earlier, uint8_t bytes) {
    const auto covered = [=](const Access& before) { return !(before.bytes & ~bytes); };
    earlier.erase(std::remove_if(earlier.begin(), earlier.end(), covered), earlier.end());
}

void remember_read(std::vector<Access>& reads, const Access& now) {
    for (auto before = reads.rbegin(); before != reads.rend() && before->block == now.block; ++before)
        if (before->thread == now.thread && before->bytes == now.bytes) {
            *before = now;
            return;
        }
    reads.push_back(now);
}

// All atomic operations on an address have one order: a plain access after the last one comes after all.
void on_read(Word& word, const Access& now, uintptr_t address) {
    check(word.writes, now, "a read", "write", address);
    check(word.atomics, now, "a read", "atomic operation", address);
    remember_read(word.reads, now);
}

void on_write(Word& word, const Access& now, uintptr_t address) {
    check(word.writes, now, "a write", "write", address);
    check(word.atomics, now, "a write", "atomic operation", address);
    check(word.reads, now, "a write", "read", address);
    forget_covered(word.writes, now.bytes);
    forget_covered(word.reads, now.bytes);
    word.writes.push_back(now);
}

void on_atomic(Word& word, const Access& now, uintptr_t address) {
    check(word.writes, now, "an atomic operation", "write", address);
    check(word.reads, now, "an atomic operation", "read", address);
    word.atomics.assign(1, now);
}

template <typename Event>
void each_word(const void* pointer, size_t size, const void* place, Event event) {
    const auto start = reinterpret_cast<uintptr_t>(pointer);
    if (!current || start - ignored_start < ignored_size) return;
    for (uintptr_t at = start & ~(word_bytes - 1); at < start + size; at += word_bytes) {
        unsigned bytes = 0;
        for (uintptr_t i = 0; i < word_bytes; ++i)
            if (at + i >= start && at + i < start + size) bytes |= 1u << i;
        event(word_at(at), access_now(static_cast<uint8_t>(bytes), place), at);
    }
}

}  // namespace

void start_launch(const void* start, const void* stop) {
    ignored_start = reinterpret_cast<uintptr_t>(start);
    ignored_size = reinterpret_cast<uintptr_t>(stop) - ignored_start;
    pages.clear();
    last_number = ~uintptr_t{0};
    order.start_launch();
}

// Each block has shared memory of its own, though here it has the same address.
void start_block(unsigned threads, const char* shared_start, const char* shared_stop) {
    order.start_block(threads);
    for (auto at = reinterpret_cast<uintptr_t>(shared_start); at < reinterpret_cast<uintptr_t>(shared_stop);
         at += word_bytes)
        word_at(at) = Word{};
}

void barrier() { order.barrier(); }
void warp_barrier(unsigned warp, unsigned mask) { order.warp_barrier(warp, mask); }
void fence(unsigned thread) { order.fence(thread); }

void atomic(unsigned thread, const void* address, unsigned bytes, const void* place) {
    order.atomic(thread, address);
    each_word(address, bytes, place, on_atomic);
}

}  // namespace simt::races

// What g++ -fsanitize=thread calls.
#define SIMT_ACCESS(name, bytes, event) \
    void name(void* address) { simt::races::each_word(address, bytes, __builtin_return_address(0), event); }
#define SIMT_ACCESSES(bytes)                                                      \
    SIMT_ACCESS(__tsan_read##bytes, bytes, simt::races::on_read)                  \
    SIMT_ACCESS(__tsan_write##bytes, bytes, simt::races::on_write)                \
    SIMT_ACCESS(__tsan_unaligned_read##bytes, bytes, simt::races::on_read)        \
    SIMT_ACCESS(__tsan_unaligned_write##bytes, bytes, simt::races::on_write)
extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
SIMT_ACCESSES(1)
SIMT_ACCESSES(2)
SIMT_ACCESSES(4)
SIMT_ACCESSES(8)
SIMT_ACCESSES(16)
void __tsan_read_range(void* address, size_t size) {
    simt::races::each_word(address, size, __builtin_return_address(0), simt::races::on_read);
}
void __tsan_write_range(void* address, size_t size) {
    simt::races::each_word(address, size, __builtin_return_address(0), simt::races::on_write);
}
}
