#include "raw_receiver.h"

#include <netinet/in.h>
#include <netinet/udp.h>

#include <cstring>

namespace k8sdds {
namespace {

constexpr size_t max_group = 32;              // datagrams per system call
constexpr size_t buffer_length = max_datagram + 1;

}  // namespace

void RawReceiver::open(const Settings& settings, Events& events) {
    events_ = &events;
    gro_ = settings.raw_mode == RawMode::gso;
    const size_t group = settings.raw_mode == RawMode::single ? 1 : max_group;
    buffers_.resize(group * buffer_length);
    pieces_.resize(group);
    messages_.resize(group);
    if (gro_) controls_.resize(group);
    for (size_t i = 0; i < group; ++i) {
        pieces_[i] = {&buffers_[i * buffer_length], buffer_length};
        messages_[i].msg_hdr.msg_iov = &pieces_[i];
        messages_[i].msg_hdr.msg_iovlen = 1;
        if (gro_) messages_[i].msg_hdr.msg_control = controls_[i].bytes;
    }
    if (!gro_ || settings.role == Role::publisher) return;
    assemblies_.resize(settings.publishers);
    for (Assembly& assembly : assemblies_) assembly.payload.resize(max_datagram);
}

unsigned RawReceiver::receive(int fd, int flags) {
    if (gro_)
        for (mmsghdr& message : messages_) message.msg_hdr.msg_controllen = sizeof(Control);
    const int n = recvmmsg(fd, messages_.data(), static_cast<unsigned>(messages_.size()), flags, nullptr);
    if (n <= 0) return 0;
    for (int i = 0; i < n; ++i) {
        const uint8_t* data = static_cast<const uint8_t*>(pieces_[i].iov_base);
        size_t left = messages_[i].msg_len;
        const size_t segment = gro_ ? segment_of(messages_[i].msg_hdr) : 0;
        for (; segment && left > segment; left -= segment, data += segment) deliver(data, segment);
        deliver(data, left);
    }
    events_->on_received();
    return static_cast<unsigned>(n);
}

size_t RawReceiver::segment_of(msghdr& message) {
    for (cmsghdr* control = CMSG_FIRSTHDR(&message); control; control = CMSG_NXTHDR(&message, control)) {
        if (control->cmsg_level != IPPROTO_UDP || control->cmsg_type != UDP_GRO) continue;
        int segment = 0;
        std::memcpy(&segment, CMSG_DATA(control), sizeof segment);
        return segment > 0 ? static_cast<size_t>(segment) : 0;
    }
    return 0;
}

void RawReceiver::deliver(const uint8_t* datagram, size_t length) {
    Header header;
    if (length < sizeof header) return;
    std::memcpy(&header, datagram, sizeof header);
    const uint8_t* payload = datagram + sizeof header;
    if (__builtin_expect(header.length != length - sizeof header, 0)) {
        payload = assemble(header, payload, length - sizeof header);
        if (!payload) return;
    }
    Sample sample;
    sample.run = header.run;
    sample.sequence = header.sequence;
    sample.sent_ns = header.sent_ns;
    sample.ping = header.ping;
    sample.publisher = header.publisher;
    sample.phase = static_cast<Phase>(header.phase);
    sample.payload = payload;
    sample.payload_length = header.length;
    events_->on_sample(sample);
}

// Returns the payload if this datagram completes its sample, otherwise null.
const uint8_t* RawReceiver::assemble(const Header& header, const uint8_t* payload, size_t length) {
    if (header.publisher >= assemblies_.size() || header.length > max_datagram) return nullptr;
    Assembly& a = assemblies_[header.publisher];
    if (header.part == 0) {
        a.run = header.run;
        a.sequence = header.sequence;
        a.phase = header.phase;
        a.next_part = 0;
        a.bytes = 0;
    }
    const bool continues = a.run == header.run && a.sequence == header.sequence && a.phase == header.phase &&
                           a.next_part == header.part && a.bytes + length <= header.length;
    if (!continues) return nullptr;
    std::memcpy(a.payload.data() + a.bytes, payload, length);
    a.bytes += length;
    ++a.next_part;
    return a.bytes == header.length ? a.payload.data() : nullptr;
}

}  // namespace k8sdds
