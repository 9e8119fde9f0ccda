// The backend of Eclipse Zenoh, which is not DDS: samples are the bytes of a head and a payload, put to a key expression
// for each topic. A topic with a key has one key expression for each instance. Peers are known by their presence, which a
// process declares after its publishers and subscribers.
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "common.h"
#include "control_message.h"
#include "sockets.h"
#include "user_file.h"
#include "zenoh/zenoh_session.h"

namespace k8sdds {
namespace {

using Json = nlohmann::json;

constexpr uint16_t router_port = 7447;        // Zenoh's default
constexpr uint16_t first_port = 7500;         // of publishers: 100 for each domain, all below the ports that the kernel gives to connections
constexpr unsigned ports = 100;
constexpr uint32_t most_keys = 10'000;
constexpr int64_t longest_batch = 65'535;     // Zenoh's limit, and its default
// Peers may start in any order. Zenoh's defaults of 1 and 4 s would delay every start.
constexpr int first_retry_ms = 50, longest_retry_ms = 500;

struct TextDeleter {
    void operator()(char* text) const { k8sdds_zenoh_free(text); }
};
using Text = std::unique_ptr<char, TextDeleter>;

struct PublisherDeleter {
    void operator()(ZenohPublisher* publisher) const { k8sdds_zenoh_delete_publisher(publisher); }
};
using Publisher = std::unique_ptr<ZenohPublisher, PublisherDeleter>;

// The error of one call of the library.
class Failure {
public:
    char** out() { return &text_; }
    [[noreturn]] void raise(const std::string& what) {
        const Text text(text_);
        throw std::runtime_error(what + ": " + (text ? text.get() : "unknown error"));
    }

private:
    char* text_ = nullptr;
};

// Returns PROTOCOL/HOST:PORT. The library takes the whole field that the code point is a part of.
std::string endpoint(const Settings& s, const std::string& host_and_port) {
    const std::string protocol = s.transport == Transport::quic ? "quic" : s.transport == Transport::udp ? "udp"
                                 : s.security.enabled()         ? "tls"  : "tcp";
    return protocol + "/" + host_and_port + (s.dscp ? "#dscp=" + std::to_string(s.dscp << 2) : "");
}

std::string with_brackets(const std::string& host) {
    return host.find(':') == std::string::npos ? host : "[" + host + "]";
}

// Returns HOST:PORT of a server that may have been given without its port.
std::string host_and_port(const std::string& server) {
    const bool has_port = server.find(']') != std::string::npos ? server.find("]:") != std::string::npos
                                                                : std::count(server.begin(), server.end(), ':') == 1;
    return has_port ? server : with_brackets(server) + ":" + std::to_string(router_port);
}

bool is_stream(const Settings& s) { return s.transport == Transport::tcp || s.transport == Transport::shared_memory; }

uint16_t publisher_port(const Settings& s, unsigned id) {
    return static_cast<uint16_t>(first_port + ports * s.domain + id);
}

// The address of -nic, or any address.
std::string own_address(const Settings& s) {
    const std::string address = interface_of(s.nic, s.ipv6).address;
    return address.empty() ? (s.ipv6 ? "::" : "0.0.0.0") : address;
}

// Subscribers connect to publishers, and nodes to the nodes before them: the n-th peer is the publisher or node with this id,
// unless there are fewer peers. Without -peer, all are on this host.
std::vector<std::string> publisher_endpoints(const Settings& s) {
    const bool node = s.role == Role::node;
    const unsigned all = node ? s.subscribers + 1 : s.publishers, connected = node ? s.id : all;
    const unsigned each = s.members ? s.members_at_address : 1, programs = all / each;
    std::vector<std::string> hosts = s.peers, endpoints;
    const std::string own = interface_of(s.nic, s.ipv6).address;
    if (hosts.empty()) hosts.push_back(!own.empty() ? own : s.ipv6 ? "::1" : "127.0.0.1");
    for (size_t n = 0; n < hosts.size(); ++n)
        for (unsigned id = 0; id < connected; ++id)
            if (hosts.size() < programs || id / each == n)
                endpoints.push_back(endpoint(s, with_brackets(hosts[n]) + ":" + std::to_string(publisher_port(s, id))));
    return endpoints;
}

Json topology(const Settings& s) {
    const bool served = s.discovery == Discovery::server, client = served && !s.gossip;
    std::vector<std::string> connect;
    if (served)
        for (const std::string& server : s.discovery_servers) connect.push_back(endpoint(s, host_and_port(server)));
    else if (s.discovery == Discovery::peers && s.role != Role::publisher)
        connect = publisher_endpoints(s);
    const uint16_t port = s.publishes() && !served ? publisher_port(s, s.id) : 0;
    const std::string listen = endpoint(s, with_brackets(own_address(s)) + ":" + std::to_string(port));
    Json scouting = {{"enabled", s.discovery == Discovery::multicast}};
    if (const std::string name = interface_of(s.nic, s.ipv6).name; !name.empty()) scouting["interface"] = name;
    if (s.ipv6) scouting["address"] = "[ff15::efff:3]:7446";
    return {{"mode", client ? "client" : "peer"},
            {"connect", {{"endpoints", connect}, {"exit_on_failure", served}, {"timeout_ms", served ? 10'000 : -1},
                         {"retry", {{"period_init_ms", first_retry_ms}, {"period_max_ms", longest_retry_ms},
                                    {"period_increase_factor", 2}}}}},
            {"listen", {{"endpoints", client ? Json::array() : Json{listen}}}},
            {"scouting", {{"multicast", scouting}}}};
}

Json tls(const Security& s) {
    // Peers are reached by addresses, which are not in certificates: the common authority identifies them.
    return {{"root_ca_certificate", s.identity_ca}, {"enable_mtls", true}, {"verify_name_on_connect", false},
            {"listen_certificate", s.certificate}, {"listen_private_key", s.private_key},
            {"connect_certificate", s.certificate}, {"connect_private_key", s.private_key}};
}

// The certificates of `k8sdds security` name participants by their role and id. From the other role only, and only on
// the topics that it writes, this process accepts something; and it sends nothing to others.
Json access_control(const Settings& s) {
    const bool publishes = s.role == Role::publisher;
    const std::string all = std::to_string(s.domain) + "/k8sdds/", written = publishes ? "latency/**" : "throughput$*/**";
    std::vector<std::string> names;
    for (unsigned id = 0; id < (publishes ? s.subscribers : s.publishers); ++id)
        names.push_back((publishes ? "sub" : "pub") + std::to_string(id));
    const auto rule = [](const char* id, Json messages, Json flows, Json keys) {
        return Json{{"id", id}, {"permission", "allow"}, {"messages", messages}, {"flows", flows}, {"key_exprs", keys}};
    };
    const Json declarations = {"declare_subscriber", "liveliness_token", "liveliness_query", "declare_liveliness_subscriber"};
    return {{"enabled", true},
            {"default_permission", "deny"},
            {"rules", {rule("declarations", declarations, {"ingress", "egress"}, {all + "**"}),
                       rule("send", {"put"}, {"egress"}, {all + "**"}),
                       rule("receive", {"put"}, {"ingress"}, {all + written, all + "announcement/**"})}},
            {"subjects", {{{"id", "peers"}, {"cert_common_names", names}}}},
            {"policies", {{{"rules", {"declarations", "send", "receive"}}, {"subjects", {"peers"}}}}}};
}

// Returns the longest batch, which is the payload of a datagram or the part of a stream that is sent at once.
int64_t batch_size(const Settings& s) {
    int64_t size = s.limits.message > 0 ? s.limits.message : longest_batch;
    if (s.publishes() && s.qos.batch_bytes > 0) size = std::min(size, s.qos.batch_bytes);
    return size;
}

Role peer_of(Role role) {
    return role == Role::publisher ? Role::subscriber : role == Role::subscriber ? Role::publisher : role;
}

unsigned peers_of(const Settings& s) { return s.publishes() ? s.subscribers : s.publishers; }

bool shares_memory(const Settings& s) { return s.transport == Transport::shared_memory; }

// With shared memory, links are TCP connections that carry where a sample is. Samples are written to buffers of a pool.
// The library's optimization, which copies them itself, sends them by TCP if it has no free buffer.
Json shared_memory(const Settings& s) {
    if (!shares_memory(s)) return {{"enabled", false}};
    return {{"enabled", true}, {"mode", "init"}, {"transport_optimization", {{"enabled", false}}}};
}

// Returns the bytes of the buffers for what a participant sends. A subscriber only answers pings, one at a time.
uint64_t pool_bytes(const Settings& s, Role role) {
    if (!shares_memory(s)) return 0;
    constexpr uint64_t mebibyte = 1 << 20, overhead = 64;     // of a buffer
    const uint64_t sample = s.data_length + overhead, most = (role == Role::subscriber ? 2 : 64) * mebibyte;
    // For more than 32,768 buffers, the library creates another file while it runs, which processes that start may remove.
    return std::max(std::min(1024 * sample, most), 4 * sample);
}

constexpr uint64_t shared_overhead = 2 << 20;             // of a process: where its samples are, and who uses them

// Without this room, the library ends the process.
void require_room(const Settings& s) {
    const uint64_t needed = shared_overhead + pool_bytes(s, s.role);
    struct statvfs found{};
    const bool known = statvfs("/dev/shm", &found) == 0;
    const uint64_t free = known ? uint64_t{found.f_bavail} * found.f_frsize : 0;
    if (free < needed)
        throw std::runtime_error("/dev/shm has " + std::to_string(free) + " bytes free, and this process needs " +
                                 std::to_string(needed) + "; enlarge it, such as with docker run --shm-size");
}

// The library locks what processes share, its own and that of its peers. If it must not, it sends samples by TCP, or ends.
void require_locks(const Settings& s) {
    uint64_t bytes = shared_overhead + pool_bytes(s, s.role);
    bytes += peers_of(s) * (shared_overhead + pool_bytes(s, peer_of(s.role)));
    constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* area = bytes <= SIZE_MAX ? mmap(nullptr, bytes, PROT_NONE, flags, -1, 0) : MAP_FAILED;
    const bool locked = area != MAP_FAILED && mlock2(area, bytes, MLOCK_ONFAULT) == 0;
    const int error = errno;
    if (area != MAP_FAILED) munmap(area, bytes);
    if (!locked)
        throw std::runtime_error("cannot lock " + std::to_string(bytes) + " bytes of shared memory: " + std::strerror(error) +
                                 "; raise the limit RLIMIT_MEMLOCK, or add the capability IPC_LOCK");
}

Json own_configuration(const Settings& s) {
    Json configuration = topology(s);
    if (s.security.enabled()) {
        configuration["transport"]["link"]["tls"] = tls(s.security);
        configuration["access_control"] = access_control(s);
    }
    if (batch_size(s) < longest_batch) configuration["transport"]["link"]["tx"]["batch_size"] = batch_size(s);
    configuration["transport"]["shared_memory"] = shared_memory(s);
    return configuration;
}

class Zenoh final : public Backend {
public:
    std::string version() const override { return ZENOH_VERSION; }
    bool has_transport(Transport) const override { return true; }
    bool has_members() const override { return true; }
    std::string unsupported(const Settings&) const override;
    void open(const Settings&, Events&) override;
    void close() override;
    std::optional<uint64_t> retransmitted_bytes() override;
    Matches matches() override {
        const unsigned present = present_.load();         // with all their endpoints; a node also sees itself
        const unsigned expected = settings_.role == Role::node ? settings_.subscribers + 1 : peers_of(settings_);
        return {present, settings_.role == Role::subscriber ? present * settings_.writers : present,
                expected - std::min(present, expected)};
    }
    TransportFacts facts() override;
    EffectiveQos effective_qos() override;
    Written write(const Sample&) override;
    void flush() override {}                  // the library sends a batch that is not full after 1 ms at most
    std::string last_error() const override {
        return std::string("Zenoh did not accept the sample") + (shares_memory(settings_) ? ", or /dev/shm has no room" : "");
    }
    bool wait(int64_t timeout_ns) override { return k8sdds_zenoh_wait(session_, timeout_ns); }
    unsigned take() override;
    bool announce(const Announcement&) override;

private:
    std::string key(const std::string& topic) const { return std::to_string(settings_.domain) + "/" + topic; }
    std::string presence_key(Role) const;
    Publisher publisher(const std::string& key, bool reliable);
    void subscribe(const std::string& key, ZenohBytes callback);
    void create_announcement_channel();
    void create_publishers();
    void create_subscribers();
    void become_present();
    void on_bytes(const uint8_t* data, size_t length, bool in_memory);

    Settings settings_;
    Events* events_ = nullptr;
    ZenohSession* session_ = nullptr;
    std::vector<Publisher> publishers_;                   // by writer, then by instance
    uint32_t instances_ = 1;                              // of a writer
    Publisher announcements_;
    std::mutex announcing_;                               // several threads announce something
    std::atomic<unsigned> present_{0};                    // peers
    std::mutex receiving_;                                // each link to a peer has a thread that receives
};

std::string Zenoh::unsupported(const Settings& s) const {
    const QosProfile& qos = s.qos;
    const bool reliable = qos.writer.reliable;
    if (!qos.file.empty()) return "-qosFile: zenoh has no DDS QoS; give its own configuration with -middlewareConfig";
    if (s.transport == Transport::udp && reliable)
        return std::string("-transport: Zenoh does not repeat lost UDP datagrams; give TCPv4, or ") +
               (s.role == Role::node ? "a graph of best-effort flows" : "-bestEffort");
    if (s.transport == Transport::udp && s.security.enabled())
        return "-transport: Zenoh does not encrypt UDP datagrams; give TCPv4 or QUICv4, or remove the -secure options";
    if (s.transport == Transport::quic && !s.security.enabled())
        return "-transport: QUIC is always encrypted; add the -secure options, or give TCPv4";
    if (shares_memory(s) && s.security.enabled())
        return "-transport: Zenoh does not encrypt shared memory; give TCPv4, or remove the -secure options";
    if (shares_memory(s) && s.serialized)
        return "-serialized: each sample is written into shared memory; remove it, or give TCPv4";
    if (shares_memory(s) && s.scans)
        return "-scan: a process of Zenoh has shared memory for one session; give one length with -dataLen, or TCPv4";
    if (shares_memory(s) && s.discovery == Discovery::server)
        return "-discovery: samples in shared memory do not pass a router; give peers or multicast";
    if (s.multicast) return "-multicast: zenoh sends samples to each peer; remove it, peers are found with -discovery multicast";
    if (s.asynchronous) return "-asynchronous: zenoh always sends from tasks of its own; remove it";
    if (s.send_queue) return "-sendQueueSize: zenoh keeps no unacknowledged samples; remove it";
    if (s.limits.fragment != MessageLimits::library || s.limits.fragment_message)
        return "-fragmentSize: fragments of zenoh fill a message; give -messageSizeMax";
    const unsigned last_id = s.members ? (s.id + 1) * s.members_at_address - 1 : s.id;
    if (s.publishes() && last_id >= ports && s.discovery != Discovery::server)
        return (s.role == Role::node ? "-graph" : "-pidMultiPubTest") + std::string(": zenoh has a port for ") +
               std::to_string(ports) + (s.role == Role::node ? " nodes; use fewer" : " publishers; use smaller ids");
    if (s.role == Role::node && qos.batch_bytes > 0)
        return "-graph: zenoh batches the samples of all flows of a connection; remove batch, or use cyclonedds";
    if (s.keyed && s.instances * s.writers * s.topics > most_keys)
        return "-instances: each is a key expression for each writer; give at most " + std::to_string(most_keys) + " in all";
    if (const std::string problem = unsupported_nic(s); !problem.empty()) return problem;
    if (s.middleware_config.empty()) return "";
    std::string content;
    const std::string file = "-middlewareConfig: " + s.middleware_config + ": ";
    if (const std::string unreadable = read_text(s.middleware_config, content); !unreadable.empty()) return file + unreadable;
    if (content.find('\0') != std::string::npos) return file + "contains a zero byte; give a JSON5 file";
    const Text refused(k8sdds_zenoh_refused(content.c_str(), reliable));
    return refused ? file + refused.get() : "";
}

std::string Zenoh::presence_key(Role role) const {
    // Peers with other topics do not find each other.
    const char* const names[] = {"k8sdds/publishers", "k8sdds/subscribers", "k8sdds/nodes"};
    return key(topic_name(settings_, names[static_cast<size_t>(role)])) + "/" +
           std::to_string(settings_.topics) + (settings_.keyed ? "-keyed" : "");
}

void Zenoh::open(const Settings& settings, Events& events) {
    settings_ = settings;
    events_ = &events;
    std::string content;
    if (!settings.middleware_config.empty()) read_text(settings.middleware_config, content);
    if (shares_memory(settings)) {
        require_room(settings);
        require_locks(settings);
    }
    Failure failure;
    session_ = k8sdds_zenoh_open(content.c_str(), own_configuration(settings).dump().c_str(),
                                 pool_bytes(settings, settings.role), failure.out());
    if (!session_) failure.raise("session");
    if (!settings.members) create_announcement_channel();
    create_publishers();
    create_subscribers();
    become_present();
}

void Zenoh::close() {
    if (session_) k8sdds_zenoh_close(session_);           // until then, callbacks answer with the publishers
    publishers_.clear();
    announcements_.reset();
    session_ = nullptr;
}

// A reliable publisher waits for room, as a DDS writer that keeps all samples does; another one drops the sample.
Publisher Zenoh::publisher(const std::string& key, bool reliable) {
    constexpr int data_priority = 5;          // Zenoh's default
    Failure failure;
    ZenohPublisher* created =
        k8sdds_zenoh_publisher(session_, key.c_str(), {reliable, reliable ? congestion_block : congestion_drop, data_priority}, failure.out());
    if (!created) failure.raise("publisher " + key);
    return Publisher(created);
}

void Zenoh::subscribe(const std::string& key, ZenohBytes callback) {
    Failure failure;
    if (!k8sdds_zenoh_subscribe(session_, key.c_str(), callback, this, failure.out())) failure.raise("subscriber " + key);
}

void Zenoh::create_announcement_channel() {
    const std::string expression = key(topic_name(settings_, announcement_topic));
    announcements_ = publisher(expression, true);
    subscribe(expression, [](void* self, const uint8_t* data, size_t length, bool) {
        Zenoh& zenoh = *static_cast<Zenoh*>(self);
        if (const auto a = read_control_message(data, length, zenoh.settings_.step)) zenoh.events_->on_announcement(*a);
    });
}

void Zenoh::create_publishers() {
    const bool keyed = settings_.role == Role::publisher && settings_.keyed;
    instances_ = keyed ? settings_.instances : 1;
    for (const DataEndpoint& written : data_writers(settings_))
        for (uint32_t instance = 0; instance < instances_; ++instance) {
            const std::string part = keyed ? "/" + std::to_string(instance) : "";
            publishers_.push_back(publisher(key(written.topic) + part, written.qos.reliable));
        }
}

void Zenoh::create_subscribers() {
    const bool keyed = settings_.role == Role::subscriber && settings_.keyed;
    const size_t capacity = std::clamp<size_t>((64 << 20) / settings_.data_length, 16, 10'000);
    for (const DataEndpoint& read : data_readers(settings_)) {
        const std::string expression = key(read.topic) + (keyed ? "/*" : "");
        if (settings_.receive == Receive::listener) {
            subscribe(expression, [](void* self, const uint8_t* data, size_t length, bool in_memory) {
                Zenoh& zenoh = *static_cast<Zenoh*>(self);
                const std::lock_guard<std::mutex> lock(zenoh.receiving_);
                zenoh.on_bytes(data, length, in_memory);
                zenoh.events_->on_received();
            });
            continue;
        }
        Failure failure;
        if (!k8sdds_zenoh_subscribe_queue(session_, expression.c_str(), capacity, failure.out()))
            failure.raise("subscriber " + expression);
    }
}

void Zenoh::become_present() {
    const auto changed = [](void* self, bool present, uint32_t number, uint32_t incarnation) {
        Zenoh& zenoh = *static_cast<Zenoh*>(self);
        if (present) ++zenoh.present_;
        else --zenoh.present_;
        zenoh.events_->on_match();
        // A session announces itself when it has declared all its endpoints.
        for (unsigned n = 0; zenoh.settings_.members && n < zenoh.settings_.topics; ++n)
            zenoh.events_->on_member({number, incarnation}, n, present);
    };
    Failure failure;
    if (!k8sdds_zenoh_watch(session_, presence_key(peer_of(settings_.role)).c_str(), changed, this, failure.out()) ||
        !k8sdds_zenoh_appear(session_, presence_key(settings_.role).c_str(), settings_.id, settings_.incarnation, failure.out()))
        failure.raise("presence");
}

std::optional<uint64_t> Zenoh::retransmitted_bytes() {
    if (!is_stream(settings_)) return std::nullopt;       // the library does not count those of QUIC
    return own_tcp_retransmitted_bytes();
}

TransportFacts Zenoh::facts() {
    TransportFacts facts;
    std::vector<OwnSocket> sockets;
    for (const OwnSocket& socket : own_sockets())         // without those that search for peers
        if ((socket.type == SOCK_STREAM) == is_stream(settings_)) sockets.push_back(socket);
    set_buffers(facts, sockets);
    const std::string address = interface_of(settings_.nic, settings_.ipv6).address;
    const Interface interface = interface_of(address.empty() ? used_address(sockets) : address, settings_.ipv6);
    facts.interface = interface.name;
    facts.address = interface.address;
    facts.max_message = batch_size(settings_);
    return facts;
}

EffectiveQos Zenoh::effective_qos() {
    // A node that only subscribes to flows has no publisher of samples.
    const ZenohQos qos = k8sdds_zenoh_qos((publishers_.empty() ? announcements_ : publishers_.front()).get());
    return {{"reliability", qos.reliable ? "reliable" : "best_effort"},
            {"congestion_control", qos.congestion_control == congestion_block ? "block" : "drop"},
            {"priority", int64_t{qos.priority}},
            {"batch_bytes", settings_.qos.batch_bytes > 0 ? batch_size(settings_) : 0}};
}

Written Zenoh::write(const Sample& sample) {
    uint32_t head[head_words + 1];
    pack(sample, reinterpret_cast<uint32_t(&)[head_words]>(head));
    head[head_words] = sample.payload_length;
    const size_t writer = sample.writer * instances_ + (instances_ > 1 ? sample.instance : 0);
    ZenohPublisher* publisher = publishers_[writer < publishers_.size() ? writer : 0].get();   // of a pong: the first
    const ZenohPlace place = shares_memory(settings_) ? place_shared_memory
                             : settings_.serialized   ? place_one_payload : place_new;
    const ZenohPut put = k8sdds_zenoh_put(publisher, reinterpret_cast<const uint8_t*>(head), sizeof head, sample.payload,
                                          sample.payload_length, place, settings_.write_slice_ns);
    return put == put_ok ? Written::ok : put == put_blocked ? Written::blocked : Written::failed;
}

void Zenoh::on_bytes(const uint8_t* data, size_t length, bool in_memory) {
    uint32_t head[head_words + 1];
    static_assert(sizeof head == sample_overhead, "the bytes of a sample are as many as those of the DDS middlewares");
    if (length < sizeof head) return;
    std::memcpy(head, data, sizeof head);
    if (head[head_words] != length - sizeof head) return;
    Sample sample;
    unpack(reinterpret_cast<const uint32_t(&)[head_words]>(head), sample);
    sample.payload = data + sizeof head;
    sample.payload_length = head[head_words];
    sample.unshared = shares_memory(settings_) && !in_memory;
    events_->on_sample(sample);
}

unsigned Zenoh::take() {
    constexpr unsigned most = 64;                         // samples that share one reading of the clock
    unsigned taken = 0, last = most;
    while (last == most) {
        last = k8sdds_zenoh_take(session_, most, [](void* self, const uint8_t* data, size_t length, bool in_memory) {
            static_cast<Zenoh*>(self)->on_bytes(data, length, in_memory);
        }, this);
        if (last) events_->on_received();
        taken += last;
    }
    if (!taken && settings_.receive == Receive::spin) sched_yield();  // to the library's thread, on a core that both share
    return taken;
}

bool Zenoh::announce(const Announcement& announcement) {
    const ControlMessage message = control_message(announcement, settings_.step);
    const std::lock_guard<std::mutex> lock(announcing_);
    return k8sdds_zenoh_put(announcements_.get(), reinterpret_cast<const uint8_t*>(&message), sizeof message, nullptr, 0,
                            place_new, 0) == put_ok;
}

}  // namespace
}  // namespace k8sdds

unsigned k8sdds_backend_interface() { return k8sdds::backend_interface; }
k8sdds::Backend* k8sdds_backend_create() { return new k8sdds::Zenoh(); }
