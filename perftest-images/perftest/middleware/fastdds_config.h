// The configuration of Fast DDS, derived from the options alone.
#pragma once

#include <fastdds/dds/domain/qos/DomainParticipantQos.hpp>

#include <string>

#include "backend.h"
#include "fastdds_api.h"

namespace k8sdds {

// Returns the length of the longest message, usually that of Cyclone DDS.
uint32_t fastdds_max_message(const Settings&);

// Returns the length of a fragment without DDS Security. The library has no setting for it: fragments fill a message.
uint32_t fastdds_fragment(const Settings&);

// Returns why these settings are not supported, with the fix; empty if they are.
std::string fastdds_unsupported(const Settings&);

eprosima::fastdds::dds::DomainParticipantQos fastdds_participant(const Settings&);

// Returns the locator of the data readers with -multicast: the group and the domain's port for user multicast.
fastdds_api::rtps::Locator_t fastdds_multicast(const Settings&);

// Returns how many unacknowledged samples a reliable writer keeps before it blocks.
int32_t fastdds_send_queue(const Settings&);

}  // namespace k8sdds
