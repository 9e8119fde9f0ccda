// Relates the monotonic clock that a process reads to that of another process.
#pragma once

#include <cstdint>

namespace k8sdds {

// Returns a number that is equal in two processes if they run on the same boot of one kernel and in the same time
// namespace, so that their monotonic clocks are one clock; 0 if it is unknown.
int64_t clock_id();

// Returns CLOCK_REALTIME - CLOCK_MONOTONIC. Slewing changes both clocks alike, so the difference is constant until the
// realtime clock is stepped.
int64_t realtime_offset_ns();

}  // namespace k8sdds
