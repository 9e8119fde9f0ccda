// The backend of eProsima Fast DDS.
#include <fastdds/dds/core/condition/WaitSet.hpp>
#include <fastdds/dds/domain/DomainParticipant.hpp>
#include <fastdds/dds/domain/DomainParticipantFactory.hpp>
#include <fastdds/dds/log/Log.hpp>
#include <fastdds/dds/log/StdoutErrConsumer.hpp>
#include <fastdds/dds/publisher/DataWriter.hpp>
#include <fastdds/dds/publisher/DataWriterListener.hpp>
#include <fastdds/dds/publisher/Publisher.hpp>
#include <fastdds/dds/subscriber/DataReader.hpp>
#include <fastdds/dds/subscriber/DataReaderListener.hpp>
#include <fastdds/dds/subscriber/ReadCondition.hpp>
#include <fastdds/dds/subscriber/SampleInfo.hpp>
#include <fastdds/dds/subscriber/Subscriber.hpp>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "common.h"
#include "fastdds_config.h"
#include "fastdds_types.h"
#include "sockets.h"

namespace k8sdds {
namespace {

using namespace eprosima::fastdds::dds;
using fastdds_api::Duration_t;
using fastdds_api::RETCODE_OK;
using fastdds_api::ReturnCode_t;

Duration_t duration(int64_t ns) {
    if (ns == infinite) return fastdds_api::c_TimeInfinite;
    return {static_cast<int32_t>(ns / 1'000'000'000), static_cast<uint32_t>(ns % 1'000'000'000)};
}

template <typename T>
T* created(T* entity, const char* what) {
    if (!entity) throw std::runtime_error(std::string(what) + " was not created; run with -verbosity 3 for details");
    return entity;
}

class FastDds final : public Backend, DataWriterListener, DataReaderListener {
public:
    std::string version() const override { return FASTDDS_VERSION; }
    bool has_transport(Transport transport) const override {
        return transport == Transport::udp || transport == Transport::shared_memory;
    }
    bool requires_subject_order() const override { return true; }
    std::string unsupported(const Settings& settings) const override { return fastdds_unsupported(settings); }

    void open(const Settings& settings, Events& events) override;
    void close() override;
    Matches matches() override;
    TransportFacts facts() override;
    EffectiveQos effective_qos() override;
    Written write(const Sample& sample) override;
    void flush() override {}
    std::string last_error() const override { return "Fast DDS return code " + std::to_string(error_); }
    bool wait(int64_t timeout_ns) override;
    unsigned take() override;
    bool announce(const Announcement& announcement) override;

private:
    // Delivers announcements on the library's receiving thread, which may send answers.
    class AnnouncementListener final : public DataReaderListener {
    public:
        Events* events = nullptr;
        void on_data_available(DataReader* reader) override {
            Announcement a;
            SampleInfo info;
            while (reader->take_next_sample(&a, &info) == RETCODE_OK)
                if (info.valid_data) events->on_announcement(a);
        }
    };

    void on_publication_matched(DataWriter*, const PublicationMatchedStatus&) override { events_->on_match(); }
    void on_subscription_matched(DataReader*, const SubscriptionMatchedStatus&) override { events_->on_match(); }
    void on_data_available(DataReader* reader) override { take(reader); }
    unsigned take(DataReader* reader);

    void create_announcement_channel();
    void create_data_endpoints();
    // The user's profiles apply to the data endpoints; the announcement channel gets an empty one.
    DataWriterQos writer_qos(const EndpointQos& e, const FastDdsProfiles& user, uint32_t instances) const;
    DataReaderQos reader_qos(const EndpointQos& e, const FastDdsProfiles& user) const;
    Topic* topic(const std::string& name, const std::string& type);

