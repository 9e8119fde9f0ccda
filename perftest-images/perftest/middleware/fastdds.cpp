// The backend of eProsima Fast DDS.
#include <fastdds/dds/core/condition/WaitSet.hpp>
#include <fastdds/dds/domain/DomainParticipant.hpp>
#include <fastdds/dds/domain/DomainParticipantFactory.hpp>
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
#include <cstring>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

#include "common.h"
#include "fastdds_config.h"
#include "fastdds_qos.h"
#include "fastdds_types.h"

namespace k8sdds {
namespace {

using namespace eprosima::fastdds::dds;
using fastdds_api::RETCODE_OK;
using fastdds_api::ReturnCode_t;

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
    bool has_members() const override { return true; }
    std::string unsupported(const Settings& settings) const override { return fastdds_unsupported(settings); }

    void open(const Settings& settings, Events& events) override;
    void close() override;
    Matches matches() override;
    TransportFacts facts() override { return fastdds_facts(settings_); }
    EffectiveQos effective_qos() override {
        return fastdds_effective_qos(settings_, writers_.empty() ? *announcement_writer_ : *writers_.front());
    }
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

    void on_publication_matched(DataWriter*, const PublicationMatchedStatus& status) override {
        on_match(status, status.last_subscription_handle);
    }
    void on_subscription_matched(DataReader*, const SubscriptionMatchedStatus& status) override {
        on_match(status, status.last_publication_handle);
    }
    void on_match(const MatchedStatus&, const InstanceHandle_t& matched);
    void on_data_available(DataReader* reader) override { take(reader); }
    unsigned take(DataReader* reader);

    void create_announcement_channel();
    void create_data_endpoints();
    Topic* topic(const std::string& name, const std::string& type);
    Topic* data_topic(const DataEndpoint&);

    Settings settings_;
    FastDdsProfiles user_;
    Events* events_ = nullptr;
    DomainParticipant* participant_ = nullptr;
    Publisher* publisher_ = nullptr;
    Subscriber* subscriber_ = nullptr;
    std::vector<DataEndpoint> written_, read_;             // complete before an endpoint exists
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
    fastdds_prepare(settings);
    auto* factory = DomainParticipantFactory::get_instance();
    participant_ = created(factory->create_participant(settings.domain, fastdds_participant(settings, user_)), "participant");
    publisher_ = created(participant_->create_publisher(PUBLISHER_QOS_DEFAULT), "publisher");
    subscriber_ = created(participant_->create_subscriber(SUBSCRIBER_QOS_DEFAULT), "subscriber");
    if (!settings.members) create_announcement_channel();
    create_data_endpoints();
}

Topic* FastDds::topic(const std::string& name, const std::string& type) {
    const std::string prefix = settings_.ros2_names ? "rt/" : "";
    return created(participant_->create_topic(prefix + name, type, TOPIC_QOS_DEFAULT), name.c_str());
}

void FastDds::create_announcement_channel() {
    TypeSupport type(new AnnouncementType(settings_.ros2_names));
    type.register_type(participant_);
    Topic* announcements = topic(topic_name(settings_, announcement_topic), type.get_type_name());
    EndpointQos e;
    e.durability = EndpointQos::Durability::transient_local;
    e.keep_all = false;
    e.depth = 16;
    const DataWriterQos announcement_writer_qos = fastdds_writer_qos(*publisher_, settings_, e, {}, 1, settings_.data_length);
    announcement_writer_ = created(publisher_->create_datawriter(announcements, announcement_writer_qos), "announcement writer");
    e.keep_all = true;
    announcement_listener_.events = events_;
    const DataReaderQos announcement_reader_qos = fastdds_reader_qos(*subscriber_, settings_, e, {});
    announcement_reader_ = created(subscriber_->create_datareader(announcements, announcement_reader_qos, &announcement_listener_,
                                                                  StatusMask::data_available()),
                                   "announcement reader");
}

// Returns the topic of an endpoint. The library allocates the longest sample of a type for each of the first samples, so
// flows of a graph have types by length.
Topic* FastDds::data_topic(const DataEndpoint& endpoint) {
    if (TopicDescription* known = participant_->lookup_topicdescription(endpoint.topic)) return static_cast<Topic*>(known);
    TypeSupport type(new SampleType(endpoint.length, settings_.keyed, settings_.ros2_names));
    std::string name = type.get_type_name();
    if (settings_.role == Role::node) name += "/" + std::to_string(endpoint.length);
    if (participant_->find_type(name).empty()) type.register_type(participant_, name);
    return topic(endpoint.topic, name);
}

void FastDds::create_data_endpoints() {
    apply_test_qos(settings_);
    written_ = data_writers(settings_);
    read_ = data_readers(settings_);
    for (const DataEndpoint& written : written_)
        writers_.push_back(created(publisher_->create_datawriter(data_topic(written),
                                                                 fastdds_data_writer_qos(*publisher_, settings_, written, user_), this,
                                                                 StatusMask::publication_matched()), "data writer"));
    StatusMask mask = StatusMask::subscription_matched();
    if (settings_.receive == Receive::listener) mask << StatusMask::data_available();
    if (settings_.receive == Receive::waitset) waitset_ = std::make_unique<WaitSet>();
    for (const DataEndpoint& read : read_) {
        const DataReaderQos qos = fastdds_data_reader_qos(*subscriber_, settings_, read, user_);
        DataReader* reader = created(subscriber_->create_datareader(data_topic(read), qos, this, mask), "data reader");
        readers_.push_back(reader);
        if (!waitset_) continue;
        samples_.push_back(created(reader->create_readcondition(ANY_SAMPLE_STATE, ANY_VIEW_STATE, ANY_INSTANCE_STATE),
                                   "read condition"));
        waitset_->attach_condition(*samples_.back());
    }
    open_.store(true);
}

void FastDds::on_match(const MatchedStatus& status, const InstanceHandle_t& matched) {
    events_->on_match();
    if (!settings_.members || !status.current_count_change) return;
    const fastdds_api::rtps::GUID_t guid = fastdds_api::rtps::iHandle2GUID(matched);
    unsigned endpoint;
    std::memcpy(&endpoint, guid.entityId.value, sizeof endpoint);
    events_->on_member(fastdds_member(guid), endpoint, status.current_count_change > 0);
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
    if (!open_.load()) return {0, 0, UINT_MAX};
    MatchCounter counter;
    for (size_t n = 0; n < writers_.size(); ++n) {
        PublicationMatchedStatus published;
        writers_[n]->get_publication_matched_status(published);
        counter.writer(written_[n], static_cast<unsigned>(published.current_count));
    }
    for (size_t n = 0; n < readers_.size(); ++n) {
        SubscriptionMatchedStatus subscribed;
        readers_[n]->get_subscription_matched_status(subscribed);
        counter.reader(read_[n], static_cast<unsigned>(subscribed.current_count));
    }
    return counter.matches();
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
    return waitset_->wait(active_, fastdds_duration(timeout_ns)) == RETCODE_OK;
}

unsigned FastDds::take() {
    unsigned taken = 0;
    for (DataReader* reader : readers_) taken += take(reader);
    return taken;
}

unsigned FastDds::take(DataReader* reader) {
    const ReceiveLock lock(receiving_, read_.size() > 1);
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
