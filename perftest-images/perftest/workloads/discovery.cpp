#include "discovery.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>
#include <fstream>
#include <memory>
#include <sstream>

#include "fleet_member.h"
#include "histogram_log.h"
#include "json.h"
#include "loader.h"
#include "settings.h"
#include "sockets.h"
#include "state.h"

namespace k8sdds {
namespace {

constexpr int64_t report_ns = 20 * second_ns;              // after the end, for the reports of the processes
constexpr size_t longest_error = 300;

void sleep_until(int64_t ns) {
    const timespec until{ns / second_ns, ns % second_ns};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {}
}

// When things happen, by CLOCK_MONOTONIC. The times are the same in all processes of the fleet on this machine.
struct Plan {
    explicit Plan(const Options& options)
        : start(now_ns()), end(start + to_ns(options.discovery_test)), steady(end - to_ns(options.steady)),
          interval(to_ns(options.start_interval)), change(options.fleet_change),
          changed(change ? start + to_ns(change->at) : INT64_MAX) {}

    const int64_t start, end, steady, interval;
    const std::optional<FleetChange> change;
    const int64_t changed;                    // before `steady`

    bool restarts(Role role, unsigned number) const { return changes(role, number) && change->restarts; }
    bool starts_late(Role role, unsigned number) const { return changes(role, number) && !change->restarts; }
    int64_t starts(Role role, unsigned number) const {
        return starts_late(role, number) ? changed : start + interval * number;
    }

private:
    bool changes(Role role, unsigned number) const { return change && role == Role::publisher && change->concerns(number); }
};

// The pairs of some members with those of the other role, and how long they took from when the later one was to start.
class Pairs {
public:
    void add(int64_t since, int64_t matched) {
        ++expected_;
        if (!matched) return;
        const int64_t time = std::max<int64_t>(matched - since, 1);
        first_ = std::min(first_, time);
        last_ = std::max(last_, time);
        times_.record(time);
    }
    Json json() const {
        const bool any = times_.count() != 0;
        return {{"pairs", expected_},
                {"matched", times_.count()},
                {"first_ns", any ? Json(first_) : Json(nullptr)},
                {"last_ns", any ? Json(last_) : Json(nullptr)}};
    }
    const Histogram& times() const { return times_; }

private:
    uint64_t expected_ = 0;
    int64_t first_ = INT64_MAX, last_ = 0;    // exact, of any length
    Histogram times_;
};

struct AllPairs {
    Pairs found, changed;                     // of members that start in time; of late ones and of successors
    Pairs broken;                             // that no longer matched although both ran, and how long until they did again
};

int64_t own_peak_memory_bytes() {
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss * 1024;
}

// One process of the fleet, which is forked before a participant exists.
class Process {
public:
    Process(const Options& options, const Settings& settings, const Plan& plan, unsigned first, bool again)
        : options_(options), settings_(settings), plan_(plan), first_(first), again_(again) {}

    // Runs until the end, or until the process is to be killed. Returns its report: a line of JSON, and the histograms.
    std::string run();
    bool killed() const { return !again_ && plan_.restarts(settings_.role, first_); }

private:
    struct Opened {
        Opened(unsigned number, unsigned others, unsigned topics, int64_t rest_ns) : member(number, others, topics, rest_ns) {}
        FleetMember member;
        std::unique_ptr<Backend> backend;         // null: the test ended before
    };

    int64_t start_of(unsigned number) const { return again_ ? plan_.changed : plan_.starts(settings_.role, number); }
    void open_all(int64_t end);
    void open(Opened&);
    void add_pairs(const FleetMember&, AllPairs&);
    std::string report();

