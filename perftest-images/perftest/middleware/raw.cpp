// The raw backend: plain UDP datagrams without DDS, to measure what the network can carry. A datagram is a header of
// 28 bytes and the payload; a RawMode selects the system calls. Announcements are sent to one control port per role and
// id; a peer's HELLO contains the ports for its announcements and samples.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "announcement.h"
#include "backend.h"
#include "common.h"
#include "control_message.h"
#include "raw_receiver.h"
#include "raw_sender.h"

namespace k8sdds {
namespace {

constexpr int hello_ms = 20;
constexpr const char *default_group = "239.255.0.2", *default_group_ipv6 = "ff15::efff:2";
constexpr unsigned max_id = 119;
constexpr size_t max_addresses = 2 * (max_id + 1);   // a restarted peer may have another address
constexpr int busy_poll_us = 50;
constexpr int64_t flush_ms = 2000;            // how long flush() tries to send what a batch still holds

size_t longest_datagram(const Settings& s) {
    return s.limits.message > 0 ? static_cast<size_t>(s.limits.message) : max_datagram;
}

class Raw final : public Backend {
public:
    std::string version() const override { return K8SDDS_VERSION; }
    bool has_raw_modes() const override { return true; }
    std::string unsupported(const Settings&) const override;
    void open(const Settings&, Events&) override;
    void close() override;
    Matches matches() override {
        const unsigned known = known_peers_.load();
        return {known, known, expected_peers_ - std::min(known, expected_peers_)};
    }
    TransportFacts facts() override;
    EffectiveQos effective_qos() override;
    Written write(const Sample&) override;
    void flush() override;
    std::string last_error() const override { return error_.empty() ? sender_.last_error() : error_; }
    bool wait(int64_t timeout_ns) override;
    unsigned take() override { return receiver_.receive(data_in_.fd(), MSG_DONTWAIT); }
    bool announce(const Announcement&) override;

private:
    struct Peer {
        bool known = false;
        SocketAddress data;                               // where it receives samples
        uint16_t source_port = 0;                         // from which it sends samples; 0: from several
    };

    uint16_t control_port(Role role, unsigned id) const {
        return static_cast<uint16_t>(base_ + 10 + 2 * id + (role == Role::subscriber));
    }
    uint16_t data_group_port() const { return static_cast<uint16_t>(base_ + 1); }
    void send_hello(bool request_answer, const std::vector<SocketAddress>& targets);
    void send_control(const Announcement&, const SocketAddress&);
    void run_control();
    void take_control(const Socket&);
    void on_hello(const Announcement&, SocketAddress from);
    void add_peer(const Announcement&, const SocketAddress& from);
    void reach_peers();

    Settings settings_;
    Events* events_ = nullptr;
    uint16_t base_ = 0;
    unsigned expected_peers_ = 0;
    std::string group_, local_;
    Socket control_, control_group_, data_in_;
    RawSender sender_;
    RawReceiver receiver_;
    std::vector<SocketAddress> discovery_targets_;        // control addresses at which peers may listen
    std::thread control_thread_, data_thread_;
    std::atomic<bool> closing_{false};
    std::atomic<unsigned> known_peers_{0};
    std::string error_;                                   // why samples cannot be sent; set before all peers are known
    bool polls_device_ = false;

