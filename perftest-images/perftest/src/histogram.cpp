#include "histogram.h"

#include <algorithm>
#include <cmath>

namespace k8sdds {

Episodes::Episodes(size_t buckets) {
    for (Groups& groups : by_size_) groups.begins = std::vector<std::atomic<int64_t>>(buckets);
}

std::vector<uint64_t> Episodes::above(size_t size) const {
    const Groups& groups = by_size_[size];
    size_t incomplete = 0;                                 // highest bucket of the last, incomplete group
    for (size_t i = 0; i < size; ++i) incomplete = std::max(incomplete, by_size_[i].highest.load(relaxed));
    const size_t last = groups.last.load(relaxed);
    std::vector<uint64_t> episodes;
    episodes.reserve(groups.begins.size());
    int64_t sum = 0;
    for (size_t i = 0; i < groups.begins.size(); ++i) {
        sum += groups.begins[i].load(relaxed);
        episodes.push_back(static_cast<uint64_t>(std::max<int64_t>(sum, 0)) + (last <= i && i < incomplete));
    }
    return episodes;
}

Histogram::Histogram() : counts_(Counted::index_of(highest) + 1), episodes_(counts_.size()) {}

void Histogram::record(int64_t value) {
    value = std::clamp<int64_t>(value, 0, highest);
    constexpr auto relaxed = std::memory_order_relaxed;    // only one writer: separate load and store are enough
    const size_t index = Counted::index_of(value);
    std::atomic<uint64_t>& bucket = counts_[index];
    bucket.store(bucket.load(relaxed) + 1, relaxed);
    episodes_.record(index);
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

size_t Histogram::index_at(double percent) const {
    const uint64_t rank = std::max<uint64_t>(1, static_cast<uint64_t>(percent * count() / 100 + 0.5));
    uint64_t cumulative = 0;
    for (size_t i = 0; i < counts_.size(); ++i) {
        cumulative += counts_[i].load(std::memory_order_relaxed);
        if (cumulative >= rank) return i;
    }
    return Counted::index_of(max());
}

int64_t Histogram::percentile(double percent) const {
    return count() ? std::min(Counted::highest_of(index_at(percent)), max()) : 0;
}

std::vector<uint64_t> Histogram::episodes() const {
    std::array<std::vector<uint64_t>, Episodes::sizes> by_size;
    for (size_t size = 0; size < by_size.size(); ++size) by_size[size] = episodes_.above(size);
    std::vector<uint64_t> episodes(counts_.size());
    const uint64_t total = count();
    uint64_t above = 0;
    for (size_t i = counts_.size(); i-- > 0; above += counts_[i].load(std::memory_order_relaxed)) {
        const uint64_t distance = total / std::max<uint64_t>(above, 1);
        const size_t size = (distance >= 50) + (distance >= 500) + (distance >= 5000);
        episodes[i] = by_size[size][i];
    }
    return episodes;
}

uint64_t Histogram::episodes(double percent) const { return count() ? episodes()[index_at(percent)] : 0; }

// With fewer episodes above it, a percentile would be the value of a few stalls.
bool Histogram::knows(double percent) const { return episodes(percent) >= 10; }

size_t Histogram::used() const { return count() ? Counted::index_of(max()) + 1 : 0; }

}  // namespace k8sdds
