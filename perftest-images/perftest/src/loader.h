// Loads backend modules: libk8sdds-perftest-NAME.so in the folder of the executable.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend.h"

namespace k8sdds {

std::vector<std::string> available_backends();
std::unique_ptr<Backend> load_backend(const std::string& name);   // throws UsageError that lists the available ones

}  // namespace k8sdds
