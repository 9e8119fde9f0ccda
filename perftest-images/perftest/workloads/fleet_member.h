// A member of a fleet (-discoveryTest): one participant, and when it has matched each member of the other role.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <vector>

#include "backend.h"

namespace k8sdds {

// The match with another member: with all of its endpoints. Times are by CLOCK_MONOTONIC; 0: not yet.
struct Matched {
    std::vector<unsigned> endpoints;          // that match now
    int64_t at_ns = 0;                        // when all first did
    int64_t broken_ns = 0, again_ns = 0;      // when one first no longer did, and when all did again, for the last time
};
using Pair = std::array<Matched, 2>;          // by incarnation of the other member

class FleetMember final : public Events {
public:
    // `rest_ns`: from then on, endpoints that no longer match can be of members that have ended before this one.
    FleetMember(unsigned number, unsigned others, unsigned topics, int64_t rest_ns)
        : number(number), topics_(topics), rest_ns_(rest_ns), pairs_(others) {}

    const unsigned number;

    std::vector<Pair> pairs() const;          // by number of the other member

    void on_member(const MemberId& other, unsigned endpoint, bool matched) override;
    void on_announcement(const Announcement&) override {}
    void on_match() override {}
    void on_sample(const Sample&) override {}
    void on_received() override {}

private:
    const unsigned topics_;
    const int64_t rest_ns_;
    mutable std::mutex mutex_;
    std::vector<Pair> pairs_;
};

}  // namespace k8sdds
