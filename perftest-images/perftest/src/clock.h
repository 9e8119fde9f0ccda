// Identifies the monotonic clock that a process reads.
#pragma once

#include <cstdint>

namespace k8sdds {

// Returns a number that is equal in two processes if they run on the same boot of one kernel and in the same time
// namespace, so that their monotonic clocks are one clock; 0 if it is unknown.
int64_t clock_id();

}  // namespace k8sdds
