// The packets on the way: a pool of fixed size, and their order of departure. Nothing is allocated while packets pass.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace k8sdds {

constexpr std::uint32_t kNone = UINT32_MAX;
constexpr std::size_t kVnetBytes = 10;      // of struct virtio_net_hdr, in front of each frame

struct Packet {
    std::int64_t arrived = 0;
    std::int64_t finished = 0;              // the last bit left the bottleneck
    std::int64_t planned = 0;               // departure
    std::int64_t delay = 0;
    std::uint64_t number = 0;               // of its direction
    std::uint32_t length = 0;               // of the frame, in bytes
    std::uint32_t next = kNone;             // in a queue or in the list of free packets
    std::uint32_t run = 0;                  // which `start` it belongs to
    std::uint16_t line = 0;                 // its direction
    bool at_once = false;
};

// Packets, and memory for the frame of each, with its header. A second, small part has room for large frames.
class Pool {
public:
    Pool(std::size_t packets, std::size_t room, std::size_t large, std::size_t large_room);
    ~Pool();
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    // Return a packet with room for a frame, or kNone if all of them are in use.
    std::uint32_t take(std::size_t frame_bytes) {
        const std::size_t bytes = kVnetBytes + frame_bytes;
        std::uint32_t& head = bytes <= room_ ? free_ : free_large_;
        if (head == kNone || bytes > std::max(room_, large_room_)) return kNone;
        const std::uint32_t index = head;
        head = packets_[index].next;
        return index;
    }
    std::uint32_t copy(std::uint32_t from, std::size_t frame_bytes) {
        const std::uint32_t index = take(frame_bytes);
        if (index != kNone) std::memcpy(contents(index), contents(from), kVnetBytes + frame_bytes);
        return index;
    }
    void give(std::uint32_t index) {
        std::uint32_t& head = index < small_ ? free_ : free_large_;
        packets_[index].next = head;
        head = index;
    }
    Packet& operator[](std::uint32_t index) { return packets_[index]; }
    std::uint8_t* contents(std::uint32_t index) {
        return index < small_ ? memory_ + index * room_ : memory_ + small_ * room_ + (index - small_) * large_room_;
    }

private:
    std::size_t small_, room_, large_room_, mapped_ = 0;
    std::vector<Packet> packets_;
    std::uint8_t* memory_ = nullptr;
    std::uint32_t free_ = kNone, free_large_ = kNone;
};

// The packets of all directions by the time of their departure; those of one time in the order of arrival.
class Departures {
public:
    explicit Departures(std::size_t packets) { heap_.reserve(packets); }

    void add(std::int64_t time, std::uint32_t packet) {
        heap_.push_back({time, order_++, packet});
        std::push_heap(heap_.begin(), heap_.end(), later);
    }
    bool empty() const { return heap_.empty(); }
    std::int64_t next() const { return heap_.empty() ? INT64_MAX : heap_.front().time; }
    std::uint32_t take() {
        std::pop_heap(heap_.begin(), heap_.end(), later);
        const std::uint32_t packet = heap_.back().packet;
        heap_.pop_back();
        return packet;
    }

private:
    struct Entry {
        std::int64_t time;
        std::uint64_t order;
        std::uint32_t packet;
    };
    static bool later(const Entry& a, const Entry& b) { return a.time != b.time ? a.time > b.time : a.order > b.order; }

    std::vector<Entry> heap_;
    std::uint64_t order_ = 0;
};

}  // namespace k8sdds
