// One interface: a packet socket that reads from a ring in shared memory and sends in batches.
#pragma once

#include <linux/if_packet.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "packets.h"

namespace k8sdds {

class Port {
public:
    explicit Port(const std::string& interface);
    ~Port();
    Port(const Port&) = delete;
    Port& operator=(const Port&) = delete;

    int fd() const { return fd_; }
    std::uint32_t mtu() const { return mtu_; }

    struct Frame {
        const std::uint8_t* vnet = nullptr; // struct virtio_net_hdr
        const std::uint8_t* data = nullptr;
        std::uint32_t bytes = 0;            // with the VLAN tag that the kernel keeps apart
        std::uint32_t stored = 0;           // bytes at `data`; fewer than sent if the frame is too long
        bool whole = true;
        bool tagged = false;
        std::uint16_t tag = 0, tag_type = 0;
        std::int64_t realtime_ns = 0;       // when the kernel received it
    };
    bool receive(Frame& frame);             // false if none has arrived; else call `release` after its use
    void release();
    std::uint64_t missed();                 // packets since the last call for which the ring was full

    // Sends packets in order; returns how many the kernel took.
    static constexpr std::size_t kBatch = 32;
    std::size_t send(Pool& pool, const std::uint32_t* packets, std::size_t count);

    void take_error();                      // reads the pending error of the socket
    bool is_down();                         // throws Failure if the interface was deleted

private:
    void open_socket();
    void map_ring();
    tpacket2_hdr* slot() const {
        return reinterpret_cast<tpacket2_hdr*>(ring_ + static_cast<std::size_t>(next_) * slot_bytes_);
    }

    std::string interface_;
    int fd_ = -1;
    int index_ = 0;
    std::uint32_t mtu_ = 0;
    std::uint8_t* ring_ = nullptr;
    bool down_ = false;
    std::uint32_t slot_bytes_ = 0, slots_ = 0, next_ = 0;
    std::array<std::uint8_t, 1 << 17> long_frame_;  // one that has no room in a slot
    std::array<mmsghdr, kBatch> messages_{};
    std::array<iovec, kBatch> parts_{};
};

// Copies a frame into a packet with enough room, and puts the VLAN tag back into it.
void store(const Port::Frame& frame, std::uint8_t* contents);

}  // namespace k8sdds
