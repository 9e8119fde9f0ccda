#include "fleet_member.h"

#include "state.h"

namespace k8sdds {

void FleetMember::expect_successor(unsigned other) {
    const std::lock_guard<std::mutex> lock(mutex_);
    pairs_[other].endpoints = 0;
    pairs_[other].renewed = true;
}

std::vector<Pair> FleetMember::pairs() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return pairs_;
}

void FleetMember::on_member(unsigned other, uint64_t endpoint) {
    const int64_t now = now_ns();
    const std::lock_guard<std::mutex> lock(mutex_);
    if (other >= pairs_.size() || !endpoints_.insert(endpoint).second) return;
    Pair& pair = pairs_[other];
    if (++pair.endpoints == topics_) (pair.renewed ? pair.rematched_ns : pair.matched_ns) = now;
}

std::string ranges(const std::vector<unsigned>& numbers) {
    std::string text;
    for (size_t i = 0; i < numbers.size();) {
        size_t last = i;
        while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
        text += (text.empty() ? "" : ",") + std::to_string(numbers[i]);
        if (last > i) text += "-" + std::to_string(numbers[last]);
        i = last + 1;
    }
    return text;
}

}  // namespace k8sdds
