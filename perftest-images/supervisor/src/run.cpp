// Runs one participant: prepares it, waits at the barrier, starts it, watches it, ends it, and writes the report.

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <limits>

#include "commands.h"
#include "log.h"
#include "participant.h"
#include "report.h"

namespace k8sdds {

namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMillisecond = 1'000'000;
constexpr std::int64_t kGiveUp = 10'000 * kMillisecond;  // after SIGKILL, for a process that is blocked in the kernel
constexpr std::int64_t kMaxStartDelay = 60'000 * kMillisecond;  // a later agreed start means a wrong clock
constexpr const char* kPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

[[noreturn]] void throw_exists(const std::string& path) {
    throw Failure(kUsage, path + " exists; choose another directory, results are not overwritten");
}

std::string prepare_directory(const std::string& name) {
    std::error_code error;
    std::filesystem::create_directories(name, error);
    const auto path = std::filesystem::canonical(name, error);
    if (error) throw Failure(kPrerequisite, "cannot create the directory " + name + ": " + error.message());
    const std::string result = (path / "meters.json").string();
    if (exists(result)) throw_exists(result);
    return path.string();
}

Fd open_new(const std::string& path) {
    Fd fd(open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (!fd && errno == EEXIST) throw_exists(path);
    if (!fd) throw Failure(kPrerequisite, "cannot create " + path + ": " + errno_text());
    return fd;
}

void close_inherited_on_exec() {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error))
        if (const auto fd = to_integer(entry.path().filename().string()); fd && *fd > STDERR_FILENO)
            fcntl(static_cast<int>(*fd), F_SETFD, FD_CLOEXEC);
}

// Without that limit, a participant that never waits keeps the supervisor from ending it.
void require_realtime_limit() {
    if (to_integer(fields(read_file("/proc/sys/kernel/sched_rt_runtime_us").value_or("0"))[0]).value_or(0) < 0)
        throw Failure(kPrerequisite, "--realtime-priority: kernel.sched_rt_runtime_us is -1, so a busy participant "
                                     "could block this machine; set it to 950000");
}

int timeout_until(std::int64_t time_ns) {
    if (time_ns == kNever) return -1;
    const std::int64_t left = (time_ns - monotonic_ns() + kMillisecond - 1) / kMillisecond;
    return static_cast<int>(std::clamp<std::int64_t>(left, 0, 3'600'000));
}

// One run of the participant. Single-threaded: everything happens in poll() loops.
class Run {
public:
    Run(const Options& options, Fd signals, Fd phase, Log log, Participant participant, Outcome outcome, std::string dir)
        : options_(options), signals_(std::move(signals)), phase_(std::move(phase)), log_(std::move(log)),
          participant_(std::move(participant)), outcome_(std::move(outcome)), dir_(std::move(dir)),
          meters_(PodCgroup::find(options.join_cgroups, options.cgroup_is_pod), participant_.pid()) {
        outcome_.pid = participant_.pid();
    }

    int execute() {
        if (options_.barrier && !wait_for_go()) return abort();
        start();
        while (!finished_) watch();
        return finish();
    }

private:
    bool wait_for_go();
    bool wait_until(std::int64_t start_ns);
    int abort();
    void start();
    void watch();
    void schedule_window(std::int64_t start_ns);
    void on_lines();
    void obey(const std::string& line);
    void on_phases();
    void mark(char phase);
    void read_execution();
    void on_signals();
    void on_timers();
    void on_end();
    void reap();
    void terminate(const char* ended_by, int signal_number);
    bool kill_descendants(bool participant_too);
    int finish();

