#include "announcement.h"

#include <algorithm>

#include "options.h"

namespace k8sdds {
namespace {

constexpr int64_t longest_ns = 1'000'000'000LL * 86400 * 365, latest_ns = int64_t{1} << 61, most_samples = int64_t{1} << 48;
constexpr int64_t last_port = 65535, last_id = 999;

bool within(int64_t value, int64_t low, int64_t high) { return value >= low && value <= high; }

// Of a node of a graph.
bool has_valid_node_values(const Announcement& a) {
    const auto& v = a.value;
    switch (a.kind) {
    case Kind::ready:                                      // clock, its offset, digest of the graph and its times, a Node::Progress
        return a.run != 0 && within(v[1], -latest_ns, latest_ns) && within(v[3], 0, 2);
    case Kind::start:                                      // time until the measured interval
        return within(v[0], -longest_ns, longest_ns);
    case Kind::end:                                        // first flow, clock offset, samples of flows (-1: has not ended)
        if (!within(v[0], 0, last_id) || !within(v[1], -latest_ns, latest_ns)) return false;
        return std::all_of(v + end_values, v + announcement_values, [](int64_t sent) { return within(sent, -1, most_samples); });
    case Kind::abort:
        return within(v[0], 0, 255);
    default:
        return a.kind <= Kind::abort;
    }
}

bool has_valid_values(const Announcement& a) {
    const auto& v = a.value;
    switch (a.kind) {
    case Kind::hello:                                      // ports for samples and announcements; a flag; source port
        return within(v[0], 1, last_port) && within(v[1], 1, last_port) && within(v[2], 0, 1) && within(v[3], 0, last_port);
    case Kind::start:                                      // test with a flag, warm-up, deadline, length, clock, its offset,
                                                           // instances, schedule
        return a.run != 0 &&
               (within(v[0], 0, static_cast<int64_t>(Test::paced)) || v[0] == (static_cast<int64_t>(Test::paced) | lengths_vary_flag)) &&
               within(v[1], 0, longest_ns) && within(v[2], 0, longest_ns) && is_data_length(v[3]) && within(v[5], -latest_ns, latest_ns) &&
               within(v[6], 0, max_instances) && within(v[7], 0, longest_ns);
    case Kind::end:                                        // samples, clock offset
        return within(v[0], 0, most_samples) && within(v[1], -latest_ns, latest_ns);
    case Kind::report:                                     // three numbers of samples; first and last sample; instances
        for (int i = 0; i < 3; ++i)
            if (!within(v[i], 0, most_samples)) return false;
        return within(v[3], 0, latest_ns) && within(v[4], 0, latest_ns) && within(v[5], 0, max_instances);
    case Kind::done:                                       // next length of a scan
        return v[0] == 0 || is_data_length(v[0]);
    case Kind::abort:                                      // exit code
        return within(v[0], 0, 255);
    case Kind::ready:                                      // whether it is restarted; in an answer to START, the clock
    case Kind::alive:
    case Kind::bye:
        return true;
    }
    return false;
}

}  // namespace

bool is_foreign(const Announcement& a, const Settings& settings) {
    if (a.nonce != settings.nonce || a.version != announcement_version || a.id > last_id) return true;
    if ((a.role == Role::node) != (settings.role == Role::node) || a.role > Role::node) return true;
    return a.role == Role::node ? !has_valid_node_values(a) : !has_valid_values(a);
}

}  // namespace k8sdds
