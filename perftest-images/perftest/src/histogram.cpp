#include "histogram.h"

#include <algorithm>
#include <cmath>

namespace k8sdds {

size_t Histogram::index_of(int64_t value) {
    const int magnitude = 63 - __builtin_clzll(static_cast<uint64_t>(value | (sub_count - 1)));
    const int bucket = magnitude - (sub_bits - 1);         // 0 for values below sub_count
    const int64_t sub = value >> bucket;                   // from sub_half to sub_count-1, except in the first bucket
    return static_cast<size_t>((static_cast<int64_t>(bucket) + 1) * sub_half + (sub - sub_half));
}

int64_t Histogram::highest_of(size_t index) {
    const int64_t position = static_cast<int64_t>(index);
    int64_t bucket = position / sub_half - 1, sub = position % sub_half + sub_half;
    if (bucket < 0) { bucket = 0; sub -= sub_half; }
    return ((sub + 1) << bucket) - 1;
}

Histogram::Histogram() : counts_(index_of(highest) + 1) {}

void Histogram::record(int64_t value) {
    value = std::clamp<int64_t>(value, 0, highest);
    constexpr auto relaxed = std::memory_order_relaxed;    // only one writer: separate load and store are enough
    std::atomic<uint64_t>& bucket = counts_[index_of(value)];
    bucket.store(bucket.load(relaxed) + 1, relaxed);
    const double real = static_cast<double>(value);
    sum_.store(sum_.load(relaxed) + real, relaxed);
    squares_.store(squares_.load(relaxed) + real * real, relaxed);
    if (value < min_.load(relaxed)) min_.store(value, relaxed);
    if (value > max_.load(relaxed)) max_.store(value, relaxed);
    last_.store(value, relaxed);
    count_.store(count_.load(relaxed) + 1, std::memory_order_release);
}

double Histogram::mean() const { return count() ? sum_.load(std::memory_order_relaxed) / count() : 0; }

double Histogram::stddev() const {
    if (!count()) return 0;
    const double m = mean();
    return std::sqrt(std::max(0.0, squares_.load(std::memory_order_relaxed) / count() - m * m));
}

int64_t Histogram::percentile(double percent) const {
    const uint64_t total = count();
    if (!total) return 0;
    const uint64_t rank = std::max<uint64_t>(1, static_cast<uint64_t>(percent * total / 100 + 0.5));
    uint64_t cumulative = 0;
    for (size_t i = 0; i < counts_.size(); ++i) {
        cumulative += counts_[i].load(std::memory_order_relaxed);
        if (cumulative >= rank) return std::min(highest_of(i), max());
    }
    return max();
}

// With fewer values above it, a percentile would be the value of a few outliers.
bool Histogram::knows(double percent) const {
    constexpr double values_above = 10;
    // The tolerance is for the rounding of 100 - percent.
    return static_cast<double>(count()) * (100 - percent) / 100 >= values_above - 1e-6;
}

size_t Histogram::used() const { return count() ? index_of(max()) + 1 : 0; }

}  // namespace k8sdds
