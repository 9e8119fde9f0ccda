// What the program reads of a frame: whether it carries UDP. Everything else is opaque.
#pragma once

#include <cstddef>
#include <cstdint>

namespace k8sdds {

constexpr std::size_t kEthernetBytes = 14, kVlanBytes = 4;

// Returns whether the outer IP header of an Ethernet frame names UDP; fragments of datagrams count.
inline bool carries_udp(const std::uint8_t* frame, std::size_t bytes) {
    constexpr unsigned kIpv4 = 0x0800, kIpv6 = 0x86dd, kUdp = 17, kFragment = 44;
    if (bytes < kEthernetBytes) return false;
    const unsigned type = frame[12] << 8 | frame[13];
    const std::uint8_t* ip = frame + kEthernetBytes;
    const std::size_t left = bytes - kEthernetBytes;
    if (type == kIpv4) return left >= 20 && ip[9] == kUdp;
    if (type != kIpv6 || left < 40) return false;
    return ip[6] == kUdp || (ip[6] == kFragment && left >= 48 && ip[40] == kUdp);
}

}  // namespace k8sdds
