// The interface between the program and a middleware backend: all that a backend module and the program know of each
// other. A publisher has some writers on each throughput topic, and a subscriber has one reader of each. In the other
// direction there is one latency topic, with one writer in each subscriber and one reader in each publisher. A node of a
// graph has a writer for each flow that it publishes, and a reader for each that it subscribes to. All have one announcement
// channel, except the members of a fleet, which have data endpoints only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace k8sdds {

constexpr unsigned backend_interface = 23;    // increase with every change of this header
constexpr uint32_t sample_overhead = 28;      // bytes of a sample that are not payload
constexpr int64_t infinite = -1;              // an unlimited duration or number
constexpr unsigned announcement_values = 8;
constexpr uint16_t announcement_version = 1;  // increase when a value of an announcement has another meaning
constexpr uint16_t to_all = 0xffff;           // addresses an announcement to all peers

constexpr const char* throughput_topic = "k8sdds/throughput";
constexpr const char* latency_topic = "k8sdds/latency";
constexpr const char* flow_topic_prefix = "k8sdds/flow_";  // and the name of the flow
constexpr const char* announcement_topic = "k8sdds/announcement";

enum class Role : uint8_t { publisher = 0, subscriber = 1, node = 2 };     // node: of a graph, publishes and subscribes
enum class Receive { listener, waitset, spin };
// Of ROS 2: perftest's own, sensor_msgs/msg/{Image,PointCloud2,Imu}, and std_msgs/msg/ByteMultiArray.
enum class MessageType { sample, image, point_cloud, imu, bytes };
enum class Transport { udp, tcp, quic, shared_memory };     // shared memory: to processes of this host
// How the raw backend calls the kernel. Each mode from `connected` on includes the previous one.
enum class RawMode {
    datagram,                                 // sends one datagram per call, receives several
    single,                                   // one datagram per call in both directions
    connected,                                // as datagram, with connected sockets
    mmsg,                                     // sends several datagrams per call
    gso,                                      // passes several datagrams through the network stack as one packet
};
enum class Phase : uint8_t { warm_up = 0, measured = 1 };

struct Sample {
    uint32_t run = 0;                         // random number of the publisher's run
    uint32_t sequence = 0;                    // counts the samples of a writer from 0 in each phase
    int64_t sent_ns = 0;                      // the publisher's monotonic clock: when a ping was sent; in a paced test
                                              // when the sample was due
    int32_t ping = -1;                        // id of the subscriber that must answer, or -1
    uint16_t publisher = 0;                   // id of the publisher
    uint32_t instance = 0;                    // the key of a keyed topic
    uint16_t writer = 0;                      // of the publisher: writer n writes topic n mod topics
    Phase phase = Phase::warm_up;
    const uint8_t* payload = nullptr;         // not owned; valid during the call that passes the sample. A publisher
                                              // always writes the same payload, or its first bytes if lengths vary;
                                              // it is valid until close(). A node writes the origin at the beginning
                                              // of each payload, so a backend must not keep its payload
    uint32_t payload_length = 0;
    bool unshared = false;                    // came by a connection, although the samples of the run share memory
};

enum class Kind : uint8_t { hello, ready, start, alive, end, report, done, bye, abort };

struct Announcement {
    Kind kind = Kind::hello;
    Role role = Role::publisher;              // of the sender
    uint16_t id = 0;                          // of the sender
    uint16_t to = to_all;
    uint16_t version = announcement_version;
    uint32_t instance = 0;                    // random number of the sender's process
    uint32_t run = 0;                         // random number of the publisher's run, 0 before it
    uint64_t nonce = 0;                       // see Settings
    int64_t value[announcement_values] = {};
};

// The quality of service of one data endpoint. Durations are in nanoseconds.
struct EndpointQos {
    bool reliable = true;
    int64_t max_blocking_ns = infinite;
    enum class Durability { volatile_, transient_local, transient, persistent } durability = Durability::volatile_;
    bool keep_all = true;
    int64_t depth = 1;
    int64_t max_samples = infinite, max_instances = infinite, max_samples_per_instance = infinite;
    int64_t deadline_ns = infinite, latency_budget_ns = 0, lifespan_ns = infinite;
    bool by_source_timestamp = false;
    int64_t transport_priority = 0;
    std::map<std::string, int> lines;         // policy ("history") to its line in the file, for error messages
};

