// The seam between the program and a middleware: everything a backend module sees of the program,
// and everything the program sees of a backend. One process has one writer and one reader for
// samples (a publisher writes the throughput topic and reads the latency topic, a subscriber the
// other way round) and one announcement channel.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace k8sdds {

constexpr unsigned backend_interface = 4;     // raised whenever this header changes
constexpr uint32_t sample_overhead = 28;      // bytes of a sample that are not payload
constexpr int64_t infinite = -1;              // a duration or a limit without end
constexpr uint16_t to_all = 0xffff;

constexpr const char* throughput_topic = "k8sdds/throughput";
constexpr const char* latency_topic = "k8sdds/latency";
constexpr const char* announcement_topic = "k8sdds/announcement";

enum class Role : uint8_t { publisher = 0, subscriber = 1 };
enum class Receive { listener, waitset, spin };
enum class Phase : uint8_t { warm_up = 0, measured = 1 };

struct Sample {
    uint32_t run = 0;
    uint32_t sequence = 0;
    int64_t sent_ns = 0;
    int32_t ping = -1;
    uint16_t publisher = 0;
    Phase phase = Phase::warm_up;
    const uint8_t* payload = nullptr;
    uint32_t payload_length = 0;
};

enum class Kind : uint8_t { hello, ready, start, alive, end, report, done, bye, abort };

struct Announcement {
    Kind kind = Kind::hello;
    Role role = Role::publisher;
    uint16_t id = 0;
    uint16_t to = to_all;
    uint32_t instance = 0;
    uint32_t run = 0;
    int64_t value[6] = {};
};

// The quality of service of the data topics, as plain data. Durations in nanoseconds.
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
    std::map<std::string, int> lines;         // "history" -> line of the file, for messages
};

struct QosProfile {
    std::string name;
    std::string file;                         // empty: built in
    EndpointQos writer, reader;
    int64_t batch_bytes = 0;
    int batch_line = 0;
};

// Files of DDS Security, by path; all empty without it.
struct Security {
    std::string governance, permissions, identity_ca, permissions_ca, certificate, private_key;
    unsigned key_bits = 256;                  // of AES-GCM and AES-GMAC
    bool on() const { return !governance.empty(); }
};

enum class Discovery { multicast, peers, server };

// What the program asks of a backend: the resolved options.
struct Settings {
    Role role = Role::publisher;
    unsigned id = 0;                          // pidMultiPubTest or sidMultiSubTest
    unsigned domain = 1;
    uint64_t data_length = 100;
    unsigned subscribers = 1, publishers = 1;
    std::string nic;
    std::vector<std::string> peers;
    bool multicast = false;
    std::string multicast_address;
    Discovery discovery = Discovery::peers;
    std::vector<std::string> discovery_servers;   // ADDRESS or ADDRESS:PORT; the n-th has the id n-1
    int64_t send_queue = 0;                   // samples; 0: the middleware's default
    Receive receive = Receive::listener;
    bool latency_test = false;
    QosProfile qos;
    Security security;
    int64_t write_slice_ns = 100'000'000;     // a blocked write returns at least this often
    int verbosity = 1;
};

// What a backend tells the program, from any thread. Samples come from one thread at a time, and
// on_received() follows each group of samples that came together.
class Events {
public:
    virtual void on_announcement(const Announcement&) = 0;
    virtual void on_match() = 0;
    virtual void on_sample(const Sample&) = 0;
    virtual void on_received() = 0;

protected:
    ~Events() = default;
};

struct Matches {
    unsigned writer = 0, reader = 0;          // matched endpoints of the data writer and reader
};

struct TransportFacts {
    std::string interface, address, multicast_address;
    int receive_buffer = 0, send_buffer = 0;
    int64_t max_message = 0, fragment = 0;
};

enum class Written { ok, blocked, failed };   // blocked: not written, to be tried again

class Backend {
public:
    virtual ~Backend() = default;
    virtual std::string version() const = 0;

    // Why these settings cannot be had here (option or file and remedy), or nothing.
    virtual std::string refuse(const Settings&) const = 0;

    // Throws std::runtime_error with what the middleware said.
    virtual void open(const Settings&, Events&) = 0;
    virtual void close() = 0;

    virtual Matches matches() = 0;
    virtual TransportFacts facts() = 0;
    virtual std::map<std::string, std::string> effective_qos() = 0;   // values as JSON text

    virtual Written write(const Sample&) = 0;
    virtual void flush() = 0;                 // sends what a batch still holds
    virtual std::string last_error() const = 0;

    // Receive modes waitset and spin: wait for samples; hand those that are there to on_sample().
    virtual bool wait(int64_t timeout_ns) = 0;
    virtual unsigned take() = 0;

    virtual bool announce(const Announcement&) = 0;
};

}  // namespace k8sdds

// Each module exports these two.
extern "C" {
__attribute__((visibility("default"))) unsigned k8sdds_backend_interface();
__attribute__((visibility("default"))) k8sdds::Backend* k8sdds_backend_create();
}
