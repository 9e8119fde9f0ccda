// The configuration of Cyclone DDS, derived from the options and the user's own configuration file.
#pragma once

#include <dds/dds.h>

#include <string>

#include "backend.h"

namespace k8sdds {

// The lengths of messages and fragments in effect.
struct CycloneLengths {
    int64_t message = 14720, fragment = 1344, retransmit = 1456;   // the library's defaults
    int64_t packed = message;                 // MaxMessageSize, up to which the library adds submessages to a message
};
CycloneLengths cyclonedds_lengths(const Settings&);

// Returns why these settings are not supported, with the fix; empty if they are.
std::string cyclonedds_unsupported(const Settings&);

// Creates the domain, and returns it or a negative error. `messages` gets what the library logs.
dds_entity_t cyclonedds_domain(const Settings&, std::string& messages);

// Adds the DDS Security plugins and documents to the QoS of a participant. Does nothing without DDS Security.
void cyclonedds_add_security(dds_qos_t* participant, const Security&);

}  // namespace k8sdds
