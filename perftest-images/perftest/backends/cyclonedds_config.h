// The configuration of a Cyclone DDS domain, made from the options alone.
#pragma once

#include <string>

#include "backend.h"

namespace k8sdds {

// Left at the library's defaults; reported.
constexpr int64_t cyclone_max_message = 14720, cyclone_fragment = 1344;

std::string cyclone_refuse(const Settings&);
std::string cyclone_config(const Settings&);              // XML

}  // namespace k8sdds
