#include "capabilities.h"

#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdint>

#include "support.h"

namespace k8sdds {

namespace {

constexpr std::array<const char*, 41> kNames = {
    "CHOWN",           "DAC_OVERRIDE",     "DAC_READ_SEARCH", "FOWNER",         "FSETID",
    "KILL",            "SETGID",           "SETUID",          "SETPCAP",        "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE", "NET_BROADCAST",   "NET_ADMIN",       "NET_RAW",        "IPC_LOCK",
    "IPC_OWNER",       "SYS_MODULE",       "SYS_RAWIO",       "SYS_CHROOT",     "SYS_PTRACE",
    "SYS_PACCT",       "SYS_ADMIN",        "SYS_BOOT",        "SYS_NICE",       "SYS_RESOURCE",
    "SYS_TIME",        "SYS_TTY_CONFIG",   "MKNOD",           "LEASE",          "AUDIT_WRITE",
    "AUDIT_CONTROL",   "SETFCAP",          "MAC_OVERRIDE",    "MAC_ADMIN",      "SYSLOG",
    "WAKE_ALARM",      "BLOCK_SUSPEND",    "AUDIT_READ",      "PERFMON",        "BPF",
    "CHECKPOINT_RESTORE"};

constexpr std::uint64_t bit(int capability) { return std::uint64_t{1} << capability; }

// containerd's default (oci.WithDefaultUnixCapabilities), which Kubernetes does not change.
constexpr std::uint64_t kContainer =
    bit(CAP_CHOWN) | bit(CAP_DAC_OVERRIDE) | bit(CAP_FSETID) | bit(CAP_FOWNER) | bit(CAP_MKNOD) |
    bit(CAP_NET_RAW) | bit(CAP_SETGID) | bit(CAP_SETUID) | bit(CAP_SETFCAP) | bit(CAP_SETPCAP) |
    bit(CAP_NET_BIND_SERVICE) | bit(CAP_SYS_CHROOT) | bit(CAP_KILL) | bit(CAP_AUDIT_WRITE);

std::uint64_t kept_capabilities(bool keep_ipc_lock) {
    return kContainer | (keep_ipc_lock ? bit(CAP_IPC_LOCK) : 0);
}

struct Sets {
    std::uint64_t effective = 0, permitted = 0, inheritable = 0;
};

__user_cap_header_struct header() { return {_LINUX_CAPABILITY_VERSION_3, 0}; }

Sets current_sets() {
    auto head = header();
    std::array<__user_cap_data_struct, 2> data{};
    syscall(SYS_capget, &head, data.data());
    const auto join = [](std::uint32_t low, std::uint32_t high) { return std::uint64_t{high} << 32 | low; };
    return {join(data[0].effective, data[1].effective), join(data[0].permitted, data[1].permitted),
            join(data[0].inheritable, data[1].inheritable)};
}

bool in_bounding(int capability) { return prctl(PR_CAPBSET_READ, capability, 0, 0, 0) == 1; }

std::vector<std::string> names(std::uint64_t set) {
    std::vector<std::string> all;
    for (int capability = 0; capability < 64; ++capability) {
        if (!(set & bit(capability))) continue;
        const auto index = static_cast<std::size_t>(capability);
        all.push_back(index < kNames.size() ? kNames[index] : "CAP_" + std::to_string(capability));
    }
    return all;
}

}  // namespace

bool has_capability(int capability) { return current_sets().effective & bit(capability); }

CapabilityReport plan_capabilities(bool drop, bool keep_ipc_lock) {
    CapabilityReport report;
    const std::uint64_t permitted = current_sets().permitted;
    // At exec root keeps its capabilities and, with no_new_privs, gains none; other users lose them.
    std::uint64_t after_exec = drop ? permitted & kept_capabilities(keep_ipc_lock) : permitted;
    if (geteuid() != 0) after_exec = 0;
    report.kept = names(after_exec);
    if (!drop) return report;
    report.missing = names(kContainer & ~permitted);
    report.bounding_limited = true;
    if (!(permitted & bit(CAP_SETPCAP)))
        for (int capability = 0; capability < 64; ++capability)
            if (in_bounding(capability) && !(kept_capabilities(keep_ipc_lock) & bit(capability))) report.bounding_limited = false;
    return report;
}

std::string drop_capabilities(bool keep_ipc_lock) {
    const std::uint64_t kept = kept_capabilities(keep_ipc_lock);
    const std::uint64_t permitted = current_sets().permitted;
    for (int capability = 0; capability < 64; ++capability) {
        if ((kept & bit(capability)) || !in_bounding(capability)) continue;
        // Without CAP_SETPCAP the bounding set cannot be changed; no_new_privs prevents gaining from it at exec.
        if (!(permitted & bit(CAP_SETPCAP))) break;
        if (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0)
            return "cannot drop capability " + std::to_string(capability) + ": " + errno_text();
    }
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);

    const std::uint64_t keep = permitted & kept;
    auto head = header();
    std::array<__user_cap_data_struct, 2> data{};
    for (std::size_t half = 0; half < data.size(); ++half) {
        const auto part = static_cast<std::uint32_t>(keep >> (32 * half));
        data[half].effective = part;
        data[half].permitted = part;
        data[half].inheritable = 0;  // empty in containers since containerd 1.6.2
    }
    if (syscall(SYS_capset, &head, data.data()) != 0) return "cannot set capabilities: " + errno_text();
    return "";
}

}  // namespace k8sdds
