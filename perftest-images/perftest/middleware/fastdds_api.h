// The API of Fast DDS 3 as far as the backend uses it, also for Fast DDS 2.9. All differences of the two are here.
#pragma once

#include <fastcdr/Cdr.h>

#include <fastdds/dds/domain/DomainParticipantFactory.hpp>
#include <fastdds/dds/publisher/qos/DataWriterQos.hpp>
#include <fastdds/dds/subscriber/qos/DataReaderQos.hpp>
#include <fastdds/dds/topic/TopicDataType.hpp>
#include <openssl/evp.h>

#include <cstdint>
#include <functional>
#include <string>

#if FASTDDS_MAJOR >= 3
#include <fastdds/config.hpp>
#include <fastdds/LibrarySettings.hpp>
#include <fastdds/rtps/transport/UDPv4TransportDescriptor.hpp>
#include <fastdds/rtps/transport/UDPv6TransportDescriptor.hpp>
#include <fastdds/rtps/transport/shared_mem/SharedMemTransportDescriptor.hpp>
#include <fastdds/utils/IPLocator.hpp>
#else
#include <fastdds/rtps/transport/UDPv4TransportDescriptor.h>
#include <fastrtps/config.h>
#include <fastdds/rtps/transport/UDPv6TransportDescriptor.h>
#include <fastdds/rtps/transport/shared_mem/SharedMemTransportDescriptor.h>
#include <fastrtps/utils/IPLocator.h>
#include <fastrtps/xmlparser/XMLProfileManager.h>

#include <cstdio>
#endif

namespace k8sdds::fastdds_api {

using eprosima::fastcdr::Cdr;

#if FASTDDS_MAJOR >= 3
namespace rtps = eprosima::fastdds::rtps;
using eprosima::fastdds::dds::c_TimeInfinite;
using eprosima::fastdds::dds::Duration_t;
using eprosima::fastdds::dds::RETCODE_OK;
using eprosima::fastdds::dds::RETCODE_OUT_OF_RESOURCES;
using eprosima::fastdds::dds::RETCODE_TIMEOUT;
using eprosima::fastdds::dds::ReturnCode_t;
constexpr auto dds_cdr = eprosima::fastcdr::CdrVersion::DDS_CDR;
#else
namespace rtps = eprosima::fastrtps::rtps;
using eprosima::fastrtps::c_TimeInfinite;
using eprosima::fastrtps::Duration_t;
using eprosima::fastrtps::types::ReturnCode_t;
constexpr auto RETCODE_OK = ReturnCode_t::RETCODE_OK;
constexpr auto RETCODE_OUT_OF_RESOURCES = ReturnCode_t::RETCODE_OUT_OF_RESOURCES;
constexpr auto RETCODE_TIMEOUT = ReturnCode_t::RETCODE_TIMEOUT;
constexpr auto dds_cdr = Cdr::DDS_CDR;
#endif

// Returns the number of a return code.
inline uint32_t number(const ReturnCode_t& code) {
#if FASTDDS_MAJOR >= 3
    return static_cast<uint32_t>(code);
#else
    return code();
#endif
}

inline void disable_intraprocess_delivery() {
#if FASTDDS_MAJOR >= 3
    eprosima::fastdds::LibrarySettings settings;
    settings.intraprocess_delivery = eprosima::fastdds::INTRAPROCESS_OFF;
    eprosima::fastdds::dds::DomainParticipantFactory::get_instance()->set_library_settings(settings);
#else
    eprosima::fastrtps::LibrarySettingsAttributes settings;
    settings.intraprocess_delivery = eprosima::fastrtps::INTRAPROCESS_OFF;
    eprosima::fastrtps::xmlparser::XMLProfileManager::library_settings(settings);
#endif
}

// Makes a participant the client of the server that was started as fast-discovery-server -i ID. A super client gets what
// the server knows of all participants, and not only of those with endpoints that match its own.
inline void add_discovery_server(rtps::BuiltinAttributes& builtin, size_t id, const rtps::Locator_t& address, bool super) {
    builtin.discovery_config.discoveryProtocol = super ? rtps::DiscoveryProtocol::SUPER_CLIENT : rtps::DiscoveryProtocol::CLIENT;
#if FASTDDS_MAJOR >= 3
    static_cast<void>(id);                                // servers are identified by their address
    builtin.discovery_config.m_DiscoveryServers.push_back(address);
#else
    char prefix[40];
    std::snprintf(prefix, sizeof prefix, "44.53.%02zx.5f.45.50.52.4f.53.49.4d.41", id & 0xff);
    rtps::RemoteServerAttributes server;
    server.ReadguidPrefix(prefix);
    server.metatrafficUnicastLocatorList.push_back(address);
    builtin.discovery_config.m_DiscoveryServers.push_back(server);
#endif
}

inline void set_writer_times(eprosima::fastdds::dds::DataWriterQos& qos, Duration_t heartbeat_period,
                             Duration_t nack_suppression) {
    auto& times = qos.reliable_writer_qos().times;
    const Duration_t at_once{0, 0};
#if FASTDDS_MAJOR >= 3
    times.initial_heartbeat_delay = times.nack_response_delay = at_once;
    times.nack_supression_duration = nack_suppression;
    times.heartbeat_period = heartbeat_period;
#else
    times.initialHeartbeatDelay = times.nackResponseDelay = at_once;
    times.nackSupressionDuration = nack_suppression;
    times.heartbeatPeriod = heartbeat_period;
#endif
}

inline void acknowledge_at_once(eprosima::fastdds::dds::DataReaderQos& qos) {
    auto& times = qos.reliable_reader_qos().times;
#if FASTDDS_MAJOR >= 3
    times.initial_acknack_delay = times.heartbeat_response_delay = Duration_t{0, 0};
#else
    times.initialAcknackDelay = times.heartbeatResponseDelay = Duration_t{0, 0};
#endif
}

template <typename T>
void write_array(Cdr& cdr, const T* values, size_t count) {
#if FASTDDS_MAJOR >= 3
    cdr.serialize_array(values, count);
#else
    cdr.serializeArray(values, count);
#endif
}

template <typename T>
void read_array(Cdr& cdr, T* values, size_t count) {
#if FASTDDS_MAJOR >= 3
    cdr.deserialize_array(values, count);
#else
    cdr.deserializeArray(values, count);
#endif
}

// Returns whether the buffer still has this many bytes.
inline bool fits(Cdr& cdr, size_t bytes) {
#if FASTDDS_MAJOR >= 3
    const Cdr::state here = cdr.get_state();
    const bool enough = cdr.jump(bytes);
    cdr.set_state(here);
#else
    Cdr::state here = cdr.getState();
    const bool enough = cdr.jump(bytes);
    cdr.setState(here);
#endif
    return enough;
}

// A type whose name is all that participants compare, without a key or with a key of one 32-bit integer.
class WireType : public eprosima::fastdds::dds::TopicDataType {
public:
    using Payload = rtps::SerializedPayload_t;