    const Options& options_;
    Fd signals_, phase_;
    Log log_;
    Participant participant_;
    Outcome outcome_;
    std::string dir_;
    Meters meters_;
    bool finished_ = false, executing_ = false, marked_start_ = false, marked_end_ = false, input_open_ = false;
    bool others_started_ = false;  // of a service
    std::string line_;  // of standard input, incomplete
    // Times of CLOCK_MONOTONIC; kNever: not scheduled.
    std::int64_t deadline_ = kNever, kill_at_ = kNever, give_up_ = kNever;
    std::int64_t window_from_ = kNever, window_to_ = kNever;
    std::int64_t sample_at_ = kNever, libraries_at_ = kNever, libraries_step_ = 20 * kMillisecond;
    std::set<pid_t> killed_;
};

// Waits for `go`. Returns false after `abort`, the end of standard input, a signal, or any other line.
bool Run::wait_for_go() {
    if (write(STDOUT_FILENO, "ready\n", 6) != 6) return false;
    std::string line;
    while (true) {
        std::array<pollfd, 2> fds = {pollfd{signals_.get(), POLLIN, 0}, pollfd{STDIN_FILENO, POLLIN, 0}};
        if (poll(fds.data(), fds.size(), -1) < 0 && errno != EINTR) return false;
        signalfd_siginfo info;
        while (read(signals_.get(), &info, sizeof info) == sizeof info)
            if (info.ssi_signo != SIGCHLD) return false;
        if (!fds[1].revents) continue;
        char byte = 0;
        const ssize_t n = read(STDIN_FILENO, &byte, 1);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (n <= 0) return false;
        if (byte != '\n') {
            if (byte != '\r' && line.size() < 256) line += byte;   // more than any line that is expected
            continue;
        }
        if (line == "go") return true;
        if (starts_with(line, "go ")) {
            if (const auto start_ns = to_integer(std::string_view(line).substr(3))) return wait_until(*start_ns);
        }
        if (line == "abort") return false;
        if (!line.empty()) {
            std::fprintf(stderr, "k8sdds-supervisor: at the barrier: expected go or abort, got: %s\n", line.c_str());
            return false;
        }
    }
}

// Waits until the agreed start, in nanoseconds since 1970 of this host's clock. Returns false if a signal arrives or
// the start is too far away.
bool Run::wait_until(std::int64_t start_ns) {
    while (true) {
        const std::int64_t left = start_ns - realtime_ns();
        if (left <= 0) return true;
        if (left > kMaxStartDelay) {
            std::fputs("k8sdds-supervisor: at the barrier: the agreed start is more than a minute ahead; "
                       "check the clock\n", stderr);
            return false;
        }
        const timespec timeout{static_cast<time_t>(left / 1'000'000'000), static_cast<long>(left % 1'000'000'000)};
        pollfd fd{signals_.get(), POLLIN, 0};
        if (ppoll(&fd, 1, &timeout, nullptr) < 0 && errno != EINTR) return false;
        signalfd_siginfo info;
        while (read(signals_.get(), &info, sizeof info) == sizeof info)
            if (info.ssi_signo != SIGCHLD) return false;
    }
}

int Run::abort() {
    kill(participant_.pid(), SIGKILL);
    waitpid(participant_.pid(), nullptr, 0);
    outcome_.ended_by = "abort";
    outcome_.ended_at_ns = realtime_ns();
    outcome_.supervisor_total_ns = own_cpu_ns();
    write_result(dir_ + "/meters.json", meters_json(options_, outcome_, meters_));
    return kAborted;
}

void Run::start() {
    meters_.cgroup().restart_memory_peak();
    outcome_.load_1m = load_1m();
    outcome_.start = outcome_.released = meters_.read();
    outcome_.started_at_ns = realtime_ns();
    outcome_.start_monotonic_ns = monotonic_ns();
    participant_.release();
    deadline_ = outcome_.start_monotonic_ns + options_.deadline_ns;
    input_open_ = true;
    if (!options_.service) schedule_window(outcome_.start_monotonic_ns);
}

// Schedules the window of the meters, if it was requested, for a start at this time of CLOCK_MONOTONIC.
void Run::schedule_window(std::int64_t start_ns) {
    if (options_.window_ns == 0 || marked_start_) return;
    window_from_ = start_ns + options_.window_after_ns;
    window_to_ = window_from_ + options_.window_ns;
}

