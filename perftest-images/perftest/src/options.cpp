#include "options.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <variant>

#include "json.h"
#include "settings.h"

namespace k8sdds {
namespace {

// The roles that have an option, as a set.
enum AppliesTo : unsigned { publisher = 1, subscriber = 2, node = 4, both = publisher | subscriber, senders = publisher | node, all = both | node };
using Flag = bool Options::*;
using Integer = int64_t Options::*;
using Real = double Options::*;
using Text = std::string Options::*;
using List = std::vector<std::string> Options::*;             // a repeatable option

struct Option {
    const char* name;
    const char* argument;                     // in the usage text; for texts with '|' the allowed values; "" for a flag
    AppliesTo role;
    std::variant<Flag, Integer, Real, Text, List> target;     // member of Options, whose initializer is the default
    double low, high;                         // of numbers
    const char* help;
};

constexpr double billion = 1e9;
constexpr double seconds_max = 86400 * 365.0;

const Option table[] = {
    {"-pub", "", both, &Options::pub, 0, 0, "Publish samples."},
    {"-sub", "", both, &Options::sub, 0, 0, "Subscribe to samples."},
    {"-graph", "FILE", node, &Options::graph_file, 0, 0,
     "Take part in the application that this file describes: publish and subscribe to all flows of a node at once. All nodes "
     "need the same file, and exchange samples when all have found each other (docs/reference/perftest.md, Graphs)."},
    {"-node", "NAME", node, &Options::node, 0, 0, "Node of the graph that this process is."},
    {"-middleware", "NAME", all, &Options::middleware, 0, 0, "Middleware backend to load."},
    {"-dataLen", "BYTES", both, &Options::data_length, sample_overhead, max_data_length,
     "Length of a sample, including 28 bytes of overhead. A subscriber uses the publisher's length unless given."},
    {"-scan", "B1:B2:...", publisher, &Options::scan, 0, 0,
     "Run the test with each of these lengths in turn, instead of -dataLen. Subscribers follow."},
    {"-latencyTest", "", publisher, &Options::latency_test, 0, 0,
     "Run the latency test: send one sample at a time and wait for its answer."},
    {"-pacedTest", "", publisher, &Options::paced_test, 0, 0,
     "Run the paced test: send samples on the schedule of -pubRate or -schedule and measure each delay from when it was"
     " due."},
    {"-discoveryTest", "S", both, &Options::discovery_test, 0, seconds_max,
     "Send no samples: measure for S seconds how the members of a fleet, each a participant, find each other (0: another test)."
     " Start all processes at the same time."},
    {"-processes", "N", both, &Options::processes, 1, max_members, "Discovery test: how many processes to start."},
    {"-members", "N", both, &Options::members, 1, max_members, "Discovery test: members of the fleet in each of the -processes."},
    {"-startInterval", "S", both, &Options::start_interval, 0, seconds_max,
     "Discovery test: time between the starts of two members of a role (0: all start at once)."},
    {"-steady", "S", both, &Options::steady, 0, seconds_max,
     "Discovery test: end of the test, whose traffic and CPU time are stated separately."},
    {"-change", "KIND:FIRST:COUNT:S", both, &Options::change, 0, 0,
     "Discovery test: COUNT publishers, from number FIRST on, start S seconds late (late), or their processes are killed then"
     " and start again (restart). Give it on both sides."},
    {"-indexLimit", "N", both, &Options::index_limit, 0, 1000,
     "Discovery test: last participant index that members use (cyclonedds) and search at an address (0: as needed)."},
    {"-gossip", "", both, &Options::gossip, 0, 0,
     "Discovery test: members are peers that the router introduces to each other, instead of its clients (zenoh)."},
    {"-superClient", "", both, &Options::super_client, 0, 0,
     "Discovery test: members get what the discovery server knows of all others, and not only what they match (fastdds)."},
    {"-deadline", "S", publisher, &Options::deadline, 0, seconds_max,
     "Paced test: count samples that arrive later than this after they were due (0: one period of -pubRate, or the mean"
     " one of -schedule)."},
    {"-executionTime", "S", senders, &Options::execution_time, 0, seconds_max,
     "Duration of the measured interval, after the warm-up (0: until -numIter)."},
    {"-numIter", "N", publisher, &Options::iterations, 0, 4294967295.0,
     "Maximum number of measured samples (0: 100000000, in a latency test 10000000)."},
    {"-warmUp", "S", senders, &Options::warm_up, 0, seconds_max,
     "Duration of the warm-up before the measured interval."},
    {"-latencyCount", "N", publisher, &Options::latency_count, 0, 4294967295.0,
     "Measure the round trip of each N-th sample. 0: in a throughput test of none; in a paced test, and only without a"
     " shared clock, of as many as percentiles need."},
    {"-loadedLatency", "", publisher, &Options::loaded_latency, 0, 0,
     "Throughput test: also measure the round trip of about 200 samples. Their answers are samples too"
     " and lower the rate, in the lab by up to 19 % (docs/explanation/benchmarks.md)."},
    {"-pubRate", "N:METHOD", publisher, &Options::pub_rate, 0, 0,
     "Samples per second; METHOD is spin or sleep. Unlimited unless given."},
    {"-rateProfile", "PROFILE", publisher, &Options::rate_profile, 0, 0,
     "Paced test: constant, ramp:FROM (from FROM to -pubRate in -executionTime), burst:N (N samples at a time), or"
     " on-off:ON:OFF (seconds)."},
    {"-schedule", "FILE", publisher, &Options::schedule, 0, 0,
     "Paced test: send samples at the times and with the lengths of this file again and again, instead of -pubRate."},
    {"-batchSize", "BYTES", publisher, &Options::batch_size, 0, billion,
     "Bytes to collect before sending (0: no batching; disabled if -dataLen exceeds half of it)."},
    {"-sendQueueSize", "N", senders, &Options::send_queue, 0, billion,
     "Unacknowledged samples that a reliable writer keeps before it blocks (0: the middleware's default)."},
    {"-messageSizeMax", "SIZE", all, &Options::message_size, 0, 0,
     "Largest message, which is the payload of a UDP datagram: bytes, mtu (-nic's packets are not fragmented), max "
     "(65500), default (the library's default) or auto (14720; raw: one datagram per sample)."},
    {"-fragmentSize", "SIZE", all, &Options::fragment_size, 0, 0,
     "Part of a sample in a fragment: bytes, mtu or max (one fragment fills such a message), or default (the library's "
     "default). A fragment always fits in a message."},
    {"-topics", "N", both, &Options::topics, 1, max_writers, "Number of data topics, written in turn. Give the same on both sides."},
    {"-writers", "N", both, &Options::writers, 1, max_writers,
     "Number of writers of each publisher on each topic, used in turn. Give the same on both sides."},
    {"-keyed", "", both, &Options::keyed, 0, 0, "Use data topics with a key. Give it on both sides."},
    {"-instances", "N", both, &Options::instances, 1, max_instances,
     "Number of instances that a publisher writes in turn; requires -keyed. Give the same on both sides."},
    {"-bestEffort", "", both, &Options::best_effort, 0, 0, "Use best effort instead of strict reliability."},
    {"-qosFile", "FILE", all, &Options::qos_file, 0, 0, "QoS profile (DDS-XML) of the data topics."},
    {"-middlewareConfig", "FILE", all, &Options::middleware_config, 0, 0,
     "The middleware's own configuration, for what the options do not set (XML; zenoh: JSON5)."},
    {"-asynchronous", "", senders, &Options::asynchronous, 0, 0,
     "Send samples from a thread of the middleware instead of the thread that writes them (fastdds)."},
    {"-flowController", "BYTES:MS", senders, &Options::flow_controller, 0, 0,
     "With -asynchronous: send at most BYTES in each period of MS milliseconds."},
    {"-domain", "ID", all, &Options::domain, 0, 230, "DDS domain."},
    {"-transport", "UDPv4|UDPv6|TCPv4|TCPv6|QUICv4|QUICv6|SHMEM", all, &Options::transport, 0, 0,
     "Transport of samples, by IPv4 or IPv6 (TCP and QUIC: zenoh); SHMEM: shared memory, to processes of this host only "
     "(fastdds, zenoh)."},
    {"-dscp", "N", all, &Options::dscp, 0, 63, "Differentiated services code point of the packets that this process sends."},
    {"-lockMemory", "", all, &Options::lock_memory, 0, 0, "Lock all memory of this process (mlockall)."},
    {"-nic", "NAME", all, &Options::nic, 0, 0, "Network interface (name or address)."},
    {"-peer", "ADDR", all, &Options::peers, 0, 0,
     "Address at which to look for peers; repeatable. Required on networks without multicast."},
    {"-discovery", "multicast|peers|server", all, &Options::discovery, 0, 0,
     "How peers are discovered (multicast with -multicast or without -peer, else peers)."},
    {"-discoveryServer", "ADDR[:PORT]", all, &Options::discovery_servers, 0, 0,
     "Discovery server of fastdds (default port 11811), the n-th has the id n-1; router of zenoh (7447), which also "
     "forwards the samples. Repeatable."},
    {"-multicast", "", all, &Options::multicast, 0, 0, "Send samples by multicast and discover peers by multicast."},
    {"-multicastAddr", "ADDR", all, &Options::multicast_address, 0, 0, "Multicast address; requires -multicast."},
    {"-receive", "listener|waitset|spin", all, &Options::receive, 0, 0,
     "Receive mode: middleware callback, waiting thread, or polling thread."},
    {"-ros2Names", "", both, &Options::ros2_names, 0, 0,
     "Give topics and types the names that they have with ros2-fastdds, to exchange samples with it (fastdds)."},
    {"-messageType", "sample|sensor_msgs/msg/Image|sensor_msgs/msg/PointCloud2|sensor_msgs/msg/Imu|std_msgs/msg/ByteMultiArray", both,
     &Options::message_type, 0, 0,
     "Type of the messages in which samples travel: perftest's own, or one of ROS 2 (ros2-fastdds). Give it on both sides."},
    {"-serialized", "", both, &Options::serialized, 0, 0,
     "Write samples that were serialized before the test, and take samples without deserializing them (cyclonedds, zenoh)."},
    {"-rawMode", "datagram|single|connected|mmsg|gso", both, &Options::raw_mode, 0, 0,
     "System calls of -middleware raw (datagram); the same for publisher and subscriber."},
    {"-numSubscribers", "N", publisher, &Options::subscribers, 1, 1000, "Number of subscribers to wait for."},
    {"-numPublishers", "N", subscriber, &Options::publishers, 1, 1000, "Number of publishers to wait for."},
    {"-sidMultiSubTest", "ID", subscriber, &Options::sid, 0, 999, "Id of this subscriber, unique, from 0."},
    {"-pidMultiPubTest", "ID", publisher, &Options::pid, 0, 999, "Id of this publisher, unique, from 0."},
    {"-secureGovernanceFile", "FILE", both, &Options::secure_governance, 0, 0,
     "DDS Security: signed governance document; requires the other files."},
    {"-securePermissionsFile", "FILE", both, &Options::secure_permissions, 0, 0, "Signed permissions document."},
    {"-secureCertAuthority", "FILE", both, &Options::secure_authority, 0, 0, "Certificate of the identity CA."},
    {"-securePermissionsAuthority", "FILE", both, &Options::secure_permissions_authority, 0, 0,
     "Certificate of the permissions CA (the identity CA unless given)."},
    {"-secureCertFile", "FILE", both, &Options::secure_certificate, 0, 0, "Certificate of this participant."},
    {"-securePrivateKey", "FILE", both, &Options::secure_key, 0, 0, "Private key of this participant."},
    {"-secureEncryptionAlgorithm", "aes-128-gcm|aes-256-gcm", both, &Options::secure_algorithm, 0, 0,
     "Algorithm for signing and encryption."},
    {"-discoveryTimeout", "S", all, &Options::discovery_timeout, 0.1, seconds_max, "How long to wait for the peers."},
    {"-peerTimeout", "S", all, &Options::peer_timeout, 0.1, seconds_max,
     "Time without messages or progress after which a peer counts as lost."},
    {"-awaitPeers", "", all, &Options::await_peers, 0, 0,
     "Wait for peers until -peerTimeout also if the middleware loses them, as in an outage."},
    {"-restarted", "", subscriber, &Options::restarted, 0, 0,
     "Take the place of a subscriber with this id that was killed in the measured interval; publishers have -awaitPeers."},
    {"-noPrintIntervals", "", all, &Options::no_intervals, 0, 0, "Print only the summary."},
    {"-cpu", "", all, &Options::cpu, 0, 0, "Print the CPU usage in percent of the whole host."},
    {"-outputFormat", "csv|json", all, &Options::output_format, 0, 0, "Format of the standard output."},
    {"-histogramFile", "FILE", all, &Options::histogram_file, 0, 0,
     "Write the latencies to an HdrHistogram log (V2); a subscriber has them in a paced test, a node for each flow to which "
     "it subscribes."},
    {"-interArrivalFile", "FILE", subscriber, &Options::inter_arrival_file, 0, 0,
     "Write the times between the samples of each publisher to an HdrHistogram log (V2)."},
    {"-arrivalsFile", "FILE", subscriber, &Options::arrivals_file, 0, 0,
     "Paced test: write what arrived in each millisecond to a CSV file; at most 1,000,000 of all publishers."},
    {"-slowFile", "FILE", subscriber, &Options::slow_file, 0, 0,
     "Paced test: write when each sample above the 99th percentile of the delays arrived to a CSV file."},
    {"-timelineFile", "FILE", all, &Options::timeline_file, 0, 0,
     "Write elapsed_ms,samples,bytes for each 100 ms to a CSV file; for each second unless in a throughput test."},
    {"-verbosity", "0-3", all, &Options::verbosity, 0, 3, "Level of detail of the messages on standard error."},
    {"-check", "", all, &Options::check, 0, 0, "Check options and files, then exit without starting a test."},
    {"-help", "", all, &Options::help, 0, 0, "Show this message and exit."},
    {"-version", "", all, &Options::version, 0, 0, "Show the version and exit."},
};

std::string lower(std::string text) {
    for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return text;
}

std::string number_text(double value) {
    char text[40];
    std::snprintf(text, sizeof text, "%.10g", value);
    return text;
}

const Option* find(const std::string& name) {
    for (const Option& option : table)
        if (lower(option.name) == lower(name)) return &option;
    return nullptr;
}

// Returns the option name with the smallest edit distance, if that is less than 4; empty otherwise.
std::string nearest(const std::string& name) {
    std::string best;
    size_t least = 4;
    for (const Option& option : table) {
        const std::string a = lower(name), b = lower(option.name);
        std::vector<size_t> row(b.size() + 1);
        for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
        for (size_t i = 1; i <= a.size(); ++i) {
            size_t diagonal = row[0];
            row[0] = i;
            for (size_t j = 1; j <= b.size(); ++j) {
                const size_t substituted = diagonal + (a[i - 1] != b[j - 1]);
                diagonal = row[j];
                row[j] = std::min({substituted, row[j] + 1, row[j - 1] + 1});
            }
        }
        if (row.back() < least) { least = row.back(); best = option.name; }
    }
    return best;
}

double parse_number(const Option& option, const std::string& text, bool whole) {
    char* end = nullptr;
    errno = 0;
    const double value = std::strtod(text.c_str(), &end);
    const bool digits = text.find_first_not_of(whole ? "0123456789" : "0123456789.") == std::string::npos;
    if (text.empty() || !digits || *end || errno)
        throw UsageError(std::string(option.name) + ": '" + text + "' is not " +
                         (whole ? "an integer" : "a number") + "; give a value from " +
                         number_text(option.low) + " to " + number_text(option.high));
    if (value < option.low || value > option.high)
        throw UsageError(std::string(option.name) + ": " + text + " is out of range; give a value from " +
                         number_text(option.low) + " to " + number_text(option.high));
    return value;
}

std::string parse_text(const Option& option, const std::string& text) {
    if (text.empty()) throw UsageError(std::string(option.name) + ": the value is empty; give " + option.argument);
    std::string choices = option.argument;
    if (choices.find('|') == std::string::npos) return text;
    for (size_t from = 0; from <= choices.size();) {
        const size_t to = std::min(choices.find('|', from), choices.size());
        const std::string choice = choices.substr(from, to - from);
        if (lower(text) == lower(choice)) return choice;
        from = to + 1;
    }
    throw UsageError(std::string(option.name) + ": '" + text + "' is not a valid value; give " + option.argument);
}

void assign(Options& options, const Option& option, const std::string& text) {
    if (auto target = std::get_if<Integer>(&option.target))
        options.*(*target) = static_cast<int64_t>(parse_number(option, text, true));
    else if (auto target = std::get_if<Real>(&option.target))
        options.*(*target) = parse_number(option, text, false);
    else if (auto target = std::get_if<Text>(&option.target))
        options.*(*target) = parse_text(option, text);
    else if (auto target = std::get_if<List>(&option.target))
        (options.*(*target)).push_back(parse_text(option, text));
}

// Returns the name of the roles that have an option, for messages.
std::string role_text(unsigned role) {
    return role == publisher ? "publisher" : role == subscriber ? "subscriber" : role == node ? "node of a graph"
                                                                              : "publisher or of the node of a graph";
}

void check_roles(const Options& options) {
    if (options.pub && options.sub)
        throw UsageError("-pub and -sub: a process is either a publisher or a subscriber; give one of them");
    const bool is_node = options.was_given("-graph") || options.was_given("-node");
    if (!options.pub && !options.sub && !is_node)
        throw UsageError("-pub or -sub is missing; give one of them, or -graph and -node");
    const unsigned role = options.pub ? publisher : options.sub ? subscriber : node;
    for (const Option& option : table) {
        if (!options.was_given(option.name) || option.role & role) continue;
        if (option.role == both)
            throw UsageError(std::string(option.name) + ": is not an option of a node of a graph; remove it");
        throw UsageError(std::string(option.name) + ": is an option of the " + role_text(option.role) + " only; remove it");
    }
}

}  // namespace

Options parse_options(int argc, char** argv) {
    Options options;
    for (int i = 1; i < argc; ++i) {
        const std::string name = argv[i];
        const Option* option = find(name);
        if (!option) {
            const std::string suggestion = nearest(name);
            throw UsageError(name + ": unknown option; " +
                             (suggestion.empty() ? "see -help" : "did you mean " + suggestion + "?"));
        }
        const bool repeatable = std::holds_alternative<List>(option->target);
        if (!options.given.insert(option->name).second && !repeatable)
            throw UsageError(std::string(option->name) + ": given twice; give it once");
        if (auto flag = std::get_if<Flag>(&option->target)) {
            options.*(*flag) = true;
            continue;
        }
        if (i + 1 >= argc || (argv[i + 1][0] == '-' && argv[i + 1][1] != '\0'))
            throw UsageError(std::string(option->name) + ": the value is missing; give " + option->argument);
        assign(options, *option, argv[++i]);
    }
    if (options.help || options.version) return options;
    check_roles(options);
    check_combinations(options);
    return options;
}

std::string help_text() {
    std::string text =
        "Measure throughput and latency of publish/subscribe.\n\n"
        "Usage:\n  k8sdds-perftest -pub [OPTIONS]\n  k8sdds-perftest -sub [OPTIONS]\n"
        "  k8sdds-perftest -graph FILE -node NAME [OPTIONS]\n\n"
        "Option names are case-insensitive and cannot be abbreviated.\n";
    const std::pair<AppliesTo, const char*> groups[] = {
        {all, "All processes"}, {both, "Publisher and subscriber"}, {senders, "Publisher, and node of a graph"},
        {publisher, "Publisher"}, {subscriber, "Subscriber"}, {node, "Node of a graph"}};
    const Json defaults = resolved_options(Options{});
    constexpr size_t column = 34;
    for (const auto& [role, title] : groups) {
        text += std::string("\n") + title + ":\n";
        for (const Option& option : table) {
            if (option.role != role) continue;
            std::string left = std::string("  ") + option.name + (*option.argument ? " " : "") + option.argument;
            if (left.size() < column) left.resize(column, ' ');
            else left += "\n" + std::string(column, ' ');
            text += left + option.help;
            const Json value = defaults.value(option.name + 1, Json(nullptr));
            if (value.is_string()) text += " [default: " + value.get<std::string>() + "]";
            if (value.is_number()) text += " [default: " + json_text(value) + "]";
            text += "\n";
        }
    }
    return text + "\nExit codes: 0 success, 2 wrong usage, 3 peers not found, 4 peer lost, 5 no samples received,\n"
                  "6 middleware error, 130 and 143 after SIGINT and SIGTERM.\n";
}

Json resolved_options(const Options& options) {
    Json values = Json::object();
    for (const Option& option : table) {
        Json value;
        if (auto target = std::get_if<Flag>(&option.target)) value = options.*(*target);
        else if (auto target = std::get_if<Integer>(&option.target)) value = options.*(*target);
        else if (auto target = std::get_if<Real>(&option.target)) value = Json::parse(number_text(options.*(*target)));
        else if (auto target = std::get_if<Text>(&option.target)) value = json_or_null(options.*(*target));
        else if (auto target = std::get_if<List>(&option.target)) value = options.*(*target);
        const std::string name = option.name + 1;
        if (options.graph && name == "bestEffort") value = nullptr;    // of each flow
        if (name != "help" && name != "version" && name != "check") values[name] = value;
    }
    return values;
}

}  // namespace k8sdds
