// A histogram of latencies with three significant digits. It uses HdrHistogram's log-linear buckets for values from
// 1 ns to 100 s, with a fixed size: recording neither allocates nor locks. Minimum, maximum, mean and standard
// deviation are exact.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace k8sdds {

class Histogram {
public:
    static constexpr int digits = 3;
    static constexpr int64_t highest = 100'000'000'000;    // ns, 100 s; larger values count as this
    static constexpr int sub_bits = 11;                    // 2048 sub-buckets resolve three digits
    static constexpr int64_t sub_count = 1 << sub_bits, sub_half = sub_count / 2;

    Histogram();
    void record(int64_t value);                            // called by one thread at a time

    uint64_t count() const { return count_.load(std::memory_order_acquire); }
    int64_t min() const { return count() ? min_.load(std::memory_order_relaxed) : 0; }
    int64_t max() const { return max_.load(std::memory_order_relaxed); }
    int64_t last() const { return last_.load(std::memory_order_relaxed); }
    double mean() const;
    double stddev() const;
    int64_t percentile(double percent) const;              // upper limit of the bucket, at most the maximum
    bool knows(double percent) const;                      // whether at least 10 values are above this percentile

    std::vector<uint64_t> counts() const { return {counts_.begin(), counts_.end()}; }
    size_t used() const;                                   // number of buckets up to that of the maximum

private:
    static size_t index_of(int64_t value);
    static int64_t highest_of(size_t index);

    // Other threads read all of these at any time: a late answer may still be recorded while the result is printed.
    std::vector<std::atomic<uint64_t>> counts_;
    std::atomic<uint64_t> count_{0};
    std::atomic<int64_t> min_{INT64_MAX}, max_{0}, last_{0};
    std::atomic<double> sum_{0}, squares_{0};
};

}  // namespace k8sdds
