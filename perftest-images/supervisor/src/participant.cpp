#include "participant.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

#include "capabilities.h"

namespace k8sdds {

namespace {

std::vector<char*> pointers(std::vector<std::string>& strings) {
    std::vector<char*> result;
    for (auto& s : strings) result.push_back(s.data());
    result.push_back(nullptr);
    return result;
}

void send(int fd, const std::string& text) {
    if (write(fd, text.data(), text.size()) < 0) return;  // the supervisor has ended
}

[[noreturn]] void fail(int status, int exit_code, const std::string& message) {
    send(status, "!" + message);
    _exit(exit_code);
}

void reset_signals() {
    for (int number = 1; number < NSIG; ++number) signal(number, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
}

// The threads of the participant inherit it.
void use_realtime_scheduler(int priority, int status) {
    sched_param parameters{};
    parameters.sched_priority = priority;
    if (sched_setscheduler(0, SCHED_FIFO, &parameters) != 0)
        fail(status, kPrerequisite, "cannot run it with SCHED_FIFO: " + errno_text() +
                                        "; that needs the capability SYS_NICE or a limit RLIMIT_RTPRIO, and in a "
                                        "cgroup with cpu.rt_runtime_us a value above 0");
}

void allow_memory_locks(int status) {
    const rlimit unlimited{RLIM_INFINITY, RLIM_INFINITY};
    if (setrlimit(RLIMIT_MEMLOCK, &unlimited) != 0 && !has_capability(CAP_IPC_LOCK))
        fail(status, kPrerequisite, "cannot let it lock memory: " + errno_text() +
                                        "; that needs the capability IPC_LOCK or an unlimited RLIMIT_MEMLOCK");
}

// Turns the child process into the participant.
[[noreturn]] void become_participant(const Launch& launch, int status, int go) {
    std::vector<std::string> environment;
    for (const auto& [name, value] : launch.environment) environment.push_back(name + "=" + value);
    std::vector<std::string> arguments = launch.argv;
    const auto argv = pointers(arguments);
    const auto envp = pointers(environment);

    setsid();  // a process group of its own, and no controlling terminal that could send SIGHUP
    reset_signals();
    const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(launch.out, STDOUT_FILENO) < 0 ||
        dup2(launch.err, STDERR_FILENO) < 0)
        fail(status, kPrerequisite, "cannot open its standard streams: " + errno_text());
    if (launch.phase >= 0) fcntl(launch.phase, F_SETFD, 0);
    if (sched_setaffinity(0, sizeof launch.cpus, &launch.cpus) != 0)
        fail(status, kPrerequisite, "cannot pin it to its CPUs: " + errno_text());
    if (launch.realtime_priority) use_realtime_scheduler(launch.realtime_priority, status);
    if (launch.lock_memory) allow_memory_locks(status);
    if (launch.drop_capabilities) {
        const std::string error = drop_capabilities(launch.lock_memory);
        if (!error.empty()) fail(status, kPrerequisite, error);
    }
    // The kernel kills the participant when the supervisor dies. A change of capabilities resets this setting, so it
    // comes after them, and no_new_privs prevents a change at exec. If the supervisor died earlier, reading from the
    // go pipe returns its end.
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        fail(status, kPrerequisite, "cannot set no_new_privs: " + errno_text());
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    send(status, "R");

    char byte = 0;
    ssize_t n;
    do n = read(go, &byte, 1);
    while (n < 0 && errno == EINTR);
    if (n != 1) _exit(kAborted);
    execve(launch.path.c_str(), argv.data(), envp.data());
    fail(status, errno == ENOENT ? kNotFound : kNotExecutable, "cannot execute " + launch.path + ": " + errno_text());
}

bool is_file(const std::string& path) {
    struct stat info;
    return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

}  // namespace

std::string find_program(const std::string& name, const std::string& path_variable) {
    std::vector<std::string> candidates;
    if (name.find('/') != std::string::npos)
        candidates.push_back(name);
    else
        for (const auto& directory : split(path_variable, ':'))
            candidates.push_back((directory.empty() ? "." : directory) + "/" + name);
    bool exists_anywhere = false;
    for (const auto& candidate : candidates) {
        if (is_file(candidate) && access(candidate.c_str(), X_OK) == 0) return candidate;
        exists_anywhere = exists_anywhere || exists(candidate);
    }
    if (exists_anywhere) throw Failure(kNotExecutable, "program '" + name + "' is not executable");
    throw Failure(kNotFound, "program '" + name + "' not found" +
                                 (name.find('/') == std::string::npos ? " in " + path_variable : ""));
}

cpu_set_t cpu_mask(const std::vector<int>& cpus) {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    for (const int cpu : cpus) CPU_SET(static_cast<std::size_t>(cpu), &mask);
    return mask;
}

cpu_set_t current_cpus() {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    if (sched_getaffinity(0, sizeof mask, &mask) != 0)
        throw Failure(kPrerequisite, "cannot read the CPU affinity: " + errno_text());
    return mask;
}

void pin_to(const cpu_set_t& cpus) {
    if (sched_setaffinity(0, sizeof cpus, &cpus) != 0)
        throw Failure(kPrerequisite, "cannot set the CPU affinity: " + errno_text());
}

std::vector<int> list_cpus(const cpu_set_t& cpus) {
    std::vector<int> list;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
        if (CPU_ISSET(static_cast<std::size_t>(cpu), &cpus)) list.push_back(cpu);
    return list;
}

void require_cpus(const std::string& option, const std::vector<int>& cpus) {
    const cpu_set_t before = current_cpus();
    for (const int cpu : cpus) {
        bool allowed = cpu < CPU_SETSIZE;
        if (allowed) {
            // The kernel silently ignores CPUs that are not allowed, so try each one separately.
            const cpu_set_t single = cpu_mask({cpu});
            allowed = sched_setaffinity(0, sizeof single, &single) == 0;
        }
        if (allowed) continue;
        sched_setaffinity(0, sizeof before, &before);
        throw Failure(kPrerequisite,
                      option + ": CPU " + std::to_string(cpu) + " does not exist on this host or is not allowed");
    }
    pin_to(before);
}

Participant::Participant(const Launch& launch) {
    Pipe status = make_pipe();
    Pipe go = make_pipe();
    pid_ = fork();
    if (pid_ < 0) throw Failure(kPrerequisite, "cannot fork: " + errno_text());
    if (pid_ == 0) {
        // Close the other ends: the child detects the death of the supervisor by the end of the go pipe.
        status.read.close();
        go.write.close();
        become_participant(launch, status.write.get(), go.read.get());
    }
    status_ = std::move(status.read);
    go_ = std::move(go.write);
    status.write.close();
    go.read.close();

    char byte = 0;
    ssize_t n;
    do n = read(status_.get(), &byte, 1);
    while (n < 0 && errno == EINTR);
    if (n == 1 && byte == 'R') return;
    read_status();
    waitpid(pid_, nullptr, 0);
    throw Failure(kPrerequisite, "cannot prepare the participant: " + exec_error_);
}

void Participant::release() {
    if (write(go_.get(), "g", 1) != 1) return;  // it has died; its exit status is reported
    go_.close();
}

void Participant::read_status() {
    std::array<char, 512> buffer;
    while (true) {
        const ssize_t n = read(status_.get(), buffer.data(), buffer.size());
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        exec_error_.append(buffer.data(), static_cast<std::size_t>(n));
    }
    if (starts_with(exec_error_, "!")) exec_error_.erase(0, 1);
    status_.close();
}

}  // namespace k8sdds