void Run::watch() {
    std::array<pollfd, 5> fds = {pollfd{signals_.get(), POLLIN, 0}, pollfd{phase_.get(), POLLIN, 0},
                                 pollfd{participant_.status_fd(), POLLIN, 0},
                                 pollfd{input_open_ ? STDIN_FILENO : -1, POLLIN, 0}, pollfd{log_.fd(), POLLIN, 0}};
    const auto next =
        std::min({deadline_, kill_at_, give_up_, sample_at_, libraries_at_, window_from_, window_to_});
    if (poll(fds.data(), fds.size(), timeout_until(next)) < 0 && errno != EINTR)
        throw Failure(kPrerequisite, "cannot poll: " + errno_text());
    if (fds[3].revents) on_lines();
    if (fds[4].revents) log_.read();
    if (fds[1].revents) on_phases();
    if (fds[2].revents) {
        participant_.read_status();
        outcome_.error = participant_.exec_error();
        executing_ = outcome_.error.empty();
        const auto now = monotonic_ns();
        if (executing_ && !marked_start_) {
            if (options_.memory_interval_ns > 0) sample_at_ = now + options_.memory_interval_ns;
            libraries_at_ = now + libraries_step_;
        }
    }
    if (fds[0].revents) on_signals();
    if (!finished_) on_timers();
}

void Run::on_lines() {
    std::array<char, 256> buffer;
    const ssize_t n = read(STDIN_FILENO, buffer.data(), buffer.size());
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (n <= 0) {
        input_open_ = false;
        return;
    }
    for (ssize_t i = 0; i < n; ++i) {
        const char byte = buffer[static_cast<std::size_t>(i)];
        if (byte != '\n') {
            if (line_.size() < 256) line_ += byte;
            continue;
        }
        obey(line_);
        line_.clear();
    }
}

// Obeys `kill`, and for a service `end`, and `go` or `go TIME`, once, when the others start. Refuses other lines.
void Run::obey(const std::string& line) {
    const auto start_ns = starts_with(line, "go ") ? to_integer(std::string_view(line).substr(3)) : realtime_ns();
    const bool starts = line == "go" || (starts_with(line, "go ") && start_ns);
    if (options_.service && starts && !others_started_) {
        others_started_ = true;
        schedule_window(monotonic_ns() + *start_ns - realtime_ns());
    } else if (options_.service && line == "end") {
        if (kill_at_ == kNever) terminate("signal", SIGTERM);
    } else if (line == "kill") {
        // A participant that handles SIGUSR2 first saves what it has measured, and then kills itself.
        if (kill_at_ == kNever) terminate("signal", SIGUSR2);
    } else if (!line.empty()) {
        const char* expected = !options_.service ? "kill" : others_started_ ? "kill or end" : "kill, go or end";
        std::fprintf(stderr, "k8sdds-supervisor: after the start: expected %s, got: %s\n", expected, line.c_str());
    }
}

void Run::on_phases() {
    std::array<char, 64> buffer;
    const ssize_t n = read(phase_.get(), buffer.data(), buffer.size());
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {  // all writers have closed it
        phase_.close();
        return;
    }
    for (ssize_t i = 0; i < n; ++i) mark(buffer[static_cast<std::size_t>(i)]);
}

// Reads the meters at the start (M) or the end (E) of the measured interval.
void Run::mark(char phase) {
    if (phase == 'M' && !marked_start_) {
        marked_start_ = true;
        if (options_.report_start) {
            std::fputs("measured\n", stdout);
            std::fflush(stdout);
        }
        outcome_.start = meters_.read();
        outcome_.end.reset();
        outcome_.interval_kind = "partial";
        read_execution();
        meters_.forget_memory_samples();
        if (options_.memory_interval_ns > 0) {
            meters_.sample_memory();
            sample_at_ = monotonic_ns() + options_.memory_interval_ns;
        }
        libraries_at_ = kNever;                         // read at the end: it takes long on the measured cores
    } else if (phase == 'E' && marked_start_ && !marked_end_) {
        marked_end_ = true;
        outcome_.end = meters_.read();
        outcome_.interval_kind = "measured";
        read_execution();
        if (sample_at_ != kNever) meters_.sample_memory();
        sample_at_ = kNever;
        meters_.read_libraries();
    }
}

