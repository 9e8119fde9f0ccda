// A tool for benchmarks: sends frames at a constant rate on the interface eth0 of each of several network namespaces.
//
//   k8sdds-link-flood PACKETS_PER_S SECONDS BYTES NETNS_FILE...
//
// The frames are for an address that nobody has, so that the receiver drops them early. Prints how many were sent.
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include "clock.h"
#include "failure.h"

using namespace k8sdds;

namespace {

constexpr std::size_t kBurst = 32;          // frames in one system call, if so many are due
// Linux takes the core for 50 ms each second from a real-time thread that never sleeps.
constexpr std::int64_t kWork = 800'000, kRest = 50'000;

int sender_in(const std::string& netns) {
    const int file = open(netns.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0 || setns(file, CLONE_NEWNET) != 0) throw Failure(kSystem, netns + ": cannot enter: " + errno_text());
    close(file);
    const int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
    sockaddr_ll address{};
    address.sll_family = AF_PACKET;
    address.sll_ifindex = static_cast<int>(if_nametoindex("eth0"));
    const int on = 1;
    if (fd < 0 || bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        setsockopt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &on, sizeof on) != 0)
        throw Failure(kSystem, netns + ": cannot open a packet socket on eth0: " + errno_text());
    return fd;
}

int run(int argc, char** argv) {
    if (argc < 5) throw Failure(kUsage, "usage: k8sdds-link-flood PACKETS_PER_S SECONDS BYTES NETNS_FILE...");
    const double rate = std::stod(argv[1]), seconds = std::stod(argv[2]);
    std::vector<std::uint8_t> frame(std::stoul(argv[3]) + ETH_HLEN, 0);
    frame[0] = frame[6] = 2;                // locally administered addresses
    frame[5] = 1;
    frame[12] = 0x88, frame[13] = 0xb5;     // of local experiments
    std::vector<int> senders;
    for (int i = 4; i < argc; ++i) senders.push_back(sender_in(argv[i]));
    iovec part{frame.data(), frame.size()};
    std::array<mmsghdr, kBurst> messages{};
    for (mmsghdr& message : messages) message.msg_hdr.msg_iov = &part, message.msg_hdr.msg_iovlen = 1;

    const std::int64_t begin = clock_ns(), end = begin + static_cast<std::int64_t>(seconds * 1e9);
    std::uint64_t sent = 0, skipped = 0;    // nothing makes up for the time in which another program had the core
    for (std::int64_t now = begin, slept = begin; now < end; now = clock_ns()) {
        if (now - slept > kWork) {
            const timespec rest{0, kRest};
            clock_nanosleep(CLOCK_MONOTONIC, 0, &rest, nullptr);
            slept = clock_ns();
        }
        const auto due = static_cast<std::uint64_t>(static_cast<double>(now - begin) * rate / 1e9) + 1;
        if (due <= sent + skipped) continue;
        const auto count = static_cast<unsigned>(std::min<std::uint64_t>(kBurst, due - sent - skipped));
        skipped = due - sent - count;
        for (const int fd : senders)
            for (unsigned done = 0; done < count;) {
                const int taken = sendmmsg(fd, messages.data(), count - done, 0);
                if (taken < 0 && errno != ENOBUFS) throw Failure(kSystem, "cannot send: " + errno_text());
                done += taken < 0 ? 1 : static_cast<unsigned>(taken);   // the receiver's queue is full: lost
            }
        sent += count;
    }
    std::printf("%llu\n", static_cast<unsigned long long>(sent));
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    return run_program("k8sdds-link-flood", [&] { return run(argc, argv); });
}
