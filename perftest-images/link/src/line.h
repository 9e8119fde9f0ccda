// One direction of a link, without its sockets: what arrives is lost, queued, delayed, and departs.
#pragma once

#include <cstdint>

#include "bottleneck.h"
#include "config.h"
#include "decisions.h"
#include "outage.h"
#include "packets.h"
#include "statistics.h"

namespace k8sdds {

class Line {
public:
    Line(const LinkConfig& link, bool up, std::uint64_t seed, const Outages& outages, std::uint16_t index);

    void start(std::int64_t now);           // the first packet from now on gets the first decisions
    void stop() { statistics_.stop(); }

    // Decides about a packet that arrives. One that is dropped needs no room in the pool.
    struct Arrival {
        std::int64_t time = 0;
        std::uint32_t bytes = 0;
        bool udp = false, oversized = false;
    };
    enum class Fate { kPasses, kOutage, kLoss };
    Fate decide(const Arrival& arrival);
    // Adds the packet that passes, with its contents, and a copy of them if it is duplicated.
    void add(Pool& pool, Departures& departures, std::uint32_t packet);
    void overflow() { statistics_.overflow(); }

    // Moves packets from the bottleneck to the departures, as of this time.
    void advance(Pool& pool, Departures& departures, std::int64_t until);
    std::int64_t next(Pool& pool) { return bottleneck_.next(pool); }

    // Whether the packet may leave at its planned time.
    bool leaves(const Packet& packet);
    void departed(const Packet& packet, std::int64_t actual);
    void unsent(const Packet& packet);

    Statistics& statistics() { return statistics_; }

private:
    void enter(Pool& pool, Departures& departures, std::uint32_t packet);

    Losses losses_;
    Delays delays_;
    Duplicates duplicates_;
    Stream outage_losses_;
    const Outages& outages_;
    Bottleneck bottleneck_;
    Statistics statistics_;
    std::uint16_t index_;
    std::uint64_t number_ = 0;
    std::int64_t last_planned_ = 0;
    // Of the packet that arrives.
    Arrival arrival_;
    Delays::Delay delay_{};
    bool twice_ = false;
};

}  // namespace k8sdds
