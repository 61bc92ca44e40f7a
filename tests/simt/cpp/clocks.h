// Vector clocks for the threads of a grid: which accesses each thread knows to have happened.
//
// Every CUDA thread has a time, which grows whenever it lets others know of what it did. Knowledge says, for
// each thread of the grid, up to which time its accesses are known to have happened. Blocks run one after
// another: knowledge of the running block is dense, that of a block before it is a slice that stays as it is.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

namespace simt::races {

using Slice = std::vector<uint32_t>;  // a time for each thread of one block; empty: nothing is known
using Slices = std::map<uint64_t, std::shared_ptr<const Slice>>;  // by the number of the block

inline void join(Slice& into, const Slice& other) {
    if (into.empty()) into.resize(other.size());
    for (size_t i = 0; i < other.size(); ++i) into[i] = std::max(into[i], other[i]);
}

inline void join(std::shared_ptr<const Slice>& into, const std::shared_ptr<const Slice>& other) {
    if (into == other || !other) return;
    if (!into) {
        into = other;
        return;
    }
    Slice joined = *into;
    join(joined, *other);
    into = std::make_shared<const Slice>(std::move(joined));
}

inline void join(std::shared_ptr<const Slices>& into, const std::shared_ptr<const Slices>& other) {
    if (into == other || !other) return;
    if (!into) {
        into = other;
        return;
    }
    Slices joined = *into;
    for (const auto& [number, slice] : *other) join(joined[number], slice);
    into = std::make_shared<const Slices>(std::move(joined));
}

struct Knowledge {
    Slice own;                              // of the running block
    std::shared_ptr<const Slices> earlier;  // of the blocks before it

    void add(const Knowledge& other) {
        join(own, other.own);
        join(earlier, other.earlier);
    }
};

}  // namespace simt::races
