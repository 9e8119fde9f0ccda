// The configuration of Cyclone DDS, derived from the options alone.
#pragma once

#include <dds/dds.h>

#include <string>

#include "backend.h"

namespace k8sdds {

// The library's defaults, which the program reports and does not change.
constexpr int64_t cyclonedds_max_message = 14720, cyclonedds_fragment = 1344;

// Returns why these settings are not supported, with the fix; empty if they are.
std::string cyclonedds_unsupported(const Settings&);

// Returns the configuration of the domain as XML.
std::string cyclonedds_config(const Settings&);

// Adds the DDS Security plugins and documents to the QoS of a participant. Does nothing without DDS Security.
void cyclonedds_add_security(dds_qos_t* participant, const Security&);

}  // namespace k8sdds
