#include "meters.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <utility>

namespace k8sdds {

namespace {

struct NetworkCounter {
    const char* group;  // in /proc/net/snmp and /proc/net/netstat
    const char* name;
    const char* key;  // in meters.json
};

constexpr std::array<NetworkCounter, 17> kNetworkCounters = {{
    {"Udp", "InDatagrams", "udp_in_datagrams"},
    {"Udp", "OutDatagrams", "udp_out_datagrams"},
    {"Udp", "InErrors", "udp_in_errors"},
    {"Udp", "RcvbufErrors", "udp_rcvbuf_errors"},
    {"Udp", "SndbufErrors", "udp_sndbuf_errors"},
    {"Ip", "ReasmReqds", "ip_reasm_reqds"},
    {"Ip", "ReasmOKs", "ip_reasm_oks"},
    {"Ip", "ReasmFails", "ip_reasm_fails"},
    {"Ip", "FragOKs", "ip_frag_oks"},
    {"Ip", "FragFails", "ip_frag_fails"},
    {"Ip", "FragCreates", "ip_frag_creates"},
    {"Ip", "InDiscards", "ip_in_discards"},
    {"Ip", "OutDiscards", "ip_out_discards"},
    {"IpExt", "InMcastPkts", "ip_in_mcast_packets"},
    {"IpExt", "OutMcastPkts", "ip_out_mcast_packets"},
    {"IpExt", "InMcastOctets", "ip_in_mcast_bytes"},
    {"IpExt", "OutMcastOctets", "ip_out_mcast_bytes"},
}};

// Adds the counters of a file with pairs of lines: "Udp: InDatagrams NoPorts ..." and "Udp: 12 0 ...".
void add_network(const std::string& path, std::map<std::string, std::int64_t>& counters) {
    const auto all = lines(read_file(path).value_or(""));
    for (std::size_t i = 0; i + 1 < all.size(); i += 2) {
        const auto names = fields(all[i]), values = fields(all[i + 1]);
        if (names.empty() || values.size() != names.size() || names[0] != values[0]) continue;
        for (const auto& counter : kNetworkCounters) {
            if (names[0] != std::string(counter.group) + ":") continue;
            const auto at = std::find(names.begin(), names.end(), counter.name);
            if (at == names.end()) continue;
            if (const auto value = to_integer(values[static_cast<std::size_t>(at - names.begin())]))
                counters[counter.key] = *value;
        }
    }
}

// Adds the counters of /proc/net/snmp6, with lines such as "Udp6InDatagrams 12", to those of IPv4.
void add_network_ipv6(std::map<std::string, std::int64_t>& counters) {
    std::map<std::string, std::int64_t> values;
    for (const auto& line : lines(read_file("/proc/self/net/snmp6").value_or(""))) {
        const auto parts = fields(line);
        if (parts.size() == 2) values[parts[0]] = to_integer(parts[1]).value_or(0);
    }
    for (const auto& counter : kNetworkCounters) {
        const std::string group = counter.group == std::string("Udp") ? "Udp6" : "Ip6";
        if (const auto found = values.find(group + counter.name); found != values.end())
            counters[counter.key] += found->second;
    }
}

std::map<std::string, InterfaceCounters> read_interfaces() {
    // Columns: bytes packets errs drop fifo frame compressed multicast, first received, then transmitted.
    constexpr std::array<std::size_t, kInterfaceCounters.size()> columns = {0, 1, 2, 3, 8, 9, 10, 11};
    std::map<std::string, InterfaceCounters> interfaces;
    for (const auto& line : lines(read_file("/proc/self/net/dev").value_or(""))) {
        const auto colon = line.find(':');
        if (colon == std::string::npos) continue;
        const auto name = fields(std::string_view(line).substr(0, colon));
        const auto values = fields(std::string_view(line).substr(colon + 1));
        if (name.size() != 1 || values.size() < 12) continue;
        for (std::size_t i = 0; i < columns.size(); ++i)
            interfaces[name[0]][i] = to_integer(values[columns[i]]).value_or(0);
    }
    return interfaces;
}

MachineTimes read_machine() {
    MachineTimes times{};
    const auto text = read_file("/proc/stat").value_or("");
    const auto columns = fields(std::string_view(text).substr(0, text.find('\n')));
    for (std::size_t i = 0; i < times.size() && i + 1 < columns.size(); ++i)
        times[i] = ticks_to_ns(to_integer(columns[i + 1]).value_or(0));
    return times;
}

}  // namespace

std::vector<std::string> network_counter_names() {
    std::vector<std::string> names;
    for (const auto& counter : kNetworkCounters) names.emplace_back(counter.key);
    return names;
}

std::int64_t counter_difference(std::int64_t start, std::int64_t end) {
    constexpr std::int64_t kWidth = std::int64_t{1} << 32;
    if (end >= start) return end - start;
    if (start >= 0 && start < kWidth && end >= 0) return end + kWidth - start;  // the counter is 32 bits wide
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(end) - static_cast<std::uint64_t>(start));
}

Meters::Meters(PodCgroup cgroup, pid_t participant)
    : cgroup_(std::move(cgroup)),
      participant_(participant),
      statm_(open(("/proc/" + std::to_string(participant) + "/statm").c_str(), O_RDONLY | O_CLOEXEC)) {}

Snapshot Meters::read() const {
    Snapshot s;
    s.monotonic_ns = monotonic_ns();
    s.process_ns = process_clock_ns(participant_);
    if (!s.process_ns) {
        s.process_exact = false;
        if (const auto stat = read_stat(participant_)) s.process_ns = stat->own.total_ns;
    }
    s.supervisor_ns = own_cpu_ns();
    if (uses_cgroup()) {
        s.pod_cpu = cgroup_.cpu();
    } else {
        s.pod_cpu = reaped_ + cpu_of_processes(descendants_fast(getpid()));
    }
    s.throttling = cgroup_.throttling();
    s.pressure = cgroup_.pressure();
    add_network("/proc/self/net/snmp", s.network);
    add_network("/proc/self/net/netstat", s.network);
    add_network_ipv6(s.network);
    s.interfaces = read_interfaces();
    s.machine = read_machine();
    s.switches = context_switches(participant_);
    s.peak_bytes = peak_memory_bytes(participant_);
    return s;
}

void Meters::sample_memory() {
    std::array<char, 128> buffer;
    const ssize_t n = statm_ ? pread(statm_.get(), buffer.data(), buffer.size() - 1, 0) : -1;
    if (n <= 0) return;
    buffer[static_cast<std::size_t>(n)] = '\0';
    char* resident = nullptr;
    std::strtoll(buffer.data(), &resident, 10);  // skips the total size
    const long long pages = std::strtoll(resident, nullptr, 10);
    if (pages == 0) return;  // the participant has ended
    const std::int64_t bytes = pages * sysconf(_SC_PAGESIZE);
    sum_bytes_ += bytes;
    most_bytes_ = std::max(most_bytes_, bytes);
    ++samples_;
}

std::optional<std::int64_t> Meters::memory_mean_bytes() const {
    if (samples_ == 0) return std::nullopt;
    return sum_bytes_ / samples_;
}

int machine_cpus() {
    int cpus = 0;
    for (const auto& line : lines(read_file("/proc/stat").value_or("")))
        if (starts_with(line, "cpu") && !starts_with(line, "cpu ")) ++cpus;
    return cpus;
}

std::optional<double> load_1m() {
    const auto text = read_file("/proc/loadavg");
    if (!text) return std::nullopt;
    return std::strtod(text->c_str(), nullptr);
}

}  // namespace k8sdds
