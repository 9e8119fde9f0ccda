// Verifies the files of DDS Security before a middleware reads them, because middlewares report problems without a
// reason or only after a timeout.
#pragma once

#include "options.h"

namespace k8sdds {

// Throws UsageError if files are missing, unreadable, expired or inconsistent, or if other users may read the
// private key. With require_order, the permissions must name the subject with its parts in the order of RFC 2253.
void check_security(const Options&, bool require_order);

}  // namespace k8sdds
