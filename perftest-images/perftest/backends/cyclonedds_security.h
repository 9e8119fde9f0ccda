// DDS Security in Cyclone DDS: the plugins and documents as properties of a participant.
#pragma once

#include <dds/dds.h>

#include <string>

#include "backend.h"

namespace k8sdds {

// Why there is no DDS Security here, or nothing.
std::string cyclone_refuse_security(const Security&);

// Adds the properties to a participant's QoS.
void cyclone_secure(dds_qos_t* participant, const Security&);

}  // namespace k8sdds