    using Key = uint32_t;

    WireType(const std::string& name, uint32_t max_size, bool keyed) {
#if FASTDDS_MAJOR >= 3
        set_name(name);
        max_serialized_type_size = max_size;
        is_compute_key_provided = keyed;
#else
        setName(name.c_str());
        m_typeSize = max_size;
        m_isGetKeyDefined = keyed;
        auto_fill_type_information(false);
        auto_fill_type_object(false);
#endif
    }

protected:
    // Return false if the payload is too short.
    virtual bool write(const void* sample, Payload& payload) const = 0;
    virtual bool read(Payload& payload, void* taken) const = 0;
    // Returns the size of a serialized sample in bytes.
    virtual uint32_t size(const void* sample) const = 0;
    virtual void* create() const = 0;
    virtual void destroy(void* taken) const = 0;
    // Return false if the type has no key, or the payload is too short. key_of() also gets what create() returned.
    virtual bool key_of(const void*, Key&) const { return false; }
    virtual bool key_in(Payload&, Key&) const { return false; }

private:
    // Sets the handle to the RTPS key hash: the key in big-endian order, and its MD5 sum if the key is protected.
    static bool set_handle(Key key, bool protect, rtps::InstanceHandle_t& handle) {
        uint8_t hash[16] = {uint8_t(key >> 24), uint8_t(key >> 16), uint8_t(key >> 8), uint8_t(key)};
        if (protect && EVP_Digest(hash, sizeof key, hash, nullptr, EVP_md5(), nullptr) != 1) return false;
        for (unsigned i = 0; i < sizeof hash; ++i) handle.value[i] = hash[i];
        return true;
    }
#if FASTDDS_MAJOR >= 3
    using Representation = eprosima::fastdds::dds::DataRepresentationId_t;
    bool serialize(const void* const s, Payload& payload, Representation) final { return write(s, payload); }
    bool deserialize(Payload& payload, void* taken) final { return read(payload, taken); }
    uint32_t calculate_serialized_size(const void* const sample, Representation) final { return size(sample); }
    void* create_data() final { return create(); }
    void delete_data(void* taken) final { destroy(taken); }
    bool compute_key(Payload& payload, rtps::InstanceHandle_t& handle, bool protect) final {
        Key key = 0;
        return key_in(payload, key) && set_handle(key, protect, handle);
    }
    bool compute_key(const void* const sample, rtps::InstanceHandle_t& handle, bool protect) final {
        Key key = 0;
        return key_of(sample, key) && set_handle(key, protect, handle);
    }
#else
    bool serialize(void* sample, Payload* payload) final { return write(sample, *payload); }
    bool deserialize(Payload* payload, void* taken) final { return read(*payload, taken); }
    std::function<uint32_t()> getSerializedSizeProvider(void* sample) final {
        return [this, sample] { return size(sample); };
    }
    void* createData() final { return create(); }
    void deleteData(void* taken) final { destroy(taken); }
    bool getKey(void* sample, rtps::InstanceHandle_t* handle, bool protect) final {
        Key key = 0;
        return key_of(sample, key) && set_handle(key, protect, *handle);
    }
#endif
};

}  // namespace k8sdds::fastdds_api
