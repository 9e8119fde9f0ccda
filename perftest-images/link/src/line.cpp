#include "line.h"

#include <algorithm>

namespace k8sdds {

Line::Line(const LinkConfig& link, bool up, std::uint64_t seed, const Outages& outages, std::uint16_t index)
    : losses_((up ? link.up : link.down).loss, seed, link.name, up),
      delays_((up ? link.up : link.down).delay, seed, link.name, up),
      duplicates_((up ? link.up : link.down).duplicate, seed, link.name, up),
      outage_losses_(seed, link.name, up, Purpose::kOutage),
      outages_(outages),
      bottleneck_(up ? link.up : link.down, outages),
      index_(index) {}

void Line::start(std::int64_t now) {
    losses_.restart();
    delays_.restart();
    duplicates_.restart();
    bottleneck_.restart(now);
    statistics_.start(now);
    number_ = 0;
}

// Every packet takes one number of every stream, whatever happens to it, so that its decisions do not depend on others.
// If only UDP is lost, the n-th UDP packet takes the n-th decision about losses.
Line::Fate Line::decide(const Arrival& arrival) {
    arrival_ = arrival;
    ++number_;
    const bool subject = losses_.applies_to(arrival.udp), lost = subject && losses_.next();
    delay_ = delays_.next();
    twice_ = duplicates_.next();
    statistics_.arrived(arrival.time, arrival.bytes, arrival.oversized);
    const Outage outage = outages_.at(arrival.time);
    if (outage.down() || outage_losses_.at(number_) < outage.share) {
        statistics_.outage(arrival.time);
        return Fate::kOutage;
    }
    if (subject) statistics_.loss(arrival.time, lost);
    return lost ? Fate::kLoss : Fate::kPasses;
}

void Line::add(Pool& pool, Departures& departures, std::uint32_t packet) {
    std::uint32_t copy = kNone;
    if (twice_) {
        copy = pool.copy(packet, arrival_.bytes);
        statistics_.duplicated();
        if (copy == kNone) statistics_.overflow();
    }
    enter(pool, departures, packet);
    if (copy != kNone) enter(pool, departures, copy);
}

void Line::enter(Pool& pool, Departures& departures, std::uint32_t index) {
    Packet& packet = pool[index];
    packet.arrived = arrival_.time;
    packet.delay = delay_.ns;
    packet.at_once = delay_.at_once;
    packet.number = number_;
    packet.length = arrival_.bytes;
    packet.run = statistics_.run();
    packet.line = index_;
    advance(pool, departures, packet.arrived);
    if (!bottleneck_.add(pool, index)) {
        statistics_.queue_full(packet.arrived);
        return pool.give(index);
    }
    advance(pool, departures, packet.arrived);
}

void Line::advance(Pool& pool, Departures& departures, std::int64_t until) {
    bool dropped = false;
    for (std::uint32_t index; (index = bottleneck_.take(pool, until, dropped)) != kNone;) {
        Packet& packet = pool[index];
        if (dropped) {
            if (statistics_.counts(packet.run)) statistics_.queue_full(until);
            pool.give(index);
            continue;
        }
        packet.planned = packet.finished + (packet.at_once ? 0 : packet.delay);
        // As in netem, packets overtake each other by their jitter unless the link has a rate.
        if (bottleneck_.limited() && !packet.at_once) {
            packet.planned = std::max(packet.planned, last_planned_);
            last_planned_ = packet.planned;
        }
        departures.add(packet.planned, index);
    }
}

bool Line::leaves(const Packet& packet) {
    if (!outages_.at(packet.planned).down()) return true;
    if (statistics_.counts(packet.run)) statistics_.outage(packet.planned);
    return false;
}

void Line::departed(const Packet& packet, std::int64_t actual) {
    if (statistics_.counts(packet.run)) statistics_.departed(packet, actual, bottleneck_.limited());
}

void Line::unsent(const Packet& packet) {
    if (statistics_.counts(packet.run)) statistics_.unsent();
}

}  // namespace k8sdds
