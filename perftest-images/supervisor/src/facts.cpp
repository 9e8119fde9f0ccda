// Prints facts about the pod and its host as JSON. Used before anything is measured.

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "commands.h"
#include "json.h"
#include "participant.h"
#include "support.h"

namespace k8sdds {

namespace {

constexpr std::array<const char*, 12> kSysctls = {
    "net.core.rmem_max",      "net.core.rmem_default",        "net.core.wmem_max",
    "net.core.wmem_default",  "net.core.netdev_max_backlog",  "net.core.netdev_budget",
    "net.ipv4.udp_mem",       "net.ipv4.ipfrag_high_thresh",  "net.ipv4.ipfrag_time",
    "net.ipv4.tcp_congestion_control", "kernel.sched_rt_runtime_us", "kernel.randomize_va_space"};

std::string cpu_model() {
    for (const auto& line : lines(read_file("/proc/cpuinfo").value_or(""))) {
        const auto colon = line.find(':');
        if (colon == std::string::npos) continue;
        if (starts_with(line, "model name") || starts_with(line, "Model")) {
            const auto first = line.find_first_not_of(" \t", colon + 1);
            return first == std::string::npos ? "" : line.substr(first);
        }
    }
    return "";
}

// Returns the addresses of each interface that is up, those of IPv4 first. Link-local addresses of IPv6 are left out.
std::map<std::string, std::vector<std::string>> addresses() {
    std::map<std::string, std::vector<std::string>> by_name;
    ifaddrs* list = nullptr;
    if (getifaddrs(&list) != 0) return by_name;
    for (const int family : {AF_INET, AF_INET6}) {
        for (const ifaddrs* entry = list; entry; entry = entry->ifa_next) {
            if (!entry->ifa_addr || entry->ifa_addr->sa_family != family || !(entry->ifa_flags & IFF_UP)) continue;
            const auto* v6 = &reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr)->sin6_addr;
            if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(v6)) continue;
            const void* binary = v6;
            if (family == AF_INET) binary = &reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr;
            std::array<char, INET6_ADDRSTRLEN> address;
            if (inet_ntop(family, binary, address.data(), address.size()))
                by_name[entry->ifa_name].push_back(address.data());
        }
    }
    freeifaddrs(list);
    return by_name;
}

// Returns the size of the largest packet of IPv4 that leaves through an interface: the MTU of the interface, or that of its
// default route if it is smaller, as in pods of Cilium. No packet is sent. None if the interface has no IPv4, or if its MTU is
// larger than packets can be, as that of the loopback.
std::optional<std::int64_t> route_mtu(const std::string& interface) {
    const Fd socket{::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
    sockaddr_in anywhere{};
    anywhere.sin_family = AF_INET;
    anywhere.sin_port = htons(9);
    inet_pton(AF_INET, "192.0.2.1", &anywhere.sin_addr);
    const auto length = static_cast<socklen_t>(interface.size());
    int mtu = 0;
    socklen_t size = sizeof mtu;
    if (setsockopt(socket.get(), SOL_SOCKET, SO_BINDTODEVICE, interface.data(), length) != 0 ||
        connect(socket.get(), reinterpret_cast<const sockaddr*>(&anywhere), sizeof anywhere) != 0 ||
        getsockopt(socket.get(), IPPROTO_IP, IP_MTU, &mtu, &size) != 0)
        return std::nullopt;
    if (mtu >= IP_MAXPACKET) return std::nullopt;
    return mtu;
}

Json interfaces() {
    Json all = Json::object();
    for (const auto& [name, own] : addresses()) {
        auto mtu = to_integer(one_line("/sys/class/net/" + name + "/mtu"));
        if (const auto of_route = route_mtu(name); mtu && of_route) mtu = std::min(*mtu, *of_route);
        all[name] = {{"addresses", own}, {"mtu_bytes", json_or_null(mtu)}};
    }
    return all;
}

Json sysctls() {
    Json all = Json::object();
    for (const std::string name : kSysctls) {
        std::string path = "/proc/sys/" + name;
        std::replace(path.begin() + 10, path.end(), '.', '/');
        all[name] = json_or_null(one_line(path));
    }
    return all;
}

// Returns why the kernel refuses SCHED_FIFO to this process; empty if it does not.
std::string realtime_refusal() {
    const int policy = sched_getscheduler(0);
    sched_param parameters{};
    parameters.sched_priority = sched_get_priority_min(SCHED_FIFO);
    if (sched_setscheduler(0, SCHED_FIFO, &parameters) != 0) return errno_text();
    parameters.sched_priority = 0;
    sched_setscheduler(0, policy, &parameters);
    return "";
}

// Returns whether the kernel leaves the time of interrupts out of that of processes (CONFIG_IRQ_TIME_ACCOUNTING): then it
// has this function. None if the kernel does not list its functions.
std::optional<bool> separate_interrupts() {
    std::ifstream symbols("/proc/kallsyms");
    bool any = false;
    for (std::string line; std::getline(symbols, line); any = true)
        if (line.find(" irqtime_account_irq") != std::string::npos) return true;
    if (!any) return std::nullopt;
    return false;
}

}  // namespace

int print_facts() {
    utsname system{};
    uname(&system);
    const Json facts = {
        {"hostname", system.nodename},
        {"kernel", system.release},
        {"kernel_version", system.version},
        {"architecture", system.machine},
        {"boot_id", json_or_null(one_line("/proc/sys/kernel/random/boot_id"))},
        {"cpu_model", json_or_null(cpu_model())},
        {"cpu_count", sysconf(_SC_NPROCESSORS_ONLN)},
        {"cpus", list_cpus(current_cpus())},
        {"cpu_governor", json_or_null(one_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"))},
        {"memory_bytes", sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE)},
        {"clocksource", json_or_null(one_line("/sys/devices/system/clocksource/clocksource0/current_clocksource"))},
        {"separate_interrupts", json_or_null(separate_interrupts())},
        {"realtime_ns", realtime_ns()},
        {"realtime_refusal", json_or_null(realtime_refusal())},
        {"interfaces", interfaces()},
        {"sysctls", sysctls()},
    };
    std::puts(json_text(facts, 2).c_str());
    return 0;
}

}  // namespace k8sdds
