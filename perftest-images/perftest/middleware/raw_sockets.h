// UDP sockets for the raw backend.
#pragma once

#include <netinet/in.h>

#include <string>

#include "sockets.h"

namespace k8sdds {

// Owns a socket and closes it; -1: none.
class Socket {
public:
    Socket() = default;
    explicit Socket(int fd) : fd_(fd) {}
    Socket(Socket&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
    Socket& operator=(Socket&& other) noexcept { std::swap(fd_, other.fd_); return *this; }
    ~Socket();
    int fd() const { return fd_; }
    int receive_buffer() const;
    int send_buffer() const;
    uint16_t port() const;
    void connect_to(const SocketAddress&) const;           // throws std::runtime_error
    unsigned path_mtu() const;                            // of a connected socket
    bool is_ipv6() const;
    void segment_datagrams(int length) const;             // GSO: the kernel cuts what a send passes; throws
    void coalesce_datagrams() const;                      // GRO: a receive may return several datagrams; throws
    bool poll_device(int us) const;                       // whether the kernel accepts busy polling

private:
    int fd_ = -1;
};

// Returns an address of a host in this family. Throws std::runtime_error.
SocketAddress resolve(const std::string& host, uint16_t port, bool ipv6);

// Both throw std::runtime_error. They request a receive buffer of 8 MiB; a blocked send returns after 100 ms.
Socket unicast_socket(const SocketAddress& local);
Socket multicast_socket(const SocketAddress& group, const std::string& local_address);

// Sends multicast datagrams from the interface with this address.
void send_multicast_from(const Socket&, const std::string& local_address);

// Whether the kernel has both UDP_SEGMENT and UDP_GRO.
bool has_udp_gso();

// Returns the local address from which the kernel routes to the peer, or an empty string.
std::string address_towards(const SocketAddress& peer);

}  // namespace k8sdds
