#include "fastdds_types.h"

#include <fastcdr/Cdr.h>
#include <fastcdr/exceptions/Exception.h>

#include "common.h"

namespace k8sdds {
namespace {

using eprosima::fastcdr::Cdr;
using eprosima::fastcdr::FastBuffer;
using eprosima::fastrtps::rtps::SerializedPayload_t;

constexpr uint32_t encapsulation = 4;
constexpr uint32_t announcement_length = 64;

template <typename Fill>
bool serialize_payload(SerializedPayload_t* payload, Fill fill) {
    FastBuffer buffer(reinterpret_cast<char*>(payload->data), payload->max_size);
    Cdr cdr(buffer, Cdr::DEFAULT_ENDIAN, Cdr::DDS_CDR);
    payload->encapsulation = cdr.endianness() == Cdr::BIG_ENDIANNESS ? CDR_BE : CDR_LE;
    try {
        cdr.serialize_encapsulation();
        fill(cdr);
    } catch (const eprosima::fastcdr::exception::Exception&) {
        return false;
    }
    payload->length = static_cast<uint32_t>(cdr.getSerializedDataLength());
    return true;
}

// Returns false if the payload, which comes from the network, is too short.
template <typename Fill>
bool deserialize_payload(SerializedPayload_t* payload, Fill fill) {
    FastBuffer buffer(reinterpret_cast<char*>(payload->data), payload->length);
    Cdr cdr(buffer, Cdr::DEFAULT_ENDIAN, Cdr::DDS_CDR);
    try {
        cdr.read_encapsulation();
        fill(cdr);
    } catch (const eprosima::fastcdr::exception::Exception&) {
        return false;
    }
    return true;
}

}  // namespace

SampleType::SampleType(uint64_t data_length) {
    setName("K8sdds::Sample");
    m_typeSize = static_cast<uint32_t>(data_length) + encapsulation;
    m_isGetKeyDefined = false;
    auto_fill_type_information(false);
    auto_fill_type_object(false);
}

bool SampleType::serialize(void* data, SerializedPayload_t* payload) {
    const auto& s = *static_cast<const Sample*>(data);
    return serialize_payload(payload, [&](Cdr& cdr) {
        uint32_t head[head_words];
        pack(s, head);
        cdr.serializeArray(head, head_words);
        cdr << s.payload_length;
        cdr.serializeArray(s.payload, s.payload_length);
    });
}

bool SampleType::deserialize(SerializedPayload_t* payload, void* data) {
    auto& taken = *static_cast<TakenSample*>(data);
    return deserialize_payload(payload, [&](Cdr& cdr) {
        uint32_t head[head_words], length = 0;
        cdr.deserializeArray(head, head_words);
        cdr >> length;
        if (length > payload->length) throw eprosima::fastcdr::exception::NotEnoughMemoryException("length");
        taken.payload.resize(length);                      // allocates only for the longest sample so far
        cdr.deserializeArray(taken.payload.data(), length);
        unpack(head, taken.sample);
        taken.sample.payload = taken.payload.data();
        taken.sample.payload_length = length;
    });
}

std::function<uint32_t()> SampleType::getSerializedSizeProvider(void* data) {
    return [data] { return static_cast<const Sample*>(data)->payload_length + sample_overhead + encapsulation; };
}

AnnouncementType::AnnouncementType() {
    setName("K8sdds::Announcement");
    m_typeSize = announcement_length + encapsulation;
    m_isGetKeyDefined = false;
    auto_fill_type_information(false);
    auto_fill_type_object(false);
}

bool AnnouncementType::serialize(void* data, SerializedPayload_t* payload) {
    const auto& a = *static_cast<const Announcement*>(data);
    return serialize_payload(payload, [&](Cdr& cdr) {
        cdr << static_cast<uint8_t>(a.kind) << static_cast<uint8_t>(a.role) << a.id << a.to << uint16_t{0};
        cdr << a.instance << a.run;
        cdr.serializeArray(a.value, 6);
    });
}

bool AnnouncementType::deserialize(SerializedPayload_t* payload, void* data) {
    auto& a = *static_cast<Announcement*>(data);
    return deserialize_payload(payload, [&](Cdr& cdr) {
        uint8_t kind = 0, role = 0;
        uint16_t reserved = 0;
        cdr >> kind >> role >> a.id >> a.to >> reserved >> a.instance >> a.run;
        cdr.deserializeArray(a.value, 6);
        a.kind = static_cast<Kind>(kind);
        a.role = static_cast<Role>(role);
    });
}

std::function<uint32_t()> AnnouncementType::getSerializedSizeProvider(void*) {
    return [] { return announcement_length + encapsulation; };
}

}  // namespace k8sdds
