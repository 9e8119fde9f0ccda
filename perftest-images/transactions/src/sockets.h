// Sockets of both roles, and waiting for many of them.
#pragma once

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "options.h"

namespace k8sdds {

std::int64_t now_ns();
std::string errno_text();

// The address of the server, which both roles name.
struct Address {
    sockaddr_storage storage{};
    socklen_t length = 0;
    const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};
Address resolve(const Options& options);  // numeric addresses only

int open_socket(const Address& address, const Options& options, bool blocking);  // TCP without delay of small segments

// Readiness of many sockets. Each socket has an index, which `wait` returns.
class Poller {
public:
    Poller();
    ~Poller();
    Poller(const Poller&) = delete;
    Poller& operator=(const Poller&) = delete;

    void add(int fd, std::uint32_t index, bool writable);
    void change(int fd, std::uint32_t index, bool writable);
    int wait(epoll_event* events, int count, int timeout_ms) const;

private:
    void control(int operation, int fd, std::uint32_t index, bool writable);
    int epoll_;
};

}  // namespace k8sdds
