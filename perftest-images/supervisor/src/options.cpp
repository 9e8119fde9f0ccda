#include "options.h"

#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <sstream>

#include "support.h"

namespace k8sdds {

namespace {

enum Commands {
    kPause = 1, kRun = 2, kAttend = 4, kFetch = 8, kFacts = 16, kCapture = 32, kAnswer = 64, kAsk = 128, kProcesses = 256, kStops = 512,
    kCountKinds = 1024, kStart = kRun | kAttend, kPackets = kCapture | kCountKinds | kAnswer | kAsk
};

constexpr char kCommandNames[] = "pause, run, attend, fetch, facts, processes, stops, capture, count-kinds, answer or ask";

const std::map<std::string, int>& commands() {
    static const std::map<std::string, int> by_name = {
        {"pause", kPause}, {"run", kRun}, {"attend", kAttend}, {"fetch", kFetch}, {"facts", kFacts},
        {"processes", kProcesses}, {"stops", kStops}, {"capture", kCapture}, {"count-kinds", kCountKinds},
        {"answer", kAnswer}, {"ask", kAsk}};
    return by_name;
}

struct Option {
    const char* name;
    const char* argument;       // in the usage text; nullptr for a flag
    int commands;
    const char* default_value;  // parsed like an argument; nullptr: none
    const char* help;
    std::function<void(Options&, const std::string&)> set;
};

[[noreturn]] void usage_error(const std::string& message) {
    throw Failure(kUsage, message + "; see k8sdds-supervisor --help");
}

std::int64_t seconds_in_ns(const std::string& name, const std::string& text, bool zero_allowed) {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    const bool number = !text.empty() && end == text.c_str() + text.size() && std::isfinite(value);
    if (!number || value < 0 || value > 1e8 || (value == 0 && !zero_allowed))
        usage_error(name + ": '" + text + "' is not a number of seconds" + (zero_allowed ? "" : " above 0"));
    return static_cast<std::int64_t>(std::llround(value * 1e9));
}

std::int64_t integer(const std::string& name, const std::string& text, std::int64_t max) {
    const auto value = to_integer(text);
    if (!value || *value < 0 || *value > max)
        usage_error(name + ": '" + text + "' is not an integer from 0 to " + std::to_string(max));
    return *value;
}

std::vector<int> cpu_list(const std::string& name, const std::string& text) {
    std::vector<int> cpus;
    for (const auto& part : split(text, ',')) {
        const auto ends = split(part, '-');
        const auto first = to_integer(ends[0]);
        const auto last = ends.size() == 2 ? to_integer(ends[1]) : first;
        const bool valid = ends.size() <= 2 && first && last && *first >= 0 && *first <= *last && *last < 1'000'000;
        if (!valid) usage_error(name + ": '" + text + "' is not a list of CPUs such as 0,2-3");
        if (*last - *first > 4096) usage_error(name + ": '" + part + "' contains too many CPUs");
        for (auto cpu = *first; cpu <= *last; ++cpu) cpus.push_back(static_cast<int>(cpu));
    }
    return cpus;
}

const std::vector<Option>& table() {
    static const std::vector<Option> options = {
        {"--join-cgroup", "DIR", kPause | kStart, nullptr, "join this cgroup first; repeatable, one per v1 controller",
         [](Options& o, const std::string& v) { o.join_cgroups.push_back(v); }},

        {"--until-eof", nullptr, kPause, nullptr, "exit when standard input ends, which ends the pod with its owner",
         [](Options& o, const std::string&) { o.until_eof = true; }},
        {"--mount-proc", nullptr, kPause, nullptr, "mount the /proc of the PID namespace, in a new mount namespace",
         [](Options& o, const std::string&) { o.mount_proc = true; }},
        {"--hostname", "NAME", kPause, nullptr, "set the host name of the pod, in a new UTS namespace",
         [](Options& o, const std::string& v) { o.hostname = v; }},
        {"--notify-fd", "N", kPause, nullptr,
         "write one byte to this file descriptor and close it when the pod is ready",
         [](Options& o, const std::string& v) {
             o.notify_fd = static_cast<int>(integer("--notify-fd", v, 1'000'000));
         }},

        {"--dir", "DIR", kStart | kFetch, nullptr,
         "directory of stdout, stderr and meters.json; run and attend create it (required)",
         [](Options& o, const std::string& v) { o.dir = v; }},
        {"--deadline", "S", kStart | kFetch | kStops | kCapture | kAnswer, nullptr,
         "seconds from the start until the participant is terminated; others: seconds until the end (required)",
         [](Options& o, const std::string& v) { o.deadline_ns = seconds_in_ns("--deadline", v, false); }},
        {"--grace", "S", kStart, "2", "seconds from SIGTERM to SIGKILL",
         [](Options& o, const std::string& v) { o.grace_ns = seconds_in_ns("--grace", v, true); }},
        {"--cpus", "LIST", kStart, nullptr, "pin the participant to these CPUs, such as 0,2-3",
         [](Options& o, const std::string& v) { o.cpus = cpu_list("--cpus", v); }},
        {"--own-cpus", "LIST", kStart | kStops | kCountKinds, nullptr, "pin the supervisor to these CPUs",
         [](Options& o, const std::string& v) { o.own_cpus = cpu_list("--own-cpus", v); }},
        {"--capabilities", "kubernetes|keep", kStart, "kubernetes",
         "capabilities of the participant: a default container's, or all current ones",
         [](Options& o, const std::string& v) {
             if (v != "kubernetes" && v != "keep")
                 usage_error("--capabilities: '" + v + "' is not valid; give kubernetes or keep");
             o.drop_capabilities = v == "kubernetes";
         }},
        {"--realtime-priority", "N", kStart, nullptr,
         "run all threads of the participant with SCHED_FIFO and this priority, 1 to 99",
         [](Options& o, const std::string& v) {
             o.realtime_priority = static_cast<int>(integer("--realtime-priority", v, 99));
             if (o.realtime_priority == 0) usage_error("--realtime-priority: give a priority from 1 to 99");
         }},
        {"--lock-memory", nullptr, kStart, nullptr,
         "let the participant lock its memory: without a limit, or with the capability IPC_LOCK",
         [](Options& o, const std::string&) { o.lock_memory = true; }},
        {"--cgroup-is-pod", nullptr, kStart, nullptr,
         "the current cgroup contains only this pod: read the meters from it",
         [](Options& o, const std::string&) { o.cgroup_is_pod = true; }},
        {"--env", "K=V", kStart, nullptr, "add a variable to the otherwise clean environment; repeatable",
         [](Options& o, const std::string& v) {
             const auto equals = v.find('=');
             if (equals == std::string::npos || equals == 0)
                 usage_error("--env: '" + v + "' is not of the form NAME=VALUE");
             o.environment[v.substr(0, equals)] = v.substr(equals + 1);
         }},
        {"--phase-fd", nullptr, kStart, nullptr,
         "set K8SDDS_PHASE_FD, so that the participant marks its interval [default]",
         [](Options& o, const std::string&) { o.phase_fd = true; }},
        {"--no-phase", nullptr, kStart, nullptr,
         "do not set K8SDDS_PHASE_FD: the whole life of the process is the interval",
         [](Options& o, const std::string&) { o.phase_fd = false; }},
        {"--report-start", nullptr, kStart, nullptr,
         "print a line 'measured' when the participant's measured interval begins",
         [](Options& o, const std::string&) { o.report_start = true; }},
        {"--window", "AFTER:S", kStart, nullptr,
         "read the meters from AFTER seconds after the start for S seconds, without marks of the participant",
         [](Options& o, const std::string& v) {
             const auto parts = split(v, ':');
             if (parts.size() != 2) usage_error("--window: '" + v + "' is not of the form AFTER:SECONDS");
             o.window_after_ns = seconds_in_ns("--window", parts[0], true);
             o.window_ns = seconds_in_ns("--window", parts[1], false);
         }},
        {"--service", nullptr, kStart, nullptr,
         "the participant serves others: another line 'go' starts the window, 'end' ends the participant",
         [](Options& o, const std::string&) { o.service = true; }},
        {"--memory-interval-ms", "N", kStart, "0", "milliseconds between two memory samples (0: no samples)",
         [](Options& o, const std::string& v) {
             o.memory_interval_ns = integer("--memory-interval-ms", v, 3'600'000) * 1'000'000;
         }},

        {"--cgroup", "DIR", kStops, nullptr, "cgroup to watch (required); repeatable",
         [](Options& o, const std::string& v) { o.cgroups.push_back(v); }},

        {"--interface", "NAME", kPackets, nullptr, "interface whose packets are captured or counted (required), or for multicast",
         [](Options& o, const std::string& v) { o.interface = v; }},
        {"--count", "N", kCapture | kAsk, "32", "packets to capture at most, or datagrams to send",
         [](Options& o, const std::string& v) { o.count = static_cast<int>(integer("--count", v, 1'000'000)); }},
        {"--snap", "BYTES", kCapture, "256", "bytes of each packet to capture",
         [](Options& o, const std::string& v) { o.snap_bytes = static_cast<int>(integer("--snap", v, 65535)); }},
        {"--token", "TEXT", kAnswer | kAsk, "k8sdds", "text at the start of each datagram, without spaces",
         [](Options& o, const std::string& v) {
             if (v.empty() || v.size() > 64 || v.find_first_of(" \t\n") != std::string::npos)
                 usage_error("--token: give 1 to 64 characters without spaces");
             o.token = v;
         }},
        {"--port", "N", kAnswer, "7000", "UDP port to listen on",
         [](Options& o, const std::string& v) { o.port = static_cast<int>(integer("--port", v, 65535)); }},
        {"--group", "ADDRESS", kAnswer, nullptr, "multicast group to join as well",
         [](Options& o, const std::string& v) { o.group = v; }},
        {"--to", "ADDRESS:PORT", kAsk, nullptr, "where to send the datagrams (required)",
         [](Options& o, const std::string& v) { o.to = v; }},
        {"--bytes", "N", kAsk, "64", "size of the IP packets",
         [](Options& o, const std::string& v) { o.packet_bytes = static_cast<int>(integer("--bytes", v, 65535)); }},
        {"--flows", "N", kAsk, "1", "number of source ports that the datagrams come from",
         [](Options& o, const std::string& v) { o.flows = static_cast<int>(integer("--flows", v, 512)); }},
        {"--whole", nullptr, kAsk, nullptr, "search for the largest packet up to --bytes that passes unfragmented",
         [](Options& o, const std::string&) { o.whole = true; }},
        {"--timeout", "S", kAsk, "1", "seconds to wait for answers",
         [](Options& o, const std::string& v) { o.timeout_ns = seconds_in_ns("--timeout", v, false); }},

        {"--barrier", nullptr, kRun, nullptr,
         "print 'ready', then start at the line 'go' or 'go TIME' on standard input",
         [](Options& o, const std::string&) { o.barrier = true; }},
        {"--forget", "DIR", kAttend, nullptr, "remove the files of an earlier run that were fetched; repeatable",
         [](Options& o, const std::string& v) { o.forget.push_back(v); }},
    };
    return options;
}

const Option& find(const std::string& name, int command, const std::string& command_name) {
    for (const auto& option : table())
        if (name == option.name) {
            if (!(option.commands & command)) usage_error(name + " is not an option of " + command_name);
            return option;
        }
    usage_error("unknown option " + name);
}

void check_required(const Options& options) {
    const int command = commands().at(options.command);
    if ((command & (kCapture | kCountKinds)) && options.interface.empty())
        usage_error(options.command + " requires --interface NAME");
    if (command == kStops && options.cgroups.empty()) usage_error("stops requires --cgroup DIR");
    if (command == kAsk && options.to.empty()) usage_error("ask requires --to ADDRESS:PORT");
    if ((command & (kStart | kFetch)) && options.dir.empty()) usage_error(options.command + " requires --dir DIR");
    if (command & (kStart | kFetch | kStops | kCapture | kAnswer) && options.deadline_ns == 0)
        usage_error(options.command + " requires --deadline S");
    if ((command & kStart) && options.program.empty()) usage_error(options.command + " requires a program after --");
}

}  // namespace

Options parse_options(int argc, char** argv) {
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    Options options;
    for (const auto& option : table())
        if (option.default_value) option.set(options, option.default_value);
    if (arguments.empty()) usage_error(std::string("a command is required: ") + kCommandNames);
    options.command = arguments[0];
    if (options.command == "--help" || options.command == "-h" || options.command == "help") {
        options.command = "help";
        return options;
    }
    if (options.command == "--version") {
        options.command = "version";
        return options;
    }
    if (starts_with(options.command, "-")) usage_error("unknown option " + options.command);
    if (!commands().count(options.command))
        usage_error("unknown command '" + options.command + "'; give " + kCommandNames);
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
            usage_error("unexpected argument '" + argument + "'" +
                        ((command & kStart) ? "; put the program after --" : ""));
        const auto equals = argument.find('=');
        const std::string name = argument.substr(0, equals);
        const Option& option = find(name, command, options.command);
        if (!option.argument) {
            if (equals != std::string::npos) usage_error(name + " takes no value");
            option.set(options, "");
        } else if (equals != std::string::npos) {
            option.set(options, argument.substr(equals + 1));
        } else {
            if (i + 1 == arguments.size()) usage_error(name + " requires a value: " + name + " " + option.argument);
            option.set(options, arguments[++i]);
        }
    }
    check_required(options);
    return options;
}

