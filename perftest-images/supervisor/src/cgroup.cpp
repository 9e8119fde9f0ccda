#include "cgroup.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>

namespace k8sdds {

namespace {

struct Mount {
    std::string root, point;
    bool v2 = false;
    std::vector<std::string> controllers;  // v1: super block options, which include the controllers
};

std::vector<Mount> cgroup_mounts() {
    std::vector<Mount> mounts;
    for (const auto& line : lines(read_file("/proc/self/mountinfo").value_or(""))) {
        const auto dash = line.find(" - ");
        if (dash == std::string::npos) continue;
        const auto left = fields(std::string_view(line).substr(0, dash));
        const auto right = fields(std::string_view(line).substr(dash + 3));
        if (left.size() < 5 || right.size() < 3) continue;
        if (right[0] == "cgroup2") mounts.push_back({left[3], left[4], true, {}});
        if (right[0] == "cgroup") mounts.push_back({left[3], left[4], false, split(right[2], ',')});
    }
    return mounts;
}

bool mounts_hierarchy(const Mount& mount, bool v2, const std::string& controllers) {
    if (mount.v2 || v2) return mount.v2 && v2;
    const auto first = split(controllers, ',')[0];
    for (const auto& option : mount.controllers)
        if (option == first) return true;
    return false;
}

// Only the root cgroup of the host has release_agent (v1) or has no cgroup.events (v2).
bool is_host_root(const std::string& directory, bool v2) {
    return v2 ? !exists(directory + "/cgroup.events") : exists(directory + "/release_agent");
}

// Returns the directories of the own cgroup, one per hierarchy. With `dedicated`, only those of a container: mounted
// as the root of the hierarchy that the container sees, without being the root of the host.
std::vector<std::string> own_cgroups(bool dedicated) {
    const auto mounts = cgroup_mounts();
    std::vector<std::string> directories;
    for (const auto& line : lines(read_file("/proc/self/cgroup").value_or(""))) {
        const auto first = line.find(':'), second = line.find(':', first + 1);
        if (first == std::string::npos || second == std::string::npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        const std::string path = line.substr(second + 1);
        if (starts_with(path, "/..")) continue;  // outside this cgroup namespace
        for (const auto& mount : mounts) {
            if (!mounts_hierarchy(mount, line.substr(0, first) == "0", controllers)) continue;
            const bool at_root = mount.root == path;
            const bool below = mount.root == "/" || at_root || starts_with(path, mount.root + "/");
            if (!below) continue;
            const std::string directory = mount.root == "/" ? mount.point + (path == "/" ? "" : path)
                                                            : mount.point + path.substr(mount.root.size());
            if (dedicated && (!at_root || is_host_root(directory, mount.v2))) continue;
            directories.push_back(directory);
            break;
        }
    }
    return directories;
}

std::optional<std::int64_t> integer_file(const std::string& path) {
    const auto text = read_file(path);
    if (!text) return std::nullopt;
    const auto parts = fields(*text);
    return parts.empty() ? std::nullopt : to_integer(parts[0]);
}

}  // namespace

PodCgroup PodCgroup::find(const std::vector<std::string>& joined, bool own_is_pod) {
    PodCgroup pod;
    const auto directories = joined.empty() ? own_cgroups(!own_is_pod) : joined;
    for (const auto& directory : directories) pod.add(directory);
    if (own_is_pod && pod.cpu_source().empty())
        throw Failure(kPrerequisite, "--cgroup-is-pod: no cgroup of this process counts CPU time; "
                                     "check /proc/self/cgroup and /proc/self/mountinfo");
    return pod;
}

void PodCgroup::add(const std::string& directory) {
    bool used = false;
    const auto take = [&](std::string& slot, bool present) {
        if (present && slot.empty()) slot = directory, used = true;
    };
    const auto stat = read_file(directory + "/cpu.stat").value_or("");
    take(cpu_v2_, keyed_integer(stat, "usage_usec").has_value());
    take(throttling_v1_, keyed_integer(stat, "throttled_time").has_value());
    take(pressure_v2_, exists(directory + "/cpu.pressure"));
    take(cpu_v1_, exists(directory + "/cpuacct.usage"));
    take(memory_v1_, exists(directory + "/memory.max_usage_in_bytes"));
    take(memory_v2_, exists(directory + "/memory.peak"));
    if (used) directories_.push_back(directory);
}

std::string PodCgroup::cpu_source() const {
    if (!cpu_v1_.empty()) return "cgroup-v1";
    return cpu_v2_.empty() ? "" : "cgroup-v2";
}

std::optional<CpuTime> PodCgroup::cpu() const {
    if (!cpu_v1_.empty()) {
        const auto usage = integer_file(cpu_v1_ + "/cpuacct.usage");
        if (!usage) return std::nullopt;
        const auto stat = read_file(cpu_v1_ + "/cpuacct.stat").value_or("");
        return CpuTime{*usage, ticks_to_ns(keyed_integer(stat, "user").value_or(0)),
                   ticks_to_ns(keyed_integer(stat, "system").value_or(0))};
    }
    if (cpu_v2_.empty()) return std::nullopt;
    const auto stat = read_file(cpu_v2_ + "/cpu.stat").value_or("");
    const auto usage = keyed_integer(stat, "usage_usec");
    if (!usage) return std::nullopt;
    return CpuTime{*usage * 1000, keyed_integer(stat, "user_usec").value_or(0) * 1000,
               keyed_integer(stat, "system_usec").value_or(0) * 1000};
}

std::optional<Throttling> PodCgroup::throttling() const {
    const bool v1 = !throttling_v1_.empty();
    if (!v1 && cpu_v2_.empty()) return std::nullopt;
    const auto stat = read_file((v1 ? throttling_v1_ : cpu_v2_) + "/cpu.stat").value_or("");
    const auto all = keyed_integer(stat, "nr_periods"), periods = keyed_integer(stat, "nr_throttled");
    const auto time = keyed_integer(stat, v1 ? "throttled_time" : "throttled_usec");
    if (!all || !periods || !time) return std::nullopt;
    return Throttling{*all, *periods, v1 ? *time : *time * 1000};
}

std::optional<Pressure> PodCgroup::pressure() const {
    if (pressure_v2_.empty()) return std::nullopt;
    Pressure pressure;
    for (const auto& line : lines(read_file(pressure_v2_ + "/cpu.pressure").value_or(""))) {
        const auto parts = fields(line);
        const auto total = parts.size() == 5 && starts_with(parts[4], "total=") ? to_integer(parts[4].substr(6)) : std::nullopt;
        if (!total) return std::nullopt;
        (parts[0] == "some" ? pressure.some_ns : pressure.full_ns) = *total * 1000;
    }
    return pressure;
}

void PodCgroup::restart_memory_peak() {
    if (!memory_v1_.empty()) {
        memory_restarted_ = write_file(memory_v1_ + "/memory.max_usage_in_bytes", "0");
    } else if (!memory_v2_.empty()) {
        // Since Linux 6.12 a write restarts the peak for readers of this file descriptor.
        Fd fd(open((memory_v2_ + "/memory.peak").c_str(), O_RDWR | O_CLOEXEC));
        memory_restarted_ = fd && write(fd.get(), "0\n", 2) == 2;
        if (memory_restarted_) memory_peak_ = std::move(fd);
    }
}

std::optional<std::int64_t> PodCgroup::memory_peak_bytes() const {
    if (memory_peak_) {
        std::array<char, 64> buffer;
        const ssize_t n = pread(memory_peak_.get(), buffer.data(), buffer.size(), 0);
        if (n <= 0) return std::nullopt;
        const auto parts = fields(std::string_view(buffer.data(), static_cast<std::size_t>(n)));
        return parts.empty() ? std::nullopt : to_integer(parts[0]);
    }
    if (!memory_v1_.empty()) return integer_file(memory_v1_ + "/memory.max_usage_in_bytes");
    return memory_v2_.empty() ? std::nullopt : integer_file(memory_v2_ + "/memory.peak");
}

}  // namespace k8sdds
