#include "raw_sockets.h"

#include <net/if.h>
#include <netdb.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace k8sdds {
namespace {

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what + ": " + std::strerror(errno)); }

int option(int fd, int name) {
    int value = 0;
    socklen_t length = sizeof value;
    getsockopt(fd, SOL_SOCKET, name, &value, &length);
    return value;
}

void set(int fd, int level, int name, int value) { setsockopt(fd, level, name, &value, sizeof value); }

Socket new_udp_socket(bool ipv6) {
    const int fd = socket(ipv6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) fail("cannot create a socket");
    Socket socket(fd);
    set(fd, SOL_SOCKET, SO_RCVBUF, 8 << 20);              // the kernel limits it to rmem_max
    set(fd, SOL_SOCKET, SO_SNDBUF, 1 << 20);
    const timeval slice{0, 100'000};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &slice, sizeof slice);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &slice, sizeof slice);
    return socket;
}

void bind_to(const Socket& socket, const SocketAddress& address) {
    if (bind(socket.fd(), address.get(), address.length()) == 0) return;
    const std::string text = address.is_ipv6() ? "[" + address.text() + "]" : address.text();
    const std::string where = text + ":" + std::to_string(address.port());
    if (errno == EADDRINUSE)
        throw std::runtime_error(where + " is in use: another process on this host has the same role, id and domain");
    fail("cannot bind to " + where);
}

unsigned index_of(const std::string& local_address) {
    return local_address.empty() ? 0 : if_nametoindex(interface_of(local_address, true).name.c_str());
}

}  // namespace

Socket::~Socket() {
    if (fd_ >= 0) close(fd_);
}

int Socket::receive_buffer() const { return option(fd_, SO_RCVBUF); }
int Socket::send_buffer() const { return option(fd_, SO_SNDBUF); }

uint16_t Socket::port() const {
    SocketAddress local;
    socklen_t length = SocketAddress::max_length;
    getsockname(fd_, local.get(), &length);
    return local.port();
}

bool Socket::is_ipv6() const { return option(fd_, SO_DOMAIN) == AF_INET6; }

void Socket::connect_to(const SocketAddress& address) const {
    if (connect(fd_, address.get(), address.length()) != 0) fail("cannot connect a socket to " + address.text());
}

unsigned Socket::path_mtu() const {
    int value = 0;
    socklen_t length = sizeof value;
    const bool ipv6 = is_ipv6();
    if (getsockopt(fd_, ipv6 ? IPPROTO_IPV6 : IPPROTO_IP, ipv6 ? IPV6_MTU : IP_MTU, &value, &length) != 0)
        fail("cannot read the MTU of a path");
    return static_cast<unsigned>(value);
}

void Socket::segment_datagrams(int segment) const {
    if (setsockopt(fd_, IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof segment) != 0) fail("cannot use UDP GSO");
}

void Socket::coalesce_datagrams() const {
    const int on = 1;
    if (setsockopt(fd_, IPPROTO_UDP, UDP_GRO, &on, sizeof on) != 0) fail("cannot use UDP GRO");
}

bool Socket::poll_device(int us) const {
    return setsockopt(fd_, SOL_SOCKET, SO_BUSY_POLL, &us, sizeof us) == 0;
}

SocketAddress resolve(const std::string& host, uint16_t port, bool ipv6) {
    addrinfo hints{}, *results = nullptr;
    hints.ai_family = ipv6 ? AF_INET6 : AF_INET;
    hints.ai_socktype = SOCK_DGRAM;
    const int error = getaddrinfo(host.c_str(), nullptr, &hints, &results);
    if (error) throw std::runtime_error("-peer " + host + ": " + gai_strerror(error));
    SocketAddress result("", port, ipv6);
    std::memcpy(result.get(), results->ai_addr, results->ai_addrlen);
    freeaddrinfo(results);
    result.set_port(port);
    return result;
}

Socket unicast_socket(const SocketAddress& local) {
    Socket socket = new_udp_socket(local.is_ipv6());
    bind_to(socket, local);
    return socket;
}

Socket multicast_socket(const SocketAddress& group, const std::string& local_address) {
    Socket socket = new_udp_socket(group.is_ipv6());
    set(socket.fd(), SOL_SOCKET, SO_REUSEADDR, 1);        // several subscribers may listen on one host
    bind_to(socket, group);
    int joined = 0;
    if (group.is_ipv6()) {
        ipv6_mreq membership{reinterpret_cast<const sockaddr_in6*>(group.get())->sin6_addr, index_of(local_address)};
        joined = setsockopt(socket.fd(), IPPROTO_IPV6, IPV6_ADD_MEMBERSHIP, &membership, sizeof membership);
    } else {
        const SocketAddress local(local_address, 0, false);
        ip_mreq membership{reinterpret_cast<const sockaddr_in*>(group.get())->sin_addr,
                           reinterpret_cast<const sockaddr_in*>(local.get())->sin_addr};
        joined = setsockopt(socket.fd(), IPPROTO_IP, IP_ADD_MEMBERSHIP, &membership, sizeof membership);
    }
    if (joined != 0) fail("cannot join the multicast group " + group.text());
    return socket;
}

void send_multicast_from(const Socket& socket, const std::string& local_address) {
    if (socket.is_ipv6()) {
        const unsigned index = index_of(local_address);
        if (index) set(socket.fd(), IPPROTO_IPV6, IPV6_MULTICAST_IF, static_cast<int>(index));
        set(socket.fd(), IPPROTO_IPV6, IPV6_MULTICAST_HOPS, 32);
        set(socket.fd(), IPPROTO_IPV6, IPV6_MULTICAST_LOOP, 1);
        return;
    }
    const SocketAddress local(local_address, 0, false);
    const in_addr from = reinterpret_cast<const sockaddr_in*>(local.get())->sin_addr;
    if (!local_address.empty()) setsockopt(socket.fd(), IPPROTO_IP, IP_MULTICAST_IF, &from, sizeof from);
    set(socket.fd(), IPPROTO_IP, IP_MULTICAST_TTL, 32);
    set(socket.fd(), IPPROTO_IP, IP_MULTICAST_LOOP, 1);
}

bool has_udp_gso() {
    const Socket probe(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const int segment = 1000, on = 1;
    return setsockopt(probe.fd(), IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof segment) == 0 &&
           setsockopt(probe.fd(), IPPROTO_UDP, UDP_GRO, &on, sizeof on) == 0;
}

std::string address_towards(const SocketAddress& peer) {
    const Socket probe = new_udp_socket(peer.is_ipv6());
    SocketAddress local;
    socklen_t length = SocketAddress::max_length;
    if (connect(probe.fd(), peer.get(), peer.length()) != 0 || getsockname(probe.fd(), local.get(), &length) != 0)
        return "";
    return local.text();
}

}  // namespace k8sdds
