// The head of a raw datagram on the wire.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend.h"

namespace k8sdds {

constexpr size_t max_datagram = 65507;        // payload of UDP over IPv4

struct Header {
    uint32_t run, sequence;
    int64_t sent_ns;
    int32_t ping;
    uint16_t publisher;
    uint8_t phase;
    uint8_t part;                             // index of this datagram among those of its sample (RawMode::gso)
    uint32_t length;                          // of the sample's whole payload
} __attribute__((packed));
static_assert(sizeof(Header) == sample_overhead, "a header is the overhead of a sample");

}  // namespace k8sdds
