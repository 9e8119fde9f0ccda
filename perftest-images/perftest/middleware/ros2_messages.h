// The messages of ROS 2 in which samples travel: perftest's own type, or one of the types that real nodes exchange, with the type
// supports that rosidl generated for them.
#pragma once

#include <rosidl_runtime_c/message_type_support_struct.h>

#include <cstdint>
#include <memory>

#include "backend.h"

namespace k8sdds {

// The message of one endpoint, whose memory is used for all of its samples.
class Ros2Message {
public:
    virtual ~Ros2Message() = default;
    // Puts a sample into the message, and returns what rcl_publish() needs.
    virtual const void* fill(const Sample&) = 0;
    // What rcl_take() needs.
    virtual void* target() = 0;
    // Returns the sample in the message that was taken, valid until the next take. Its run is 0 if the message has none.
    virtual const Sample& sample() = 0;
};

constexpr uint64_t imu_length = 320;          // bytes of the only sample that an Imu carries: those of the message

// Returns a message for samples of at most `length` bytes, with their overhead.
std::unique_ptr<Ros2Message> make_ros2_message(MessageType, uint64_t length);
const rosidl_message_type_support_t* ros2_type_support(MessageType);

}  // namespace k8sdds
