// The file meters.json.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "capabilities.h"
#include "meters.h"
#include "options.h"

namespace k8sdds {

struct Outcome {
    std::int64_t started_at_ns = 0, ended_at_ns = 0;  // since 1970
    std::int64_t start_monotonic_ns = 0;
    std::optional<int> exit_code;
    std::optional<int> signal;
    bool timed_out = false;
    std::string ended_by = "participant";  // participant, deadline, signal, abort
    std::string error;                     // why it could not be executed or ended; "" mostly
    pid_t pid = -1;
    std::vector<int> cpus;
    CapabilityReport capabilities;
    std::map<std::string, std::string> environment;
    std::int64_t killed_descendants = 0;

    std::string interval_kind = "process";  // measured, process, partial
    std::optional<Snapshot> start, end;     // none: it never started
    std::optional<Snapshot> released, gone;  // around its whole life
    std::optional<rusage> usage;            // of the whole life, from wait4
    std::optional<double> load_1m;
    std::int64_t supervisor_total_ns = 0;
};

std::string signal_name(int number);

std::string meters_json(const Options& options, const Outcome& outcome, const Meters& meters);

// Writes all or nothing, and never over an existing file.
void write_result(const std::string& path, const std::string& text);

}  // namespace k8sdds
