// The clocks of the program, in nanoseconds.
#pragma once

#include <cstdint>
#include <ctime>

namespace k8sdds {

inline std::int64_t clock_ns(clockid_t clock = CLOCK_MONOTONIC) {
    timespec time{};
    clock_gettime(clock, &time);
    return time.tv_sec * 1'000'000'000LL + time.tv_nsec;
}

}  // namespace k8sdds
