#include "outage.h"

#include <algorithm>
#include <charconv>
#include <iterator>

#include "failure.h"

namespace k8sdds {

Outage Outages::at(std::int64_t time) const {
    if (changes_.empty()) return {};
    const auto after = std::upper_bound(changes_.begin(), changes_.end(), time,
                                        [](std::int64_t moment, const auto& change) { return moment < change.first; });
    return after == changes_.begin() ? Outage() : std::prev(after)->second;
}

void Outages::change(std::int64_t time, const Outage& outage) {
    while (!changes_.empty() && changes_.back().first >= time) changes_.pop_back();
    changes_.emplace_back(time, outage);
}

Change parse_change(const std::string& words) {
    const std::size_t at = words.find(" at ");
    Change change{parse_outage(words.substr(0, at))};
    if (at == std::string::npos) return change;
    std::int64_t us = 0;
    const char* end = words.data() + words.size();
    const auto [after, error] = std::from_chars(words.data() + at + 4, end, us);
    if (error != std::errc() || after != end || us <= 0 || us > INT64_MAX / 2000)
        throw Failure(kUsage, "outage: after 'at', microseconds of CLOCK_MONOTONIC are required");
    change.time = us * 1000;
    return change;
}

}  // namespace k8sdds
