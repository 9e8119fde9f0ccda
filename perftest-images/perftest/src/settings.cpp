#include "settings.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <stdexcept>

#include "common.h"
#include "pacer.h"
#include "qos_file.h"
#include "sockets.h"
#include "text_lines.h"

namespace k8sdds {
namespace {

void parse_rate(Options& options) {
    if (options.pub_rate.empty()) return;
    const std::string& text = options.pub_rate;
    const std::string fix = "; give N:spin or N:sleep with N from 0.001 to 10000000";
    const size_t colon = text.find(':');
    if (colon == std::string::npos) throw UsageError("-pubRate: '" + text + "' does not name a method" + fix);
    const std::string number = text.substr(0, colon), method = text.substr(colon + 1);
    if (method != "spin" && method != "sleep")
        throw UsageError("-pubRate: '" + method + "' is not a method" + fix);
    const std::optional<double> rate = decimal_number(number);
    if (!rate) throw UsageError("-pubRate: '" + number + "' is not a number" + fix);
    options.rate = *rate;
    if (options.rate < lowest_rate || options.rate > highest_rate)
        throw UsageError("-pubRate: " + number + " is out of range" + fix + "; omit it for no limit");
    options.rate_spins = method == "spin";
}

void parse_flow_controller(Options& options) {
    if (options.flow_controller.empty()) return;
    if (!options.asynchronous) throw UsageError("-flowController: has an effect only with -asynchronous; add it");
    int length = -1;
    long long bytes = 0, period_ms = 0;
    const char* text = options.flow_controller.c_str();
    std::sscanf(text, "%lld:%lld%n", &bytes, &period_ms, &length);
    if (length != static_cast<int>(options.flow_controller.size()) || bytes < 1024 || bytes > INT32_MAX ||
        period_ms < 1 || period_ms > 60'000)
        throw UsageError("-flowController: '" + options.flow_controller +
                         "' is not valid; give BYTES:MS with 1024 to 2147483647 bytes in 1 to 60000 ms");
    options.flow_bytes = bytes;
    options.flow_period_ms = period_ms;
}

// A whole process is killed, so that it has to consist of publishers that start again.
void parse_fleet(Options& options) {
    const char* const others[] = {"-processes", "-members", "-startInterval", "-steady", "-change", "-indexLimit", "-gossip",
                                  "-superClient"};
    for (const char* other : others)
        if (options.discovery_test <= 0 && options.was_given(other))
            throw UsageError(std::string(other) + ": has an effect only with -discoveryTest; add it");
    if (options.discovery_test <= 0) return;
    if (options.output_format != "json") throw UsageError("-outputFormat: a discovery test prints json only; add -outputFormat json");
    for (const char* other : {"-latencyTest", "-pacedTest", "-scan", "-keyed", "-serialized", "-writers", "-dscp", "-lockMemory",
                              "-asynchronous", "-batchSize", "-pubRate", "-executionTime", "-warmUp"})
        if (options.was_given(other)) throw UsageError(std::string(other) + ": has no effect in a discovery test; remove it");
    const int64_t programs = std::max({options.pub ? options.subscribers : options.publishers, options.pid + 1, options.sid + 1});
    const int64_t all = options.processes * options.members * programs;
    if (all > max_members)
        throw UsageError("-members: a role has at most " + std::to_string(max_members) + ", not " + std::to_string(all) + "; give fewer");
    if (options.transport == "SHMEM") throw UsageError("-transport: members of a fleet find each other by a network; remove SHMEM");
    if (options.gossip && (options.middleware != "zenoh" || options.discovery != "server"))
        throw UsageError("-gossip: only a router of Zenoh introduces peers; add -middleware zenoh and -discovery server");
    if (options.super_client && (options.middleware != "fastdds" || options.discovery != "server"))
        throw UsageError("-superClient: only Fast DDS has super clients; add -middleware fastdds and -discovery server");
    if (options.steady >= options.discovery_test) throw UsageError("-steady: is a part of -discoveryTest; give a shorter time");
    if (options.change.empty()) return;
    FleetChange change;
    char kind[8] = "";
    int length = -1;
    std::sscanf(options.change.c_str(), "%7[a-z]:%4u:%4u:%lf%n", kind, &change.first, &change.count, &change.at, &length);
    change.restarts = std::string(kind) == "restart";
    const bool known = change.restarts || std::string(kind) == "late";
    const double latest = options.discovery_test - options.steady;
    if (!known || length != static_cast<int>(options.change.size()) || !change.count || !(change.at >= 0 && change.at < latest))
        throw UsageError("-change: '" + options.change + "' is not late:FIRST:COUNT:S or restart:FIRST:COUNT:S, with a time before -steady begins");
    if (change.restarts && change.at < options.start_interval * (change.first + change.count))
        throw UsageError("-change: these members start later, by -startInterval; give a later time");
    if (change.restarts && (change.first % options.members || change.count % options.members))
        throw UsageError("-change: processes have " + std::to_string(options.members) + " -members each; restart multiples of them");
    options.fleet_change = change;
}

MessageType message_type_of(const Options& options) {
    const std::string name = options.message_type.substr(options.message_type.rfind('/') + 1);
    return name == "Image"            ? MessageType::image
           : name == "PointCloud2"    ? MessageType::point_cloud
           : name == "Imu"            ? MessageType::imu
           : name == "ByteMultiArray" ? MessageType::bytes
                                      : MessageType::sample;
}

// A file states lengths and times. Both sides may have -dataLen all the same, which is then the longest.
void parse_schedule(Options& options) {
    if (options.schedule.empty()) return;
    for (const char* other : {"-pubRate", "-rateProfile", "-scan"})
        if (options.was_given(other))
            throw UsageError(std::string("-schedule: replaces ") + other + "; remove one of them");
    if (!options.paced_test) throw UsageError("-schedule: has an effect only with -pacedTest; add it");
    if (options.serialized) throw UsageError("-serialized: keeps samples of one length; remove it, or -schedule");
    if (message_type_of(options) == MessageType::imu)
        throw UsageError("-messageType: messages of this type have one length; give another type, or remove -schedule");
    try {
        options.recorded = read_schedule(options.schedule);
    } catch (const std::invalid_argument& error) {
        throw UsageError("-schedule: " + options.schedule + ": " + error.what());
    }
    const int64_t longest = options.recorded->longest();
    if (options.was_given("-dataLen") && options.data_length != longest)
        throw UsageError("-dataLen: the longest sample of -schedule has " + std::to_string(longest) +
                         " bytes; give this length, or remove it");
    options.data_length = longest;
    options.rate = options.recorded->rate();
}

void parse_graph_options(Options& options) {
    if (options.role() != Role::node) return;
    for (const char* required : {"-graph", "-node", "-executionTime"})
        if (!options.was_given(required)) throw UsageError(std::string(required) + " is missing; a node of a graph requires it");
    if (options.execution_time <= 0) throw UsageError("-executionTime: a node of a graph requires a length above 0 s");
    if (options.output_format != "json") throw UsageError("-outputFormat: a node of a graph prints json only; add -outputFormat json");
    try {
        options.graph = read_graph(options.graph_file);
    } catch (const std::invalid_argument& error) {
        throw UsageError("-graph: " + options.graph_file + ": " + error.what());
    }
    const int index = options.graph->find_node(options.node);
    if (index < 0) throw UsageError("-node: " + options.graph_file + " has no node '" + options.node + "'; give one of its nodes");
    options.node_index = static_cast<unsigned>(index);
    const GraphNode& node = options.graph->nodes[options.node_index];
    options.data_length = 0;
    for (const auto& flows : {node.publishes, node.subscribes})
        for (const unsigned flow : flows)
            options.data_length = std::max<int64_t>(options.data_length, options.graph->flows[flow].bytes);
}

// Returns how often the most frequent address is in a list.
unsigned most_at_one(const std::vector<std::string>& addresses) {
    std::map<std::string, unsigned> counts;
    unsigned most = 0;
    for (const std::string& address : addresses) most = std::max(most, ++counts[address]);
    return most;
}

// Returns how many nodes may share an address. With an address for each other node, it is the most frequent one's number.
unsigned nodes_at_one_address(const std::vector<std::string>& peers, unsigned nodes) {
    if (peers.size() + 1 < nodes) return nodes;
    return std::min(most_at_one(peers) + 1, nodes);        // this node may share it too
}

// Returns how many processes of a fleet share an address: without -peer, those of all known programs could.
unsigned processes_at_one_address(const Options& options, unsigned programs) {
    std::vector<std::string> addresses = options.peers;
    addresses.push_back(interface_of(options.nic, options.ipv6()).address);
    return (options.peers.empty() ? programs : most_at_one(addresses)) * static_cast<unsigned>(options.processes);
}

// Sets what the members of a fleet in this process have in common; each has an id of its own.
void set_fleet(Settings& settings, const Options& options) {
    settings.members = static_cast<unsigned>(options.members);
    settings.members_at_address = static_cast<unsigned>(options.members * options.processes);
    settings.sharing_address = processes_at_one_address(options, settings.sharing_address);
    settings.subscribers *= settings.members_at_address;
    settings.publishers *= settings.members_at_address;
    settings.index_limit = static_cast<unsigned>(options.index_limit);
    settings.gossip = options.gossip;
    settings.super_client = options.super_client;
    for (unsigned n = 0; n < settings.topics; ++n) {
        const std::string topic = throughput_topic_name(settings, n);
        if (options.pub) settings.flow_writers.push_back({topic, settings.qos.writer, settings.data_length, settings.subscribers, 0});
        else settings.flow_readers.push_back({topic, settings.qos.reader, settings.data_length, settings.publishers, 0});
    }
}

// Returns the name of a flow's topic. Cyclone DDS and ROS 2 allow no dash in it, and names of flows have no capital letters.
std::string flow_topic(std::string flow) {
    std::replace(flow.begin(), flow.end(), '-', 'D');
    return flow_topic_prefix + flow;
}

// Sets the data endpoints of a node: each flow has its own reliability.
void set_flows(Settings& settings, const Options& options) {
    const Graph& graph = *options.graph;
    const GraphNode& node = graph.nodes[options.node_index];
    settings.publishers = settings.subscribers = static_cast<unsigned>(graph.nodes.size()) - 1;
    settings.sharing_address = nodes_at_one_address(options.peers, settings.subscribers + 1);
    // The nodes notice that one is lost. A busy machine delays announcements of discovery by more than a usual lease.
    settings.lease_ns = 2 * to_ns(std::max(options.discovery_timeout, options.peer_timeout));
    const QosProfile given = settings.qos;
    const auto endpoint = [&](unsigned number, bool writes) {
        const Flow& flow = graph.flows[number];
        const QosProfile profile = given.file.empty() ? built_in_profile(!flow.reliable) : given;
        DataEndpoint endpoint{flow_topic(flow.name), writes ? profile.writer : profile.reader, flow.bytes,
                              writes ? static_cast<unsigned>(flow.subscribers.size()) : 1,
                              flow.batch_bytes ? flow.batch_bytes : profile.batch_bytes};
        endpoint.qos.reliable = flow.reliable;
        if (endpoint.batch_bytes < 2 * int64_t{flow.bytes}) endpoint.batch_bytes = 0;   // it would wait for the next sample
        return endpoint;
    };
    settings.qos.writer.reliable = settings.qos.reader.reliable = false;
    settings.qos.batch_bytes = 0;
    for (const unsigned flow : node.subscribes) settings.flow_readers.push_back(endpoint(flow, false));
    for (const unsigned flow : node.publishes) {
        settings.flow_writers.push_back(endpoint(flow, true));
        settings.qos.batch_bytes = std::max(settings.qos.batch_bytes, settings.flow_writers.back().batch_bytes);
    }
    for (const auto& endpoints : {settings.flow_writers, settings.flow_readers})
        for (const DataEndpoint& each : endpoints)
            if (each.qos.reliable) settings.qos.writer.reliable = settings.qos.reader.reliable = true;
    if (given.file.empty()) settings.qos.name = "graph";
}

void check_schedule(Options& options) {
    try {
        const RateProfile profile = profile_of(options);
        if (options.deadline <= 0) options.deadline = profile.period_ns() / 1e9;
    } catch (const std::invalid_argument& error) {
        throw UsageError(std::string("-rateProfile: ") + error.what());
    }
}

// Returns the nonce of the run, which the caller gives to each of its processes; 0 without one.
uint64_t nonce_of_run() {
    const char* value = std::getenv("K8SDDS_NONCE");
    const std::string text = value ? value : "";
    if (text.empty()) return 0;
    if (text.size() != 16 || text.find_first_not_of("0123456789abcdef") != std::string::npos)
        throw UsageError("K8SDDS_NONCE: not a nonce; give 16 hexadecimal digits in lower case, or unset it");
    return std::strtoull(text.c_str(), nullptr, 16);
}

constexpr size_t max_steps = 64;

void parse_scan(Options& options) {
    options.lengths = {options.data_length};
    if (options.scan.empty()) return;
    if (options.was_given("-dataLen")) throw UsageError("-scan: replaces -dataLen; remove one of them");
    if (!options.secure_governance.empty())
        throw UsageError("-scan: each length has topics of its own, for which the permissions grant nothing; run the test"
                         " once for each -dataLen");
    options.lengths.clear();
    for (size_t from = 0; from <= options.scan.size();) {
        const size_t to = std::min(options.scan.find(':', from), options.scan.size());
        const std::string text = options.scan.substr(from, to - from);
        const int64_t length = whole_number(text);
        if (!is_data_length(length))
            throw UsageError("-scan: '" + text + "' is not a length; give numbers of bytes from " +
                             std::to_string(sample_overhead) + " to " + std::to_string(max_data_length) +
                             ", such as 64:1024:16384");
        options.lengths.push_back(length);
        if (options.lengths.size() > max_steps)
            throw UsageError("-scan: more than " + std::to_string(max_steps) + " lengths; give fewer");
        from = to + 1;
    }
    options.data_length = options.lengths.front();
}

bool is_multicast_address(const std::string& text, bool ipv6) {
    in6_addr address6{};
    if (ipv6) return inet_pton(AF_INET6, text.c_str(), &address6) == 1 && IN6_IS_ADDR_MULTICAST(&address6);
    in_addr address{};
    return inet_pton(AF_INET, text.c_str(), &address) == 1 && IN_MULTICAST(ntohl(address.s_addr));
}

RawMode raw_mode_of(const Options& options) {
    return options.raw_mode == "single"      ? RawMode::single
           : options.raw_mode == "connected" ? RawMode::connected
           : options.raw_mode == "mmsg"      ? RawMode::mmsg
           : options.raw_mode == "gso"       ? RawMode::gso
                                             : RawMode::datagram;
}

Transport transport_of(const Options& options) {
    const std::string name = options.transport.substr(0, options.transport.find('v'));
    return name == "TCP" ? Transport::tcp : name == "QUIC" ? Transport::quic : name == "SHMEM" ? Transport::shared_memory
                                                                                              : Transport::udp;
}

void check_raw_mode(const Options& options) {
    if (options.raw_mode.empty()) return;
    const bool collects = raw_mode_of(options) >= RawMode::mmsg;
    if (collects && (options.latency_test || options.paced_test || options.rate > 0))
        throw UsageError("-rawMode: " + options.raw_mode +
                         " collects samples, which delays them; give connected, or remove -latencyTest and -pubRate");
}

void check_discovery(Options& options) {
    // Without addresses, peers are discovered by multicast, as PerfTest does. An interface without multicast, such as
    // the loopback interface, reaches the processes of this host only.
    const bool by_multicast = options.multicast || (options.peers.empty() && has_multicast(options.nic, options.ipv6()));
    if (options.discovery.empty()) options.discovery = by_multicast ? "multicast" : "peers";
    const bool server = options.discovery == "server";
    if (server && options.discovery_servers.empty())
        throw UsageError("-discovery: server requires the address of a server; add -discoveryServer ADDR[:PORT]");
    if (!server && !options.discovery_servers.empty())
        throw UsageError("-discoveryServer: has an effect only with -discovery server; add it");
    if (server && !options.peers.empty())
        throw UsageError("-peer: has no effect with a discovery server; remove -peer or -discovery server");
    if (server && !options.secure_governance.empty())
        throw UsageError("-discovery: discovery servers are not supported with DDS Security; use peers or multicast");
}

constexpr int64_t shortest_message = 512, longest_message = 65500;

// Returns the longest message that is not fragmented on the interface of -nic.
int64_t message_of_mtu(const Options& options, const char* option) {
    const int64_t mtu = mtu_of(options.nic, options.ipv6());
    if (mtu == 0)
        throw UsageError(std::string(option) + ": mtu is the MTU of an interface; give its name or address with -nic");
    return std::min(mtu - static_cast<int64_t>(ip_and_udp_headers(options.ipv6())), longest_message);
}

int64_t size_in_bytes(const char* option, const std::string& text, const char* words) {
    const int64_t bytes = whole_number(text);
    if (bytes < shortest_message || bytes > longest_message)
        throw UsageError(std::string(option) + ": '" + text + "' is not a size; give " + words + " or a number from " +
                         std::to_string(shortest_message) + " to " + std::to_string(longest_message));
    return bytes;
}

MessageLimits message_limits(const Options& options) {
    MessageLimits limits;
    const char *message = "-messageSizeMax", *fragment = "-fragmentSize";
    if (options.message_size == "auto") limits.message = MessageLimits::usual;
    else if (options.message_size == "default") limits.message = MessageLimits::library;
    else if (options.message_size == "max") limits.message = longest_message;
    else if (options.message_size == "mtu") limits.message = message_of_mtu(options, message);
    else limits.message = size_in_bytes(message, options.message_size, "auto, default, mtu, max");

    if (options.fragment_size == "default") limits.fragment = MessageLimits::library;
    else if (options.fragment_size == "max") limits.fragment_message = longest_message;
    else if (options.fragment_size == "mtu") limits.fragment_message = message_of_mtu(options, fragment);
    else limits.fragment = size_in_bytes(fragment, options.fragment_size, "default, mtu, max");
    return limits;
}

}  // namespace

void check_combinations(Options& options) {
    parse_rate(options);
    parse_schedule(options);
    parse_graph_options(options);
    parse_fleet(options);
    parse_flow_controller(options);
    check_discovery(options);
    check_raw_mode(options);
    parse_scan(options);
    if (options.latency_test && options.batch_size > 0)
        throw UsageError("-batchSize: a latency test cannot batch samples; remove -batchSize or -latencyTest");
    if (options.latency_test && options.was_given("-latencyCount"))
        throw UsageError("-latencyCount: a latency test measures every sample; remove -latencyCount or -latencyTest");
    if (options.loaded_latency && options.test() != Test::throughput)
        throw UsageError("-loadedLatency: has an effect only in a throughput test; remove it, or -latencyTest or -pacedTest");
    if (options.loaded_latency && options.latency_count > 0)
        throw UsageError("-loadedLatency: chooses how many samples are timed, as -latencyCount does; remove one of them");
    if (options.paced_test && options.latency_test)
        throw UsageError("-pacedTest: excludes -latencyTest; remove one of them");
    if (options.paced_test && options.rate <= 0)
        throw UsageError("-pacedTest: requires a schedule; add -pubRate N:sleep or N:spin, or -schedule FILE");
    if (options.paced_test && options.execution_time <= 0)
        throw UsageError("-pacedTest: requires the length of the schedule; add -executionTime S");
    if (!options.paced_test && options.was_given("-deadline"))
        throw UsageError("-deadline: has an effect only with -pacedTest; add it");
    if (!options.paced_test && options.was_given("-rateProfile"))
        throw UsageError("-rateProfile: has an effect only with -pacedTest; add it");
    if (options.paced_test) check_schedule(options);
    if (options.serialized && options.keyed)
        throw UsageError("-serialized: replaces the head of a sample, which contains the key; remove -keyed");
    if (options.serialized && options.topics * options.writers > 1)
        throw UsageError("-serialized: keeps the samples of one writer; remove -topics and -writers");
    if (options.serialized && !options.secure_governance.empty())
        throw UsageError("-serialized: uses a topic of its own, for which the permissions grant nothing; remove -secure options");
    if (options.ros2_names && options.middleware != "fastdds")
        throw UsageError("-ros2Names: only fastdds has names of ROS 2; remove it");
    if (options.ros2_names && options.keyed)
        throw UsageError("-ros2Names: topics of ros2-fastdds have no key; remove it, or -keyed");
    if (message_type_of(options) != MessageType::sample && options.middleware != "ros2-fastdds")
        throw UsageError("-messageType: only ros2-fastdds has types of ROS 2; remove it");
    if (options.topics * options.writers > max_writers)
        throw UsageError("-topics and -writers: a publisher has at most " + std::to_string(max_writers) +
                         " writers; give less of one of them");
    if (options.latency_test && options.topics * options.writers > 1)
        throw UsageError("-topics and -writers: a latency test has one sample under way, and so one writer; remove them");
    if (options.was_given("-instances") && !options.keyed)
        throw UsageError("-instances: has an effect only with -keyed; add it");
    if (options.multicast && options.transport == "SHMEM")
        throw UsageError("-multicast: has no effect with -transport SHMEM; remove one of them");
    if (!options.multicast_address.empty() && !options.multicast)
        throw UsageError("-multicastAddr: has an effect only with -multicast; add it");
    if (!options.multicast_address.empty() && !is_multicast_address(options.multicast_address, options.ipv6()))
        throw UsageError("-multicastAddr: '" + options.multicast_address + "' is not an " +
                         (options.ipv6() ? "IPv6 multicast address; give one that begins with ff"
                                         : "IPv4 multicast address; give one from 224.0.0.0 to 239.255.255.255"));
    if (options.iterations == 0) options.iterations = options.latency_test ? 10'000'000 : 100'000'000;
}

std::string discovery_advice(const Options& options) {
    const std::string others =
        options.graph ? std::string("-domain and -nic")
                      : std::string("-domain, -nic, ") + (options.pub ? "-numSubscribers" : "-numPublishers") +
                            ", -topics, -writers, " + (options.middleware == "ros2-fastdds" ? "-messageType" : "-keyed") + " and QoS";
    if (options.discovery == "server") return "check -discoveryServer, " + others;
    if (!options.peers.empty()) return "check -peer, " + others;
    if (options.discovery == "multicast")
        return "searched by multicast, which not every network carries: add -peer ADDR, or check " + others;
    return "searched on this host only, without multicast: add -peer ADDR, or check " + others;
}

Settings make_settings(Options& options) {
    Settings settings;
    settings.role = options.role();
    settings.id = options.graph ? options.node_index : static_cast<unsigned>(options.pub ? options.pid : options.sid);
    settings.nonce = nonce_of_run();
    settings.domain = static_cast<unsigned>(options.domain);
    settings.data_length = static_cast<uint64_t>(options.data_length);
    settings.subscribers = static_cast<unsigned>(options.subscribers);
    settings.publishers = static_cast<unsigned>(options.publishers);
    settings.sharing_address = settings.subscribers + settings.publishers + settings.id;
    settings.nic = options.nic;
    settings.ipv6 = options.ipv6();
    settings.peers = options.peers;
    settings.multicast = options.multicast;
    settings.multicast_address = options.multicast_address;
    settings.discovery = options.discovery == "server"      ? Discovery::server
                         : options.discovery == "multicast" ? Discovery::multicast
                                                            : Discovery::peers;
    settings.discovery_servers = options.discovery_servers;
    settings.send_queue = options.send_queue;
    settings.limits = message_limits(options);
    settings.receive = options.receive == "spin"      ? Receive::spin
                       : options.receive == "waitset" ? Receive::waitset
                                                      : Receive::listener;
    settings.raw_mode = raw_mode_of(options);
    settings.latency_test = options.latency_test;
    settings.continuous = options.pub && options.test() == Test::throughput && options.rate == 0;
    settings.serialized = options.serialized;
    settings.ros2_names = options.ros2_names;
    settings.message_type = message_type_of(options);
    settings.scans = !options.scan.empty();
    settings.transport = transport_of(options);
    settings.dscp = static_cast<int>(options.dscp);
    settings.middleware_config = options.middleware_config;
    settings.asynchronous = options.asynchronous;
    settings.flow_bytes = options.flow_bytes;
    settings.flow_period_ms = options.flow_period_ms;
    settings.step = options.step;
    settings.topics = static_cast<unsigned>(options.topics);
    settings.writers = static_cast<unsigned>(options.writers);
    settings.keyed = options.keyed;
    settings.instances = static_cast<uint32_t>(options.instances);
    settings.security = {options.secure_governance, options.secure_permissions, options.secure_authority,
                         options.secure_permissions_authority.empty() ? options.secure_authority
                                                                      : options.secure_permissions_authority,
                         options.secure_certificate, options.secure_key,
                         options.secure_algorithm == "aes-128-gcm" ? 128u : 256u};
    settings.verbosity = static_cast<int>(options.verbosity);
    settings.qos = options.qos_file.empty() ? built_in_profile(options.best_effort) : read_qos_file(options.qos_file);

    if (options.graph) set_flows(settings, options);
    if (options.test() == Test::discovery) set_fleet(settings, options);
    QosProfile& qos = settings.qos;
    if (options.best_effort && (qos.writer.reliable || qos.reader.reliable))
        throw UsageError("-bestEffort: " + options.qos_file + " sets RELIABLE; remove -bestEffort or change the file");
    if (options.batch_size > 0 && qos.batch_bytes > 0 && options.batch_size != qos.batch_bytes)
        throw UsageError("-batchSize: " + options.qos_file + ":" + std::to_string(qos.batch_line) +
                         ": k8sdds.batch_bytes is " + std::to_string(qos.batch_bytes) + "; give only one of them");
    if (options.latency_test && qos.batch_bytes > 0)
        throw UsageError("-qosFile: " + options.qos_file + ":" + std::to_string(qos.batch_line) +
                         ": a latency test cannot batch samples; use a profile without k8sdds.batch_bytes");
    // All nodes of a graph may have the same options.
    if (options.pub && options.send_queue > 0 && !qos.writer.reliable)
        throw UsageError("-sendQueueSize: a best-effort writer has no queue of unacknowledged samples; remove it");
    if (options.batch_size > 0) qos.batch_bytes = options.batch_size;
    if (qos.batch_bytes > 0 && options.pub && options.data_length > qos.batch_bytes / 2) qos.batch_bytes = 0;
    if (!options.graph) options.best_effort = !qos.writer.reliable;
    return settings;
}

}  // namespace k8sdds
