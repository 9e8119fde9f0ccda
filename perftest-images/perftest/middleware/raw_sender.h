// Sends samples as UDP datagrams, with the system calls of a RawMode.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <string>
#include <vector>

#include "raw_header.h"
#include "raw_sockets.h"

namespace k8sdds {

// All memory is allocated before the first sample. write() and flush() are called by one thread at a time.
class RawSender {
public:
    // A publisher collects samples in the modes mmsg and gso; a subscriber, which only answers, sends each at once.
    void open(const Settings&, const std::string& local_address);

    // Must be called once, before the first write(). Throws std::runtime_error.
    void set_destinations(const std::vector<SocketAddress>&);

    // Sends a sample to all destinations, or to the one with this index. The payload of a publisher must stay valid
    // until flush().
    Written write(const Sample&, size_t destination);
    Written flush();
    static constexpr size_t everyone = SIZE_MAX;

    size_t samples_per_send() const { return capacity_; }
    size_t datagrams_per_sample() const { return parts_; }
    int send_buffer() const { return sockets_.front().send_buffer(); }
    uint16_t single_port() const { return sockets_.size() == 1 ? sockets_.front().port() : 0; }   // 0: several
    std::string last_error() const;

private:
    void use_gso();
    void allocate();
    void add(const Sample&);
    ssize_t send_rest();                      // returns the number of datagrams sent, or -1 with errno
    const Socket& socket_of(size_t destination) const { return sockets_.size() > 1 ? sockets_[destination] : sockets_[0]; }

    RawMode mode_ = RawMode::datagram;
    uint64_t data_length_ = 0;
    bool connects_ = false, gso_ = false, collects_ = false;
    std::vector<Socket> sockets_;             // one; if connected, one per destination
    std::vector<SocketAddress> destinations_;

    size_t capacity_ = 1;                     // samples per batch
    size_t chunk_ = max_datagram;             // payload bytes per datagram
    size_t parts_ = 1;                        // datagrams per sample
    size_t segments_ = 1;                     // datagrams per system call with GSO
    size_t samples_ = 0, datagrams_ = 0;      // in the batch
    size_t first_ = 0, end_ = 0;              // destinations of the batch
    size_t destination_ = 0, sent_ = 0;       // where flush() continues
    std::vector<Header> headers_;             // one per datagram
    std::vector<iovec> pieces_;               // two per datagram: header and payload
    std::vector<mmsghdr> messages_;           // one per datagram
    int error_ = 0;
};

}  // namespace k8sdds
