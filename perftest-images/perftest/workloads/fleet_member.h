// A member of a fleet (-discoveryTest): one participant, and when it has matched each member of the other role.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "backend.h"

namespace k8sdds {

// When all endpoints of two members have matched, by CLOCK_MONOTONIC; 0: not yet.
struct Pair {
    unsigned endpoints = 0;                   // that have matched
    int64_t matched_ns = 0;
    bool renewed = false;                     // the other member was killed, and its successor is expected
    int64_t rematched_ns = 0;
};

class FleetMember final : public Events {
public:
    // The pairs have the numbers of the other members.
    FleetMember(unsigned number, unsigned others, unsigned topics) : number(number), topics_(topics), pairs_(others) {}

    const unsigned number;

    void expect_successor(unsigned other);
    std::vector<Pair> pairs() const;

    void on_member(unsigned other, uint64_t endpoint) override;
    void on_announcement(const Announcement&) override {}
    void on_match() override {}
    void on_sample(const Sample&) override {}
    void on_received() override {}

private:
    const unsigned topics_;
    mutable std::mutex mutex_;
    std::vector<Pair> pairs_;
    std::unordered_set<uint64_t> endpoints_;  // an endpoint that was lost and found again counts once
};

// Returns numbers in ascending order as text: "0-4,7".
std::string ranges(const std::vector<unsigned>& numbers);

}  // namespace k8sdds