// A participant with real-time priority may end before the supervisor reads the end of the interval: the last reading counts.
void Run::read_execution() {
    if (const auto execution = execution_of(participant_.pid())) outcome_.execution = execution;
}

void Run::on_signals() {
    signalfd_siginfo info;
    while (read(signals_.get(), &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGCHLD) continue;
        if (kill_at_ == kNever) terminate("signal", static_cast<int>(info.ssi_signo));
    }
    reap();
}

// Waits for children that have ended. The counters of the participant are read before wait4() releases them.
void Run::reap() {
    while (true) {
        siginfo_t info{};
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
        rusage usage{};
        if (info.si_pid != participant_.pid() || finished_) {
            if (wait4(info.si_pid, nullptr, WNOHANG, &usage) == info.si_pid) meters_.add_reaped(usage);
            continue;
        }
        on_end();
        int status = 0;
        wait4(participant_.pid(), &status, 0, &usage);
        meters_.add_reaped(usage);
        outcome_.usage = usage;
        if (WIFEXITED(status)) outcome_.exit_code = WEXITSTATUS(status);
        if (WIFSIGNALED(status)) outcome_.signal = WTERMSIG(status);
        finished_ = true;
    }
}

void Run::on_end() {
    outcome_.ended_at_ns = realtime_ns();
    if (phase_) on_phases();  // reads the last marks
    if (!outcome_.end) outcome_.end = meters_.read();
}

void Run::on_timers() {
    const auto now = monotonic_ns();
    if (now >= sample_at_) {
        meters_.sample_memory();
        sample_at_ = std::max(sample_at_ + options_.memory_interval_ns, now + options_.memory_interval_ns / 2);
    }
    if (now >= window_from_) {
        window_from_ = kNever;
        mark('M');
    }
    if (now >= window_to_) {
        window_to_ = kNever;
        mark('E');
    }
    if (now >= libraries_at_) {
        meters_.read_libraries();
        libraries_step_ *= 2;  // libraries are loaded early, so back off
        libraries_at_ = now + libraries_step_;
    }
    if (now >= deadline_) {
        deadline_ = kNever;
        if (kill_at_ == kNever) {  // not being terminated already
            outcome_.timed_out = true;
            terminate("deadline", SIGTERM);
        }
    }
    if (now >= kill_at_) {
        if (give_up_ == kNever) give_up_ = now + kGiveUp;
        kill_descendants(true);
        kill_at_ = now + 100 * kMillisecond;  // repeats for processes that were forked meanwhile
    }
    if (now >= give_up_) {
        outcome_.error = "the participant did not die within 10 s of SIGKILL";
        outcome_.ended_at_ns = realtime_ns();
        finished_ = true;
    }
}

void Run::terminate(const char* ended_by, int signal_number) {
    outcome_.ended_by = ended_by;
    // Read the counters while the participant exists. A later 'E' replaces them.
    if (!outcome_.end) {
        read_execution();
        meters_.read_libraries();
        outcome_.end = meters_.read();
        sample_at_ = libraries_at_ = kNever;
    }
    if (kill(-participant_.pid(), signal_number) != 0) kill(participant_.pid(), signal_number);
    kill_at_ = monotonic_ns() + options_.grace_ns;
}

