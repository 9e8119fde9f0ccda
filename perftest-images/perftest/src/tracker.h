// Tracks which samples of one publisher have arrived, and counts duplicates and gaps in constant time per sample.
// Only the receiving thread calls record(); any thread may read the counters.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace k8sdds {

class Tracker {
public:
    // A sample that is further behind than this counts as a duplicate.
    static constexpr uint64_t window = 1 << 16;

    Tracker() : arrived_(window / 64) {}

    // Returns whether the sample is new.
    bool record(uint32_t sequence) {
        constexpr auto relaxed = std::memory_order_relaxed;
        const uint64_t next = next_.load(relaxed);
        const int32_t ahead = static_cast<int32_t>(sequence - static_cast<uint32_t>(next));
        if (__builtin_expect(ahead == 0, 1)) {
            mark(next);
            next_.store(next + 1, relaxed);
        } else if (ahead > 0) {
            const uint64_t number = next + static_cast<uint64_t>(ahead);
            if (static_cast<uint64_t>(ahead) >= window) arrived_.assign(arrived_.size(), 0);
            else for (uint64_t i = next; i < number; ++i) clear(i);
            mark(number);
            next_.store(number + 1, relaxed);
        } else {
            const uint64_t behind = static_cast<uint64_t>(-static_cast<int64_t>(ahead));
            if (behind > next || behind > window || is_marked(next - behind)) {
                duplicates_.store(duplicates_.load(relaxed) + 1, relaxed);
                return false;
            }
            mark(next - behind);
            out_of_order_.store(out_of_order_.load(relaxed) + 1, relaxed);
        }
        received_.store(received_.load(relaxed) + 1, relaxed);
        return true;
    }

    uint64_t received() const { return received_.load(std::memory_order_acquire); }
    uint64_t duplicates() const { return duplicates_.load(); }
    uint64_t out_of_order() const { return out_of_order_.load(); }
    uint64_t missing() const { return next_.load() - received_.load(); }      // gaps so far

private:
    void mark(uint64_t i) { arrived_[i % window / 64] |= uint64_t{1} << (i % 64); }
    void clear(uint64_t i) { arrived_[i % window / 64] &= ~(uint64_t{1} << (i % 64)); }
    bool is_marked(uint64_t i) const { return arrived_[i % window / 64] >> (i % 64) & 1; }

    std::atomic<uint64_t> next_{0}, received_{0}, duplicates_{0}, out_of_order_{0};
    std::vector<uint64_t> arrived_;
};

}  // namespace k8sdds
