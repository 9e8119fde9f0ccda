// Prints the CPU time of all processes and of the kernel's threads as JSON. Used right before and after a trial, to find
// what a network costs outside of the participants' pods, and what else ran.

#include <algorithm>
#include <cstdio>
#include <string>

#include "commands.h"
#include "json.h"
#include "process.h"
#include "support.h"

namespace k8sdds {

namespace {

constexpr pid_t kthreadd = 2;  // the parent of all threads of the kernel

// Returns the cgroup of a process: of several hierarchies, the one with the longest path.
std::string cgroup_of(pid_t pid) {
    std::string longest;
    for (const auto& line : lines(read_file("/proc/" + std::to_string(pid) + "/cgroup").value_or("")))
        if (const auto path = line.find(":/"); path != std::string::npos && line.size() - path > longest.size() + 1)
            longest = line.substr(path + 1);
    return longest;
}

// Returns the CPU time of a process, of all its threads, and of its children for which it has waited.
std::int64_t cpu_ns(pid_t pid, const ProcessStat& stat) {
    return process_clock_ns(pid).value_or(stat.own.total_ns) + stat.children.total_ns;
}

}  // namespace

int print_processes() {
    const auto parent_of_threads = read_stat(kthreadd);
    const bool sees_kernel = parent_of_threads && parent_of_threads->name == "kthreadd";
    std::int64_t kernel_ns = 0;
    Json processes = Json::array();
    for (const pid_t pid : all_processes()) {
        const auto stat = read_stat(pid);
        if (!stat) continue;  // it has ended
        if (!sees_kernel || (pid != kthreadd && stat->parent != kthreadd))
            processes.push_back({{"pid", pid},
                                 {"parent", stat->parent},
                                 {"cgroup", cgroup_of(pid)},
                                 {"cpu_s", json_seconds(cpu_ns(pid, *stat))}});
        // The kernel counts ksoftirqd as softirqs.
        else if (!starts_with(stat->name, "ksoftirqd"))
            kernel_ns += cpu_ns(pid, *stat);
    }
    const Json document = {{"monotonic_ns", monotonic_ns()},
                           {"kernel_threads_s", sees_kernel ? json_seconds(kernel_ns) : Json(nullptr)},
                           {"processes", processes}};
    std::puts(json_text(document).c_str());
    return 0;
}

}  // namespace k8sdds
