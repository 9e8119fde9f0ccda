// The queue in front of a link of limited rate, in virtual time: when a packet leaves it does not depend on when the
// program looks.
#pragma once

#include <cstdint>
#include <vector>

#include "config.h"
#include "outage.h"
#include "packets.h"

namespace k8sdds {

// The rate of a link: constant, or the opportunities of a trace.
class Rate {
public:
    explicit Rate(const RateConfig& config) : config_(config) {}
    void restart(std::int64_t now) { origin_ = now, cycle_ = 0, at_ = 0, left_ = kOpportunity; }
    bool limited() const { return config_.mbit > 0 || !config_.trace_ns.empty(); }
    double mean_bytes_per_ms() const;

    // Returns when a packet that waits since `ready` begins to be sent, and when its last byte has been sent. During an
    // outage that slows the link, the rate is that of the outage.
    std::int64_t begin(std::int64_t ready, double outage_mbit);
    std::int64_t end(std::int64_t begin, std::uint32_t length, double outage_mbit);

private:
    // As in Mahimahi: a packet of IP and 4 bytes of its TUN device.
    static constexpr std::int64_t kOpportunity = 1504, kTunBytes = 4, kEthernetBytes = 14;
    std::int64_t opportunity() const { return origin_ + cycle_ * config_.trace_ns.back() + config_.trace_ns[at_]; }
    void next_opportunity();

    const RateConfig& config_;
    std::int64_t origin_ = 0, cycle_ = 0;
    std::size_t at_ = 0;
    std::int64_t left_ = kOpportunity;      // bytes of this opportunity that are not used
};

// Controlled Delay (RFC 8289, section 5): decides whether a packet that has reached the head of the queue is dropped.
class Codel {
public:
    void restart() { *this = Codel(); }

    // `behind` is the number of bytes in the queue behind the packet.
    bool drops(std::int64_t now, std::int64_t arrived, std::int64_t behind);

private:
    static constexpr std::int64_t kTarget = 5'000'000, kInterval = 100'000'000, kMaxPacket = 1514;
    bool ok_to_drop(std::int64_t now, std::int64_t arrived, std::int64_t behind);
    static std::int64_t control_law(std::int64_t time, std::uint32_t count);

    std::int64_t first_above_ = 0, drop_next_ = 0;
    std::uint32_t count_ = 0, last_count_ = 0;
    bool dropping_ = false;
    bool entered_ = false;                  // this packet follows the one whose drop began the dropping state
    bool continued_ = false;                // this packet follows one that was dropped in the dropping state
};

class Bottleneck {
public:
    Bottleneck(const DirectionConfig& config, const Outages& outages);
    void restart(std::int64_t now);         // the packets in the queue stay in it

    // Adds a packet; false if the queue is full. The packets before it must have advanced to its arrival.
    bool add(Pool& pool, std::uint32_t packet);

    // Takes the next packet out of the queue if it begins to be sent until then. `dropped` is whether CoDel drops it;
    // else `finished` of the packet is set. Returns kNone if there is none.
    std::uint32_t take(Pool& pool, std::int64_t until, bool& dropped);

    std::int64_t next(Pool& pool);          // when the next packet begins to be sent
    bool limited() const { return rate_.limited(); }

private:
    std::int64_t begin(std::int64_t ready);

    const Outages& outages_;
    Rate rate_;
    Codel codel_;
    bool has_codel_;
    std::int64_t most_packets_, most_bytes_;
    std::int64_t packets_ = 0, bytes_ = 0;  // that wait
    std::int64_t free_at_ = 0;              // the packet before has been sent
    std::uint32_t head_ = kNone, tail_ = kNone;
};

}  // namespace k8sdds
