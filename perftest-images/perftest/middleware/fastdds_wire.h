// The CDR encoding of the wire types with Fast CDR: that of idl/perftest.idl, so that all DDS middlewares interoperate. Written
// by hand, because the code generator requires Java, and to avoid an allocation per sample.
#pragma once

#include <vector>

#include "backend.h"
#include "fastdds_api.h"

namespace k8sdds {

// A sample from the reader. It owns the payload buffer, which is reused from one take to the next.
struct TakenSample {
    Sample sample;
    std::vector<uint8_t> payload;
};

constexpr uint32_t announcement_length = 24 + 8 * announcement_values;

inline uint32_t wire_length(const Sample& s) { return s.payload_length + sample_overhead; }

// Throw an exception of Fast CDR if the buffer is too short, which comes from the network if they read.
void write(fastdds_api::Cdr&, const Sample&);
void read(fastdds_api::Cdr&, TakenSample&);
void write(fastdds_api::Cdr&, const Announcement&);
void read(fastdds_api::Cdr&, Announcement&);

}  // namespace k8sdds
