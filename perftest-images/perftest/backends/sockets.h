// What the kernel says of this process's sockets and of the machine's interfaces.
#pragma once

#include <netinet/in.h>

#include <string>
#include <vector>

namespace k8sdds {

struct UdpSocket {
    int fd;
    in_addr address, multicast_interface;
    uint16_t port;
    int receive_buffer, send_buffer;
};

std::vector<UdpSocket> own_udp_sockets();                 // IPv4

struct Interface {
    std::string name, address;
};

Interface interface_of(const std::string& name_or_address);   // empty name: there is none
std::string address_text(in_addr);
bool is_running(const std::string& interface);            // it has its carrier; comes a while after it is set up

}  // namespace k8sdds
