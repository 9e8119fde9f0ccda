// Backend modules: libk8sdds-perftest-NAME.so beside the executable.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend.h"

namespace k8sdds {

std::vector<std::string> available_backends();
std::unique_ptr<Backend> load_backend(const std::string& name);   // throws UsageError naming those there are

}  // namespace k8sdds
