// What Fast DDS is told, made from the options alone.
#pragma once

#include <fastdds/dds/domain/qos/DomainParticipantQos.hpp>

#include <string>

#include "backend.h"

namespace k8sdds {

// The datagrams are as long as Cyclone DDS's at most. A fragment has no length of its own: it is what the
// library leaves of a message, 176 bytes less as read from its DATA_FRAGs on a link (version 2.9).
constexpr uint32_t fastdds_max_message = 14720;
constexpr uint32_t fastdds_fragment = fastdds_max_message - 176;

std::string fastdds_refuse(const Settings&);
eprosima::fastdds::dds::DomainParticipantQos fastdds_participant(const Settings&);

// Where the readers of samples listen with -multicast: the address and DDS's own port of the domain.
eprosima::fastrtps::rtps::Locator_t fastdds_multicast(const Settings&);

// How many samples a reliable writer keeps unacknowledged before it blocks.
int32_t fastdds_send_queue(const Settings&);

}  // namespace k8sdds
