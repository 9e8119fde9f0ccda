// What /proc tells of processes.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace k8sdds {

struct Cpu {
    std::int64_t total_ns = 0, user_ns = 0, system_ns = 0;
};
Cpu operator+(const Cpu& a, const Cpu& b);
Cpu cpu_of(const rusage& usage);

struct ProcessStat {
    char state = '?';
    pid_t parent = 0;
    Cpu own;       // all its threads, those that ended too
    Cpu children;  // those it has waited for
};
std::optional<ProcessStat> read_stat(pid_t pid);

// CPU time of a process in nanoseconds, also of one that has ended and is not yet waited for.
std::optional<std::int64_t> process_clock_ns(pid_t pid);

// Without the ancestor. The quick way may miss one that ends or starts just now.
std::vector<pid_t> descendants(pid_t ancestor);
std::vector<pid_t> descendants_quickly(pid_t ancestor);
Cpu cpu_of_processes(const std::vector<pid_t>& pids);

using Switches = std::map<pid_t, std::pair<std::int64_t, std::int64_t>>;  // thread -> voluntary, involuntary
Switches context_switches(pid_t pid);

std::optional<std::int64_t> peak_memory_bytes(pid_t pid);  // VmHWM
void add_libraries(pid_t pid, std::set<std::string>& libraries);
bool is_dead(pid_t pid);  // ended, waited for or not

}  // namespace k8sdds
