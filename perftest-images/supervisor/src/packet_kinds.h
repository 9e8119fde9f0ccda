// Recognizes what a packet is for: discovery of DDS or Zenoh, samples, or neither. The packets are untrusted input.
#pragma once

#include <cstddef>
#include <cstdint>

namespace k8sdds {

enum class Kind : std::size_t {
    participants, endpoints, liveliness, other_discovery, data, encrypted, scouting, zenoh, fragments, other
};
constexpr const char* kKindNames[] = {"participants", "endpoints", "liveliness", "other-discovery", "data",
                                      "encrypted",    "scouting",  "zenoh",      "fragments",       "other"};
constexpr std::size_t kKinds = sizeof kKindNames / sizeof *kKindNames;

struct CountedPacket {
    Kind kind = Kind::other;
    std::uint64_t ip_bytes = 0;  // of the IP packet with its headers; of a frame without one, all after the link's header
};

// Returns the kind and the size of a packet. `frame` holds the first `stored` bytes of a frame of `size` bytes, which begins
// with an Ethernet header, or with an IP header if `has_link_header` is false.
CountedPacket counted_packet(const std::uint8_t* frame, std::size_t stored, std::size_t size, bool has_link_header);

}  // namespace k8sdds
