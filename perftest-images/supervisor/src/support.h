// Support functions: errors, clocks, files, text, file descriptors and signals.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace k8sdds {

// Exit codes of the supervisor itself. Otherwise it exits with the participant's exit code.
enum ExitCode : int {
    kUsage = 2,
    kPrerequisite = 3,  // this host or pod does not meet a prerequisite
    kDeadline = 124,
    kAborted = 125,  // at the barrier
    kNotExecutable = 126,
    kNotFound = 127,
};

// Ends the program with this exit code and this message.
struct Failure : std::runtime_error {
    Failure(int code, const std::string& message) : std::runtime_error(message), exit_code(code) {}
    int exit_code;
};

std::string errno_text();  // describes the current errno

std::int64_t monotonic_ns();
std::int64_t realtime_ns();
std::int64_t own_cpu_ns();
std::int64_t ticks_to_ns(std::int64_t ticks);  // from the clock ticks (USER_HZ) of /proc

std::optional<std::string> read_file(const std::string& path);
bool write_file(const std::string& path, std::string_view text);  // writes an existing file; sets errno on failure
bool exists(const std::string& path);
std::string link_target(const std::string& path);  // empty if the link does not exist

std::vector<std::string> split(std::string_view text, char separator);
std::vector<std::string> fields(std::string_view text);  // separated by white space
std::string one_line(const std::string& path);  // fields of a file, separated by single spaces; empty if it does not exist
std::vector<std::string> lines(std::string_view text);
bool starts_with(std::string_view text, std::string_view prefix);
std::optional<std::int64_t> to_integer(std::string_view text);
// Returns the integer after `key` in lines of the form "key value", such as those of cpu.stat.
std::optional<std::int64_t> keyed_integer(std::string_view text, std::string_view key);

// Owns a file descriptor and closes it.
class Fd {
public:
    Fd() = default;
    explicit Fd(int fd) : fd_(fd) {}
    Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Fd& operator=(Fd&& other) noexcept {
        if (this != &other) {
            close();
            fd_ = std::exchange(other.fd_, -1);
        }
        return *this;
    }
    ~Fd() { close(); }
    void close();
    int get() const { return fd_; }
    explicit operator bool() const { return fd_ >= 0; }

private:
    int fd_ = -1;
};

struct Pipe {
    Fd read, write;
};
Pipe make_pipe();  // both ends are close-on-exec

// Blocks SIGTERM, SIGINT and SIGCHLD and returns a signalfd that receives them. Ignores SIGHUP and SIGPIPE.
Fd block_signals();

// Moves this process into the cgroups. Throws Failure(kPrerequisite).
void join_cgroups(const std::vector<std::string>& directories);

}  // namespace k8sdds
