#include "order.h"

namespace simt::races {

void Order::start_launch() {
    number = 0;
    passed_on.clear();
}

void Order::start_block(unsigned threads) {
    ++number;
    any_published = false;
    seen.assign(threads, Knowledge{Slice(threads), nullptr});
    published.assign(threads, Knowledge{});
    for (unsigned i = 0; i < threads; ++i) seen[i].own[i] = 1;
}

void Order::meet(unsigned first, unsigned count, unsigned mask) {
    const auto takes_part = [=](unsigned i) { return count != 32 || mask >> i & 1; };
    Knowledge all, fenced;
    for (unsigned i = 0; i < count; ++i) {
        if (!takes_part(i)) continue;
        all.add(seen[first + i]);
        if (any_published) fenced.add(published[first + i]);
    }
    for (unsigned i = 0; i < count; ++i) {
        if (!takes_part(i)) continue;
        seen[first + i] = all;
        ++seen[first + i].own[first + i];
        if (any_published) published[first + i] = fenced;
    }
}

void Order::fence(unsigned thread) {
    published[thread] = seen[thread];
    ++seen[thread].own[thread];
    any_published = true;
}

void Order::atomic(unsigned thread, const void* address) {
    Slices& here = passed_on[address];
    const Knowledge& gives = published[thread];
    if (gives.earlier)
        for (const auto& [block, slice] : *gives.earlier) join(here[block], slice);
    if (!gives.own.empty()) join(here[number], std::make_shared<const Slice>(gives.own));

    if (here.empty()) return;
    Slices others = here;
    const auto mine = others.extract(number);
    if (!mine.empty()) join(seen[thread].own, *mine.mapped());
    join(seen[thread].earlier, std::make_shared<const Slices>(std::move(others)));
}

bool Order::knows(unsigned thread, uint64_t block, unsigned other, uint32_t time) const {
    const Knowledge& mine = seen[thread];
    if (block == number) return mine.own[other] >= time;
    if (!mine.earlier) return false;
    const auto found = mine.earlier->find(block);
    return found != mine.earlier->end() && (*found->second)[other] >= time;
}

}  // namespace simt::races
