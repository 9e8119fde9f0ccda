#include "report.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <map>

#include "json.h"

namespace k8sdds {

namespace {

std::string utc(std::int64_t ns) {
    const std::time_t seconds = static_cast<std::time_t>(ns / 1'000'000'000);
    std::tm parts{};
    gmtime_r(&seconds, &parts);
    char day[32], all[48];
    std::strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &parts);
    std::snprintf(all, sizeof all, "%s.%03dZ", day, static_cast<int>(ns / 1'000'000 % 1000));
    return all;
}

std::string signal_name(int number) {
    static const std::map<int, const char*> names = {
        {SIGHUP, "SIGHUP"},   {SIGINT, "SIGINT"},   {SIGQUIT, "SIGQUIT"}, {SIGILL, "SIGILL"},   {SIGTRAP, "SIGTRAP"},
        {SIGABRT, "SIGABRT"}, {SIGBUS, "SIGBUS"},   {SIGFPE, "SIGFPE"},   {SIGKILL, "SIGKILL"}, {SIGUSR1, "SIGUSR1"},
        {SIGSEGV, "SIGSEGV"}, {SIGUSR2, "SIGUSR2"}, {SIGPIPE, "SIGPIPE"}, {SIGALRM, "SIGALRM"}, {SIGTERM, "SIGTERM"},
        {SIGXCPU, "SIGXCPU"}, {SIGXFSZ, "SIGXFSZ"}, {SIGSYS, "SIGSYS"}};
    const auto name = names.find(number);
    return name == names.end() ? "SIG" + std::to_string(number) : name->second;
}

// Context switches are counted over the threads that exist at the end of the interval. Once the participant has
// ended, only the totals of wait4 are complete.
struct SwitchReport {
    std::optional<std::int64_t> voluntary, involuntary;
    std::string source = "none";
};

SwitchReport switches_of(const Outcome& outcome) {
    SwitchReport report;
    if (!outcome.start || !outcome.end) return report;
    const auto& before = outcome.start->switches;
    std::int64_t voluntary = 0, involuntary = 0;
    if (outcome.end->peak_bytes) {  // it was running when the interval ended
        for (const auto& [thread, counts] : outcome.end->switches) {
            const auto earlier = before.find(thread);
            voluntary += counts.first - (earlier == before.end() ? 0 : earlier->second.first);
            involuntary += counts.second - (earlier == before.end() ? 0 : earlier->second.second);
        }
        report.source = "proc";
    } else if (outcome.usage) {
        voluntary = outcome.usage->ru_nvcsw;
        involuntary = outcome.usage->ru_nivcsw;
        for (const auto& [thread, counts] : before) voluntary -= counts.first, involuntary -= counts.second;
        report.source = "rusage";
    } else {
        return report;
    }
    report.voluntary = std::max<std::int64_t>(0, voluntary);
    report.involuntary = std::max<std::int64_t>(0, involuntary);
    return report;
}

std::optional<std::int64_t> difference(const std::optional<std::int64_t>& start, const std::optional<std::int64_t>& end) {
    if (!start || !end) return std::nullopt;
    return std::max<std::int64_t>(0, *end - *start);
}

void add_cpu(Json& json, const Snapshot& start, const Snapshot& end) {
    std::optional<std::int64_t> total, user, system, limit_periods, periods, throttled, some, full;
    if (start.pod_cpu && end.pod_cpu) {
        total = difference(start.pod_cpu->total_ns, end.pod_cpu->total_ns);
        user = difference(start.pod_cpu->user_ns, end.pod_cpu->user_ns);
        system = difference(start.pod_cpu->system_ns, end.pod_cpu->system_ns);
    }
    if (start.throttling && end.throttling) {
        limit_periods = difference(start.throttling->limit_periods, end.throttling->limit_periods);
        periods = difference(start.throttling->periods, end.throttling->periods);
        throttled = difference(start.throttling->ns, end.throttling->ns);
    }
    if (start.pressure && end.pressure) {
        some = difference(start.pressure->some_ns, end.pressure->some_ns);
        full = difference(start.pressure->full_ns, end.pressure->full_ns);
    }
    json["cpu_s"] = json_seconds_or_null(total);
    json["cpu_user_s"] = json_seconds_or_null(user);
    json["cpu_system_s"] = json_seconds_or_null(system);
    json["process_cpu_s"] = json_seconds_or_null(difference(start.process_ns, end.process_ns));
    json["supervisor_cpu_s"] = json_seconds(end.supervisor_ns - start.supervisor_ns);
    json["limit_periods"] = json_or_null(limit_periods);
    json["throttled_periods"] = json_or_null(periods);
    json["throttled_s"] = json_seconds_or_null(throttled);
    json["cpu_pressure_some_s"] = json_seconds_or_null(some);
    json["cpu_pressure_full_s"] = json_seconds_or_null(full);
}

void add_memory(Json& json, const Outcome& outcome, const Meters& meters) {
    std::optional<std::int64_t> peak;
    if (outcome.end && outcome.end->peak_bytes)
        peak = outcome.end->peak_bytes;
    else if (outcome.usage)
        peak = outcome.usage->ru_maxrss * std::int64_t{1024};
    // The kernel counts pages by core, and sums them up at times: its peak can be a little below what was read.
    if (peak) peak = std::max(*peak, meters.memory_most_bytes());
    const auto pod_peak = outcome.start ? meters.cgroup().memory_peak_bytes() : std::nullopt;
    json["memory_peak_bytes"] = json_or_null(peak);
    json["memory_mean_bytes"] = json_or_null(meters.memory_mean_bytes());
    json["memory_samples"] = meters.memory_samples();
    json["cgroup_memory_peak_bytes"] = json_or_null(pod_peak);
    json["cgroup_memory_peak_since"] = nullptr;
    if (pod_peak) json["cgroup_memory_peak_since"] = meters.cgroup().memory_peak_restarted() ? "start" : "creation";
}

Json interfaces(const Snapshot& start, const Snapshot& end) {
    Json all = Json::object();
    for (const auto& [name, after] : end.interfaces) {
        const auto before = start.interfaces.find(name);
        Json& counters = all[name];
        for (std::size_t i = 0; i < after.size(); ++i)
            counters[kInterfaceCounters[i]] =
                before == start.interfaces.end() ? after[i] : counter_difference(before->second[i], after[i]);
    }
    return all;
}

Json network(const Snapshot& start, const Snapshot& end) {
    Json all = Json::object();
    for (const auto& name : network_counter_names()) {
        const auto before = start.network.find(name), after = end.network.find(name);
        all[name] = nullptr;  // stays null if this kernel does not have the counter
        if (before != start.network.end() && after != end.network.end())
            all[name] = counter_difference(before->second, after->second);
    }
    return all;
}

Json machine(const Outcome& outcome) {
    std::array<std::optional<std::int64_t>, kMachineTimes.size()> times;
    std::optional<std::int64_t> busy;
    for (std::size_t i = 0; i < times.size() && outcome.start && outcome.end; ++i) {
        times[i] = difference(outcome.start->machine[i], outcome.end->machine[i]);
        const std::string_view name = kMachineTimes[i];
        if (name != "idle_s" && name != "iowait_s" && name != "steal_s") busy = busy.value_or(0) + *times[i];
    }
    Json json = {{"cpus", machine_cpus()}, {"busy_s", json_seconds_or_null(busy)}};
    for (std::size_t i = 0; i < times.size(); ++i) json[kMachineTimes[i]] = json_seconds_or_null(times[i]);
    json["load_1m"] = json_or_null(outcome.load_1m);
    return json;
}

Json execution(const std::optional<Execution>& execution) {
    if (!execution) return nullptr;
    return {{"threads", execution->threads},
            {"locked_bytes", json_or_null(execution->locked_bytes)},
            {"cpus", execution->cpus}};
}

Json sources(const Outcome& outcome, const Meters& meters, const SwitchReport& switches) {
    const bool alive = outcome.end && outcome.end->peak_bytes;
    const bool exact = outcome.start && outcome.end && outcome.start->process_exact && outcome.end->process_exact;
    return {{"cpu", meters.cpu_source()},
            {"process_cpu", exact ? "clock" : "ticks"},
            {"memory", alive ? "proc" : "rusage"},
            {"context_switches", switches.source},
            {"libraries", outcome.interval_kind != "process" ? "interval" : "sampled"},
            {"cgroups", meters.cgroup().directories()}};
}

}  // namespace

std::string meters_json(const Options& options, const Outcome& outcome, const Meters& meters) {
    const auto switches = switches_of(outcome);
    const bool started = outcome.start.has_value();
    Json json = {
        {"schema", 1},
        {"program", options.program},
        {"started_at", started ? Json(utc(outcome.started_at_ns)) : Json(nullptr)},
        {"started_at_ns", started ? Json(outcome.started_at_ns) : Json(nullptr)},
        {"ended_at", utc(outcome.ended_at_ns)},
        {"start_monotonic_ns", started ? Json(outcome.start_monotonic_ns) : Json(nullptr)},
        {"exit_code", json_or_null(outcome.exit_code)},
        {"signal", outcome.signal ? Json(signal_name(*outcome.signal)) : Json(nullptr)},
        {"timed_out", outcome.timed_out},
        {"ended_by", outcome.ended_by},
        {"error", json_or_null(outcome.error)},
        {"pid", outcome.pid},
        {"killed_descendants", outcome.killed_descendants},
        {"stderr_dropped_bytes", outcome.stderr_dropped_bytes},
        {"cpus", outcome.cpus},
        {"capabilities",
         {{"mode", options.drop_capabilities ? "kubernetes" : "keep"},
          {"kept", outcome.capabilities.kept},
          {"missing", outcome.capabilities.missing},
          {"bounding_limited", outcome.capabilities.bounding_limited}}},
        {"execution", execution(outcome.execution)},
        {"environment", outcome.environment},
        {"sources", sources(outcome, meters, switches)},
        {"interval", nullptr},
    };
    if (outcome.start && outcome.end)
        json["interval"] = {{"kind", outcome.interval_kind},
                            {"start_monotonic_ns", outcome.start->monotonic_ns},
                            {"duration_s", json_seconds(outcome.end->monotonic_ns - outcome.start->monotonic_ns)}};
    // All keys are always present: without a start they hold null or the differences of empty snapshots.
    const Snapshot empty;
    const Snapshot& start = outcome.start ? *outcome.start : empty;
    const Snapshot& end = outcome.end ? *outcome.end : empty;
    add_cpu(json, start, end);
    add_memory(json, outcome, meters);
    json["context_switches"] = {{"voluntary", json_or_null(switches.voluntary)},
                                {"involuntary", json_or_null(switches.involuntary)}};
    json["network"] = network(start, end);
    json["interfaces"] = interfaces(start, end);
    json["attempt_interfaces"] = interfaces(outcome.released.value_or(empty), outcome.after_cleanup.value_or(empty));
    json["machine"] = machine(outcome);
    json["tcp_congestion_control"] = json_or_null(one_line("/proc/sys/net/ipv4/tcp_congestion_control"));
    json["libraries"] = meters.libraries();
    json["supervisor_total_cpu_s"] = json_seconds(outcome.supervisor_total_ns);
    return json_text(json, 2) + "\n";
}

void write_result(const std::string& path, const std::string& text) {
    const std::string temporary = path + "." + std::to_string(getpid()) + ".tmp";
    const auto fail = [&](const char* what) {
        const std::string reason = errno_text();
        unlink(temporary.c_str());
        throw Failure(kPrerequisite, std::string("cannot ") + what + " " + path + ": " + reason);
    };
    Fd fd(open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (!fd) fail("write");
    for (std::size_t done = 0; done < text.size();) {
        const ssize_t n = write(fd.get(), text.data() + done, text.size() - done);
        if (n < 0 && errno != EINTR) fail("write");
        if (n > 0) done += static_cast<std::size_t>(n);
    }
    if (fsync(fd.get()) != 0) fail("write");
    if (renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) != 0) {
        // Some filesystems do not support that flag. Then an existing file is detected, but not atomically.
        if (errno == EEXIST || exists(path)) errno = EEXIST, fail("write");
        if (rename(temporary.c_str(), path.c_str()) != 0) fail("write");
    }
    const auto slash = path.rfind('/');
    Fd directory(open(slash == std::string::npos ? "." : path.substr(0, slash + 1).c_str(),
                      O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (directory) fsync(directory.get());
}

}  // namespace k8sdds
