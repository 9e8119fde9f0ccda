// Checks how options combine, and derives the backend's settings from them.
#pragma once

#include "options.h"

namespace k8sdds {

void check_combinations(Options&);                        // also resolves -pubRate and -discovery; throws UsageError
Settings make_settings(Options&);                         // also reads -qosFile; throws UsageError
std::string discovery_advice(const Options&);             // what to check when no peer is discovered

}  // namespace k8sdds