    const Options& options_;
    Settings settings_;
    const Plan& plan_;
    const unsigned first_;
    const bool again_;                        // the process takes the place of one that was killed
    std::vector<std::unique_ptr<Opened>> opened_;
    Json failures_ = Json::array(), missing_ = Json::object();
    unsigned created_ = 0;
    int64_t created_ns_ = 0;                  // since the start, of the last one
    double steady_cpu_s_ = 0, end_cpu_s_ = 0;
};

void Process::open_all(int64_t end) {
    const unsigned others = settings_.role == Role::publisher ? settings_.subscribers : settings_.publishers;
    for (unsigned number = first_; number < first_ + settings_.members; ++number) {
        sleep_until(std::min(start_of(number), end));
        opened_.push_back(std::make_unique<Opened>(number, others, settings_.topics, plan_.steady));
        try {
            if (now_ns() >= end) throw std::runtime_error("the test ended before it was created");
            open(*opened_.back());
            ++created_;
            created_ns_ = now_ns() - plan_.start;
        } catch (const std::exception& error) {
            failures_.push_back({{"member", number}, {"error", one_line(error.what(), longest_error)}});
        }
    }
}

void Process::open(Opened& opened) {
    Settings settings = settings_;
    settings.id = opened.member.number;
    settings.incarnation = again_;
    opened.backend = load_backend(options_.middleware);
    opened.backend->open(settings, opened.member);
}

// Returns ascending numbers as pairs of the first and the last of a range.
Json ranges(const std::vector<unsigned>& numbers) {
    Json all = Json::array();
    for (const unsigned number : numbers)
        if (!all.empty() && all.back()[1] == number - 1) all.back()[1] = number;
        else all.push_back({number, number});
    return all;
}

void Process::add_pairs(const FleetMember& member, AllPairs& all) {
    const Role other_role = settings_.role == Role::publisher ? Role::subscriber : Role::publisher;
    const std::vector<Pair> pairs = member.pairs();
    std::vector<unsigned> missing;
    for (unsigned other = 0; other < pairs.size(); ++other) {
        const Matched &first = pairs[other][0], &successor = pairs[other][1];
        const int64_t since = std::max(start_of(member.number), plan_.starts(other_role, other));
        const bool other_restarts = plan_.restarts(other_role, other);
        const bool late = plan_.starts_late(settings_.role, member.number) || plan_.starts_late(other_role, other);
        (late || again_ ? all.changed : all.found).add(since, first.at_ns);
        if (other_restarts) all.changed.add(plan_.changed, successor.at_ns);
        const Matched& lasting = other_restarts ? successor : first;
        if (lasting.broken_ns && !killed()) all.broken.add(lasting.broken_ns, lasting.again_ns);
        if (!lasting.at_ns && !killed()) missing.push_back(other);
    }
    if (!missing.empty()) missing_[std::to_string(member.number)] = ranges(missing);
}

std::string Process::report() {
    const int64_t memory_bytes = own_peak_memory_bytes();      // without what follows
    AllPairs all;
    for (const auto& opened : opened_) add_pairs(opened->member, all);
    const Json report = {{"first", first_},
                         {"members", settings_.members},
                         {"again", again_},
                         {"killed", killed()},
                         {"created", created_},
                         {"created_ns", created_ns_},
                         {"failures", failures_},
                         {"missing", missing_},
                         {"found", all.found.json()},
                         {"changed", all.changed.json()},
                         {"broken", all.broken.json()},
                         {"cpu_s", json_rounded(end_cpu_s_, 6)},
                         {"steady_cpu_s", json_rounded(end_cpu_s_ - steady_cpu_s_, 6)},
                         {"memory_bytes", memory_bytes}};
    std::string text = json_text(report) + "\n";
    const double length_s = static_cast<double>(plan_.end - plan_.start) / 1e9;
    for (const auto& [tag, pairs] : {std::pair{"match", &all.found}, std::pair{"rematch", &all.changed}})
        if (pairs->times().count()) text += histogram_log(pairs->times(), tag, 0, length_s);
    return text;
}

std::string Process::run() {
    const int64_t end = killed() ? plan_.changed : plan_.end;
    open_all(end);
    sleep_until(std::min(plan_.steady, end));
    steady_cpu_s_ = process_cpu_s();
    sleep_until(end);
    end_cpu_s_ = process_cpu_s();
    return report();
}

struct Traffic {
    uint64_t received_bytes = 0, received_packets = 0, sent_bytes = 0, sent_packets = 0;
};

// Reads the counters of an interface; missing if it has none.
std::optional<Traffic> traffic_of(const std::string& interface) {
    std::ifstream file("/proc/net/dev");
    std::string line;
    while (std::getline(file, line)) {
        std::istringstream words(line.substr(std::min(line.find(':') + 1, line.size())));
        std::string name = line.substr(0, line.find(':'));
        name.erase(0, name.find_first_not_of(' '));
        Traffic now;
        uint64_t other;
        words >> now.received_bytes >> now.received_packets;
        for (int i = 0; i < 6; ++i) words >> other;
        words >> now.sent_bytes >> now.sent_packets;
        if (name == interface && words) return now;
    }
    return std::nullopt;
}

Json traffic_json(const std::optional<Traffic>& from, const std::optional<Traffic>& to) {
    if (!from || !to) return nullptr;
    return {{"sent_bytes", to->sent_bytes - from->sent_bytes},
            {"sent_packets", to->sent_packets - from->sent_packets},
            {"received_bytes", to->received_bytes - from->received_bytes},
            {"received_packets", to->received_packets - from->received_packets}};
}

// The processes of this program's part of the fleet.
class Fleet {
public:
    Fleet(const Options& options, const Settings& settings, State& state)
        : options_(options), settings_(settings), state_(state), interface_(interface_of(settings.nic, settings.ipv6)),
          pod_(static_cast<unsigned>(options.pub ? options.pid : options.sid)), plan_(options) {}

