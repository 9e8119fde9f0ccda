// The files of DDS Security, looked at before a middleware does: some refuse without a reason, some hours later.
#pragma once

#include "options.h"

namespace k8sdds {

// UsageError where files are missing, unreadable, expired or do not belong together, or where others may
// read the private key.
void check_security(const Options&);

}  // namespace k8sdds
