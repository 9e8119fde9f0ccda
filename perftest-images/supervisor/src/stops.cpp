// Records when the CPU limits of cgroups stopped their processes. It runs outside of these cgroups, so that it uses none of
// their CPU time and is not stopped itself.

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "commands.h"
#include "json.h"
#include "participant.h"
#include "support.h"

namespace k8sdds {

namespace {

constexpr std::int64_t kStep = 2'000'000;      // between two readings
constexpr std::size_t kMost = 20'000;          // stops of a cgroup; if there are more, none is reported

// The stops of a cgroup. The kernel counts a stop when it ends, so its length is known, and its position to within half the
// time between two readings.
class Stopped {
public:
    explicit Stopped(const std::string& directory) : stat_(open((directory + "/cpu.stat").c_str(), O_RDONLY | O_CLOEXEC)) {
        const auto before = total_ns();
        if (!before)
            throw Failure(kPrerequisite, directory + "/cpu.stat does not contain the time for which a limit stopped it");
        before_ns_ = *before;
        read_at_ = monotonic_ns();
        stops_.reserve(kMost);
    }

    void read() {
        const auto now = monotonic_ns();
        const auto total = total_ns().value_or(before_ns_);
        // The stop ended between the readings, on average in the middle.
        const auto half = (now - read_at_) / 2;
        // The time is a sum over cores, so a stop is at most as long as that.
        if (total > before_ns_) add(read_at_ - (total - before_ns_) + half, now - half, now);
        before_ns_ = total;
        read_at_ = now;
    }

    Json report() const {
        if (stops_.size() == kMost) return nullptr;
        Json all = Json::array();
        // Rounded outwards, so that none is too short.
        for (const auto& stop : stops_) all.push_back({stop[0] / 1000, (stop[1] + 999) / 1000});
        return all;
    }

private:
    // A stop on one core begins after the previous one: if late readings placed them over each other, it is moved.
    void add(std::int64_t from, std::int64_t to, std::int64_t latest) {
        if (!stops_.empty() && from <= stops_.back()[1]) {
            const auto moved = stops_.back()[1] - from;
            stops_.back()[1] = std::max(stops_.back()[1], std::min(to + moved, latest));
        } else if (stops_.size() < kMost) {
            stops_.push_back({from, to});
        }
    }

    std::optional<std::int64_t> total_ns() const {
        std::array<char, 1024> text;
        const ssize_t n = stat_ ? pread(stat_.get(), text.data(), text.size() - 1, 0) : -1;
        text[static_cast<std::size_t>(std::max<ssize_t>(n, 0))] = '\0';
        constexpr std::string_view v1 = "throttled_time ", v2 = "throttled_usec ";
        if (const char* found = std::strstr(text.data(), v1.data())) return std::strtoll(found + v1.size(), nullptr, 10);
        if (const char* found = std::strstr(text.data(), v2.data()))
            return std::strtoll(found + v2.size(), nullptr, 10) * 1000;
        return std::nullopt;
    }

    Fd stat_;
    std::int64_t before_ns_ = 0, read_at_ = 0;
    std::vector<std::array<std::int64_t, 2>> stops_;  // begin and end, by CLOCK_MONOTONIC
};

}  // namespace

int record_stops(const Options& options) {
    require_cpus("--own-cpus", options.own_cpus);
    if (!options.own_cpus.empty()) pin_to(cpu_mask(options.own_cpus));
    std::vector<Stopped> all;
    for (const auto& directory : options.cgroups) all.emplace_back(directory);
    std::fputs("ready\n", stderr);
    const std::int64_t end_ns = monotonic_ns() + options.deadline_ns;
    pollfd input{STDIN_FILENO, POLLIN, 0};
    const timespec step{0, kStep};
    while (monotonic_ns() < end_ns && ppoll(&input, 1, &step, nullptr) <= 0)
        for (auto& one : all) one.read();
    Json report = Json::array();
    for (auto& one : all) {
        one.read();
        report.push_back(one.report());
    }
    std::puts(json_text(report).c_str());
    return 0;
}

}  // namespace k8sdds