std::string help_text() {
    std::ostringstream out;
    out << "Start a participant in its pod, with the same start, deadline, meters and files on every testbed.\n\n"
           "Usage:\n"
           "  k8sdds-supervisor pause [OPTIONS]                      Run as the first process of a pod.\n"
           "  k8sdds-supervisor run [OPTIONS] -- PROGRAM ARGS...     Run one participant.\n"
           "  k8sdds-supervisor attend [OPTIONS] -- PROGRAM ARGS...  Run one participant over a stream that may break.\n"
           "  k8sdds-supervisor fetch --dir DIR --deadline S         Wait for an attended run and print its files.\n"
           "  k8sdds-supervisor facts                                Print facts about this pod and its host as JSON.\n"
           "  k8sdds-supervisor processes                            Print the CPU time of all visible processes as JSON.\n"
           "  k8sdds-supervisor stops --cgroup DIR --deadline S      Print when the CPU limits of cgroups stopped them.\n"
           "  k8sdds-supervisor capture --interface NAME --deadline S  Print the packets that leave by an interface as pcap.\n"
           "  k8sdds-supervisor count-kinds --interface NAME         Count the packets that leave by an interface, by kind.\n"
           "  k8sdds-supervisor answer --deadline S                  Answer datagrams of ask with the address they came from.\n"
           "  k8sdds-supervisor ask --to ADDRESS:PORT                Send known datagrams and print what was answered.\n"
           "  k8sdds-supervisor --version | --help\n";
    const auto section = [&](const char* title, int command_set) {
        out << '\n' << title << '\n';
        for (const auto& option : table()) {
            if (option.commands != command_set) continue;
            std::string left = std::string("  ") + option.name;
            if (option.argument) left += std::string(" ") + option.argument;
            left.append(left.size() < 34 ? 34 - left.size() : 1, ' ');
            out << left << option.help;
            if (option.default_value) out << " [default: " << option.default_value << ']';
            out << '\n';
        }
    };
    section("pause, run and attend:", kPause | kStart);
    section("pause:", kPause);
    section("run, attend and fetch:", kStart | kFetch);
    section("run, attend, fetch, stops, capture and answer:", kStart | kFetch | kStops | kCapture | kAnswer);
    section("run, attend, stops and count-kinds:", kStart | kStops | kCountKinds);
    section("run and attend:", kStart);
    section("run:", kRun);
    section("attend:", kAttend);
    section("stops:", kStops);
    section("capture, count-kinds, answer and ask:", kPackets);
    section("capture and ask:", kCapture | kAsk);
    section("answer and ask:", kAnswer | kAsk);
    section("capture:", kCapture);
    section("answer:", kAnswer);
    section("ask:", kAsk);
    out << "\nExit code of run: the participant's; 124 deadline; 125 aborted at the barrier; 126 not executable;\n"
           "127 not found; 128+N killed by signal N; 2 wrong usage; 3 missing prerequisite of this host or pod.\n";
    return out.str();
}

}  // namespace k8sdds
