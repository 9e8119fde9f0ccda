#include "control_message.h"

#include <cstring>
#include <type_traits>

namespace k8sdds {
namespace {

constexpr char magic[8] = {'k', '8', 's', 'd', 'd', 's', 'B', '1'};    // the last one increases with the step of a scan

static_assert(std::is_trivially_copyable_v<Announcement>, "it is copied to and from datagrams");

}  // namespace

ControlMessage control_message(const Announcement& announcement, unsigned step) {
    ControlMessage message;
    std::memset(static_cast<void*>(&message), 0, sizeof message);
    std::memcpy(message.magic, magic, sizeof magic);
    message.magic[sizeof magic - 1] = static_cast<char>(magic[sizeof magic - 1] + step);
    message.announcement = announcement;
    return message;
}

std::optional<Announcement> read_control_message(const void* datagram, size_t length, unsigned step) {
    ControlMessage message;
    if (length != sizeof message) return std::nullopt;
    std::memcpy(static_cast<void*>(&message), datagram, sizeof message);
    const ControlMessage expected = control_message({}, step);
    if (std::memcmp(message.magic, expected.magic, sizeof magic) != 0) return std::nullopt;
    return message.announcement;
}

}  // namespace k8sdds
