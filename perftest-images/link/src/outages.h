// When a link is down or slow: by its configuration, counted from `start`, and by command.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "config.h"

namespace k8sdds {

class Outages {
public:
    explicit Outages(const std::vector<OutageConfig>& scheduled) : scheduled_(scheduled) {}

    void start(std::int64_t now) { origin_ = now, active_ = true; }
    void stop() { active_ = false; }
    void command(double share) { commanded_ = share; }    // of the packets that are lost; 0: none

    bool down_at(std::int64_t time) const {
        if (commanded_ >= 1) return true;
        const OutageConfig* outage = at(time);
        return outage && outage->rate_mbit == 0;
    }

    // Returns the share of packets that are lost by command.
    double lossy() const { return commanded_; }

    // Returns the rate during an outage that only slows the link; 0 without one.
    double mbit_at(std::int64_t time) const {
        const OutageConfig* outage = at(time);
        return outage ? outage->rate_mbit : 0;
    }

private:
    const OutageConfig* at(std::int64_t time) const {
        if (!active_ || scheduled_.empty()) return nullptr;
        time -= origin_;
        auto after = std::upper_bound(scheduled_.begin(), scheduled_.end(), time,
                                      [](std::int64_t t, const OutageConfig& outage) { return t < outage.at_ns; });
        if (after == scheduled_.begin()) return nullptr;
        --after;
        return time < after->at_ns + after->for_ns ? &*after : nullptr;
    }

    const std::vector<OutageConfig>& scheduled_;
    std::int64_t origin_ = 0;
    bool active_ = false;
    double commanded_ = 0;
};

}  // namespace k8sdds
