// Counts the packets that leave by an interface, by kind and over time.

#include <linux/if_packet.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>

#include "commands.h"
#include "json.h"
#include "packet_kinds.h"
#include "packet_socket.h"
#include "participant.h"

namespace k8sdds {

namespace {

constexpr std::int64_t kIntervalNs = 100'000'000;

// The packets that the kernel stores for this program, which are read at times of its own: none of them wakes it up.
class Ring {
public:
    explicit Ring(int fd) {
        const int version = TPACKET_V2;
        require(setsockopt(fd, SOL_PACKET, PACKET_VERSION, &version, sizeof version) == 0, "capture packets");
        tpacket_req request{};
        request.tp_block_size = kBlockBytes;
        request.tp_block_nr = kFrames * kFrameBytes / kBlockBytes;
        request.tp_frame_size = kFrameBytes;
        request.tp_frame_nr = kFrames;
        require(setsockopt(fd, SOL_PACKET, PACKET_RX_RING, &request, sizeof request) == 0, "store packets");
        void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        require(memory != MAP_FAILED, "store packets");
        memory_ = static_cast<std::uint8_t*>(memory);
    }
    Ring(const Ring&) = delete;
    Ring& operator=(const Ring&) = delete;
    ~Ring() { munmap(memory_, kBytes); }

    // Calls `count` with the header of each stored packet.
    template <typename Count>
    void drain(Count count) {
        while (true) {
            auto* const header = reinterpret_cast<tpacket2_hdr*>(memory_ + next_ * kFrameBytes);
            if (!(__atomic_load_n(&header->tp_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER)) return;
            count(*header);
            __atomic_store_n(&header->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
            next_ = (next_ + 1) % kFrames;
        }
    }

private:
    // The heads of as many packets as leave between two readings at 80,000 packets per second.
    static constexpr unsigned kFrameBytes = 512, kFrames = 4096, kBlockBytes = 1 << 16;
    static constexpr std::size_t kBytes = std::size_t{kFrames} * kFrameBytes;
    std::uint8_t* memory_ = nullptr;
    std::size_t next_ = 0;
};

struct Counted {
    std::uint64_t packets = 0, bytes = 0;
};

// The numbers of packets in each interval since the start, which is a whole one of CLOCK_MONOTONIC.
class Counts {
public:
    Counts() { intervals_.reserve(kReserved); }

    void add(const CountedPacket& packet, std::int64_t at_ns) {
        const auto index = static_cast<std::size_t>(std::max<std::int64_t>(at_ns - start_ns_, 0) / kIntervalNs);
        if (index >= intervals_.size()) intervals_.resize(index + 1);
        Counted& counted = intervals_[index][static_cast<std::size_t>(packet.kind)];
        ++counted.packets;
        counted.bytes += packet.ip_bytes;
    }

    Json report(unsigned dropped) const {
        Json rows = Json::array();
        for (std::size_t i = 0; i < intervals_.size(); ++i)
            for (std::size_t kind = 0; kind < kKinds; ++kind)
                if (const Counted& counted = intervals_[i][kind]; counted.packets)
                    rows.push_back({i, kKindNames[kind], counted.packets, counted.bytes});
        return {{"start_monotonic_ns", start_ns_}, {"interval_ns", kIntervalNs}, {"dropped_packets", dropped}, {"rows", rows}};
    }

private:
    static constexpr std::size_t kReserved = 3000;  // 5 minutes
    const std::int64_t start_ns_ = monotonic_ns() / kIntervalNs * kIntervalNs;
    std::vector<std::array<Counted, kKinds>> intervals_;
};

// Waits; returns whether standard input has ended or has a line.
bool stopped_within(int milliseconds) {
    pollfd input = {STDIN_FILENO, POLLIN, 0};
    const int ready = poll(&input, 1, milliseconds);
    require(ready >= 0 || errno == EINTR, "wait for the end of standard input");
    return ready > 0;
}

}  // namespace

int count_kinds(const Options& options) {
    constexpr int reading_ms = 50;
    require_cpus("--own-cpus", options.own_cpus);
    if (!options.own_cpus.empty()) pin_to(cpu_mask(options.own_cpus));
    const Fd fd = packet_socket();
    const bool link_header = has_link_header(fd.get(), options.interface);
    Ring ring(fd.get());
    Counts counts;
    start_packets(fd.get(), options.interface);
    std::fputs("ready\n", stderr);
    for (bool stopped = false; !stopped;) {
        stopped = stopped_within(reading_ms);
        // The kernel's times are those of CLOCK_REALTIME, which can be set meanwhile: then no packet is of the future.
        const std::int64_t now_ns = monotonic_ns(), offset_ns = now_ns - realtime_ns();
        ring.drain([&](const tpacket2_hdr& header) {
            const auto* const frame = reinterpret_cast<const std::uint8_t*>(&header) + header.tp_mac;
            const std::int64_t at_ns = std::int64_t{header.tp_sec} * 1'000'000'000 + header.tp_nsec + offset_ns;
            counts.add(counted_packet(frame, header.tp_snaplen, header.tp_len, link_header), std::min(at_ns, now_ns));
        });
    }
    tpacket_stats statistics{};
    socklen_t size = sizeof statistics;
    require(getsockopt(fd.get(), SOL_PACKET, PACKET_STATISTICS, &statistics, &size) == 0, "read the number of lost packets");
    std::puts(json_text(counts.report(statistics.tp_drops)).c_str());
    return 0;
}

}  // namespace k8sdds
