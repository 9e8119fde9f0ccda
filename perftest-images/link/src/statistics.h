// What a direction of a link has done since `start`. Recording neither allocates nor locks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "buckets.h"
#include "json.h"

namespace k8sdds {

struct Packet;

// A histogram of non-negative integers with buckets of at most 0.8 % of their values. It takes 35 KB: that of perftest, which
// also counts episodes, takes 1 MB, and there are four in each direction.
class Histogram {
public:
    void record(std::int64_t value);
    std::uint64_t count() const { return count_; }
    double mean() const { return count_ > 0 ? sum_ / static_cast<double>(count_) : 0; }
    std::int64_t max() const { return max_; }
    std::int64_t percentile(double percent) const;
    // Returns [highest value, count] of each bucket in use. Values are divided by `unit`.
    Json used(double unit) const;

private:
    using Counted = Buckets<8>;
    static constexpr std::int64_t kHighest = (1LL << 40) - 1;   // ns, 18 minutes; larger values count as this

    std::array<std::uint64_t, Counted::index_of(kHighest) + 1> counts_{};
    std::uint64_t count_ = 0;
    std::int64_t max_ = 0;
    double sum_ = 0;
};

class Statistics {
public:
    Statistics() : Statistics(std::vector<Bin>()) {}

    void start(std::int64_t now);           // forgets everything
    void stop() { counting_ = false; }
    bool counts(std::uint32_t run) const { return counting_ && run == run_; }
    std::uint32_t run() const { return run_; }

    // A packet arrives, and one thing happens to it.
    void arrived(std::int64_t now, std::uint32_t bytes, bool oversized);
    void outage(std::int64_t time);
    void loss(std::int64_t time, bool lost);   // the decision about a packet that no outage dropped
    void queue_full(std::int64_t time);
    void overflow() { overflow_ += counting_; }
    void unsent() { unsent_ += counting_; }
    void duplicated() { duplicated_ += counting_; }
    void missed(std::uint64_t packets) { missed_ += counting_ ? packets : 0; }
    void departed(const Packet& packet, std::int64_t actual, bool limited);

    Json json() const;

private:
    static constexpr std::int64_t kBin = 100'000'000;      // ns
    static constexpr std::size_t kBins = 36'000;           // an hour
    struct Bin {
        std::uint32_t packets_in = 0, lost = 0, queue = 0, outage = 0, packets_out = 0;
        std::uint64_t bytes_out = 0;
        std::int64_t delays_ns = 0, max_delay_ns = 0;
    };
    explicit Statistics(std::vector<Bin> bins);
    Bin& bin(std::int64_t time);
    Json series() const;

    bool counting_ = false;
    std::uint32_t run_ = 0;
    std::int64_t origin_ = 0;
    std::uint64_t packets_in_ = 0, bytes_in_ = 0, packets_out_ = 0, bytes_out_ = 0;
    std::uint64_t decided_ = 0, lost_ = 0, queue_ = 0, outage_ = 0, missed_ = 0, overflow_ = 0, unsent_ = 0;
    std::uint64_t oversized_ = 0, duplicated_ = 0, reordered_ = 0;
    std::uint64_t latest_ = 0;              // highest number of a packet that departed
    Histogram delays_, errors_, bursts_, gaps_;
    bool losing_ = false;
    std::int64_t run_length_ = 0;           // consecutive packets with the same decision
    std::int64_t busy_ns_ = 0, last_done_ = 0;
    std::uint64_t busy_bytes_ = 0;
    std::vector<Bin> bins_;
    Bin beyond_;                            // of packets after the last bin
};

}  // namespace k8sdds
