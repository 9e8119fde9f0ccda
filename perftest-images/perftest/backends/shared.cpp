#include "shared.h"

#include <algorithm>

#include "json.h"
#include "sockets.h"

namespace k8sdds {

std::string qos_place(const QosProfile& qos, const EndpointQos& endpoint, const std::string& policy) {
    const auto line = endpoint.lines.find(policy);
    return "-qosFile: " + qos.file + ":" + std::to_string(line == endpoint.lines.end() ? 0 : line->second) + ": <" +
           policy + ">: ";
}

std::string refuse_nic(const Settings& s) {
    if (s.nic.empty() || !interface_of(s.nic).name.empty()) return "";
    return "-nic: there is no interface with an IPv4 address that is called '" + s.nic + "'; see ip -4 addr";
}

std::string multicast_group(const Settings& s) {
    return s.multicast_address.empty() ? "239.255.0.1" : s.multicast_address;
}

void settle_qos(Settings& s) {
    EndpointQos &written = s.qos.writer, &read = s.qos.reader;
    if (s.role == Role::subscriber || s.latency_test) {
        // Of pongs the last one only: a reliable writer that keeps all must never be used in a receive callback,
        // where it could block the thread that takes acknowledgements. There is one ping at a time, so the last
        // one is all of them; keeping all costs about 3 % of latency.
        written.keep_all = false;
        written.depth = 1;
    }
    if (s.receive != Receive::listener && read.keep_all && read.max_samples == infinite)
        // Nothing else bounds the samples that wait to be taken.
        read.max_samples = std::clamp<int64_t>((64 << 20) / static_cast<int64_t>(s.data_length), 16, 10000);
}

std::map<std::string, std::string> qos_in_force(const QosProfile& qos) {
    const EndpointQos &w = qos.writer, &r = qos.reader;
    const auto durability = [](const EndpointQos& e) {
        return json_quote(e.durability == EndpointQos::Durability::transient_local ? "transient_local" : "volatile");
    };
    const auto history = [](const EndpointQos& e) {
        return json_quote(e.keep_all ? "keep_all" : "keep_last_" + std::to_string(e.depth));
    };
    const auto value = [](int64_t n) { return n == infinite ? std::string("null") : std::to_string(n); };
    return {{"reliability", json_quote(w.reliable ? "reliable" : "best_effort")},
            {"writer_durability", durability(w)}, {"reader_durability", durability(r)},
            {"writer_history", history(w)}, {"reader_history", history(r)},
            {"reader_max_samples", value(r.max_samples)},
            {"deadline_ns", value(w.deadline_ns)}, {"latency_budget_ns", value(w.latency_budget_ns)},
            {"lifespan_ns", value(w.lifespan_ns)},
            {"destination_order", json_quote(w.by_source_timestamp ? "by_source_timestamp" : "by_reception_timestamp")},
            {"send_queue", "null"}, {"batch_bytes", "0"}};
}

}  // namespace k8sdds
