// Reads the sockets of this process and the interfaces of this host from the kernel.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace k8sdds {

// An IPv4 or IPv6 address and a UDP port.
class SocketAddress {
public:
    SocketAddress() = default;
    SocketAddress(const std::string& address, uint16_t port, bool ipv6);   // an empty address means any
    const sockaddr* get() const { return &any_; }
    sockaddr* get() { return &any_; }
    socklen_t length() const { return is_ipv6() ? sizeof v6_ : sizeof v4_; }
    static constexpr socklen_t max_length = sizeof(sockaddr_in6);
    bool is_ipv6() const { return any_.sa_family == AF_INET6; }
    bool is_unspecified() const;
    bool is_multicast() const;
    std::string text() const;                             // the address without the port
    uint16_t port() const;
    void set_port(uint16_t);
    bool operator==(const SocketAddress&) const;

private:
    union {
        sockaddr any_;
        sockaddr_in v4_;
        sockaddr_in6 v6_{};
    };
};

struct OwnSocket {
    int fd, type;                                         // SOCK_DGRAM or SOCK_STREAM
    SocketAddress address;
    std::string multicast_address;                        // of the interface for multicast; empty if none is set
    int receive_buffer, send_buffer;
    bool is_bound() const { return !address.is_unspecified() && !address.is_multicast(); }
};

std::vector<OwnSocket> own_sockets();                     // those of IP

// Returns the local address of the first socket that has one, or the address of its interface for multicast.
std::string used_address(const std::vector<OwnSocket>&);

uint64_t own_tcp_retransmitted_bytes();                    // of the connections that exist now

void set_own_dscp(int dscp);                              // on the sockets that exist now
std::set<int> own_dscp();

struct Interface {
    std::string name, address;
};

// Each considers interfaces with an address of this family only, link-local IPv6 addresses excepted.
Interface interface_of(const std::string& name_or_address, bool ipv6);   // an empty name means that none matches
int64_t mtu_of(const std::string& name_or_address, bool ipv6);           // bytes; 0: there is no such interface
bool has_multicast(const std::string& name_or_address, bool ipv6);       // of any interface, if empty
bool is_running(const std::string& interface);            // has a carrier, which comes some time after the link is up

}  // namespace k8sdds
