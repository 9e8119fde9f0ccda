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

void texts(Json& json, const char* key, const std::vector<std::string>& values) {
    json.open_array(key);
    for (const auto& value : values) json.text("", value);
    json.close_array();
}

// Context switches: over the threads seen at both ends; after the end only the totals of wait4 are complete.
struct SwitchReport {
    std::optional<std::int64_t> voluntary, involuntary;
    std::string source = "none";
};

SwitchReport switches_of(const Outcome& outcome) {
    SwitchReport report;
    if (!outcome.start || !outcome.end) return report;
    const auto& before = outcome.start->switches;
    std::int64_t voluntary = 0, involuntary = 0;
    if (outcome.end->peak_bytes) {  // it was alive
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

void cpu_part(Json& json, const Snapshot& start, const Snapshot& end) {
    std::optional<std::int64_t> total, user, system, periods, throttled;
    if (start.pod_cpu && end.pod_cpu) {
        total = difference(start.pod_cpu->total_ns, end.pod_cpu->total_ns);
        user = difference(start.pod_cpu->user_ns, end.pod_cpu->user_ns);
        system = difference(start.pod_cpu->system_ns, end.pod_cpu->system_ns);
    }
    if (start.throttling && end.throttling) {
        periods = difference(start.throttling->periods, end.throttling->periods);
        throttled = difference(start.throttling->ns, end.throttling->ns);
    }
    json.seconds_or_null("cpu_s", total)
        .seconds_or_null("cpu_user_s", user)
        .seconds_or_null("cpu_system_s", system)
        .seconds_or_null("process_cpu_s", difference(start.process_ns, end.process_ns))
        .seconds("supervisor_cpu_s", end.supervisor_ns - start.supervisor_ns)
        .integer_or_null("throttled_periods", periods)
        .seconds_or_null("throttled_s", throttled);
}

void memory_part(Json& json, const Outcome& outcome, const Meters& meters) {
    std::optional<std::int64_t> peak;
    if (outcome.end && outcome.end->peak_bytes)
        peak = outcome.end->peak_bytes;
    else if (outcome.usage)
        peak = outcome.usage->ru_maxrss * std::int64_t{1024};
    const auto pod_peak = outcome.start ? meters.cgroup().memory_peak_bytes() : std::nullopt;
    json.integer_or_null("memory_peak_bytes", peak)
        .integer_or_null("memory_mean_bytes", meters.memory_mean_bytes())
        .integer("memory_samples", meters.memory_samples())
        .integer_or_null("cgroup_memory_peak_bytes", pod_peak);
    if (pod_peak)
        json.text("cgroup_memory_peak_since", meters.cgroup().memory_peak_restarted() ? "start" : "creation");
    else
        json.null("cgroup_memory_peak_since");
}

void interfaces_part(Json& json, const char* key, const Snapshot& start, const Snapshot& end) {
    json.open_object(key);
    for (const auto& [name, after] : end.interfaces) {
        const auto before = start.interfaces.find(name);
        json.open_object(name);
        for (std::size_t i = 0; i < after.size(); ++i)
            json.integer(kInterfaceCounters[i],
                         before == start.interfaces.end() ? after[i] : counter_difference(before->second[i], after[i]));
        json.close_object();
    }
    json.close_object();
}

void network_part(Json& json, const Snapshot& start, const Snapshot& end) {
    json.open_object("network");
    for (const auto& name : network_counter_names()) {
        const auto before = start.network.find(name), after = end.network.find(name);
        if (before == start.network.end() || after == end.network.end())
            json.null(name);  // this kernel does not count it
        else
            json.integer(name, counter_difference(before->second, after->second));
    }
    json.close_object();
    interfaces_part(json, "interfaces", start, end);
}

void machine_part(Json& json, const Outcome& outcome) {
    json.open_object("machine").integer("cpus", machine_cpus());
    std::array<std::optional<std::int64_t>, kMachineTimes.size()> times;
    std::optional<std::int64_t> busy;
    for (std::size_t i = 0; i < times.size() && outcome.start && outcome.end; ++i) {
        times[i] = difference(outcome.start->machine[i], outcome.end->machine[i]);
        const std::string_view name = kMachineTimes[i];
        if (name != "idle_s" && name != "iowait_s" && name != "steal_s") busy = busy.value_or(0) + *times[i];
    }
    json.seconds_or_null("busy_s", busy);
    for (std::size_t i = 0; i < times.size(); ++i) json.seconds_or_null(kMachineTimes[i], times[i]);
    if (outcome.load_1m)
        json.number("load_1m", *outcome.load_1m);
    else
        json.null("load_1m");
    json.close_object();
}

void sources_part(Json& json, const Outcome& outcome, const Meters& meters, const SwitchReport& switches) {
    const bool alive = outcome.end && outcome.end->peak_bytes;
    const bool exact = outcome.start && outcome.end && outcome.start->process_exact && outcome.end->process_exact;
    json.open_object("sources")
        .text("cpu", meters.cpu_source())
        .text("process_cpu", exact ? "clock" : "ticks")
        .text("memory", alive ? "proc" : "rusage")
        .text("context_switches", switches.source)
        .text("libraries", outcome.interval_kind != "process" ? "interval" : "sampled");
    texts(json, "cgroups", meters.cgroup().directories());
    json.close_object();
}

}  // namespace

std::string signal_name(int number) {
    static const std::map<int, const char*> names = {
        {SIGHUP, "SIGHUP"},   {SIGINT, "SIGINT"},   {SIGQUIT, "SIGQUIT"}, {SIGILL, "SIGILL"},   {SIGTRAP, "SIGTRAP"},
        {SIGABRT, "SIGABRT"}, {SIGBUS, "SIGBUS"},   {SIGFPE, "SIGFPE"},   {SIGKILL, "SIGKILL"}, {SIGUSR1, "SIGUSR1"},
        {SIGSEGV, "SIGSEGV"}, {SIGUSR2, "SIGUSR2"}, {SIGPIPE, "SIGPIPE"}, {SIGALRM, "SIGALRM"}, {SIGTERM, "SIGTERM"},
        {SIGXCPU, "SIGXCPU"}, {SIGXFSZ, "SIGXFSZ"}, {SIGSYS, "SIGSYS"}};
    const auto found = names.find(number);
    return found == names.end() ? "SIG" + std::to_string(number) : found->second;
}

std::string meters_json(const Options& options, const Outcome& outcome, const Meters& meters) {
    const auto switches = switches_of(outcome);
    Json json;
    json.open_object().integer("schema", 1);
    texts(json, "program", options.program);
    if (outcome.start)
        json.text("started_at", utc(outcome.started_at_ns));
    else
        json.null("started_at");
    json.integer_or_null("started_at_ns", outcome.start ? std::optional(outcome.started_at_ns) : std::nullopt);
    json.text("ended_at", utc(outcome.ended_at_ns));
    if (outcome.start)
        json.integer("start_monotonic_ns", outcome.start_monotonic_ns);
    else
        json.null("start_monotonic_ns");
    json.integer_or_null("exit_code", outcome.exit_code)
        .text_or_null("signal", outcome.signal ? std::optional(signal_name(*outcome.signal)) : std::nullopt)
        .boolean("timed_out", outcome.timed_out)
        .text("ended_by", outcome.ended_by)
        .text_or_null("error", outcome.error.empty() ? std::nullopt : std::optional(outcome.error))
        .integer("pid", outcome.pid)
        .integer("killed_descendants", outcome.killed_descendants);
    json.open_array("cpus");
    for (const int cpu : outcome.cpus) json.integer("", cpu);
    json.close_array().open_object("capabilities").text("mode", options.drop_capabilities ? "kubernetes" : "keep");
    texts(json, "kept", outcome.capabilities.kept);
    texts(json, "missing", outcome.capabilities.missing);
    json.boolean("bounding_limited", outcome.capabilities.bounding_limited).close_object();
    json.open_object("environment");
    for (const auto& [name, value] : outcome.environment) json.text(name, value);
    json.close_object();

    sources_part(json, outcome, meters, switches);
    if (outcome.start && outcome.end) {
        json.open_object("interval")
            .text("kind", outcome.interval_kind)
            .integer("start_monotonic_ns", outcome.start->monotonic_ns)
            .seconds("duration_s", outcome.end->monotonic_ns - outcome.start->monotonic_ns)
            .close_object();
    } else {
        json.null("interval");  // it never started: there are no values, but all names
    }
    const Snapshot nothing;
    const Snapshot& start = outcome.start ? *outcome.start : nothing;
    const Snapshot& end = outcome.end ? *outcome.end : nothing;
    cpu_part(json, start, end);
    memory_part(json, outcome, meters);
    json.open_object("context_switches")
        .integer_or_null("voluntary", switches.voluntary)
        .integer_or_null("involuntary", switches.involuntary)
        .close_object();
    network_part(json, start, end);
    interfaces_part(json, "attempt_interfaces", outcome.released.value_or(nothing), outcome.gone.value_or(nothing));
    machine_part(json, outcome);
    texts(json, "libraries", {meters.libraries().begin(), meters.libraries().end()});
    json.seconds("supervisor_total_cpu_s", outcome.supervisor_total_ns);
    return json.close_object().str() + "\n";
}

void write_result(const std::string& path, const std::string& text) {
    const std::string temporary = path + "." + std::to_string(getpid()) + ".tmp";
    const auto fail = [&](const char* what) {
        const std::string reason = errno_text();
        unlink(temporary.c_str());
        throw Failure(kLacking, std::string("cannot ") + what + " " + path + ": " + reason);
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
        // Filesystems without that flag: the existing file is seen, if not atomically.
        if (errno == EEXIST || exists(path)) errno = EEXIST, fail("write");
        if (rename(temporary.c_str(), path.c_str()) != 0) fail("write");
    }
    const auto slash = path.rfind('/');
    Fd directory(open(slash == std::string::npos ? "." : path.substr(0, slash + 1).c_str(),
                      O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (directory) fsync(directory.get());
}

}  // namespace k8sdds
