// The backend of ROS 2: rcl and rmw_fastrtps_cpp, over the Fast DDS that ROS 2 brings. rmw states some policies by its own QoS;
// the others, the transports and discovery come from the default QoS of Fast DDS, which are those of the backend fastdds.
#include <fastdds/dds/domain/DomainParticipantFactory.hpp>
#include <rcl/error_handling.h>
#include <rcl/event.h>
#include <rcl/rcl.h>
#include <rmw_fastrtps_cpp/get_publisher.hpp>
#include <rmw_fastrtps_cpp/get_subscriber.hpp>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <stdexcept>

#include "common.h"
#include "fastdds_config.h"
#include "fastdds_qos.h"
#include "fastdds_wire.h"
#include "ros2_messages.h"
#include "ros2_types.h"

namespace k8sdds {
namespace {

using namespace eprosima::fastdds::dds;
using Type = const rosidl_message_type_support_t*;

// rcl keeps the text of an error until it is reset, and warns of the next one otherwise.
std::string taken_error() {
    const std::string text = rcl_get_error_string().str;
    rcl_reset_error();
    return text;
}

void check(rcl_ret_t result, const std::string& what) {
    if (result != RCL_RET_OK) throw std::runtime_error(what + ": " + taken_error());
}

// For what is deleted: nothing can be done about an error.
void ignore(rcl_ret_t result) {
    if (result != RCL_RET_OK) rcl_reset_error();
}

rmw_time_t rmw_time(int64_t ns) {
    if (ns == infinite) return RMW_DURATION_INFINITE;
    return {static_cast<uint64_t>(ns / 1'000'000'000), static_cast<uint64_t>(ns % 1'000'000'000)};
}

rmw_qos_profile_t rmw_qos(const EndpointQos& e) {
    rmw_qos_profile_t qos = rmw_qos_profile_default;
    qos.reliability = e.reliable ? RMW_QOS_POLICY_RELIABILITY_RELIABLE : RMW_QOS_POLICY_RELIABILITY_BEST_EFFORT;
    qos.durability = e.durability == EndpointQos::Durability::transient_local ? RMW_QOS_POLICY_DURABILITY_TRANSIENT_LOCAL
                                                                              : RMW_QOS_POLICY_DURABILITY_VOLATILE;
    qos.history = e.keep_all ? RMW_QOS_POLICY_HISTORY_KEEP_ALL : RMW_QOS_POLICY_HISTORY_KEEP_LAST;
    qos.depth = static_cast<size_t>(e.depth);
    qos.deadline = rmw_time(e.deadline_ns);
    qos.lifespan = rmw_time(e.lifespan_ns);
    return qos;
}

// Sets the environment in which only the options configure ROS 2.
void prepare_environment(const Settings& s) {
    for (const char* name : {"ROS_LOCALHOST_ONLY", "ROS_SECURITY_ENABLE", "ROS_STATIC_PEERS", "RMW_FASTRTPS_USE_QOS_FROM_XML"})
        unsetenv(name);
    setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "SYSTEM_DEFAULT", 1);     // that of the participant's QoS
    setenv("RMW_FASTRTPS_PUBLICATION_MODE", s.asynchronous ? "ASYNCHRONOUS" : "SYNCHRONOUS", 1);
}

class Ros2 final : public Backend {
public:
    std::string version() const override {
        return "rcl " ROS2_RCL_VERSION ", rmw_fastrtps_cpp " ROS2_RMW_VERSION ", Fast DDS " FASTDDS_VERSION;
    }
    std::string unsupported(const Settings&) const override;
    void open(const Settings&, Events&) override;
    void close() override;
    Matches matches() override;
    TransportFacts facts() override { return fastdds_facts(settings_); }
    EffectiveQos effective_qos() override {
        return fastdds_effective_qos(settings_, *native(writers_.empty() ? announcement_writer_.front() : writers_.front()));
    }
    Written write(const Sample&) override;
    void flush() override {}
    std::string last_error() const override { return error_; }
    bool wait(int64_t timeout_ns) override;
    unsigned take() override;
    bool announce(const Announcement&) override;

private:
    struct Writer {
        rcl_publisher_t publisher = rcl_get_zero_initialized_publisher();
        rcl_event_t matched = rcl_get_zero_initialized_event();
        std::unique_ptr<Ros2Message> message;             // of data
    };
    struct Reader {
        Ros2* backend = nullptr;
        rcl_subscription_t subscription = rcl_get_zero_initialized_subscription();
        rcl_event_t matched = rcl_get_zero_initialized_event();
        std::unique_ptr<Ros2Message> message;             // of data
    };
    static DataWriter* native(const Writer& w) {
        return rmw_fastrtps_cpp::get_datawriter(rcl_publisher_get_rmw_handle(&w.publisher));
    }

