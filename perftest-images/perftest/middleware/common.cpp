#include "common.h"

#include <algorithm>

namespace k8sdds {

std::string qos_location(const QosProfile& qos, const EndpointQos& endpoint, const std::string& policy) {
    const auto line = endpoint.lines.find(policy);
    return "-qosFile: " + qos.file + ":" + std::to_string(line == endpoint.lines.end() ? 0 : line->second) + ": <" +
           policy + ">: ";
}

std::string topic_name(const Settings& s, const char* topic) {
    return s.step ? std::string(topic) + "/" + std::to_string(s.step) : topic;
}

std::string throughput_topic_name(const Settings& s, unsigned n) {
    const std::string name = topic_name(s, throughput_topic);
    return n ? name + "_" + std::to_string(n) : name;
}

std::vector<std::string> distinct(std::vector<std::string> addresses) {
    std::sort(addresses.begin(), addresses.end());
    addresses.erase(std::unique(addresses.begin(), addresses.end()), addresses.end());
    return addresses;
}

std::string unsupported_nic(const Settings& s) {
    if (s.nic.empty() || !interface_of(s.nic, s.ipv6).name.empty()) return "";
    const std::string version = s.ipv6 ? "6" : "4";
    return "-nic: no interface with an IPv" + version + " address is named '" + s.nic + "'; list them with ip -" + version +
           " addr";
}

void set_buffers(TransportFacts& facts, const std::vector<OwnSocket>& sockets) {
    for (const OwnSocket& socket : sockets) {
        facts.receive_buffer = std::max(facts.receive_buffer, socket.receive_buffer);
        facts.send_buffer = std::max(facts.send_buffer, socket.send_buffer);
    }
}

std::string multicast_group(const Settings& s) {
    if (!s.multicast_address.empty()) return s.multicast_address;
    return s.ipv6 ? "ff15::efff:1" : "239.255.0.1";
}

namespace {

// In the receive modes without a callback, nothing else limits the samples that wait to be taken.
void limit_waiting(EndpointQos& reader, const Settings& s, uint64_t length) {
    if (s.receive == Receive::listener || !reader.keep_all || reader.max_samples != infinite) return;
    reader.max_samples = std::max<int64_t>(std::clamp<int64_t>((64 << 20) / static_cast<int64_t>(length), 16, 10000), s.instances);
}

}  // namespace

void apply_test_qos(Settings& s) {
    EndpointQos &writer = s.qos.writer, &reader = s.qos.reader;
    if (s.role == Role::subscriber || s.latency_test) {
        // Pongs, and pings that a receive callback sends, are written by the thread that also handles
        // acknowledgments. A writer that keeps all samples could block that thread forever. Only one ping is in
        // flight, so keeping the last sample keeps all of them; keeping all costs about 3 % of latency.
        writer.keep_all = false;
        writer.depth = 1;
    }
    limit_waiting(reader, s, s.data_length);
    for (DataEndpoint& endpoint : s.flow_readers) limit_waiting(endpoint.qos, s, endpoint.length);
}

std::vector<DataEndpoint> data_writers(const Settings& s) {
    if (s.role == Role::node || s.members) return s.flow_writers;
    const bool publishes = s.role == Role::publisher;
    const unsigned peers = publishes ? s.subscribers : s.publishers;
    std::vector<DataEndpoint> writers;
    for (unsigned n = 0; n < (publishes ? s.topics * s.writers : 1); ++n)
        writers.push_back({publishes ? throughput_topic_name(s, n % s.topics) : topic_name(s, latency_topic), s.qos.writer,
                           s.data_length, peers, s.qos.batch_bytes});
    return writers;
}

std::vector<DataEndpoint> data_readers(const Settings& s) {
    if (s.role == Role::node || s.members) return s.flow_readers;
    if (s.role == Role::publisher)
        return {{topic_name(s, latency_topic), s.qos.reader, s.data_length, s.subscribers, 0}};
    std::vector<DataEndpoint> readers;
    for (unsigned n = 0; n < s.topics; ++n)
        readers.push_back({throughput_topic_name(s, n), s.qos.reader, s.data_length, s.publishers * s.writers, 0});
    return readers;
}

EffectiveQos effective_qos_of(const QosProfile& qos) {
    const EndpointQos &w = qos.writer, &r = qos.reader;
    const auto durability = [](const EndpointQos& e) {
        return e.durability == EndpointQos::Durability::transient_local ? "transient_local" : "volatile";
    };
    const auto history = [](const EndpointQos& e) {
        return e.keep_all ? std::string("keep_all") : "keep_last_" + std::to_string(e.depth);
    };
    const auto value = [](int64_t n) { return n == infinite ? EffectiveQos::mapped_type(nullptr) : n; };
    return {{"reliability", w.reliable ? "reliable" : "best_effort"},
            {"writer_durability", durability(w)}, {"reader_durability", durability(r)},
            {"writer_history", history(w)}, {"reader_history", history(r)},
            {"reader_max_samples", value(r.max_samples)},
            {"deadline_ns", value(w.deadline_ns)}, {"latency_budget_ns", value(w.latency_budget_ns)},
            {"lifespan_ns", value(w.lifespan_ns)},
            {"destination_order", w.by_source_timestamp ? "by_source_timestamp" : "by_reception_timestamp"},
            {"send_queue", nullptr}, {"batch_bytes", 0}};
}

}  // namespace k8sdds
