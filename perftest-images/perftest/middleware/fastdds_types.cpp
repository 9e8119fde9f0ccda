#include "fastdds_types.h"

#include <fastcdr/exceptions/Exception.h>

#include "common.h"

namespace k8sdds {
namespace {

using eprosima::fastcdr::FastBuffer;
using fastdds_api::Cdr;
using fastdds_api::read_array;
using Payload = fastdds_api::WireType::Payload;

constexpr uint32_t encapsulation = 4;

// Returns false if the payload is shorter than the sample.
template <typename Fill>
bool serialize_payload(Payload& payload, uint32_t length, Fill fill) {
    FastBuffer buffer(reinterpret_cast<char*>(payload.data), payload.max_size);
    Cdr cdr(buffer, Cdr::DEFAULT_ENDIAN, fastdds_api::dds_cdr);
    payload.encapsulation = cdr.endianness() == Cdr::BIG_ENDIANNESS ? CDR_BE : CDR_LE;
    try {
        cdr.serialize_encapsulation();
        fill(cdr);
    } catch (const eprosima::fastcdr::exception::Exception&) {
        return false;
    }
    payload.length = length;
    return true;
}

// Returns false if the payload, which comes from the network, is too short.
template <typename Fill>
bool deserialize_payload(Payload& payload, Fill fill) {
    FastBuffer buffer(reinterpret_cast<char*>(payload.data), payload.length);
    Cdr cdr(buffer, Cdr::DEFAULT_ENDIAN, fastdds_api::dds_cdr);
    try {
        cdr.read_encapsulation();
        fill(cdr);
    } catch (const eprosima::fastcdr::exception::Exception&) {
        return false;
    }
    return true;
}

}  // namespace

SampleType::SampleType(uint64_t data_length, bool keyed, bool ros2_name)
    : WireType(ros2_name ? "k8sdds_msgs::msg::dds_::Sample_" : keyed ? "K8sdds::KeyedSample" : "K8sdds::Sample",
               static_cast<uint32_t>(data_length) + encapsulation, keyed) {}

// Both a Sample and a TakenSample begin with a Sample.
bool SampleType::key_of(const void* sample, Key& key) const {
    key = static_cast<const Sample*>(sample)->instance;
    return true;
}

bool SampleType::key_in(Payload& payload, Key& key) const {
    return deserialize_payload(payload, [&](Cdr& cdr) {
        uint32_t head[head_words];
        read_array(cdr, head, head_words);
        key = head[instance_word];
    });
}

bool SampleType::write(const void* sample, Payload& payload) const {
    const auto& s = *static_cast<const Sample*>(sample);
    return serialize_payload(payload, size(sample), [&](Cdr& cdr) { k8sdds::write(cdr, s); });
}

bool SampleType::read(Payload& payload, void* data) const {
    return deserialize_payload(payload, [&](Cdr& cdr) { k8sdds::read(cdr, *static_cast<TakenSample*>(data)); });
}

uint32_t SampleType::size(const void* sample) const {
    return wire_length(*static_cast<const Sample*>(sample)) + encapsulation;
}

AnnouncementType::AnnouncementType(bool ros2_name)
    : WireType(ros2_name ? "k8sdds_msgs::msg::dds_::Announcement_" : "K8sdds::Announcement", announcement_length + encapsulation,
               false) {}

bool AnnouncementType::write(const void* announcement, Payload& payload) const {
    const auto& a = *static_cast<const Announcement*>(announcement);
    return serialize_payload(payload, size(announcement), [&](Cdr& cdr) { k8sdds::write(cdr, a); });
}

bool AnnouncementType::read(Payload& payload, void* announcement) const {
    return deserialize_payload(payload, [&](Cdr& cdr) { k8sdds::read(cdr, *static_cast<Announcement*>(announcement)); });
}

uint32_t AnnouncementType::size(const void*) const { return announcement_length + encapsulation; }

}  // namespace k8sdds
