// The log-linear buckets of HdrHistogram: 2^(sub_bits - 1) of them for each power of two, so that a bucket is narrower
// than its values divided by that number.
#pragma once

#include <cstddef>
#include <cstdint>

namespace k8sdds {

template <int sub_bits>
struct Buckets {
    static constexpr int64_t sub_count = 1 << sub_bits, sub_half = sub_count / 2;

    static constexpr size_t index_of(int64_t value) {
        const int magnitude = 63 - __builtin_clzll(static_cast<uint64_t>(value | (sub_count - 1)));
        const int bucket = magnitude - (sub_bits - 1);     // 0 for values below sub_count
        const int64_t sub = value >> bucket;               // from sub_half to sub_count-1, except in the first bucket
        return static_cast<size_t>((static_cast<int64_t>(bucket) + 1) * sub_half + (sub - sub_half));
    }
    static constexpr int64_t highest_of(size_t index) {
        const int64_t position = static_cast<int64_t>(index);
        int64_t bucket = position / sub_half - 1, sub = position % sub_half + sub_half;
        if (bucket < 0) { bucket = 0; sub -= sub_half; }
        return ((sub + 1) << bucket) - 1;
    }
};

}  // namespace k8sdds
