#include "fastdds_config.h"

#include <arpa/inet.h>
#include <netdb.h>

#include <algorithm>
#include <memory>

#include "common.h"
#include "sockets.h"

namespace k8sdds {
namespace {

using fastdds_api::rtps::IPLocator;
using fastdds_api::rtps::Locator_t;

constexpr uint32_t least_for_handshake = 8192;
constexpr int64_t queue_bytes = 500'000;                  // the maximum of Cyclone DDS's adaptive limit

std::string unsupported_qos(const QosProfile& qos, const EndpointQos& e, bool writer) {
    using D = EndpointQos::Durability;
    if (e.durability == D::transient || e.durability == D::persistent)
        return qos_location(qos, e, "durability") +
               "fastdds supports this only with a persistence service; use VOLATILE or TRANSIENT_LOCAL";
    if (e.transport_priority != 0)
        return qos_location(qos, e, "transport_priority") + "has no effect in fastdds; remove it";
    if (e.by_source_timestamp)
        return qos_location(qos, e, "destination_order") +
               "fastdds does not support ordering by source timestamp; use BY_RECEPTION_TIMESTAMP";
    if (writer && (e.max_samples != infinite || e.max_instances != infinite || e.max_samples_per_instance != infinite))
        return qos_location(qos, e, "resource_limits") + "use LENGTH_UNLIMITED and -sendQueueSize, as with cyclonedds";
    if (writer && e.max_blocking_ns == 0)
        return qos_location(qos, e, "reliability") +
               "writes must wait while the writer is full; set a max_blocking_time above 0";
    return "";
}

// Returns the IPv4 address of a host name, or INADDR_ANY if it has none.
in_addr resolve_host(const std::string& host) {
    in_addr address{};
    addrinfo hints{}, *results = nullptr;
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_DGRAM;
    if (getaddrinfo(host.c_str(), nullptr, &hints, &results) == 0 && results) {
        address = reinterpret_cast<const sockaddr_in*>(results->ai_addr)->sin_addr;
        freeaddrinfo(results);
    }
    return address;
}

// Splits ADDRESS[:PORT] of a discovery server. Port 0 means that the port is invalid.
std::pair<std::string, uint32_t> address_and_port(const std::string& server) {
    const size_t colon = server.find(':');
    const std::string port = colon == std::string::npos ? "11811" : server.substr(colon + 1);
    const bool number = !port.empty() && port.size() < 6 && port.find_first_not_of("0123456789") == std::string::npos;
    const unsigned long value = number ? std::stoul(port) : 0;
    return {server.substr(0, colon), value <= 65535 ? static_cast<uint32_t>(value) : 0};
}

std::string unsupported_servers(const Settings& s) {
    bool reachable = false;
    for (const std::string& server : s.discovery_servers) {
        const auto [host, port] = address_and_port(server);
        if (port == 0) return "-discoveryServer: '" + server + "' has an invalid port; give ADDRESS or ADDRESS:PORT";
        // A server without an address is probably being replaced; the others know all participants.
        reachable = reachable || resolve_host(host).s_addr != INADDR_ANY;
    }
    if (reachable) return "";
    return "-discoveryServer: '" + s.discovery_servers.back() + "' cannot be resolved; give ADDRESS or ADDRESS:PORT";
}

Locator_t locator(const std::string& address, uint32_t port = 0) {
    Locator_t locator;
    locator.kind = LOCATOR_KIND_UDPv4;
    IPLocator::setIPv4(locator, address);
    locator.port = port;
    return locator;
}

void add_security(eprosima::fastdds::dds::DomainParticipantQos& qos, const Security& security) {
    auto& properties = qos.properties().properties();
    const auto set = [&](const char* name, const std::string& value) { properties.emplace_back(name, value); };
    const std::string auth = "dds.sec.auth.builtin.PKI-DH.", access = "dds.sec.access.builtin.Access-Permissions.";
    set("dds.sec.auth.plugin", "builtin.PKI-DH");
    set((auth + "identity_ca").c_str(), "file://" + security.identity_ca);
    set((auth + "identity_certificate").c_str(), "file://" + security.certificate);
    set((auth + "private_key").c_str(), "file://" + security.private_key);
    set("dds.sec.access.plugin", "builtin.Access-Permissions");
    set((access + "permissions_ca").c_str(), "file://" + security.permissions_ca);
    set((access + "governance").c_str(), "file://" + security.governance);
    set((access + "permissions").c_str(), "file://" + security.permissions);
    set("dds.sec.crypto.plugin", "builtin.AES-GCM-GMAC");
    set("dds.sec.crypto.keysize", security.key_bits == 256 ? "256" : "128");
}

}  // namespace

std::string fastdds_unsupported(const Settings& s) {
    if (const std::string problem = unsupported_nic(s); !problem.empty()) return problem;
    for (const std::string& peer : s.peers)
        if (resolve_host(peer).s_addr == INADDR_ANY)
            return "-peer: '" + peer + "' cannot be resolved; give an IPv4 address or a host name";
    if (s.discovery == Discovery::server) {
        const std::string problem = unsupported_servers(s);
        if (!problem.empty()) return problem;
    }
    if (s.qos.batch_bytes > 0)
        return (s.qos.batch_line
                    ? "-qosFile: " + s.qos.file + ":" + std::to_string(s.qos.batch_line) + ": k8sdds.batch_bytes"
                    : std::string("-batchSize")) +
               ": fastdds does not support batching; remove it, or use cyclonedds";
    if (s.security.enabled() && fastdds_max_message(s) < least_for_handshake)
        return "-messageSizeMax: fastdds does not fragment the handshake of DDS Security, which contains certificates and "
               "permissions; give at least " + std::to_string(least_for_handshake);
    if (s.limits.fragment != MessageLimits::library ||
        (s.limits.fragment_message && s.limits.fragment_message < fastdds_max_message(s)))
        return "-fragmentSize: each fragment of fastdds fills a message; remove it, and set -messageSizeMax";
    const std::string problem = unsupported_qos(s.qos, s.qos.writer, true);
    return problem.empty() ? unsupported_qos(s.qos, s.qos.reader, false) : problem;
}

uint32_t fastdds_max_message(const Settings& s) {
    constexpr uint32_t usual = 14720;
    if (s.limits.message == MessageLimits::usual) return usual;
    if (s.limits.message > 0) return static_cast<uint32_t>(s.limits.message);
    return eprosima::fastdds::rtps::UDPv4TransportDescriptor().maxMessageSize;
}

uint32_t fastdds_fragment(const Settings& s) {
    constexpr uint32_t headers = 176;                     // read from captured DATA_FRAG submessages (Fast DDS 2.9)
    return (fastdds_max_message(s) - headers) & ~3u;
}

int32_t fastdds_send_queue(const Settings& s) {
    if (s.send_queue > 0) return static_cast<int32_t>(std::min<int64_t>(s.send_queue, INT32_MAX));
    return static_cast<int32_t>(std::clamp<int64_t>(queue_bytes / static_cast<int64_t>(s.data_length), 8, 4000));
}

Locator_t fastdds_multicast(const Settings& s) {
    return locator(multicast_group(s), 7401 + 250 * s.domain);
}

eprosima::fastdds::dds::DomainParticipantQos fastdds_participant(const Settings& s) {
    eprosima::fastdds::dds::DomainParticipantQos qos;
    qos.name("k8sdds-perftest");
    // Only UDPv4, no shared memory.
    auto udp = std::make_shared<eprosima::fastdds::rtps::UDPv4TransportDescriptor>();
    udp->maxMessageSize = fastdds_max_message(s);
    udp->receiveBufferSize = 8u << 20;                    // the kernel limits it to rmem_max
    // The library requests acknowledgments each time it has sent as much as its send buffer holds, so the writer's
    // queue must be several times as large. For each acknowledged sample it searches the samples acknowledged before
    // it, so that short samples are faster with frequent acknowledgments.
    udp->sendBufferSize = std::clamp<uint32_t>(static_cast<uint32_t>(128 * s.data_length), 32u << 10, 128u << 10);
    // A process uses the first free participant index, and tries to reach each peer at as many ports.
    udp->maxInitialPeersRange = 9 + s.subscribers + s.publishers + s.id;
    const Interface nic = interface_of(s.nic);
    // With an interface white list clients do not find a discovery server; there the locators select the interface.
    if (!nic.address.empty() && s.discovery != Discovery::server) udp->interfaceWhiteList.push_back(nic.address);
    qos.transport().use_builtin_transports = false;
    qos.transport().user_transports.push_back(udp);

    auto& builtin = qos.wire_protocol().builtin;
    builtin.avoid_builtin_multicast = true;               // for endpoint discovery; participant discovery is set below
    const std::string own = nic.address.empty() ? "127.0.0.1" : nic.address;
    // Explicit locators keep the library from using multicast by default.
    builtin.metatrafficUnicastLocatorList.push_back(locator(nic.address.empty() ? "0.0.0.0" : nic.address));
    if (s.discovery == Discovery::server) {
        for (size_t id = 0; id < s.discovery_servers.size(); ++id) {
            const auto [host, port] = address_and_port(s.discovery_servers[id]);
            const in_addr address = resolve_host(host);
            if (address.s_addr == INADDR_ANY) continue;   // see unsupported_servers()
            fastdds_api::add_discovery_server(builtin, id, locator(address_text(address), port));
        }
    } else if (s.discovery == Discovery::multicast) {
        const std::string group = multicast_group(s);
        builtin.metatrafficMulticastLocatorList.push_back(locator(group, 7400 + 250 * s.domain));
        builtin.initialPeersList.push_back(locator(group, 7400 + 250 * s.domain));
    } else {
        builtin.initialPeersList.push_back(locator(own));
    }
    if (s.security.enabled()) add_security(qos, s.security);
    for (const std::string& peer : s.peers) builtin.initialPeersList.push_back(locator(address_text(resolve_host(peer))));
    return qos;
}

}  // namespace k8sdds
