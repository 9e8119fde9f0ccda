#include "options.h"

#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <sstream>

#include "files.h"

namespace k8sdds {

namespace {

enum Commands { kPause = 1, kRun = 2, kAttend = 4, kFetch = 8, kFacts = 16, kStart = kRun | kAttend };

const std::map<std::string, int>& commands() {
    static const std::map<std::string, int> names = {
        {"pause", kPause}, {"run", kRun}, {"attend", kAttend}, {"fetch", kFetch}, {"facts", kFacts}};
    return names;
}

struct Option {
    const char* name;
    const char* value;  // what follows it, for the help; nullptr for a flag
    int commands;
    const char* help;
    std::function<void(Options&, const std::string&)> set;
};

[[noreturn]] void wrong(const std::string& message) {
    throw Failure(kUsage, message + " (see k8sdds-supervisor --help)");
}

std::int64_t seconds_in_ns(const std::string& name, const std::string& text, bool zero_allowed) {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    const bool number = !text.empty() && end == text.c_str() + text.size() && std::isfinite(value);
    if (!number || value < 0 || value > 1e8 || (value == 0 && !zero_allowed))
        wrong(name + ": '" + text + "' is not a number of seconds" + (zero_allowed ? "" : " above 0"));
    return static_cast<std::int64_t>(std::llround(value * 1e9));
}

std::int64_t integer(const std::string& name, const std::string& text, std::int64_t most) {
    const auto value = to_integer(text);
    if (!value || *value < 0 || *value > most)
        wrong(name + ": '" + text + "' is not a whole number from 0 to " + std::to_string(most));
    return *value;
}

std::vector<int> cpu_list(const std::string& name, const std::string& text) {
    std::vector<int> cpus;
    for (const auto& part : split(text, ',')) {
        const auto ends = split(part, '-');
        const auto first = to_integer(ends[0]);
        const auto last = ends.size() == 2 ? to_integer(ends[1]) : first;
        const bool valid = ends.size() <= 2 && first && last && *first >= 0 && *first <= *last && *last < 1'000'000;
        if (!valid) wrong(name + ": '" + text + "' is not a list of CPUs such as 0,2-3");
        if (*last - *first > 4096) wrong(name + ": '" + part + "' names too many CPUs");
        for (auto cpu = *first; cpu <= *last; ++cpu) cpus.push_back(static_cast<int>(cpu));
    }
    return cpus;
}

const std::vector<Option>& table() {
    static const std::vector<Option> options = {
        {"--join-cgroup", "DIR", kPause | kStart, "join this cgroup before anything else (repeatable: one per v1 controller)",
         [](Options& o, const std::string& v) { o.join_cgroups.push_back(v); }},

        {"--until-eof", nullptr, kPause, "end when standard input ends: the pod dies with whoever holds the pipe",
         [](Options& o, const std::string&) { o.until_eof = true; }},
        {"--mount-proc", nullptr, kPause, "mount the /proc of its PID namespace, in a mount namespace of its own",
         [](Options& o, const std::string&) { o.mount_proc = true; }},
        {"--hostname", "NAME", kPause, "set the host name of the pod, in a UTS namespace of its own",
         [](Options& o, const std::string& v) { o.hostname = v; }},
        {"--notify-fd", "N", kPause, "write one byte to this descriptor and close it when the pod is ready",
         [](Options& o, const std::string& v) { o.notify_fd = static_cast<int>(integer("--notify-fd", v, 1'000'000)); }},

        {"--dir", "DIR", kStart | kFetch, "where stdout, stderr and meters.json are; made if missing, except by fetch (required)",
         [](Options& o, const std::string& v) { o.dir = v; }},
        {"--deadline", "S", kStart | kFetch, "seconds from the start after which the participant is ended; of fetch: that it waits (required)",
         [](Options& o, const std::string& v) { o.deadline_ns = seconds_in_ns("--deadline", v, false); }},
        {"--grace", "S", kStart, "seconds from SIGTERM to SIGKILL (2)",
         [](Options& o, const std::string& v) { o.grace_ns = seconds_in_ns("--grace", v, true); }},
        {"--cpus", "LIST", kStart, "pin the participant to these CPUs, such as 0,2-3",
         [](Options& o, const std::string& v) { o.cpus = cpu_list("--cpus", v); }},
        {"--own-cpus", "LIST", kStart, "pin the supervisor itself to these CPUs",
         [](Options& o, const std::string& v) { o.own_cpus = cpu_list("--own-cpus", v); }},
        {"--capabilities", "kubernetes|keep", kStart, "of the participant: those of a default container (kubernetes), or all it has",
         [](Options& o, const std::string& v) {
             if (v != "kubernetes" && v != "keep") wrong("--capabilities: '" + v + "' is neither kubernetes nor keep");
             o.drop_capabilities = v == "kubernetes";
         }},
        {"--cgroup-is-pod", nullptr, kStart, "the cgroup it runs in belongs to this pod alone: read the meters from it",
         [](Options& o, const std::string&) { o.cgroup_is_pod = true; }},
        {"--env", "K=V", kStart, "add a variable to the otherwise clean environment (repeatable)",
         [](Options& o, const std::string& v) {
             const auto equals = v.find('=');
             if (equals == std::string::npos || equals == 0) wrong("--env: '" + v + "' is not of the form NAME=VALUE");
             o.environment[v.substr(0, equals)] = v.substr(equals + 1);
         }},
        {"--barrier", nullptr, kRun, "print 'ready', start at the line 'go' or 'go TIME' on standard input, end without starting at its end",
         [](Options& o, const std::string&) { o.barrier = true; }},
        {"--forget", "DIR", kAttend, "remove the files of an earlier run that were fetched (repeatable)",
         [](Options& o, const std::string& v) { o.forget.push_back(v); }},
        {"--phase-fd", nullptr, kStart, "give the participant K8SDDS_PHASE_FD to mark its measured interval (the default)",
         [](Options& o, const std::string&) { o.phase_fd = true; }},
        {"--no-phase", nullptr, kStart, "do not: the whole life of the process is the interval",
         [](Options& o, const std::string&) { o.phase_fd = false; }},
        {"--memory-interval-ms", "N", kStart, "milliseconds between two samples of the memory (200; 0: none)",
         [](Options& o, const std::string& v) {
             o.memory_interval_ns = integer("--memory-interval-ms", v, 3'600'000) * 1'000'000;
         }},
    };
    return options;
}

const Option& find(const std::string& name, int command, const std::string& command_name) {
    for (const auto& option : table())
        if (name == option.name) {
            if (!(option.commands & command)) wrong(name + " is not an option of " + command_name);
            return option;
        }
    wrong("unknown option " + name);
}

void require_complete(const Options& options) {
    const int command = commands().at(options.command);
    if (!(command & (kStart | kFetch))) return;
    if (options.dir.empty()) wrong(options.command + " needs --dir DIR");
    if (options.deadline_ns == 0) wrong(options.command + " needs --deadline S");
    if ((command & kStart) && options.program.empty()) wrong(options.command + " needs a program after --");
}

}  // namespace

Options parse_options(int argc, char** argv) {
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    Options options;
    if (arguments.empty()) wrong("which command: pause, run, attend, fetch or facts?");
    options.command = arguments[0];
    if (options.command == "--help" || options.command == "-h" || options.command == "help") {
        options.command = "help";
        return options;
    }
    if (options.command == "--version") {
        options.command = "version";
        return options;
    }
    if (starts_with(options.command, "-")) wrong("unknown option " + options.command);
    if (!commands().count(options.command))
        wrong("unknown command '" + options.command + "': pause, run, attend, fetch or facts");
    const int command = commands().at(options.command);
    options.barrier = command == kAttend;

    for (std::size_t i = 1; i < arguments.size(); ++i) {
        const auto& argument = arguments[i];
        if (argument == "--" && (command & kStart)) {
            options.program.assign(arguments.begin() + static_cast<std::ptrdiff_t>(i) + 1, arguments.end());
            break;
        }
        if (argument == "--help" || argument == "-h") {
            options.command = "help";
            return options;
        }
        if (!starts_with(argument, "-") || argument == "--")
            wrong("unexpected argument '" + argument + "'" + ((command & kStart) ? ": the program comes after --" : ""));
        const auto equals = argument.find('=');
        const std::string name = argument.substr(0, equals);
        const Option& option = find(name, command, options.command);
        if (!option.value) {
            if (equals != std::string::npos) wrong(name + " takes no value");
            option.set(options, "");
        } else if (equals != std::string::npos) {
            option.set(options, argument.substr(equals + 1));
        } else {
            if (i + 1 == arguments.size()) wrong(name + " needs a value: " + name + " " + option.value);
            option.set(options, arguments[++i]);
        }
    }
    require_complete(options);
    return options;
}

std::string help_text() {
    std::ostringstream out;
    out << "Starts a participant in its pod: the same start, deadline, meters and files on every testbed.\n\n"
           "  k8sdds-supervisor pause [OPTIONS]                    be the first process of a pod\n"
           "  k8sdds-supervisor run [OPTIONS] -- PROGRAM ARGS...   run one participant\n"
           "  k8sdds-supervisor attend [OPTIONS] -- PROGRAM ARGS...  the same, over a stream that may break\n"
           "  k8sdds-supervisor fetch --dir DIR --deadline S       wait for its end, print its files\n"
           "  k8sdds-supervisor facts                              what this pod and its machine are, as JSON\n"
           "  k8sdds-supervisor --version | --help\n";
    const auto section = [&](const char* title, int named) {
        out << '\n' << title << '\n';
        for (const auto& option : table()) {
            if (option.commands != named) continue;
            std::string left = std::string("  ") + option.name + (option.value ? std::string(" ") + option.value : "");
            left.append(left.size() < 34 ? 34 - left.size() : 1, ' ');
            out << left << option.help << '\n';
        }
    };
    section("pause, run and attend:", kPause | kStart);
    section("pause:", kPause);
    section("run, attend and fetch:", kStart | kFetch);
    section("run and attend:", kStart);
    section("run:", kRun);
    section("attend:", kAttend);
    out << "\nExit code of run: the participant's; 124 deadline; 125 aborted before its start; 126 not executable;\n"
           "127 not found; 128+N killed by signal N; 2 wrong usage; 3 this machine lacks something.\n";
    return out.str();
}

}  // namespace k8sdds
