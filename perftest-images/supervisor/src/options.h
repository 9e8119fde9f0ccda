// The command line: one table that is parsed and printed.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace k8sdds {

struct Options {
    std::string command;  // pause, run, attend, fetch, facts, help, version

    // both
    std::vector<std::string> join_cgroups;

    // pause
    bool until_eof = false;
    bool mount_proc = false;
    std::string hostname;
    int notify_fd = -1;

    // run, attend, fetch
    std::string dir;
    std::int64_t deadline_ns = 0;

    // run, attend
    std::int64_t grace_ns = 2'000'000'000;
    std::vector<int> cpus;
    std::vector<int> own_cpus;
    bool drop_capabilities = true;  // --capabilities kubernetes
    bool cgroup_is_pod = false;
    std::map<std::string, std::string> environment;
    bool barrier = false;
    bool phase_fd = true;
    std::int64_t memory_interval_ns = 200'000'000;  // 0: no samples
    std::vector<std::string> program;

    // attend
    std::vector<std::string> forget;
};

Options parse_options(int argc, char** argv);  // throws Failure(kUsage) naming the option
std::string help_text();

}  // namespace k8sdds
