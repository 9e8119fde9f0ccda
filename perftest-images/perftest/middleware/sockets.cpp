#include "sockets.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <linux/tcp.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace k8sdds {

namespace {

template <typename Value>
void read_option(int fd, int level, int name, Value& value) {
    socklen_t length = sizeof value;
    getsockopt(fd, level, name, &value, &length);
}

SocketAddress from_kernel(const sockaddr* address) {
    SocketAddress result;
    std::memcpy(result.get(), address, address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
    return result;
}

bool has_family(const ifaddrs& entry, bool ipv6) {
    return entry.ifa_addr && entry.ifa_addr->sa_family == (ipv6 ? AF_INET6 : AF_INET);
}

bool is_link_local(const ifaddrs& entry) {
    return entry.ifa_addr->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(entry.ifa_addr)->sin6_addr);
}

std::string multicast_address_of(int fd, bool ipv6) {
    if (!ipv6) {
        in_addr address{};
        read_option(fd, IPPROTO_IP, IP_MULTICAST_IF, address);
        char text[INET_ADDRSTRLEN];
        return address.s_addr != INADDR_ANY && inet_ntop(AF_INET, &address, text, sizeof text) ? text : "";
    }
    int index = 0;
    read_option(fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, index);
    char name[IF_NAMESIZE];
    return index && if_indextoname(static_cast<unsigned>(index), name) ? interface_of(name, true).address : "";
}

}  // namespace

SocketAddress::SocketAddress(const std::string& address, uint16_t port, bool ipv6) {
    any_.sa_family = ipv6 ? AF_INET6 : AF_INET;
    set_port(port);
    if (address.empty()) return;
    if (ipv6) inet_pton(AF_INET6, address.c_str(), &v6_.sin6_addr);
    else inet_pton(AF_INET, address.c_str(), &v4_.sin_addr);
}

bool SocketAddress::is_unspecified() const {
    return is_ipv6() ? IN6_IS_ADDR_UNSPECIFIED(&v6_.sin6_addr) : v4_.sin_addr.s_addr == INADDR_ANY;
}

bool SocketAddress::is_multicast() const {
    return is_ipv6() ? IN6_IS_ADDR_MULTICAST(&v6_.sin6_addr) : IN_MULTICAST(ntohl(v4_.sin_addr.s_addr));
}

std::string SocketAddress::text() const {
    char text[INET6_ADDRSTRLEN];
    const void* address = is_ipv6() ? static_cast<const void*>(&v6_.sin6_addr) : &v4_.sin_addr;
    return inet_ntop(any_.sa_family, address, text, sizeof text) ? text : "";
}

uint16_t SocketAddress::port() const { return ntohs(is_ipv6() ? v6_.sin6_port : v4_.sin_port); }

void SocketAddress::set_port(uint16_t port) { (is_ipv6() ? v6_.sin6_port : v4_.sin_port) = htons(port); }

bool SocketAddress::operator==(const SocketAddress& other) const {
    if (any_.sa_family != other.any_.sa_family || port() != other.port()) return false;
    return is_ipv6() ? IN6_ARE_ADDR_EQUAL(&v6_.sin6_addr, &other.v6_.sin6_addr)
                     : v4_.sin_addr.s_addr == other.v4_.sin_addr.s_addr;
}

std::vector<OwnSocket> own_sockets() {
    std::vector<OwnSocket> sockets;
    DIR* folder = opendir("/proc/self/fd");
    if (!folder) return sockets;
    while (const dirent* entry = readdir(folder)) {
        if (entry->d_name[0] == '.') continue;
        OwnSocket s{};
        s.fd = std::atoi(entry->d_name);
        socklen_t length = sizeof s.type;
        if (getsockopt(s.fd, SOL_SOCKET, SO_TYPE, &s.type, &length) != 0) continue;
        if (s.type != SOCK_DGRAM && s.type != SOCK_STREAM) continue;
        length = SocketAddress::max_length;
        if (getsockname(s.fd, s.address.get(), &length) != 0) continue;
        if (const auto family = s.address.get()->sa_family; family != AF_INET && family != AF_INET6) continue;
        read_option(s.fd, SOL_SOCKET, SO_RCVBUF, s.receive_buffer);
        read_option(s.fd, SOL_SOCKET, SO_SNDBUF, s.send_buffer);
        s.multicast_address = multicast_address_of(s.fd, s.address.is_ipv6());
        sockets.push_back(s);
    }
    closedir(folder);
    return sockets;
}

