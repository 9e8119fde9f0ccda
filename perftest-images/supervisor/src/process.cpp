#include "process.h"

#include <dirent.h>
#include <sched.h>

#include <cstring>
#include <ctime>
#include <memory>

#include "support.h"

namespace k8sdds {

namespace {

std::string proc(pid_t pid, const char* name) { return "/proc/" + std::to_string(pid) + "/" + name; }

std::vector<pid_t> numbers_in(const std::string& directory) {
    std::vector<pid_t> numbers;
    const std::unique_ptr<DIR, int (*)(DIR*)> dir(opendir(directory.c_str()), closedir);
    if (!dir) return numbers;
    while (const dirent* entry = readdir(dir.get()))
        if (const auto number = to_integer(entry->d_name); number && *number > 0)
            numbers.push_back(static_cast<pid_t>(*number));
    return numbers;
}

std::int64_t ns_of(const timeval& t) {
    return std::int64_t{t.tv_sec} * 1'000'000'000 + std::int64_t{t.tv_usec} * 1000;
}

}  // namespace

CpuTime operator+(const CpuTime& a, const CpuTime& b) {
    return {a.total_ns + b.total_ns, a.user_ns + b.user_ns, a.system_ns + b.system_ns};
}

CpuTime cpu_of(const rusage& usage) {
    const auto user = ns_of(usage.ru_utime), system = ns_of(usage.ru_stime);
    return {user + system, user, system};
}

std::optional<ProcessStat> read_stat(pid_t pid) {
    const auto text = read_file(proc(pid, "stat"));
    if (!text) return std::nullopt;
    const auto end_of_name = text->rfind(')');  // the name may contain any character
    if (end_of_name == std::string::npos) return std::nullopt;
    const auto columns = fields(std::string_view(*text).substr(end_of_name + 1));  // starts with field 3
    if (columns.size() < 15) return std::nullopt;
    const auto field = [&](std::size_t number) { return to_integer(columns[number - 3]).value_or(0); };
    ProcessStat stat;
    stat.name = text->substr(text->find('(') + 1, end_of_name - text->find('(') - 1);
    stat.state = columns[0][0];
    stat.parent = static_cast<pid_t>(field(4));
    stat.own = {0, ticks_to_ns(field(14)), ticks_to_ns(field(15))};
    stat.children = {0, ticks_to_ns(field(16)), ticks_to_ns(field(17))};
    stat.own.total_ns = stat.own.user_ns + stat.own.system_ns;
    stat.children.total_ns = stat.children.user_ns + stat.children.system_ns;
    return stat;
}

std::optional<std::int64_t> process_clock_ns(pid_t pid) {
    clockid_t clock;
    timespec t{};
    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &t) != 0) return std::nullopt;
    return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

std::vector<pid_t> all_processes() { return numbers_in("/proc"); }

std::vector<pid_t> descendants(pid_t ancestor) {
    std::multimap<pid_t, pid_t> children;
    for (const pid_t pid : all_processes())
        if (const auto stat = read_stat(pid)) children.emplace(stat->parent, pid);
    std::vector<pid_t> all, open = {ancestor};
    while (!open.empty()) {
        const pid_t parent = open.back();
        open.pop_back();
        const auto [first, last] = children.equal_range(parent);
        for (auto child = first; child != last; ++child) {
            all.push_back(child->second);
            open.push_back(child->second);
        }
    }
    return all;
}

std::vector<pid_t> descendants_fast(pid_t ancestor) {
    static const bool has_children_files = exists("/proc/thread-self/children");  // CONFIG_PROC_CHILDREN
    if (!has_children_files) return descendants(ancestor);
    std::vector<pid_t> all, open = {ancestor};
    while (!open.empty()) {
        const std::string tasks = proc(open.back(), "task");
        open.pop_back();
        for (const pid_t thread : numbers_in(tasks))
            for (const auto& field : fields(read_file(tasks + "/" + std::to_string(thread) + "/children").value_or("")))
                if (const auto child = to_integer(field)) {
                    all.push_back(static_cast<pid_t>(*child));
                    open.push_back(all.back());
                }
    }
    return all;
}

CpuTime cpu_of_processes(const std::vector<pid_t>& pids) {
    CpuTime sum;
    for (const pid_t pid : pids) {
        const auto stat = read_stat(pid);
        if (!stat) continue;
        CpuTime own = stat->own;
        if (const auto exact = process_clock_ns(pid)) own.total_ns = *exact;
        sum = sum + own + stat->children;
    }
    return sum;
}

Switches context_switches(pid_t pid) {
    Switches switches;
    const std::string tasks = proc(pid, "task");
    for (const pid_t thread : numbers_in(tasks)) {
        const auto text = read_file(tasks + "/" + std::to_string(thread) + "/status");
        if (!text) continue;
        switches[thread] = {keyed_integer(*text, "voluntary_ctxt_switches:").value_or(0),
                            keyed_integer(*text, "nonvoluntary_ctxt_switches:").value_or(0)};
    }
    return switches;
}

std::optional<Execution> execution_of(pid_t pid) {
    const auto status = read_file(proc(pid, "status"));
    const auto locked = status ? keyed_integer(*status, "VmLck:") : std::nullopt;
    if (!locked) return std::nullopt;  // a process that has ended has no memory
    Execution execution;
    execution.locked_bytes = *locked * 1024;
    for (const auto& line : lines(*status))
        if (const auto parts = fields(line); parts.size() == 2 && parts[0] == "Cpus_allowed_list:")
            execution.cpus = parts[1];
    for (const pid_t thread : numbers_in(proc(pid, "task"))) {
        sched_param parameters{};
        const int policy = sched_getscheduler(thread);
        if (policy < 0 || sched_getparam(thread, &parameters) != 0) continue;  // it has ended
        const int known = policy & ~SCHED_RESET_ON_FORK;
        std::string name = known == SCHED_FIFO    ? "fifo"
                           : known == SCHED_RR    ? "rr"
                           : known == SCHED_OTHER ? "other"
                                                  : std::to_string(known);
        if (parameters.sched_priority) name += " " + std::to_string(parameters.sched_priority);
        ++execution.threads[name];
    }
    return execution;
}

std::optional<std::int64_t> peak_memory_bytes(pid_t pid) {
    const auto text = read_file(proc(pid, "status"));
    if (!text) return std::nullopt;
    const auto kilobytes = keyed_integer(*text, "VmHWM:");
    if (!kilobytes) return std::nullopt;  // the process has ended
    return *kilobytes * 1024;
}

void add_libraries(pid_t pid, std::set<std::string>& libraries) {
    const auto maps = read_file(proc(pid, "maps"));
    if (!maps) return;
    for (const auto& line : lines(*maps)) {
        const auto slash = line.find('/');
        if (slash == std::string::npos) continue;
        std::string path = line.substr(slash);
        const std::string deleted = " (deleted)";
        if (path.size() > deleted.size() && path.compare(path.size() - deleted.size(), deleted.size(), deleted) == 0)
            path.erase(path.size() - deleted.size());
        const std::string name = path.substr(path.rfind('/') + 1);
        const auto so = name.find(".so");
        if (so != std::string::npos && (so + 3 == name.size() || name[so + 3] == '.')) libraries.insert(path);
    }
}

bool is_dead(pid_t pid) {
    const auto stat = read_stat(pid);
    return !stat || stat->state == 'Z' || stat->state == 'X';
}

}  // namespace k8sdds