// Kills the descendants with SIGKILL. Returns whether any were alive.
bool Run::kill_descendants(bool participant_too) {
    bool any_alive = false;
    for (const pid_t pid : descendants(getpid())) {
        const bool is_participant = pid == participant_.pid();
        if ((is_participant && !participant_too) || is_dead(pid)) continue;
        any_alive = true;
        if (kill(pid, SIGKILL) == 0 && !is_participant) killed_.insert(pid);
    }
    return any_alive;
}

int Run::finish() {
    // Descendants must not outlive the participant.
    const auto until = monotonic_ns() + kGiveUp;
    for (int pause_ms = 1; monotonic_ns() < until; pause_ms = std::min(50, pause_ms * 2)) {
        const bool any_alive = kill_descendants(false);
        reap();
        if (!any_alive) break;
        poll(nullptr, 0, pause_ms);
    }
    log_.finish();
    outcome_.stderr_dropped_bytes = log_.dropped_bytes();
    outcome_.killed_descendants = static_cast<std::int64_t>(killed_.size());
    outcome_.supervisor_total_ns = own_cpu_ns();
    outcome_.after_cleanup = meters_.read();
    if (!outcome_.end) outcome_.end = outcome_.after_cleanup;
    write_result(dir_ + "/meters.json", meters_json(options_, outcome_, meters_));
    if (!outcome_.error.empty()) std::fprintf(stderr, "k8sdds-supervisor: %s\n", outcome_.error.c_str());
    if (outcome_.timed_out) return kDeadline;
    if (outcome_.signal) return 128 + *outcome_.signal;
    return outcome_.exit_code.value_or(kPrerequisite);
}

}  // namespace

int run_participant(const Options& options) {
    Fd signals = block_signals();
    if (link_target("/proc/self") != std::to_string(getpid()))
        throw Failure(kPrerequisite, "/proc belongs to another PID namespace; mount it with pause --mount-proc");
    close_inherited_on_exec();
    join_cgroups(options.join_cgroups);
    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0)
        throw Failure(kPrerequisite, "cannot become a child subreaper: " + errno_text());

    if (options.realtime_priority > 0) require_realtime_limit();

    Launch launch;
    launch.argv = options.program;
    launch.drop_capabilities = options.drop_capabilities;
    launch.realtime_priority = options.realtime_priority;
    launch.lock_memory = options.lock_memory;
    launch.environment = {{"PATH", kPath}, {"LANG", "C.UTF-8"}};
    for (const auto& [name, value] : options.environment) launch.environment[name] = value;
    launch.path = find_program(options.program[0], launch.environment["PATH"]);
    require_cpus("--cpus", options.cpus);
    require_cpus("--own-cpus", options.own_cpus);
    launch.cpus = options.cpus.empty() ? current_cpus() : cpu_mask(options.cpus);
    if (!options.own_cpus.empty()) pin_to(cpu_mask(options.own_cpus));

    const std::string dir = prepare_directory(options.dir);
    launch.environment.emplace("HOME", dir);
    Fd out = open_new(dir + "/stdout");
    Fd err = open_new(dir + "/stderr");
    launch.out = out.get();
    Pipe errors = make_pipe();
    fcntl(errors.read.get(), F_SETFL, O_NONBLOCK);
    launch.err = errors.write.get();
    Pipe phase;
    if (options.phase_fd) {
        phase = make_pipe();
        fcntl(phase.read.get(), F_SETFL, O_NONBLOCK);
        launch.phase = phase.write.get();
        launch.environment["K8SDDS_PHASE_FD"] = std::to_string(launch.phase);
    }
    Outcome outcome;
    outcome.cpus = list_cpus(launch.cpus);
    outcome.capabilities = plan_capabilities(options.drop_capabilities, options.lock_memory);
    outcome.environment = launch.environment;
    Participant participant(launch);
    phase.write.close();
    errors.write.close();
    Log log(std::move(errors.read), std::move(err));
    return Run(options, std::move(signals), std::move(phase.read), std::move(log), std::move(participant),
               std::move(outcome), dir)
        .execute();
}

}  // namespace k8sdds
