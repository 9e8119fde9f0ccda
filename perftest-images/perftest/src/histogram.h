// A histogram of latencies with three significant digits. It uses HdrHistogram's log-linear buckets for values from
// 1 ns to 100 s, with a fixed size: recording neither allocates nor locks. Minimum, maximum, mean and standard
// deviation are exact. It also counts the episodes of values above each bucket: a stall that delays many consecutive
// samples counts once.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "buckets.h"

namespace k8sdds {

// Counts the episodes of values above every bucket at once. The values are divided into groups of 1, 10, 100 or 1000
// consecutive ones; an episode is a run of groups whose highest value is above the bucket (after the runs estimator of
// the extremal index; Ferro, Segers, "Inference for clusters of extreme values", J. R. Stat. Soc. B 65(2), 2003).
class Episodes {
public:
    static constexpr size_t sizes = 4;                     // of groups: powers of ten

    explicit Episodes(size_t buckets);
    void record(size_t bucket) {                           // called by one thread at a time
        for (Groups& groups : by_size_) {
            groups.rise(bucket);
            if (bucket > groups.highest.load(relaxed)) groups.highest.store(bucket, relaxed);
            if (--groups.missing) return;
            bucket = groups.highest.load(relaxed);         // of a complete group of the next size
            groups.highest.store(0, relaxed);
            groups.missing = 10;
        }
    }
    std::vector<uint64_t> above(size_t size) const;        // by bucket, with groups of 10^size values

private:
    static constexpr auto relaxed = std::memory_order_relaxed;

    struct Groups {
        // The prefix sums are the numbers of episodes: one that begins with a rise from p to q is above p to q - 1.
        std::vector<std::atomic<int64_t>> begins;
        std::atomic<size_t> last{0};                       // highest bucket of the last group
        std::atomic<size_t> highest{0};                    // of the groups that belong to an incomplete one of the next size
        unsigned missing = 10;                             // groups until that is complete; for the recording thread alone

        void rise(size_t bucket) {
            const size_t before = last.load(relaxed), after = std::max(before, bucket);
            begins[before].store(begins[before].load(relaxed) + 1, relaxed);
            begins[after].store(begins[after].load(relaxed) - 1, relaxed);
            last.store(bucket, relaxed);
        }
    };
    std::array<Groups, sizes> by_size_;
};

class Histogram {
public:
    static constexpr int digits = 3;
    static constexpr int64_t highest = 100'000'000'000;    // ns, 100 s; larger values count as this

    Histogram();
    void record(int64_t value);                            // called by one thread at a time

    uint64_t count() const { return count_.load(std::memory_order_acquire); }
    int64_t min() const { return count() ? min_.load(std::memory_order_relaxed) : 0; }
    int64_t max() const { return max_.load(std::memory_order_relaxed); }
    int64_t last() const { return last_.load(std::memory_order_relaxed); }
    double mean() const;
    double stddev() const;
    int64_t percentile(double percent) const;              // upper limit of the bucket, at most the maximum
    uint64_t episodes(double percent) const;               // of values above this percentile
    bool knows(double percent) const;                      // whether at least 10 episodes are above this percentile

    // By bucket, the number of episodes of values above it, with the largest groups whose size is at most a fifth of the
    // mean distance between values above the bucket.
    std::vector<uint64_t> episodes() const;
    std::vector<uint64_t> counts() const { return {counts_.begin(), counts_.end()}; }
    size_t used() const;                                   // number of buckets up to that of the maximum

private:
    using Counted = Buckets<11>;                           // 2048 sub-buckets resolve three digits

    size_t index_at(double percent) const;                 // of the bucket that contains this percentile

    // Other threads read all of these at any time: a late answer may still be recorded while the result is printed.
    std::vector<std::atomic<uint64_t>> counts_;
    std::atomic<uint64_t> count_{0};
    std::atomic<int64_t> min_{INT64_MAX}, max_{0}, last_{0};
    std::atomic<double> sum_{0}, squares_{0};
    Episodes episodes_;
};

}  // namespace k8sdds
