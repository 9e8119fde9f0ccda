// Reads the counters at the start and the end of the measured interval.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cgroup.h"
#include "support.h"
#include "process.h"

namespace k8sdds {

// Keys in meters.json, in the order of the columns that are read from /proc/net/dev.
constexpr std::array<const char*, 8> kInterfaceCounters = {
    "rx_bytes", "rx_packets", "rx_errors", "rx_dropped", "tx_bytes", "tx_packets", "tx_errors", "tx_dropped"};
using InterfaceCounters = std::array<std::int64_t, kInterfaceCounters.size()>;

// Keys in meters.json, in the order of the first columns of /proc/stat.
constexpr std::array<const char*, 8> kMachineTimes = {
    "user_s", "nice_s", "system_s", "idle_s", "iowait_s", "irq_s", "softirq_s", "steal_s"};
using MachineTimes = std::array<std::int64_t, kMachineTimes.size()>;  // ns

std::vector<std::string> network_counter_names();

// All counters at one point in time.
struct Snapshot {
    std::int64_t monotonic_ns = 0;
    std::int64_t supervisor_ns = 0;
    std::optional<CpuTime> pod_cpu;
    std::optional<Throttling> throttling;
    std::optional<Pressure> pressure;
    std::optional<std::int64_t> process_ns;
    bool process_exact = true;  // from the process clock, not from clock ticks
    MachineTimes machine{};
    std::map<std::string, std::int64_t> network;
    std::map<std::string, InterfaceCounters> interfaces;
    Switches switches;
    std::optional<std::int64_t> peak_bytes;  // of the participant; none after it has ended
};

// Returns end - start of a counter that may be 32 bits wide and may have wrapped.
std::int64_t counter_difference(std::int64_t start, std::int64_t end);

// The meters of one participant and its pod.
class Meters {
public:
    Meters(PodCgroup cgroup, pid_t participant);

    Snapshot read() const;

    // Adds the CPU time of a descendant for which the supervisor itself has waited.
    void add_reaped(const rusage& usage) { reaped_ = reaped_ + cpu_of(usage); }

    void sample_memory();
    void forget_memory_samples() { samples_ = sum_bytes_ = most_bytes_ = 0; }
    std::int64_t memory_samples() const { return samples_; }
    std::int64_t memory_most_bytes() const { return most_bytes_; }
    std::optional<std::int64_t> memory_mean_bytes() const;

    void read_libraries() { add_libraries(participant_, libraries_); }
    const std::set<std::string>& libraries() const { return libraries_; }

    PodCgroup& cgroup() { return cgroup_; }
    const PodCgroup& cgroup() const { return cgroup_; }
    std::string cpu_source() const { return uses_cgroup() ? cgroup_.cpu_source() : "proc"; }

private:
    bool uses_cgroup() const { return !cgroup_.cpu_source().empty(); }

    PodCgroup cgroup_;
    pid_t participant_;
    Fd statm_;
    CpuTime reaped_;
    std::int64_t samples_ = 0, sum_bytes_ = 0, most_bytes_ = 0;
    std::set<std::string> libraries_;
};

int machine_cpus();  // of the host, not of the pod
std::optional<double> load_1m();  // load average of the host over one minute

}  // namespace k8sdds
