#include "fleet_member.h"

#include <algorithm>

#include "state.h"

namespace k8sdds {

std::vector<Pair> FleetMember::pairs() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return pairs_;
}

void FleetMember::on_member(const MemberId& other, unsigned endpoint) {
    const int64_t now = now_ns();
    const std::lock_guard<std::mutex> lock(mutex_);
    if (other.number >= pairs_.size() || other.incarnation > 1) return;
    Matched& matched = pairs_[other.number][other.incarnation];
    std::vector<unsigned>& seen = matched.endpoints;
    if (seen.size() >= topics_ || std::count(seen.begin(), seen.end(), endpoint)) return;
    seen.push_back(endpoint);
    if (seen.size() == topics_) matched.at_ns = now;
}

}  // namespace k8sdds
