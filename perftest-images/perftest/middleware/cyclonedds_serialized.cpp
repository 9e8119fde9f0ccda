#include "cyclonedds_serialized.h"

#include <dds/ddsi/ddsi_serdata.h>

#include <atomic>
#include <cstring>
#include <stdexcept>

#include "perftest.h"

namespace k8sdds {
namespace {

constexpr size_t encapsulation = 4, length_offset = sizeof(uint32_t) * head_words;

// Returns the serialized bytes, which stay where they are for the life of the serdata.
uint8_t* bytes_of(const ddsi_serdata* serdata) {
    ddsrt_iovec_t part;
    ddsi_serdata* reference = ddsi_serdata_to_ser_ref(serdata, 0, ddsi_serdata_size(serdata), &part);
    uint8_t* bytes = static_cast<uint8_t*>(part.iov_base);
    ddsi_serdata_to_ser_unref(reference, &part);
    return bytes;
}

// Writes a sample to a reader of the same process, and returns what the library made of it.
ddsi_serdata* serialize(dds_entity_t participant, const Sample& model) {
    const dds_entity_t topic = dds_create_topic(participant, &K8sdds_Sample_desc, "k8sdds/serialized", nullptr, nullptr);
    const dds_entity_t reader = dds_create_reader(participant, topic, nullptr, nullptr);
    const dds_entity_t writer = dds_create_writer(participant, topic, nullptr, nullptr);
    K8sdds_Sample out;
    pack(model, out.head);
    out.payload._maximum = out.payload._length = model.payload_length;
    out.payload._buffer = const_cast<uint8_t*>(model.payload);
    out.payload._release = false;
    ddsi_serdata* serdata = nullptr;
    dds_sample_info_t info;
    const bool taken = dds_write(writer, &out) == DDS_RETCODE_OK &&
                       dds_takecdr(reader, &serdata, 1, &info, DDS_ANY_STATE) == 1 && info.valid_data;
    dds_delete(writer);
    dds_delete(reader);                                   // the topic keeps the type until the participant is deleted
    if (!taken) throw std::runtime_error("-serialized: the sample could not be serialized");
    return serdata;
}

}  // namespace

void SerializedSamples::release() {
    for (const Item& item : items_) ddsi_serdata_unref(item.serdata);
    items_.clear();
    next_ = 0;
}

void SerializedSamples::create(dds_entity_t participant, const Sample& model, size_t count) {
    ddsi_serdata* first = serialize(participant, model);
    const uint32_t size = ddsi_serdata_size(first);
    ddsrt_iovec_t part;
    part.iov_base = bytes_of(first);
    part.iov_len = size;
    for (size_t i = 0; i < count; ++i) {
        ddsi_serdata* serdata = ddsi_serdata_from_ser_iov(first->type, SDK_DATA, 1, &part, size);
        if (!serdata) throw std::runtime_error("-serialized: the sample could not be copied");
        items_.push_back({serdata, bytes_of(serdata) + encapsulation});
    }
    ddsi_serdata_unref(first);
}

ddsi_serdata* SerializedSamples::next(const Sample& sample, dds_time_t source_timestamp) {
    const Item& item = items_[next_];
    if (ddsrt_atomic_ld32(&item.serdata->refc) != 1) return nullptr;
    std::atomic_thread_fence(std::memory_order_acquire);  // the thread that released it has finished reading
    uint32_t head[head_words];
    pack(sample, head);
    std::memcpy(item.head, head, sizeof head);
    item.serdata->timestamp.v = source_timestamp;
    next_ = next_ + 1 == items_.size() ? 0 : next_ + 1;
    return ddsi_serdata_ref(item.serdata);
}

Sample read_serialized(const ddsi_serdata* serdata) {
    const uint8_t* bytes = bytes_of(serdata) + encapsulation;
    uint32_t head[head_words];
    std::memcpy(head, bytes, sizeof head);
    Sample sample;
    unpack(head, sample);
    std::memcpy(&sample.payload_length, bytes + length_offset, sizeof sample.payload_length);
    sample.payload = bytes + length_offset + sizeof sample.payload_length;
    return sample;
}

void release_serialized(ddsi_serdata* serdata) { ddsi_serdata_unref(serdata); }

}  // namespace k8sdds