    Settings settings_;
    FastDdsProfiles user_;
    Events* events_ = nullptr;
    DomainParticipant* participant_ = nullptr;
    Publisher* publisher_ = nullptr;
    Subscriber* subscriber_ = nullptr;
    // Used by other threads only when open_ is set.
    std::vector<DataWriter*> writers_;
    std::vector<DataReader*> readers_;
    std::vector<ReadCondition*> samples_;
    std::atomic<bool> open_{false};
    DataWriter* announcement_writer_ = nullptr;
    DataReader* announcement_reader_ = nullptr;
    AnnouncementListener announcement_listener_;
    std::unique_ptr<WaitSet> waitset_;
    ConditionSeq active_;
    std::mutex receiving_;
    TakenSample taken_;
    uint32_t error_ = 0;
};

void FastDds::open(const Settings& settings, Events& events) {
    settings_ = settings;
    user_.read(settings);                                 // fastdds_unsupported() has reported problems
    events_ = &events;
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
    Log::SetVerbosity(settings.verbosity >= 3 ? Log::Kind::Warning : Log::Kind::Error);
    fastdds_api::disable_intraprocess_delivery();

    // The library ignores an interface without carrier, even when the carrier comes up later.
    const std::string interface = interface_of(settings.nic, settings.ipv6).name;
    for (int i = 0; !interface.empty() && !is_running(interface); ++i) {
        if (i == 300) throw std::runtime_error("-nic: " + interface + " has no carrier after 3 s");
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }

    auto* factory = DomainParticipantFactory::get_instance();
    participant_ = created(factory->create_participant(settings.domain, fastdds_participant(settings, user_)), "participant");
    publisher_ = created(participant_->create_publisher(PUBLISHER_QOS_DEFAULT), "publisher");
    subscriber_ = created(participant_->create_subscriber(SUBSCRIBER_QOS_DEFAULT), "subscriber");
    create_announcement_channel();
    create_data_endpoints();
}

Topic* FastDds::topic(const std::string& name, const std::string& type) {
    return created(participant_->create_topic(name, type, TOPIC_QOS_DEFAULT), name.c_str());
}

void FastDds::create_announcement_channel() {
    TypeSupport type(new AnnouncementType);
    type.register_type(participant_);
    Topic* announcements = topic(topic_name(settings_, announcement_topic), type.get_type_name());
    EndpointQos e;
    e.durability = EndpointQos::Durability::transient_local;
    e.keep_all = false;
    e.depth = 16;
    announcement_writer_ = created(publisher_->create_datawriter(announcements, writer_qos(e, {}, 1)),
                                   "announcement writer");
    e.keep_all = true;
    announcement_listener_.events = events_;
    announcement_reader_ = created(subscriber_->create_datareader(announcements, reader_qos(e, {}),
                                                                  &announcement_listener_, StatusMask::data_available()), "announcement reader");
}

DataWriterQos FastDds::writer_qos(const EndpointQos& e, const FastDdsProfiles& user, uint32_t instances) const {
    DataWriterQos qos = publisher_->get_default_datawriter_qos();
    if (const std::string name = user.name("data_writer"); !name.empty())
        publisher_->get_datawriter_qos_from_profile(name, qos);
    const int64_t blocking = e.max_blocking_ns == infinite ? settings_.write_slice_ns
                                                           : std::min(e.max_blocking_ns, settings_.write_slice_ns);
    qos.reliability().kind = e.reliable ? RELIABLE_RELIABILITY_QOS : BEST_EFFORT_RELIABILITY_QOS;
    // The program repeats a blocked write(). It blocks in slices, so that the end of the test, a signal or the loss
    // of a peer is noticed in between.
    qos.reliability().max_blocking_time = duration(blocking);
    qos.durability().kind = e.durability == EndpointQos::Durability::transient_local ? TRANSIENT_LOCAL_DURABILITY_QOS
                                                                                     : VOLATILE_DURABILITY_QOS;
    qos.history().kind = e.keep_all ? KEEP_ALL_HISTORY_QOS : KEEP_LAST_HISTORY_QOS;
    qos.history().depth = static_cast<int32_t>(e.depth);
    auto& limits = qos.resource_limits();
    // The instances are written in turn, so each has an equal share of the queue.
    limits.max_instances = static_cast<int32_t>(instances);
    limits.max_samples = e.keep_all ? fastdds_send_queue(settings_)
                                    : static_cast<int32_t>(std::min<int64_t>(e.depth * limits.max_instances, INT32_MAX));
    limits.max_samples_per_instance = limits.max_samples / limits.max_instances;
    limits.allocated_samples = std::min(limits.max_samples, 64);
    // A payload is returned to the pool only after it has been sent, even if the history has dropped its sample. With
    // the default of 1, Fast DDS 3 often had none for a sample of several fragments that replaced another.
    limits.extra_samples = 16;
    qos.deadline().period = duration(e.deadline_ns);
    qos.latency_budget().duration = duration(e.latency_budget_ns);
    qos.lifespan().duration = duration(e.lifespan_ns);
    // A history of one sample is always full, so the library would request an acknowledgment with each sample.
    const bool keeps_one = !e.keep_all && e.depth == 1;
    qos.reliable_writer_qos().disable_heartbeat_piggyback = keeps_one;
    // Periodic heartbeats are for the tail of a stream: a full queue and a full send buffer trigger the others. After
    // each sample the library starts the timer of the NACK suppression. With its default of 0, each sample wakes the
    // timer thread, which then walks through all unacknowledged samples. The timer delays a repair by at most its time.
    constexpr int64_t heartbeat_ns = 10'000'000, suppression_ns = 1'000'000;
    if (!user.sets("data_writer/times"))
        fastdds_api::set_writer_times(qos, duration(heartbeat_ns), duration(keeps_one ? heartbeat_ns : suppression_ns));
    if (settings_.security.enabled())
        qos.properties().properties().emplace_back("dds.sec.crypto.keysize",
                                                   settings_.security.key_bits == 256 ? "256" : "128");
    if (!user.sets("data_writer/qos/publishMode")) qos.publish_mode().kind = SYNCHRONOUS_PUBLISH_MODE;
    if (!user.sets("data_writer/historyMemoryPolicy"))
        qos.endpoint().history_memory_policy = fastdds_api::rtps::PREALLOCATED_WITH_REALLOC_MEMORY_MODE;
    qos.data_sharing().off();
    return qos;
}

DataReaderQos FastDds::reader_qos(const EndpointQos& e, const FastDdsProfiles& user) const {
    DataReaderQos qos = subscriber_->get_default_datareader_qos();
    if (const std::string name = user.name("data_reader"); !name.empty())
        subscriber_->get_datareader_qos_from_profile(name, qos);
    qos.reliability().kind = e.reliable ? RELIABLE_RELIABILITY_QOS : BEST_EFFORT_RELIABILITY_QOS;
    qos.durability().kind = e.durability == EndpointQos::Durability::transient_local ? TRANSIENT_LOCAL_DURABILITY_QOS
                                                                                     : VOLATILE_DURABILITY_QOS;
    qos.history().kind = e.keep_all ? KEEP_ALL_HISTORY_QOS : KEEP_LAST_HISTORY_QOS;
    qos.history().depth = static_cast<int32_t>(e.depth);
    const auto limit = [](int64_t n) { return n == infinite ? 0 : static_cast<int32_t>(n); };   // 0: unlimited
    auto& limits = qos.resource_limits();
    limits.max_samples = limit(e.max_samples);
    limits.max_instances = limit(e.max_instances);
    limits.max_samples_per_instance = limit(e.max_samples_per_instance);
    if (settings_.keyed && limits.max_samples) {           // the library then requires the other limits too
        if (!limits.max_instances) limits.max_instances = static_cast<int32_t>(settings_.instances);
        if (!limits.max_samples_per_instance)
            limits.max_samples_per_instance = std::max(limits.max_samples / limits.max_instances, 1);
    }
    limits.allocated_samples = limits.max_samples ? std::min(limits.max_samples, 64) : 64;
    qos.deadline().period = duration(e.deadline_ns);
    qos.latency_budget().duration = duration(e.latency_budget_ns);
    if (settings_.security.enabled())
        qos.properties().properties().emplace_back("dds.sec.crypto.keysize",
                                                   settings_.security.key_bits == 256 ? "256" : "128");
    if (!user.sets("data_reader/times")) fastdds_api::acknowledge_at_once(qos);
    if (!user.sets("data_reader/historyMemoryPolicy"))
        qos.endpoint().history_memory_policy = fastdds_api::rtps::PREALLOCATED_WITH_REALLOC_MEMORY_MODE;
    qos.data_sharing().off();
    return qos;
}

void FastDds::create_data_endpoints() {
    const bool publishes = settings_.role == Role::publisher;
    TypeSupport type(new SampleType(settings_.data_length, settings_.keyed));
    type.register_type(participant_);
    std::vector<Topic*> throughput;
    for (unsigned n = 0; n < settings_.topics; ++n)
        throughput.push_back(topic(throughput_topic_name(settings_, n), type.get_type_name()));
    const std::vector<Topic*> latency{topic(topic_name(settings_, latency_topic), type.get_type_name())};
    const auto &written = publishes ? throughput : latency, &read = publishes ? latency : throughput;

    apply_test_qos(settings_);
    DataWriterQos data_writer_qos = writer_qos(settings_.qos.writer, user_, settings_.instances);
    if (settings_.asynchronous) data_writer_qos.publish_mode().kind = ASYNCHRONOUS_PUBLISH_MODE;
    if (settings_.flow_bytes) data_writer_qos.publish_mode().flow_controller_name = fastdds_flow_controller;
    for (unsigned n = 0; n < settings_.data_writers(); ++n)
        writers_.push_back(created(publisher_->create_datawriter(written[n % written.size()], data_writer_qos, this,
                                                                 StatusMask::publication_matched()), "data writer"));
    DataReaderQos data_reader_qos = reader_qos(settings_.qos.reader, user_);
    // A reader that announces only the group receives every sample by multicast. If it also announced unicast
    // addresses, the library would use them for a single reader.
    if (settings_.multicast) data_reader_qos.endpoint().multicast_locator_list.push_back(fastdds_multicast(settings_));
    StatusMask mask = StatusMask::subscription_matched();
    if (settings_.receive == Receive::listener) mask << StatusMask::data_available();
    if (settings_.receive == Receive::waitset) waitset_ = std::make_unique<WaitSet>();
    for (Topic* data_topic : read) {
        DataReader* reader =
            created(subscriber_->create_datareader(data_topic, data_reader_qos, this, mask), "data reader");
        readers_.push_back(reader);
        if (!waitset_) continue;
        samples_.push_back(created(reader->create_readcondition(ANY_SAMPLE_STATE, ANY_VIEW_STATE, ANY_INSTANCE_STATE),
                                   "read condition"));
        waitset_->attach_condition(*samples_.back());
    }
    open_.store(true);
}

void FastDds::close() {
    if (!participant_) return;
    // Remove the listeners first: no callback may use an entity that is being deleted.
    for (DataWriter* writer : writers_) writer->set_listener(nullptr);
    for (DataReader* reader : readers_) reader->set_listener(nullptr);
    if (announcement_reader_) announcement_reader_->set_listener(nullptr);
    for (size_t n = 0; n < samples_.size(); ++n) {
        waitset_->detach_condition(*samples_[n]);
        readers_[n]->delete_readcondition(samples_[n]);
    }
    waitset_.reset();
    participant_->delete_contained_entities();
    DomainParticipantFactory::get_instance()->delete_participant(participant_);
    participant_ = nullptr;
}

Matches FastDds::matches() {
    if (!open_.load()) return {};
    int writer = INT_MAX, reader = INT_MAX;
    for (DataWriter* data_writer : writers_) {
        PublicationMatchedStatus published;
        data_writer->get_publication_matched_status(published);
        writer = std::min(writer, published.current_count);
    }
    for (DataReader* data_reader : readers_) {
        SubscriptionMatchedStatus subscribed;
        data_reader->get_subscription_matched_status(subscribed);
        reader = std::min(reader, subscribed.current_count);
    }
    return {static_cast<unsigned>(writer), static_cast<unsigned>(reader)};
}

TransportFacts FastDds::facts() {
    TransportFacts facts;
    const std::vector<OwnSocket> sockets = own_sockets();
    set_buffers(facts, sockets);
    const Interface interface = interface_of(settings_.nic.empty() ? used_address(sockets) : settings_.nic, settings_.ipv6);
    facts.interface = interface.name;
    facts.address = interface.address;
    facts.max_message = fastdds_max_message(settings_);
    // DDS Security shortens fragments by an amount that depends on its level.
    if (!settings_.security.enabled()) facts.fragment = fastdds_fragment(settings_);
    if (settings_.multicast) facts.multicast_address = multicast_group(settings_);
    return facts;
}

EffectiveQos FastDds::effective_qos() {
    auto qos = effective_qos_of(settings_.qos);
    if (settings_.qos.writer.reliable && settings_.qos.writer.keep_all)
        qos["send_queue"] = fastdds_send_queue(settings_);
    const bool asynchronous = writers_.front()->get_qos().publish_mode().kind == ASYNCHRONOUS_PUBLISH_MODE;
    qos["publish_mode"] = asynchronous ? "asynchronous" : "synchronous";
    qos["flow_bytes"] = qos["flow_period_ms"] = nullptr;
    for (const auto& controller : participant_->get_qos().flow_controllers()) {
        if (std::string(controller->name) != fastdds_flow_controller) continue;
        qos["flow_bytes"] = int64_t{controller->max_bytes_per_period};
        qos["flow_period_ms"] = static_cast<int64_t>(controller->period_ms);
    }
    return qos;
}

Written FastDds::write(const Sample& sample) {
    InstanceHandle_t none;
    DataWriter* writer = writers_[sample.writer < writers_.size() ? sample.writer : 0];    // of a pong: the only one
    const ReturnCode_t result = writer->write(const_cast<Sample*>(&sample), none);
    if (__builtin_expect(result == RETCODE_OK, 1)) return Written::ok;
    error_ = fastdds_api::number(result);
    // The queue of payloads is full, which is equivalent to a full history.
    return result == fastdds_api::RETCODE_TIMEOUT || result == fastdds_api::RETCODE_OUT_OF_RESOURCES ? Written::blocked
                                                                                                       : Written::failed;
}

bool FastDds::wait(int64_t timeout_ns) {
    return waitset_->wait(active_, duration(timeout_ns)) == RETCODE_OK;
}

unsigned FastDds::take() {
    unsigned taken = 0;
    for (DataReader* reader : readers_) taken += take(reader);
    return taken;
}

unsigned FastDds::take(DataReader* reader) {
    const ReceiveLock lock(receiving_, settings_.data_readers() > 1);
    SampleInfo info;
    unsigned taken = 0;
    while (reader->take_next_sample(&taken_, &info) == RETCODE_OK) {
        if (info.valid_data) events_->on_sample(taken_.sample);
        ++taken;
    }
    if (taken) events_->on_received();
    else if (settings_.receive == Receive::spin) sched_yield();   // the library's receiving thread may share the core
    return taken;
}

bool FastDds::announce(const Announcement& announcement) {
    InstanceHandle_t none;
    if (!announcement_writer_) return false;
    return announcement_writer_->write(const_cast<Announcement*>(&announcement), none) == RETCODE_OK;
}

}  // namespace
}  // namespace k8sdds

unsigned k8sdds_backend_interface() { return k8sdds::backend_interface; }
k8sdds::Backend* k8sdds_backend_create() { return new k8sdds::FastDds(); }
