// The configuration of Fast DDS, derived from the options alone.
#pragma once

#include <fastdds/dds/domain/qos/DomainParticipantQos.hpp>

#include <string>

#include "backend.h"
#include "fastdds_api.h"

namespace k8sdds {

// The maximum message length is that of Cyclone DDS. The library has no setting for the length of fragments: they
// fill a message. The 176 bytes of overhead were read from captured DATA_FRAG submessages (Fast DDS 2.9).
constexpr uint32_t fastdds_max_message = 14720;
constexpr uint32_t fastdds_fragment = fastdds_max_message - 176;

// Returns why these settings are not supported, with the fix; empty if they are.
std::string fastdds_unsupported(const Settings&);

eprosima::fastdds::dds::DomainParticipantQos fastdds_participant(const Settings&);

// Returns the locator of the data readers with -multicast: the group and the domain's port for user multicast.
fastdds_api::rtps::Locator_t fastdds_multicast(const Settings&);

// Returns how many unacknowledged samples a reliable writer keeps before it blocks.
int32_t fastdds_send_queue(const Settings&);

}  // namespace k8sdds