struct QosProfile {
    std::string name;
    std::string file;                         // empty for a built-in profile
    EndpointQos writer, reader;
    int64_t batch_bytes = 0;                  // 0: no batching
    int batch_line = 0;
};

// A data writer or reader.
struct DataEndpoint {
    std::string topic;
    EndpointQos qos;
    uint64_t length = 0;                      // bytes of the longest sample, with its overhead
    unsigned peers = 0;                       // endpoints that it has to match
    int64_t batch_bytes = 0;                  // writer; 0: no batching
};

// Paths of the DDS Security files; all empty without DDS Security.
struct Security {
    std::string governance, permissions, identity_ca, permissions_ca, certificate, private_key;
    unsigned key_bits = 256;                  // of AES-GCM and AES-GMAC
    bool enabled() const { return !governance.empty(); }
};

// How long messages (the payloads of UDP datagrams, with all RTPS headers) and fragments of samples may be.
struct MessageLimits {
    static constexpr int64_t usual = 0, library = -1;     // instead of bytes: as k8sdds runs it, the library's default
    int64_t message = usual;
    int64_t fragment = library;               // bytes of a sample in a fragment
    int64_t fragment_message = 0;             // instead of `fragment`: the message that a fragment fills; 0: not given
    bool given() const { return message != usual || fragment != library || fragment_message; }
};

enum class Discovery { multicast, peers, server };

// Bytes of a packet in front of a datagram's payload.
constexpr size_t ip_and_udp_headers(bool ipv6) { return ipv6 ? 48 : 28; }

// The resolved options, as a backend needs them.
struct Settings {
    Role role = Role::publisher;
    unsigned id = 0;                          // -pidMultiPubTest or -sidMultiSubTest; of a node: its index; of a member: its number
    uint64_t nonce = 0;                       // of K8SDDS_NONCE; announcements with another one are foreign
    unsigned domain = 1;
    uint64_t data_length = 100;               // bytes of a sample, with its overhead; of a node: of the longest
    unsigned subscribers = 1, publishers = 1; // how many this process waits for; of a node: all other nodes
    bool publishes() const { return role != Role::subscriber; }
    unsigned sharing_address = 1;             // how many processes of the run may share an address
    unsigned members = 0;                     // of a fleet in this process, of which this participant is one; 0: no fleet
    unsigned incarnation = 0;                 // see MemberId; its number is `id`
    unsigned members_at_address = 0;          // of a fleet at each address
    unsigned index_limit = 0;                 // of a fleet: last participant index searched at an address; 0: as needed
    bool gossip = false;                      // of a fleet: peers that a router introduces, instead of its clients
    bool super_client = false;                // of a fleet: get all that a discovery server knows
    int64_t lease_ns = 0;                     // least time without messages after which discovery forgets a participant
    std::string nic;
    bool ipv6 = false;                        // IPv4 otherwise
    std::vector<std::string> peers;
    bool multicast = false;
    std::string multicast_address;
    Discovery discovery = Discovery::peers;
    std::vector<std::string> discovery_servers;   // ADDRESS or ADDRESS:PORT; the n-th has id n-1
    int64_t send_queue = 0;                   // samples; 0: the middleware's default
    MessageLimits limits;
    Receive receive = Receive::listener;
    RawMode raw_mode = RawMode::datagram;
    bool latency_test = false;
    bool continuous = false;                  // a throughput test without a rate: samples follow each other at once
    bool serialized = false;                  // leave serialization and deserialization out of the test
    bool ros2_names = false;                  // of topics and types, as rmw_fastrtps_cpp forms them
    MessageType message_type = MessageType::sample;       // of samples
    Transport transport = Transport::udp;     // of samples
    int dscp = 0;                             // of sockets that the middleware opens later; the program marks the others
    bool asynchronous = false;                // samples are sent by a thread of the middleware
    int64_t flow_bytes = 0, flow_period_ms = 0;   // limit of an asynchronous writer; 0: none
    bool scans = false;                       // opens the backend again for each step
    unsigned step = 0;                        // of a scan: each step has topics of its own
    unsigned topics = 1, writers = 1;         // throughput topics; writers of a publisher on each of them
    std::vector<DataEndpoint> flow_writers, flow_readers;     // of a node or a member, instead of those of the topics
    bool keyed = false;                       // whether the data topics have a key
    uint32_t instances = 1;                   // written by a publisher
    QosProfile qos;
    std::string middleware_config;            // the user's own configuration file; empty: none
    Security security;
    int64_t write_slice_ns = 100'000'000;     // write() returns after at most this time when the writer is full
    int verbosity = 1;
};

