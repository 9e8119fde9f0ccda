// The message types of ROS 2: Sample and Announcement of idl/perftest.idl, as rosidl would generate them.
#pragma once

#include <rosidl_runtime_c/message_type_support_struct.h>

namespace k8sdds {

// Of a Sample that is written, and of a TakenSample that is read.
const rosidl_message_type_support_t* ros2_sample_type();
const rosidl_message_type_support_t* ros2_announcement_type();

}  // namespace k8sdds