std::string used_address(const std::vector<OwnSocket>& sockets) {
    for (const OwnSocket& socket : sockets) {
        if (socket.is_bound()) return socket.address.text();
        if (!socket.multicast_address.empty()) return socket.multicast_address;
    }
    return "";
}

uint64_t own_tcp_retransmitted_bytes() {
    uint64_t bytes = 0;
    for (const OwnSocket& socket : own_sockets()) {
        tcp_info info{};
        socklen_t length = sizeof info;
        if (socket.type == SOCK_STREAM && getsockopt(socket.fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0)
            bytes += info.tcpi_bytes_retrans;
    }
    return bytes;
}

// The lower two bits of the field are for congestion notification.
void set_own_dscp(int dscp) {
    const int field = dscp << 2;
    for (const OwnSocket& socket : own_sockets())
        if (socket.address.is_ipv6()) setsockopt(socket.fd, IPPROTO_IPV6, IPV6_TCLASS, &field, sizeof field);
        else setsockopt(socket.fd, IPPROTO_IP, IP_TOS, &field, sizeof field);
}

std::set<int> own_dscp() {
    std::set<int> all;
    for (const OwnSocket& socket : own_sockets()) {
        int field = 0;
        if (socket.address.is_ipv6()) read_option(socket.fd, IPPROTO_IPV6, IPV6_TCLASS, field);
        else read_option(socket.fd, IPPROTO_IP, IP_TOS, field);
        all.insert(field >> 2);
    }
    return all;
}

Interface interface_of(const std::string& name_or_address, bool ipv6) {
    Interface match;
    ifaddrs* all = nullptr;
    if (getifaddrs(&all) != 0) return match;
    for (const ifaddrs* i = all; i; i = i->ifa_next) {
        if (!has_family(*i, ipv6) || is_link_local(*i)) continue;
        const std::string address = from_kernel(i->ifa_addr).text();
        if (name_or_address == i->ifa_name || name_or_address == address) {
            match = {i->ifa_name, address};
            break;
        }
    }
    freeifaddrs(all);
    return match;
}

int64_t mtu_of(const std::string& name_or_address, bool ipv6) {
    const std::string name = interface_of(name_or_address, ipv6).name;
    if (name.empty()) return 0;
    ifreq request{};
    name.copy(request.ifr_name, IFNAMSIZ - 1);
    const int fd = socket(ipv6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const bool read = fd >= 0 && ioctl(fd, SIOCGIFMTU, &request) == 0;
    if (fd >= 0) close(fd);
    return read ? request.ifr_mtu : 0;
}

bool has_multicast(const std::string& name_or_address, bool ipv6) {
    constexpr unsigned flags = IFF_UP | IFF_MULTICAST;
    bool multicast = false;
    ifaddrs* all = nullptr;
    if (getifaddrs(&all) != 0) return false;
    for (const ifaddrs* i = all; i; i = i->ifa_next) {
        if (!has_family(*i, ipv6) || is_link_local(*i) || (i->ifa_flags & flags) != flags) continue;
        multicast = multicast || name_or_address.empty() || name_or_address == i->ifa_name ||
                    name_or_address == from_kernel(i->ifa_addr).text();
    }
    freeifaddrs(all);
    return multicast;
}

bool is_running(const std::string& interface) {
    bool running = false;
    ifaddrs* all = nullptr;
    if (getifaddrs(&all) != 0) return false;
    for (const ifaddrs* i = all; i; i = i->ifa_next)
        running = running || (interface == i->ifa_name && (i->ifa_flags & IFF_RUNNING));
    freeifaddrs(all);
    return running;
}

}  // namespace k8sdds
