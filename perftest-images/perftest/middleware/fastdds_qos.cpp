#include "fastdds_qos.h"

#include <algorithm>
#include <climits>
#include <fastdds/dds/domain/DomainParticipant.hpp>
#include <string>

#include "common.h"

namespace k8sdds {

using namespace eprosima::fastdds::dds;

fastdds_api::Duration_t fastdds_duration(int64_t ns) {
    if (ns == infinite) return fastdds_api::c_TimeInfinite;
    return {static_cast<int32_t>(ns / 1'000'000'000), static_cast<uint32_t>(ns % 1'000'000'000)};
}

DataWriterQos fastdds_writer_qos(const Publisher& publisher, const Settings& s, const EndpointQos& e,
                                 const FastDdsProfiles& user, uint32_t instances, uint64_t length) {
    DataWriterQos qos = publisher.get_default_datawriter_qos();
    if (const std::string name = user.name("data_writer"); !name.empty())
        publisher.get_datawriter_qos_from_profile(name, qos);
    const int64_t blocking = e.max_blocking_ns == infinite ? s.write_slice_ns
                                                           : std::min(e.max_blocking_ns, s.write_slice_ns);
    qos.reliability().kind = e.reliable ? RELIABLE_RELIABILITY_QOS : BEST_EFFORT_RELIABILITY_QOS;
    // The program repeats a blocked write(). It blocks in slices, so that the end of the test, a signal or the loss
    // of a peer is noticed in between.
    qos.reliability().max_blocking_time = fastdds_duration(blocking);
    qos.durability().kind = e.durability == EndpointQos::Durability::transient_local ? TRANSIENT_LOCAL_DURABILITY_QOS
                                                                                     : VOLATILE_DURABILITY_QOS;
    qos.history().kind = e.keep_all ? KEEP_ALL_HISTORY_QOS : KEEP_LAST_HISTORY_QOS;
    qos.history().depth = static_cast<int32_t>(e.depth);
    auto& limits = qos.resource_limits();
    // The instances are written in turn, so each has an equal share of the queue.
    limits.max_instances = static_cast<int32_t>(instances);
    limits.max_samples = e.keep_all ? fastdds_send_queue(s, length)
                                    : static_cast<int32_t>(std::min<int64_t>(e.depth * limits.max_instances, INT32_MAX));
    limits.max_samples_per_instance = limits.max_samples / limits.max_instances;
    limits.allocated_samples = std::min(limits.max_samples, 64);
    // A payload is returned to the pool only after it has been sent, even if the history has dropped its sample. With
    // the default of 1, Fast DDS 3 often had none for a sample of several fragments that replaced another.
    limits.extra_samples = 16;
    qos.deadline().period = fastdds_duration(e.deadline_ns);
    qos.latency_budget().duration = fastdds_duration(e.latency_budget_ns);
    qos.lifespan().duration = fastdds_duration(e.lifespan_ns);
    // A history of one sample is always full, so the library would request an acknowledgment with each sample.
    const bool keeps_one = !e.keep_all && e.depth == 1;
    qos.reliable_writer_qos().disable_heartbeat_piggyback = keeps_one;
    // Periodic heartbeats are for the tail of a stream: a full queue and a full send buffer trigger the others. After
    // each sample the library starts the timer of the NACK suppression. With its default of 0, each sample wakes the
    // timer thread, which then walks through all unacknowledged samples. The timer delays a repair by at most its time.
    constexpr int64_t heartbeat_ns = 10'000'000, suppression_ns = 1'000'000;
    if (!user.sets("data_writer/times"))
        fastdds_api::set_writer_times(qos, fastdds_duration(heartbeat_ns),
                                      fastdds_duration(keeps_one ? heartbeat_ns : suppression_ns));
    if (s.security.enabled())
        qos.properties().properties().emplace_back("dds.sec.crypto.keysize",
                                                   s.security.key_bits == 256 ? "256" : "128");
    if (!user.sets("data_writer/qos/publishMode")) qos.publish_mode().kind = SYNCHRONOUS_PUBLISH_MODE;
    if (!user.sets("data_writer/historyMemoryPolicy"))
        qos.endpoint().history_memory_policy = fastdds_api::rtps::PREALLOCATED_WITH_REALLOC_MEMORY_MODE;
    qos.data_sharing().off();
    return qos;
}

DataWriterQos fastdds_data_writer_qos(const Publisher& publisher, const Settings& s, const DataEndpoint& writer,
                                      const FastDdsProfiles& user) {
    DataWriterQos qos = fastdds_writer_qos(publisher, s, writer.qos, user, s.instances, writer.length);
    if (s.asynchronous) qos.publish_mode().kind = ASYNCHRONOUS_PUBLISH_MODE;
    if (s.flow_bytes) qos.publish_mode().flow_controller_name = fastdds_flow_controller;
    return qos;
}

DataReaderQos fastdds_reader_qos(const Subscriber& subscriber, const Settings& s, const EndpointQos& e,
                                 const FastDdsProfiles& user) {
    DataReaderQos qos = subscriber.get_default_datareader_qos();
    if (const std::string name = user.name("data_reader"); !name.empty())
        subscriber.get_datareader_qos_from_profile(name, qos);
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
    if (s.keyed && limits.max_samples) {           // the library then requires the other limits too
        if (!limits.max_instances) limits.max_instances = static_cast<int32_t>(s.instances);
        if (!limits.max_samples_per_instance)
            limits.max_samples_per_instance = std::max(limits.max_samples / limits.max_instances, 1);
    }
    limits.allocated_samples = limits.max_samples ? std::min(limits.max_samples, 64) : 64;
    qos.deadline().period = fastdds_duration(e.deadline_ns);
    qos.latency_budget().duration = fastdds_duration(e.latency_budget_ns);
    if (s.security.enabled())
        qos.properties().properties().emplace_back("dds.sec.crypto.keysize",
                                                   s.security.key_bits == 256 ? "256" : "128");
    if (!user.sets("data_reader/times")) fastdds_api::acknowledge_at_once(qos);
    if (!user.sets("data_reader/historyMemoryPolicy"))
        qos.endpoint().history_memory_policy = fastdds_api::rtps::PREALLOCATED_WITH_REALLOC_MEMORY_MODE;
    qos.data_sharing().off();
    return qos;
}

DataReaderQos fastdds_data_reader_qos(const Subscriber& subscriber, const Settings& s, const DataEndpoint& reader,
                                      const FastDdsProfiles& user) {
    DataReaderQos qos = fastdds_reader_qos(subscriber, s, reader.qos, user);
    // A reader that announces only the group receives every sample by multicast. If it also announced unicast
    // addresses, the library would use them for a single reader.
    if (s.multicast) qos.endpoint().multicast_locator_list.push_back(fastdds_multicast(s));
    return qos;
}

EffectiveQos fastdds_effective_qos(const Settings& s, const DataWriter& writer) {
    auto qos = effective_qos_of(s.qos);
    // The length of a queue depends on that of the samples, which each flow of a node has of its own.
    if (s.role != Role::node && s.qos.writer.reliable && s.qos.writer.keep_all)
        qos["send_queue"] = fastdds_send_queue(s, s.data_length);
    const bool asynchronous = writer.get_qos().publish_mode().kind == ASYNCHRONOUS_PUBLISH_MODE;
    qos["publish_mode"] = asynchronous ? "asynchronous" : "synchronous";
    qos["flow_bytes"] = qos["flow_period_ms"] = nullptr;
    for (const auto& controller : writer.get_publisher()->get_participant()->get_qos().flow_controllers()) {
        if (std::string(controller->name) != fastdds_flow_controller) continue;
        qos["flow_bytes"] = int64_t{controller->max_bytes_per_period};
        qos["flow_period_ms"] = static_cast<int64_t>(controller->period_ms);
    }
    return qos;
}

}  // namespace k8sdds
