// Writes meters.json (docs/reference/supervisor.md).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "capabilities.h"
#include "meters.h"
#include "options.h"

namespace k8sdds {

// How the run ended, and the counters of its interval.
struct Outcome {
    std::int64_t started_at_ns = 0, ended_at_ns = 0;  // since 1970
    std::int64_t start_monotonic_ns = 0;
    std::optional<int> exit_code;
    std::optional<int> signal;
    bool timed_out = false;
    std::string ended_by = "participant";  // participant, deadline, signal, abort
    std::string error;                     // why exec failed or the participant could not be killed; empty otherwise
    pid_t pid = -1;
    std::vector<int> cpus;
    CapabilityReport capabilities;
    std::optional<Execution> execution;    // at the end of the interval, or at its start
    std::map<std::string, std::string> environment;
    std::int64_t killed_descendants = 0;
    std::int64_t stderr_dropped_bytes = 0;

    std::string interval_kind = "process";            // measured, process, partial
    std::optional<Snapshot> start, end;               // of the interval; none if the participant never started
    std::optional<Snapshot> released, after_cleanup;  // around the whole life of the participant
    std::optional<rusage> usage;                      // of the whole life of the participant, from wait4
    std::optional<double> load_1m;
    std::int64_t supervisor_total_ns = 0;
};

std::string meters_json(const Options& options, const Outcome& outcome, const Meters& meters);

// Writes the whole file or nothing, and never overwrites an existing file.
void write_result(const std::string& path, const std::string& text);

}  // namespace k8sdds
