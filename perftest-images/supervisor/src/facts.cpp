// Prints facts about the pod and its host as JSON. Used before anything is measured.

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sched.h>
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

Json interfaces() {
    Json all = Json::object();
    for (const auto& [name, own] : addresses())
        all[name] = {{"addresses", own},
                     {"mtu_bytes", json_or_null(to_integer(one_line("/sys/class/net/" + name + "/mtu")))}};
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
