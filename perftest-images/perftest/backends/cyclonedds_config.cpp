#include "cyclonedds_config.h"

#include <algorithm>

#include "shared.h"
#include "sockets.h"

namespace k8sdds {
namespace {

std::string escape(const std::string& text) {
    std::string out;
    for (char c : text) {
        if (c == '&') out += "&amp;";
        else if (c == '<') out += "&lt;";
        else if (c == '"') out += "&quot;";
        else if (c == '$') out += "";                     // the library would expand ${NAME}
        else out += c;
    }
    return out;
}

std::string element(const char* name, const std::string& value) {
    return std::string("<") + name + ">" + value + "</" + name + ">";
}

// How many bytes a writer keeps unacknowledged before it blocks.
std::string watermarks(const Settings& s) {
    int64_t high = 0;
    if (s.role == Role::publisher && s.send_queue > 0)
        high = s.send_queue * static_cast<int64_t>(s.data_length);
    else if (s.role == Role::subscriber || s.latency_test)
        // Pongs, and pings that a callback sends: one sample must never fill the cache, because the thread
        // that waits there is the one that takes the acknowledgement.
        high = std::max<int64_t>(4 * static_cast<int64_t>(s.data_length), 16 << 20);
    if (!high) return "";
    high = std::clamp<int64_t>(high, 1, 2'000'000'000);
    const std::string bytes = std::to_string(high) + " B";
    return element("Watermarks", element("WhcLow", std::to_string(std::min<int64_t>(high / 2, 1000)) + " B") +
                                     element("WhcHigh", bytes) + element("WhcHighInit", bytes) +
                                     element("WhcAdaptive", "false"));
}

std::string refuse_qos(const QosProfile& qos, const EndpointQos& e, bool writer) {
    using D = EndpointQos::Durability;
    if (e.durability == D::transient || e.durability == D::persistent)
        return qos_place(qos, e, "durability") + "cyclonedds has no durability service; use VOLATILE or TRANSIENT_LOCAL";
    if (e.transport_priority != 0)
        return qos_place(qos, e, "transport_priority") + "without effect in cyclonedds; leave it out";
    if (writer && (e.max_samples != infinite || e.max_instances != infinite || e.max_samples_per_instance != infinite))
        return qos_place(qos, e, "resource_limits") +
               "cyclonedds does not limit a writer's samples; use LENGTH_UNLIMITED, and -sendQueueSize";
    if (writer && e.max_blocking_ns == 0)
        return qos_place(qos, e, "reliability") + "the program waits for a full writer; give a max_blocking_time";
    return "";
}

}  // namespace

std::string cyclone_refuse(const Settings& s) {
    if (const std::string why = refuse_nic(s); !why.empty()) return why;
    for (const std::string& peer : s.peers)
        if (peer.find_first_of("<>\"'&$ ,;") != std::string::npos)
            return "-peer: '" + peer + "' is not an address; give an IPv4 address or a host name";
    if (s.discovery == Discovery::server)
        return "-discovery: cyclonedds has no discovery server; give peers or multicast, or use fastdds";
    std::string why = refuse_qos(s.qos, s.qos.writer, true);
    return why.empty() ? refuse_qos(s.qos, s.qos.reader, false) : why;
}

std::string cyclone_config(const Settings& s) {
    const Interface nic = interface_of(s.nic);
    std::string interface = s.nic.empty() ? "<NetworkInterface autodetermine=\"true\""
                            : nic.address == s.nic ? "<NetworkInterface address=\"" + escape(s.nic) + "\""
                                                   : "<NetworkInterface name=\"" + escape(s.nic) + "\"";
    const bool calls = s.discovery == Discovery::multicast;
    if (s.multicast || calls) interface += " multicast=\"true\"";
    if (s.multicast) interface += " prefer_multicast=\"true\"";
    interface += "/>";

    // Which groups may be used: for discovery (spdp) and for samples (asm, ssm).
    const char* multicast = s.multicast && calls ? "true" : s.multicast ? "asm,ssm" : calls ? "spdp" : "false";
    std::string general = element("Interfaces", interface) + element("AllowMulticast", multicast);
    if (s.multicast || calls) general += element("EnableMulticastLoopback", "true");

    // A process takes the first free participant index; each peer is asked at as many ports. In a pod a
    // process is alone and has the index 0, on one address there may be all the participants of a trial.
    const unsigned most = 9 + s.subscribers + s.publishers + s.id;
    std::string discovery = element("ParticipantIndex", "auto") + element("MaxAutoParticipantIndex", std::to_string(most));
    if (!s.peers.empty()) {
        std::string peers;
        for (const std::string& peer : s.peers) peers += "<Peer Address=\"" + escape(peer) + "\"/>";
        discovery += element("Peers", peers);
    }
    if (!s.multicast_address.empty())
        discovery += element("SPDPMulticastAddress", s.multicast_address) +
                     element("DefaultMulticastAddress", s.multicast_address);

    const std::string internal = "<SocketReceiveBufferSize min=\"default\" max=\"8 MiB\"/>" +
                                 element("WriterLingerDuration", "200 ms") + watermarks(s);
    std::string config = element("General", general) + element("Discovery", discovery) + element("Internal", internal);
    if (s.verbosity >= 3) config += element("Tracing", element("Verbosity", "config") + element("OutputFile", "stderr"));
    return "<Domain id=\"any\">" + config + "</Domain>";
}

}  // namespace k8sdds
