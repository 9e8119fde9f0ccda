#include "packet_socket.h"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

namespace k8sdds {

void require(bool works, const std::string& what) {
    if (!works) throw Failure(kPrerequisite, "cannot " + what + ": " + errno_text());
}

int index_of(const std::string& interface) {
    const auto index = if_nametoindex(interface.c_str());
    if (index == 0) throw Failure(kPrerequisite, "there is no interface " + interface);
    return static_cast<int>(index);
}

Fd packet_socket() {
    // Protocol 0 receives nothing until the socket is bound to the interface.
    Fd fd(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
    require(static_cast<bool>(fd), "capture packets");
    // Those that arrive cost nothing but this filter.
    sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<__u32>(SKF_AD_OFF + SKF_AD_PKTTYPE)),
                          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PACKET_OUTGOING, 0, 1),
                          BPF_STMT(BPF_RET | BPF_K, ~__u32{0}), BPF_STMT(BPF_RET | BPF_K, 0)};
    const sock_fprog program = {sizeof code / sizeof *code, code};
    require(setsockopt(fd.get(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) == 0, "select packets");
    return fd;
}

void start_packets(int fd, const std::string& interface) {
    sockaddr_ll address{};
    address.sll_family = AF_PACKET;
    address.sll_protocol = htons(ETH_P_ALL);
    address.sll_ifindex = index_of(interface);
    require(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0, "capture packets of " + interface);
}

bool has_link_header(int fd, const std::string& interface) {
    ifreq request{};
    interface.copy(request.ifr_name, IFNAMSIZ - 1);
    require(ioctl(fd, SIOCGIFHWADDR, &request) == 0, "inspect " + interface);
    const auto type = request.ifr_hwaddr.sa_family;
    return type == ARPHRD_ETHER || type == ARPHRD_LOOPBACK;
}

}  // namespace k8sdds
