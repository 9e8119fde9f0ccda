// The first process of a pod: holds its namespaces, reaps what is left behind, ends when told.

#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

#include "commands.h"
#include "files.h"

namespace k8sdds {

namespace {

// Takes its own namespace first, even where it already has one: what follows then can never change the
// machine, whoever started this and however.
void take_own(int kind, const char* name) {
    if (unshare(kind) != 0) throw Failure(kLacking, std::string("cannot take an own ") + name + " namespace: " + errno_text());
}

void mount_proc() {
    if (getpid() != 1) throw Failure(kLacking, "--mount-proc needs a PID namespace of its own (unshare --pid --fork)");
    if (link_target("/proc/self") == "1") return;  // it is that of this namespace already, as in a container
    take_own(CLONE_NEWNS, "mount");
    if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
        throw Failure(kLacking, "cannot make the mounts private: " + errno_text());
    if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) != 0)
        throw Failure(kLacking, "cannot mount /proc: " + errno_text());
}

void set_hostname(const std::string& name) {
    take_own(CLONE_NEWUTS, "UTS");
    if (sethostname(name.c_str(), name.size()) != 0)
        throw Failure(kLacking, "cannot set the host name '" + name + "': " + errno_text());
}

void notify(int fd) {
    // The byte may be lost where nobody listens any more; then --until-eof tells.
    if (write(fd, "1", 1) < 0 && errno == EBADF)
        throw Failure(kLacking, "--notify-fd " + std::to_string(fd) + " is not open");
    close(fd);
}

enum class Input { open, ended, stay };

// What the one who holds the pipe wants: the word `stay` keeps the pod when the pipe ends.
Input read_stdin() {
    std::array<char, 256> buffer;
    const ssize_t n = read(STDIN_FILENO, buffer.data(), buffer.size());
    if (n > 0) return std::string_view(buffer.data(), n).substr(0, 4) == "stay" ? Input::stay : Input::open;
    return n == 0 || (errno != EINTR && errno != EAGAIN) ? Input::ended : Input::open;
}

}  // namespace

int pause_pod(const Options& options) {
    Fd signals = block_signals();
    join_cgroups(options.join_cgroups);
    if (options.mount_proc) mount_proc();
    if (!options.hostname.empty()) set_hostname(options.hostname);
    if (options.notify_fd >= 0) notify(options.notify_fd);

    std::array<pollfd, 2> fds = {pollfd{signals.get(), POLLIN, 0},
                                 pollfd{options.until_eof ? STDIN_FILENO : -1, POLLIN, 0}};
    while (true) {
        if (poll(fds.data(), fds.size(), -1) < 0 && errno != EINTR)
            throw Failure(kLacking, "cannot wait: " + errno_text());
        signalfd_siginfo info;
        while (read(signals.get(), &info, sizeof info) == sizeof info)
            if (info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT) return 0;
        while (waitpid(-1, nullptr, WNOHANG) > 0) {
        }
        if (fds[1].revents) {
            const Input input = read_stdin();
            if (input == Input::ended) return 0;
            if (input == Input::stay) fds[1].fd = -1;
        }
    }
}

}  // namespace k8sdds
