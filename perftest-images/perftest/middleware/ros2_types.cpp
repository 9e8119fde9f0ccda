#include "ros2_types.h"

#include <fastcdr/exceptions/Exception.h>
#include <rosidl_typesupport_fastrtps_cpp/identifier.hpp>
#include <rosidl_typesupport_fastrtps_cpp/message_type_support.h>
#include <rosidl_typesupport_introspection_cpp/field_types.hpp>
#include <rosidl_typesupport_introspection_cpp/identifier.hpp>
#include <rosidl_typesupport_introspection_cpp/message_introspection.hpp>

#include <cstring>

#include "common.h"
#include "fastdds_wire.h"

namespace k8sdds {
namespace {

using fastdds_api::Cdr;
using rosidl_typesupport_introspection_cpp::MessageMember;
using rosidl_typesupport_introspection_cpp::MessageMembers;
namespace types = rosidl_typesupport_introspection_cpp;

constexpr const char* message_namespace = "k8sdds_msgs::msg";    // the DDS types are k8sdds_msgs::msg::dds_::Sample_, …

// Serializes messages for rmw_fastrtps_cpp with the functions of the backend fastdds.
template <typename Written>
bool serialize(const void* message, Cdr& cdr) {
    try {
        write(cdr, *static_cast<const Written*>(message));
    } catch (const eprosima::fastcdr::exception::Exception&) {
        return false;
    }
    return true;
}

template <typename Taken>
bool deserialize(Cdr& cdr, void* message) {
    try {
        read(cdr, *static_cast<Taken*>(message));
    } catch (const eprosima::fastcdr::exception::Exception&) {
        return false;
    }
    return true;
}

uint32_t sample_length(const void* sample) { return wire_length(*static_cast<const Sample*>(sample)); }
size_t longest_sample(char& bounds) {
    bounds = ROSIDL_TYPESUPPORT_FASTRTPS_UNBOUNDED_TYPE;
    return sample_overhead;                               // without its sequence, as rosidl counts
}
uint32_t length_of_announcement(const void*) { return announcement_length; }
size_t longest_announcement(char& bounds) {
    bounds = ROSIDL_TYPESUPPORT_FASTRTPS_BOUNDED_TYPE;
    return announcement_length;
}

// A member of a message: an array of `length` elements, or a sequence if that is 0.
constexpr size_t single = SIZE_MAX;
MessageMember member(const char* name, uint8_t type, size_t length = single) {
    MessageMember m{};
    m.name_ = name;
    m.type_id_ = type;
    m.is_array_ = length != single;
    m.array_size_ = length == single ? 0 : length;
    return m;
}

// rmw reads the names and types of members, for the type object. It reads messages only with the functions above.
const MessageMember sample_members[] = {member("head", types::ROS_TYPE_UINT32, head_words), member("payload", types::ROS_TYPE_UINT8, 0)};
const MessageMember announcement_members[] = {
    member("kind", types::ROS_TYPE_UINT8),     member("role", types::ROS_TYPE_UINT8),
    member("id", types::ROS_TYPE_UINT16),      member("to", types::ROS_TYPE_UINT16),
    member("version", types::ROS_TYPE_UINT16), member("instance", types::ROS_TYPE_UINT32),
    member("run", types::ROS_TYPE_UINT32),     member("nonce", types::ROS_TYPE_UINT64),
    member("value", types::ROS_TYPE_INT64, announcement_values)};

struct MessageType {
    message_type_support_callbacks_t callbacks;
    MessageMembers members;
    rosidl_type_hash_t hash;
    rosidl_runtime_c__type_description__TypeDescription description;
    rosidl_message_type_support_t fast, introspection;
    rosidl_message_type_support_t any;                    // of which rmw requests the one or the other
};

// The hashes are those of rosidl for messages with these members.
MessageType sample{
    {message_namespace, "Sample", serialize<Sample>, deserialize<TakenSample>, sample_length, longest_sample, nullptr},
    {message_namespace, "Sample", std::size(sample_members), sizeof(TakenSample), false, sample_members, nullptr, nullptr},
    {1, {0x06, 0xe5, 0x18, 0x83, 0x93, 0x63, 0x9e, 0x71, 0x0c, 0x47, 0x1c, 0xee, 0xb3, 0xe9, 0x25, 0x4d,
         0x4a, 0x66, 0x66, 0x82, 0x74, 0x75, 0x70, 0xe6, 0x27, 0xd4, 0xcb, 0xe7, 0x8b, 0x2c, 0x32, 0x1e}},
    {}, {}, {}, {}};
MessageType announcement{
    {message_namespace, "Announcement", serialize<Announcement>, deserialize<Announcement>, length_of_announcement, longest_announcement,
     nullptr},
    {message_namespace, "Announcement", std::size(announcement_members), sizeof(Announcement), false, announcement_members, nullptr,
     nullptr},
    {1, {0x06, 0xc8, 0x58, 0x41, 0x0c, 0xd8, 0xc2, 0x94, 0x18, 0xfb, 0x8f, 0x28, 0x05, 0xdb, 0x84, 0x96,
         0x1c, 0x1d, 0xb0, 0x4a, 0x62, 0x55, 0xea, 0xc0, 0xe0, 0x36, 0xb4, 0x7b, 0xed, 0xe3, 0xba, 0x0e}},
    {}, {}, {}, {}};

// Returns the type support with the identifier, or none. The dispatcher of rosidl would load a library for each.
template <MessageType& type>
const rosidl_message_type_support_t* find(const rosidl_message_type_support_t*, const char* identifier) {
    for (const auto* each : {&type.fast, &type.introspection})
        if (std::strcmp(each->typesupport_identifier, identifier) == 0) return each;
    return nullptr;
}

// rcl keeps the descriptions for a service that the backend does not start; they have the name only.
template <MessageType& type>
const rosidl_message_type_support_t* support() {
    static const rosidl_message_type_support_t* const made = [] {
        const rosidl_message_type_support_t common{
            nullptr, nullptr, find<type>,
            [](const rosidl_message_type_support_t*) -> const rosidl_type_hash_t* { return &type.hash; },
            [](const rosidl_message_type_support_t*) -> const rosidl_runtime_c__type_description__TypeDescription* {
                return &type.description;
            },
            [](const rosidl_message_type_support_t*) -> const rosidl_runtime_c__type_description__TypeSource__Sequence* {
                static const rosidl_runtime_c__type_description__TypeSource__Sequence none{};
                return &none;
            }};
        type.fast = type.introspection = type.any = common;
        type.fast.typesupport_identifier = rosidl_typesupport_fastrtps_cpp::typesupport_identifier;
        type.fast.data = &type.callbacks;
        type.introspection.typesupport_identifier = types::typesupport_identifier;
        type.introspection.data = &type.members;
        type.any.typesupport_identifier = "rosidl_typesupport_cpp";
        static std::string name = std::string("k8sdds_msgs/msg/") + type.callbacks.message_name_;
        type.description.type_description.type_name = {name.data(), name.size(), name.size()};
        return &type.any;
    }();
    return made;
}

}  // namespace

const rosidl_message_type_support_t* ros2_sample_type() { return support<sample>(); }
const rosidl_message_type_support_t* ros2_announcement_type() { return support<announcement>(); }

}  // namespace k8sdds
