#include "bottleneck.h"

#include <cmath>

namespace k8sdds {

double Rate::mean_bytes_per_ms() const {
    if (config_.trace_ns.empty()) return config_.mbit * 125;
    const double opportunities = static_cast<double>(config_.trace_ns.size());
    return opportunities * kOpportunity * 1e6 / static_cast<double>(config_.trace_ns.back());
}

void Rate::next_opportunity() {
    left_ = kOpportunity;
    if (++at_ < config_.trace_ns.size()) return;
    at_ = 0;
    ++cycle_;
}

std::int64_t Rate::begin(std::int64_t ready, double outage_mbit) {
    if (outage_mbit > 0 || config_.trace_ns.empty()) return ready;
    if (opportunity() < ready) {
        // Opportunities without a packet are gone. The last one of a cycle is at its end.
        const std::int64_t length = config_.trace_ns.back(), since = ready - origin_;
        cycle_ = (since - 1) / length;
        const std::vector<std::int64_t>& trace = config_.trace_ns;
        const auto found = std::lower_bound(trace.begin(), trace.end(), since - cycle_ * length);
        at_ = static_cast<std::size_t>(found - trace.begin());
        left_ = kOpportunity;
    }
    if (left_ == 0) next_opportunity();
    return opportunity();
}

std::int64_t Rate::end(std::int64_t begin, std::uint32_t length, double outage_mbit) {
    const double mbit = outage_mbit > 0 ? outage_mbit : config_.mbit;
    if (outage_mbit > 0 || config_.trace_ns.empty())
        return mbit > 0 ? begin + std::llround(static_cast<double>(length) * 8e3 / mbit) : begin;
    std::int64_t bytes = std::max<std::int64_t>(1, static_cast<std::int64_t>(length) - kEthernetBytes + kTunBytes);
    while (bytes > left_) {
        bytes -= left_;
        next_opportunity();
    }
    left_ -= bytes;
    return opportunity();
}

std::int64_t Codel::control_law(std::int64_t time, std::uint32_t count) {
    return time + std::llround(static_cast<double>(kInterval) / std::sqrt(static_cast<double>(count)));
}

bool Codel::ok_to_drop(std::int64_t now, std::int64_t arrived, std::int64_t behind) {
    if (now - arrived < kTarget || behind <= kMaxPacket) {
        first_above_ = 0;
    } else if (first_above_ == 0) {
        first_above_ = now + kInterval;
    } else {
        return now >= first_above_;
    }
    return false;
}

// The RFC's `dequeue` takes packets until one is not dropped. Here each call is one step of its loop.
bool Codel::drops(std::int64_t now, std::int64_t arrived, std::int64_t behind) {
    const bool ok = ok_to_drop(now, arrived, behind);
    if (entered_) {
        // Only one packet is dropped when the dropping state begins.
        entered_ = false;
        return false;
    }
    if (dropping_) {
        if (!ok)
            dropping_ = false;
        else if (continued_)
            drop_next_ = control_law(drop_next_, count_);
        continued_ = dropping_ && now >= drop_next_;
        count_ += continued_;
        return continued_;
    }
    if (!ok) return false;
    dropping_ = entered_ = true;
    // After a short time outside the dropping state, continue with the rate of drops that controlled the queue.
    const std::uint32_t delta = count_ - last_count_;
    count_ = delta > 1 && now - drop_next_ < 16 * kInterval ? delta : 1;
    drop_next_ = control_law(now, count_);
    last_count_ = count_;
    return true;
}

Bottleneck::Bottleneck(const DirectionConfig& config, const Outages& outages)
    : outages_(outages), rate_(config.rate), has_codel_(config.queue.codel) {
    most_packets_ = config.queue.packets > 0 ? config.queue.packets : INT64_MAX;
    most_bytes_ = config.queue.bytes > 0 ? config.queue.bytes : INT64_MAX;
    if (config.queue.ms > 0)
        most_bytes_ = std::min<std::int64_t>(most_bytes_, std::llround(config.queue.ms * rate_.mean_bytes_per_ms()));
}

void Bottleneck::restart(std::int64_t now) {
    rate_.restart(now);
    codel_.restart();
}

std::int64_t Bottleneck::begin(std::int64_t ready) { return rate_.begin(ready, outages_.at(ready).mbit); }

std::int64_t Bottleneck::next(Pool& pool) { return head_ == kNone ? INT64_MAX : begin(std::max(free_at_, pool[head_].arrived)); }

bool Bottleneck::add(Pool& pool, std::uint32_t packet) {
    Packet& added = pool[packet];
    const bool waits = head_ != kNone || free_at_ > added.arrived || begin(added.arrived) > added.arrived;
    if (waits && (packets_ >= most_packets_ || bytes_ + added.length > most_bytes_)) return false;
    added.next = kNone;
    (head_ == kNone ? head_ : pool[tail_].next) = packet;
    tail_ = packet;
    ++packets_;
    bytes_ += added.length;
    return true;
}

std::uint32_t Bottleneck::take(Pool& pool, std::int64_t until, bool& dropped) {
    const std::int64_t begins = next(pool);
    if (head_ == kNone || begins > until) return kNone;
    const std::uint32_t index = head_;
    Packet& packet = pool[index];
    head_ = packet.next;
    --packets_;
    bytes_ -= packet.length;
    dropped = has_codel_ && codel_.drops(begins, packet.arrived, bytes_);
    if (!dropped) free_at_ = packet.finished = rate_.end(begins, packet.length, outages_.at(begins).mbit);
    return index;
}

}  // namespace k8sdds
