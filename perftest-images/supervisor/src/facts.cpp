// What a pod and the machine below it are: asked once, before anything is measured.

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <map>

#include "commands.h"
#include "files.h"
#include "json.h"
#include "participant.h"

namespace k8sdds {

namespace {

constexpr std::array<const char*, 11> kSysctls = {
    "net.core.rmem_max",      "net.core.rmem_default",        "net.core.wmem_max",
    "net.core.wmem_default",  "net.core.netdev_max_backlog",  "net.core.netdev_budget",
    "net.ipv4.udp_mem",       "net.ipv4.ipfrag_high_thresh",  "net.ipv4.ipfrag_time",
    "kernel.sched_rt_runtime_us", "kernel.randomize_va_space"};

std::string one_line(const std::string& path) {
    std::string out;
    for (const auto& word : words(read_file(path).value_or(""))) out += (out.empty() ? "" : " ") + std::string(word);
    return out;
}

void text(Json& json, const char* key, const std::string& value) {
    json.text_or_null(key, value.empty() ? std::nullopt : std::optional(value));
}

std::string cpu_model() {
    for (const auto& line : lines(read_file("/proc/cpuinfo").value_or(""))) {
        const auto colon = line.find(':');
        if (colon == std::string::npos) continue;
        if (starts_with(line, "model name") || starts_with(line, "Model")) {
            const auto first = line.find_first_not_of(" \t", colon + 1);
            return first == std::string::npos ? "" : std::string(line.substr(first));
        }
    }
    return "";
}

std::map<std::string, std::string> addresses() {
    std::map<std::string, std::string> found;
    ifaddrs* list = nullptr;
    if (getifaddrs(&list) != 0) return found;
    for (const ifaddrs* one = list; one; one = one->ifa_next) {
        if (!one->ifa_addr || one->ifa_addr->sa_family != AF_INET || !(one->ifa_flags & IFF_UP)) continue;
        std::array<char, INET_ADDRSTRLEN> address;
        const auto* in = reinterpret_cast<const sockaddr_in*>(one->ifa_addr);
        if (inet_ntop(AF_INET, &in->sin_addr, address.data(), address.size())) found.emplace(one->ifa_name, address.data());
    }
    freeifaddrs(list);
    return found;
}

}  // namespace

int print_facts() {
    utsname system{};
    uname(&system);
    Json json;
    json.open_object().text("hostname", system.nodename).text("kernel", system.release);
    json.text("kernel_version", system.version).text("architecture", system.machine);
    text(json, "boot_id", one_line("/proc/sys/kernel/random/boot_id"));
    text(json, "cpu_model", cpu_model());
    json.integer("cpu_count", sysconf(_SC_NPROCESSORS_ONLN));
    json.open_array("cpus");
    for (const int cpu : list_cpus(current_cpus())) json.integer("", cpu);
    json.close_array();
    text(json, "cpu_governor", one_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"));
    json.integer("memory_bytes", sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE));
    text(json, "clocksource", one_line("/sys/devices/system/clocksource/clocksource0/current_clocksource"));
    json.integer("realtime_ns", realtime_ns());
    json.open_object("interfaces");
    for (const auto& [name, address] : addresses()) {
        json.open_object(name).text("address", address);
        json.integer_or_null("mtu_bytes", to_integer(one_line("/sys/class/net/" + name + "/mtu")));
        json.close_object();
    }
    json.close_object().open_object("sysctls");
    for (const std::string name : kSysctls) {
        std::string path = "/proc/sys/" + name;
        for (auto& c : path)
            if (c == '.') c = '/';
        text(json, name.c_str(), one_line(path));
    }
    json.close_object();
    std::puts(json.close_object().str().c_str());
    return 0;
}

}  // namespace k8sdds
