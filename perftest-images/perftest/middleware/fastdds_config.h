// The configuration of Fast DDS, derived from the options and the user's own configuration file.
#pragma once

#include <fastdds/dds/domain/qos/DomainParticipantQos.hpp>
#include <fastdds/rtps/flowcontrol/FlowControllerDescriptor.hpp>

#include <string>

#include "backend.h"
#include "config_file.h"
#include "fastdds_api.h"

namespace k8sdds {

// Returns the length of the longest message, usually that of Cyclone DDS.
uint32_t fastdds_max_message(const Settings&);

// Returns the length of a fragment without DDS Security. The library has no setting for it: fragments fill a message.
uint32_t fastdds_fragment(const Settings&);

// The name of the participant's flow controller for samples, if their rate is limited.
constexpr const char* fastdds_flow_controller = "k8sdds-samples";

// Returns why these settings are not supported, with the fix; empty if they are. If they are, the library has loaded the
// profiles of the user's configuration file.
std::string fastdds_unsupported(const Settings&);

// The user's configuration file: at most one profile for participants, data writers and data readers each.
class FastDdsProfiles {
public:
    std::string read(const Settings&);                    // returns why it is refused; empty if it is not
    bool sets(const std::string& element) const { return file_.has("profiles/" + element); }
    std::string name(const std::string& kind) const;      // of the profile `data_writer`, …; empty: none
    std::string text() const { return file_.text(); }

private:
    std::string check_properties(const std::string& kind) const;

    ConfigFile file_;
};

// Prepares the library: its environment and its log. Waits until the interface has a carrier; throws if it has none.
void fastdds_prepare(const Settings&);

eprosima::fastdds::dds::DomainParticipantQos fastdds_participant(const Settings&, const FastDdsProfiles&);

// Returns the locator of the data readers with -multicast: the group and the domain's port for user multicast.
fastdds_api::rtps::Locator_t fastdds_multicast(const Settings&);

// Puts a member of a fleet into the prefix of its GUID, and reads it from the GUID of one of its endpoints.
void fastdds_set_member(fastdds_api::rtps::GuidPrefix_t&, const MemberId&);
MemberId fastdds_member(const fastdds_api::rtps::GUID_t&);

TransportFacts fastdds_facts(const Settings&);

// Returns how many unacknowledged samples of this length a reliable writer keeps before it blocks.
int32_t fastdds_send_queue(const Settings&, uint64_t data_length);

}  // namespace k8sdds
