// A run that outlives the stream it was started over, as in `kubectl exec`, and the way to its files.
//
// attend forks a supervisor of its own session, passes the words of the barrier on to it, and waits. When
// attend dies with its stream before `go`, the supervisor ends without a start; after `go` it goes on and its
// files stay. fetch waits for its end and prints them. What both print is complete when the line `end` is there.

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>

#include "commands.h"
#include "files.h"

namespace k8sdds {

namespace {

// Held by the supervisor as long as it lives; the kernel lets go of it whatever ends it.
constexpr const char* kLock = "/lock";
constexpr const char* kExit = "/exit";
constexpr std::int64_t kLargestFile = 64 << 20;

void write_all(int fd, std::string_view data) {
    while (!data.empty()) {
        const ssize_t n = write(fd, data.data(), data.size());
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) throw Failure(kLacking, "cannot write: " + errno_text());
        data.remove_prefix(static_cast<std::size_t>(n));
    }
}

std::string made_directory(const std::string& name, mode_t mode) {
    std::error_code error;
    std::filesystem::create_directories(name, error);
    if (error) throw Failure(kLacking, "cannot make the directory " + name + ": " + error.message());
    chmod(name.c_str(), mode);
    return name;
}

// Reads lines and counted bytes from standard input.
class Input {
public:
    // False when it has ended.
    bool line(std::string& out) {
        while (true) {
            const auto end = buffer_.find('\n');
            if (end != std::string::npos) {
                out = buffer_.substr(0, end);
                buffer_.erase(0, end + 1);
                return true;
            }
            if (!more()) return false;
        }
    }
    bool bytes(std::size_t count, std::string& out) {
        while (buffer_.size() < count)
            if (!more()) return false;
        out = buffer_.substr(0, count);
        buffer_.erase(0, count);
        return true;
    }
    bool pending() const { return buffer_.find('\n') != std::string::npos; }

private:
    bool more() {
        std::array<char, 65536> block;
        while (true) {
            const ssize_t n = read(STDIN_FILENO, block.data(), block.size());
            if (n < 0 && errno == EINTR) continue;
            if (n <= 0) return false;
            buffer_.append(block.data(), static_cast<std::size_t>(n));
            return true;
        }
    }
    std::string buffer_;
};

// "file MODE SIZE PATH", then SIZE bytes.
bool take_file(Input& input, const std::string& line) {
    const auto parts = words(line);
    const auto size = parts.size() == 4 ? to_integer(parts[2]) : std::nullopt;
    if (!size || *size < 0 || *size > kLargestFile || parts[3][0] != '/' ||
        (parts[1] != "0600" && parts[1] != "0644"))
        throw Failure(kUsage, "not a file for a participant: " + line);
    std::string content;
    if (!input.bytes(static_cast<std::size_t>(*size), content)) return false;
    const bool secret = parts[1] == "0600";
    made_directory(parts[3].substr(0, parts[3].rfind('/')), secret ? 0700 : 0755);
    const std::string unfinished = parts[3] + ".new";
    unlink(unfinished.c_str());
    Fd fd(open(unfinished.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, secret ? 0600 : 0644));
    if (!fd) throw Failure(kLacking, "cannot write " + parts[3] + ": " + errno_text());
    write_all(fd.get(), content);
    if (rename(unfinished.c_str(), parts[3].c_str()) != 0)
        throw Failure(kLacking, "cannot write " + parts[3] + ": " + errno_text());
    return true;
}

// The supervisor itself, in a session of its own; never returns.
[[noreturn]] void be_supervisor(const Options& options, int in, int out) {
    int code = kLacking;
    std::string message;
    Fd log(open((options.dir + "/supervisor.log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    setsid();
    dup2(in, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    if (log) dup2(log.get(), STDERR_FILENO);
    // Else its reader would not see the end of it when the supervisor ends.
    close(in);
    close(out);
    try {
        code = run_participant(options);
    } catch (const Failure& failure) {
        code = failure.exit_code;
        message = failure.what();
    } catch (const std::exception& error) {
        message = error.what();
    }
    const std::string text = std::to_string(code) + "\n" + message;
    const std::string unfinished = options.dir + kExit + ".new";
    {
        Fd fd(open(unfinished.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
        if (fd && write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()))
            rename(unfinished.c_str(), (options.dir + kExit).c_str());
    }
    _exit(code);
}

// Every file that the run has left, then how it ended.
void print_files(const std::string& dir) {
    std::vector<std::string> names;
    if (DIR* folder = opendir(dir.c_str())) {
        while (const dirent* entry = readdir(folder)) names.emplace_back(entry->d_name);
        closedir(folder);
    }
    std::sort(names.begin(), names.end());
    for (const auto& name : names) {
        const std::string path = dir + "/" + name;
        struct stat status {};
        if ("/" + name == kLock || "/" + name == kExit || stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode))
            continue;
        const std::string content = read_file(path).value_or("");
        write_all(STDOUT_FILENO, "file " + name + " " + std::to_string(content.size()) + "\n");
        write_all(STDOUT_FILENO, content);
    }
    const auto ending = read_file(dir + kExit);
    const auto cut = ending ? ending->find('\n') : std::string::npos;
    if (cut == std::string::npos) {
        write_all(STDOUT_FILENO, "end lost\n");
        return;
    }
    std::string message = ending->substr(cut + 1);
    std::replace(message.begin(), message.end(), '\n', ' ');
    write_all(STDOUT_FILENO, "end " + ending->substr(0, cut) + (message.empty() ? "" : " " + message) + "\n");
}

}  // namespace

int attend_participant(const Options& options) {
    signal(SIGPIPE, SIG_IGN);
    for (const auto& earlier : options.forget)
        if (exists(earlier + kExit)) {  // a run that has ended, and nothing else
            std::error_code error;
            std::filesystem::remove_all(earlier, error);
        }
    Options own = options;
    own.dir = made_directory(options.dir, 0755);
    Fd lock(open((own.dir + kLock).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (!lock) throw Failure(kUsage, own.dir + " holds a run already: results are never overwritten");
    if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) throw Failure(kLacking, "cannot lock " + own.dir + ": " + errno_text());

    Pipe to = make_pipe(), from = make_pipe();
    const pid_t supervisor = fork();
    if (supervisor < 0) throw Failure(kLacking, "cannot fork: " + errno_text());
    if (supervisor == 0) {
        to.write.close();
        from.read.close();
        be_supervisor(own, to.read.get(), from.write.get());
    }
    lock.close();  // the supervisor's copy holds it
    to.read.close();
    from.write.close();

    // Words of the client to the supervisor, the supervisor's `ready` to the client, until it has ended.
    Input input;
    bool listening = true;
    while (true) {
        std::array<pollfd, 2> fds = {pollfd{from.read.get(), POLLIN, 0},
                                     pollfd{listening ? STDIN_FILENO : -1, POLLIN, 0}};
        if (poll(fds.data(), fds.size(), -1) < 0) {
            if (errno == EINTR) continue;
            throw Failure(kLacking, "cannot wait: " + errno_text());
        }
        if (fds[0].revents) {
            std::array<char, 256> block;
            const ssize_t n = read(from.read.get(), block.data(), block.size());
            if (n < 0 && errno == EINTR) continue;
            if (n <= 0) break;
            // With the clock of this machine, from which an agreed start is counted.
            write_all(STDOUT_FILENO, "ready " + std::to_string(realtime_ns()) + "\n");
        }
        if (!fds[1].revents) continue;
        do {
            std::string line;
            if (!input.line(line)) {
                listening = false;
                to.write.close();  // before `go` this ends the supervisor
            } else if (starts_with(line, "file ")) {
                if (!take_file(input, line)) {
                    listening = false;
                    to.write.close();
                } else {
                    write_all(STDOUT_FILENO, "taken\n");
                }
            } else if (line == "clock") {
                write_all(STDOUT_FILENO, "clock " + std::to_string(realtime_ns()) + "\n");
            } else if (!line.empty() && to.write) {
                const std::string words = line + "\n";
                if (write(to.write.get(), words.data(), words.size()) < 0 && errno != EPIPE)
                    throw Failure(kLacking, "cannot tell the supervisor: " + errno_text());
            }
        } while (listening && input.pending());
    }
    waitpid(supervisor, nullptr, 0);
    print_files(own.dir);
    return 0;
}

int fetch_files(const Options& options) {
    Fd lock(open((options.dir + kLock).c_str(), O_RDWR | O_CLOEXEC));
    if (!lock) throw Failure(kLacking, options.dir + " holds no run");
    struct sigaction action {};
    action.sa_handler = [](int) {};  // interrupts the wait; without SA_RESTART
    sigaction(SIGALRM, &action, nullptr);
    alarm(static_cast<unsigned>(std::clamp<std::int64_t>(options.deadline_ns / 1'000'000'000, 1, 86'400)));
    if (flock(lock.get(), LOCK_SH) != 0) {
        if (errno != EINTR) throw Failure(kLacking, "cannot wait for " + options.dir + ": " + errno_text());
        throw Failure(kDeadline, "the run in " + options.dir + " has not ended yet");
    }
    print_files(options.dir);
    return 0;
}

}  // namespace k8sdds
