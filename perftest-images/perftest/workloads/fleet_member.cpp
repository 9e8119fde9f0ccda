#include "fleet_member.h"

#include <algorithm>

#include "state.h"

namespace k8sdds {

std::vector<Pair> FleetMember::pairs() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return pairs_;
}

void FleetMember::on_member(const MemberId& other, unsigned endpoint, bool matches) {
    const int64_t now = now_ns();
    const std::lock_guard<std::mutex> lock(mutex_);
    if (other.number >= pairs_.size() || other.incarnation > 1) return;
    Matched& matched = pairs_[other.number][other.incarnation];
    std::vector<unsigned>& seen = matched.endpoints;
    const auto known = std::find(seen.begin(), seen.end(), endpoint);
    if (matches == (known != seen.end()) || (matches && seen.size() == topics_)) return;
    if (matches) seen.push_back(endpoint);
    else seen.erase(known);
    if (!matches && matched.at_ns && now < rest_ns_) {
        if (!matched.broken_ns) matched.broken_ns = now;
        matched.again_ns = 0;
    }
    if (seen.size() < topics_) return;
    if (!matched.at_ns) matched.at_ns = now;
    else if (matched.broken_ns && !matched.again_ns) matched.again_ns = now;
}

}  // namespace k8sdds
