// The server: answers each request with as many bytes. Accepts nothing else, and stores nothing of what it receives.

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <vector>

#include "roles.h"
#include "sockets.h"

namespace k8sdds {

namespace {

constexpr int kMaxConnections = 2048;
constexpr std::uint32_t kListener = kMaxConnections;

int listener(const Options& options) {
    const Address address = resolve(options);
    const int fd = open_socket(address, options, true);
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, address.get(), address.length) != 0)
        throw Failure(kSystem, "cannot bind to " + options.address + " port " + options.port + ": " + errno_text());
    if (!options.udp && listen(fd, SOMAXCONN) != 0) throw Failure(kSystem, "cannot listen: " + errno_text());
    return fd;
}

[[noreturn]] void answer_datagrams(int fd, const Options& options) {
    std::vector<char> buffer(options.bytes + 1);
    while (true) {
        sockaddr_storage from{};
        socklen_t length = sizeof from;
        auto* sender = reinterpret_cast<sockaddr*>(&from);
        const ssize_t n = recvfrom(fd, buffer.data(), buffer.size(), 0, sender, &length);
        if (n < 0 && errno != EINTR && errno != ECONNREFUSED)
            throw Failure(kSystem, "cannot receive: " + errno_text());
        if (n != static_cast<ssize_t>(options.bytes)) continue;
        // A response that is lost here is missing at the client, which counts it.
        (void)sendto(fd, buffer.data(), options.bytes, 0, sender, length);
    }
}

class TcpServer {
public:
    TcpServer(int listener, const Options& options)
        : options_(options), listener_(listener), single_(options.connections == 1), buffer_(options.bytes),
          connections_(kMaxConnections) {
        for (std::uint32_t index = kMaxConnections; index-- > 0;) free_.push_back(index);
        if (!single_) poller_.add(listener_, kListener, false);
    }

    [[noreturn]] void serve() {
        std::array<epoll_event, 256> events;
        while (true) {
            if (single_) {
                // One connection at a time: blocking calls take the fewest system calls.
                if (!connections_[0].open && !accept_next()) continue;
                while (connections_[0].open) proceed(0);
                continue;
            }
            const int ready = poller_.wait(events.data(), static_cast<int>(events.size()), -1);
            for (int i = 0; i < ready; ++i) {
                const std::uint32_t index = events[static_cast<std::size_t>(i)].data.u32;
                if (index == kListener)
                    accept_next();
                else
                    proceed(index);
            }
        }
    }

private:
    struct Connection {
        int fd = -1;
        std::size_t received = 0, to_send = 0;
        bool open = false, polls_writable = false;
    };

    bool accept_next() {
        const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | (single_ ? 0 : SOCK_NONBLOCK));
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED || errno == EAGAIN)) return false;
        if (fd < 0) throw Failure(kSystem, "cannot accept a connection: " + errno_text());
        if (free_.empty()) {
            close(fd);
            return false;
        }
        const int on = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        const std::uint32_t index = free_.back();
        free_.pop_back();
        connections_[index] = Connection{fd, 0, 0, true, false};
        if (!single_) poller_.add(fd, index, false);
        return true;
    }

    void proceed(std::uint32_t index) {
        Connection& connection = connections_[index];
        if (connection.to_send == 0) {
            const ssize_t n = recv(connection.fd, buffer_.data(), options_.bytes - connection.received, 0);
            if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
            if (n <= 0) return end(index);
            connection.received += static_cast<std::size_t>(n);
            if (connection.received < options_.bytes) return;
            connection.received = 0;
            connection.to_send = options_.bytes;
        }
        while (connection.to_send > 0) {
            const ssize_t n = send(connection.fd, buffer_.data(), connection.to_send, MSG_NOSIGNAL);
            if (n < 0 && errno == EINTR) continue;
            if (n < 0 && errno == EAGAIN) return poll_for(connection, index, true);
            if (n < 0) return end(index);
            connection.to_send -= static_cast<std::size_t>(n);
        }
        // The side that closes first keeps the port for a minute: this must not be the client.
        if (options_.new_connections) return end(index);
        poll_for(connection, index, false);
    }

    void poll_for(Connection& connection, std::uint32_t index, bool writable) {
        if (single_ || connection.polls_writable == writable) return;
        poller_.change(connection.fd, index, writable);
        connection.polls_writable = writable;
    }

    void end(std::uint32_t index) {
        close(connections_[index].fd);
        connections_[index].open = false;
        free_.push_back(index);
    }

    const Options& options_;
    int listener_;
    bool single_;
    Poller poller_;
    std::vector<char> buffer_;
    std::vector<Connection> connections_;
    std::vector<std::uint32_t> free_;
};

}  // namespace

[[noreturn]] void serve(const Options& options) {
    const int fd = listener(options);
    if (options.udp) answer_datagrams(fd, options);
    TcpServer(fd, options).serve();
}

}  // namespace k8sdds
