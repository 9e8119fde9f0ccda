// Runs a participant over a stream such as that of `kubectl exec`, which may break, and returns its files.
//
// `attend` forks a supervisor in a session of its own, passes the lines of the barrier on to it, and waits. If
// attend dies with its stream before `go`, the supervisor exits without starting the participant. After `go` the
// supervisor continues, and its files stay. `fetch` waits for it and prints them. The output of both is complete if
// it ends with the line `end`.

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
#include "received_file.h"
#include "support.h"

namespace k8sdds {

namespace {

// The supervisor holds a lock on this file; the kernel releases it however the supervisor ends.
constexpr const char* kLock = "/lock";
constexpr const char* kExit = "/exit";
constexpr std::size_t kMaxLine = 64 << 10;

// Reads lines and counted bytes from standard input.
class Input {
public:
    // Both return false at the end of the input.
    bool line(std::string& out) {
        while (true) {
            const auto end = buffer_.find('\n');
            if (end != std::string::npos) {
                out = buffer_.substr(0, end);
                buffer_.erase(0, end + 1);
                return true;
            }
            if (buffer_.size() > kMaxLine) throw Failure(kUsage, "a line on standard input is too long");
            if (!read_block()) return false;
        }
    }
    bool bytes(std::size_t count, std::string& out) {
        while (buffer_.size() < count)
            if (!read_block()) return false;
        out = buffer_.substr(0, count);
        buffer_.erase(0, count);
        return true;
    }
    bool has_line() const { return buffer_.find('\n') != std::string::npos; }

private:
    bool read_block() {
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

// Receives a file for the participant. Returns false if the input ends before the file is complete.
bool receive_file(Input& input, const std::string& line) {
    const ReceivedFile file = parse_received_file(line);
    std::string content;
    if (!input.bytes(file.size, content)) return false;
    save(file, content);
    return true;
}

// Runs the supervisor in a session of its own, records how it ended, and exits.
[[noreturn]] void supervise(const Options& options, int in, int out) {
    int code = kPrerequisite;
    std::string message;
    Fd log(open((options.dir + "/supervisor.log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    setsid();
    dup2(in, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    if (log) dup2(log.get(), STDERR_FILENO);
    // The reader sees the end of the pipe only when no copy is left.
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
    const std::string temporary = options.dir + kExit + ".new";
    {
        Fd fd(open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
        if (fd && write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()))
            rename(temporary.c_str(), (options.dir + kExit).c_str());
    }
    _exit(code);
}

// Prints every file of the run, then its exit code.
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
    const auto exit_record = read_file(dir + kExit);
    const auto end_of_code = exit_record ? exit_record->find('\n') : std::string::npos;
    if (end_of_code == std::string::npos) {
        write_all(STDOUT_FILENO, "end lost\n");
        return;
    }
    std::string message = exit_record->substr(end_of_code + 1);
    std::replace(message.begin(), message.end(), '\n', ' ');
    write_all(STDOUT_FILENO,
              "end " + exit_record->substr(0, end_of_code) + (message.empty() ? "" : " " + message) + "\n");
}

// Forwards lines of the client to the supervisor, and the supervisor's `ready` and `measured` to the client, until the
// supervisor exits.
void forward(Fd& to_supervisor, const Fd& from_supervisor) {
    Input input;
    bool input_open = true;
    while (true) {
        std::array<pollfd, 2> fds = {pollfd{from_supervisor.get(), POLLIN, 0},
                                     pollfd{input_open ? STDIN_FILENO : -1, POLLIN, 0}};
        if (poll(fds.data(), fds.size(), -1) < 0) {
            if (errno == EINTR) continue;
            throw Failure(kPrerequisite, "cannot poll: " + errno_text());
        }
        if (fds[0].revents) {
            std::array<char, 256> block;
            const ssize_t n = read(from_supervisor.get(), block.data(), block.size());
            if (n < 0 && errno == EINTR) continue;
            if (n <= 0) return;
            // The client derives the agreed start from this host's clock.
            const std::string word(block.data(), block[0] == 'm' ? sizeof "measured" - 1 : sizeof "ready" - 1);
            write_all(STDOUT_FILENO, word + " " + std::to_string(realtime_ns()) + "\n");
        }
        if (!fds[1].revents) continue;
        do {
            std::string line;
            const bool complete = input.line(line) && (!starts_with(line, "file ") || receive_file(input, line));
            if (!complete) {
                input_open = false;
                to_supervisor.close();  // before `go` this ends the supervisor
            } else if (starts_with(line, "file ")) {
                write_all(STDOUT_FILENO, "taken\n");
            } else if (line == "clock") {
                write_all(STDOUT_FILENO, "clock " + std::to_string(realtime_ns()) + "\n");
            } else if (!line.empty() && to_supervisor) {
                line += '\n';
                if (write(to_supervisor.get(), line.data(), line.size()) < 0 && errno != EPIPE)
                    throw Failure(kPrerequisite, "cannot write to the supervisor: " + errno_text());
            }
        } while (input_open && input.has_line());
    }
}

}  // namespace

int exec_participant(const Options& options) {
    signal(SIGPIPE, SIG_IGN);
    for (const auto& earlier : options.forget)
        if (exists(earlier + kExit)) {  // only the directory of a run that has ended
            std::error_code error;
            std::filesystem::remove_all(earlier, error);
        }
    create_directory(options.dir, false);
    Fd lock(open((options.dir + kLock).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (!lock)
        throw Failure(kUsage, options.dir + " already holds a run; choose another directory, results are not overwritten");
    if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0)
        throw Failure(kPrerequisite, "cannot lock " + options.dir + ": " + errno_text());

    Pipe to = make_pipe(), from = make_pipe();
    const pid_t supervisor = fork();
    if (supervisor < 0) throw Failure(kPrerequisite, "cannot fork: " + errno_text());
    if (supervisor == 0) {
        to.write.close();
        from.read.close();
        supervise(options, to.read.get(), from.write.get());
    }
    lock.close();  // the supervisor's copy holds the lock
    to.read.close();
    from.write.close();
    forward(to.write, from.read);
    waitpid(supervisor, nullptr, 0);
    print_files(options.dir);
    return 0;
}

int fetch_files(const Options& options) {
    Fd lock(open((options.dir + kLock).c_str(), O_RDWR | O_CLOEXEC));
    if (!lock) throw Failure(kPrerequisite, options.dir + " holds no run");
    struct sigaction action {};
    action.sa_handler = [](int) {};  // only interrupts flock(); installed without SA_RESTART
    sigaction(SIGALRM, &action, nullptr);
    alarm(static_cast<unsigned>(std::clamp<std::int64_t>(options.deadline_ns / 1'000'000'000, 1, 86'400)));
    if (flock(lock.get(), LOCK_SH) != 0) {
        if (errno != EINTR) throw Failure(kPrerequisite, "cannot wait for " + options.dir + ": " + errno_text());
        throw Failure(kDeadline, "the run in " + options.dir + " has not ended yet");
    }
    print_files(options.dir);
    return 0;
}

}  // namespace k8sdds