    void run();
    Json json(ExitStatus&, std::FILE* histograms);

private:
    struct Child {
        pid_t pid;                            // -1: has ended
        int report;                           // file
        unsigned first;
        int status = 0;                       // of waitpid()
    };
    void fork_process(unsigned first, bool again);
    void renew();
    static void await(Child&, int64_t until);
    static std::string end_of(const Child&);
    std::string report_of(const Child&) const;

    const Options& options_;
    const Settings& settings_;
    State& state_;
    const Interface interface_;
    const unsigned pod_;                      // number of this program among those of its role
    const Plan plan_;
    std::vector<Child> children_;
    std::optional<Traffic> first_, steady_, last_;
};

void Fleet::fork_process(unsigned first, bool again) {
    const int report = memfd_create("report", MFD_CLOEXEC);
    if (report < 0) throw std::runtime_error("memfd_create: " + std::string(std::strerror(errno)));
    const pid_t parent = getpid(), pid = fork();
    if (pid < 0) throw std::runtime_error("fork: " + std::string(std::strerror(errno)));
    children_.push_back({pid, report, first});
    if (pid) return;
    for (const Child& other : children_)
        if (other.report != report) close(other.report);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(exit_middleware);
    bool killed = false;
    try {
        Process& process = *new Process(options_, settings_, plan_, first, again);     // its middleware is not closed
        killed = process.killed();
        const std::string text = process.run();
        for (size_t from = 0; from < text.size();) {
            const ssize_t written = ::write(report, text.data() + from, text.size() - from);
            if (written <= 0) _exit(exit_middleware);
            from += static_cast<size_t>(written);
        }
    } catch (const std::exception& error) {
        log_line("middleware error: %s", error.what());
        _exit(exit_middleware);
    }
    if (killed) raise(SIGKILL);
    _exit(exit_done);                                      // as fast as a machine that fails: the others have ended, too
}

// Starts the successors of the processes that are killed.
void Fleet::renew() {
    sleep_until(plan_.changed);
    for (size_t n = 0, before = children_.size(); n < before; ++n) {
        const unsigned first = children_[n].first;
        if (!plan_.restarts(settings_.role, first)) continue;
        await(children_[n], plan_.changed + report_ns);
        fork_process(first, true);
    }
}

void Fleet::await(Child& child, int64_t until) {
    for (; child.pid > 0; sleep_until(now_ns() + 5'000'000)) {
        const bool late = now_ns() >= until;
        if (late) kill(child.pid, SIGKILL);
        if (waitpid(child.pid, &child.status, late ? 0 : WNOHANG) != 0) child.pid = -1;
    }
}

std::string Fleet::end_of(const Child& child) {
    if (WIFSIGNALED(child.status)) return "was ended by signal " + std::to_string(WTERMSIG(child.status));
    return "exited with code " + std::to_string(WEXITSTATUS(child.status));
}

void Fleet::run() {
    std::fflush(nullptr);
    first_ = traffic_of(interface_.name);
    state_.begin_measured(plan_.start);
    for (unsigned n = 0; n < static_cast<unsigned>(options_.processes); ++n)
        fork_process(pod_ * settings_.members_at_address + n * settings_.members, false);
    if (plan_.change && plan_.change->restarts) renew();
    sleep_until(plan_.steady);
    steady_ = traffic_of(interface_.name);
    sleep_until(plan_.end);
    last_ = traffic_of(interface_.name);
    state_.end_measured(now_ns());
    for (Child& child : children_) await(child, plan_.end + report_ns);
}

std::string Fleet::report_of(const Child& child) const {
    std::string text;
    char part[65536];
    lseek(child.report, 0, SEEK_SET);
    for (ssize_t n; (n = ::read(child.report, part, sizeof part)) > 0;) text.append(part, static_cast<size_t>(n));
    return text;
}

Json Fleet::json(ExitStatus& status, std::FILE* histograms) {
    Json processes = Json::array();
    for (const Child& child : children_) {
        const std::string text = report_of(child);
        const size_t line = std::min(text.find('\n'), text.size());
        const Json report = Json::parse(text.substr(0, line), nullptr, false);
        if (report.is_object()) processes.push_back(report);
        else status = {exit_middleware, "middleware error: a process with the members from " + std::to_string(child.first) +
                                            " on " + end_of(child) + " without a report"};
        if (histograms) std::fputs(text.substr(std::min(line + 1, text.size())).c_str(), histograms);
    }
    const double steady_s = static_cast<double>(plan_.end - plan_.steady) / 1e9;
    return {{"steady_s", json_rounded(steady_s, 6)},
            {"processes", processes},
            {"traffic", traffic_json(first_, last_)},
            {"steady_traffic", traffic_json(steady_, last_)}};
}

}  // namespace

int measure_discovery(Options& options, std::FILE* histograms) {
    const auto backend = load_backend(options.middleware);
    const std::string version = backend->version();
    const Settings settings = make_settings(options);
    State state;
    ExitStatus status;
    Fleet fleet(options, settings, state);
    fleet.run();
    const Json fleet_json = fleet.json(status, histograms);
    const Interface interface = interface_of(settings.nic, settings.ipv6);
    const Json document = {{"schema", 1},
                           {"version", K8SDDS_VERSION},
                           {"role", options.pub ? "publisher" : "subscriber"},
                           {"id", options.pub ? options.pid : options.sid},
                           {"test", "discovery"},
                           {"exit", {{"code", status.code}, {"reason", status.reason}}},
                           {"middleware", {{"name", options.middleware}, {"version", version}}},
                           {"options", resolved_options(options)},
                           {"transport", {{"interface", json_or_null(interface.name)}, {"address", json_or_null(interface.address)}}},
                           {"measured_s", json_rounded(state.measured_s(), 9)},
                           {"fleet", fleet_json}};
    std::printf("%s\n", json_text({{"perftest", Json::array()}, {"k8sdds", document}}, -1, true).c_str());
    if (status.code != exit_done) log_line("%s", status.reason.c_str());
    return status.code;
}

}  // namespace k8sdds
