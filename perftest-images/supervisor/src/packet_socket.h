// A socket that receives the packets that leave by an interface.
#pragma once

#include <string>

#include "support.h"

namespace k8sdds {

void require(bool works, const std::string& what);  // throws Failure(kPrerequisite) with the current errno: cannot `what`
int index_of(const std::string& interface);         // throws Failure(kPrerequisite) if it does not exist

Fd packet_socket();                                          // receives nothing yet
void start_packets(int fd, const std::string& interface);    // from now on, it receives those that leave by the interface
bool has_link_header(int fd, const std::string& interface);  // Ethernet; otherwise packets begin with the IP header

}  // namespace k8sdds
