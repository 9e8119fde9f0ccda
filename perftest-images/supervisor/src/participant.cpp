#include "participant.h"

#include <fcntl.h>
#include <sys/prctl.h>
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

void say(int fd, const std::string& text) {
    if (write(fd, text.data(), text.size()) < 0) return;  // the supervisor is gone: nobody to tell
}

[[noreturn]] void fail(int status, int exit_code, const std::string& message) {
    say(status, "!" + message);
    _exit(exit_code);
}

void reset_signals() {
    for (int number = 1; number < NSIG; ++number) signal(number, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
}

// Runs in the child; never returns.
[[noreturn]] void become_participant(const Launch& launch, int status, int go) {
    std::vector<std::string> environment;
    for (const auto& [name, value] : launch.environment) environment.push_back(name + "=" + value);
    std::vector<std::string> arguments = launch.argv;
    const auto argv = pointers(arguments);
    const auto envp = pointers(environment);

    setsid();  // own process group, and no terminal whose end could hang it up
    reset_signals();
    const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(launch.out, STDOUT_FILENO) < 0 ||
        dup2(launch.err, STDERR_FILENO) < 0)
        fail(status, kLacking, "cannot set up its standard files: " + errno_text());
    if (launch.phase >= 0) fcntl(launch.phase, F_SETFD, 0);
    if (sched_setaffinity(0, sizeof launch.cpus, &launch.cpus) != 0)
        fail(status, kLacking, "cannot pin it: " + errno_text());
    if (launch.drop_capabilities) {
        const std::string wrong = drop_capabilities();
        if (!wrong.empty()) fail(status, kLacking, wrong);
    }
    // Dies with the supervisor, unless its capabilities change later: hence set after them, and no new ones
    // at exec. A supervisor that died earlier is seen by the end of the go pipe.
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        fail(status, kLacking, "cannot set no_new_privs: " + errno_text());
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    say(status, "R");

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
    bool found = false;
    for (const auto& candidate : candidates) {
        if (is_file(candidate) && access(candidate.c_str(), X_OK) == 0) return candidate;
        found = found || exists(candidate);
    }
    if (found) throw Failure(kNotExecutable, "program '" + name + "' is not executable");
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
        throw Failure(kLacking, "cannot ask for the CPUs: " + errno_text());
    return mask;
}

void pin_to(const cpu_set_t& cpus) {
    if (sched_setaffinity(0, sizeof cpus, &cpus) != 0) throw Failure(kLacking, "cannot pin: " + errno_text());
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
        bool possible = cpu < CPU_SETSIZE;
        if (possible) {
            // The kernel takes the intersection with what is allowed: only one at a time tells.
            const cpu_set_t one = cpu_mask({cpu});
            possible = sched_setaffinity(0, sizeof one, &one) == 0;
        }
        if (possible) continue;
        sched_setaffinity(0, sizeof before, &before);
        throw Failure(kLacking, option + ": CPU " + std::to_string(cpu) + " does not exist here or is not allowed");
    }
    pin_to(before);
}

Participant::Participant(const Launch& launch) {
    Pipe status = make_pipe();
    Pipe go = make_pipe();
    pid_ = fork();
    if (pid_ < 0) throw Failure(kLacking, "cannot fork: " + errno_text());
    if (pid_ == 0) {
        // The other ends must be closed: the end of the go pipe is how the death of the supervisor is seen.
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
    throw Failure(kLacking, "the participant could not be prepared: " + exec_error_);
}

void Participant::release() {
    if (write(go_.get(), "g", 1) != 1) return;  // it died meanwhile: its exit status tells
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
