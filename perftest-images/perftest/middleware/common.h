// Functions that the middleware backends share: the head of a sample on the wire, and the checks and reports of QoS.
#pragma once

#include <algorithm>
#include <climits>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "backend.h"
#include "sockets.h"

namespace k8sdds {

// The head of a sample on the wire, in 32-bit words: run; sequence; low and high word of sent_ns; ids and phase in bit
// fields; instance, which is the key of a keyed topic.
constexpr unsigned head_words = 6, instance_word = 5;

// The bit fields, from the lowest bit: ping + 1, publisher, phase, writer.
constexpr unsigned id_bits = 10, publisher_shift = id_bits, phase_shift = 2 * id_bits, writer_shift = phase_shift + 1;
constexpr uint32_t id_mask = (1u << id_bits) - 1;

inline void pack(const Sample& s, uint32_t (&head)[head_words]) {
    head[0] = s.run;
    head[1] = s.sequence;
    head[2] = static_cast<uint32_t>(s.sent_ns);
    head[3] = static_cast<uint32_t>(static_cast<uint64_t>(s.sent_ns) >> 32);
    head[4] = static_cast<uint32_t>(s.ping + 1) | static_cast<uint32_t>(s.publisher) << publisher_shift |
              static_cast<uint32_t>(s.phase) << phase_shift | static_cast<uint32_t>(s.writer) << writer_shift;
    head[instance_word] = s.instance;
}

inline void unpack(const uint32_t (&head)[head_words], Sample& s) {
    s.run = head[0];
    s.sequence = head[1];
    s.sent_ns = static_cast<int64_t>(static_cast<uint64_t>(head[3]) << 32 | head[2]);
    s.ping = static_cast<int32_t>(head[4] & id_mask) - 1;
    s.publisher = static_cast<uint16_t>(head[4] >> publisher_shift & id_mask);
    s.phase = static_cast<Phase>(head[4] >> phase_shift & 1);
    s.writer = static_cast<uint16_t>(head[4] >> writer_shift);
    s.instance = head[instance_word];
}

// Returns "-qosFile: FILE:LINE: <POLICY>: ", the start of a message about an unsupported policy.
std::string qos_location(const QosProfile&, const EndpointQos&, const std::string& policy);

// Returns the name of a topic, and of the n-th throughput topic. In a scan, the endpoints of one step must not match those
// of another.
std::string topic_name(const Settings&, const char* topic);
std::string throughput_topic_name(const Settings&, unsigned n);

// Returns the data endpoints of a participant, in the order of their numbers, with the policies that the test requires.
std::vector<DataEndpoint> data_writers(const Settings&);
std::vector<DataEndpoint> data_readers(const Settings&);

// Counts the matches of the data endpoints.
class MatchCounter {
public:
    void writer(const DataEndpoint& endpoint, unsigned matched) { count(endpoint, matched, writer_); }
    void reader(const DataEndpoint& endpoint, unsigned matched) { count(endpoint, matched, reader_); }
    Matches matches() const { return {writer_, reader_, missing_}; }

private:
    void count(const DataEndpoint& endpoint, unsigned matched, unsigned& fewest) {
        fewest = std::min(fewest, matched);
        missing_ += endpoint.peers - std::min(matched, endpoint.peers);
    }
    unsigned writer_ = UINT_MAX, reader_ = UINT_MAX, missing_ = 0;
};

// Guards a group of received samples where readers of several topics could deliver at the same time. With one reader,
// the middleware makes one call at a time, and this costs nothing.
class ReceiveLock {
public:
    ReceiveLock(std::mutex& mutex, bool several) : lock_(mutex, std::defer_lock) { if (several) lock_.lock(); }

private:
    std::unique_lock<std::mutex> lock_;
};

// Returns addresses without repetitions: several processes may share one.
std::vector<std::string> distinct(std::vector<std::string> addresses);

// Returns an error message if the interface of -nic does not exist; empty otherwise.
std::string unsupported_nic(const Settings&);

// Sets the longest buffers of the sockets.
void set_buffers(TransportFacts&, const std::vector<OwnSocket>&);

// Returns the multicast group of a DDS middleware's samples.
std::string multicast_group(const Settings&);

// Sets the policies that the test requires whatever the profile: the history of pings and pongs, and a limit of
// samples that wait to be taken.
void apply_test_qos(Settings&);

// Returns the policies in effect. A backend overwrites the values in which it differs.
EffectiveQos effective_qos_of(const QosProfile&);

}  // namespace k8sdds
