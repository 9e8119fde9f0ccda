// Reads the sockets of this process and the interfaces of this host from the kernel.
#pragma once

#include <netinet/in.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace k8sdds {

struct UdpSocket {
    int fd;
    in_addr address, multicast_interface;
    uint16_t port;
    int receive_buffer, send_buffer;
};

std::vector<UdpSocket> own_udp_sockets();                 // IPv4 only

void set_own_dscp(int dscp);                              // on the sockets that exist now
std::set<int> own_dscp();

struct Interface {
    std::string name, address;
};

Interface interface_of(const std::string& name_or_address);   // an empty name means that none matches
std::string address_text(in_addr);
int64_t mtu_of(const std::string& name_or_address);      // bytes; 0: there is no such interface
bool has_multicast(const std::string& name_or_address);       // of any interface, if empty
bool is_running(const std::string& interface);            // has a carrier, which comes some time after the link is up

}  // namespace k8sdds
