// Small helpers around files, clocks and errors.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace k8sdds {

// Exit codes of the supervisor itself; otherwise it ends with the participant's.
enum ExitCode : int {
    kUsage = 2,
    kLacking = 3,  // the machine (or the pod) lacks something
    kDeadline = 124,
    kAborted = 125,
    kNotExecutable = 126,
    kNotFound = 127,
};

// Ends the program with this exit code and this message for people.
struct Failure : std::runtime_error {
    Failure(int code, const std::string& message) : std::runtime_error(message), exit_code(code) {}
    int exit_code;
};

std::string errno_text();  // of the current errno

std::int64_t monotonic_ns();
std::int64_t realtime_ns();
std::int64_t own_cpu_ns();
std::int64_t ticks_to_ns(std::int64_t ticks);  // USER_HZ of /proc

std::optional<std::string> read_file(const std::string& path);
bool write_file(const std::string& path, std::string_view text);  // an existing file, errno on failure
bool exists(const std::string& path);
std::string link_target(const std::string& path);  // "" where there is none

std::vector<std::string> split(std::string_view text, char separator);
std::vector<std::string> words(std::string_view text);
std::vector<std::string> lines(std::string_view text);
bool starts_with(std::string_view text, std::string_view prefix);
std::optional<std::int64_t> to_integer(std::string_view text);
// The number after `key` in a text of "key value" lines (cpu.stat and the like).
std::optional<std::int64_t> keyed_integer(std::string_view text, std::string_view key);

// A file descriptor that closes itself.
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
Pipe make_pipe();  // both ends close on exec

Fd block_signals();  // SIGTERM, SIGINT, SIGCHLD arrive at the descriptor returned; SIGHUP, SIGPIPE are ignored

void join_cgroups(const std::vector<std::string>& directories);

}  // namespace k8sdds
