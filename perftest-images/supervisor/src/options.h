// The command line. One table of options (options.cpp) parses it, sets the defaults, and prints the usage text.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace k8sdds {

struct Options {
    std::string command;  // pause, run, attend, fetch, facts, processes, stops, capture, count-kinds, answer, ask, help, version

    // pause, run, attend
    std::vector<std::string> join_cgroups;

    // pause
    bool until_eof = false;
    bool mount_proc = false;
    std::string hostname;
    int notify_fd = -1;  // -1: none

    // run, attend, fetch
    std::string dir;
    std::int64_t deadline_ns = 0;  // stops, capture and answer, too

    // run, attend
    std::int64_t grace_ns = 0;
    std::vector<int> cpus;
    std::vector<int> own_cpus;  // stops and count-kinds, too
    bool drop_capabilities = false;
    bool cgroup_is_pod = false;
    int realtime_priority = 0;  // of SCHED_FIFO; 0: the normal scheduler
    bool lock_memory = false;
    std::map<std::string, std::string> environment;
    bool barrier = false;
    bool phase_fd = true;
    bool report_start = false;  // of the measured interval
    std::int64_t window_after_ns = 0, window_ns = 0;  // of the meters; 0: the participant marks its interval
    bool service = false;
    std::int64_t memory_interval_ns = 0;  // 0: no memory samples
    std::vector<std::string> program;

    // attend
    std::vector<std::string> forget;

    // stops
    std::vector<std::string> cgroups;

    // capture, count-kinds, answer, ask
    std::string interface;
    int count = 0;
    int snap_bytes = 0;
    std::string token;
    int port = 0;
    std::string group;  // empty: none
    std::string to;
    int packet_bytes = 0;
    int flows = 0;
    bool whole = false;
    std::int64_t timeout_ns = 0;
};

Options parse_options(int argc, char** argv);  // throws Failure(kUsage) that names the option
std::string help_text();

}  // namespace k8sdds
