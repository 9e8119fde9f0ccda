// The wire types for Fast DDS: the same names and the same CDR encoding as idl/perftest.idl, so that all DDS
// middlewares interoperate. Written by hand, because the code generator requires Java, and to avoid an allocation
// per sample.
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

// Serializes a Sample, deserializes into a TakenSample.
class SampleType final : public fastdds_api::WireType {
public:
    SampleType(uint64_t data_length, bool keyed);

private:
    bool write(const void* sample, Payload& payload) const override;
    bool read(Payload& payload, void* taken) const override;
    uint32_t size(const void* sample) const override;
    bool key_of(const void* sample, Key& key) const override;
    bool key_in(Payload& payload, Key& key) const override;
    void* create() const override { return new TakenSample; }
    void destroy(void* taken) const override { delete static_cast<TakenSample*>(taken); }
};

// Serializes and deserializes an Announcement.
class AnnouncementType final : public fastdds_api::WireType {
public:
    AnnouncementType();

private:
    bool write(const void* announcement, Payload& payload) const override;
    bool read(Payload& payload, void* announcement) const override;
    uint32_t size(const void* announcement) const override;
    void* create() const override { return new Announcement; }
    void destroy(void* announcement) const override { delete static_cast<Announcement*>(announcement); }
};

}  // namespace k8sdds
