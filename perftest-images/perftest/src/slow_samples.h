// The slowest samples of a paced test and when they arrived: those above a percentile are among them. Its memory is
// allocated before the first sample.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <vector>

#include "histogram.h"

namespace k8sdds {

class SlowSamples {
public:
    static constexpr size_t most = 16'384;                 // that are kept: 1 % of 1.6 million samples
    static constexpr uint64_t fewest = 100;                // of which 1 % is one

    void enable() { kept_.reserve(most); }
    bool enabled() const { return kept_.capacity() != 0; }

    void arrived(unsigned publisher, int64_t now, int64_t delay_ns) {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (kept_.size() == most) {
            if (delay_ns <= kept_.front().delay_ns) return;
            std::pop_heap(kept_.begin(), kept_.end(), slower);
            kept_.pop_back();
        }
        kept_.push_back({now, delay_ns, publisher});
        std::push_heap(kept_.begin(), kept_.end(), slower);
    }

    // Writes a line for each sample above the 99th percentile of these delays; none if they are too few, or one is missing.
    void write(const Histogram& delays, std::FILE* file) const {
        const std::lock_guard<std::mutex> lock(mutex_);
        const int64_t limit_ns = delays.percentile(99);
        if (delays.count() < fewest || (kept_.size() == most && kept_.front().delay_ns > limit_ns)) return;
        for (const Sample& sample : kept_)
            if (sample.delay_ns > limit_ns)
                std::fprintf(file, "%u,%lld,%lld\n", sample.publisher, static_cast<long long>(sample.at_ns / 1000),
                             static_cast<long long>(sample.delay_ns / 1000));
    }

private:
    struct Sample {
        int64_t at_ns, delay_ns;
        unsigned publisher;
    };
    static bool slower(const Sample& a, const Sample& b) { return a.delay_ns > b.delay_ns; }

    mutable std::mutex mutex_;                             // a late sample may arrive while they are written
    std::vector<Sample> kept_;                             // a heap, the fastest first
};

}  // namespace k8sdds
