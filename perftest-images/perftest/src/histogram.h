// A recorder of latencies with three significant digits: log-linear buckets of fixed size, the same
// bucket layout as HdrHistogram's (lowest value 1, highest 100 s in nanoseconds), no allocation and no
// lock when recording. Minimum, maximum, mean and deviation are exact.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace k8sdds {

class Histogram {
public:
    static constexpr int digits = 3;
    static constexpr int64_t highest = 100'000'000'000;    // 100 s; larger values count as this
    static constexpr int sub_bits = 11;                    // 2048 sub-buckets tell three digits
    static constexpr int64_t sub_count = 1 << sub_bits, sub_half = sub_count / 2;

    Histogram();
    void record(int64_t value);                            // by one thread at a time

    uint64_t count() const { return count_.load(std::memory_order_acquire); }
    int64_t min() const { return count() ? min_.load(std::memory_order_relaxed) : 0; }
    int64_t max() const { return max_.load(std::memory_order_relaxed); }
    int64_t last() const { return last_.load(std::memory_order_relaxed); }
    double mean() const;
    double stddev() const;
    int64_t percentile(double percent) const;              // upper end of the bucket, at most the maximum

    const std::vector<uint64_t>& counts() const { return counts_; }
    size_t used() const;                                   // counts up to the maximum's bucket

private:
    static size_t index_of(int64_t value);
    static int64_t highest_of(size_t index);

    std::vector<uint64_t> counts_;
    std::atomic<uint64_t> count_{0};                       // the atomics are read by the interval printer
    std::atomic<int64_t> min_{INT64_MAX}, max_{0}, last_{0};
    std::atomic<double> sum_{0}, squares_{0};
};

}  // namespace k8sdds
