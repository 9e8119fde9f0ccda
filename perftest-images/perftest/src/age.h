// The age of information at a subscriber: at each instant of an interval, how long ago the newest sample of a publisher
// that has arrived was due. It rises by one second per second, and falls when a sample arrives that is newer than all before: a
// sawtooth (Kaul, Yates, Gruteser, "Real-time status: How often should one update?", INFOCOM 2012, section II). Also the
// longest time without such a fresh sample, which needs no clock but the subscriber's.
//
// A tooth from age a to age b takes the time b - a, and adds (b² - a²) / 2 to the area below the age. Of the teeth, the age is
// at most x for F(x) = sum over a <= x of (x - a) - sum over b <= x of (x - b). Numbers and sums of a and b by bucket give
// F exactly at the limits of all buckets, and in constant time per tooth.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "buckets.h"

namespace k8sdds {

// What a subscriber saw of a publisher in an interval, in ns.
struct Freshness {
    struct Ages {
        double mean = 0;                                   // over time
        int64_t p99 = 0, max = 0;                          // the age is higher for 1 % of the time
    };
    std::optional<Ages> ages;                              // missing if no sample arrived in or before the interval
    int64_t blind = 0;                                     // longest time without a fresh sample
    uint64_t gaps = 0;                                     // times without a fresh sample that exceed the deadline
};

// Only the receiving thread calls arrived(); any thread may call freshness().
class Age {
public:
    static constexpr int64_t highest = 100'000'000'000;    // ns; larger ages count as this

    Age() : counts_(Teeth::index_of(highest) + 1), sums_(counts_.size()) {}

    // Sets the interval, which begins later than this call or soon before the first sample.
    void observe(int64_t begin, int64_t end, int64_t deadline_ns) {
        begin_.store(begin, relaxed);
        end_.store(end, relaxed);
        deadline_ns_.store(deadline_ns, relaxed);
    }

    // A sample arrived that was due at a time of the same clock. It may be one from before the interval.
    void arrived(int64_t now, int64_t due) {
        const int64_t newest = newest_.load(relaxed);
        if (due <= newest) return;
        const Gap gap = gap_until(now);
        if (gap.length() > 0) add(gap, newest);
        newest_.store(due, relaxed);
        fresh_.store(now, relaxed);
    }

    // Returns what was seen until the end of the interval; nothing if there is no interval.
    std::optional<Freshness> freshness() const;

private:
    static constexpr auto relaxed = std::memory_order_relaxed;
    static constexpr int64_t never = INT64_MIN;
    using Teeth = Buckets<9>;                              // errors of percentiles are below 0.4 %

    // The part of the interval without a fresh sample since the last one.
    struct Gap {
        int64_t from, to;
        int64_t length() const { return to - from; }
    };
    struct Tooth {
        Tooth(const Gap& gap, int64_t newest)
            : low(clamped(gap.from, newest)), high(std::max(low, clamped(gap.to, newest))) {}
        static int64_t clamped(int64_t now, int64_t due) {    // another process sent when the sample was due: any number
            int64_t age;
            if (__builtin_sub_overflow(now, due, &age)) age = due < 0 ? highest : 0;
            return std::clamp<int64_t>(age, 0, highest);
        }
        int64_t time() const { return high - low; }
        double area() const { return static_cast<double>(high - low) * static_cast<double>(high + low) / 2; }
        int64_t time_until(int64_t age) const { return std::min(high, age) - std::min(low, age); }
        int64_t low = 0, high = 0;
    };

    Gap gap_until(int64_t now) const {
        return {std::max(fresh_.load(relaxed), begin_.load(relaxed)), std::min(now, end_.load(relaxed))};
    }
    void add(const Gap& gap, int64_t newest) {
        longest_.store(std::max(longest_.load(relaxed), gap.length()), relaxed);
        if (gap.length() > deadline_ns_.load(relaxed)) gaps_.store(gaps_.load(relaxed) + 1, relaxed);
        if (newest == never) return;
        const Tooth tooth(gap, newest);
        count(tooth.low, 1);
        count(tooth.high, -1);
        time_.store(time_.load(relaxed) + tooth.time(), relaxed);
        area_.store(area_.load(relaxed) + tooth.area(), relaxed);
        max_.store(std::max(max_.load(relaxed), tooth.high), relaxed);
    }
    void count(int64_t age, int sign) {
        const size_t index = Teeth::index_of(age);
        counts_[index].store(counts_[index].load(relaxed) + sign, relaxed);
        sums_[index].store(sums_[index].load(relaxed) + sign * age, relaxed);
    }
    double exceeded(double share, const Tooth* last, int64_t time) const;

    std::atomic<int64_t> begin_{0}, end_{0}, deadline_ns_{0};
    // Written only by the receiving thread.
    std::atomic<int64_t> newest_{never}, fresh_{never};    // when the newest sample was due and when it arrived
    std::atomic<int64_t> longest_{0};
    std::atomic<uint64_t> gaps_{0};
    std::atomic<int64_t> time_{0}, max_{0};
    std::atomic<double> area_{0};
    std::vector<std::atomic<int64_t>> counts_, sums_;      // of teeth that begin in a bucket, minus those that end there
};

}  // namespace k8sdds
