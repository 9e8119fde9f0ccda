// A member of a fleet (-discoveryTest): one participant, and when it has matched each member of the other role.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <vector>

#include "backend.h"

namespace k8sdds {

// When all endpoints of another member have matched, by CLOCK_MONOTONIC; 0: not yet.
struct Matched {
    std::vector<unsigned> endpoints;          // that have matched; one that was lost and found again counts once
    int64_t at_ns = 0;
};
using Pair = std::array<Matched, 2>;          // by incarnation of the other member

class FleetMember final : public Events {
public:
    FleetMember(unsigned number, unsigned others, unsigned topics) : number(number), topics_(topics), pairs_(others) {}

    const unsigned number;

    std::vector<Pair> pairs() const;          // by number of the other member

    void on_member(const MemberId& other, unsigned endpoint) override;
    void on_announcement(const Announcement&) override {}
    void on_match() override {}
    void on_sample(const Sample&) override {}
    void on_received() override {}

private:
    const unsigned topics_;
    mutable std::mutex mutex_;
    std::vector<Pair> pairs_;
};

}  // namespace k8sdds
