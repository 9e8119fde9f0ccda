#include "age.h"

namespace k8sdds {

std::optional<Freshness> Age::freshness() const {
    if (end_.load() <= begin_.load()) return std::nullopt;
    const int64_t newest = newest_.load();
    const Gap gap = gap_until(INT64_MAX);                  // the last one, which no sample ends
    const bool open = gap.length() > 0;
    Freshness seen;
    seen.blind = std::max(longest_.load(), gap.length());
    seen.gaps = gaps_.load() + (gap.length() > deadline_ns_.load());
    std::optional<Tooth> last;
    if (open && newest != never) last.emplace(gap, newest);
    const int64_t time = time_.load() + (last ? last->time() : 0);
    if (time <= 0) return seen;
    const int64_t max = std::max(max_.load(), last ? last->high : 0);
    const double p99 = std::min(exceeded(0.99, last ? &*last : nullptr, time), static_cast<double>(max));
    seen.ages = {(area_.load() + (last ? last->area() : 0)) / static_cast<double>(time), static_cast<int64_t>(p99), max};
    return seen;
}

// Returns the age that is not exceeded in this share of the time. Between the limits of a bucket, F counts as linear.
double Age::exceeded(double share, const Tooth* last, int64_t time) const {
    const double wanted = share * static_cast<double>(time);
    int64_t count = 0, sum = 0, low = 0, below = 0;
    for (size_t i = 0; i < counts_.size(); ++i) {
        count += counts_[i].load(relaxed);
        sum += sums_[i].load(relaxed);
        const int64_t high = Teeth::highest_of(i) + 1;
        const int64_t until = high * count - sum + (last ? last->time_until(high) : 0);
        if (until > below && static_cast<double>(until) >= wanted)
            return static_cast<double>(low) + static_cast<double>(high - low) *
                   std::max(0.0, wanted - static_cast<double>(below)) / static_cast<double>(until - below);
        low = high;
        below = until;
    }
    return static_cast<double>(highest);
}

}  // namespace k8sdds