    std::mutex mutex_;                                    // guards peers_, control_addresses_ and the sender's setup
    std::vector<Peer> peers_;                             // by id
    std::vector<SocketAddress> control_addresses_;         // of all processes that sent HELLO
};

std::string Raw::unsupported(const Settings& s) const {
    if (s.role == Role::node) return "-graph: raw has no topics, which keep flows apart; use cyclonedds, fastdds or zenoh";
    if (s.security.enabled())
        return "-secureGovernanceFile: raw does not support DDS Security; remove the -secure options";
    if (s.serialized) return "-serialized: raw does not serialize samples; remove it, or use cyclonedds";
    if (s.discovery == Discovery::server)
        return "-discovery: raw does not support a discovery server; remove it, and add -peer or -multicast";
    if (s.asynchronous) return "-asynchronous: raw sends in the thread that writes; remove it";
    if (!s.middleware_config.empty()) return "-middlewareConfig: raw has no configuration file; remove it";
    const QosProfile& qos = s.qos;
    if (qos.writer.reliable || qos.reader.reliable)
        return "-middleware raw: plain UDP is not reliable; add -bestEffort";
    if (s.peers.empty() && !s.multicast)
        return "-middleware raw: it does not discover unicast peers; add -peer ADDR for each, or -multicast";
    if (s.topics * s.writers > 1) return "-topics and -writers: plain UDP has no topics; remove them, or use a DDS middleware";
    if (s.keyed) return "-keyed: plain UDP has no keys; remove it, or use a DDS middleware";
    if (qos.batch_bytes > 0) return "-batchSize: raw sends each sample as one datagram; remove batching";
    if (s.limits.fragment != MessageLimits::library || s.limits.fragment_message)
        return "-fragmentSize: raw does not fragment samples; remove it";
    if (s.data_length > longest_datagram(s))
        return "-dataLen: a raw sample is one UDP datagram; give at most " + std::to_string(longest_datagram(s));
    if (s.id > max_id || s.subscribers > max_id + 1 || s.publishers > max_id + 1)
        return "-middleware raw: ids go up to " + std::to_string(max_id) + "; use fewer participants";
    if (s.raw_mode == RawMode::gso && !has_udp_gso())
        return "-rawMode gso: this kernel does not have UDP GSO and GRO (Linux 5.0 or later); use mmsg";
    if (const std::string problem = unsupported_nic(s); !problem.empty()) return problem;
    for (const EndpointQos* e : {&qos.writer, &qos.reader})
        for (const char* policy : {"durability", "resource_limits", "deadline", "latency_budget", "lifespan",
                                   "destination_order", "transport_priority"})
            if (e->lines.count(policy))
                return qos_location(qos, *e, policy) + "not supported by raw; remove it or use a DDS middleware";
    return "";
}

void Raw::open(const Settings& settings, Events& events) {
    settings_ = settings;
    events_ = &events;
    base_ = static_cast<uint16_t>(7400 + 250 * settings.domain);
    const bool publishes = settings.role == Role::publisher;
    const Role peer_role = publishes ? Role::subscriber : Role::publisher;
    expected_peers_ = publishes ? settings.subscribers : settings.publishers;
    peers_.resize(expected_peers_);
    const bool ipv6 = settings.ipv6;
    local_ = interface_of(settings.nic, ipv6).address;
    group_ = settings.multicast_address;
    if (group_.empty()) group_ = ipv6 ? default_group_ipv6 : default_group;

    for (const std::string& peer : settings.peers)
        for (unsigned id = 0; id < expected_peers_; ++id)
            discovery_targets_.push_back(resolve(peer, control_port(peer_role, id), ipv6));
    control_ = unicast_socket({local_, control_port(settings.role, settings.id), ipv6});
    if (settings.multicast) {
        discovery_targets_.emplace_back(group_, base_, ipv6);
        control_group_ = multicast_socket({group_, base_, ipv6}, local_);
        send_multicast_from(control_, local_);
    }
    const bool joins_group = settings.multicast && !publishes;
    data_in_ = joins_group ? multicast_socket({group_, data_group_port(), ipv6}, local_) : unicast_socket({local_, 0, ipv6});
    if (settings.raw_mode == RawMode::gso) data_in_.coalesce_datagrams();
    if (settings.receive == Receive::spin && settings.raw_mode >= RawMode::connected)
        polls_device_ = data_in_.poll_device(busy_poll_us);
    sender_.open(settings, local_);
    receiver_.open(settings, events);

    control_thread_ = std::thread(&Raw::run_control, this);
    if (settings.receive == Receive::listener)
        data_thread_ = std::thread([this] {
            while (!closing_.load(std::memory_order_relaxed)) receiver_.receive(data_in_.fd(), MSG_WAITFORONE);
        });
}

void Raw::close() {
    closing_.store(true);
    if (data_thread_.joinable()) {
        shutdown(data_in_.fd(), SHUT_RD);                 // wakes the receiving thread
        data_thread_.join();
    }
    if (control_thread_.joinable()) control_thread_.join();
}

TransportFacts Raw::facts() {
    TransportFacts facts;
    const std::string address = !local_.empty() ? local_ : address_towards(discovery_targets_.front());
    const Interface interface = interface_of(address, settings_.ipv6);
    facts.interface = interface.name;
    facts.address = interface.address;
    facts.receive_buffer = data_in_.receive_buffer();
    facts.send_buffer = sender_.send_buffer();
    facts.max_message = static_cast<int64_t>(longest_datagram(settings_));
    if (settings_.multicast) facts.multicast_address = group_;
    return facts;
}

void Raw::send_control(const Announcement& announcement, const SocketAddress& to) {
    const ControlMessage message = control_message(announcement, settings_.step);
    sendto(control_.fd(), &message, sizeof message, 0, to.get(), to.length());
}

void Raw::send_hello(bool request_answer, const std::vector<SocketAddress>& targets) {
    Announcement hello;
    hello.kind = Kind::hello;
    hello.role = settings_.role;
    hello.id = static_cast<uint16_t>(settings_.id);
    hello.nonce = settings_.nonce;
    hello.value[0] = data_in_.port();
    hello.value[1] = control_.port();
    hello.value[2] = request_answer;
    hello.value[3] = sender_.single_port();
    for (const SocketAddress& target : targets) send_control(hello, target);
}

bool Raw::announce(const Announcement& announcement) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const SocketAddress& target : control_addresses_) send_control(announcement, target);
    return !control_addresses_.empty();
}