// A member of a fleet, as the others recognize it.
struct MemberId {
    unsigned number = 0;                      // among those of its role
    unsigned incarnation = 0;                 // 1: takes the place of one that was killed
};

// Callbacks of a backend, made from any thread. on_sample() is called by one thread at a time; on_received() follows
// each group of samples that were received together.
class Events {
public:
    virtual void on_announcement(const Announcement&) = 0;
    virtual void on_match() = 0;
    virtual void on_sample(const Sample&) = 0;
    virtual void on_received() = 0;
    // An endpoint of a member has matched, or no longer does; its number is unique among those of the member.
    virtual void on_member(const MemberId&, unsigned /*endpoint*/, bool /*matched*/) {}

protected:
    ~Events() = default;
};

struct Matches {
    unsigned writer = 0, reader = 0;          // endpoints matched with the data writer and the data reader that have fewest
    unsigned missing = 0;                     // matches that the data endpoints still wait for
};

struct TransportFacts {
    std::string interface, address, multicast_address;
    int receive_buffer = 0, send_buffer = 0;  // bytes, as the kernel reports them
    int64_t max_message = 0, fragment = 0;    // bytes; 0: unknown
};

// The policies in effect, by name. The value of a policy that is not limited, or not known, is null.
using EffectiveQos = std::map<std::string, std::variant<std::nullptr_t, int64_t, std::string>>;

enum class Written { ok, blocked, failed };   // blocked: not written; try again

class Backend {
public:
    virtual ~Backend() = default;
    virtual std::string version() const = 0;

    virtual bool has_raw_modes() const { return false; }            // whether it has the modes of RawMode
    virtual bool has_members() const { return false; }              // whether it reports which members have matched
    virtual bool has_transport(Transport transport) const { return transport == Transport::udp; }
    // Whether permissions must name the subject with its parts in the order of RFC 2253.
    virtual bool requires_subject_order() const { return false; }

    // Returns why these settings are not supported, with the option or file and the fix; empty if they are.
    virtual std::string unsupported(const Settings&) const = 0;

    // Creates all entities. Throws std::runtime_error with the middleware's message. The Events must outlive close().
    virtual void open(const Settings&, Events&) = 0;
    // Deletes all entities. No callback runs after it returns.
    virtual void close() = 0;

    // Returns how many bytes the data writers have sent again since open(); missing if the middleware does not count them.
    virtual std::optional<uint64_t> retransmitted_bytes() { return std::nullopt; }

    virtual Matches matches() = 0;
    virtual TransportFacts facts() = 0;
    virtual EffectiveQos effective_qos() = 0;

    // Called by one thread at a time. Must not allocate.
    virtual Written write(const Sample&) = 0;
    virtual void flush() = 0;                 // sends what a batch still holds
    virtual std::string last_error() const = 0;

    // For receive modes waitset and spin. wait() returns whether samples have arrived; take() passes them to
    // on_sample() and returns their number.
    virtual bool wait(int64_t timeout_ns) = 0;
    virtual unsigned take() = 0;

    // Returns whether the announcement was sent. Announcements may be lost; the program repeats them.
    virtual bool announce(const Announcement&) = 0;
};

}  // namespace k8sdds

// Each module exports these two functions.
extern "C" {
__attribute__((visibility("default"))) unsigned k8sdds_backend_interface();
__attribute__((visibility("default"))) k8sdds::Backend* k8sdds_backend_create();
}
