// The wire types for Fast DDS, with the names of idl/perftest.idl, or with those of ROS 2 for the same messages.
#pragma once

#include "fastdds_wire.h"

namespace k8sdds {

// Serializes a Sample, deserializes into a TakenSample.
class SampleType final : public fastdds_api::WireType {
public:
    SampleType(uint64_t data_length, bool keyed, bool ros2_name);

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
    explicit AnnouncementType(bool ros2_name);

private:
    bool write(const void* announcement, Payload& payload) const override;
    bool read(Payload& payload, void* announcement) const override;
    uint32_t size(const void* announcement) const override;
    void* create() const override { return new Announcement; }
    void destroy(void* announcement) const override { delete static_cast<Announcement*>(announcement); }
};

}  // namespace k8sdds
