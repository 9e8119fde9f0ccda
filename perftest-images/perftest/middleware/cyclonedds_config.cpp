#include "cyclonedds_config.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <tinyxml2.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <vector>

#include "common.h"
#include "config_file.h"
#include "sockets.h"

namespace k8sdds {
namespace {

std::string escape(const std::string& text) {
    std::string out;
    for (char c : text) {
        if (c == '&') out += "&amp;";
        else if (c == '<') out += "&lt;";
        else if (c == '"') out += "&quot;";
        else if (c == '$') out += "";                     // prevents the expansion of ${NAME}
        else out += c;
    }
    return out;
}

std::string element(const char* name, const std::string& value) {
    return std::string("<") + name + ">" + value + "</" + name + ">";
}

// Returns a peer as the library reads it: an IPv6 address is in brackets, because a port may follow.
std::string peer_address(const std::string& peer) {
    in6_addr address{};
    return inet_pton(AF_INET6, peer.c_str(), &address) == 1 ? "[" + peer + "]" : peer;
}

// Returns the limits of unacknowledged bytes at which a writer blocks.
std::string watermarks(const Settings& s) {
    int64_t high = 0;
    uint64_t longest = s.role == Role::node ? 0 : s.data_length;
    for (const DataEndpoint& writer : s.flow_writers) longest = std::max(longest, writer.length);
    if (s.publishes() && s.send_queue > 0)
        high = s.send_queue * static_cast<int64_t>(longest);
    else if (s.role == Role::subscriber || s.latency_test)
        // The thread that writes pongs, and pings in a callback, also handles acknowledgments. It must never block,
        // so one sample must not fill the cache.
        high = std::max<int64_t>(4 * static_cast<int64_t>(s.data_length), 16 << 20);
    if (!high) return "";
    high = std::clamp<int64_t>(high, 1, 2'000'000'000);
    const std::string bytes = std::to_string(high) + " B";
    return element("Watermarks", element("WhcLow", std::to_string(std::min<int64_t>(high / 2, 1000)) + " B") +
                                     element("WhcHigh", bytes) + element("WhcHighInit", bytes) +
                                     element("WhcAdaptive", "false"));
}

std::string unsupported_qos(const QosProfile& qos, const EndpointQos& e, bool writer) {
    using D = EndpointQos::Durability;
    if (e.durability == D::transient || e.durability == D::persistent)
        return qos_location(qos, e, "durability") +
               "cyclonedds has no durability service; use VOLATILE or TRANSIENT_LOCAL";
    if (e.transport_priority != 0)
        return qos_location(qos, e, "transport_priority") + "has no effect in cyclonedds; remove it";
    if (writer && (e.max_samples != infinite || e.max_instances != infinite || e.max_samples_per_instance != infinite))
        return qos_location(qos, e, "resource_limits") +
               "cyclonedds does not limit a writer's samples; use LENGTH_UNLIMITED and -sendQueueSize";
    if (writer && e.max_blocking_ns == 0)
        return qos_location(qos, e, "reliability") +
               "writes must wait while the writer is full; set a max_blocking_time above 0";
    return "";
}

// Returns the folder of the DDS Security plugins: the library's own, or Debian's subfolder of it. Empty if they are
// not installed.
std::string plugin_folder() {
    Dl_info info{};
    if (!dladdr(reinterpret_cast<void*>(&dds_create_participant), &info) || !info.dli_fname) return "";
    const std::string library = info.dli_fname;
    const std::string folder = library.substr(0, library.rfind('/') + 1);
    for (const char* subfolder : {"libddsc0debian/", ""})
        if (access((folder + subfolder + "libdds_security_auth.so").c_str(), R_OK) == 0) return folder + subfolder;
    return "";
}

std::string unsupported_security(const Security& security) {
    if (!security.enabled()) return "";
    // Cyclone DDS 0.10 does not pass the key length on to its plugin, which then uses AES-256.
    if (security.key_bits != 256)
        return "-secureEncryptionAlgorithm: Cyclone DDS 0.10 always signs and encrypts with AES-256; give aes-256-gcm";
    if (plugin_folder().empty())
        return "-secureGovernanceFile: the DDS Security plugins of Cyclone DDS are not installed; install libddsc0debian";
    return "";
}

// What DDS Security adds: to a message, and to a submessage with a fragment.
struct Protection {
    int64_t message = 0, submessage = 0;
};

// Returns the values of a protection kind in a governance document, such as "SIGN", one for each rule.
std::vector<std::string> kinds(const std::string& governance, const std::string& part) {
    std::vector<std::string> values;
    const std::string tag = "<" + part + "_protection_kind>";
    for (size_t at = governance.find(tag); at != std::string::npos; at = governance.find(tag, at)) {
        at += tag.size();
        values.push_back(governance.substr(at, governance.find('<', at) - at));
    }
    return values;
}

// Returns the bytes that the strongest of these protections adds.
int64_t longest(const std::vector<std::string>& kinds, int64_t bytes, int64_t bytes_per_receiver) {
    int64_t most = 0;
    for (const std::string& kind : kinds) {
        if (kind.find("NONE") != std::string::npos) continue;
        const bool for_each_receiver = kind.find("ORIGIN_AUTHENTICATION") != std::string::npos;
        most = std::max(most, bytes + (for_each_receiver ? bytes_per_receiver : 0));
    }
    return most;
}

// Computes from the lengths of the elements in the DDS Security specification, rounded up for alignment: a crypto
// header (20 bytes), the length of encrypted content (4), a footer (20), submessage headers (4 each), an INFO_SOURCE
// submessage in front of a protected message (24), and a code for each receiver (20).
Protection protection(const Settings& s) {
    if (!s.security.enabled()) return {};
    std::ifstream file(s.security.governance);
    const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    // Subscribers are receivers of each other too; a subscriber knows their number from -peer only.
    const size_t receivers = std::max<size_t>({s.subscribers, s.publishers, s.peers.size()});
    const int64_t codes = 20 * static_cast<int64_t>(receivers);
    return {longest(kinds(text, "rtps"), 84, codes),
            longest(kinds(text, "metadata"), 60, codes) + longest(kinds(text, "data"), 48, 0)};
}

std::string message_lengths(const Settings& s) {
    if (!s.limits.given()) return "";
    const CycloneLengths lengths = cyclonedds_lengths(s);
    const auto bytes = [](int64_t n) { return std::to_string(n) + " B"; };
    return element("MaxMessageSize", bytes(lengths.packed)) + element("FragmentSize", bytes(lengths.fragment)) +
           element("MaxRexmitMessageSize", bytes(lengths.retransmit));
}

// What the options do not set: everything else would contradict them, or reach beyond the process.
const ConfigRules config_rules = {
    "CycloneDDS",
    {"Domain/General/MulticastTimeToLive", "Domain/General/RedundantNetworking",
     "Domain/Compatibility", "Domain/Discovery/DSGracePeriod", "Domain/Discovery/LeaseDuration",
     "Domain/Discovery/SPDPInterval", "-Domain/Internal/ControlTopic", "-Domain/Internal/FragmentSize",
     "-Domain/Internal/MaxMessageSize", "-Domain/Internal/MonitorPort", "-Domain/Internal/Test",
     "-Domain/Internal/WriteBatch", "Domain/Internal", "Domain/Sizing", "Domain/Threads"},
    "k8sdds-perftest sets this with its own options, or does not support it; remove it"};

std::string read_config(const Settings& s, ConfigFile& file) {
    const std::string problem = file.read(s.middleware_config, config_rules);
    if (!problem.empty()) return problem;
    const auto domain = file.find("Domain");
    for (const char* id : {"Id", "id"})
        if (domain && domain->Attribute(id) && std::string(domain->Attribute(id)) != "any")
            return file.problem(domain, "k8sdds-perftest changes the domain from run to run; remove Id");
    if (s.send_queue > 0 && file.has("Domain/Internal/Watermarks"))
        return file.problem(file.find("Domain/Internal/Watermarks"), "-sendQueueSize sets this; give only one of them");
    return "";
}

// Returns the configuration of the domain as XML.
std::string config(const Settings& s) {
    ConfigFile user;
    read_config(s, user);                                 // cyclonedds_unsupported() has reported problems
    const Interface nic = interface_of(s.nic, s.ipv6);
    std::string interface = s.nic.empty() ? "<NetworkInterface autodetermine=\"true\""
                            : nic.address == s.nic ? "<NetworkInterface address=\"" + escape(s.nic) + "\""
                                                   : "<NetworkInterface name=\"" + escape(s.nic) + "\"";
    const bool multicast_discovery = s.discovery == Discovery::multicast;
    if (s.multicast || multicast_discovery) interface += " multicast=\"true\"";
    if (s.multicast) interface += " prefer_multicast=\"true\"";
    interface += "/>";

    // Multicast is allowed for discovery (spdp) and for samples (asm, ssm) separately.
    const char* multicast = s.multicast && multicast_discovery ? "true"
                            : s.multicast                      ? "asm,ssm"
                            : multicast_discovery              ? "spdp"
                                                               : "false";
    std::string general = element("Interfaces", interface) + element("AllowMulticast", multicast);
    if (s.ipv6) general += element("Transport", "udp6");
    if (s.multicast || multicast_discovery) general += element("EnableMulticastLoopback", "true");
    general += message_lengths(s);

    // A process uses the first free participant index, and tries to reach each peer at as many ports. A process has
    // index 0 in a pod; all participants of a trial may share one address.
    const unsigned max_index = s.index_limit ? s.index_limit : 9 + s.sharing_address;
    std::string discovery = element("ParticipantIndex", "auto") +
                            element("MaxAutoParticipantIndex", std::to_string(max_index));
    if (!s.peers.empty()) {
        std::string peers;
        for (const std::string& peer : distinct(s.peers)) peers += "<Peer Address=\"" + escape(peer_address(peer)) + "\"/>";
        discovery += element("Peers", peers);
    }
    if (!s.multicast_address.empty() || s.ipv6)
        discovery += element("SPDPMulticastAddress", multicast_group(s)) +
                     element("DefaultMulticastAddress", multicast_group(s));

    std::string internal = element("WriterLingerDuration", "200 ms");
    if (!user.has("Domain/Internal/SocketReceiveBufferSize"))
        internal += "<SocketReceiveBufferSize min=\"default\" max=\"8 MiB\"/>";
    if (!user.has("Domain/Internal/Watermarks")) internal += watermarks(s);
    std::string config = element("General", general) + element("Discovery", discovery) + element("Internal", internal);
    if (s.verbosity >= 3) config += element("Tracing", element("Verbosity", "config") + element("OutputFile", "stderr"));
    // Of the same element in several fragments, the library uses the last one.
    return "<Domain id=\"any\">" + config + "</Domain>" + (user.text().empty() ? "" : "," + user.text());
}

// Returns why the library rejects the configuration, which it checks only when it creates a domain.
std::string rejected_config(const Settings& s) {
    std::string messages;
    const dds_entity_t domain = cyclonedds_domain(s, messages);
    if (domain > 0) dds_delete(domain);
    if (domain > 0) return "";
    return "-middlewareConfig: " + s.middleware_config + ": Cyclone DDS rejects it: " +
           messages.substr(0, messages.find('\n'));
}

std::string unsupported_config(const Settings& s) {
    if (s.middleware_config.empty()) return "";
    ConfigFile file;
    const std::string problem = read_config(s, file);
    return problem.empty() ? rejected_config(s) : problem;
}

}  // namespace

dds_entity_t cyclonedds_domain(const Settings& s, std::string& messages) {
    dds_set_log_sink([](void* all, const dds_log_data_t* data) {
        static_cast<std::string*>(all)->append(data->message, data->size);
    }, &messages);
    const dds_entity_t domain = dds_create_domain(s.domain, config(s).c_str());
    dds_set_log_sink(nullptr, nullptr);
    return domain;
}

CycloneLengths cyclonedds_lengths(const Settings& s) {
    CycloneLengths lengths;
    const MessageLimits& limits = s.limits;
    if (!limits.given()) return lengths;
    if (limits.message > 0) lengths.message = limits.message;
    // In front of a fragment: the RTPS header, INFO_DESTINATION, INFO_TIMESTAMP, and the header of DATA_FRAG.
    constexpr int64_t headers = 20 + 16 + 12 + 36;
    const Protection added = protection(s);
    const auto room = [&](int64_t message) { return (message - added.message - added.submessage - headers) & ~3; };
    const int64_t wanted = limits.fragment_message ? room(limits.fragment_message)
                           : limits.fragment > 0   ? limits.fragment
                                                   : lengths.fragment;
    lengths.fragment = std::max<int64_t>(std::min(wanted, room(lengths.message)), 64);
    // The library protects a message after it has filled it. It sends as many fragments in a submessage as MaxMessageSize
    // holds without headers.
    lengths.packed = lengths.message - added.message;
    const int64_t filled = lengths.packed / lengths.fragment * lengths.fragment;
    if (filled + headers + added.submessage > lengths.packed && filled > lengths.fragment) lengths.packed = filled - 1;
    lengths.retransmit = std::min(lengths.retransmit, lengths.packed);
    return lengths;
}

std::string cyclonedds_unsupported(const Settings& s) {
    if (const std::string problem = unsupported_security(s.security); !problem.empty()) return problem;
    if (const std::string problem = unsupported_nic(s); !problem.empty()) return problem;
    for (const std::string& peer : s.peers)
        if (peer.find_first_of("<>\"'&$ ,;") != std::string::npos)
            return "-peer: '" + peer + "' is not an address; give an IP address or a host name";
    if (s.asynchronous) return "-asynchronous: cyclonedds sends in the thread that writes; remove it, or use fastdds";
    if (s.discovery == Discovery::server)
        return "-discovery: cyclonedds has no discovery server; use peers or multicast, or -middleware fastdds";
    if (const std::string problem = unsupported_qos(s.qos, s.qos.writer, true); !problem.empty()) return problem;
    if (const std::string problem = unsupported_qos(s.qos, s.qos.reader, false); !problem.empty()) return problem;
    return unsupported_config(s);
}

void cyclonedds_add_security(dds_qos_t* qos, const Security& security) {
    if (!security.enabled()) return;
    const auto set = [&](const std::string& name, const std::string& value) {
        dds_qset_prop(qos, ("dds.sec." + name).c_str(), value.c_str());
    };
    const struct { const char *part, *file, *function; } plugins[] = {{"auth", "auth", "authentication"},
                                                                      {"crypto", "crypto", "crypto"},
                                                                      {"access", "ac", "access_control"}};
    for (const auto& [part, file, function] : plugins) {
        const std::string library = std::string(part) + ".library.";
        set(library + "path", plugin_folder() + "libdds_security_" + file + ".so");
        set(library + "init", std::string("init_") + function);
        set(library + "finalize", std::string("finalize_") + function);
    }
    set("auth.identity_ca", "file:" + security.identity_ca);
    set("auth.identity_certificate", "file:" + security.certificate);
    set("auth.private_key", "file:" + security.private_key);
    set("access.permissions_ca", "file:" + security.permissions_ca);
    set("access.governance", "file:" + security.governance);
    set("access.permissions", "file:" + security.permissions);
}

}  // namespace k8sdds
