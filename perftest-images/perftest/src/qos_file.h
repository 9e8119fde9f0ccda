// QoS profiles: the two built-in profiles, and OMG DDS-XML files.
#pragma once

#include <string>

#include "backend.h"

namespace k8sdds {

QosProfile built_in_profile(bool best_effort);
QosProfile read_qos_file(const std::string& path);        // throws UsageError that names file, line and element

}  // namespace k8sdds
