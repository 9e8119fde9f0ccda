// The backend of Eclipse Cyclone DDS.
#include <dds/dds.h>
#include <dds/ddsc/dds_statistics.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <map>
#include <stdexcept>

#include "common.h"
#include "cyclonedds_config.h"
#include "cyclonedds_serialized.h"
#include "perftest.h"
#include "sockets.h"

namespace k8sdds {
namespace {

struct QosDeleter {
    void operator()(dds_qos_t* qos) const { dds_delete_qos(qos); }
};
using Qos = std::unique_ptr<dds_qos_t, QosDeleter>;

struct StatisticsDeleter {
    void operator()(dds_statistics* statistics) const { dds_delete_statistics(statistics); }
};

dds_duration_t duration(int64_t ns) { return ns == infinite ? DDS_INFINITY : ns; }
int32_t limit(int64_t n) { return n == infinite ? DDS_LENGTH_UNLIMITED : static_cast<int32_t>(n); }

dds_entity_t created(dds_entity_t entity, const char* what) {
    if (entity < 0) throw std::runtime_error(std::string(what) + ": " + dds_strretcode(-entity));
    return entity;
}

// The code uses K8sdds_Sample for samples with and without key.
static_assert(sizeof(K8sdds_KeyedSample) == sizeof(K8sdds_Sample) &&
                  offsetof(K8sdds_KeyedSample, instance) == offsetof(K8sdds_Sample, head) + instance_word * sizeof(uint32_t) &&
                  offsetof(K8sdds_KeyedSample, payload) == offsetof(K8sdds_Sample, payload),
              "both types have the same layout");

// By which the members of a fleet recognize the endpoints of each other.
struct UserData {
    MemberId member;
    unsigned endpoint = 0;
};

class CycloneDds final : public Backend {
public:
    std::string version() const override { return CYCLONEDDS_VERSION; }
    bool has_members() const override { return true; }
    std::string unsupported(const Settings& settings) const override { return cyclonedds_unsupported(settings); }

    void open(const Settings& settings, Events& events) override;
    void close() override;
    std::optional<uint64_t> retransmitted_bytes() override;
    Matches matches() override;
    TransportFacts facts() override;
    EffectiveQos effective_qos() override;
    Written write(const Sample& sample) override;
    void flush() override {
        for (const dds_entity_t writer : writers_) dds_write_flush(writer);
    }
    std::string last_error() const override { return dds_strretcode(-error_); }
    bool wait(int64_t timeout_ns) override;
    unsigned take() override;
    bool announce(const Announcement& announcement) override;

private:
    Qos endpoint_qos(const EndpointQos& e, bool writer, size_t number) const;
    void create_announcement_channel();
    void create_data_endpoints();
    using MatchedData = dds_builtintopic_endpoint_t* (*)(dds_entity_t endpoint, dds_instance_handle_t matched);
    void on_match(MatchedData, dds_entity_t endpoint, dds_instance_handle_t matched, int32_t change);
    void note_matches();
    void note_match(MatchedData, dds_entity_t endpoint, dds_instance_handle_t matched);
    void note_loss(dds_entity_t endpoint, dds_instance_handle_t lost);
    unsigned take(dds_entity_t reader);
    void take_announcements(dds_entity_t reader);
    void create_serialized_samples();
    dds_time_t source_timestamp();
    dds_return_t write_sample(const Sample& sample, size_t writer);
    dds_return_t take_deserialized(dds_entity_t reader);
    dds_return_t take_serialized(dds_entity_t reader);

    Settings settings_;
    Events* events_ = nullptr;
    dds_entity_t domain_ = 0, participant_ = 0;
    std::vector<DataEndpoint> written_, read_;            // complete before an endpoint exists
    std::vector<dds_entity_t> writers_, readers_;         // in the same order; readers_ is complete before it is used by wait() and take()
    dds_entity_t announcement_writer_ = 0, announcement_reader_ = 0;
    dds_entity_t waitset_ = 0;
    std::atomic<bool> open_{false};                       // the data endpoints are complete
    dds_return_t error_ = 0;
    uint64_t batch_limit_ = 0;                            // of the writers with batches
    std::vector<uint64_t> batched_;                       // bytes, by writer
    unsigned samples_per_timestamp_ = 1, timestamp_left_ = 0;     // how many more samples get the current one
    dds_time_t timestamp_ = 0;

