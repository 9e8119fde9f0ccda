// What Fast DDS is told, made from the options alone.
#pragma once

#include <fastdds/dds/domain/qos/DomainParticipantQos.hpp>

#include <string>

#include "backend.h"

namespace k8sdds {

// The datagrams are as long as Cyclone DDS's at most. A fragment has no length of its own: it fills a message.
constexpr uint32_t fastdds_max_message = 14720;
constexpr uint32_t fastdds_message_overhead = 92;         // what the library keeps free for headers, measured

std::string fastdds_refuse(const Settings&);
eprosima::fastdds::dds::DomainParticipantQos fastdds_participant(const Settings&);

// Where the readers of samples listen with -multicast: the address and DDS's own port of the domain.
eprosima::fastrtps::rtps::Locator_t fastdds_multicast(const Settings&);

// How many samples a reliable writer keeps unacknowledged before it blocks.
int32_t fastdds_send_queue(const Settings&);

}  // namespace k8sdds
