#include "raw_sockets.h"

#include <arpa/inet.h>
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

Socket new_udp_socket() {
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) fail("cannot create a socket");
    Socket socket(fd);
    set(fd, SOL_SOCKET, SO_RCVBUF, 8 << 20);              // the kernel limits it to rmem_max
    set(fd, SOL_SOCKET, SO_SNDBUF, 1 << 20);
    const timeval slice{0, 100'000};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &slice, sizeof slice);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &slice, sizeof slice);
    return socket;
}

void bind_to(const Socket& socket, const sockaddr_in& address) {
    if (bind(socket.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return;
    const std::string where = address_text(address.sin_addr) + ":" + std::to_string(ntohs(address.sin_port));
    if (errno == EADDRINUSE)
        throw std::runtime_error(where + " is in use: another process on this host has the same role, id and domain");
    fail("cannot bind to " + where);
}

}  // namespace

Socket::~Socket() {
    if (fd_ >= 0) close(fd_);
}

int Socket::receive_buffer() const { return option(fd_, SO_RCVBUF); }
int Socket::send_buffer() const { return option(fd_, SO_SNDBUF); }

uint16_t Socket::port() const {
    sockaddr_in local{};
    socklen_t length = sizeof local;
    getsockname(fd_, reinterpret_cast<sockaddr*>(&local), &length);
    return ntohs(local.sin_port);
}

void Socket::connect_to(const sockaddr_in& address) const {
    if (connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
        fail("cannot connect a socket to " + address_text(address.sin_addr));
}

unsigned Socket::path_mtu() const {
    int value = 0;
    socklen_t length = sizeof value;
    if (getsockopt(fd_, IPPROTO_IP, IP_MTU, &value, &length) != 0) fail("cannot read the MTU of a path");
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

sockaddr_in socket_address(const std::string& address, uint16_t port) {
    sockaddr_in result{};
    result.sin_family = AF_INET;
    result.sin_port = htons(port);
    if (!address.empty()) inet_pton(AF_INET, address.c_str(), &result.sin_addr);
    return result;
}

sockaddr_in resolve(const std::string& host, uint16_t port) {
    addrinfo hints{}, *results = nullptr;
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_DGRAM;
    const int error = getaddrinfo(host.c_str(), nullptr, &hints, &results);
    if (error) throw std::runtime_error("-peer " + host + ": " + gai_strerror(error));
    sockaddr_in result = *reinterpret_cast<const sockaddr_in*>(results->ai_addr);
    freeaddrinfo(results);
    result.sin_port = htons(port);
    return result;
}

Socket unicast_socket(const std::string& local_address, uint16_t port) {
    Socket socket = new_udp_socket();
    bind_to(socket, socket_address(local_address, port));
    return socket;
}

Socket multicast_socket(const std::string& group, uint16_t port, const std::string& local_address) {
    Socket socket = new_udp_socket();
    set(socket.fd(), SOL_SOCKET, SO_REUSEADDR, 1);        // several subscribers may listen on one host
    bind_to(socket, socket_address(group, port));
    ip_mreq membership{socket_address(group, 0).sin_addr, socket_address(local_address, 0).sin_addr};
    if (setsockopt(socket.fd(), IPPROTO_IP, IP_ADD_MEMBERSHIP, &membership, sizeof membership) != 0)
        fail("cannot join the multicast group " + group);
    return socket;
}

void send_multicast_from(const Socket& socket, const std::string& local_address) {
    const in_addr from = socket_address(local_address, 0).sin_addr;
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

std::string address_towards(const sockaddr_in& peer) {
    const Socket probe(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_in local{};
    socklen_t length = sizeof local;
    if (connect(probe.fd(), reinterpret_cast<const sockaddr*>(&peer), sizeof peer) != 0 ||
        getsockname(probe.fd(), reinterpret_cast<sockaddr*>(&local), &length) != 0)
        return "";
    return address_text(local.sin_addr);
}

}  // namespace k8sdds
