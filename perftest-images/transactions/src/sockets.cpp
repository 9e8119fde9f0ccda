#include "sockets.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>

namespace k8sdds {

std::int64_t now_ns() {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1'000'000'000LL + time.tv_nsec;
}

std::string errno_text() { return std::strerror(errno); }

Address resolve(const Options& options) {
    addrinfo hints{};
    hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    hints.ai_socktype = options.udp ? SOCK_DGRAM : SOCK_STREAM;
    addrinfo* found = nullptr;
    if (const int error = getaddrinfo(options.address.c_str(), options.port.c_str(), &hints, &found))
        throw Failure(kUsage, "--address: '" + options.address + "': " + gai_strerror(error));
    Address address;
    std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
    address.length = found->ai_addrlen;
    freeaddrinfo(found);
    return address;
}

int open_socket(const Address& address, const Options& options, bool blocking) {
    const int type = (options.udp ? SOCK_DGRAM : SOCK_STREAM) | SOCK_CLOEXEC | (blocking ? 0 : SOCK_NONBLOCK);
    const int fd = socket(address.storage.ss_family, type, 0);
    if (fd < 0) throw Failure(kSystem, "cannot open a socket: " + errno_text());
    const int on = 1;
    if (!options.udp) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

Poller::Poller() : epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    if (epoll_ < 0) throw Failure(kSystem, "cannot create an epoll instance: " + errno_text());
}

Poller::~Poller() { close(epoll_); }

void Poller::control(int operation, int fd, std::uint32_t index, bool writable) {
    epoll_event event{};
    event.events = writable ? EPOLLOUT : EPOLLIN;
    event.data.u32 = index;
    if (epoll_ctl(epoll_, operation, fd, &event) != 0) throw Failure(kSystem, "cannot poll a socket: " + errno_text());
}

void Poller::add(int fd, std::uint32_t index, bool writable) { control(EPOLL_CTL_ADD, fd, index, writable); }
void Poller::change(int fd, std::uint32_t index, bool writable) { control(EPOLL_CTL_MOD, fd, index, writable); }

int Poller::wait(epoll_event* events, int count, int timeout_ms) const {
    const int ready = epoll_wait(epoll_, events, count, timeout_ms);
    if (ready < 0 && errno != EINTR) throw Failure(kSystem, "cannot wait for sockets: " + errno_text());
    return ready < 0 ? 0 : ready;
}

}  // namespace k8sdds
