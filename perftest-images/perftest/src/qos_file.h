// QoS profiles: the two built-in profiles, and OMG DDS-XML files.
#pragma once

#include <string>

#include "backend.h"

namespace k8sdds {

QosProfile built_in_profile(bool best_effort);
// Throw UsageError that names file, line and element.
QosProfile read_qos_file(const std::string& path);
QosProfile parse_qos(const std::string& path, const std::string& text);   // the content of the file

}  // namespace k8sdds
