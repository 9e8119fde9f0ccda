// What backends have in common: a sample's head on the wire, and how they refuse, settle and report the quality
// of service.
#pragma once

#include <map>
#include <string>

#include "backend.h"

namespace k8sdds {

// A sample's head on the wire: nonce of the publisher's run; number, from 0 in each phase; the publisher's
// monotonic clock where the sample is timed, low and high word; subscriber that has to answer, or -1; id of the
// publisher, and above it the phase.
constexpr unsigned head_words = 6;

inline void pack(const Sample& s, uint32_t (&head)[head_words]) {
    head[0] = s.run;
    head[1] = s.sequence;
    head[2] = static_cast<uint32_t>(s.sent_ns);
    head[3] = static_cast<uint32_t>(static_cast<uint64_t>(s.sent_ns) >> 32);
    head[4] = static_cast<uint32_t>(s.ping);
    head[5] = s.publisher | static_cast<uint32_t>(s.phase) << 16;
}

inline void unpack(const uint32_t (&head)[head_words], Sample& s) {
    s.run = head[0];
    s.sequence = head[1];
    s.sent_ns = static_cast<int64_t>(static_cast<uint64_t>(head[3]) << 32 | head[2]);
    s.ping = static_cast<int32_t>(head[4]);
    s.publisher = static_cast<uint16_t>(head[5]);
    s.phase = static_cast<Phase>(head[5] >> 16 & 0xff);
}

// "FILE:LINE: <POLICY>: ", where the profile asks for what cannot be.
std::string qos_place(const QosProfile&, const EndpointQos&, const std::string& policy);

// Why there is no such interface here, or nothing.
std::string refuse_nic(const Settings&);

// The group that a DDS middleware sends samples to with -multicast.
std::string multicast_group(const Settings&);

// Sets what no profile decides: the last pong alone, the last ping alone, and a bound for samples that wait.
void settle_qos(Settings&);

// The policies as they are in force, as JSON text. What differs is laid over it.
std::map<std::string, std::string> qos_in_force(const QosProfile&);

}  // namespace k8sdds
