#include "sockets.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>

namespace k8sdds {

std::vector<UdpSocket> own_udp_sockets() {
    std::vector<UdpSocket> sockets;
    DIR* folder = opendir("/proc/self/fd");
    if (!folder) return sockets;
    while (const dirent* entry = readdir(folder)) {
        if (entry->d_name[0] == '.') continue;
        UdpSocket s{};
        s.fd = std::atoi(entry->d_name);
        int type = 0;
        socklen_t length = sizeof type;
        sockaddr_in local{};
        if (getsockopt(s.fd, SOL_SOCKET, SO_TYPE, &type, &length) != 0 || type != SOCK_DGRAM) continue;
        length = sizeof local;
        if (getsockname(s.fd, reinterpret_cast<sockaddr*>(&local), &length) != 0 || local.sin_family != AF_INET) continue;
        s.address = local.sin_addr;
        s.port = ntohs(local.sin_port);
        length = sizeof s.receive_buffer;
        getsockopt(s.fd, SOL_SOCKET, SO_RCVBUF, &s.receive_buffer, &length);
        length = sizeof s.send_buffer;
        getsockopt(s.fd, SOL_SOCKET, SO_SNDBUF, &s.send_buffer, &length);
        length = sizeof s.multicast_interface;
        getsockopt(s.fd, IPPROTO_IP, IP_MULTICAST_IF, &s.multicast_interface, &length);
        sockets.push_back(s);
    }
    closedir(folder);
    return sockets;
}

// The lower two bits of the field are for congestion notification.
void set_own_dscp(int dscp) {
    const int field = dscp << 2;
    for (const UdpSocket& socket : own_udp_sockets()) setsockopt(socket.fd, IPPROTO_IP, IP_TOS, &field, sizeof field);
}

std::set<int> own_dscp() {
    std::set<int> all;
    for (const UdpSocket& socket : own_udp_sockets()) {
        int field = 0;
        socklen_t length = sizeof field;
        if (getsockopt(socket.fd, IPPROTO_IP, IP_TOS, &field, &length) == 0) all.insert(field >> 2);
    }
    return all;
}

std::string address_text(in_addr address) {
    char text[INET_ADDRSTRLEN];
    return inet_ntop(AF_INET, &address, text, sizeof text) ? text : "";
}

Interface interface_of(const std::string& name_or_address) {
    Interface match;
    ifaddrs* all = nullptr;
    if (getifaddrs(&all) != 0) return match;
    for (const ifaddrs* i = all; i; i = i->ifa_next) {
        if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET) continue;
        const std::string address = address_text(reinterpret_cast<const sockaddr_in*>(i->ifa_addr)->sin_addr);
        if (name_or_address == i->ifa_name || name_or_address == address) {
            match = {i->ifa_name, address};
            break;
        }
    }
    freeifaddrs(all);
    return match;
}

int64_t mtu_of(const std::string& name_or_address) {
    const std::string name = interface_of(name_or_address).name;
    if (name.empty()) return 0;
    ifreq request{};
    name.copy(request.ifr_name, IFNAMSIZ - 1);
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const bool read = fd >= 0 && ioctl(fd, SIOCGIFMTU, &request) == 0;
    if (fd >= 0) close(fd);
    return read ? request.ifr_mtu : 0;
}

bool has_multicast(const std::string& name_or_address) {
    constexpr unsigned flags = IFF_UP | IFF_MULTICAST;
    bool multicast = false;
    ifaddrs* all = nullptr;
    if (getifaddrs(&all) != 0) return false;
    for (const ifaddrs* i = all; i; i = i->ifa_next) {
        if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET || (i->ifa_flags & flags) != flags) continue;
        multicast = multicast || name_or_address.empty() || name_or_address == i->ifa_name ||
                    name_or_address == address_text(reinterpret_cast<const sockaddr_in*>(i->ifa_addr)->sin_addr);
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
