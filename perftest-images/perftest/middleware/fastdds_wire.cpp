#include "fastdds_wire.h"

#include <fastcdr/exceptions/NotEnoughMemoryException.h>

#include "common.h"

namespace k8sdds {

using fastdds_api::Cdr;
using fastdds_api::read_array;
using fastdds_api::write_array;

void write(Cdr& cdr, const Sample& s) {
    uint32_t head[head_words];
    pack(s, head);
    write_array(cdr, head, head_words);
    cdr << s.payload_length;
    write_array(cdr, s.payload, s.payload_length);
}

void read(Cdr& cdr, TakenSample& taken) {
    uint32_t head[head_words], length = 0;
    read_array(cdr, head, head_words);
    cdr >> length;
    if (!fastdds_api::fits(cdr, length)) throw eprosima::fastcdr::exception::NotEnoughMemoryException("length");
    // Only for the longest sample so far: what is added to a vector is filled with zeros.
    if (taken.payload.size() < length) taken.payload.resize(length);
    read_array(cdr, taken.payload.data(), length);
    unpack(head, taken.sample);
    taken.sample.payload = taken.payload.data();
    taken.sample.payload_length = length;
}

void write(Cdr& cdr, const Announcement& a) {
    cdr << static_cast<uint8_t>(a.kind) << static_cast<uint8_t>(a.role) << a.id << a.to << a.version;
    cdr << a.instance << a.run << a.nonce;
    write_array(cdr, a.value, announcement_values);
}

void read(Cdr& cdr, Announcement& a) {
    uint8_t kind = 0, role = 0;
    cdr >> kind >> role >> a.id >> a.to >> a.version >> a.instance >> a.run >> a.nonce;
    read_array(cdr, a.value, announcement_values);
    a.kind = static_cast<Kind>(kind);
    a.role = static_cast<Role>(role);
}

}  // namespace k8sdds
