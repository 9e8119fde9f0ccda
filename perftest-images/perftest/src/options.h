// The command line. One table of options (options.cpp) parses it, prints the usage text, and lists the resolved
// values.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "backend.h"
#include "graph.h"
#include "json_fwd.h"

namespace k8sdds {

// A wrong command line or an unsupported combination: exit code 2 and one line that names the option and the fix.
struct UsageError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

enum class Test : uint8_t { throughput = 0, latency = 1, paced = 2, graph = 3, discovery = 4 };

constexpr int64_t max_data_length = 1 << 30, max_writers = 2048;    // of a publisher
constexpr double lowest_rate = 0.001, highest_rate = 1e7;        // samples per second
constexpr int64_t max_instances = 100'000;
constexpr int64_t max_members = 1000;            // of a role of a fleet
// Added to the test that a publisher announces, if samples may be shorter than the length that it announces.
constexpr int64_t lengths_vary_flag = 1 << 8;
constexpr bool is_data_length(int64_t bytes) { return bytes >= sample_overhead && bytes <= max_data_length; }

// What happens to some publishers of a fleet in a discovery test.
struct FleetChange {
    bool restarts = false;                    // their processes are killed and start again; otherwise they start late
    unsigned first = 0, count = 0;            // their numbers
    double at = 0;                            // s after the start
    bool concerns(unsigned publisher) const { return publisher >= first && publisher - first < count; }
};

// The initializers are the defaults that the usage text shows.
struct Options {
    bool pub = false, sub = false, check = false, help = false, version = false;
    std::string graph_file, node;             // of a node of a graph, which is neither a publisher nor a subscriber
    std::shared_ptr<const Graph> graph;       // from the file
    unsigned node_index = 0;                  // in the graph
    std::string middleware = "cyclonedds";

    int64_t data_length = 100;
    std::string scan;
    std::vector<int64_t> lengths;             // -scan, or -dataLen alone
    unsigned step = 0;                        // of the scan, from 0
    int64_t next_length = 0;                  // of a publisher's next step; 0: this is the last one
    double execution_time = 0;                // s; 0: ends at -numIter
    int64_t iterations = 0;                   // 0: PerfTest's default for the workload
    double warm_up = 1;
    bool latency_test = false, paced_test = false, serialized = false, ros2_names = false;
    std::string message_type = "sample";
    double deadline = 0;                      // s; 0: the period of the samples
    int64_t latency_count = 0;                // 0: in a throughput test no pings, in a paced test as percentiles need
    bool loaded_latency = false;
    std::string pub_rate;                     // "N:spin" or "N:sleep", or empty: unlimited
    double rate = 0;                          // samples per second, from pub_rate or of the schedule; 0: unlimited
    bool rate_spins = false;
    std::string rate_profile = "constant";
    std::string schedule;                     // file; empty: samples have one length, at pub_rate
    std::shared_ptr<const RecordedSchedule> recorded;     // from the file
    int64_t batch_size = 0;
    int64_t send_queue = 0;
    std::string message_size = "auto", fragment_size = "default";
    int64_t topics = 1, writers = 1;
    bool keyed = false;
    int64_t instances = 1;

    double discovery_test = 0;                // s; 0: another test
    int64_t processes = 1, members = 1, index_limit = 0;
    bool gossip = false;
    bool super_client = false;
    double start_interval = 0, steady = 0;    // s
    std::string change;                       // "KIND:FIRST:COUNT:S", or empty: none
    std::optional<FleetChange> fleet_change;  // from change

    bool best_effort = false;
    std::string qos_file, middleware_config;
    bool asynchronous = false;
    std::string flow_controller;              // "BYTES:MS", or empty: unlimited
    int64_t flow_bytes = 0, flow_period_ms = 0;   // from flow_controller

    int64_t domain = 1;
    bool multicast = false;
    std::string multicast_address;
    std::vector<std::string> peers;
    std::string nic, discovery;
    std::vector<std::string> discovery_servers;
    std::string transport = "UDPv4";
    bool ipv6() const { return transport.back() == '6'; }
    int64_t dscp = 0;
    bool lock_memory = false;
    std::string receive = "listener";
    std::string raw_mode;

    int64_t subscribers = 1, publishers = 1, sid = 0, pid = 0;
    double discovery_timeout = 30, peer_timeout = 10;
    bool await_peers = false, restarted = false;

    std::string secure_governance, secure_permissions, secure_authority, secure_permissions_authority;
    std::string secure_certificate, secure_key, secure_algorithm = "aes-256-gcm";

    bool cpu = false, no_intervals = false;
    std::string output_format = "csv";
    std::string histogram_file, timeline_file, inter_arrival_file, arrivals_file, slow_file;
    int64_t verbosity = 1;

    std::set<std::string> given;              // names of the options on the command line, as in the table
    bool was_given(const char* name) const { return given.count(name) != 0; }
    Role role() const { return pub ? Role::publisher : sub ? Role::subscriber : Role::node; }
    bool times_samples() const { return test() != Test::throughput || loaded_latency || latency_count > 0; }
    Test test() const {
        return latency_test ? Test::latency : paced_test ? Test::paced : graph ? Test::graph : discovery_test > 0 ? Test::discovery
                                                                                                                : Test::throughput;
    }
};

Options parse_options(int argc, char** argv);             // throws UsageError
std::string help_text();

// Returns the value of every option in the order of the table, without -check, -help and -version.
Json resolved_options(const Options&);

}  // namespace k8sdds
