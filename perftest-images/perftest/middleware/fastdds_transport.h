// A transport that drops datagrams with which Fast DDS 2.9 ends the process.
#pragma once

#include <memory>

#include "fastdds_api.h"

#if FASTDDS_MAJOR < 3
#include <fastdds/rtps/network/SenderResource.h>
#include <fastdds/rtps/transport/ChainingTransport.h>
#include <fastdds/rtps/transport/ChainingTransportDescriptor.h>
#endif

namespace k8sdds {

using TransportDescriptor = eprosima::fastdds::rtps::TransportDescriptorInterface;

#if FASTDDS_MAJOR >= 3
inline std::shared_ptr<TransportDescriptor> checked(std::shared_ptr<TransportDescriptor> udp) { return udp; }
#else

// Returns whether a message of Fast DDS has a statistics submessage that is not exactly its end. The library asserts that
// it is, before it checks signatures, and Debian builds it with assertions. The walk is that of the library, which also
// ends at a submessage that is longer than the message; the length of all but the last must be a multiple of 4.
inline bool fails_assertion(const uint8_t* message, uint32_t size) {
    constexpr uint8_t pad = 0x01, info_ts = 0x09, statistics = 0x80;
    constexpr uint32_t message_header = 20, header = 4, statistics_length = 56;
    if (size < message_header || message[6] != 0x01 || message[7] != 0x0f) return false;    // not of this vendor
    for (uint32_t at = message_header; at + header <= size;) {
        const uint8_t* submessage = message + at;
        const bool little_endian = submessage[1] & 1;
        const uint32_t length = submessage[little_endian ? 3 : 2] << 8 | submessage[little_endian ? 2 : 3];
        at += header;
        if (at + length > size) return false;
        if (submessage[0] == statistics) return at + statistics_length != size;
        if (length == 0 && submessage[0] != pad && submessage[0] != info_ts) return false;   // it is the last one
        at += length;
        if (length % 4 != 0 && at < size) return true;
    }
    return false;
}

class CheckedTransport final : public eprosima::fastdds::rtps::ChainingTransport {
public:
    explicit CheckedTransport(const eprosima::fastdds::rtps::ChainingTransportDescriptor& descriptor)
        : ChainingTransport(descriptor), descriptor_(descriptor.low_level_descriptor) {}

    eprosima::fastdds::rtps::TransportDescriptorInterface* get_configuration() override { return descriptor_.get(); }
    bool send(fastdds_api::rtps::SenderResource* lower, const uint8_t* data, uint32_t size,
              fastdds_api::rtps::LocatorsIterator* first, fastdds_api::rtps::LocatorsIterator* last,
              const std::chrono::steady_clock::time_point& timeout) override {
        return lower->send(data, size, first, last, timeout);
    }
    void receive(eprosima::fastdds::rtps::TransportReceiverInterface* next, const uint8_t* data, uint32_t size,
                 const fastdds_api::rtps::Locator_t& local, const fastdds_api::rtps::Locator_t& remote) override {
        if (!fails_assertion(data, size)) next->OnDataReceived(data, size, local, remote);
    }

private:
    std::shared_ptr<TransportDescriptor> descriptor_;
};

struct CheckedDescriptor final : eprosima::fastdds::rtps::ChainingTransportDescriptor {
    using ChainingTransportDescriptor::ChainingTransportDescriptor;
    eprosima::fastdds::rtps::TransportInterface* create_transport() const override { return new CheckedTransport(*this); }
};

inline std::shared_ptr<TransportDescriptor> checked(std::shared_ptr<TransportDescriptor> udp) {
    return std::make_shared<CheckedDescriptor>(std::move(udp));
}
#endif

}  // namespace k8sdds