    void create_node();
    void create_announcement_channel();
    void create_data_endpoints();
    void add_data_writer(const DataEndpoint&);
    void add_data_reader(const DataEndpoint&);
    Writer& add_writer(std::deque<Writer>&, Type, const std::string& topic, const EndpointQos&);
    Reader& add_reader(std::deque<Reader>&, Type, const std::string& topic, const EndpointQos&);
    void report_matches(rcl_event_t&);
    void call_on_message(Reader&, rcl_event_callback_t);
    unsigned take(const Reader&);
    void take_announcements();

    Settings settings_;
    FastDdsProfiles user_;
    Events* events_ = nullptr;
    rcl_context_t context_ = rcl_get_zero_initialized_context();
    rcl_node_t node_ = rcl_get_zero_initialized_node();
    rcl_wait_set_t wait_set_ = rcl_get_zero_initialized_wait_set();
    std::vector<DataEndpoint> written_, read_;            // complete before an endpoint exists
    std::deque<Writer> announcement_writer_, writers_;    // their elements stay where they are
    std::deque<Reader> announcement_reader_, readers_;
    std::atomic<bool> open_{false};                       // the endpoints are used by other threads only when it is set
    std::mutex receiving_;
    std::string error_;
};

std::string Ros2::unsupported(const Settings& s) const {
    const char* remedy = "; remove it, or use fastdds";
    if (s.keyed) return std::string("-keyed: topics of ros2-fastdds have no key") + remedy;
    if (s.scans) return std::string("-scan: a step is a number, with which no part of a topic's name in ROS 2 begins") + remedy;
    if (s.message_type == MessageType::imu && s.role == Role::publisher && s.data_length != imu_length)
        return "-dataLen: a sensor_msgs/msg/Imu has one length; give " + std::to_string(imu_length);
    if (s.discovery == Discovery::server)
        return std::string("-discovery server: ros2-fastdds has no discovery server") + remedy;
    // rmw creates the participant with the default QoS, of which the library ignores this part.
    if (s.flow_bytes) return std::string("-flowController: ros2-fastdds cannot limit the rate of a writer") + remedy;
    if (const std::string problem = fastdds_unsupported(s); !problem.empty()) return problem;
    FastDdsProfiles user;
    user.read(s);
    for (const char* element : {"participant/rtps/flow_controller_descriptor_list", "data_writer/historyMemoryPolicy",
                                "data_writer/qos/publishMode", "data_reader/historyMemoryPolicy"})
        if (user.sets(element))
            return "-middlewareConfig: " + s.middleware_config + ": " + element +
                   ": rmw_fastrtps_cpp sets or ignores this; remove it, or use fastdds";
    return "";
}

void Ros2::open(const Settings& settings, Events& events) {
    settings_ = settings;
    user_.read(settings);                                 // fastdds_unsupported() has reported problems
    events_ = &events;
    prepare_environment(settings);
    fastdds_prepare(settings);
    // rmw creates the participant with the default QoS.
    DomainParticipantQos participant = fastdds_participant(settings, user_);
    // A Cyclone DDS 0.10 that receives a type object of Fast DDS 3 crashes.
    participant.properties().properties().emplace_back("fastdds.type_propagation", "disabled");
    DomainParticipantFactory::get_instance()->set_default_participant_qos(participant);
    create_node();
    create_announcement_channel();
    create_data_endpoints();
    open_.store(true);
}

void Ros2::create_node() {
    rcl_init_options_t options = rcl_get_zero_initialized_init_options();
    check(rcl_init_options_init(&options, rcl_get_default_allocator()), "rcl_init_options_init");
    check(rcl_init_options_set_domain_id(&options, settings_.domain), "rcl_init_options_set_domain_id");
    check(rcl_init(0, nullptr, &options, &context_), "rcl_init");
    check(rcl_init_options_fini(&options), "rcl_init_options_fini");
    rcl_node_options_t node = rcl_node_get_default_options();
    node.enable_rosout = false;
    static constexpr const char* roles[] = {"publisher", "subscriber", "node"};
    const std::string name = roles[static_cast<size_t>(settings_.role)] + std::to_string(settings_.id);
    check(rcl_node_init(&node_, name.c_str(), "", &context_, &node), "rcl_node_init");
}

// Announcements have the library's own times: only an endpoint leads to the entities that have the default QoS of endpoints.
void Ros2::create_announcement_channel() {
    EndpointQos e;
    e.durability = EndpointQos::Durability::transient_local;
    e.keep_all = false;
    e.depth = 16;
    add_writer(announcement_writer_, ros2_announcement_type(), announcement_topic, e);
    e.keep_all = true;
    add_reader(announcement_reader_, ros2_announcement_type(), announcement_topic, e);
    call_on_message(announcement_reader_.front(), [](const void* reader, size_t) {
        static_cast<const Reader*>(reader)->backend->take_announcements();
    });
}

void Ros2::create_data_endpoints() {
    apply_test_qos(settings_);
    written_ = data_writers(settings_);
    read_ = data_readers(settings_);
    for (const DataEndpoint& written : written_) add_data_writer(written);
    for (const DataEndpoint& read : read_) add_data_reader(read);
    check(rcl_wait_set_init(&wait_set_, readers_.size(), 0, 0, 0, 0, 0, &context_, rcl_get_default_allocator()),
          "rcl_wait_set_init");
}

// rmw creates an endpoint with the default QoS, except for the policies that it states.
void Ros2::add_data_writer(const DataEndpoint& endpoint) {
    auto* publisher = const_cast<Publisher*>(native(announcement_writer_.front())->get_publisher());
    publisher->set_default_datawriter_qos(fastdds_data_writer_qos(*publisher, settings_, endpoint, user_));
    const Type type = ros2_type_support(settings_.message_type);
    Writer& writer = add_writer(writers_, type, endpoint.topic, endpoint.qos);
    writer.message = make_ros2_message(settings_.message_type, endpoint.length);
    check(rcl_publisher_event_init(&writer.matched, &writer.publisher, RCL_PUBLISHER_MATCHED), "rcl_publisher_event_init");
    report_matches(writer.matched);
}

void Ros2::add_data_reader(const DataEndpoint& endpoint) {
    const rcl_subscription_t& announcements = announcement_reader_.front().subscription;
    auto* subscriber = const_cast<Subscriber*>(
        rmw_fastrtps_cpp::get_datareader(rcl_subscription_get_rmw_handle(&announcements))->get_subscriber());
    subscriber->set_default_datareader_qos(fastdds_data_reader_qos(*subscriber, settings_, endpoint, user_));
    const Type type = ros2_type_support(settings_.message_type);
    Reader& reader = add_reader(readers_, type, endpoint.topic, endpoint.qos);
    reader.message = make_ros2_message(settings_.message_type, endpoint.length);
    // An event that is not taken would end each rcl_wait() at once. The program asks for matches from time to time, too.
    if (settings_.receive != Receive::waitset) {
        check(rcl_subscription_event_init(&reader.matched, &reader.subscription, RCL_SUBSCRIPTION_MATCHED),
              "rcl_subscription_event_init");
        report_matches(reader.matched);
    }
    if (settings_.receive == Receive::listener)
        call_on_message(reader, [](const void* self, size_t) {
            const auto* reader = static_cast<const Reader*>(self);
            reader->backend->take(*reader);
        });
}

Ros2::Writer& Ros2::add_writer(std::deque<Writer>& writers, Type type, const std::string& topic, const EndpointQos& e) {
    rcl_publisher_options_t options = rcl_publisher_get_default_options();
    options.qos = rmw_qos(e);
    Writer& writer = writers.emplace_back();
    check(rcl_publisher_init(&writer.publisher, &node_, type, topic.c_str(), &options), topic);
    return writer;
}

Ros2::Reader& Ros2::add_reader(std::deque<Reader>& readers, Type type, const std::string& topic, const EndpointQos& e) {
    rcl_subscription_options_t options = rcl_subscription_get_default_options();
    options.qos = rmw_qos(e);
    Reader& reader = readers.emplace_back();
    reader.backend = this;
    check(rcl_subscription_init(&reader.subscription, &node_, type, topic.c_str(), &options), topic);
    return reader;
}

void Ros2::report_matches(rcl_event_t& matched) {
    const auto callback = [](const void* events, size_t) {
        const_cast<Events*>(static_cast<const Events*>(events))->on_match();
    };
    check(rcl_event_set_callback(&matched, callback, events_), "rcl_event_set_callback");
}

void Ros2::call_on_message(Reader& reader, rcl_event_callback_t callback) {
    check(rcl_subscription_set_on_new_message_callback(&reader.subscription, callback, &reader),
          "rcl_subscription_set_on_new_message_callback");
}

void Ros2::close() {
    if (!rcl_context_is_valid(&context_)) return;
    open_.store(false);
    for (auto* readers : {&readers_, &announcement_reader_})
        for (Reader& reader : *readers) {
            // Remove the callbacks first: none may use an entity that is being deleted.
            ignore(rcl_subscription_set_on_new_message_callback(&reader.subscription, nullptr, nullptr));
            ignore(rcl_event_set_callback(&reader.matched, nullptr, nullptr));
            ignore(rcl_event_fini(&reader.matched));
            ignore(rcl_subscription_fini(&reader.subscription, &node_));
        }
    for (auto* writers : {&writers_, &announcement_writer_})
        for (Writer& writer : *writers) {
            ignore(rcl_event_set_callback(&writer.matched, nullptr, nullptr));
            ignore(rcl_event_fini(&writer.matched));
            ignore(rcl_publisher_fini(&writer.publisher, &node_));
        }
    ignore(rcl_wait_set_fini(&wait_set_));
    ignore(rcl_node_fini(&node_));
    ignore(rcl_shutdown(&context_));
    ignore(rcl_context_fini(&context_));
}

Matches Ros2::matches() {
    if (!open_.load()) return {0, 0, UINT_MAX};
    MatchCounter counter;
    for (size_t n = 0; n < writers_.size(); ++n) {
        size_t matched = 0;
        ignore(rcl_publisher_get_subscription_count(&writers_[n].publisher, &matched));
        counter.writer(written_[n], static_cast<unsigned>(matched));
    }
    for (size_t n = 0; n < readers_.size(); ++n) {
        size_t matched = 0;
        ignore(rcl_subscription_get_publisher_count(&readers_[n].subscription, &matched));
        counter.reader(read_[n], static_cast<unsigned>(matched));
    }
    return counter.matches();
}

Written Ros2::write(const Sample& sample) {
    const size_t number = sample.writer < writers_.size() ? sample.writer : 0;               // of a pong: the only one
    const Writer& writer = writers_[number];
    if (__builtin_expect(rcl_publish(&writer.publisher, writer.message->fill(sample), nullptr) == RCL_RET_OK, 1)) return Written::ok;
    rcl_reset_error();                                    // its text is always "cannot publish data"
    error_ = "rcl_publish failed";
    // rmw does not report why. A reliable writer fails when it is full, or has waited for room as long as it may.
    return written_[number].qos.reliable ? Written::blocked : Written::failed;
}

bool Ros2::wait(int64_t timeout_ns) {
    ignore(rcl_wait_set_clear(&wait_set_));
    for (Reader& reader : readers_) ignore(rcl_wait_set_add_subscription(&wait_set_, &reader.subscription, nullptr));
    const bool arrived = rcl_wait(&wait_set_, timeout_ns) == RCL_RET_OK;
    if (!arrived) rcl_reset_error();
    return arrived;
}

unsigned Ros2::take() {
    unsigned taken = 0;
    for (Reader& reader : readers_) taken += take(reader);
    return taken;
}

unsigned Ros2::take(const Reader& reader) {
    const ReceiveLock lock(receiving_, readers_.size() > 1);
    rmw_message_info_t info;
    unsigned taken = 0;
    while (rcl_take(&reader.subscription, reader.message->target(), &info, nullptr) == RCL_RET_OK) {
        events_->on_sample(reader.message->sample());
        ++taken;
    }
    rcl_reset_error();
    if (taken) events_->on_received();
    else if (settings_.receive == Receive::spin) sched_yield();   // the library's receiving thread may share the core
    return taken;
}

bool Ros2::announce(const Announcement& announcement) {
    if (announcement_writer_.empty()) return false;
    const bool sent = rcl_publish(&announcement_writer_.front().publisher, &announcement, nullptr) == RCL_RET_OK;
    if (!sent) rcl_reset_error();
    return sent;
}

void Ros2::take_announcements() {
    Announcement announcement;
    rmw_message_info_t info;
    while (rcl_take(&announcement_reader_.front().subscription, &announcement, &info, nullptr) == RCL_RET_OK)
        events_->on_announcement(announcement);
    rcl_reset_error();
}

}  // namespace
}  // namespace k8sdds

unsigned k8sdds_backend_interface() { return k8sdds::backend_interface; }
k8sdds::Backend* k8sdds_backend_create() { return new k8sdds::Ros2(); }
