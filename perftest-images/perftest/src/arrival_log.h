// What arrived at a subscriber in each millisecond: how many samples, how many of them were fresh, and how old they were. It
// shows when samples stopped and came back in an outage. Its memory is allocated before the first sample.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace k8sdds {

// Only the receiving thread calls arrived(). The interval is set once, before the first sample.
class ArrivalLog {
public:
    static constexpr int64_t bin_ns = 1'000'000;
    static constexpr int64_t after_ns = 5'000'000'000;     // also logged: what arrives so long after the interval
    static constexpr int64_t max_bins = 1'000'000;         // of all publishers: 24 MB of memory, and at most as many lines

    // Returns the longest interval that can be logged, of each of so many publishers.
    static int64_t max_length_ns(size_t publishers) {
        return std::max<int64_t>(0, max_bins / static_cast<int64_t>(publishers) * bin_ns - after_ns);
    }

    void observe(int64_t begin, int64_t length) {
        if (size_.load(std::memory_order_relaxed)) return;
        begin_ = begin;
        bins_ = std::vector<Bin>(static_cast<size_t>((length + after_ns) / bin_ns));
        size_.store(bins_.size(), std::memory_order_release);
    }

    void arrived(int64_t now, int64_t due, int64_t delay_ns, int64_t deadline_ns) {
        const size_t size = size_.load(std::memory_order_acquire);
        const bool fresh = due > newest_;
        newest_ = std::max(newest_, due);
        if (now < begin_ || static_cast<uint64_t>((now - begin_) / bin_ns) >= size) return;
        Bin& bin = bins_[static_cast<size_t>((now - begin_) / bin_ns)];
        if (!bin.samples.load(relaxed)) bin.first_ns.store(static_cast<int32_t>((now - begin_) % bin_ns), relaxed);
        add(bin.samples, 1);
        add(bin.fresh, fresh);
        add(bin.late, delay_ns > deadline_ns);
        const auto delay_us = static_cast<int32_t>(std::clamp<int64_t>(delay_ns / 1000, INT32_MIN, INT32_MAX));
        bin.delay_us.store(delay_us, relaxed);
        bin.max_delay_us.store(std::max(bin.max_delay_us.load(relaxed), delay_us), relaxed);
    }

    // Writes a line for each millisecond in which samples arrived, with the time of the first one (CLOCK_MONOTONIC).
    void write(unsigned publisher, std::FILE* file) const {
        for (size_t i = 0; i < size_.load(); ++i) {
            const Bin& bin = bins_[i];
            if (!bin.samples.load(relaxed)) continue;
            std::fprintf(file, "%u,%lld,%u,%u,%u,%d,%d\n", publisher,
                         static_cast<long long>((begin_ + static_cast<int64_t>(i) * bin_ns + bin.first_ns.load(relaxed)) / 1000),
                         bin.samples.load(relaxed), bin.fresh.load(relaxed), bin.late.load(relaxed),
                         bin.delay_us.load(relaxed), bin.max_delay_us.load(relaxed));
        }
    }

private:
    static constexpr auto relaxed = std::memory_order_relaxed;
    struct Bin {
        std::atomic<uint32_t> samples{0}, fresh{0}, late{0};
        std::atomic<int32_t> first_ns{0};                  // when the first sample arrived, from the begin of the bin
        std::atomic<int32_t> delay_us{0}, max_delay_us{INT32_MIN};    // of the last sample, and of all
    };
    static void add(std::atomic<uint32_t>& count, uint32_t more) { count.store(count.load(relaxed) + more, relaxed); }

    int64_t begin_ = 0;                                    // set before size_
    std::vector<Bin> bins_;
    std::atomic<size_t> size_{0};
    int64_t newest_ = INT64_MIN;                           // when the newest sample was due
};

}  // namespace k8sdds
