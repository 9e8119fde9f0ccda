#include "raw_sender.h"

#include <netinet/udp.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace k8sdds {
namespace {

// A batch has at most this many samples, and no more bytes than one datagram: a receive buffer that holds a datagram of
// the maximum size also holds a batch.
constexpr size_t max_samples = 32, max_segments = 64;

}  // namespace

void RawSender::open(const Settings& settings, const std::string& local_address) {
    mode_ = settings.raw_mode;
    data_length_ = settings.data_length;
    const bool publishes = settings.role == Role::publisher;
    connects_ = mode_ >= RawMode::connected;
    gso_ = publishes && mode_ == RawMode::gso;
    if (publishes && mode_ == RawMode::mmsg)
        capacity_ = std::clamp<size_t>(max_datagram / data_length_, 1, max_samples);
    const bool to_group = publishes && settings.multicast;
    const size_t destinations = to_group ? 1 : publishes ? settings.subscribers : settings.publishers;
    for (size_t i = 0; i < (connects_ ? destinations : 1); ++i) {
        sockets_.push_back(unicast_socket({local_address, 0, settings.ipv6}));
        send_multicast_from(sockets_.back(), local_address);
    }
}

void RawSender::set_destinations(const std::vector<SocketAddress>& destinations) {
    destinations_ = destinations;
    if (connects_)
        for (size_t i = 0; i < destinations_.size(); ++i) sockets_[i].connect_to(destinations_[i]);
    if (gso_) use_gso();
    collects_ = capacity_ > 1;
    allocate();
}

// With GSO, one system call passes several equal datagrams to the kernel; none may need IP fragments. A sample that
// does not fit a packet becomes several datagrams.
void RawSender::use_gso() {
    size_t segment = max_datagram;
    for (const Socket& socket : sockets_)
        segment = std::min<size_t>(segment, socket.path_mtu() - ip_and_udp_headers(socket.is_ipv6()));
    if (data_length_ <= segment) {
        segment = data_length_;
        capacity_ = std::clamp<size_t>(max_datagram / segment, 1, max_segments);
    } else {
        chunk_ = segment - sizeof(Header);
        parts_ = (data_length_ - sizeof(Header) + chunk_ - 1) / chunk_;
    }
    segments_ = std::clamp<size_t>(max_datagram / segment, 1, max_segments);
    for (const Socket& socket : sockets_) socket.segment_datagrams(static_cast<int>(segment));
}

void RawSender::allocate() {
    const size_t count = capacity_ * parts_;
    headers_.resize(count);
    pieces_.resize(2 * count);
    messages_.resize(count);
    for (size_t i = 0; i < count; ++i) {
        pieces_[2 * i] = {&headers_[i], sizeof(Header)};
        messages_[i].msg_hdr.msg_iov = &pieces_[2 * i];
        messages_[i].msg_hdr.msg_iovlen = 2;
    }
}

Written RawSender::write(const Sample& sample, size_t destination) {
    if (samples_ == capacity_)
        if (const Written written = flush(); written != Written::ok) return written;
    if (!samples_) {
        first_ = destination_ = destination == everyone ? 0 : destination;
        end_ = destination == everyone ? destinations_.size() : destination + 1;
    }
    add(sample);
    if (samples_ < capacity_) return Written::ok;
    const Written written = flush();
    // The batch keeps what is not sent; the next call continues.
    return written == Written::blocked && collects_ ? Written::ok : written;
}

void RawSender::add(const Sample& sample) {
    size_t at = 0;
    uint8_t part = 0;
    do {
        const size_t n = std::min<size_t>(chunk_, sample.payload_length - at);
        headers_[datagrams_] = {sample.run, sample.sequence, sample.sent_ns, sample.ping, sample.publisher,
                                static_cast<uint8_t>(sample.phase), part++, sample.payload_length};
        pieces_[2 * datagrams_ + 1] = {const_cast<uint8_t*>(sample.payload) + at, n};
        ++datagrams_;
        at += n;
    } while (at < sample.payload_length);
    ++samples_;
}

Written RawSender::flush() {
    while (samples_ && destination_ < end_) {
        const ssize_t sent = send_rest();
        if (__builtin_expect(sent > 0, 1)) {
            sent_ += static_cast<size_t>(sent);
        } else if (errno == ECONNREFUSED || errno == ENOBUFS || errno == EPERM || errno == EINTR) {
            // A datagram that a full queue, a filter or a closed port rejects is lost.
            sent_ += gso_ ? segments_ : 1;
        } else if (errno == EAGAIN) {
            if (collects_) return Written::blocked;
            if (destination_ == first_ && sent_ == 0) {
                samples_ = datagrams_ = 0;                // not written; the caller tries again
                return Written::blocked;
            }
            sent_ = datagrams_;
        } else {
            error_ = errno;
            samples_ = datagrams_ = sent_ = 0;
            return Written::failed;
        }
        if (sent_ < datagrams_) continue;
        sent_ = 0;
        ++destination_;
    }
    samples_ = datagrams_ = sent_ = 0;
    return Written::ok;
}

ssize_t RawSender::send_rest() {
    const int fd = socket_of(destination_).fd();
    const size_t left = datagrams_ - sent_;
    void* const name = connects_ ? nullptr : destinations_[destination_].get();
    const socklen_t name_length = connects_ ? 0 : destinations_[destination_].length();
    if (mode_ == RawMode::mmsg && left > 1) return sendmmsg(fd, &messages_[sent_], static_cast<unsigned>(left), 0);
    const size_t count = gso_ ? std::min(left, segments_) : 1;
    msghdr message{};
    message.msg_name = name;
    message.msg_namelen = name_length;
    message.msg_iov = &pieces_[2 * sent_];
    message.msg_iovlen = 2 * count;
    return sendmsg(fd, &message, 0) < 0 ? -1 : static_cast<ssize_t>(count);
}

std::string RawSender::last_error() const {
    const std::string text = std::strerror(error_);
    if (gso_ && (error_ == EIO || error_ == EINVAL))
        return text + ": the network device does not accept UDP GSO; use -rawMode mmsg";
    return text;
}

}  // namespace k8sdds