    // Used only by the receiving thread. The payload buffers are reused from one take to the next.
    std::vector<K8sdds_Sample> taken_;
    std::vector<void*> pointers_;
    std::vector<dds_sample_info_t> infos_;
    std::vector<ddsi_serdata*> serialized_taken_;
    std::mutex receiving_;

    std::mutex noting_;
    std::map<std::pair<dds_entity_t, dds_instance_handle_t>, UserData> noted_;   // by endpoint: those of members that have matched

    SerializedSamples serialized_;                        // of a publisher
};

void CycloneDds::open(const Settings& settings, Events& events) {
    settings_ = settings;
    events_ = &events;
    unsetenv("CYCLONEDDS_URI");                           // only the options configure it
    std::string messages;
    const dds_entity_t domain = cyclonedds_domain(settings, messages);
    // The members of a fleet share the domain that the first one in their process created.
    if (!settings.members || domain != DDS_RETCODE_PRECONDITION_NOT_MET) domain_ = created(domain, ("domain: " + messages.substr(0, messages.find('\n'))).c_str());
    if (domain > 0) std::fputs(messages.c_str(), stderr);
    Qos qos(dds_create_qos());
    cyclonedds_add_security(qos.get(), settings.security);
    participant_ = created(dds_create_participant(settings.domain, qos.get(), nullptr), "participant");
    batch_limit_ = settings.publishes() ? static_cast<uint64_t>(settings.qos.batch_bytes) : 0;
    dds_write_set_batch(batch_limit_ != 0);               // applies to the process: announcements are flushed
    if (!settings.members) create_announcement_channel();
    create_data_endpoints();
}

void CycloneDds::create_announcement_channel() {
    const dds_entity_t topic = created(dds_create_topic(participant_, &K8sdds_Announcement_desc,
                                                        topic_name(settings_, announcement_topic).c_str(), nullptr,
                                                        nullptr), "announcement topic");
    const Qos qos(dds_create_qos());
    constexpr int32_t depth = 16;
    dds_qset_reliability(qos.get(), DDS_RELIABILITY_RELIABLE, DDS_MSECS(10));
    dds_qset_durability(qos.get(), DDS_DURABILITY_TRANSIENT_LOCAL);
    dds_qset_durability_service(qos.get(), 0, DDS_HISTORY_KEEP_LAST, depth, DDS_LENGTH_UNLIMITED,
                                DDS_LENGTH_UNLIMITED, DDS_LENGTH_UNLIMITED);
    dds_qset_history(qos.get(), DDS_HISTORY_KEEP_LAST, depth);
    // The writing thread, which holds the writer, would deliver an announcement to the own reader. Its listener may
    // be writing an answer with the same writer at that moment.
    dds_qset_ignorelocal(qos.get(), DDS_IGNORELOCAL_PARTICIPANT);
    announcement_writer_ = created(dds_create_writer(participant_, topic, qos.get(), nullptr), "announcement writer");
    dds_qset_history(qos.get(), DDS_HISTORY_KEEP_ALL, 0);
    dds_listener_t* listener = dds_create_listener(this);
    dds_lset_data_available(listener, [](dds_entity_t reader, void* self) {
        static_cast<CycloneDds*>(self)->take_announcements(reader);
    });
    const dds_entity_t reader = dds_create_reader(participant_, topic, qos.get(), listener);
    dds_delete_listener(listener);
    announcement_reader_ = created(reader, "announcement reader");
}

Qos CycloneDds::endpoint_qos(const EndpointQos& e, bool writer, size_t number) const {
    Qos qos(dds_create_qos());
    const UserData own{{settings_.id, settings_.incarnation}, static_cast<unsigned>(number)};
    if (settings_.members) dds_qset_userdata(qos.get(), &own, sizeof own);
    // The program repeats a blocked write(). It blocks in slices, so that the end of the test, a signal or the loss
    // of a peer is noticed in between.
    const int64_t blocking = e.max_blocking_ns == infinite ? settings_.write_slice_ns
                                                           : std::min(e.max_blocking_ns, settings_.write_slice_ns);
    dds_qset_reliability(qos.get(), e.reliable ? DDS_RELIABILITY_RELIABLE : DDS_RELIABILITY_BEST_EFFORT, blocking);
    dds_qset_durability(qos.get(), e.durability == EndpointQos::Durability::transient_local
                                       ? DDS_DURABILITY_TRANSIENT_LOCAL : DDS_DURABILITY_VOLATILE);
    dds_qset_history(qos.get(), e.keep_all ? DDS_HISTORY_KEEP_ALL : DDS_HISTORY_KEEP_LAST,
                     static_cast<int32_t>(e.depth));
    dds_qset_resource_limits(qos.get(), limit(e.max_samples), limit(e.max_instances), limit(e.max_samples_per_instance));
    dds_qset_deadline(qos.get(), duration(e.deadline_ns));
    dds_qset_latency_budget(qos.get(), duration(e.latency_budget_ns));
    if (writer) dds_qset_lifespan(qos.get(), duration(e.lifespan_ns));
    dds_qset_destination_order(qos.get(), e.by_source_timestamp ? DDS_DESTINATIONORDER_BY_SOURCE_TIMESTAMP
                                                                : DDS_DESTINATIONORDER_BY_RECEPTION_TIMESTAMP);
    return qos;
}

void CycloneDds::create_data_endpoints() {
    const bool publishes = settings_.role == Role::publisher;
    const size_t buffers = std::clamp<size_t>((8u << 20) / settings_.data_length, 1, 64);
    taken_.assign(buffers, K8sdds_Sample{});
    for (K8sdds_Sample& sample : taken_) {
        sample.payload._release = true;
        pointers_.push_back(&sample);
    }
    infos_.resize(buffers);
    serialized_taken_.resize(buffers);
    if (publishes && settings_.serialized) create_serialized_samples();

    apply_test_qos(settings_);
    written_ = data_writers(settings_);
    read_ = data_readers(settings_);
    // In a latency test the receive callback sends the next ping: it must not block for long.
    if (publishes && settings_.latency_test && settings_.receive == Receive::listener)
        settings_.write_slice_ns = 1'000'000;

    dds_listener_t* listener = dds_create_listener(this);
    dds_lset_publication_matched(listener, [](dds_entity_t writer, const dds_publication_matched_status_t status, void* self) {
        static_cast<CycloneDds*>(self)->on_match(dds_get_matched_subscription_data, writer, status.last_subscription_handle,
                                                 status.current_count_change);
    });
    dds_lset_subscription_matched(listener, [](dds_entity_t reader, const dds_subscription_matched_status_t status, void* self) {
        static_cast<CycloneDds*>(self)->on_match(dds_get_matched_publication_data, reader, status.last_publication_handle,
                                                 status.current_count_change);
    });
    std::map<std::string, dds_entity_t> topics;
    const auto topic = [&](const std::string& name) {
        const dds_topic_descriptor_t* type = settings_.keyed ? &K8sdds_KeyedSample_desc : &K8sdds_Sample_desc;
        dds_entity_t& topic = topics[name];
        if (!topic) topic = created(dds_create_topic(participant_, type, name.c_str(), nullptr, nullptr), name.c_str());
        return topic;
    };
    for (const DataEndpoint& written : written_)
        writers_.push_back(created(dds_create_writer(participant_, topic(written.topic),
                                                     endpoint_qos(written.qos, true, writers_.size()).get(), listener), "data writer"));
    batched_.resize(writers_.size());
    // Readers use the source timestamp only for the lifespan and for the order by source timestamp.
    const EndpointQos &writer = settings_.qos.writer, &reader = settings_.qos.reader;
    if (settings_.continuous && writer.lifespan_ns == infinite && !writer.by_source_timestamp && !reader.by_source_timestamp)
        samples_per_timestamp_ = 16;
    if (settings_.receive == Receive::listener)
        dds_lset_data_available(listener, [](dds_entity_t reader, void* self) {
            static_cast<CycloneDds*>(self)->take(reader);
        });
    if (settings_.receive == Receive::waitset) waitset_ = created(dds_create_waitset(participant_), "waitset");
    for (const DataEndpoint& read : read_) {
        // The listener is set when the reader is complete. A member receives nothing, and must not miss a match.
        dds_listener_t* const first = settings_.members ? listener : nullptr;
        const dds_entity_t reader = created(dds_create_reader(participant_, topic(read.topic),
                                                              endpoint_qos(read.qos, false, readers_.size()).get(), first), "data reader");
        readers_.push_back(reader);
        if (!first) created(dds_set_listener(reader, listener), "data listener");
        if (settings_.receive != Receive::waitset) continue;
        created(dds_set_status_mask(reader, DDS_DATA_AVAILABLE_STATUS | DDS_SUBSCRIPTION_MATCHED_STATUS), "status mask");
        const dds_entity_t condition = created(dds_create_readcondition(reader, DDS_ANY_STATE), "read condition");
        created(dds_waitset_attach(waitset_, condition, 0), "waitset");
    }
    dds_delete_listener(listener);
    open_.store(true);
    if (settings_.members) note_matches();
}

// What the domain knew already matched while an endpoint was created, when the library has no data of the other one.
void CycloneDds::note_matches() {
    std::vector<dds_instance_handle_t> matched(settings_.subscribers + settings_.publishers);
    const auto note = [&](MatchedData data, dds_entity_t endpoint, dds_return_t found) {
        for (size_t n = 0; n < std::min<size_t>(matched.size(), std::max(found, 0)); ++n) note_match(data, endpoint, matched[n]);
    };
    for (const dds_entity_t writer : writers_)
        note(dds_get_matched_subscription_data, writer, dds_get_matched_subscriptions(writer, matched.data(), matched.size()));
    for (const dds_entity_t reader : readers_)
        note(dds_get_matched_publication_data, reader, dds_get_matched_publications(reader, matched.data(), matched.size()));
}

void CycloneDds::on_match(MatchedData matched_data, dds_entity_t endpoint, dds_instance_handle_t matched, int32_t change) {
    events_->on_match();
    if (!settings_.members) return;
    if (change < 0) note_loss(endpoint, matched);
    else note_match(matched_data, endpoint, matched);
}

// The library has no data while it creates the own endpoint, for which note_matches() is called later, and after it has lost
// the other one. It removes the data before it reports a loss, and note_loss() takes the same lock. A match that is noted
// here is therefore still noted when its loss is handled.
void CycloneDds::note_match(MatchedData matched_data, dds_entity_t endpoint, dds_instance_handle_t matched) {
    const std::lock_guard<std::mutex> lock(noting_);
    dds_builtintopic_endpoint_t* const found = matched_data(endpoint, matched);
    if (!found) return;
    void* data = nullptr;
    size_t size = 0;
    UserData other;
    if (dds_qget_userdata(found->qos, &data, &size) && size == sizeof other) {
        std::memcpy(&other, data, sizeof other);
        noted_[{endpoint, matched}] = other;
        events_->on_member(other.member, other.endpoint, true);
    }
    dds_free(data);
    dds_builtintopic_free_endpoint(found);
}

// A lost endpoint has no data: it is recognized by what was noted.
void CycloneDds::note_loss(dds_entity_t endpoint, dds_instance_handle_t lost) {
    const std::lock_guard<std::mutex> lock(noting_);
    const auto known = noted_.extract({endpoint, lost});
    if (known) events_->on_member(known.mapped().member, known.mapped().endpoint, false);
}

void CycloneDds::create_serialized_samples() {
    // More than the writer keeps: the library's limit adapts up to 500 kB, and one sample may exceed it.
    constexpr uint64_t adaptive_limit = 500'000;
    const uint64_t others = std::clamp<uint64_t>((64 << 20) / settings_.data_length, 4, 64);
    const uint64_t queue = settings_.send_queue ? static_cast<uint64_t>(settings_.send_queue)
                           : settings_.latency_test ? 1 : adaptive_limit / settings_.data_length;
    const std::vector<uint8_t> payload(settings_.data_length - sample_overhead, 0xa5);
    Sample model;
    model.payload = payload.data();
    model.payload_length = static_cast<uint32_t>(payload.size());
    serialized_.create(participant_, model, queue + others);
}

void CycloneDds::close() {
    if (participant_ > 0) {
        // Remove the listeners first: no callback may use an entity that is being deleted.
        for (const dds_entity_t reader : readers_) dds_set_listener(reader, nullptr);
        if (announcement_reader_ > 0) dds_set_listener(announcement_reader_, nullptr);
        serialized_.release();
        dds_delete(participant_);
    }
    if (domain_ > 0) dds_delete(domain_);
    participant_ = domain_ = 0;
}

std::optional<uint64_t> CycloneDds::retransmitted_bytes() {
    uint64_t bytes = 0;
    for (const dds_entity_t writer : writers_) {
        const std::unique_ptr<dds_statistics, StatisticsDeleter> statistics(dds_create_statistics(writer));
        const dds_stat_keyvalue* sent_again = dds_lookup_statistic(statistics.get(), "rexmit_bytes");
        if (!sent_again || sent_again->kind != DDS_STAT_KIND_UINT64) return std::nullopt;
        bytes += sent_again->u.u64;
    }
    return bytes;
}

Matches CycloneDds::matches() {
    if (!open_.load()) return {0, 0, UINT_MAX};
    MatchCounter counter;
    for (size_t n = 0; n < writers_.size(); ++n) {
        dds_publication_matched_status_t published{};
        dds_get_publication_matched_status(writers_[n], &published);
        counter.writer(written_[n], published.current_count);
    }
    for (size_t n = 0; n < readers_.size(); ++n) {
        dds_subscription_matched_status_t subscribed{};
        dds_get_subscription_matched_status(readers_[n], &subscribed);
        counter.reader(read_[n], subscribed.current_count);
    }
    return counter.matches();
}

TransportFacts CycloneDds::facts() {
    TransportFacts facts;
    const std::vector<OwnSocket> sockets = own_sockets();
    set_buffers(facts, sockets);
    facts.address = used_address(sockets);
    const Interface interface = interface_of(facts.address.empty() ? settings_.nic : facts.address, settings_.ipv6);
    facts.interface = interface.name;
    facts.address = interface.address;
    const CycloneLengths lengths = cyclonedds_lengths(settings_);
    facts.max_message = lengths.message;
    facts.fragment = lengths.fragment;
    if (settings_.multicast) facts.multicast_address = multicast_group(settings_);
    return facts;
}

EffectiveQos CycloneDds::effective_qos() {
    auto qos = effective_qos_of(settings_.qos);
    if (settings_.send_queue) qos["send_queue"] = settings_.send_queue;
    qos["batch_bytes"] = static_cast<int64_t>(batch_limit_);
    return qos;
}

// Reads the clock once for several samples that follow each other at once.
dds_time_t CycloneDds::source_timestamp() {
    if (timestamp_left_ == 0) {
        timestamp_left_ = samples_per_timestamp_;
        timestamp_ = dds_time();
    }
    --timestamp_left_;
    return timestamp_;
}

dds_return_t CycloneDds::write_sample(const Sample& sample, size_t writer) {
    if (settings_.serialized && settings_.role == Role::publisher) {
        ddsi_serdata* serialized = serialized_.next(sample, source_timestamp());
        return serialized ? dds_forwardcdr(writers_[writer], serialized) : DDS_RETCODE_TIMEOUT;
    }
    K8sdds_Sample out;
    pack(sample, out.head);
    out.payload._maximum = out.payload._length = sample.payload_length;
    out.payload._buffer = const_cast<uint8_t*>(sample.payload);
    out.payload._release = false;
    return dds_write_ts(writers_[writer], &out, source_timestamp());
}

Written CycloneDds::write(const Sample& sample) {
    const size_t index = sample.writer < writers_.size() ? sample.writer : 0;   // a pong has the number of its ping's writer
    const dds_return_t result = write_sample(sample, index);
    if (__builtin_expect(result != DDS_RETCODE_OK, 0)) {
        error_ = result;
        return result == DDS_RETCODE_TIMEOUT ? Written::blocked : Written::failed;
    }
    if (batch_limit_) {
        batched_[index] += sample.payload_length + sample_overhead;
        if (batched_[index] >= static_cast<uint64_t>(written_[index].batch_bytes)) {
            batched_[index] = 0;
            dds_write_flush(writers_[index]);
        }
    }
    return Written::ok;
}

bool CycloneDds::wait(int64_t timeout_ns) { return dds_waitset_wait(waitset_, nullptr, 0, timeout_ns) > 0; }

unsigned CycloneDds::take() {
    unsigned taken = 0;
    for (const dds_entity_t reader : readers_) taken += take(reader);
    return taken;
}

unsigned CycloneDds::take(dds_entity_t reader) {
    unsigned taken = 0;
    if (settings_.receive == Receive::spin) {
        // Without samples this must not take the lock of the cache, which the library's receiving thread needs, and
        // must yield the core that both threads may share.
        uint32_t status = 0;
        dds_get_status_changes(reader, &status);
        if (!(status & DDS_DATA_AVAILABLE_STATUS)) {
            sched_yield();
            return 0;
        }
    }
    const ReceiveLock lock(receiving_, read_.size() > 1);
    for (;;) {
        const dds_return_t n = settings_.serialized ? take_serialized(reader) : take_deserialized(reader);
        if (n <= 0) return taken;
        events_->on_received();
        taken += static_cast<unsigned>(n);
        if (static_cast<size_t>(n) < taken_.size()) return taken;
    }
}

dds_return_t CycloneDds::take_deserialized(dds_entity_t reader) {
    const auto max_samples = static_cast<uint32_t>(taken_.size());
    const dds_return_t n = dds_take(reader, pointers_.data(), infos_.data(), max_samples, max_samples);
    for (dds_return_t i = 0; i < n; ++i) {
        if (!infos_[i].valid_data) continue;
        const K8sdds_Sample& in = taken_[i];
        Sample sample;
        unpack(in.head, sample);
        sample.payload = in.payload._buffer;
        sample.payload_length = in.payload._length;
        events_->on_sample(sample);
    }
    return n;
}

dds_return_t CycloneDds::take_serialized(dds_entity_t reader) {
    const auto max_samples = static_cast<uint32_t>(serialized_taken_.size());
    const dds_return_t n = dds_takecdr(reader, serialized_taken_.data(), max_samples, infos_.data(), DDS_ANY_STATE);
    for (dds_return_t i = 0; i < n; ++i) {
        if (infos_[i].valid_data) events_->on_sample(read_serialized(serialized_taken_[i]));
        release_serialized(serialized_taken_[i]);
    }
    return n;
}

bool CycloneDds::announce(const Announcement& a) {
    K8sdds_Announcement out{};
    out.kind = static_cast<uint8_t>(a.kind);
    out.role = static_cast<uint8_t>(a.role);
    out.id = a.id;
    out.to = a.to;
    out.version = a.version;
    out.instance = a.instance;
    out.run = a.run;
    out.nonce = a.nonce;
    std::memcpy(out.value, a.value, sizeof out.value);
    const bool written = dds_write(announcement_writer_, &out) == DDS_RETCODE_OK;
    if (batch_limit_) dds_write_flush(announcement_writer_);
    return written;
}

void CycloneDds::take_announcements(dds_entity_t reader) {
    K8sdds_Announcement in[8];
    void* pointers[8];
    dds_sample_info_t infos[8];
    for (int i = 0; i < 8; ++i) pointers[i] = &in[i];
    for (;;) {
        const dds_return_t n = dds_take(reader, pointers, infos, 8, 8);
        for (dds_return_t i = 0; i < n; ++i) {
            if (!infos[i].valid_data) continue;
            Announcement a;
            a.kind = static_cast<Kind>(in[i].kind);
            a.role = static_cast<Role>(in[i].role);
            a.id = in[i].id;
            a.to = in[i].to;
            a.version = in[i].version;
            a.instance = in[i].instance;
            a.run = in[i].run;
            a.nonce = in[i].nonce;
            std::memcpy(a.value, in[i].value, sizeof a.value);
            events_->on_announcement(a);
        }
        if (n < 8) return;
    }
}

}  // namespace
}  // namespace k8sdds

unsigned k8sdds_backend_interface() { return k8sdds::backend_interface; }
k8sdds::Backend* k8sdds_backend_create() { return new k8sdds::CycloneDds(); }
