// The first process of a pod: holds its namespaces and reaps orphans.

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
#include "support.h"

namespace k8sdds {

namespace {

// Creates a new namespace, even if the process already has one of its own. What follows cannot change the host,
// however this program was started.
void create_namespace(int kind, const char* name) {
    if (unshare(kind) != 0)
        throw Failure(kPrerequisite, std::string("cannot create a ") + name + " namespace: " + errno_text());
}

void mount_proc() {
    if (getpid() != 1)
        throw Failure(kPrerequisite, "--mount-proc requires a new PID namespace; start with unshare --pid --fork");
    if (link_target("/proc/self") == "1") return;  // /proc already belongs to this namespace, as in a container
    create_namespace(CLONE_NEWNS, "mount");
    if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
        throw Failure(kPrerequisite, "cannot make the mounts private: " + errno_text());
    if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) != 0)
        throw Failure(kPrerequisite, "cannot mount /proc: " + errno_text());
}

void set_hostname(const std::string& name) {
    create_namespace(CLONE_NEWUTS, "UTS");
    if (sethostname(name.c_str(), name.size()) != 0)
        throw Failure(kPrerequisite, "cannot set the host name '" + name + "': " + errno_text());
}

void notify(int fd) {
    // The reader may have ended; then --until-eof ends the pod.
    if (write(fd, "1", 1) < 0 && errno == EBADF)
        throw Failure(kPrerequisite, "--notify-fd " + std::to_string(fd) + " is not open");
    close(fd);
}

enum class Input { open, ended, stay };

// Reads standard input. The line `stay` keeps the pod when the input ends.
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
            throw Failure(kPrerequisite, "cannot poll: " + errno_text());
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