void Raw::run_control() {
    pollfd fds[2] = {{control_.fd(), POLLIN, 0}, {control_group_.fd(), POLLIN, 0}};
    const nfds_t used = control_group_.fd() >= 0 ? 2 : 1;
    int64_t next = 0;
    while (!closing_.load()) {
        timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        const int64_t now = t.tv_sec * 1000LL + t.tv_nsec / 1'000'000;
        if (now >= next && known_peers_.load() < expected_peers_) {
            next = now + hello_ms;
            send_hello(true, discovery_targets_);
        }
        if (poll(fds, used, hello_ms) <= 0) continue;
        if (fds[0].revents) take_control(control_);
        if (used == 2 && fds[1].revents) take_control(control_group_);
    }
}

void Raw::take_control(const Socket& socket) {
    for (;;) {
        char datagram[sizeof(ControlMessage) + 1];
        SocketAddress from;
        socklen_t length = SocketAddress::max_length;
        const ssize_t n = recvfrom(socket.fd(), datagram, sizeof datagram, MSG_DONTWAIT, from.get(), &length);
        if (n < 0 && errno != ECONNREFUSED) return;
        const auto a = n < 0 ? std::nullopt : read_control_message(datagram, static_cast<size_t>(n), settings_.step);
        if (!a || a->role == settings_.role) continue;
        if (a->kind == Kind::hello && !is_foreign(*a, settings_)) on_hello(*a, from);
        else events_->on_announcement(*a);
    }
}

void Raw::on_hello(const Announcement& a, SocketAddress from) {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        from.set_port(static_cast<uint16_t>(a.value[1]));
        const bool known = std::find(control_addresses_.begin(), control_addresses_.end(), from) != control_addresses_.end();
        if (!known && control_addresses_.size() >= max_addresses) return;
        if (!known) control_addresses_.push_back(from);
        if (a.id < peers_.size() && known_peers_.load() < expected_peers_) add_peer(a, from);
    }
    if (a.value[2]) send_hello(false, {from});
    events_->on_match();
}

void Raw::add_peer(const Announcement& a, const SocketAddress& from) {
    Peer& peer = peers_[a.id];
    peer.known = true;
    peer.data = from;
    peer.data.set_port(static_cast<uint16_t>(a.value[0]));
    peer.source_port = static_cast<uint16_t>(a.value[3]);
    const auto known = static_cast<unsigned>(
        std::count_if(peers_.begin(), peers_.end(), [](const Peer& p) { return p.known; }));
    if (known == expected_peers_) reach_peers();
    known_peers_.store(known, std::memory_order_release);   // from now on, write() sends
}

void Raw::reach_peers() try {
    const bool to_group = settings_.role == Role::publisher && settings_.multicast;
    std::vector<SocketAddress> destinations;
    if (to_group) destinations.emplace_back(group_, data_group_port(), settings_.ipv6);
    else for (const Peer& peer : peers_) destinations.push_back(peer.data);
    sender_.set_destinations(destinations);
    // The kernel finds the socket of a datagram faster if it is connected to the only sender.
    const Peer& peer = peers_.front();
    if (settings_.raw_mode < RawMode::connected || expected_peers_ > 1 || settings_.multicast || !peer.source_port) return;
    SocketAddress source = peer.data;
    source.set_port(peer.source_port);
    data_in_.connect_to(source);
} catch (const std::runtime_error& error) {
    error_ = error.what();
}

EffectiveQos Raw::effective_qos() {
    std::lock_guard<std::mutex> lock(mutex_);
    return {{"reliability", "best_effort"},
            {"batch_bytes", int64_t{0}},
            {"samples_per_send", static_cast<int64_t>(sender_.samples_per_send())},
            {"datagrams_per_sample", static_cast<int64_t>(sender_.datagrams_per_sample())},
            {"busy_poll_us", int64_t{polls_device_ ? busy_poll_us : 0}}};
}

Written Raw::write(const Sample& sample) {
    if (known_peers_.load(std::memory_order_acquire) < expected_peers_) return Written::ok;
    if (__builtin_expect(!error_.empty(), 0)) return Written::failed;
    return sender_.write(sample, settings_.role == Role::publisher ? RawSender::everyone : sample.publisher);
}

void Raw::flush() {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(flush_ms);
    while (sender_.flush() == Written::blocked && std::chrono::steady_clock::now() < until) {}
}

bool Raw::wait(int64_t timeout_ns) {
    pollfd fd{data_in_.fd(), POLLIN, 0};
    return poll(&fd, 1, static_cast<int>(std::max<int64_t>(timeout_ns / 1'000'000, 1))) > 0;
}

}  // namespace
}  // namespace k8sdds

unsigned k8sdds_backend_interface() { return k8sdds::backend_interface; }
k8sdds::Backend* k8sdds_backend_create() { return new k8sdds::Raw(); }
