// Observes a network: sends known datagrams, answers them, and captures the packets that leave by an interface.
// Not used while times are measured.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <set>
#include <string_view>

#include "commands.h"
#include "json.h"
#include "packet_socket.h"
#include "support.h"

namespace k8sdds {

namespace {

constexpr int kSmallest = 576;     // every IPv4 host accepts packets of this size (RFC 791), every IPv6 host larger ones
constexpr int kAttempts = 3;       // datagrams of one size that may be lost before it counts as too large
constexpr int kMaxPacket = 65535;
constexpr std::int64_t kMs = 1'000'000;

// An IPv4 or IPv6 address and a port.
union Address {
    sockaddr any;
    sockaddr_in v4;
    sockaddr_in6 v6{};

    bool ipv6() const { return any.sa_family == AF_INET6; }
    socklen_t length() const { return ipv6() ? sizeof v6 : sizeof v4; }
    bool is_multicast() const {
        return ipv6() ? IN6_IS_ADDR_MULTICAST(&v6.sin6_addr) : IN_MULTICAST(ntohl(v4.sin_addr.s_addr));
    }
    int headers() const { return ipv6() ? 48 : 28; }      // bytes of IP and UDP
    // A socket for IPv6 receives packets of IPv4, too, with addresses such as ::ffff:10.0.0.1.
    std::string text() const {
        std::array<char, INET6_ADDRSTRLEN> text;
        const void* address = ipv6() ? static_cast<const void*>(&v6.sin6_addr) : &v4.sin_addr;
        const std::string printed = inet_ntop(any.sa_family, address, text.data(), text.size());
        constexpr std::string_view mapped = "::ffff:";
        return ipv6() && IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr) ? printed.substr(mapped.size()) : printed;
    }
};

Address address_of(const std::string& host, int port) {
    Address address;
    if (inet_pton(AF_INET6, host.c_str(), &address.v6.sin6_addr) == 1) {
        address.v6.sin6_family = AF_INET6;
        address.v6.sin6_port = htons(static_cast<std::uint16_t>(port));
    } else {
        address.v4 = {};
        address.v4.sin_family = AF_INET;
        address.v4.sin_port = htons(static_cast<std::uint16_t>(port));
        if (inet_pton(AF_INET, host.c_str(), &address.v4.sin_addr) != 1)
            throw Failure(kUsage, "'" + host + "' is not an IP address");
    }
    return address;
}

Address address_of(const std::string& text) {
    const auto colon = text.rfind(':');
    const auto port = colon == std::string::npos ? std::nullopt : to_integer(text.substr(colon + 1));
    if (!port || *port < 1 || *port > 65535)
        throw Failure(kUsage, "'" + text + "' is not of the form IPV4-ADDRESS:PORT or [IPV6-ADDRESS]:PORT");
    const bool brackets = colon > 1 && text.front() == '[' && text[colon - 1] == ']';
    return address_of(brackets ? text.substr(1, colon - 2) : text.substr(0, colon), static_cast<int>(*port));
}

Fd udp_socket(bool ipv6) {
    Fd fd(socket(ipv6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    require(static_cast<bool>(fd), "create a socket");
    return fd;
}

// Returns a socket that receives at a port, from IPv4 and IPv6 if the kernel has IPv6.
Fd listening_socket(int port) {
    Fd fd(socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const bool ipv6 = static_cast<bool>(fd);
    if (!ipv6) fd = udp_socket(false);
    const int yes = 1, no = 0;
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (ipv6) setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    const Address any = address_of(ipv6 ? "::" : "0.0.0.0", port);
    require(bind(fd.get(), &any.any, any.length()) == 0, "listen on UDP port " + std::to_string(port));
    return fd;
}

void write_all(const void* data, std::size_t size) {
    require(std::fwrite(data, 1, size, stdout) == size, "write packets");
}

// Waits for packets on a socket, until a deadline or until standard input ends or has a line.
class Wait {
public:
    Wait(int fd, std::int64_t deadline_ns) : fd_(fd), end_ns_(monotonic_ns() + deadline_ns) {}

    bool has_packet() {
        while (true) {
            const std::int64_t left_ns = end_ns_ - monotonic_ns();
            if (left_ns <= 0) return false;
            std::array<pollfd, 2> polled = {{{fd_, POLLIN, 0}, {stopped_ ? -1 : STDIN_FILENO, POLLIN, 0}}};
            const int ready = poll(polled.data(), polled.size(), static_cast<int>(left_ns / kMs) + 1);
            require(ready >= 0 || errno == EINTR, "wait for packets");
            if (ready > 0 && polled[1].revents != 0) {
                // What has arrived by now is read still.
                stopped_ = true;
                end_ns_ = std::min(end_ns_, monotonic_ns() + kDrainNs);
            }
            if (ready > 0 && polled[0].revents != 0) return true;
        }
    }

private:
    static constexpr std::int64_t kDrainNs = 20 * kMs;
    const int fd_;
    std::int64_t end_ns_;
    bool stopped_ = false;
};

// The head of a pcap file and of each of its packets.
struct FileHeader {
    std::uint32_t magic = 0xa1b2c3d4;
    std::uint16_t major = 2, minor = 4;
    std::int32_t zone = 0;
    std::uint32_t accuracy = 0, snap_bytes, link_type;
};
struct PacketHeader {
    std::uint32_t seconds, microseconds, stored_bytes, bytes;
};
constexpr std::uint32_t kEthernet = 1, kRawIp = 101;

// Joins a multicast group on an interface.
void join(int fd, const Options& options) {
    const Address group = address_of(options.group, 0);
    const int index = options.interface.empty() ? 0 : index_of(options.interface);
    ip_mreqn request{};
    ipv6_mreq request6{};
    request.imr_multiaddr = group.v4.sin_addr;
    request.imr_ifindex = index;
    if (group.ipv6()) request6 = {group.v6.sin6_addr, static_cast<unsigned>(index)};
    require(group.ipv6() ? setsockopt(fd, IPPROTO_IPV6, IPV6_ADD_MEMBERSHIP, &request6, sizeof request6) == 0
                         : setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &request, sizeof request) == 0,
            "join " + options.group);
}

// Sends datagrams, and counts the answers.
class Asker {
public:
    explicit Asker(const Options& options) : options_(options), to_(address_of(options.to)) {
        const int flows = std::max(1, options.flows);
        for (int i = 0; i < flows; ++i) sockets_.push_back(open_socket());
        payload_.assign(static_cast<std::size_t>(kMaxPacket), '.');
        options.token.copy(payload_.data(), options.token.size());
    }

    // Sends all datagrams, then waits for their answers.
    void ask_all() {
        for (int i = 0; i < options_.count; ++i) {
            send(sockets_[static_cast<std::size_t>(i) % sockets_.size()].get(), options_.packet_bytes);
            // Slow enough that no queue on the path overflows.
            usleep(500);
        }
        const std::int64_t end_ns = monotonic_ns() + options_.timeout_ns;
        while (answered_ < options_.count && receive(end_ns)) {}
    }

    // Returns the size of the largest packet that passes unfragmented, at most `max`; none: not even a small one does.
    std::optional<int> largest_packet(int max) {
        const std::int64_t started_ns = monotonic_ns();
        if (!passes(std::min(max, kSmallest), options_.timeout_ns)) return std::nullopt;
        const std::int64_t wait_ns = std::max(100 * kMs, 4 * (monotonic_ns() - started_ns));
        if (passes(max, wait_ns)) return max;
        int passing = std::min(max, kSmallest), failing = max;
        while (failing - passing > 1) {
            const int middle = (passing + failing) / 2;
            (passes(middle, wait_ns) ? passing : failing) = middle;
        }
        return passing;
    }

    void add_to(Json& report) const {
        report["sent"] = sent_;
        report["answered"] = answered_;
        report["seen_as"] = seen_as_;
        report["last_error"] = json_or_null(error_);
    }

private:
    Fd open_socket() const {
        const bool ipv6 = to_.ipv6();
        Fd fd = udp_socket(ipv6);
        if (options_.whole) {
            // Forbids fragments without regard to what the kernel knows of the path.
            const int probe = ipv6 ? IPV6_PMTUDISC_PROBE : IP_PMTUDISC_PROBE;
            const int level = ipv6 ? IPPROTO_IPV6 : IPPROTO_IP, name = ipv6 ? IPV6_MTU_DISCOVER : IP_MTU_DISCOVER;
            require(setsockopt(fd.get(), level, name, &probe, sizeof probe) == 0, "forbid fragments");
        }
        if (options_.interface.empty() || !to_.is_multicast()) return fd;
        const int index = index_of(options_.interface);
        ip_mreqn request{};
        request.imr_ifindex = index;
        require(ipv6 ? setsockopt(fd.get(), IPPROTO_IPV6, IPV6_MULTICAST_IF, &index, sizeof index) == 0
                     : setsockopt(fd.get(), IPPROTO_IP, IP_MULTICAST_IF, &request, sizeof request) == 0,
                "select an interface");
        return fd;
    }

    bool send(int fd, int packet_bytes) {
        // The other side recognizes a datagram by the whole token.
        const int shortest = std::max(1, static_cast<int>(options_.token.size()));
        const auto bytes =
            static_cast<std::size_t>(std::clamp(packet_bytes - to_.headers(), shortest, kMaxPacket - to_.headers()));
        ++sent_;
        const bool works = sendto(fd, payload_.data(), bytes, 0, &to_.any, to_.length()) >= 0;
        if (!works) error_ = errno_text();
        return works;
    }

    // Receives one answer: the token, the address that the other side saw, and the size of the datagram there.
    bool receive(std::int64_t end_ns) {
        std::vector<pollfd> polled;
        for (const auto& fd : sockets_) polled.push_back({fd.get(), POLLIN, 0});
        while (true) {
            const std::int64_t left_ns = end_ns - monotonic_ns();
            if (left_ns <= 0) return false;
            if (poll(polled.data(), polled.size(), static_cast<int>(left_ns / kMs) + 1) <= 0) continue;
            for (const auto& entry : polled) {
                if (entry.revents == 0) continue;
                std::array<char, 256> answer;
                const ssize_t n = recv(entry.fd, answer.data(), answer.size(), MSG_DONTWAIT);
                if (n < 0) error_ = errno_text();
                const auto parts = n < 0 ? std::vector<std::string>() : fields({answer.data(), static_cast<std::size_t>(n)});
                if (parts.size() != 3 || parts[0] != options_.token) continue;
                ++answered_;
                seen_as_.insert(parts[1]);
                last_bytes_ = to_integer(parts[2]).value_or(0);
                return true;
            }
        }
    }

    // Returns whether a packet of this size is answered. Late answers to other sizes do not count.
    bool passes(int packet_bytes, std::int64_t wait_ns) {
        for (int attempt = 0; attempt < kAttempts; ++attempt) {
            if (!send(sockets_[0].get(), packet_bytes)) return false;
            const std::int64_t end_ns = monotonic_ns() + wait_ns;
            while (receive(end_ns))
                if (last_bytes_ == packet_bytes - to_.headers()) return true;
        }
        return false;
    }

    const Options& options_;
    const Address to_;
    std::vector<Fd> sockets_;
    std::string payload_;
    int sent_ = 0, answered_ = 0;
    std::int64_t last_bytes_ = 0;
    std::set<std::string> seen_as_;
    std::string error_;
};

}  // namespace

int capture_packets(const Options& options) {
    const Fd fd = packet_socket();
    const int buffer_bytes = 8 << 20;
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof buffer_bytes);
    start_packets(fd.get(), options.interface);
    FileHeader header{};
    header.snap_bytes = static_cast<std::uint32_t>(options.snap_bytes);
    header.link_type = has_link_header(fd.get(), options.interface) ? kEthernet : kRawIp;
    write_all(&header, sizeof header);
    std::fflush(stdout);
    std::fputs("ready\n", stderr);

    std::vector<char> packet(static_cast<std::size_t>(options.snap_bytes));
    Wait wait(fd.get(), options.deadline_ns);
    for (int stored = 0; stored < options.count && wait.has_packet();) {
        const ssize_t bytes = recv(fd.get(), packet.data(), packet.size(), MSG_TRUNC);
        if (bytes < 0) continue;
        const std::int64_t now_ns = realtime_ns();
        const PacketHeader head = {static_cast<std::uint32_t>(now_ns / 1'000'000'000),
                                   static_cast<std::uint32_t>(now_ns / 1000 % 1'000'000),
                                   static_cast<std::uint32_t>(std::min<std::size_t>(packet.size(), static_cast<std::size_t>(bytes))),
                                   static_cast<std::uint32_t>(bytes)};
        write_all(&head, sizeof head);
        write_all(packet.data(), head.stored_bytes);
        ++stored;
    }
    require(std::fflush(stdout) == 0, "write packets");
    return 0;
}

int answer_datagrams(const Options& options) {
    Fd fd = listening_socket(options.port);
    if (!options.group.empty()) join(fd.get(), options);
    std::fputs("ready\n", stderr);
    std::vector<char> datagram(kMaxPacket);
    Wait wait(fd.get(), options.deadline_ns);
    while (wait.has_packet()) {
        Address from;
        socklen_t size = sizeof from;
        const ssize_t bytes = recvfrom(fd.get(), datagram.data(), datagram.size(), 0, &from.any, &size);
        if (bytes < static_cast<ssize_t>(options.token.size()) ||
            options.token.compare(0, std::string::npos, datagram.data(), options.token.size()) != 0)
            continue;
        const std::string answer = options.token + ' ' + from.text() + ' ' + std::to_string(bytes);
        sendto(fd.get(), answer.data(), answer.size(), 0, &from.any, size);
    }
    return 0;
}

int ask_by_datagrams(const Options& options) {
    Asker asker(options);
    Json report;
    if (options.whole) {
        report["path_mtu_bytes"] = json_or_null(asker.largest_packet(options.packet_bytes));
    } else {
        asker.ask_all();
    }
    asker.add_to(report);
    std::puts(json_text(report).c_str());
    return 0;
}

}  // namespace k8sdds
