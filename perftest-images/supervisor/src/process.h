// Reads the state, CPU time and memory of processes from /proc.
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

struct CpuTime {
    std::int64_t total_ns = 0, user_ns = 0, system_ns = 0;
};
CpuTime operator+(const CpuTime& a, const CpuTime& b);
CpuTime cpu_of(const rusage& usage);

struct ProcessStat {
    std::string name;
    char state = '?';
    pid_t parent = 0;
    CpuTime own;       // all threads, including ended ones
    CpuTime children;  // children that it has waited for
};
std::optional<ProcessStat> read_stat(pid_t pid);

// Returns the CPU time of a process. Also works for a process that has ended and was not waited for.
std::optional<std::int64_t> process_clock_ns(pid_t pid);

// Both return the descendants without the ancestor. The fast variant may miss a process that starts or ends
// meanwhile.
std::vector<pid_t> descendants(pid_t ancestor);
std::vector<pid_t> descendants_fast(pid_t ancestor);
CpuTime cpu_of_processes(const std::vector<pid_t>& pids);
std::vector<pid_t> all_processes();  // of the own PID namespace

using Switches = std::map<pid_t, std::pair<std::int64_t, std::int64_t>>;  // thread -> voluntary, involuntary
Switches context_switches(pid_t pid);

// How the kernel runs a process.
struct Execution {
    std::map<std::string, int> threads;        // scheduling policy and real-time priority, such as "fifo 50": threads
    std::optional<std::int64_t> locked_bytes;  // VmLck
    std::string cpus;                          // on which its main thread may run, such as "0,2-3"
};
std::optional<Execution> execution_of(pid_t pid);  // none if the process has ended

std::optional<std::int64_t> peak_memory_bytes(pid_t pid);  // VmHWM
void add_libraries(pid_t pid, std::set<std::string>& libraries);
bool is_dead(pid_t pid);  // also true for a zombie

}  // namespace k8sdds
