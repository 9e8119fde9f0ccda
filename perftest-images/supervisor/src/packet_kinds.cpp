#include "packet_kinds.h"

#include <algorithm>
#include <cstring>
#include <optional>

namespace k8sdds {

namespace {

constexpr std::size_t kEthernetBytes = 14, kVlanBytes = 4, kIpv4Bytes = 20, kIpv6Bytes = 40, kUdpBytes = 8, kRtpsBytes = 20;
constexpr std::uint16_t kIpv4 = 0x0800, kIpv6 = 0x86dd;
constexpr std::uint8_t kTcp = 6, kUdp = 17;
constexpr std::uint32_t kScoutingPort = 7446;  // Zenoh's default

// Stored bytes of a packet. Reading past their end gives zeros; `has` and `skip` check before it.
class Bytes {
public:
    Bytes(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
    std::size_t size() const { return size_; }
    bool has(std::size_t bytes) const { return bytes <= size_; }
    std::uint32_t at(std::size_t i) const { return i < size_ ? data_[i] : 0; }
    std::uint32_t big(std::size_t i, int bytes) const {
        std::uint32_t value = 0;
        for (int n = 0; n < bytes; ++n) value = value << 8 | at(i + static_cast<std::size_t>(n));
        return value;
    }
    std::uint32_t little16(std::size_t i) const { return at(i) | at(i + 1) << 8; }
    Bytes from(std::size_t i) const { return {data_ + std::min(i, size_), size_ - std::min(i, size_)}; }

private:
    const std::uint8_t* data_;
    std::size_t size_;
};

// The content of an IP packet.
struct Content {
    std::uint8_t protocol;
    Bytes bytes;
    bool later_fragment;
};

bool is_vlan(std::uint32_t type) { return type == 0x8100 || type == 0x88a8; }

Content ipv4_content(Bytes packet) {
    const std::size_t header = std::max<std::size_t>((packet.at(0) & 15) * 4, kIpv4Bytes);
    return {static_cast<std::uint8_t>(packet.at(9)), packet.from(header), (packet.big(6, 2) & 0x1fff) != 0};
}

// Skips the extension headers that can precede TCP and UDP (RFC 8200, section 4).
Content ipv6_content(Bytes packet) {
    Content content{static_cast<std::uint8_t>(packet.at(6)), packet.from(kIpv6Bytes), false};
    while (content.bytes.has(8)) {
        constexpr std::uint8_t hop_by_hop = 0, routing = 43, fragment = 44, destination = 60;
        const bool in_eights = content.protocol == hop_by_hop || content.protocol == routing || content.protocol == destination;
        if (!in_eights && content.protocol != fragment) break;
        if (content.protocol == fragment && content.bytes.big(2, 2) >> 3) content.later_fragment = true;
        const std::size_t length = in_eights ? (content.bytes.at(1) + 1) * 8 : 8;
        content.protocol = static_cast<std::uint8_t>(content.bytes.at(0));
        content.bytes = content.bytes.from(length);
        if (content.later_fragment) break;
    }
    return content;
}

Kind kind_of_entity(std::uint32_t writer) {
    switch (writer) {
    case 0x000100c2: case 0xff0101c2: return Kind::participants;
    case 0x000003c2: case 0x000004c2: case 0xff0003c2: case 0xff0004c2: return Kind::endpoints;
    case 0x000200c2: case 0xff0200c2: return Kind::liveliness;
    default: break;
    }
    // The highest bits of an entity kind: 0 is the user's, 1 the vendor's, 3 built in (RTPS 2.5, section 9.3.1.2).
    return (writer & 0xc0) == 0 ? Kind::data : Kind::other_discovery;
}

// Returns where the body of a submessage has the id of its writer.
std::optional<std::size_t> writer_offset(std::uint32_t submessage) {
    switch (submessage) {
    case 0x06: case 0x07: case 0x08: case 0x12: case 0x13: return 4;  // ACKNACK, HEARTBEAT, GAP, NACK_FRAG, HEARTBEAT_FRAG
    case 0x15: case 0x16: return 8;                                   // DATA, DATA_FRAG
    default: return std::nullopt;
    }
}

// Returns the kind of the first submessage that has a writer.
Kind kind_of_rtps(Bytes message) {
    constexpr std::size_t head_bytes = 4, id_bytes = 4;
    constexpr std::uint32_t pad = 0x01, info_timestamp = 0x09, first_secure = 0x30, last_secure = 0x34;
    bool encrypted = false;
    for (Bytes rest = message.from(kRtpsBytes); rest.has(head_bytes);) {
        const std::uint32_t id = rest.at(0);
        if (const auto offset = writer_offset(id)) {
            const std::size_t at = head_bytes + *offset;
            return rest.has(at + id_bytes) ? kind_of_entity(rest.big(at, 4)) : Kind::other;
        }
        encrypted = encrypted || (id >= first_secure && id <= last_secure);
        const std::size_t length = rest.at(1) & 1 ? rest.little16(2) : rest.big(2, 2);
        // 0 is the length of a submessage up to the end of the message, unless its content is empty.
        if (length == 0 && id != pad && id != info_timestamp) break;
        rest = rest.from(head_bytes + length);
    }
    return encrypted ? Kind::encrypted : Kind::other;
}

bool is_rtps(Bytes payload) { return payload.has(kRtpsBytes) && payload.big(0, 4) == 0x52545053; }

// The answer to a scout comes from one port of its own and goes to another one: HELLO of protocol version 9.
bool is_hello(Bytes payload) { return payload.has(2) && (payload.at(0) & 0x1f) == 2 && payload.at(1) == 9; }

Kind kind_of_content(const Content& content) {
    if (content.later_fragment) return Kind::fragments;
    // Peers of Zenoh listen on any ports, so its sessions are known by what they are not.
    if (content.protocol == kTcp) return Kind::zenoh;
    if (content.protocol != kUdp || !content.bytes.has(kUdpBytes)) return Kind::other;
    const Bytes payload = content.bytes.from(kUdpBytes);
    if (is_rtps(payload)) return kind_of_rtps(payload);
    const bool at_port = content.bytes.big(0, 2) == kScoutingPort || content.bytes.big(2, 2) == kScoutingPort;
    return at_port || is_hello(payload) ? Kind::scouting : Kind::zenoh;
}

}  // namespace

CountedPacket counted_packet(const std::uint8_t* frame, std::size_t stored, std::size_t size, bool has_link_header) {
    const Bytes whole(frame, stored);
    std::size_t header = has_link_header ? kEthernetBytes : 0;
    std::uint32_t type = has_link_header ? whole.big(12, 2) : whole.at(0) >> 4 == 6 ? kIpv6 : kIpv4;
    while (has_link_header && is_vlan(type)) {
        type = whole.big(header + 2, 2);
        header += kVlanBytes;
    }
    const Bytes packet = whole.from(header);
    const std::uint64_t rest = size - std::min(header, size);
    if (type == kIpv4 && packet.has(kIpv4Bytes)) {
        // Packets that the interface segments can have the length 0; short Ethernet frames are padded.
        const std::uint32_t length = packet.big(2, 2);
        return {kind_of_content(ipv4_content(packet)), length ? length : rest};
    }
    if (type == kIpv6 && packet.has(kIpv6Bytes)) {
        const std::uint32_t length = packet.big(4, 2);
        return {kind_of_content(ipv6_content(packet)), length ? kIpv6Bytes + length : rest};
    }
    return {Kind::other, rest};
}

}  // namespace k8sdds
