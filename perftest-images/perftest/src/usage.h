// What options mean together.
#pragma once

#include "options.h"

namespace k8sdds {

void check_combinations(Options&);                        // throws UsageError; resolves -pubRate
Settings make_settings(Options&);                         // reads -qosFile; throws UsageError

}  // namespace k8sdds
