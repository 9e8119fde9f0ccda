#include "fastdds_config.h"

#include <arpa/inet.h>
#include <fastdds/rtps/transport/UDPv4TransportDescriptor.h>
#include <fastrtps/utils/IPLocator.h>
#include <netdb.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "shared.h"
#include "sockets.h"

namespace k8sdds {
namespace {

using eprosima::fastrtps::rtps::IPLocator;
using eprosima::fastrtps::rtps::Locator_t;

constexpr int64_t queue_bytes = 500'000;                  // what Cyclone DDS adapts its own limit up to

std::string refuse_qos(const QosProfile& qos, const EndpointQos& e, bool writer) {
    using D = EndpointQos::Durability;
    if (e.durability == D::transient || e.durability == D::persistent)
        return qos_place(qos, e, "durability") + "fastdds keeps this only with a persistence service; use VOLATILE or "
                                             "TRANSIENT_LOCAL";
    if (e.transport_priority != 0)
        return qos_place(qos, e, "transport_priority") + "without effect in fastdds; leave it out";
    if (e.by_source_timestamp)
        return qos_place(qos, e, "destination_order") + "fastdds has no order by source timestamp; use "
                                                    "BY_RECEPTION_TIMESTAMP";
    if (writer && (e.max_samples != infinite || e.max_instances != infinite || e.max_samples_per_instance != infinite))
        return qos_place(qos, e, "resource_limits") + "use LENGTH_UNLIMITED, and -sendQueueSize, as with cyclonedds";
    if (writer && e.max_blocking_ns == 0)
        return qos_place(qos, e, "reliability") + "the program waits for a full writer; give a max_blocking_time";
    return "";
}

in_addr resolved(const std::string& host) {
    in_addr address{};
    addrinfo hints{}, *found = nullptr;
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_DGRAM;
    if (getaddrinfo(host.c_str(), nullptr, &hints, &found) == 0 && found) {
        address = reinterpret_cast<const sockaddr_in*>(found->ai_addr)->sin_addr;
        freeaddrinfo(found);
    }
    return address;
}

// ADDRESS[:PORT] of a discovery server; port 0: not a port.
std::pair<std::string, uint32_t> address_and_port(const std::string& server) {
    const size_t colon = server.find(':');
    const std::string port = colon == std::string::npos ? "11811" : server.substr(colon + 1);
    const bool number = !port.empty() && port.size() < 6 && port.find_first_not_of("0123456789") == std::string::npos;
    const unsigned long value = number ? std::stoul(port) : 0;
    return {server.substr(0, colon), value <= 65535 ? static_cast<uint32_t>(value) : 0};
}

std::string refuse_servers(const Settings& s) {
    bool reachable = false;
    for (const std::string& server : s.discovery_servers) {
        const auto [host, port] = address_and_port(server);
        if (port == 0) return "-discoveryServer: '" + server + "' has no port; give ADDRESS or ADDRESS:PORT";
        // One of several that has no address at the moment is being replaced: the others know everybody.
        reachable = reachable || resolved(host).s_addr != INADDR_ANY;
    }
    if (reachable) return "";
    return "-discoveryServer: '" + s.discovery_servers.back() + "' is not an address; give ADDRESS or ADDRESS:PORT";
}

Locator_t locator(const std::string& address, uint32_t port = 0) {
    Locator_t made;
    made.kind = LOCATOR_KIND_UDPv4;
    IPLocator::setIPv4(made, address);
    made.port = port;
    return made;
}

// A server as fast-discovery-server -i ID names itself.
eprosima::fastrtps::rtps::RemoteServerAttributes server(size_t id, const Locator_t& where) {
    char prefix[40];
    std::snprintf(prefix, sizeof prefix, "44.53.%02zx.5f.45.50.52.4f.53.49.4d.41", id & 0xff);
    eprosima::fastrtps::rtps::RemoteServerAttributes made;
    made.ReadguidPrefix(prefix);
    made.metatrafficUnicastLocatorList.push_back(where);
    return made;
}

void secure(eprosima::fastdds::dds::DomainParticipantQos& qos, const Security& security) {
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

std::string fastdds_refuse(const Settings& s) {
    if (const std::string why = refuse_nic(s); !why.empty()) return why;
    for (const std::string& peer : s.peers)
        if (resolved(peer).s_addr == INADDR_ANY)
            return "-peer: '" + peer + "' is not an address; give an IPv4 address or a host name";
    if (s.discovery == Discovery::server) {
        const std::string why = refuse_servers(s);
        if (!why.empty()) return why;
    }
    if (s.qos.batch_bytes > 0)
        return (s.qos.batch_line ? "-qosFile: " + s.qos.file + ":" + std::to_string(s.qos.batch_line) + ": k8sdds.batch_bytes"
                                 : std::string("-batchSize")) +
               ": fastdds does not collect samples; leave it out, or use cyclonedds";
    std::string why = refuse_qos(s.qos, s.qos.writer, true);
    return why.empty() ? refuse_qos(s.qos, s.qos.reader, false) : why;
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
    // UDPv4 and nothing else: no shared memory.
    auto udp = std::make_shared<eprosima::fastdds::rtps::UDPv4TransportDescriptor>();
    udp->maxMessageSize = fastdds_max_message;
    udp->receiveBufferSize = 8u << 20;                    // the kernel gives what it allows
    // The library asks for acknowledgements each time it has sent as much as its send buffer holds, so the
    // writer's queue has to be several of them.
    udp->sendBufferSize = 128u << 10;
    // A process takes the first free participant index; each peer is asked at as many ports.
    udp->maxInitialPeersRange = 9 + s.subscribers + s.publishers + s.id;
    const Interface nic = interface_of(s.nic);
    // A white list keeps clients of a discovery server from finding it; there the locators name the interface.
    if (!nic.address.empty() && s.discovery != Discovery::server) udp->interfaceWhiteList.push_back(nic.address);
    qos.transport().use_builtin_transports = false;
    qos.transport().user_transports.push_back(udp);

    auto& builtin = qos.wire_protocol().builtin;
    builtin.avoid_builtin_multicast = true;               // of endpoint discovery; participants are found as below
    const std::string own = nic.address.empty() ? "127.0.0.1" : nic.address;
    // Lists of its own keep the library from listening and calling by multicast where it should not.
    builtin.metatrafficUnicastLocatorList.push_back(locator(nic.address.empty() ? "0.0.0.0" : nic.address));
    if (s.discovery == Discovery::server) {
        builtin.discovery_config.discoveryProtocol = eprosima::fastrtps::rtps::DiscoveryProtocol::CLIENT;
        for (size_t id = 0; id < s.discovery_servers.size(); ++id) {
            const auto [host, port] = address_and_port(s.discovery_servers[id]);
            const in_addr address = resolved(host);
            if (address.s_addr == INADDR_ANY) continue;   // being replaced: see refuse_servers
            builtin.discovery_config.m_DiscoveryServers.push_back(server(id, locator(address_text(address), port)));
        }
    } else if (s.discovery == Discovery::multicast) {
        const std::string group = multicast_group(s);
        builtin.metatrafficMulticastLocatorList.push_back(locator(group, 7400 + 250 * s.domain));
        builtin.initialPeersList.push_back(locator(group, 7400 + 250 * s.domain));
    } else {
        builtin.initialPeersList.push_back(locator(own));
    }
    if (s.security.on()) secure(qos, s.security);
    for (const std::string& peer : s.peers) builtin.initialPeersList.push_back(locator(address_text(resolved(peer))));
    return qos;
}

}  // namespace k8sdds
