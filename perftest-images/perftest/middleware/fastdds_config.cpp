#include "fastdds_config.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <unistd.h>
#include <tinyxml2.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fastdds/dds/domain/DomainParticipantFactory.hpp>
#include <fastdds/dds/log/Log.hpp>
#include <fastdds/dds/log/StdoutErrConsumer.hpp>
#include <memory>
#include <stdexcept>
#include <thread>

#include "common.h"
#include "fastdds_transport.h"
#include "sockets.h"

namespace k8sdds {
namespace {

using fastdds_api::rtps::IPLocator;
using fastdds_api::rtps::Locator_t;
using eprosima::fastdds::dds::DomainParticipantFactory;
using eprosima::fastdds::dds::Log;
using eprosima::fastdds::dds::LogConsumer;
using eprosima::fastdds::dds::StdoutErrConsumer;

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

// Returns the address of a host name, or an empty text if it has none of this family.
std::string resolve_host(const std::string& host, bool ipv6) {
    SocketAddress address;
    addrinfo hints{}, *results = nullptr;
    hints.ai_family = ipv6 ? AF_INET6 : AF_INET;
    hints.ai_socktype = SOCK_DGRAM;
    if (getaddrinfo(host.c_str(), nullptr, &hints, &results) != 0 || !results) return "";
    std::memcpy(address.get(), results->ai_addr, results->ai_addrlen);
    freeaddrinfo(results);
    return address.text();
}

// Splits ADDRESS[:PORT] or [IPV6-ADDRESS]:PORT of a discovery server. Port 0 means that the port is invalid.
std::pair<std::string, uint32_t> address_and_port(const std::string& server) {
    const size_t bracket = server.compare(0, 1, "[") == 0 ? server.find(']') : std::string::npos;
    if (bracket != std::string::npos)
        return {server.substr(1, bracket - 1), address_and_port(server.substr(bracket + 1)).second};
    if (std::count(server.begin(), server.end(), ':') > 1) return {server, address_and_port("").second};
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
        reachable = reachable || !resolve_host(host, s.ipv6).empty();
    }
    if (reachable) return "";
    return "-discoveryServer: '" + s.discovery_servers.back() + "' cannot be resolved; give ADDRESS or ADDRESS:PORT";
}

Locator_t locator(const std::string& address, bool ipv6, uint32_t port = 0) {
    Locator_t locator;
    locator.kind = ipv6 ? LOCATOR_KIND_UDPv6 : LOCATOR_KIND_UDPv4;
    if (ipv6) IPLocator::setIPv6(locator, address);
    else IPLocator::setIPv4(locator, address);
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

std::shared_ptr<eprosima::fastdds::rtps::UDPTransportDescriptor> udp_transport(const Settings& s) {
    if (s.ipv6) return std::make_shared<eprosima::fastdds::rtps::UDPv6TransportDescriptor>();
    return std::make_shared<eprosima::fastdds::rtps::UDPv4TransportDescriptor>();
}

// The segment holds the samples that are on their way to the readers.
std::shared_ptr<eprosima::fastdds::rtps::SharedMemTransportDescriptor> shared_memory(const Settings& s) {
    auto descriptor = std::make_shared<eprosima::fastdds::rtps::SharedMemTransportDescriptor>();
    const uint64_t bytes = std::clamp<uint64_t>(8 * s.data_length, 16u << 20, 256u << 20);
    descriptor->segment_size(static_cast<uint32_t>(bytes));
    return descriptor;
}

std::shared_ptr<eprosima::fastdds::rtps::FlowControllerDescriptor> flow_controller(const Settings& s) {
    auto descriptor = std::make_shared<eprosima::fastdds::rtps::FlowControllerDescriptor>();
    descriptor->name = fastdds_flow_controller;
    descriptor->scheduler = eprosima::fastdds::rtps::FlowControllerSchedulerPolicy::FIFO;
    descriptor->max_bytes_per_period = static_cast<int32_t>(s.flow_bytes);
    descriptor->period_ms = static_cast<uint64_t>(s.flow_period_ms);
    return descriptor;
}

// Selects how the participant finds others, always by UDP.
void set_discovery(fastdds_api::rtps::BuiltinAttributes& builtin, const Settings& s, const Interface& nic) {
    builtin.avoid_builtin_multicast = true;               // for endpoint discovery; participant discovery is set below
    const std::string own = !nic.address.empty() ? nic.address : s.ipv6 ? "::1" : "127.0.0.1";
    const std::string any = s.ipv6 ? "::" : "0.0.0.0";
    // Explicit locators keep the library from using multicast by default.
    builtin.metatrafficUnicastLocatorList.push_back(locator(nic.address.empty() ? any : nic.address, s.ipv6));
    if (s.discovery == Discovery::server) {
        for (size_t id = 0; id < s.discovery_servers.size(); ++id) {
            const auto [host, port] = address_and_port(s.discovery_servers[id]);
            const std::string address = resolve_host(host, s.ipv6);
            if (address.empty()) continue;                // see unsupported_servers()
            fastdds_api::add_discovery_server(builtin, id, locator(address, s.ipv6, port), s.super_client);
        }
    } else if (s.discovery == Discovery::multicast) {
        const std::string group = multicast_group(s);
        builtin.metatrafficMulticastLocatorList.push_back(locator(group, s.ipv6, 7400 + 250 * s.domain));
        builtin.initialPeersList.push_back(locator(group, s.ipv6, 7400 + 250 * s.domain));
    } else {
        builtin.initialPeersList.push_back(locator(own, s.ipv6));
    }
    for (const std::string& peer : distinct(s.peers))
        builtin.initialPeersList.push_back(locator(resolve_host(peer, s.ipv6), s.ipv6));
}

// What the options and the QoS profile do not set: everything else would contradict them, or reach beyond the process.
const ConfigRules config_rules = {
    "dds",
    {"profiles/participant/rtps/allocation", "profiles/participant/rtps/flow_controller_descriptor_list",
     "profiles/participant/rtps/listenSocketBufferSize", "profiles/participant/rtps/propertiesPolicy",
     "profiles/participant/rtps/sendSocketBufferSize", "profiles/participant/rtps/builtin_controllers_sender_thread",
     "profiles/participant/rtps/timed_events_thread",
     "profiles/data_writer/historyMemoryPolicy", "profiles/data_writer/matchedSubscribersAllocation",
     "profiles/data_writer/propertiesPolicy", "profiles/data_writer/qos/publishMode", "profiles/data_writer/times",
     "profiles/data_reader/historyMemoryPolicy", "profiles/data_reader/matchedPublishersAllocation",
     "profiles/data_reader/propertiesPolicy", "profiles/data_reader/times"},
    "k8sdds-perftest sets this with its own options or QoS profile, or does not support it; remove it"};

// Keeps what the library logs.
class LogText final : public LogConsumer {
public:
    explicit LogText(std::string& text) : text_(text) {}
    void Consume(const Log::Entry& entry) override { text_ += entry.message + "; "; }

private:
    std::string& text_;
};

// Loads the profiles. The library checks them only then, and logs what it rejects.
std::string rejected_profiles(const Settings& s, const FastDdsProfiles& profiles) {
    const std::string text = profiles.text();
    static std::string loaded;                            // a profile cannot be loaded twice
    if (text.empty() || text == loaded) return "";
    std::string messages;
    Log::ClearConsumers();
    Log::RegisterConsumer(std::make_unique<LogText>(messages));
    auto* factory = DomainParticipantFactory::get_instance();
    const auto result = factory->load_XML_profiles_string(text.c_str(), text.size());
    Log::Flush();
    Log::ClearConsumers();
    if (result != fastdds_api::RETCODE_OK || !messages.empty())
        return "-middlewareConfig: " + s.middleware_config + ": Fast DDS rejects it: " + messages;
    loaded = text;
    return "";
}

}  // namespace

std::string FastDdsProfiles::name(const std::string& kind) const {
    const tinyxml2::XMLElement* profile = file_.find("profiles/" + kind);
    return profile && profile->Attribute("profile_name") ? profile->Attribute("profile_name") : "";
}

std::string FastDdsProfiles::read(const Settings& s) {
    std::string problem = file_.read(s.middleware_config, config_rules);
    if (problem.empty() && s.asynchronous && sets("data_writer/qos/publishMode"))
        return file_.problem(file_.find("profiles/data_writer/qos/publishMode"), "-asynchronous sets this; give only one of them");
    for (const char* kind : {"participant", "data_writer", "data_reader"}) {
        if (!problem.empty()) return problem;
        const tinyxml2::XMLElement* profile = file_.find(std::string("profiles/") + kind);
        if (profile && name(kind).empty()) return file_.problem(profile, "give it a profile_name");
        problem = check_properties(kind);
    }
    return problem;
}

// Properties also configure DDS Security and where the library writes files.
std::string FastDdsProfiles::check_properties(const std::string& kind) const {
    const std::string parent = "profiles/" + kind + (kind == "participant" ? "/rtps" : "");
    const tinyxml2::XMLElement* properties = file_.find(parent + "/propertiesPolicy/properties");
    if (!properties) return "";
    for (auto property = properties->FirstChildElement(); property; property = property->NextSiblingElement()) {
        const tinyxml2::XMLElement* name = property->FirstChildElement("name");
        if (!name || !name->GetText() || std::strncmp(name->GetText(), "fastdds.", 8) != 0)
            return file_.problem(property, "only properties named fastdds.… are supported; remove it");
    }
    return "";
}

std::string fastdds_unsupported(const Settings& s) {
    if (const std::string problem = unsupported_nic(s); !problem.empty()) return problem;
    // When the queue of an instance is full, the library waits for a periodic heartbeat: about 100 samples per second.
    const bool keeps_all = s.qos.writer.reliable && s.qos.writer.keep_all && !s.latency_test;
    if (s.role == Role::publisher && s.instances > 1 && keeps_all)
        return "-instances: a Fast DDS writer that keeps all samples stalls with several instances; add a -qosFile with"
               " KEEP_LAST or -bestEffort, or use cyclonedds";
    for (const std::string& peer : s.peers)
        if (resolve_host(peer, s.ipv6).empty())
            return "-peer: '" + peer + "' cannot be resolved; give an " + (s.ipv6 ? "IPv6" : "IPv4") +
                   " address or a host name";
    if (s.discovery == Discovery::server) {
        const std::string problem = unsupported_servers(s);
        if (!problem.empty()) return problem;
    }
    if (s.serialized) return "-serialized: fastdds serializes every sample; remove it, or use cyclonedds";
    if (s.qos.batch_bytes > 0)
        return (s.qos.batch_line
                    ? "-qosFile: " + s.qos.file + ":" + std::to_string(s.qos.batch_line) + ": k8sdds.batch_bytes"
                    : std::string(s.role == Role::node ? "-graph: batch" : "-batchSize")) +
               ": fastdds does not support batching; remove it, or use cyclonedds";
#if !HAVE_SECURITY
    if (s.security.enabled()) return "-secureGovernanceFile: this Fast DDS was built without DDS Security; use fastdds";
#endif
    if (s.security.enabled() && s.members)
        return "-discoveryTest: DDS Security of fastdds hides the numbers of members; remove the -secure options, or use cyclonedds";
    if (s.security.enabled() && fastdds_max_message(s) < least_for_handshake)
        return "-messageSizeMax: fastdds does not fragment the handshake of DDS Security, which contains certificates and "
               "permissions; give at least " + std::to_string(least_for_handshake);
    if (s.limits.fragment != MessageLimits::library ||
        (s.limits.fragment_message && s.limits.fragment_message < fastdds_max_message(s)))
        return "-fragmentSize: each fragment of fastdds fills a message; remove it, and set -messageSizeMax";
    if (const std::string problem = unsupported_qos(s.qos, s.qos.writer, true); !problem.empty()) return problem;
    if (const std::string problem = unsupported_qos(s.qos, s.qos.reader, false); !problem.empty()) return problem;
    FastDdsProfiles profiles;
    const std::string problem = profiles.read(s);
    return problem.empty() ? rejected_profiles(s, profiles) : problem;
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

int32_t fastdds_send_queue(const Settings& s, uint64_t data_length) {
    const int64_t queue = s.send_queue > 0 ? std::min<int64_t>(s.send_queue, INT32_MAX)
                                           : std::clamp<int64_t>(queue_bytes / static_cast<int64_t>(data_length), 8, 4000);
    return static_cast<int32_t>(std::max<int64_t>(queue / s.instances, 1) * s.instances);
}

Locator_t fastdds_multicast(const Settings& s) {
    return locator(multicast_group(s), s.ipv6, 7401 + 250 * s.domain);
}

eprosima::fastdds::dds::DomainParticipantQos fastdds_participant(const Settings& s, const FastDdsProfiles& user) {
    eprosima::fastdds::dds::DomainParticipantQos qos;
    if (const std::string name = user.name("participant"); !name.empty())
        DomainParticipantFactory::get_instance()->get_participant_qos_from_profile(name, qos);
    qos.name("k8sdds-perftest");
    // Discovery is always by UDP. The library sends to an endpoint by shared memory if both are on one host and have it.
    const std::shared_ptr<eprosima::fastdds::rtps::UDPTransportDescriptor> udp = udp_transport(s);
    udp->maxMessageSize = fastdds_max_message(s);
    udp->receiveBufferSize = 8u << 20;                    // the kernel limits it to rmem_max
    // The library requests acknowledgments each time it has sent as much as its send buffer holds, so the writer's
    // queue must be several times as large. For each acknowledged sample it searches the samples acknowledged before
    // it, so that short samples are faster with frequent acknowledgments.
    udp->sendBufferSize = static_cast<uint32_t>(std::clamp<uint64_t>(128 * s.data_length, 32u << 10, 128u << 10));
    udp->sendBufferSize = std::max(udp->sendBufferSize, udp->maxMessageSize);   // otherwise it rejects the transport
    // The library applies these to its own transports only.
    if (qos.transport().send_socket_buffer_size) udp->sendBufferSize = qos.transport().send_socket_buffer_size;
    if (qos.transport().listen_socket_buffer_size) udp->receiveBufferSize = qos.transport().listen_socket_buffer_size;
    // A process uses the first free participant index, and tries to reach each peer at as many ports.
    udp->maxInitialPeersRange = s.index_limit ? s.index_limit + 1 : 9 + s.sharing_address * std::max(s.members, 1u);
    const Interface nic = interface_of(s.nic, s.ipv6);
    // With an interface white list clients do not find a discovery server; there the locators select the interface.
    if (!nic.address.empty() && s.discovery != Discovery::server) udp->interfaceWhiteList.push_back(nic.address);
    qos.transport().use_builtin_transports = false;
    qos.transport().user_transports.push_back(checked(udp));
    if (s.transport == Transport::shared_memory) qos.transport().user_transports.push_back(shared_memory(s));

    if (s.members) fastdds_set_member(qos.wire_protocol().prefix, {s.id, s.incarnation});
    set_discovery(qos.wire_protocol().builtin, s, nic);
    fastdds_api::Duration_t& lease = qos.wire_protocol().builtin.discovery_config.leaseDuration;
    const fastdds_api::Duration_t least(static_cast<int32_t>(s.lease_ns / 1'000'000'000), 0);
    if (lease < least) lease = least;
    if (s.security.enabled()) add_security(qos, s.security);
    if (s.flow_bytes) qos.flow_controllers().push_back(flow_controller(s));
    return qos;
}

// Vendor, then what no other participant has, then the incarnation and the number.
void fastdds_set_member(fastdds_api::rtps::GuidPrefix_t& prefix, const MemberId& member) {
    const auto now = static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
    const uint64_t process = now ^ static_cast<uint64_t>(getpid()) << 24;
    prefix.value[0] = 1;
    prefix.value[1] = 15;
    std::memcpy(prefix.value + 2, &process, 5);
    prefix.value[7] = static_cast<unsigned char>(member.incarnation);
    std::memcpy(prefix.value + 8, &member.number, sizeof member.number);
}

MemberId fastdds_member(const fastdds_api::rtps::GUID_t& guid) {
    MemberId member;
    member.incarnation = guid.guidPrefix.value[7];
    std::memcpy(&member.number, guid.guidPrefix.value + 8, sizeof member.number);
    return member;
}

void fastdds_prepare(const Settings& s) {
    // Only the options configure it.
    for (const char* name : {"FASTRTPS_DEFAULT_PROFILES_FILE", "FASTDDS_DEFAULT_PROFILES_FILE", "FASTDDS_ENVIRONMENT_FILE",
                             "FASTDDS_BUILTIN_TRANSPORTS", "FASTDDS_STATISTICS", "ROS_DISCOVERY_SERVER",
                             "ROS_SUPER_CLIENT"})
        unsetenv(name);
    setenv("SKIP_DEFAULT_XML_FILE", "1", 1);
    // Standard output holds only the results, but the library's default consumer logs to it.
    auto consumer = std::make_unique<StdoutErrConsumer>();
    consumer->stderr_threshold(Log::Kind::Info);
    Log::ClearConsumers();
    Log::RegisterConsumer(std::move(consumer));
    Log::SetVerbosity(s.verbosity >= 3 ? Log::Kind::Warning : Log::Kind::Error);
    fastdds_api::disable_intraprocess_delivery();

    // The library ignores an interface without carrier, even when the carrier comes up later.
    const std::string interface = interface_of(s.nic, s.ipv6).name;
    for (int i = 0; !interface.empty() && !is_running(interface); ++i) {
        if (i == 300) throw std::runtime_error("-nic: " + interface + " has no carrier after 3 s");
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
}

TransportFacts fastdds_facts(const Settings& s) {
    TransportFacts facts;
    const std::vector<OwnSocket> sockets = own_sockets();
    set_buffers(facts, sockets);
    const Interface interface = interface_of(s.nic.empty() ? used_address(sockets) : s.nic, s.ipv6);
    facts.interface = interface.name;
    facts.address = interface.address;
    facts.max_message = fastdds_max_message(s);
    // DDS Security shortens fragments by an amount that depends on its level.
    if (!s.security.enabled()) facts.fragment = fastdds_fragment(s);
    if (s.multicast) facts.multicast_address = multicast_group(s);
    return facts;
}

}  // namespace k8sdds
