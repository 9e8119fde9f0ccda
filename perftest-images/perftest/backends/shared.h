// What backends have in common: how they refuse, settle and report the quality of service.
#pragma once

#include <map>
#include <string>

#include "backend.h"

namespace k8sdds {

// "FILE:LINE: <POLICY>: ", where the profile asks for what cannot be.
std::string qos_place(const QosProfile&, const EndpointQos&, const std::string& policy);

// Why there is no such interface here, or nothing.
std::string refuse_nic(const Settings&);

// The group that a DDS middleware sends samples to with -multicast.
std::string multicast_group(const Settings&);

// Sets what no profile decides: the last pong alone, the last ping alone, and a bound for samples that wait.
void settle_qos(Settings&);

// The policies as they are in force, as JSON text. What differs is laid over it.
std::map<std::string, std::string> qos_in_force(const QosProfile&);

}  // namespace k8sdds
