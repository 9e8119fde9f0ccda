// The cgroups of the pod and their counters.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "support.h"
#include "process.h"

namespace k8sdds {

struct Throttling {
    std::int64_t limit_periods = 0;  // CFS periods that began, which only a cgroup with a limit has
    std::int64_t periods = 0;        // those in which the cgroup was throttled
    std::int64_t ns = 0;
};

// Time in which some, or all, of the threads that could run waited for a CPU.
struct Pressure {
    std::optional<std::int64_t> some_ns, full_ns;         // Linux before 5.13 has no full_ns
};

// The cgroup directories of the pod, one per hierarchy.
class PodCgroup {
public:
    // Returns the joined cgroups, else the own cgroup if it is a container's or if own_is_pod.
    static PodCgroup find(const std::vector<std::string>& joined, bool own_is_pod);

    std::optional<CpuTime> cpu() const;
    std::optional<Throttling> throttling() const;
    std::optional<Pressure> pressure() const;  // only cgroups of v2 have it, on kernels with PSI

    void restart_memory_peak();  // if the kernel supports it and permits it
    std::optional<std::int64_t> memory_peak_bytes() const;
    bool memory_peak_restarted() const { return memory_restarted_; }

    std::string cpu_source() const;  // cgroup-v1, cgroup-v2, or empty
    const std::vector<std::string>& directories() const { return directories_; }

private:
    void add(const std::string& directory);

    std::vector<std::string> directories_;
    std::string cpu_v1_, cpu_v2_, throttling_v1_, pressure_v2_, memory_v1_, memory_v2_;
    Fd memory_peak_;
    bool memory_restarted_ = false;
};

}  // namespace k8sdds
