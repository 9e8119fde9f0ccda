#include "port.h"

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "failure.h"
#include "frame.h"

namespace k8sdds {

namespace {

// struct virtio_net_hdr, in the order of bytes of this machine. linux/virtio_net.h is not C++.
struct VnetHeader {
    std::uint8_t flags, gso_type;
    std::uint16_t hdr_len, gso_size, csum_start, csum_offset;
};
static_assert(sizeof(VnetHeader) == kVnetBytes);
constexpr std::uint8_t kNeedsChecksum = 1;

constexpr std::uint32_t kRingBytes = 4 << 20, kBlockBytes = 1 << 16;
constexpr int kLargestBuffer = 16 << 20;

std::uint32_t power_of_two(std::uint32_t value) {
    std::uint32_t power = 2048;
    while (power < value) power *= 2;
    return power;
}

}  // namespace

Port::Port(const std::string& interface) : interface_(interface) {
    open_socket();
    map_ring();
    sockaddr_ll address{};
    address.sll_family = AF_PACKET;
    address.sll_protocol = htons(ETH_P_ALL);
    address.sll_ifindex = index_;
    if (bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
        throw Failure(kSystem, interface_ + ": cannot bind to the interface: " + errno_text());
    missed();
}

Port::~Port() {
    if (ring_ != nullptr) munmap(ring_, kRingBytes);
    if (fd_ >= 0) close(fd_);
}

void Port::open_socket() {
    index_ = static_cast<int>(if_nametoindex(interface_.c_str()));
    if (index_ == 0) throw Failure(kUsage, interface_ + ": " + errno_text());
    // No protocol: nothing arrives until the ring exists and the socket is bound to its interface.
    fd_ = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd_ < 0)
        throw Failure(kSystem, "cannot open a packet socket: " + errno_text() +
                                   (errno == EPERM ? "; run the program with CAP_NET_RAW in this network namespace" : ""));
    ifreq request{};
    std::strncpy(request.ifr_name, interface_.c_str(), IFNAMSIZ - 1);
    if (ioctl(fd_, SIOCGIFMTU, &request) != 0) throw Failure(kSystem, interface_ + ": cannot read the MTU: " + errno_text());
    mtu_ = static_cast<std::uint32_t>(request.ifr_mtu);
    const auto set = [&](int level, int option, const auto& value, const char* what) {
        if (setsockopt(fd_, level, option, &value, sizeof value) != 0)
            throw Failure(kSystem, interface_ + ": cannot set " + what + ": " + errno_text());
    };
    set(SOL_PACKET, PACKET_VERSION, static_cast<int>(TPACKET_V2), "the version of the ring");
    set(SOL_PACKET, PACKET_VNET_HDR, 1, "PACKET_VNET_HDR");
    set(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1, "PACKET_IGNORE_OUTGOING");
    set(SOL_PACKET, PACKET_QDISC_BYPASS, 1, "PACKET_QDISC_BYPASS");
    set(SOL_PACKET, PACKET_COPY_THRESH, 1, "PACKET_COPY_THRESH");
    packet_mreq promiscuous{};
    promiscuous.mr_ifindex = index_;
    promiscuous.mr_type = PACKET_MR_PROMISC;
    set(SOL_PACKET, PACKET_ADD_MEMBERSHIP, promiscuous, "promiscuous mode");
    // Buffers for what is sent and for long frames: as large as this user may.
    for (const auto& [forced, plain] : {std::pair{SO_SNDBUFFORCE, SO_SNDBUF}, {SO_RCVBUFFORCE, SO_RCVBUF}})
        if (setsockopt(fd_, SOL_SOCKET, forced, &kLargestBuffer, sizeof kLargestBuffer) != 0)
            set(SOL_SOCKET, plain, kLargestBuffer, "the size of its buffers");
}

// A ring of version 2 provides each packet at once, with its time of arrival. One of version 3 provides blocks, after 1 ms or
// later. With recvmmsg(), half of the packets departed twice to four times as late at 100,000 packets/s, and an ordinary user
// may have only a short buffer (net.core.rmem_max).
void Port::map_ring() {
    slot_bytes_ = power_of_two(mtu_ + 256);
    tpacket_req request{};
    request.tp_block_size = std::max(kBlockBytes, slot_bytes_);
    request.tp_block_nr = kRingBytes / request.tp_block_size;
    request.tp_frame_size = slot_bytes_;
    request.tp_frame_nr = slots_ = kRingBytes / slot_bytes_;
    if (setsockopt(fd_, SOL_PACKET, PACKET_RX_RING, &request, sizeof request) != 0)
        throw Failure(kSystem, interface_ + ": cannot create a ring of packets: " + errno_text());
    void* ring = mmap(nullptr, kRingBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    if (ring == MAP_FAILED) throw Failure(kSystem, interface_ + ": cannot map the ring of packets: " + errno_text());
    ring_ = static_cast<std::uint8_t*>(ring);
}

bool Port::receive(Frame& frame) {
    tpacket2_hdr* header = slot();
    const std::uint32_t status = __atomic_load_n(&header->tp_status, __ATOMIC_ACQUIRE);
    if ((status & TP_STATUS_USER) == 0) return false;
    frame.data = reinterpret_cast<const std::uint8_t*>(header) + header->tp_mac;
    frame.vnet = frame.data - kVnetBytes;
    frame.stored = header->tp_snaplen;
    if ((status & TP_STATUS_COPY) != 0) {
        const ssize_t length = recv(fd_, long_frame_.data(), long_frame_.size(), MSG_DONTWAIT);
        frame.vnet = long_frame_.data();
        frame.data = frame.vnet + kVnetBytes;
        frame.stored = length < static_cast<ssize_t>(kVnetBytes) ? 0 : static_cast<std::uint32_t>(length) - kVnetBytes;
    }
    frame.whole = frame.stored == header->tp_len && frame.stored >= kEthernetBytes;
    frame.tagged = (status & TP_STATUS_VLAN_VALID) != 0;
    frame.tag = header->tp_vlan_tci;
    frame.tag_type = (status & TP_STATUS_VLAN_TPID_VALID) != 0 ? header->tp_vlan_tpid : ETH_P_8021Q;
    frame.bytes = header->tp_len + (frame.tagged ? kVlanBytes : 0);
    frame.realtime_ns = header->tp_sec * 1'000'000'000LL + header->tp_nsec;
    return true;
}

void Port::release() {
    __atomic_store_n(&slot()->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
    if (++next_ == slots_) next_ = 0;
}

std::uint64_t Port::missed() {
    tpacket_stats statistics{};
    socklen_t length = sizeof statistics;
    if (getsockopt(fd_, SOL_PACKET, PACKET_STATISTICS, &statistics, &length) != 0)
        throw Failure(kSystem, interface_ + ": cannot read the statistics of the socket: " + errno_text());
    return statistics.tp_drops;
}

std::size_t Port::send(Pool& pool, const std::uint32_t* packets, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
        parts_[i] = {pool.contents(packets[i]), kVnetBytes + pool[packets[i]].length};
        messages_[i].msg_hdr.msg_iov = &parts_[i];
        messages_[i].msg_hdr.msg_iovlen = 1;
    }
    int sent;
    do sent = sendmmsg(fd_, messages_.data(), static_cast<unsigned>(count), MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? 0 : static_cast<std::size_t>(sent);
}

void Port::take_error() {
    int error = 0;
    socklen_t length = sizeof error;
    getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &length);
    down_ |= error == ENETDOWN;
}

bool Port::is_down() {
    if (!down_) return false;
    ifreq request{};
    if (if_indextoname(static_cast<unsigned>(index_), request.ifr_name) == nullptr)
        throw Failure(kSystem, interface_ + ": the interface was deleted");
    down_ = ioctl(fd_, SIOCGIFFLAGS, &request) != 0 || (request.ifr_flags & IFF_UP) == 0;
    return down_;
}

void store(const Port::Frame& frame, std::uint8_t* contents) {
    if (!frame.tagged) {
        std::memcpy(contents, frame.vnet, kVnetBytes);
        std::memcpy(contents + kVnetBytes, frame.data, frame.stored);
        return;
    }
    constexpr std::size_t kAddresses = 12;
    VnetHeader vnet;
    std::memcpy(&vnet, frame.vnet, sizeof vnet);
    if ((vnet.flags & kNeedsChecksum) != 0) vnet.csum_start = static_cast<std::uint16_t>(vnet.csum_start + kVlanBytes);
    if (vnet.hdr_len > 0) vnet.hdr_len = static_cast<std::uint16_t>(vnet.hdr_len + kVlanBytes);
    std::memcpy(contents, &vnet, sizeof vnet);
    contents += kVnetBytes;
    const std::uint16_t tag[2] = {htons(frame.tag_type), htons(frame.tag)};
    std::memcpy(contents, frame.data, kAddresses);
    std::memcpy(contents + kAddresses, tag, kVlanBytes);
    std::memcpy(contents + kAddresses + kVlanBytes, frame.data + kAddresses, frame.stored - kAddresses);
}

}  // namespace k8sdds
