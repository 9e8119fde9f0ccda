#include "support.h"

#include <fcntl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <ctime>

namespace k8sdds {

namespace {

std::int64_t clock_ns(clockid_t clock) {
    timespec t{};
    clock_gettime(clock, &t);
    return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

}  // namespace

std::string errno_text() { return std::strerror(errno); }

std::int64_t monotonic_ns() { return clock_ns(CLOCK_MONOTONIC); }
std::int64_t realtime_ns() { return clock_ns(CLOCK_REALTIME); }
std::int64_t own_cpu_ns() { return clock_ns(CLOCK_PROCESS_CPUTIME_ID); }

std::int64_t ticks_to_ns(std::int64_t ticks) {
    static const std::int64_t hz = sysconf(_SC_CLK_TCK) > 0 ? sysconf(_SC_CLK_TCK) : 100;
    return ticks * (1'000'000'000 / hz);
}

std::optional<std::string> read_file(const std::string& path) {
    Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd) return std::nullopt;
    std::string text;
    std::array<char, 16384> buffer;
    while (true) {
        const ssize_t n = read(fd.get(), buffer.data(), buffer.size());
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return std::nullopt;
        if (n == 0) return text;
        text.append(buffer.data(), static_cast<std::size_t>(n));
    }
}

bool write_file(const std::string& path, std::string_view text) {
    Fd fd(open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (!fd) return false;
    return write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

bool exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

std::string link_target(const std::string& path) {
    std::array<char, 4096> buffer;
    const ssize_t n = readlink(path.c_str(), buffer.data(), buffer.size());
    return n > 0 ? std::string(buffer.data(), static_cast<std::size_t>(n)) : std::string();
}

std::vector<std::string> split(std::string_view text, char separator) {
    std::vector<std::string> parts;
    while (true) {
        const auto end = text.find(separator);
        parts.emplace_back(text.substr(0, end));
        if (end == std::string_view::npos) return parts;
        text.remove_prefix(end + 1);
    }
}

std::vector<std::string> fields(std::string_view text) {
    std::vector<std::string> parts;
    constexpr std::string_view space = " \t\n";
    while (true) {
        const auto begin = text.find_first_not_of(space);
        if (begin == std::string_view::npos) return parts;
        text.remove_prefix(begin);
        const auto end = text.find_first_of(space);
        parts.emplace_back(text.substr(0, end));
        if (end == std::string_view::npos) return parts;
        text.remove_prefix(end);
    }
}

std::string one_line(const std::string& path) {
    std::string line;
    for (const auto& field : fields(read_file(path).value_or(""))) line += (line.empty() ? "" : " ") + field;
    return line;
}

std::vector<std::string> lines(std::string_view text) {
    auto parts = split(text, '\n');
    if (!parts.empty() && parts.back().empty()) parts.pop_back();
    return parts;
}

bool starts_with(std::string_view text, std::string_view prefix) {
    return text.substr(0, prefix.size()) == prefix;
}

std::optional<std::int64_t> to_integer(std::string_view text) {
    // Kernel counters may use all 64 bits. Differences of them are also correct in two's complement.
    std::uint64_t value = 0;
    const bool negative = starts_with(text, "-");
    if (negative) text.remove_prefix(1);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    return static_cast<std::int64_t>(negative ? 0 - value : value);
}

std::optional<std::int64_t> keyed_integer(std::string_view text, std::string_view key) {
    for (const auto& line : lines(text)) {
        const auto parts = fields(line);
        if (parts.size() >= 2 && parts[0] == key) return to_integer(parts[1]);
    }
    return std::nullopt;
}

void Fd::close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
}

Pipe make_pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw Failure(kPrerequisite, "cannot create a pipe: " + errno_text());
    return {Fd(ends[0]), Fd(ends[1])};
}

Fd block_signals() {
    signal(SIGHUP, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    // Reset the dispositions, because the parent may have ignored these signals. They must be blocked: for PID 1 the
    // kernel drops signals from inside its namespace that are neither blocked nor handled.
    for (const int number : {SIGTERM, SIGINT, SIGCHLD}) signal(number, SIG_DFL);
    sigset_t set;
    sigemptyset(&set);
    for (const int number : {SIGTERM, SIGINT, SIGCHLD}) sigaddset(&set, number);
    sigprocmask(SIG_SETMASK, &set, nullptr);
    Fd fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!fd) throw Failure(kPrerequisite, "cannot create a signalfd: " + errno_text());
    return fd;
}

void join_cgroups(const std::vector<std::string>& directories) {
    for (const auto& directory : directories) {
        const std::string path = directory + "/cgroup.procs";
        // "0" means the writing process, in any PID namespace.
        if (!write_file(path, "0"))
            throw Failure(kPrerequisite, "cannot join the cgroup through " + path + ": " + errno_text());
    }
}

}  // namespace k8sdds
