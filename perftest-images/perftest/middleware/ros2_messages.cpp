#include "ros2_messages.h"

#include <rosidl_typesupport_cpp/message_type_support.hpp>
#include <sensor_msgs/msg/image.hpp>
#include <sensor_msgs/msg/imu.hpp>
#include <sensor_msgs/msg/point_cloud2.hpp>
#include <std_msgs/msg/byte_multi_array.hpp>

#include <cstring>

#include "common.h"
#include "fastdds_wire.h"
#include "ros2_types.h"

namespace k8sdds {
namespace {

using sensor_msgs::msg::Image;
using sensor_msgs::msg::Imu;
using sensor_msgs::msg::PointCloud2;
using sensor_msgs::msg::PointField;
using std_msgs::msg::ByteMultiArray;

class OwnMessage final : public Ros2Message {
public:
    const void* fill(const Sample& sample) override { return &sample; }
    void* target() override { return &taken_; }
    const Sample& sample() override { return taken_.sample; }

private:
    TakenSample taken_;
};

// What a real message contains in addition to its data.
void describe(Image& image) {
    image.header.frame_id = "camera";
    image.encoding = "mono8";
    image.height = 1;
}

void describe(PointCloud2& cloud) {
    cloud.header.frame_id = "lidar";
    cloud.height = 1;
    cloud.is_dense = true;
    for (const char* name : {"x", "y", "z", "intensity"}) {
        PointField& field = cloud.fields.emplace_back();
        field.name = name;
        field.offset = cloud.point_step;
        field.datatype = PointField::FLOAT32;
        field.count = 1;
        cloud.point_step += sizeof(float);
    }
}

void describe(ByteMultiArray&) {}

void set_length(Image& image, uint32_t bytes) { image.width = image.step = bytes; }
void set_length(PointCloud2& cloud, uint32_t bytes) {
    cloud.row_step = bytes;                                // what follows the last whole point is padding
    cloud.width = bytes / cloud.point_step;
}
void set_length(ByteMultiArray&, uint32_t) {}

// A message whose `data` is a sample as idl/perftest.idl encodes it: its head, the length of its payload, and its payload.
template <typename Message>
class ArrayMessage final : public Ros2Message {
public:
    explicit ArrayMessage(uint64_t length) {
        describe(message_);
        message_.data.reserve(length);
    }

    const void* fill(const Sample& sample) override {
        const uint32_t length = wire_length(sample);
        if (message_.data.size() != length) set_payload(sample, length);
        uint32_t head[head_words];
        pack(sample, head);
        std::memcpy(message_.data.data(), head, sizeof head);
        return &message_;
    }

    void* target() override { return &message_; }

    const Sample& sample() override {
        sample_.run = 0;
        if (message_.data.size() < sample_overhead) return sample_;
        uint32_t head[head_words];
        std::memcpy(head, message_.data.data(), sizeof head);
        unpack(head, sample_);
        sample_.payload = message_.data.data() + sample_overhead;
        sample_.payload_length = static_cast<uint32_t>(message_.data.size() - sample_overhead);
        return sample_;
    }

private:
    // A publisher always writes the same payload, so that samples of one length need this once.
    void set_payload(const Sample& sample, uint32_t length) {
        message_.data.resize(length);
        set_length(message_, length);
        std::memcpy(&message_.data[sizeof(uint32_t) * head_words], &sample.payload_length, sizeof sample.payload_length);
        std::memcpy(message_.data.data() + sample_overhead, sample.payload, sample.payload_length);
    }

    Message message_;
    Sample sample_;
};

// The only message without an array of bytes. The words of the head are the first elements of a covariance, which a double
// represents exactly. The length of the payload is what the size of the message leaves.
class ImuMessage final : public Ros2Message {
public:
    ImuMessage() : payload_(imu_length - sample_overhead) {
        message_.header.frame_id = "imu_link";             // its length determines that of the message
        sample_.payload = payload_.data();
        sample_.payload_length = static_cast<uint32_t>(payload_.size());
    }

    const void* fill(const Sample& sample) override {
        uint32_t head[head_words];
        pack(sample, head);
        std::copy(std::begin(head), std::end(head), message_.orientation_covariance.begin());
        return &message_;
    }

    void* target() override { return &message_; }

    const Sample& sample() override {
        sample_.run = 0;
        uint32_t head[head_words];
        for (unsigned n = 0; n < head_words; ++n) {
            const double word = message_.orientation_covariance[n];
            if (!(word >= 0 && word <= UINT32_MAX)) return sample_;
            head[n] = static_cast<uint32_t>(word);
        }
        unpack(head, sample_);
        return sample_;
    }

private:
    Imu message_;
    std::vector<uint8_t> payload_;
    Sample sample_;
};

}  // namespace

std::unique_ptr<Ros2Message> make_ros2_message(MessageType type, uint64_t length) {
    switch (type) {
        case MessageType::image: return std::make_unique<ArrayMessage<Image>>(length);
        case MessageType::point_cloud: return std::make_unique<ArrayMessage<PointCloud2>>(length);
        case MessageType::imu: return std::make_unique<ImuMessage>();
        case MessageType::bytes: return std::make_unique<ArrayMessage<ByteMultiArray>>(length);
        case MessageType::sample: break;
    }
    return std::make_unique<OwnMessage>();
}

const rosidl_message_type_support_t* ros2_type_support(MessageType type) {
    using rosidl_typesupport_cpp::get_message_type_support_handle;
    switch (type) {
        case MessageType::image: return get_message_type_support_handle<Image>();
        case MessageType::point_cloud: return get_message_type_support_handle<PointCloud2>();
        case MessageType::imu: return get_message_type_support_handle<Imu>();
        case MessageType::bytes: return get_message_type_support_handle<ByteMultiArray>();
        case MessageType::sample: break;
    }
    return ros2_sample_type();
}

}  // namespace k8sdds
