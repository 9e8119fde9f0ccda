// The wire types for Fast DDS: the same names and the same CDR encoding as idl/perftest.idl, so that all DDS
// middlewares interoperate. Written by hand, because the code generator requires Java, and to avoid an allocation
// per sample.
#pragma once

#include <fastdds/dds/topic/TopicDataType.hpp>

#include <vector>

#include "backend.h"

namespace k8sdds {

// A sample from the reader. It owns the payload buffer, which is reused from one take to the next.
struct TakenSample {
    Sample sample;
    std::vector<uint8_t> payload;
};

// Serializes a Sample, deserializes into a TakenSample.
class SampleType final : public eprosima::fastdds::dds::TopicDataType {
public:
    explicit SampleType(uint64_t data_length);
    bool serialize(void* sample, eprosima::fastrtps::rtps::SerializedPayload_t* payload) override;
    bool deserialize(eprosima::fastrtps::rtps::SerializedPayload_t* payload, void* taken) override;
    std::function<uint32_t()> getSerializedSizeProvider(void* sample) override;
    void* createData() override { return new TakenSample; }
    void deleteData(void* taken) override { delete static_cast<TakenSample*>(taken); }
    bool getKey(void*, eprosima::fastrtps::rtps::InstanceHandle_t*, bool) override { return false; }
};

// Serializes and deserializes an Announcement.
class AnnouncementType final : public eprosima::fastdds::dds::TopicDataType {
public:
    AnnouncementType();
    bool serialize(void* announcement, eprosima::fastrtps::rtps::SerializedPayload_t* payload) override;
    bool deserialize(eprosima::fastrtps::rtps::SerializedPayload_t* payload, void* announcement) override;
    std::function<uint32_t()> getSerializedSizeProvider(void*) override;
    void* createData() override { return new Announcement; }
    void deleteData(void* announcement) override { delete static_cast<Announcement*>(announcement); }
    bool getKey(void*, eprosima::fastrtps::rtps::InstanceHandle_t*, bool) override { return false; }
};

}  // namespace k8sdds
